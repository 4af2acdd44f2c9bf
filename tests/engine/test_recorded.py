"""Answers that only the log remembers: found, missing, or not to be read now."""

import pytest

from antiphon.engine import recorded as module
from antiphon.engine.errors import Refused
from antiphon.engine.live import KEPT_ANSWERS
from antiphon.engine.opening import Resumption
from antiphon.engine.recorded import recorded
from antiphon.events.commands import Heartbeat
from antiphon.events.events import SessionOpened, SessionResumed
from antiphon.events.log import Transaction, Unavailable, UnknownSession

from .worlds import MoodyLog, opening, settle, world
from tests.rules import rule

pytestmark = pytest.mark.anyio


class ClosedBook(MoodyLog):
    """A log that cannot be read when it is told so."""

    error: Unavailable | UnknownSession | None = None

    async def read(self, session: str, after: int, limit: int = 1000) -> list[Transaction]:
        if self.error is not None:
            raise self.error
        return await super().read(session, after, limit)


@rule("B19", "C11")
async def test_what_granted_a_connection_is_found_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 7)
    async with world() as here:
        first = await here.hub.open(opening("o"))
        for _ in range(30):
            first.send(Heartbeat(attachment=1))
        await settle()
        asked = Resumption(session=first.session, token=first.token or "", control_id="r")
        second = await here.hub.resume(asked)
        opened = await recorded(second.feed, "o")
        resumed = await recorded(second.feed, "r")
        assert opened is not None
        assert resumed is not None
        assert isinstance(opened.transaction.events[0], SessionOpened)
        assert isinstance(resumed.transaction.events[0], SessionResumed)
        assert (opened.seq, resumed.seq) == (first.entry.seq, second.entry.seq)
        assert await recorded(second.feed, "nobody's") is None


@pytest.mark.parametrize("error", [Unavailable("full"), UnknownSession("trimmed away")])
async def test_a_log_that_cannot_be_read(error: Unavailable | UnknownSession) -> None:
    log = ClosedBook()
    async with world(log=log) as here:
        attachment = await here.hub.open(opening("o"))
        log.error = error
        if isinstance(error, UnknownSession):
            assert await recorded(attachment.feed, "o") is None
        else:
            with pytest.raises(Refused, match="storage_unavailable"):
                await recorded(attachment.feed, "o")
            with pytest.raises(Refused, match="storage_unavailable"):
                await here.hub.open(opening("another"))
        log.error = None


@rule("B21")
async def test_answers_in_memory_are_a_few_and_the_log_has_them_all() -> None:
    async with world() as here:
        first = await here.hub.open(opening("o"))
        live = here.hub._live[first.session]  # pyright: ignore[reportPrivateUsage]
        for number in range(KEPT_ANSWERS):
            live.remember(f"other {number}", first.entry)
        assert "o" not in live.answers
        found = await live.answered("o")
        assert found is not None
        assert found.seq == 1
