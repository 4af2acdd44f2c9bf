"""A restart: unfinished sessions are taken over, from memory's log and from SQLite's."""

from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from antiphon.engine.clock import VirtualClock
from antiphon.engine.datadir import DataDirectory
from antiphon.engine.errors import Refused
from antiphon.engine.hosts import InlineHost
from antiphon.engine.hub import Hub
from antiphon.engine.ingress import AppendRequest
from antiphon.engine.opening import Opening, Resumption
from antiphon.engine.recovery import fold
from antiphon.engine.replay import replay
from antiphon.engine.settings import HubSettings
from antiphon.engine.sqlite_log import SqliteLog
from antiphon.events.commands import CommitInput, StartRunner
from antiphon.events.events import (
    AudioDelta,
    EngineRestarted,
    ErrorReported,
    RequestReleased,
    ResponseEnded,
    SessionClosed,
    SessionDetached,
    SessionResumed,
)
from antiphon.events.log import Corrupt, Snapshot, Transaction
from antiphon.sessions import core
from antiphon.sessions.plugins import CASCADE, ECHO, TurnModel
from antiphon.stages.base import Append, Submit
from antiphon.stages.echo import EchoStage
from antiphon.stages.scripted import Finish, Hang, Say, ScriptedStage

from .worlds import SECRET, MoodyLog, ask, killed, opening, settle, world
from tests.rules import rule

pytestmark = pytest.mark.anyio

ONE = HubSettings(max_sessions=1, shutdown_ms=200)
FEW = HubSettings(shutdown_ms=200)


@rule("P6")
async def test_a_running_answer_fails_by_name_and_the_session_can_be_resumed() -> None:
    clock, log = VirtualClock(), MoodyLog()
    async with killed(ScriptedStage(default=(Say("One.", 80), Hang())), log, clock) as hub:
        old = await hub.open(opening())
        ask(old)
        await settle()
        before = hub.session(old.session)
        assert before is not None
        epoch = before.epoch
    clock.advance(30_000_000)
    async with world(log=log, clock=clock) as here:
        assert here.hub.recovered.is_set()
        assert here.hub.statistics().recovered == 1
        *_, started, released = await here.recorded(old.session)
        assert isinstance(started.command, StartRunner)
        assert [type(event) for event in released.events] == [RequestReleased], "asked again (DESIGN 3)"
        kinds = [type(event) for event in started.events]
        assert kinds[-2:] == [EngineRestarted, SessionDetached]
        assert ErrorReported in kinds
        (ended,) = [event for event in started.events if isinstance(event, ResponseEnded)]
        assert ended.status == "failed"
        assert ended.failure is not None
        assert ended.failure.code == "engine_restarted"
        session = here.hub.session(old.session)
        assert session is not None
        assert session.epoch > epoch
        assert started.at >= 30_000_000, "session time has followed the wall"
        # the grace starts now, and is at least 120 s
        await here.advance(119_000)
        new = await here.hub.resume(
            Resumption(session=old.session, token=old.token or "", control_id="r", last_number=1)
        )
        sound = [
            entry.sound[event.ref]
            async for entry in new.replay()
            for event in entry.transaction.events
            if isinstance(event, AudioDelta)
        ]
        assert [len(data) for data in sound] == [3_840]
        ask(new)
        await settle()
        events = await here.events(old.session)
        assert isinstance([event for event in events if isinstance(event, ResponseEnded)][-1], ResponseEnded)
        assert replay(await here.recorded(old.session)).identical


@rule("P6")
async def test_sessions_without_resume_are_closed_at_the_start() -> None:
    clock, log = VirtualClock(), MoodyLog()
    async with killed(ScriptedStage(), log, clock) as hub:
        ga = await hub.open(Opening(dialect="ga", control_id="ga"))
    async with world(log=log, clock=clock) as here:
        assert isinstance((await here.events(ga.session))[-1], SessionClosed)
        assert [row.state for row in await log.sessions()] == ["closed"]
        assert here.hub.statistics().admitted == 0
        assert (here.hub.restart.left, here.hub.restart.back, here.hub.restart.ended) == (1, 0, 1)
        with pytest.raises(Refused, match="session_resume_expired"):
            await here.hub.resume(Resumption(session=ga.session, token="x", control_id="r"))


