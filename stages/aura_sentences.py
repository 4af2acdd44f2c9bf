"""How AURA's text is cut into what its talker says in one go (N56)."""

import re

COMMA_AFTER = 10
"""A comma ends a piece only behind so many characters: a shorter clause has no melody of its own."""
_MARKS = re.compile(r"[.!?;。！？；\n]+|[,，]+")


def content(text: str) -> int:
    """Return how many characters of a text are spoken: letters and digits of any script."""
    return sum(character.isalnum() for character in text)


class SentenceCutter:
    """Collects the text of one request; a piece ends with a mark and has at least `least` characters of content.

    The pieces, joined, are the text. A mark of a sentence is one of . ! ? ; in either width, or the end of a line.
    """

    def __init__(self, least: int = 30) -> None:
        self._least = least
        self._held = ""

    def push(self, text: str) -> list[str]:
        """Add text; return the pieces that are complete now."""
        self._held += text
        pieces: list[str] = []
        while (end := self._end()) is not None:
            pieces.append(self._held[:end])
            self._held = self._held[end:]
        return pieces

    def flush(self) -> str:
        """Return the rest at the end of the text, however short; "" if there is none."""
        rest, self._held = self._held, ""
        return rest

    def _end(self) -> int | None:
        """Return where the next piece ends, None while it is not complete."""
        clause = 0
        for mark in _MARKS.finditer(self._held):
            far = content(self._held[clause : mark.start()]) >= COMMA_AFTER
            if mark.group()[0] in ",，" and not far:
                continue
            clause = mark.end()
            if content(self._held[:clause]) >= self._least:
                return clause
        return None
