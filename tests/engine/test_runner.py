"""The runner: order, two heads, bounds, failure, time, snapshots."""

import threading

import anyio
import anyio.lowlevel
import pytest

from antiphon.engine.attachment import REFUSALS_BURST, Attachment
from antiphon.engine.clock import VirtualClock
from antiphon.engine.cursor import Cursor
from antiphon.engine.direct import DirectClient
from antiphon.engine.errors import Refused
from antiphon.engine.hosts import MAILBOX, ThreadHost
from antiphon.engine.inbox import CLIENT_INBOX, REFUSALS_INBOX, URGENT_INBOX
from antiphon.engine.ingress import AppendRequest
from antiphon.engine.opening import Resumption
from antiphon.engine.runner import CALM, CROWDED, RUN_AHEAD, SNAPSHOT_AFTER, Runner
from antiphon.engine.settings import HubSettings
from antiphon.events.audio import AudioFormat
from antiphon.events.commands import (
    CancelInput,
    CancelResponse,
    CreateItem,
    CreateResponse,
    Heartbeat,
    StageAccepted,
    StageFinished,
    StageProduced,
    StageReleased,
    StageSegmentFinished,
    Tick,
    UpdateSession,
)
from antiphon.events.config import ConfigPatch
from antiphon.events.events import (
    AudioDelta,
    ErrorReported,
    ResponseEnded,
    SessionClosed,
    SessionDetached,
    SessionTouched,
    TextDelta,
)
from antiphon.events.log import Snapshot, Unavailable
from antiphon.sessions import core
from antiphon.stages.base import Abort, AnyMessage, Release, Report, Submit
from antiphon.stages.scripted import Cue, Finish, Hang, Say, ScriptedStage

from .worlds import Listener, World, ask, opening, settle, world
from tests.rules import rule

pytestmark = pytest.mark.anyio

SPOKEN = b"\x00\x20" * 640


def runner(here: World, session: str) -> Runner:
    return here.hub._live[session].runner  # pyright: ignore[reportPrivateUsage]


async def drained(cursor: Cursor) -> list[int]:
    return [entry.seq async for entry in cursor]


@rule("E24", "P3")
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


@rule("G17")
async def test_what_a_listening_model_decides_again_with_every_frame_is_counted_and_not_recorded() -> None:
    talk = ConfigPatch(auto_response=True)
    async with world(ScriptedStage(default=(Hang(),))) as here:
        async with DirectClient(here.hub, patch=talk) as client:
            client.append_audio(SPOKEN, speech=True)
            await settle()
            (request,) = runner(here, client.session).session.requests
            recorded = len(await here.recorded(client.session))
            for _ in range(25):
                runner(here, client.session).post(StageSegmentFinished(request=request, decision="listen"))
            await settle()
            assert here.hub.statistics().beats == 24
            assert len(await here.recorded(client.session)) == recorded + 1, "the first one is news"
        assert here.hub.statistics().beats == 24


@rule("D13", "P3")
async def test_nothing_is_visible_before_it_is_durable_and_work_starts_when_decided() -> None:
    async with world() as here, DirectClient(here.hub) as client, anyio.create_task_group() as group:
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


async def flooded(here: World, attachment: Attachment) -> Runner:
    """Let a client say more than may wait, while the store stands."""
    mine = runner(here, attachment.session)
    here.log.holding = True
    for _ in range(RUN_AHEAD):
        attachment.send(Heartbeat(attachment=1))
    await settle()
    for _ in range(3 * CLIENT_INBOX):
        attachment.send(Heartbeat(attachment=1))
    return mine


@rule("P58", "B24")
async def test_a_full_inbox_refuses_the_client_and_has_room_for_its_cancel() -> None:
    script = (Say("One.", 80), Hang())
    async with world(ScriptedStage(default=script)) as here:
        attachment = await here.hub.open(opening("open"))
        ask(attachment)
        await settle()
        mine = await flooded(here, attachment)
        assert mine.inbox.clients == CLIENT_INBOX + REFUSALS_BURST
        attachment.send(CancelResponse(attachment=1))
        here.log.release()
        await settle(400)
        recorded = await here.recorded(attachment.session)
        errors = [event for entry in recorded for event in entry.events if isinstance(event, ErrorReported)]
        assert {error.code for error in errors} == {"input_backpressure"}
        assert len(errors) == REFUSALS_BURST
        assert [type(entry.command) for entry in recorded].count(CancelResponse) == 1
        assert attachment.current, "a flood is refused, and ends nothing"


async def test_no_flood_of_cancels_or_of_counted_commands_makes_the_inbox_grow() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening("open"))
        mine = await flooded(here, attachment)
        for seq in range(20_000):
            attachment.send(CancelResponse(attachment=1))
            attachment.send(Heartbeat(attachment=1, client_seq=seq + 1))
        assert REFUSALS_INBOX <= mine.inbox.clients <= URGENT_INBOX
        here.log.release()
        await settle(400)
        assert attachment.current
        lease = mine.session.lease
        assert 0 < lease.client_seq < 20_000
        attachment.send(Heartbeat(attachment=1, client_seq=lease.client_seq + 1))
        await settle()
        assert isinstance((await here.events(attachment.session))[-2], SessionTouched), "sent again from there"


