"""Valid messages made wrong: other types, other numbers, other names, damaged text."""

import json
import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any

Holder = dict[Any, Any] | list[Any]


class Raw:
    """A value that is written as it stands, whether or not it is JSON."""

    def __init__(self, text: str) -> None:
        self.text = text


class Twice(dict[Any, Any]):
    """An object whose first key stands twice, with another value."""


def written(value: object) -> str:
    """Return a value as JSON, as far as it is that."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        members = [f"{json.dumps(key)}:{written(inner)}" for key, inner in value.items()]
        if isinstance(value, Twice) and members:
            members.append(f"{json.dumps(next(iter(value)))}:null")
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(written(inner) for inner in value) + "]"
    return json.dumps(value)


NUMBERS = (0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**40, 0.5, -0.0, 1e308, 1e-320)
TOKENS = (
    "1e400",
    "-1e400",
    "NaN",
    "Infinity",
    "-Infinity",
    "01",
    "0x1",
    "1.",
    "tru",
    "'x'",
    "",
    "1" * 400,
    '"\\ud800"',
)
STRINGS = (
    "",
    " ",
    "0",
    "1e9",
    "null",
    "true",
    "\ud800",
    "\udfff\ud800",
    "\0",
    "\u202e\u0301",
    "x" * 300,
    "y" * 70_000,
    "../../etc/passwd",
    "file:///etc/passwd",
    "__proto__",
    "$session",
    "$other_session",
    "$other_item",
    "$other_response",
    "$item",
    "$response",
    "$call",
    "$number",
)
SHAPES: tuple[Callable[[], object], ...] = (
    lambda: None,
    lambda: True,
    lambda: False,
    list,
    dict,
    lambda: [[]],
    lambda: [None] * 50,
    lambda: {"type": {"type": {"type": "x"}}},
    lambda: {"": 1},
    lambda: Raw("[" * 70 + "]" * 70),
    lambda: Raw('{"a":' * 63 + "1" + "}" * 63),
    lambda: Raw('{"a":' * 5000),
    lambda: Raw("[" + "0," * 70_000 + "0]"),
)


def strange(rng: random.Random) -> object:
    """Draw a value that nobody expects."""
    roll = rng.random()
    if roll < 0.3:
        return rng.choice(NUMBERS)
    if roll < 0.4:
        return Raw(rng.choice(TOKENS))
    if roll < 0.65:
        return rng.choice(STRINGS)
    return rng.choice(SHAPES)()


def mutated(rng: random.Random, message: dict[str, Any]) -> bytes:
    """Return a message with one to three things wrong in it."""
    value = json.loads(json.dumps(message))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        value = rng.choice(_CHANGES)(rng, value)
    text = written(value).encode("utf-8", "surrogatepass")
    return _torn(rng, text) if rng.random() < 0.12 else text


def _places(value: object, found: list[tuple[Holder, Any]]) -> list[tuple[Holder, Any]]:
    if isinstance(value, dict):
        for key in value:
            found.append((value, key))
            _places(value[key], found)
    elif isinstance(value, list):
        for index in range(len(value)):
            found.append((value, index))
            _places(value[index], found)
    return found


def _place(rng: random.Random, value: object) -> tuple[Holder, Any] | None:
    found = _places(value, [])
    return rng.choice(found) if found else None


def _replace(rng: random.Random, value: object) -> object:
    if (place := _place(rng, value)) is None:
        return strange(rng)
    place[0][place[1]] = strange(rng)
    return value


def _remove(rng: random.Random, value: object) -> object:
    if (place := _place(rng, value)) is not None:
        del place[0][place[1]]
    return value


def _rename(rng: random.Random, value: object) -> object:
    place = _place(rng, value)
    if place is not None and isinstance(place[0], dict):
        place[0][rng.choice(("type", "x", "", place[1].upper(), place[1] + "s"))] = place[0].pop(place[1])
    return value


def _other_type(rng: random.Random, value: object) -> object:
    """Write a number as text, text as a number, one value as a list of it, a list as its first."""
    if (place := _place(rng, value)) is None:
        return value
    holder, key = place
    old = holder[key]
    if isinstance(old, bool):
        new: object = rng.choice((int(old), str(old).lower()))
    elif isinstance(old, int | float):
        new = rng.choice((str(old), float(old), -old, old * 10**6, [old], old + 0.5))
    elif isinstance(old, str):
        new = rng.choice((len(old), [old], {"type": old}, old + " ", old.upper(), list(old[:20])))
    elif isinstance(old, list):
        new = rng.choice((old[0] if old else {}, old * 2, old * 100, {"0": old}, list(reversed(old))))
    else:
        new = [old]
    holder[key] = new
    return value


def _swap(rng: random.Random, value: object) -> object:
    one, other = _place(rng, value), _place(rng, value)
    if one is not None and other is not None:
        try:
            held, taken = deepcopy(one[0][one[1]]), deepcopy(other[0][other[1]])
            one[0][one[1]], other[0][other[1]] = taken, held
        except (KeyError, IndexError):
            pass  # the one stood within the other
    return value


def _add(rng: random.Random, value: object) -> object:
    place = _place(rng, value)
    if place is not None and isinstance(place[0], dict):
        place[0][rng.choice(KEYS)] = strange(rng)
    return value


def _double(rng: random.Random, value: object) -> object:
    """Let a key stand twice."""
    if (place := _place(rng, value)) is not None and isinstance(place[0][place[1]], dict):
        place[0][place[1]] = Twice(place[0][place[1]])
        return value
    return Twice(value) if isinstance(value, dict) else value


def _bad_sound(rng: random.Random, value: object) -> object:
    """Damage what looks like base64."""
    found = [
        (holder, key)
        for holder, key in _places(value, [])
        if isinstance(holder[key], str) and len(holder[key]) > 100 and holder[key].isascii()
    ]
    if not found:
        return _replace(rng, value)
    holder, key = rng.choice(found)
    text = holder[key]
    at = rng.randrange(len(text))
    holder[key] = rng.choice(
        (
            text[:at],
            text[:-1],
            text + "=",
            text[:at] + "@" + text[at + 1 :],
            text[:at] + "\n" + text[at:],
            text[:at] + "-_" + text[at + 2 :],
            "data:audio/wav;base64," + text,
            text * 3,
            text[: at // 4 * 4],
            "AA==",
        )
    )
    return value


def _torn(rng: random.Random, text: bytes) -> bytes:
    """Damage the text itself."""
    at = rng.randrange(len(text) + 1)
    roll = rng.randrange(7)
    if roll == 0:
        return text[:at]
    if roll == 1:
        return text[:at] + rng.choice((b"\xff", b"\x00", b"\xed\xa0\x80", b"\\u", b'"', b"}")) + text[at:]
    if roll == 2:
        return text + rng.choice((b"{}", b",", b"\0", b" " * 5000, text))
    if roll == 3:
        return b"\xef\xbb\xbf" + text
    if roll == 4:
        return text.decode("utf-8", "replace").encode("utf-16")
    if roll == 5:
        return text[:at] + text[at + 1 :]
    return text[at:] + text[:at]


KEYS = (
    "type",
    "event_id",
    "client_seq",
    "session",
    "item",
    "response",
    "audio",
    "id",
    "item_id",
    "response_id",
    "extra_body",
    "turn_detection",
    "tools",
    "metadata",
    "video_frames",
    "previous_item_id",
    "format",
    "sample_rate_hz",
    "prompt",
    "x",
    "transcript",
    "overlap_action",
    "is_speech",
    "input",
    "conversation",
    "max_output_tokens",
    "content",
    "resume_token",
)

_CHANGES: tuple[Callable[[random.Random, Any], Any], ...] = (
    *(_replace, _replace, _replace, _remove, _remove, _rename, _other_type, _other_type, _other_type),
    *(_swap, _add, _add, _double, _bad_sound, _bad_sound),
)
