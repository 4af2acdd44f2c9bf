"""The runner: order, two heads, bounds, failure, time, snapshots."""

import anyio
import pytest

from antiphon.engine.cursor import Cursor
from antiphon.engine.errors import Refused
from antiphon.engine.ingress import AppendRequest
from antiphon.engine.inline import InlineClient
from antiphon.engine.opening import Resumption
from antiphon.engine.runner import CLIENT_INBOX, RUN_AHEAD, SNAPSHOT_AFTER, Runner
from antiphon.engine.settings import HubSettings
from antiphon.events.commands import CancelResponse, Heartbeat, Tick
from antiphon.events.events import (
    AudioDelta,
    ErrorReported,
    ResponseEnded,
    SessionClosed,
    SessionDetached,
    SessionTouched,
)
from antiphon.events.log import Unavailable
from antiphon.sessions import core
from antiphon.stages.base import Abort
from antiphon.stages.scripted import Cue, Finish, Hang, Say, ScriptedStage

from .worlds import Listener, World, ask, opening, settle, world

pytestmark = pytest.mark.anyio

SPOKEN = b"\x00\x20" * 640


def runner(here: World, session: str) -> Runner:
    return here.hub._live[session].runner  # pyright: ignore[reportPrivateUsage]


async def drained(cursor: Cursor) -> list[int]:
    return [entry.seq async for entry in cursor]


async def test_commands_are_recorded_in_the_order_of_their_sending_without_gaps() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        for count in range(50):
            attachment.append(AppendRequest(data=SPOKEN))
            if count % 7 == 0:
                attachment.send(Heartbeat(attachment=1))
        await settle()
        recorded = await here.recorded(attachment.session)
        assert [entry.seq for entry in recorded] == list(range(1, 1 + 50 + 8 + 1))
        refs = [event.ref for entry in recorded for event in entry.events if hasattr(event, "ref")]
        assert [ref.start for ref in refs] == [index * 1_280 for index in range(50)]
        assert {entry.term for entry in recorded} == {1}


async def test_nothing_is_visible_before_it_is_durable_and_work_starts_when_decided() -> None:
    async with world() as here, InlineClient(here.hub) as client, anyio.create_task_group() as group:
        listener = Listener(client)
        group.start_soon(listener.run)
        await settle()
        here.log.holding = True
        client.send_text("hello")
        client.create_response()
        await settle()
        assert here.scripted.requests, "the stage works already"
        assert listener.names == ["SessionOpened"]
        here.log.release(1)
        await settle()
        assert listener.names == ["SessionOpened", "ItemCreated"]
        here.log.release()
        await settle()
        assert listener.names[-1] == "ResponseEnded"
        assert listener.numbers == sorted(listener.numbers)
        group.cancel_scope.cancel()


async def test_it_runs_ahead_by_256_and_then_waits_for_the_store() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        here.log.holding = True
        for _ in range(RUN_AHEAD + 50):
            attachment.send(Heartbeat(attachment=1))
        await settle()
        mine = runner(here, attachment.session)
        assert (mine.ahead, mine.backlog) == (RUN_AHEAD, 50)
        here.log.release(10)
        await settle()
        assert (mine.ahead, mine.backlog) == (RUN_AHEAD, 40)
        here.log.release()
        await settle()
        assert (mine.ahead, mine.backlog) == (0, 0)
        assert len(await here.commands(attachment.session, Heartbeat)) == RUN_AHEAD + 50


async def test_a_full_inbox_refuses_and_a_cancel_still_passes() -> None:
    script = (Say("One.", 80), Hang())
    async with world(ScriptedStage(default=script)) as here:
        attachment = await here.hub.open(opening("open"))
        ask(attachment)
        here.log.holding = True
        for _ in range(RUN_AHEAD + CLIENT_INBOX + 500):
            attachment.send(Heartbeat(attachment=1))
            if runner(here, attachment.session).backlog == CLIENT_INBOX:
                await settle()
        mine = runner(here, attachment.session)
        assert mine.backlog <= CLIENT_INBOX + 100
        attachment.send(CancelResponse(attachment=1))
        here.log.release()
        await settle(400)
        recorded = await here.recorded(attachment.session)
        kinds = [type(entry.command) for entry in recorded]
        assert kinds.index(CancelResponse) < len(kinds) - CLIENT_INBOX + 50
        codes = {event.code for entry in recorded for event in entry.events if isinstance(event, ErrorReported)}
        assert "input_backpressure" in codes


async def test_a_flood_from_both_sides_does_not_deadlock() -> None:
    script = (*(Say("word ", 20) for _ in range(600)), Finish())
    async with world(ScriptedStage(default=script)) as here, InlineClient(here.hub) as client:
        client.append_audio(SPOKEN, speech=True)
        client.commit(create_response=True)
        for _ in range(600):
            client.append_audio(SPOKEN, speech=False)
            client.heartbeat()
        deltas = 0
        async for heard in client.events():
            deltas += isinstance(heard.event, AudioDelta)
            if isinstance(heard.event, ResponseEnded):
                break
        assert deltas == 600


