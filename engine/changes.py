"""What differs between two values, place by place: states, events, commands."""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import UNSET, Struct, UnsetType

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]
"""What JSON can say."""


class Change(Struct, frozen=True, omit_defaults=True):
    """A place that differs: fields and indexes joined by dots, and what was and is there; unset: nothing."""

    path: str
    before: Plain | UnsetType = UNSET
    after: Plain | UnsetType = UNSET


def plain(value: object) -> Plain:
    """Return records as dicts, with everything that is in them."""
    found: Plain = msgspec.to_builtins(value, str_keys=True)
    return found


def changes(before: Plain, after: Plain) -> list[Change]:
    """Return all places at which two values differ, in their order; records and lists are gone into."""
    return list(_changes("", before, after))


def _changes(path: str, before: Plain, after: Plain) -> Iterator[Change]:
    match before, after:
        case dict(), dict():
            for name in [*before, *(name for name in after if name not in before)]:
                yield from _at(_join(path, name), before.get(name, UNSET), after.get(name, UNSET))
        case list(), list():
            yield from _list_changes(path, before, after)
        case _:
            if before != after or type(before) is not type(after):
                yield Change(path, before, after)


def _at(path: str, before: Plain | UnsetType, after: Plain | UnsetType) -> Iterator[Change]:
    if isinstance(before, UnsetType) or isinstance(after, UnsetType):
        yield Change(path, before, after)
    else:
        yield from _changes(path, before, after)


def _list_changes(path: str, before: list[Plain], after: list[Plain]) -> Iterator[Change]:
    """Compare lists: what both begin and end with is left out, so that one more in the middle is one change."""
    head = _common(before, after)
    tail = min(_common(before[::-1], after[::-1]), len(before) - head, len(after) - head)
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    for index in range(max(len(old), len(new))):
        place = _join(path, str(head + index))
        yield from _at(place, old[index] if index < len(old) else UNSET, new[index] if index < len(new) else UNSET)


def _common(before: Sequence[Plain], after: Sequence[Plain]) -> int:
    count = 0
    for one, other in zip(before, after, strict=False):
        if one != other:
            break
        count += 1
    return count


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
