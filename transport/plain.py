"""Text of strangers, made fit for a terminal or a line of a log: nothing in it moves a cursor or begins a line."""

import re

_UNSEEN = r"\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
"""Controls that UTF-8 lets pass as characters, among them the one-byte escapes, and marks that turn text round."""

_CONTROLS = re.compile(rf"[\x00-\x1f{_UNSEEN}\ud800-\udfff\ufeff]")
_WITHIN_LINES = re.compile(rf"[\x00-\x09\x0b-\x1f{_UNSEEN}\ud800-\udfff\ufeff]")
_IN_JSON = re.compile(rf"[{_UNSEEN}]")


def plain(text: str, *, lines: bool = False) -> str:
    """Return the text with its control characters written as Python writes them; `lines` keeps its lines."""
    return (_WITHIN_LINES if lines else _CONTROLS).sub(_written, text)


def plain_json(text: str) -> str:
    """Return the same JSON without the control characters that JSON lets stand in its texts."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def _written(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode()
