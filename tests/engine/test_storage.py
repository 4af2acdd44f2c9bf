"""A store that cannot be written: who is told, what is shown, and that it is found out when it can be again."""

import pytest
from structlog.testing import capture_logs

from antiphon.events.commands import Heartbeat
from antiphon.events.log import Unavailable

from .worlds import ONE, MoodyLog, code_of, opening, settle, world

pytestmark = pytest.mark.anyio

FULL = Unavailable("the disk is full")


async def test_it_is_seen_that_a_store_is_well_again_though_nobody_comes() -> None:
    """Who looks at the health of a server sends it no session that could show it."""
    log = MoodyLog()
    with capture_logs() as lines:
        async with world(log=log) as here:
            attachment = await here.hub.open(opening())
            log.broken = FULL
            attachment.send(Heartbeat(attachment=1))
            await settle()
            assert attachment.ended == "failed"
            assert here.hub.not_ready == "sessions cannot be recorded: the disk is full"
            for _ in range(5):
                await here.advance(1_000)
                assert here.hub.not_ready is not None
            log.broken = None
            await here.advance(1_000)
            assert here.hub.not_ready is None
    told = [line["event"] for line in lines if "store" in line["event"]]
    assert told == ["the store cannot be written; it is tried every second", "the store can be written again"]


async def test_an_opening_that_finds_the_store_full_shows_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    log = MoodyLog()

    async def full(session: str) -> int:
        raise FULL

    async with world(log=log, settings=ONE) as here:
        with monkeypatch.context() as patch:
            patch.setattr(log, "acquire", full)
            log.broken = FULL
            assert await code_of(here.hub.open(opening())) == "storage_unavailable"
            assert here.hub.not_ready is not None
        log.broken = None
        await here.hub.open(opening("next"))
        assert here.hub.not_ready is None, "a session that is recorded is proof enough"


async def test_what_fails_again_while_it_is_asked_is_asked_once() -> None:
    log = MoodyLog()
    async with world(log=log) as here:
        first, second = await here.hub.open(opening("a")), await here.hub.open(opening("b"))
        log.broken = FULL
        for attachment in (first, second):
            attachment.send(Heartbeat(attachment=1))
        await settle()
        storage = here.hub._roster.storage  # pyright: ignore[reportPrivateUsage]
        assert storage.trouble is not None
        log.broken = None
        await here.advance(1_000)
        assert (storage.trouble, storage._asking) == (None, False)  # pyright: ignore[reportPrivateUsage]
        await here.advance(60_000)
        assert here.hub.statistics().live == 2, "both were taken over again"


async def test_a_server_that_ends_asks_no_more() -> None:
    log = MoodyLog()
    async with world(log=log) as here:
        attachment = await here.hub.open(opening())
        here.hub.stopping.set()
        log.broken = FULL
        attachment.send(Heartbeat(attachment=1))
        await settle()
        storage = here.hub._roster.storage  # pyright: ignore[reportPrivateUsage]
        assert storage.trouble is not None
        assert not storage._asking  # pyright: ignore[reportPrivateUsage]
        log.broken = None
