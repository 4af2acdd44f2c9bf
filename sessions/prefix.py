"""The part of a text that belongs to a part of its sound (BEHAVIOURS I3, WIRE 6.7)."""

import unicodedata
from bisect import bisect_right
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
_BLANKS = tuple(blank for blank in map(chr, range(128)) if blank.isspace())


def spoken_prefix(text: str, marks: Sequence[TextMark], ms: int, total_ms: int) -> str:
    """Return the words of `text` that were spoken after `ms` of `total_ms` milliseconds.

    `marks` are in order, as `place` puts them. Between two marks, and from the last one to the end, characters are
    interpolated; the cut falls on a word border, to the left. At or beyond the end it is all of the text, at 0
    nothing. Without sound (`total_ms` 0) a text is heard as a whole (I2, I3; WIRE 6.7).
    """
    if total_ms <= 0 or ms >= total_ms:
        return text
    if ms <= 0:
        return ""
    at = bisect_right(marks, ms, key=_when)
    before = marks[at - 1] if at else TextMark(0, 0)
    after = marks[at] if at < len(marks) else TextMark(len(text), total_ms)
    start, end = min(before.chars, len(text)), min(after.chars, len(text))
    return _to_word_border(text, start + max(0, end - start) * (ms - before.ms) // (after.ms - before.ms))


def place(marks: list[TextMark], mark: TextMark) -> None:
    """Put a mark where it belongs, in place: by time, and at no time are fewer characters spoken than before."""
    at = bisect_right(marks, mark.ms, key=_when)
    spoken = max(marks[at - 1].chars, mark.chars) if at else mark.chars
    marks.insert(at, TextMark(spoken, mark.ms))
    for later in range(at + 1, len(marks)):
        if marks[later].chars >= spoken:
            break
        marks[later] = TextMark(spoken, marks[later].ms)


def _when(mark: TextMark) -> int:
    return mark.ms


def _to_word_border(text: str, chars: int) -> str:
    if 0 < chars < len(text) and text.isascii() and not text[chars].isspace():
        chars = max(text.rfind(blank, 0, chars) for blank in _BLANKS) + 1
    while 0 < chars < len(text) and not _is_border(text[chars - 1], text[chars]):
        chars -= 1
    return text[:chars].rstrip()


def _is_border(left: str, right: str) -> bool:
    if left.isspace() or right.isspace():
        return True
    return (_stands_alone(left) or _stands_alone(right)) and not unicodedata.category(right).startswith("M")


def _stands_alone(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in _UNSPACED)
