"""From the store back to a state: the latest snapshot and what was recorded behind it."""

from functools import partial

import anyio.lowlevel
from msgspec import DecodeError, Struct

from antiphon.events.log import EventLog, Transaction, UnknownSession
from antiphon.sessions import core

from .boundary import contained_step

BATCH = 500
"""Records that are read at a time."""

SLICE = 100
"""Records that are folded in one go: some tenths of a millisecond, then others get their turn."""

UNFIT = "a snapshot does not fit the log behind it; the session is folded from its beginning"


class Folded(Struct, frozen=True):
    """A state as it was after transaction `head`, folded from the snapshot after `snapshot` (0: there was none)."""

    session: core.Session
    head: int
    snapshot: int = 0


async def fold(log: EventLog, name: str) -> Folded | None:
    """Fold a session from its snapshot and tail, giving others their turn; None if nothing was recorded.

    A snapshot that its log cannot go on from only costs the time to fold the session from its beginning.

    Raises:
        Corrupt, Unavailable: the store cannot be read.
    """
    session, snapshot = await _snapshot(log, name)
    head = snapshot
    while True:
        try:
            batch = await log.read(name, head, BATCH)
        except UnknownSession:
            return None
        if not batch:
            return Folded(session, head, snapshot) if head else None
        for begin in range(0, len(batch), SLICE):
            folding = partial(_fold, session, batch[begin : begin + SLICE])
            if not snapshot:
                folding()
            elif not contained_step(UNFIT, name.__str__, folding):
                session, snapshot, batch = core.new(), 0, []
                break
            await anyio.lowlevel.checkpoint()
        head = batch[-1].seq if batch else 0


def _fold(session: core.Session, piece: list[Transaction]) -> None:
    core.fold(piece, session)


async def _snapshot(log: EventLog, name: str) -> tuple[core.Session, int]:
    snapshot = await log.load_snapshot(name)
    if snapshot is None or snapshot.version != core.STATE_VERSION:
        return core.new(), 0
    try:
        session = core.load(snapshot.state)
    except DecodeError:
        return core.new(), 0
    return (session, snapshot.seq) if session.id == name else (core.new(), 0)
