"""From the store back to a state: the latest snapshot and what was recorded behind it."""

import anyio.lowlevel
from msgspec import DecodeError, Struct

from antiphon.events.log import EventLog, UnknownSession
from antiphon.sessions import core

BATCH = 500


class Folded(Struct, frozen=True):
    """A state as it was after transaction `head`."""

    session: core.Session
    head: int


async def fold(log: EventLog, name: str) -> Folded | None:
    """Fold a session from its snapshot and tail, giving others their turn; None if nothing was recorded.

    Raises:
        Unavailable: the store cannot be read.
    """
    session, head = await _snapshot(log, name)
    while True:
        try:
            batch = await log.read(name, head, BATCH)
        except UnknownSession:
            return None
        if not batch:
            return Folded(session, head) if head else None
        core.fold(batch, session)
        head = batch[-1].seq
        await anyio.lowlevel.checkpoint()


async def _snapshot(log: EventLog, name: str) -> tuple[core.Session, int]:
    snapshot = await log.load_snapshot(name)
    if snapshot is None or snapshot.version != core.STATE_VERSION:
        return core.new(), 0
    try:
        return core.load(snapshot.state), snapshot.seq
    except DecodeError:
        return core.new(), 0
