"""The part of a text that belongs to a part of its sound (BEHAVIOURS I3, WIRE 6.7)."""

import unicodedata
from collections.abc import Sequence

from antiphon.events.audio import TextMark

_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x9FFF),  # Chinese and Japanese
    (0xF900, 0xFAFF),
    (0xFF00, 0xFF9F),
    (0x20000, 0x3FFFF),
)
"""Scripts without spaces between words: every character of them may be the last one that was heard."""


def spoken_prefix(text: str, marks: Sequence[TextMark], ms: int, total_ms: int) -> str:
    """Return the words of `text` that were spoken after `ms` of `total_ms` milliseconds.

    Between two marks, and from the last one to the end, characters are interpolated; the cut falls on a word
    border, to the left. At or beyond the end it is all of the text, at 0 nothing. Without sound (`total_ms` 0)
    a text is heard as a whole (I2, I3; WIRE 6.7).
    """
    if total_ms <= 0 or ms >= total_ms:
        return text
    if ms <= 0:
        return ""
    before, after = TextMark(0, 0), TextMark(len(text), total_ms)
    for mark in sorted(marks, key=lambda mark: (mark.ms, mark.chars)):
        if mark.ms <= ms:
            before = TextMark(max(before.chars, min(mark.chars, len(text))), mark.ms)
        else:
            after = TextMark(min(mark.chars, len(text)), mark.ms)
            break
    chars = max(0, after.chars - before.chars) * (ms - before.ms) // (after.ms - before.ms)
    return _to_word_border(text, before.chars + chars)


def _to_word_border(text: str, chars: int) -> str:
    while 0 < chars < len(text) and not _is_border(text[chars - 1], text[chars]):
        chars -= 1
    return text[:chars].rstrip()


def _is_border(left: str, right: str) -> bool:
    if left.isspace() or right.isspace():
        return True
    return (_stands_alone(left) or _stands_alone(right)) and not unicodedata.category(right).startswith("M")


def _stands_alone(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in _UNSPACED)
