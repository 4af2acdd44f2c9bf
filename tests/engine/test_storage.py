"""A store that cannot be written: who is told, what is shown, and that it is found out when it can be again."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from antiphon.engine.checking import check
from antiphon.engine.clock import VirtualClock
from antiphon.engine.datadir import DataDirectory, DataPaths
from antiphon.engine.errors import Refused
from antiphon.engine.hosts import InlineHost
from antiphon.engine.hub import Hub
from antiphon.engine.replay import replay
from antiphon.engine.settings import HubSettings
from antiphon.engine.sqlite_log import SqliteLog
from antiphon.events.commands import Heartbeat
from antiphon.events.log import Corrupt, Unavailable
from antiphon.sessions.plugins import ECHO
from antiphon.stages.echo import EchoStage

from .worlds import ONE, SECRET, MoodyLog, ask, breathe, code_of, opening, resumption, settle, world

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


@pytest.mark.parametrize(
    "damage",
    ["UPDATE records SET data = X'00' WHERE seq = 2 AND key = 1", "DELETE FROM records WHERE seq = 2 AND key = 1"],
)
async def test_of_two_sessions_the_damaged_one_is_refused_by_its_record_and_the_other_goes_on(
    tmp_path: Path, damage: str
) -> None:
    """What a client may have seen is not cut off: the log of the damaged one is left as it is."""
    clock = VirtualClock()
    with DataDirectory(tmp_path) as data:
        async with served(data, clock) as (hub, log):
            bad, good = await hub.open(opening("bad")), await hub.open(opening("good"))
            for attachment in (bad, good):
                ask(attachment)
                ask(attachment, "And?")
            await breathe(5)
        connection = sqlite3.connect(data.paths.database, isolation_level=None)
        connection.execute(damage)
        before = connection.execute("SELECT seq, data FROM records WHERE key = 1").fetchall()
        with capture_logs() as lines:
            async with served(data, clock) as (hub, log):
                await hub.recovered.wait()
                again = await hub.resume(resumption(good))
                ask(again)
                with pytest.raises(
                    Refused, match=r"session_resume_expired.*record 2 of its log is damaged"
                ) as refused:
                    await hub.resume(resumption(bad))
                assert not refused.value.retryable
                assert hub.statistics().admitted == 1
                await breathe(5)
                assert replay(await log.read(good.session, 0)).identical
                with pytest.raises(Corrupt):
                    await log.read(bad.session, 1)
        assert connection.execute("SELECT seq, data FROM records WHERE key = 1").fetchall() == before
        connection.close()
    told = [line for line in lines if line.get("session") == bad.session]
    assert [(line["log_level"], line["seq"]) for line in told] == [("error", 2)]
    assert {damage.session for damage in check(DataPaths(tmp_path), None, lambda done, total: None).damage} == {
        bad.session
    }


@asynccontextmanager
async def served(data: DataDirectory, clock: VirtualClock) -> AsyncIterator[tuple[Hub, SqliteLog]]:
    log = await SqliteLog.open(data)
    settings = HubSettings(shutdown_ms=200)
    async with Hub(log, log.samples, InlineHost(EchoStage()), ECHO, settings, clock, SECRET) as hub:
        yield hub, log
    await log.aclose()
