"""Readers of a session that have no part in it: they hold no lease, and nobody waits for them."""

import hmac
from collections.abc import Callable
from types import TracebackType
from typing import Self

from msgspec import Struct

from antiphon.events.commands import AnyCommand, ConfirmAttachment
from antiphon.events.events import SessionView
from antiphon.events.ids import EventPosition
from antiphon.sessions import core

from .cursor import Cursor, Patience
from .errors import Refused
from .feed import Feed
from .live import Live
from .outcome import decided
from .roster import Roster
from .tokens import Veiled, observer_token

MOST = 8
"""Observers of one session at a time."""


class Observation(Veiled, Struct, frozen=True, kw_only=True):
    """What somebody wants to read: a session, from behind message number `last_number`, or behind `position`."""

    session: str
    token: str
    last_number: int = 0
    position: EventPosition | None = None


class Observer:
    """A place among a session's observers, until it is left. `view` is the session when this was granted."""

    def __init__(self, live: Live, view: SessionView, asked: Observation) -> None:
        self.session = asked.session
        self.view = view
        self.feed: Feed = live.runner.feed
        self._live = live
        self._asked = asked

    def __enter__(self) -> Self:
        self._live.observers += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.observers -= 1

    async def cursor(self, lost: Callable[[], None]) -> Cursor:
        """Return a reader from the place that was asked for to the session's end; it may hold earlier messages too.

        Its end is `slow_consumer` when it is too far behind, and `lost` is called at once.

        Raises:
            Refused: `storage_unavailable`.
        """
        asked, settings = self._asked, self._live.settings
        position = asked.position
        after = await self.feed.locate(asked.last_number) if position is None else position.seq - 1
        patience = Patience(settings.slow_bytes, settings.slow_ms * 1000, lost)
        return Cursor(self.feed, after, patience=patience)


async def observe(roster: Roster, secret: bytes, asked: Observation) -> Observer:
    """Admit an observer; it must be entered at once.

    Raises:
        Refused: `invalid_observer_token`, also if there is no such session; `session_resume_conflict`: nothing of
            this number, or id, was sent yet; `resource_exhausted`: it has enough observers; `going_away`,
            `storage_unavailable`, `stage_unavailable`.
    """
    live = await _found(roster, asked)
    attachment = live.runner.session.lease.attachment if live is not None else 1
    # The newest token, and the one before: its owner may not have been told of the new one yet.
    good = [observer_token(secret, asked.session, known) for known in (attachment, attachment - 1)]
    fits = [hmac.compare_digest(asked.token.encode(), token.encode()) for token in good]
    if live is None or not any(fits) or not live.runner.session.resumable:
        raise _nobody()
    view = await _view(live)
    seq = 0 if asked.position is None else asked.position.seq
    if asked.last_number > live.runner.feed.number or seq > live.runner.feed.durable:
        raise Refused("session_resume_conflict", "No event of this number, or id, was sent yet.")
    if live.observers >= MOST:
        raise Refused("resource_exhausted", f"The session has {MOST} observers, which is all that it may have.")
    return Observer(live, view, asked)


async def _found(roster: Roster, asked: Observation) -> Live | None:
    try:
        return await roster.find(asked.session)
    except Refused as refused:
        if refused.code == "session_resume_expired":
            return None
        raise


async def _view(live: Live) -> SessionView:
    """Return the session as it is shown now; when that is durable."""
    seen: list[SessionView] = []

    nothing = ConfirmAttachment(attachment=0)

    def look(session: core.Session, command: AnyCommand) -> AnyCommand:
        seen.append(core.view(session))
        return command

    try:
        decided(await live.ask(nothing, prepare=look, droppable=True))
    except Refused as refused:
        raise (_nobody() if refused.code == "session_closed" else refused) from None
    return seen[-1]


def _nobody() -> Refused:
    return Refused("invalid_observer_token", "There is no such session, or the observer token is not its.")
