"""Cuts a stream of text into pieces to speak: the first one early, then whole sentences.

The first piece decides how soon a listener hears something, so it ends at the first clause boundary (or, with
none in sight, after some words). Later pieces are sentences, since speech sounds best with the whole sentence
in view. Nothing is dropped: the pieces, joined, are the text that was pushed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Words whose dot never ends a sentence, and those whose dot does not when a number follows ("No. 5", "Jan. 3").
# Lower case, without the last dot.
_TITLES = re.compile(
    r"mr|mrs|ms|mx|dr|prof|sr|jr|st|mt|rev|hon|gen|col|lt|sgt|capt|gov|sen|rep|pres|vs|etc|approx|dept|inc|ltd"
    r"|corp|e\.g|i\.e|a\.m|p\.m|u\.s|u\.k|u\.n|ph\.d"
)
_BEFORE_NUMBERS = re.compile(r"no|nos|fig|vol|pp|ch|sec|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec")
_SENTENCE_MARKS = ".!?…"
_CLAUSE_MARKS = ",;:—–"
_WIDE_SENTENCE_MARKS = "。！？"
_WIDE_CLAUSE_MARKS = "，；：、"
MARKS = _SENTENCE_MARKS + _CLAUSE_MARKS + _WIDE_SENTENCE_MARKS + _WIDE_CLAUSE_MARKS
CLOSERS = "\"'”’)]}»"
# A mark, what closes behind it, and the white space that proves it is not inside a number or a name. Chinese
# and Japanese marks need no space, and a line's end is a boundary by itself.
_BOUNDARY = re.compile(
    rf"(?P<mark>[{re.escape(_SENTENCE_MARKS + _CLAUSE_MARKS)}]+)[{re.escape(CLOSERS)}]*\s+"
    rf"|(?P<wide>[{_WIDE_SENTENCE_MARKS + _WIDE_CLAUSE_MARKS}]+)[{re.escape(CLOSERS)}]*\s*"
    r"|\n\s*"
)
_WORD = re.compile(r"\S+\s+")
_LAST_WORD = re.compile(r"[\w.]+$")


@dataclass(frozen=True, slots=True)
class Boundary:
    """A place in a text where a clause has ended: the next one begins at `end` (behind the white space)."""

    end: int
    closes_sentence: bool


class ClauseCutter:
    """Collects text and gives pieces that are ready to be spoken.

    The first piece ends at a clause or sentence boundary with at least `first_chars` characters before it,
    else after `first_words` words. Every later one ends at a sentence boundary with at least `sentence_chars`
    characters, or at a clause boundary (else a word) once more than `longest` characters have gathered.

    A mark counts only when white space follows it, so "3.5", "10:30" and "e.g.this" stay whole; "Dr.",
    initials and numbered lists stay with the word behind them.
    """

    def __init__(
        self,
        *,
        first_chars: int = 12,
        first_words: int = 7,
        sentence_chars: int = 16,
        longest: int = 220,
    ) -> None:
        if min(first_chars, first_words, sentence_chars) < 1 or longest <= sentence_chars:
            raise ValueError("the limits of a piece are at least 1, and `longest` exceeds `sentence_chars`")
        self._first_chars = first_chars
        self._first_words = first_words
        self._sentence_chars = sentence_chars
        self._longest = longest
        self._held = ""
        self._first = True

    def push(self, text: str) -> list[str]:
        """Add text; returns the pieces that are complete now, each with its trailing white space."""
        self._held += text
        pieces: list[str] = []
        while (end := self._end()) is not None:
            pieces.append(self._held[:end])
            self._held = self._held[end:]
            self._first = False
        return pieces

    def flush(self) -> str:
        """The rest, "" if none; the next text pushed begins a new first piece."""
        rest, self._held, self._first = self._held, "", True
        return rest

    def _end(self) -> int | None:
        """Where the next piece ends, or None while it is not complete."""
        return self._first_end() if self._first else self._later_end()

    def _first_end(self) -> int | None:
        words = [match.end() for match in _WORD.finditer(self._held)]
        enough = len(words) >= self._first_words and words[self._first_words - 1] <= self._longest
        limit = words[self._first_words - 1] if enough else self._longest
        for boundary in boundaries(self._held):
            if boundary.end > limit:
                break
            if len(self._held[: boundary.end].strip()) >= self._first_chars:
                return boundary.end
        return limit if enough else self._overlong_end()

    def _later_end(self) -> int | None:
        for boundary in boundaries(self._held):
            if boundary.end > self._longest:
                break
            if boundary.closes_sentence and len(self._held[: boundary.end].strip()) >= self._sentence_chars:
                return boundary.end
        return self._overlong_end()

    def _overlong_end(self) -> int | None:
        """Once more than `longest` characters are held: the last clause, else word, else character in them."""
        if len(self._held) <= self._longest:
            return None
        ends = [boundary.end for boundary in boundaries(self._held) if boundary.end <= self._longest]
        ends = ends or [match.end() for match in _WORD.finditer(self._held[: self._longest])]
        return ends[-1] if ends else self._longest


def boundaries(text: str) -> list[Boundary]:
    """Every clause boundary in `text`, in order.

    White space at the very end of `text` may still grow, so a boundary there is reported as it stands: the
    rest of the space then opens the next piece, which changes nothing that is heard.
    """
    found: list[Boundary] = []
    for match in _BOUNDARY.finditer(text):
        marks = match["mark"] or match["wide"]
        if marks is None:
            found.append(Boundary(match.end(), closes_sentence=True))
        elif marks != "." or not _keeps_going(text[: match.start()], text[match.end() : match.end() + 1]):
            closes = marks[-1] in _SENTENCE_MARKS + _WIDE_SENTENCE_MARKS
            found.append(Boundary(match.end(), closes_sentence=closes))
    return found


def _keeps_going(before: str, after: str) -> bool:
    """Whether the dot between `before` and `after` (one character, "" if not known yet) ends no sentence.

    So it is behind a title, an initial, the number of a list, or an abbreviation that a number follows.
    """
    match = _LAST_WORD.search(before)
    if match is None:
        return False
    word = match.group()
    if word.isdigit():
        # "2. Buy milk" opens a line of a list; "in 1999. Then" is the end of a sentence.
        line = before[: match.start()].rpartition("\n")[2]
        return not line.strip()
    if _BEFORE_NUMBERS.fullmatch(word.lower()):
        return after == "" or after.isdigit()
    return _TITLES.fullmatch(word.lower()) is not None or (len(word) == 1 and word.isupper() and word != "I")