@rule("M15")
async def test_a_detached_session_of_a_clean_shutdown_is_resumable_at_the_next_start() -> None:
    clock, log = VirtualClock(), MoodyLog()
    async with world(log=log, clock=clock) as before:
        old = await before.hub.open(opening())
    async with world(log=log, clock=clock) as here:
        new = await here.hub.resume(Resumption(session=old.session, token=old.token or "", control_id="r"))
        assert new.generation == 2


@rule("P6")
async def test_grace_after_a_restart_ends_a_session_that_nobody_wants() -> None:
    clock, log = VirtualClock(), MoodyLog()
    async with killed(ScriptedStage(), log, clock) as hub:
        old = await hub.open(opening())
    async with world(log=log, clock=clock) as here:
        await here.advance(120_000)
        last = (await here.events(old.session))[-1]
        assert isinstance(last, SessionClosed)
        assert last.reason == "disconnect_grace_expired"


async def test_sound_from_before_the_restart_is_read_from_the_store() -> None:
    clock, log = VirtualClock(), MoodyLog()
    pcm = b"\x00\x20" * 3_200
    async with killed(ScriptedStage(default=(Finish(),)), log, clock) as hub:
        old = await hub.open(opening())
        old.append(AppendRequest(data=pcm[:3_200], speech=True))
        await settle()
    stage = ScriptedStage()
    async with world(stage, log=log, clock=clock) as here:
        new = await here.hub.resume(Resumption(session=old.session, token=old.token or "", control_id="r"))
        new.append(AppendRequest(data=pcm[3_200:], speech=True))
        new.send(CommitInput(attachment=new.generation, create_response=True))
        await settle()
        submit, unit, *_ = stage.messages
        assert isinstance(submit, Submit)
        assert submit.sound == (), "what is heard as a unit is not told twice"
        assert isinstance(unit, Append)
        assert unit.data == pcm


async def test_until_the_scan_is_done_an_unknown_session_gets_a_transient_answer() -> None:
    clock, log = VirtualClock(), MoodyLog()
    async with killed(ScriptedStage(), log, clock) as hub:
        old = await hub.open(opening())
    log.acquiring = anyio.Event()
    async with world(log=log, clock=clock) as here:
        assert not here.hub.recovered.is_set()
        with pytest.raises(Refused) as refused:
            await here.hub.resume(Resumption(session="duplex-?", token="x", control_id="r"))
        assert (refused.value.code, refused.value.retryable) == ("going_away", True)
        log.acquiring.set()
        await settle()
        with pytest.raises(Refused, match="session_resume_expired"):
            await here.hub.resume(Resumption(session="duplex-?", token="x", control_id="r"))
        await here.hub.resume(Resumption(session=old.session, token=old.token or "", control_id="r"))


async def test_a_wall_clock_that_went_back_does_not_turn_session_time_back() -> None:
    clock, log = VirtualClock(), MoodyLog()
    async with killed(ScriptedStage(), log, clock) as hub:
        old = await hub.open(opening())
        clock.advance(10_000_000)
        ask(old)
        await settle()
    clock.jump_wall(-3_600_000_000)
    async with world(log=log, clock=clock) as here:
        times = [entry.at for entry in await here.recorded(old.session)]
        assert times == sorted(times)
        assert times[-1] == 10_000_000


class DamagedLog(MoodyLog):
    """A log that cannot be read from one session's second record on, or all of one session's."""

    damaged = ""

    async def read(self, session: str, after: int, limit: int = 1000) -> list[Transaction]:
        if session == self.damaged:
            raise Corrupt(1, "its checksum does not match")
        return await super().read(session, after, limit)


