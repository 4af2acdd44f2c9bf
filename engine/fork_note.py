"""What a forked log says of itself: where it comes from, what was changed, and which entry is which."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from antiphon.events.config import JsonText
from antiphon.events.ids import fingerprint

from .forked import Entry, Forked, Left, Source


class Run(Struct, frozen=True, omit_defaults=True):
    """Transactions `first` to `last` of a fork that come from the same: of the origin, those from `origin` on.

    `otherwise`: they decided something else there.
    """

    source: Source
    first: int
    last: int
    origin: int | None = None
    otherwise: bool = False


class Gap(Struct, frozen=True):
    """Transactions `first` to `last` of the origin that are not in the fork, and why."""

    first: int
    last: int
    why: str


class ForkNote(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Stands in the header of a forked log.

    `edits` is the digest of the edits, empty without any; `patch` what was changed of the configuration, as JSON.
    """

    origin: str
    at: int
    edits: str = ""
    patch: JsonText = ""
    pipeline: str = ""
    entries: tuple[Run, ...] = ()
    left: tuple[Gap, ...] = ()


def digest(edits: bytes) -> str:
    """Return the digest of edits, empty for none."""
    return fingerprint(edits) if edits.strip() else ""


def fork_id(origin: str, at: int, edits: bytes, patch: str, salt: str = "") -> str:
    """Return the id of a fork, of the kind of its origin's: the same for the same fork; `salt` makes another."""
    kind = origin[: max(origin.find(mark) for mark in "-_") + 1]
    return kind + fingerprint("\0".join([origin, str(at), digest(edits), patch, salt]).encode())


def runs(entries: Sequence[Entry]) -> tuple[Run, ...]:
    """Return entries as runs of the same kind."""
    found: list[Run] = []
    for entry in entries:
        last = found[-1] if found else None
        if last is not None and _follows(last, entry):
            found[-1] = Run(last.source, last.first, entry.seq, last.origin, last.otherwise)
        else:
            found.append(Run(entry.source, entry.seq, entry.seq, entry.origin, _otherwise(entry)))
    return tuple(found)


def _otherwise(entry: Entry) -> bool:
    return entry.origin is not None and not entry.same


def _follows(last: Run, entry: Entry) -> bool:
    if (last.source, last.otherwise, last.origin is None) != (
        entry.source,
        _otherwise(entry),
        entry.origin is None,
    ):
        return False
    return last.origin is None or entry.origin == last.origin + entry.seq - last.first


def gaps(left: Iterable[Left]) -> tuple[Gap, ...]:
    """Return what was left out as runs for the same reason."""
    found: list[Gap] = []
    for known in sorted(left, key=lambda known: known.origin):
        last = found[-1] if found else None
        if last is not None and (last.last + 1, last.why) == (known.origin, known.why):
            found[-1] = Gap(last.first, known.origin, last.why)
        else:
            found.append(Gap(known.origin, known.origin, known.why))
    return tuple(found)


def note(forked: Forked, origin: str, *, edits: bytes = b"", patch: str = "", pipeline: str = "") -> ForkNote:
    """Return what the header of a fork says."""
    return ForkNote(
        origin=origin,
        at=forked.at,
        edits=digest(edits),
        patch=patch,
        pipeline=pipeline,
        entries=runs(forked.entries),
        left=gaps(forked.left),
    )