async def test_a_failed_append_drops_the_runner_and_the_next_attach_folds_from_the_store() -> None:
    stage = ScriptedStage(default=(Say("One.", 80), Cue("go"), Say("Two.", 80), Finish()))
    async with world(stage) as here:
        attachment = await here.hub.open(opening())
        ask(attachment)
        with attachment.cursor() as cursor:
            await anext(cursor)
            await settle()
            here.log.broken = Unavailable("disk full")
            attachment.send(Heartbeat(attachment=1))
            await settle()
            with pytest.raises(Refused, match="storage_unavailable"):
                await drained(cursor)
        assert attachment.ended == "failed"
        assert not attachment.current
        assert any(isinstance(message, Abort) for message in stage.messages), "its work is aborted"
        here.log.broken = None
        resumed = await here.hub.resume(
            Resumption(session=attachment.session, token=attachment.token or "", control_id="r")
        )
        await settle()
        events = await here.events(attachment.session)
        assert not any(isinstance(event, SessionTouched) for event in events)
        assert any(isinstance(event, ErrorReported) and event.code == "engine_restarted" for event in events)
        resumed.send(Heartbeat(attachment=resumed.generation))
        await settle()
        assert isinstance((await here.events(attachment.session))[-1], SessionTouched)
        assert [entry.term for entry in await here.recorded(attachment.session)][-1] == 2


async def test_the_request_of_a_dropped_runner_and_its_successor_of_the_same_name_are_not_mixed_up() -> None:
    stage = ScriptedStage(default=(Say("Hi.", 80), Finish()))
    async with world(stage) as here:
        attachment = await here.hub.open(opening())
        here.log.broken = Unavailable("disk full")
        ask(attachment)
        await settle()
        here.log.broken = None
        resumed = await here.hub.resume(
            Resumption(session=attachment.session, token=attachment.token or "", control_id="r")
        )
        ask(resumed)
        await settle()
        ends = [event for event in await here.events(attachment.session) if isinstance(event, ResponseEnded)]
        assert [end.status for end in ends] == ["completed"]


async def test_a_fenced_runner_stops_and_does_not_come_back() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        await here.log.acquire(attachment.session)  # another process took it over
        attachment.send(Heartbeat(attachment=1))
        await settle()
        assert attachment.ended == "failed"
        await here.advance(120_000)
        assert here.hub.session(attachment.session) is None
        assert here.hub.statistics().admitted == 0


async def test_a_lost_session_is_taken_over_again_and_its_time_goes_on() -> None:
    async with world(settings=HubSettings(recovery_grace_ms=20_000, grace_ms=10_000, shutdown_ms=200)) as here:
        attachment = await here.hub.open(opening())
        here.log.broken = Unavailable("disk full")
        attachment.send(Heartbeat(attachment=1))
        await settle()
        assert here.hub.statistics().admitted == 1, "it holds its slot"
        await here.advance(5_000)
        here.log.broken = None
        await here.advance(60_000)
        await here.advance(60_000)
        events = await here.events(attachment.session)
        assert any(isinstance(event, SessionDetached) and event.reason == "restart" for event in events)
        assert isinstance(events[-1], SessionClosed)
        assert events[-1].reason == "disconnect_grace_expired"
        assert here.hub.statistics().admitted == 0


async def test_session_time_never_goes_back_and_starts_at_nought() -> None:
    async with world() as here:
        await here.advance(5_000)
        attachment = await here.hub.open(opening())
        for _ in range(3):
            attachment.send(Heartbeat(attachment=1))
            await settle()
            await here.advance(10)
        assert [entry.at for entry in await here.recorded(attachment.session)] == [0, 0, 10_000, 20_000]


async def test_one_timer_and_a_tick_only_when_a_deadline_has_passed() -> None:
    async with world(settings=HubSettings(idle_ttl_ms=1_000, shutdown_ms=200)) as here:
        attachment = await here.hub.open(opening())
        for _ in range(5):
            await here.advance(900)
            attachment.send(Heartbeat(attachment=1))
            await settle()
        assert await here.commands(attachment.session, Tick) == []
        await here.advance(1_000)
        (tick,) = [entry for entry in await here.recorded(attachment.session) if type(entry.command) is Tick]
        assert tick.at == 5_500_000
        assert here.hub.session(attachment.session) is None


async def test_a_snapshot_at_a_turns_end_shortens_the_fold_and_is_the_same_state() -> None:
    script = (*(Say("a", 20) for _ in range(SNAPSHOT_AFTER)), Finish())
    async with world(ScriptedStage(default=script)) as here:
        attachment = await here.hub.open(opening())
        ask(attachment)
        await settle(200)
        snapshot = await here.log.load_snapshot(attachment.session)
        assert snapshot is not None
        recorded = await here.recorded(attachment.session)
        loaded = core.load(snapshot.state)
        assert loaded == core.fold(recorded[: snapshot.seq])
        assert core.fold(recorded[snapshot.seq :], loaded) == here.hub.session(attachment.session)


async def test_a_refusal_for_want_of_decision_waits_for_what_it_rests_on() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        first = Resumption(session=attachment.session, token=attachment.token or "", control_id="one")
        second = Resumption(session=attachment.session, token="wrong", control_id="two")
        answers: list[str] = []

        async def ask(resumption: Resumption) -> None:
            try:
                await here.hub.resume(resumption)
                answers.append("resumed")
            except Refused as refused:
                answers.append(refused.code)

        here.log.holding = True
        async with anyio.create_task_group() as group:
            group.start_soon(ask, first)
            group.start_soon(ask, second)
            await settle()
            assert answers == []
            here.log.release()
        assert answers == ["resumed", "invalid_resume_token"]