async def test_a_damaged_log_is_named_once_and_holds_no_slot() -> None:
    clock, log = VirtualClock(), DamagedLog()
    async with killed(ScriptedStage(), log, clock) as hub:
        bad = await hub.open(opening("bad"))
    log.damaged = bad.session
    with capture_logs() as lines:
        async with world(log=log, clock=clock, settings=ONE) as here:
            assert here.hub.recovered.is_set()
            assert here.hub.statistics().admitted == 0
            await here.advance(600_000)
            await here.hub.open(opening("next"))
            with pytest.raises(Refused, match=r"session_resume_expired.*record 1 of its log is damaged"):
                await here.hub.resume(Resumption(session=bad.session, token=bad.token or "", control_id="r"))
    told = [line for line in lines if line.get("session") == bad.session]
    assert [(line["seq"], line["why"]) for line in told] == [(1, "its checksum does not match")]


@pytest.mark.parametrize("other", [CASCADE, replace(ECHO, version="2")], ids=["plugin", "version"])
async def test_a_session_of_another_pipeline_is_left_alone_until_that_one_is_back(other: TurnModel) -> None:
    clock, log = VirtualClock(), MoodyLog()
    async with world(log=log, clock=clock, plugin=other) as before:
        old = await before.hub.open(opening())
    recorded = await log.read(old.session, 0)
    resumption = Resumption(session=old.session, token=old.token or "", control_id="r")
    with capture_logs() as lines:
        async with world(log=log, clock=clock, settings=ONE) as here:
            assert here.hub.recovered.is_set()
            assert (here.hub.statistics().admitted, here.hub.statistics().recovered) == (0, 0)
            with pytest.raises(Refused, match=f"{other.name} {other.version}") as refused:
                await here.hub.resume(resumption)
            assert (refused.value.code, refused.value.retryable) == ("stage_unavailable", True)
            await here.advance(600_000)
            await here.hub.open(opening("ours"))
    assert await log.read(old.session, 0) == recorded, "nothing was written"
    assert [row.term for row in await log.sessions() if row.session == old.session] == [1]
    (line,) = [line for line in lines if line.get("session") == old.session]
    assert (line["plugin"], line["plugin_version"]) == (other.name, other.version)
    async with world(log=log, clock=clock, plugin=other) as again:
        assert (await again.hub.resume(resumption)).generation == 2


async def test_a_snapshot_of_another_version_is_ignored() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        await settle()
        await here.log.save_snapshot(
            attachment.session, Snapshot(seq=1, version=core.STATE_VERSION + 1, state=b"?")
        )
        folded = await fold(here.log, attachment.session)
        assert folded is not None
        assert (folded.head, folded.session.id) == (1, attachment.session)
        await here.log.save_snapshot(attachment.session, Snapshot(seq=1, version=core.STATE_VERSION, state=b"?"))
        again = await fold(here.log, attachment.session)
        assert again == folded
        assert await fold(here.log, "duplex-none") is None


@rule("P1", "P6")
async def test_the_same_with_sqlite(tmp_path: Path) -> None:
    clock = VirtualClock()
    pcm = b"\x00\x20" * 16_000
    with DataDirectory(tmp_path) as data:
        log = await SqliteLog.open(data, writer="inline")
        async with Hub(log, log.samples, InlineHost(EchoStage()), ECHO, FEW, clock, SECRET) as hub:
            old = await hub.open(opening())
            old.append(AppendRequest(data=pcm, speech=True))
            old.send(CommitInput(attachment=1, create_response=True))
            with old.cursor() as cursor, anyio.fail_after(20):
                async for entry in cursor:
                    if any(isinstance(event, ResponseEnded) for event in entry.transaction.events):
                        break
        await log.aclose()
    clock.advance(1_000_000)
    with DataDirectory(tmp_path) as data:
        log = await SqliteLog.open(data, writer="thread")
        async with Hub(log, log.samples, InlineHost(EchoStage()), ECHO, FEW, clock, SECRET) as hub:
            with anyio.fail_after(20):
                await hub.recovered.wait()
                new = await hub.resume(
                    Resumption(session=old.session, token=old.token or "", control_id="r", last_number=0)
                )
                missed = [entry async for entry in new.replay()]
            sound = b"".join(data for entry in missed for data in entry.sound.values())
            assert len(sound) == 48_000
            assert isinstance(new.entry.transaction.events[0], SessionResumed)
            recorded = await log.read(old.session, 0)
            assert replay(recorded).identical
            assert [entry.term for entry in recorded] == sorted(entry.term for entry in recorded)
        await log.aclose()
