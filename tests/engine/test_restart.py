"""A start with many sessions in the log: their snapshots, their order, and what does not go on as it should."""

from typing import NamedTuple

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from antiphon.engine.attachment import Attachment
from antiphon.engine.clock import VirtualClock
from antiphon.engine.errors import Refused
from antiphon.engine.hub import Hub
from antiphon.engine.ingress import AppendRequest
from antiphon.engine.opening import Opening
from antiphon.engine.recovery import SLICE, fold
from antiphon.engine.replay import replay
from antiphon.engine.restart import AT_A_TIME
from antiphon.engine.runner import SNAPSHOT_AFTER
from antiphon.engine.settings import HubSettings
from antiphon.events.commands import CloseSession, CommitInput, Heartbeat
from antiphon.events.events import (
    AudioReceived,
    CommandSequenced,
    EngineRestarted,
    ResponseEnded,
    SessionClosed,
    SessionResumed,
)
from antiphon.events.items import Message
from antiphon.events.log import EventLog, LogError, Snapshot, Transaction, Unavailable
from antiphon.sessions import core
from antiphon.sessions.plugins import ECHO, TurnModel
from antiphon.stages.base import Submit
from antiphon.stages.scripted import Decide, Hang, Say, ScriptedStage, Take

from .worlds import GatedLog, MoodyLog, ask, code_of, killed, opening, resumption, settle, world
from tests.rules import rule

pytestmark = pytest.mark.anyio

FRAME = b"\x00\x20" * 1_600


class Left(NamedTuple):
    """What a process has left that was killed."""

    log: MoodyLog
    clock: VirtualClock
    sessions: list[Attachment]


async def left_behind(count: int = 1, *, commands: int = 0, log: MoodyLog | None = None) -> Left:
    """Open sessions, say something in each that is recorded, and be killed."""
    clock, log = VirtualClock(), log or MoodyLog()
    async with killed(ScriptedStage(), log, clock) as hub:
        sessions = [await hub.open(opening(f"open-{n}")) for n in range(count)]
        for attachment in sessions:
            for _ in range(commands):
                attachment.send(Heartbeat(attachment=1))
        await settle(60 + commands)
    return Left(log, clock, sessions)


async def record(log: EventLog, session: str, transaction: Transaction) -> None:
    """Append something that no runner decided."""
    outcome: list[LogError | None] = []
    log.append(session, replace(transaction, term=await log.acquire(session)), (), outcome.append)
    await settle()
    assert outcome == [None]


# -- snapshots -----------------------------------------------------------------------------------------------


async def test_what_had_to_be_folded_at_one_start_has_not_to_be_at_the_next() -> None:
    left = await left_behind(2, commands=SNAPSHOT_AFTER)
    (long, short) = (attachment.session for attachment in left.sessions)
    await left.log.save_snapshot(short, await _snapshot_of(left.log, short))
    async with killed(ScriptedStage(), left.log, left.clock):
        await settle()
    for session in (long, short):
        snapshot = await left.log.load_snapshot(session)
        assert snapshot is not None
        head = (await left.log.read(session, 0, 10_000))[-1].seq
        folded = await fold(left.log, session)
        assert folded is not None
        assert (folded.head, folded.snapshot) == (head, snapshot.seq)
        assert folded.session == core.fold(await left.log.read(session, 0, 10_000))
        assert head - snapshot.seq == (0 if session == long else 1), "it was short enough before"


async def _snapshot_of(log: EventLog, session: str) -> Snapshot:
    folded = await fold(log, session)
    assert folded is not None
    return Snapshot(seq=folded.head, version=core.STATE_VERSION, state=core.dump(folded.session))


