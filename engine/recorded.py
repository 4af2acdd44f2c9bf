"""The answer to a control that only the log remembers."""

import anyio.lowlevel

from antiphon.events.events import SessionOpened, SessionResumed
from antiphon.events.log import LogError, Transaction, UnknownSession

from .errors import Refused
from .feed import Feed
from .published import Published, published

BATCH = 500


async def recorded(feed: Feed, control_id: str) -> Published | None:
    """Return the durable transaction that opened or resumed the session under a control id, None if there is none.

    Raises:
        Refused: `storage_unavailable`.
    """
    after = 0
    while after < feed.durable:
        try:
            batch = await feed.log.read(feed.session, after, BATCH)
        except UnknownSession:
            return None
        except LogError as error:
            raise Refused("storage_unavailable", "The session's log cannot be read now.") from error
        for transaction in batch:
            if _granted_by(transaction, control_id):
                return published(transaction, {})
        after = batch[-1].seq if batch else feed.durable
        await anyio.lowlevel.checkpoint()
    return None


def _granted_by(transaction: Transaction, control_id: str) -> bool:
    return any(
        isinstance(event, SessionOpened | SessionResumed) and event.control_id == control_id
        for event in transaction.events
    )
