"""The boundary round a session: an error of ours ends that session, and nothing else stops for it."""

from collections.abc import Awaitable, Callable

import structlog

_log = structlog.get_logger()


async def contained(what: str, session: Callable[[], str], serve: Callable[[], Awaitable[None]]) -> bool:
    """Run what belongs to one session; return False if an error of ours ended it.

    The error is logged as `what`, with the session's name as it is then. What it means for the session is the
    caller's business.
    """
    try:
        await serve()
    except Exception:
        _log.exception(what, session=session())
        return False
    return True


def spared_step(
    what: str, session: Callable[[], str], step: Callable[[], None], spared: Callable[[], bool]
) -> bool:
    """Carry out one step of a session; return False if an error of ours ended it before it had changed anything.

    `spared` says whether that is so. If not, the error goes on: the session is no longer sound.
    """
    try:
        step()
    except Exception:
        if not spared():
            raise
        _log.exception(what, session=session())
        return False
    return True


def contained_step(what: str, session: Callable[[], str], step: Callable[[], None]) -> bool:
    """Carry out one step of what belongs to a session, within the same boundary: a plain call that never raises."""
    try:
        step()
    except Exception:
        _log.exception(what, session=session())
        return False
    return True
