"""Retention: removing sessions that nobody needs any more from a data directory that no server uses."""

from collections.abc import Sequence
from pathlib import Path

from antiphon.events.log import Corrupt, EventLog, LaterRecord

from .datadir import DataDirectory
from .sqlite_log import SqliteLog


class NotRemovable(Exception):
    """A session may not be removed. The message says why, in one sentence."""


async def remove(root: Path, sessions: Sequence[str]) -> None:
    """Delete the logs of closed sessions with their sound; if one may not be deleted, none is.

    Deleted for ever. One that was interrupted goes on at the next start. The space goes to sessions to come; the
    database's file does not shrink. A session whose log is damaged will never end, and may be deleted.

    Raises:
        NotRemovable: a session is not there, or has not ended.
        DataDirectoryError: a server uses the directory, or it cannot be used.
        Unavailable: the log cannot be read or written.
    """
    with DataDirectory(root) as data:
        log = await SqliteLog.open(data)
        try:
            states = {row.session: row.state for row in await log.sessions()}
            for session in sessions:
                state = states.get(session)
                if state is None:
                    raise NotRemovable(f"there is no session {session} here")
                if state != "closed" and not await _is_damaged(log, session):
                    raise NotRemovable(
                        f"{session} has not ended and may still be resumed: it ends when a server has run here for "
                        "its grace"
                    )
            for session in dict.fromkeys(sessions):
                await log.delete(session)
        finally:
            await log.aclose()


async def _is_damaged(log: EventLog, session: str) -> bool:
    after = 0
    try:
        while batch := await log.read(session, after):
            after = batch[-1].seq
    except LaterRecord:
        return False
    except Corrupt:
        return True
    return False
