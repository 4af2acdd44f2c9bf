"""Which entries of two logs belong together: the rare ones first, and what lies between them in its order."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from antiphon.events.commands import AckPlayback, AnyCommand, AppendAudio
from antiphon.events.log import Transaction

from .likeness import likeness

Matched = tuple[Transaction | None, Transaction | None]
Key = tuple[object, ...]


AROUND = 2
"""Pieces of sound on either side that must be alike too: one alone is often like another somewhere else."""

FEW = 40
"""Entries among which a single piece of sound is no coincidence."""

OUT_OF_STEP_US = 3_000_000
ENOUGH = 5
"""What is alike, and so much earlier or later than usual, is a coincidence; so many say what is usual."""

LAST = 3


class _Keyed(Struct, frozen=True):
    """An entry and what it is like: among its neighbours, as a whole, by its command, by the command's kind."""

    entry: Transaction
    keys: tuple[Key, Key, Key, Key]


def align(a: Sequence[Transaction], b: Sequence[Transaction], a_session: str, b_session: str) -> Iterator[Matched]:
    """Yield the entries of both logs in their order, those that belong together as pairs.

    Entries that both have once are held to belong together, as many of them as stand in the same order: first by
    all that they say (of sound, with what is around it), then by their command, then by its kind; and not if they
    come much earlier or later than the others that do. What is left comes by its time.
    """
    yield from _between(_keyed(a, a_session), _keyed(b, b_session), 0, 0)


def _keyed(log: Sequence[Transaction], session: str) -> list[_Keyed]:
    sound = [_sound(entry.command) for entry in log if isinstance(entry.command, AppendAudio)]
    found: list[_Keyed] = []
    heard = 0
    for entry in log:
        if isinstance(entry.command, AppendAudio):
            around = tuple(sound[max(heard - AROUND, 0) : heard + AROUND + 1])
            heard += 1
        else:
            around = ()
        found.append(_Keyed(entry, _keys(entry, session, around)))
    return found


def _sound(command: AppendAudio) -> Key:
    return command.size, command.scores, command.speech, command.transcript


def _keys(entry: Transaction, session: str, around: Key) -> tuple[Key, Key, Key, Key]:
    command = entry.command
    kind: Key = (type(command),)
    if isinstance(command, AppendAudio):  # most of a log, so without a detour
        asked: Key = (*kind, *_sound(command))
    else:
        asked = (*kind, likeness(command, session))
    whole = (*asked, tuple([type(event) for event in entry.events]))
    return (*whole, around), whole, asked, kind


def _between(a: list[_Keyed], b: list[_Keyed], level: int, usual: int) -> Iterator[Matched]:
    """Yield what lies between two anchors, by the keys of `level` and, where these do not help, of the next.

    `usual` is by how much later the second log is, so far (µs).
    """
    first = 0
    while first < min(len(a), len(b)) and a[first].keys[level] == b[first].keys[level]:
        yield a[first].entry, b[first].entry
        first += 1
    last = 0
    while last < min(len(a), len(b)) - first and a[-1 - last].keys[level] == b[-1 - last].keys[level]:
        last += 1
    yield from _middle(a[first : len(a) - last], b[first : len(b) - last], level, usual)
    for index in range(last, 0, -1):
        yield a[-index].entry, b[-index].entry


def _middle(a: list[_Keyed], b: list[_Keyed], level: int, usual: int) -> Iterator[Matched]:
    if not a or not b:
        yield from ((known.entry, None) for known in a)
        yield from ((None, known.entry) for known in b)
        return
    anchors = _anchors(*(_candidates(known, level, few=max(len(a), len(b)) <= FEW) for known in (a, b)))
    usual = _shift(a, b, anchors, usual)
    anchors = [(i, j) for i, j in anchors if abs(b[j].entry.at - a[i].entry.at - usual) <= OUT_OF_STEP_US]
    if not anchors:
        yield from _between(a, b, level + 1, usual) if level < LAST else _by_time(a, b, usual)
        return
    i = j = 0
    for to_i, to_j in anchors:
        yield from _between(a[i:to_i], b[j:to_j], level, usual)
        yield a[to_i].entry, b[to_j].entry
        i, j = to_i + 1, to_j + 1
    yield from _between(a[i:], b[j:], level, usual)


def _candidates(known: list[_Keyed], level: int, *, few: bool) -> dict[Key, int]:
    """Return the places of keys that are there once; of single pieces of sound only among few entries."""
    counted = Counter(entry.keys[level] for entry in known)
    return {
        entry.keys[level]: index
        for index, entry in enumerate(known)
        if counted[entry.keys[level]] == 1 and (few or _is_telling(entry.entry.command, level))
    }


def _is_telling(command: AnyCommand, level: int) -> bool:
    if isinstance(command, AppendAudio):
        return level == 0
    return not isinstance(command, AckPlayback)


def _shift(a: list[_Keyed], b: list[_Keyed], anchors: list[tuple[int, int]], usual: int) -> int:
    """Return by how much later the second log usually is: by these anchors, if they are enough to tell."""
    shifts = sorted(b[j].entry.at - a[i].entry.at for i, j in anchors)
    return shifts[len(shifts) // 2] if len(shifts) >= ENOUGH else usual


def _anchors(once_a: dict[Key, int], once_b: dict[Key, int]) -> list[tuple[int, int]]:
    """Return the places of keys that both have once, as many as stand in the same order."""
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


def _by_time(a: list[_Keyed], b: list[_Keyed], usual: int) -> Iterator[Matched]:
    """Yield entries of the same kind as pairs; of different ones the earlier comes alone."""
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i].keys[LAST] == b[j].keys[LAST]:
            yield a[i].entry, b[j].entry
            i, j = i + 1, j + 1
        elif a[i].entry.at + usual <= b[j].entry.at:
            yield a[i].entry, None
            i += 1
        else:
            yield None, b[j].entry
            j += 1
    yield from ((known.entry, None) for known in a[i:])
    yield from ((None, known.entry) for known in b[j:])
