"""Which entries of two logs belong together: the rare ones first, and what lies between them in its order."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from antiphon.events.commands import AppendAudio
from antiphon.events.log import Transaction

from .likeness import likeness

Matched = tuple[Transaction | None, Transaction | None]
Key = tuple[object, ...]


class _Keyed(Struct, frozen=True):
    """An entry and what it is like: as a whole, by its command, by the command's kind."""

    entry: Transaction
    keys: tuple[Key, Key, Key]


def align(a: Sequence[Transaction], b: Sequence[Transaction], a_session: str, b_session: str) -> Iterator[Matched]:
    """Yield the entries of both logs in their order, those that belong together as pairs.

    Entries that both have once are held to belong together, as many of them as stand in the same order: first by
    all that they say, then by their command, then by its kind. What is left comes by its time.
    """
    yield from _between(_keyed(a, a_session), _keyed(b, b_session), 0)


def _keyed(log: Sequence[Transaction], session: str) -> list[_Keyed]:
    return [_Keyed(entry, _keys(entry, session)) for entry in log]


def _keys(entry: Transaction, session: str) -> tuple[Key, Key, Key]:
    command = entry.command
    kind: Key = (type(command),)
    if isinstance(command, AppendAudio):  # most of a log, so without a detour
        asked: Key = (*kind, command.size, command.scores, command.speech, command.transcript)
    else:
        asked = (*kind, likeness(command, session))
    return (*asked, tuple([type(event) for event in entry.events])), asked, kind


def _between(a: list[_Keyed], b: list[_Keyed], level: int) -> Iterator[Matched]:
    """Yield what lies between two anchors, by the keys of `level` and, where these do not help, of the next."""
    first = 0
    while first < min(len(a), len(b)) and a[first].keys[level] == b[first].keys[level]:
        yield a[first].entry, b[first].entry
        first += 1
    last = 0
    while last < min(len(a), len(b)) - first and a[-1 - last].keys[level] == b[-1 - last].keys[level]:
        last += 1
    yield from _middle(a[first : len(a) - last], b[first : len(b) - last], level)
    for index in range(last, 0, -1):
        yield a[-index].entry, b[-index].entry


def _middle(a: list[_Keyed], b: list[_Keyed], level: int) -> Iterator[Matched]:
    if not a or not b:
        yield from ((known.entry, None) for known in a)
        yield from ((None, known.entry) for known in b)
        return
    anchors = _anchors([known.keys[level] for known in a], [known.keys[level] for known in b])
    if not anchors:
        yield from _between(a, b, level + 1) if level < 2 else _by_time(a, b)
        return
    i = j = 0
    for to_i, to_j in anchors:
        yield from _between(a[i:to_i], b[j:to_j], level)
        yield a[to_i].entry, b[to_j].entry
        i, j = to_i + 1, to_j + 1
    yield from _between(a[i:], b[j:], level)


def _anchors(a: list[Key], b: list[Key]) -> list[tuple[int, int]]:
    """Return the places of keys that both have once, as many as stand in the same order."""
    once_a, once_b = _once(a), _once(b)
    both = [(index, once_b[key]) for key, index in once_a.items() if key in once_b]
    ends: list[int] = []
    chains: list[tuple[int, int, int]] = []
    tails: list[int] = []
    for i, j in both:
        at = bisect_left(ends, j)
        chains.append((i, j, tails[at - 1] if at else -1))
        ends[at : at + 1] = [j]
        tails[at : at + 1] = [len(chains) - 1]
    found: list[tuple[int, int]] = []
    at = tails[-1] if tails else -1
    while at >= 0:
        i, j, at = chains[at]
        found.append((i, j))
    return found[::-1]


def _once(keys: list[Key]) -> dict[Key, int]:
    counted = Counter(keys)
    return {key: index for index, key in enumerate(keys) if counted[key] == 1}


def _by_time(a: list[_Keyed], b: list[_Keyed]) -> Iterator[Matched]:
    """Yield entries of the same kind as pairs; of different ones the earlier comes alone."""
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i].keys[2] == b[j].keys[2]:
            yield a[i].entry, b[j].entry
            i, j = i + 1, j + 1
        elif a[i].entry.at <= b[j].entry.at:
            yield a[i].entry, None
            i += 1
        else:
            yield None, b[j].entry
            j += 1
    yield from ((known.entry, None) for known in a[i:])
    yield from ((None, known.entry) for known in b[j:])