async def test_a_cancel_is_decided_after_what_it_cancels() -> None:
    async with world(ScriptedStage(default=(Say("One.", 80), Hang()))) as here:
        attachment = await here.hub.open(opening())
        ask(attachment)
        attachment.send(CancelResponse(attachment=1))
        await settle()
        kinds = [type(entry.command) for entry in await here.recorded(attachment.session)]
        assert kinds[1:4] == [CreateItem, CreateResponse, CancelResponse]
        assert runner(here, attachment.session).session.response is None


@rule("E29")
async def test_no_sound_lands_behind_the_cancel_that_was_sent_after_it() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        for _ in range(2):
            attachment.append(AppendRequest(data=SPOKEN, speech=True))
        attachment.send(CancelInput(attachment=1))
        await settle()
        mine = runner(here, attachment.session)
        assert mine.session.input.position == mine.session.input.start
        assert (mine.inbox.queued_bytes, mine.session.input.reserved) == (0, 0)


class Chatty:
    """A stage whose own thread says as much as it is let."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.said = 0
        self.done = threading.Event()

    @property
    def input_format(self) -> AudioFormat:
        return AudioFormat("pcm16", 16_000)

    def start(self, report: Report) -> None:
        self._report = report

    def handle(self, message: AnyMessage) -> None:
        if isinstance(message, Submit):
            self._report(StageAccepted(request=message.request), b"")
            for _ in range(self.count):
                self._report(StageProduced(request=message.request, text="word "), b"")
                self.said += 1
            self._report(StageFinished(request=message.request), b"")
        elif isinstance(message, Release | Abort):
            for request in message.requests:
                self._report(StageReleased(request=request), b"")

    def close(self) -> None:
        self.done.set()


async def test_a_stage_waits_while_the_store_stands_and_loses_nothing() -> None:
    count = CROWDED + 2 * MAILBOX
    stage = Chatty(count)
    async with world(stage, host=ThreadHost(stage)) as here:
        attachment = await here.hub.open(opening())
        mine = runner(here, attachment.session)
        here.log.holding = True
        ask(attachment)
        with anyio.fail_after(20):
            while not mine.crowded:
                await anyio.lowlevel.checkpoint()
        await settle()
        assert mine.backlog <= CROWDED + MAILBOX + 1
        here.log.release()
        produced = 0
        with attachment.cursor() as cursor, anyio.fail_after(30):
            async for entry in cursor:
                produced += sum(type(event) is TextDelta for event in entry.transaction.events)
                if any(isinstance(event, ResponseEnded) for event in entry.transaction.events):
                    break
        assert (produced, stage.said) == (count, count)
        assert mine.backlog <= CALM
        assert not mine.crowded


@rule("P57")
async def test_an_error_in_a_task_of_one_session_ends_that_session_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as here:
        one, two = await here.hub.open(opening("one")), await here.hub.open(opening("two"))
        await settle()

        async def broken(session: str, snapshot: Snapshot) -> None:
            raise RuntimeError("a fault of ours")

        monkeypatch.setattr(here.log, "save_snapshot", broken)
        runner(here, one.session)._snapshot_due = True  # pyright: ignore[reportPrivateUsage]
        one.send(Heartbeat(attachment=1))
        await settle()
        assert one.ended == "failed"
        assert two.current
        assert here.hub.statistics().crashed == 1


async def test_a_flood_from_both_sides_does_not_deadlock() -> None:
    script = (*(Say("word ", 20) for _ in range(600)), Finish())
    async with world(ScriptedStage(default=script)) as here, DirectClient(here.hub) as client:
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


@rule("A20")
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


class TiringClock(VirtualClock):
    """A clock on which every look takes a tenth of a millisecond."""

    def monotonic_us(self) -> int:
        self._now += 100
        return self._now


@rule("P58", "P57")
async def test_what_one_session_sends_leaves_the_others_their_turn() -> None:
    """A flood is worked off in steps of about 2 ms: nobody else waits for the end of it."""
    async with world(clock=TiringClock()) as here:
        loud = await here.hub.open(opening("loud"))
        quiet = await here.hub.open(opening("quiet"))
        for _ in range(RUN_AHEAD):
            loud.send(Heartbeat(attachment=1))
        quiet.send(Heartbeat(attachment=1))
        mine = runner(here, loud.session)
        for _ in range(20):
            if runner(here, quiet.session).commands > 1:
                break
            await anyio.lowlevel.checkpoint()
        assert runner(here, quiet.session).commands == 2
        assert mine.backlog > RUN_AHEAD // 2
        await settle(RUN_AHEAD)
        assert len(await here.commands(loud.session, Heartbeat)) == RUN_AHEAD


@rule("L9", "E38")
async def test_what_is_sent_is_understood_as_the_last_update_says() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        mine = runner(here, attachment.session)
        assert mine.upcoming is mine.upcoming
        attachment.send(UpdateSession(attachment=1, patch=ConfigPatch(instructions="Be brief.")))
        await settle()
        assert mine.upcoming.instructions == "Be brief."