async def test_the_tail_that_one_process_left_counts_for_the_snapshot_of_the_next() -> None:
    left = await left_behind(commands=SNAPSHOT_AFTER // 2)
    (session,) = (attachment.session for attachment in left.sessions)
    again = await left_behind_again(left, commands=SNAPSHOT_AFTER // 2)
    assert await left.log.load_snapshot(session) is None
    await left_behind_again(Left(left.log, left.clock, [again]), commands=0)
    snapshot = await left.log.load_snapshot(session)
    assert snapshot is not None
    assert snapshot.seq > SNAPSHOT_AFTER


async def left_behind_again(left: Left, *, commands: int) -> Attachment:
    """Come back to the session, say something in it, and be killed again."""
    async with killed(ScriptedStage(), left.log, left.clock) as hub:
        attachment = await hub.resume(resumption(left.sessions[0], control_id=f"r{commands}"))
        attachment.heard()
        for _ in range(commands):
            attachment.send(Heartbeat(attachment=attachment.generation))
        await settle(60 + commands)
    return attachment


@rule("M15")
async def test_a_clean_shutdown_leaves_snapshots_and_a_short_log_needs_none() -> None:
    async with world() as here:
        long = await here.hub.open(opening("long"))
        short = await here.hub.open(opening("short"))
        ends = await here.hub.open(Opening(dialect="ga", control_id="ends"))
        for _ in range(SNAPSHOT_AFTER):
            long.send(Heartbeat(attachment=1))
            ends.send(Heartbeat(attachment=1))
        await settle(60 + SNAPSHOT_AFTER)
        assert await here.log.load_snapshot(long.session) is None
    snapshot = await here.log.load_snapshot(long.session)
    assert snapshot is not None
    recorded = await here.log.read(long.session, 0, 10_000)
    assert snapshot.seq == recorded[-1].seq
    assert core.load(snapshot.state) == core.fold(recorded)
    assert await here.log.load_snapshot(short.session) is None
    assert await here.log.load_snapshot(ends.session) is None, "nobody goes on with it"


async def test_a_session_that_could_not_be_recorded_leaves_no_snapshot_of_what_is_not_there() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        for _ in range(SNAPSHOT_AFTER):
            attachment.send(Heartbeat(attachment=1))
        await settle(60 + SNAPSHOT_AFTER)
        here.log.broken = Unavailable("the disk is full")
    assert await here.log.load_snapshot(attachment.session) is None


@pytest.mark.parametrize("what", ["nothing", "another session", "a state that the rest does not follow"])
async def test_a_snapshot_that_does_not_fit_costs_only_time(what: str) -> None:
    left = await left_behind(2, commands=3)
    (name, other) = (attachment.session for attachment in left.sessions)
    if what == "nothing":
        state = core.new()
    elif what == "another session":
        state = core.fold(await left.log.read(other, 0))
    else:
        state = core.fold(await left.log.read(name, 0))
        state.phase = "closed"
    await left.log.save_snapshot(name, Snapshot(seq=1, version=core.STATE_VERSION, state=core.dump(state)))
    await left.log.save_snapshot(other, await _snapshot_of(left.log, other))
    await record(left.log, name, await _closing(left.log, name))
    with capture_logs() as lines:
        folded = await fold(left.log, name)
    assert folded is not None
    assert (folded.snapshot, folded.session) == (0, core.fold(await left.log.read(name, 0)))
    assert len(lines) == (what == "a state that the rest does not follow")


async def _closing(log: EventLog, name: str) -> Transaction:
    """Decide, without a runner, that the session ends."""
    recorded = await log.read(name, 0)
    session = core.fold(recorded)
    command = CloseSession(control_id="close")
    events = tuple(core.decide(session, command, session.now))
    return Transaction(seq=recorded[-1].seq + 1, term=1, at=session.now, command=command, events=events)


# -- many at a time ------------------------------------------------------------------------------------------


async def test_a_session_that_cannot_be_folded_stops_no_other_and_holds_no_slot() -> None:
    log = GatedLog()
    left = await left_behind(3 * AT_A_TIME, log=log)
    log.senseless = left.sessions[5].session
    with capture_logs() as lines:
        async with world(log=log, clock=left.clock) as here:
            assert here.hub.recovered.is_set()
            restart, statistics = here.hub.restart, here.hub.statistics()
            assert (restart.left, restart.done, restart.back) == (12, 12, 11)
            assert (statistics.recovered, statistics.admitted) == (11, 11)
            with pytest.raises(Refused, match="session_resume_expired"):
                await here.hub.resume(resumption(left.sessions[5]))
            for n, attachment in enumerate(left.sessions):
                if n != 5:
                    await here.hub.resume(resumption(attachment, f"r{n}"))
    (line,) = [line for line in lines if line["log_level"] == "error"]
    assert line["session"] == log.senseless


async def test_a_client_that_comes_back_does_not_wait_for_its_turn() -> None:
    log = GatedLog()
    left = await left_behind(3 * AT_A_TIME, log=log)
    log.asked.clear()
    log.gated = [row.session for row in await log.sessions("open")][:AT_A_TIME]
    last = left.sessions[0]
    assert last.session not in log.gated
    async with world(log=log, clock=left.clock) as here:
        assert log.asked == log.gated, "no more are begun at a time"
        assert (here.hub.restart.left, here.hub.restart.done) == (12, 0)
        assert here.hub.statistics().admitted == 12, "their slots are held already"
        resumed = await here.hub.resume(resumption(last))
        assert isinstance(resumed.entry.transaction.events[0], SessionResumed)
        assert not here.hub.recovered.is_set()
        log.gate.set()
        await settle(200)
        assert here.hub.recovered.is_set()
        assert (here.hub.restart.done, here.hub.restart.back) == (12, 12)
        assert len(log.asked) == 12, "each was taken over once"


async def test_a_server_that_stops_leaves_the_rest_to_the_next_one() -> None:
    log = GatedLog()
    left = await left_behind(3 * AT_A_TIME, log=log)
    log.asked.clear()
    log.gated = [row.session for row in await log.sessions("open")]
    async with world(log=log, clock=left.clock) as here:
        done = here.hub.restart.done
        here.hub.stopping.set()
        log.gate.set()
        await settle(200)
        assert not here.hub.recovered.is_set()
        assert done <= here.hub.restart.done < 12
    async with world(log=log, clock=left.clock) as again:
        assert again.hub.restart.back == 12


async def test_a_server_that_is_killed_while_it_takes_sessions_over_has_harmed_none() -> None:
    log = GatedLog()
    left = await left_behind(3 * AT_A_TIME, log=log)
    rows = [row.session for row in await log.sessions("open")]
    log.gated = rows[AT_A_TIME + 1 :]
    async with killed(ScriptedStage(), log, left.clock) as hub:
        await settle(200)
        assert 0 < hub.restart.back < 12
    log.gated = ()
    async with world(log=log, clock=left.clock) as here:
        assert here.hub.restart.back == 12
        for n, attachment in enumerate(left.sessions):
            await here.hub.resume(resumption(attachment, f"r{n}"))
            recorded = await here.recorded(attachment.session)
            assert replay(recorded).identical
            restarts = [event for entry in recorded for event in entry.events if isinstance(event, EngineRestarted)]
            assert 1 <= len(restarts) <= 2


async def test_a_request_that_was_being_answered_ends_with_its_process_and_leaves_its_place() -> None:
    clock, log = VirtualClock(), MoodyLog()
    async with killed(ScriptedStage(default=(Say("One.", 80), Hang())), log, clock) as hub:
        asked = await hub.open(Opening(dialect="ga", control_id="request", request=True))
        ask(asked)
        await settle()
        assert core.outstanding(_state(hub, asked))
    settings = HubSettings(max_requests=1, shutdown_ms=200)
    async with world(log=log, clock=clock, settings=settings) as here:
        assert (here.hub.restart.left, here.hub.restart.ended) == (1, 1)
        ended = [event for event in await here.events(asked.session) if isinstance(event, ResponseEnded)]
        assert [(event.status, event.failure and event.failure.code) for event in ended] == [
            ("failed", "engine_restarted")
        ]
        await here.hub.open(Opening(dialect="ga", control_id="next", request=True))


async def test_a_long_fold_gives_others_their_turn() -> None:
    left = await left_behind(commands=10 * SLICE)
    turns = 0
    async with anyio.create_task_group() as group:

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await anyio.lowlevel.checkpoint()

        group.start_soon(other)
        await anyio.lowlevel.checkpoint()
        assert await fold(left.log, left.sessions[0].session) is not None
        group.cancel_scope.cancel()
    assert turns >= 10


# -- time and commands ---------------------------------------------------------------------------------------


BOUNDED = HubSettings(max_session_ms=200_000, shutdown_ms=1)


async def bounded() -> tuple[VirtualClock, MoodyLog, Attachment]:
    """Open a session whose life has a bound, and let its process be gone."""
    clock, log = VirtualClock(), MoodyLog()
    async with world(log=log, clock=clock, settings=BOUNDED) as before:
        old = await before.hub.open(Opening(dialect="ga", control_id="open", wants_resume=True))
        log.broken = Unavailable("the process is gone")
    log.broken = None
    return clock, log, old


async def test_a_bound_on_a_sessions_life_goes_on_in_the_next_process_and_rings_by_itself() -> None:
    clock, log, old = await bounded()
    clock.advance(100_000_000)
    async with world(log=log, clock=clock, settings=BOUNDED) as here:
        await here.advance(99_000)
        assert here.hub.session(old.session) is not None
        await here.advance(1_000)
        last = (await here.events(old.session))[-1]
        assert isinstance(last, SessionClosed)
        assert last.reason == "max_duration", "it comes before the grace ends"


async def test_a_bound_that_passed_while_no_process_ran_rings_at_once() -> None:
    clock, log, old = await bounded()
    clock.advance(300_000_000)
    async with world(log=log, clock=clock, settings=BOUNDED) as here:
        await here.advance(0)
        last = (await here.events(old.session))[-1]
        assert isinstance(last, SessionClosed)
        assert last.reason == "max_duration"


@rule("P6")
async def test_a_counted_command_is_carried_out_once_whatever_the_kill_took() -> None:
    """DESIGN 5.9: 1 and 2 were answered, 3 was recorded and its answer lost, 4 and 5 were lost."""
    clock, log = VirtualClock(), MoodyLog()
    pieces = [bytes([n, 0]) * 640 for n in range(7)]
    async with killed(ScriptedStage(), log, clock) as hub:
        old = await hub.open(opening())
        for seq in (1, 2):
            old.append(AppendRequest(data=pieces[seq], client_seq=seq))
        await settle()
        log.holding = True
        old.append(AppendRequest(data=pieces[3], client_seq=3))
        await settle()
        log.broken = Unavailable("the process is gone")
        for seq in (4, 5):
            old.append(AppendRequest(data=pieces[seq], client_seq=seq))
        await settle()
        log.release()
    async with world(log=log, clock=clock) as here:
        new = await here.hub.resume(resumption(old))
        resumed = new.entry.transaction.events[0]
        assert isinstance(resumed, SessionResumed)
        assert resumed.last_client_seq == 3
        for seq in (2, 3, 4, 5, 6):
            new.append(AppendRequest(data=pieces[seq], client_seq=seq))
        await settle()
        events = await here.events(old.session)
        assert [event.client_seq for event in events if isinstance(event, CommandSequenced)] == [1, 2, 3, 4, 5, 6]
        places = [event.ref for event in events if isinstance(event, AudioReceived)]
        sound = [await log.samples.read(old.session, place) for place in places]
        assert sound == pieces[1:]
        assert replay(await here.recorded(old.session)).identical


# -- a memory that dies with its process ---------------------------------------------------------------------

FORGETS = TurnModel(
    name="forgets", version="1", capabilities=replace(ECHO.capabilities, supports_reencode_context=False)
)


@rule("N66", "K15")
@pytest.mark.parametrize("plugin", [ECHO, FORGETS], ids=["can be told again", "cannot"])
async def test_a_model_that_listened_is_told_what_it_knew_or_its_session_ends_by_name(plugin: TurnModel) -> None:
    clock, log = VirtualClock(), MoodyLog()
    answers = (Take(), Say("Yes."), Decide("end_of_turn"))
    async with killed(ScriptedStage(default=(*answers, Hang())), log, clock, plugin=plugin) as hub:
        attachments = [await hub.open(opening(f"open-{n}")) for n in range(2)]
        heard, silent = attachments
        heard.append(AppendRequest(data=FRAME))
        heard.send(CommitInput(attachment=1, create_response=True))
        await settle()
        assert core.outstanding(_state(hub, heard))
        assert not core.outstanding(_state(hub, silent))
    stage = ScriptedStage(default=(Take(), Hang()))
    async with world(stage, plugin=plugin, log=log, clock=clock) as here:
        await here.hub.resume(resumption(silent, "silent"))
        if plugin is FORGETS:
            assert await code_of(here.hub.resume(resumption(heard, "heard"))) == "session_resume_expired"
            (closed,) = [event for event in await here.events(heard.session) if isinstance(event, SessionClosed)]
            assert (closed.reason, closed.expired) == ("request_cleanup", True)
        else:
            again = await here.hub.resume(resumption(heard, "heard"))
            again.heard()
            again.append(AppendRequest(data=FRAME))
            again.send(CommitInput(attachment=again.generation, create_response=True))
            await settle()
            (submit,) = [message for message in stage.messages if isinstance(message, Submit)]
            said = [item for item in submit.payload.items if isinstance(item, Message)]
            assert [item.role for item in said] == ["user", "assistant", "user"]
            assert [len(data) for _, data in submit.sound] == [len(FRAME)]
        assert replay(await here.recorded(heard.session), {plugin.name: plugin}).identical


def _state(hub: Hub, attachment: Attachment) -> core.Session:
    session = hub.session(attachment.session)
    assert session is not None
    return session
