"""How two golden logs differ, or the messages of them, in few words."""

import difflib
from collections.abc import Iterator

import msgspec

MOST = 12
"""Differing lines of one file that are told one by one."""
WIDEST = 160


def differences(old: str, new: str) -> list[str]:
    """Return how the text of a log, or of its messages, has changed: by transaction, field by field.

    What only follows from another difference is left out: numbers behind something new, times behind a delay.
    """
    before, after = [_Line(line) for line in old.splitlines()], [_Line(line) for line in new.splitlines()]
    matcher = difflib.SequenceMatcher(None, [line.shape for line in before], [line.shape for line in after], False)
    told: list[str] = []
    late = 0
    for what, a, b, c, d in matcher.get_opcodes():
        if what != "equal":
            told += [f"{line.place}: gone: {_short(line.shape)}" for line in before[a:b]]
            told += [f"{line.place}: new: {_short(line.shape)}" for line in after[c:d]]
            continue
        for was, now in zip(before[a:b], after[c:d], strict=True):
            told += _changed(was, now, moved=a != c or was.place != now.place, late=late)
            late = now.at - was.at
    rest = len(told) - MOST
    return told if rest <= 0 else [*told[:MOST], f"… and {rest} differences more"]


class _Line:
    """One line: its place in the log, what it is made of, and what it says."""

    def __init__(self, text: str) -> None:
        number, _, rest = text.partition(" ")
        self.at = 0
        self.value: object
        if number.isdecimal():
            self.place = number
            self.value = msgspec.json.decode(rest) if rest.startswith("{") else rest
        else:
            self.value = msgspec.json.decode(text)
            self.place = "header"
        match self.value:
            case {"seq": int(seq), "at": int(at), "command": {"type": str(kind)}, "events": list(events)}:
                self.place, self.at = str(seq), at
                self.shape = " ".join([kind, "→", *(str(event["type"]) for event in events)])
            case {"type": str(kind)}:
                self.shape = kind
            case str(text):
                self.shape, _, self.value = text.rpartition(" ")
            case _:
                self.shape = "header"


def _changed(was: _Line, now: _Line, *, moved: bool, late: int) -> Iterator[str]:
    if was.value == now.value:
        return
    for path, before, after in fields(was.value, now.value):
        if moved and path in ("seq", "event_id", "server_event_seq"):
            continue
        if path == "at" and now.at - was.at == late:
            continue
        where = f"{now.place} {now.shape.partition(' →')[0]}"
        yield f"{where}: {path or 'bytes'}: {_short(before)} → {_short(after)}"


def fields(old: object, new: object, path: str = "") -> Iterator[tuple[str, object, object]]:
    """Give the smallest parts of two values that differ: where, and what it was and is."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from fields(old.get(name, "nothing"), new.get(name, "nothing"), f"{path}.{name}".lstrip("."))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for n, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from fields(before, after, f"{path}[{n}]")
    elif old != new:
        yield path, old, new


def _short(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= WIDEST else f"{text[:WIDEST]}…"
