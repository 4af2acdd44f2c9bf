"""JSON of strangers: bounded in size, depth, stack and time before anything is made of it."""

import json
import re
from collections.abc import Iterable
from typing import Final, cast

import msgspec
import numpy as np

from .codes import MAX_EVENT
from .wire_errors import WireError, wrong_type

MAX_DEPTH = 64
LONGEST_NUMBER = 4300
"""Digits; the limit of Python's own integers."""

_LONG = re.compile(rb"(?<![0-9])[0-9]{%d}" % (LONGEST_NUMBER + 1))
"""Only tried where digits begin: tried at each of them it would take time in the square of their number."""

_OPEN = np.frombuffer(b"[{", np.uint8)
_CLOSE = np.frombuffer(b"]}", np.uint8)
_QUOTE = 0x22


def check(frame: bytes) -> None:
    """Accept the size and the depth of a frame.

    Raises:
        WireError: `event_too_large` or `invalid_json`, unnumbered.
    """
    if len(frame) > MAX_EVENT:
        raise WireError("event_too_large", f"An event has at most {MAX_EVENT} bytes of UTF-8.", numbered=False)
    # Counting brackets costs a tenth of a microsecond and clears every ordinary frame.
    if frame.count(b"{") + frame.count(b"[") > MAX_DEPTH and _depth(frame) > MAX_DEPTH:
        raise invalid_json("JSON is nested too deeply.")


def invalid_json(message: str = "The frame is not valid JSON.") -> WireError:
    """Return the refusal of a frame that cannot be read."""
    return WireError("invalid_json", message, numbered=False)


def check_numbers(frame: bytes, spare: int) -> None:
    """Refuse a number that is too long to be meant; `spare` is how many bytes of the frame are not payload.

    Raises:
        WireError: `invalid_json`, unnumbered.
    """
    if spare > LONGEST_NUMBER and _LONG.search(frame):
        try:
            json.loads(frame)
        except (ValueError, RecursionError):
            raise invalid_json() from None


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
    path = "".join(reversed(_path(parsed) or ())).removeprefix(".")
    refusal = wrong_type(f"{constants[0]} is not a value of JSON.", path)
    refusal.event_id = _event_id(parsed)
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


def _depth(frame: bytes) -> int:
    """Return how deep the brackets outside strings nest, in time linear in the frame and without a stack."""
    if b"\\" in frame:
        frame = frame.replace(b"\\\\", b"").replace(b'\\"', b"")
    codes = np.frombuffer(frame, np.uint8)
    outside = np.logical_not(np.bitwise_and(np.cumsum(codes == _QUOTE, dtype=np.int32), 1))
    steps = np.isin(codes, _OPEN).astype(np.int8) - np.isin(codes, _CLOSE).astype(np.int8)
    return int(np.max(np.cumsum(steps * outside, dtype=np.int32), initial=0))
