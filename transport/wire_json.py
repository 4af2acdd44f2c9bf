"""JSON of strangers: bounded in size, depth, stack and time before anything is made of it."""

import json
from collections.abc import Iterable
from typing import Final, cast

import msgspec
import numpy as np

from .codes import MAX_EVENT
from .wire_errors import WireError, wrong_type

MAX_DEPTH = 64
MOST_VALUES = 65_536
"""Values of one frame: what takes time are not the bytes of a sound, but many small things (WIRE 12)."""
MOST_MARKS = 4 * 1024 * 1024
"""Marks of JSON and escapes in one frame, those in its texts included: no text that is kept has as many bytes."""
LONGEST_NUMBER = 4300
"""Digits; the limit of Python's own integers."""

_DIGITS = b"0123456789"
_STRIDE = LONGEST_NUMBER // 2
"""A number that is too long covers two bytes in a row of those that are so far apart."""

_OPEN = np.frombuffer(b"[{", np.uint8)
_CLOSE = np.frombuffer(b"]}", np.uint8)
_QUOTE, _COMMA = 0x22, 0x2C
_PLAIN = bytes(code for code in range(256) if code not in b'"[]{},')


def check(frame: bytes) -> None:
    """Accept the size, the depth and the number of values of a frame.

    Raises:
        WireError: `event_too_large` or `invalid_json`, unnumbered.
    """
    if len(frame) > MAX_EVENT:
        raise WireError("event_too_large", f"What is sent has at most {MAX_EVENT} bytes of UTF-8.", numbered=False)
    # Counting marks costs a tenth of a microsecond and clears every ordinary frame.
    opened = frame.count(b"{") + frame.count(b"[")
    marks = opened + frame.count(b",")
    if opened <= MAX_DEPTH and marks <= MOST_VALUES:
        return
    crowded = marks + frame.count(b"\\") > MOST_MARKS
    depth, values = _measured(frame[:MOST_MARKS] if crowded else frame)
    if depth > MAX_DEPTH:
        raise invalid_json("JSON is nested too deeply.")
    if crowded or values > MOST_VALUES:
        raise WireError("event_too_large", f"What is sent has at most {MOST_VALUES} values.", numbered=False)


def invalid_json(message: str = "What was sent is not valid JSON.") -> WireError:
    """Return the refusal of a frame that cannot be read."""
    return WireError("invalid_json", message, numbered=False)


def check_numbers(frame: bytes, spare: int) -> None:
    """Refuse a number that is too long to be meant; `spare` is how many bytes of the frame are not payload.

    Raises:
        WireError: `invalid_json`, unnumbered.
    """
    if spare > LONGEST_NUMBER and _has_long_number(frame):
        try:
            json.loads(frame)
        except (ValueError, RecursionError):
            raise invalid_json() from None


def _has_long_number(frame: bytes) -> bool:
    """Return whether so many digits stand in a row, in a text or as a number; most bytes are not looked at."""
    steps = np.frombuffer(frame[::_STRIDE], np.uint8)
    digits = (steps >= ord("0")) & (steps <= ord("9"))
    for step in np.flatnonzero(digits[1:] & digits[:-1]).tolist():
        begin, end = step * _STRIDE, (step + 1) * _STRIDE
        if not frame[begin:end].isdigit():
            continue
        before, behind = frame[max(0, begin - LONGEST_NUMBER) : begin], frame[end : end + LONGEST_NUMBER]
        found = len(before) - len(before.rstrip(_DIGITS)) + len(behind) - len(behind.lstrip(_DIGITS))
        if end - begin + found > LONGEST_NUMBER:
            return True
    return False


def diagnose(frame: bytes, error: msgspec.DecodeError) -> WireError:
    """Return why a frame could not be decoded: it is no JSON, or it holds NaN or Infinity where a value belongs."""
    constants: list[str] = []

    def constant(word: str) -> object:
        constants.append(word)
        return _CONSTANT

    try:
        parsed: object = json.loads(frame, parse_constant=constant)
    except (ValueError, RecursionError):
        return invalid_json()
    if not constants:
        return invalid_json()
    path, event_id = "".join(reversed(_path(parsed) or ())).removeprefix("."), _event_id(parsed)
    try:
        (path + (event_id or "")).encode()
    except UnicodeEncodeError:  # half a character, which only this reader of JSON lets pass: it cannot be told back
        return invalid_json()
    refusal = wrong_type(f"{constants[0]} is not a value of JSON.", path)
    refusal.event_id = event_id
    refusal.__cause__ = error
    return refusal


_CONSTANT: Final = object()


def _path(value: object) -> list[str] | None:
    """Return the steps to where NaN or Infinity stands first, the last one first; None: nowhere in `value`.

    They are written down on the way back: a path that is made for each value costs as much as all of its keys.
    """
    if value is _CONSTANT:
        return []
    steps: Iterable[tuple[object, object]] = ()
    keyed = isinstance(value, dict)
    if isinstance(value, dict):
        steps = cast("dict[object, object]", value).items()
    elif isinstance(value, list):
        steps = enumerate(cast("list[object]", value))
    for step, inner in steps:
        found = _path(inner) if inner is _CONSTANT or type(inner) in (dict, list) else None
        if found is not None:
            found.append(f".{step}" if keyed else f"[{step}]")
            return found
    return None


def _event_id(parsed: object) -> str | None:
    if not isinstance(parsed, dict):
        return None
    event_id = cast("dict[str, object]", parsed).get("event_id")
    return event_id if isinstance(event_id, str) and len(event_id) <= 512 else None


def _measured(frame: bytes) -> tuple[int, int]:
    """Return how deep the brackets outside strings nest, and how many values there are: in time linear in the frame
    and without a stack."""
    if b"\\" in frame:
        frame = frame.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = np.frombuffer(frame.translate(None, _PLAIN), np.uint8)
    outside = np.bitwise_and(np.cumsum(marks == _QUOTE, dtype=np.int32), 1) == 0
    opens = np.isin(marks, _OPEN) & outside
    steps = opens.astype(np.int8) - (np.isin(marks, _CLOSE) & outside).astype(np.int8)
    depth = int(np.max(np.cumsum(steps, dtype=np.int32), initial=0))
    return depth, int(np.count_nonzero(opens | ((marks == _COMMA) & outside)))
