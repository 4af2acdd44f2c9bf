"""How sessions, servers and their callers end: closers that race, faults of ours, shutdown, a dead engine."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from itertools import permutations

import anyio
import anyio.lowlevel
import pytest

from antiphon.engine import ingress
from antiphon.engine.attachment import Attachment
from antiphon.engine.direct import DirectClient
from antiphon.engine.host import OnReport
from antiphon.engine.hosts import InlineHost
from antiphon.engine.ingress import AppendRequest
from antiphon.engine.opening import Opening, Resumption
from antiphon.engine.settings import HubSettings
from antiphon.events.commands import (
    AppendAudio,
    CloseSession,
    Heartbeat,
    ReportFault,
    ResumeSession,
    StageProduced,
    Tick,
    UpdateSession,
)
from antiphon.events.config import ConfigPatch
from antiphon.events.events import (
    ErrorReported,
    ResponseEnded,
    SessionClosed,
    SessionClosing,
    SessionTouched,
)
from antiphon.events.log import Unavailable
from antiphon.sessions import core
from antiphon.stages.scripted import Deaf, Hang, Say, ScriptedStage

from .worlds import Listener, MoodyLog, World, ask, code_of, opening, settle, world
from tests.rules import rule

pytestmark = pytest.mark.anyio

BUSY = (Say("Well", 80), Hang())


def close(attachment: Attachment, control_id: str = "c") -> None:
    attachment.send(CloseSession(control_id=control_id, attachment=attachment.generation))


def boom(*_: object) -> None:
    raise RuntimeError("a fault of ours")


async def ends(here: World, session: str) -> list[SessionClosed]:
    return [event for event in await here.events(session) if isinstance(event, SessionClosed)]


# -- closing -------------------------------------------------------------------------------------------------

Closer = Callable[[World, Attachment], Awaitable[None]]


async def wire(_here: World, attachment: Attachment) -> None:
    close(attachment)


async def control(here: World, attachment: Attachment) -> None:
    await here.hub.close(attachment.session, "control")


async def connection(_here: World, attachment: Attachment) -> None:
    await attachment.detach("transport_error")


async def shutdown(here: World, _attachment: Attachment) -> None:
    await here.hub.shutdown()


REASONS = {
    wire: "client_close",
    control: "operator",
    connection: "transport_error",
    shutdown: "shutdown",
}


@rule("M7", "P54")
@pytest.mark.parametrize(("first", "second"), list(permutations(REASONS, 2)), ids=lambda closer: closer.__name__)
async def test_closers_that_race_make_one_terminal_and_all_are_answered(first: Closer, second: Closer) -> None:
    async with world(ScriptedStage(default=BUSY)) as here, anyio.create_task_group() as group:
        attachment = await here.hub.open(Opening(dialect="ga", control_id="o"))
        ask(attachment)
        await settle()
        group.start_soon(first, here, attachment)
        group.start_soon(second, here, attachment)
        await settle()
        (closed,) = await ends(here, attachment.session)
        # They came in one step of the loop: the inbox has put them in the order of their posting.
        assert closed.reason in (REASONS[first], REASONS[second])
        assert sum(isinstance(event, SessionClosing) for event in await here.events(attachment.session)) == 1
        assert isinstance((await here.events(attachment.session))[-1], SessionClosed)


@rule("M1", "M4", "B19")
async def test_closing_by_control_returns_with_the_terminal_and_tells_the_words() -> None:
    stage = ScriptedStage(default=(Deaf(), Hang()))
    async with world(stage) as here, anyio.create_task_group() as group:
        attachment = await here.hub.open(opening())
        ask(attachment)
        await settle()
        done: list[int] = []

        async def go() -> None:
            await here.hub.close(attachment.session, "control", "for repairs")
            done.append(here.clock.monotonic_us())

        group.start_soon(go)
        await settle()
        await here.advance(1_999)
        assert done == []
        await here.advance(1)
        assert done == [2_000_000], "although the clean-up is pending (M8)"
        (closed,) = await ends(here, attachment.session)
        assert (closed.reason, closed.words) == ("operator", "for repairs")
        assert attachment.ended == "closed"
        stage.let_go()


@rule("M8")
async def test_closing_what_is_closing_closed_forgotten_or_unknown_is_ok() -> None:
    stage = ScriptedStage(default=(Deaf(), Hang()))
    async with world(stage) as here, anyio.create_task_group() as group:
        attachment = await here.hub.open(opening())
        ask(attachment)
        await settle()
        group.start_soon(here.hub.close, attachment.session, "one")
        group.start_soon(here.hub.close, attachment.session, "two")
        await settle()
        await here.advance(2_000)
        await here.hub.close(attachment.session, "three")
        stage.let_go()
        await settle()
        await here.hub.close(attachment.session, "four")
        await here.hub.close("duplex-unknown", "five")
        assert len(await ends(here, attachment.session)) == 1


@rule("M8", "B22")
async def test_a_close_that_cannot_be_recorded_says_so() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        here.log.broken = Unavailable("disk full")
        assert await code_of(here.hub.close(attachment.session, "c")) == "storage_unavailable"
        here.log.broken = None


@rule("M9")
async def test_commands_that_wait_behind_the_close_are_discarded_without_a_word() -> None:
    stage = ScriptedStage(default=(Deaf(), Hang()))
    async with world(stage) as here:
        attachment = await here.hub.open(opening())
        ask(attachment)
        await settle()
        runner = here.hub._live[attachment.session].runner  # pyright: ignore[reportPrivateUsage]
        attachment.send(Heartbeat(attachment=1))
        close(attachment)
        for _ in range(5):
            attachment.append(AppendRequest(data=b"\x00\x20" * 1_600, speech=True))
        attachment.send(UpdateSession(attachment=1, patch=ConfigPatch(instructions="Be brief.")))
        attachment.append(AppendRequest(data=b"\x00\x20" * 1_600, speech=True))
        close(attachment, "again")
        assert runner.inbox.queued_bytes > 0
        await settle()
        assert (runner.inbox.queued_bytes, runner.backlog) == (0, 0)
        events = await here.events(attachment.session)
        assert sum(isinstance(event, SessionTouched) for event in events) == 1, "what came before it is done"
        assert not [event for event in events if isinstance(event, ErrorReported)]
        ask(attachment)
        await settle()
        last = (await here.events(attachment.session))[-1]
        assert isinstance(last, ErrorReported), "what comes later is told (C13)"
        assert last.code == "session_closed"
        stage.let_go()


@rule("M19", "P53")
async def test_after_the_terminal_nothing_of_the_session_is_left_but_its_log() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        attachment.append(AppendRequest(data=b"\x00\x20" * 1_600, speech=True))
        ask(attachment)
        await settle()
        name = attachment.session
        live = here.hub._live[name]  # pyright: ignore[reportPrivateUsage]
        left = [weakref.ref(live), weakref.ref(live.runner), weakref.ref(live.ingress)]
        close(attachment)
        await settle()
        del live, attachment
        gc.collect()
        assert [one() for one in left] == [None, None, None]
        assert here.hub.session(name) is None
        assert here.scripted.live == []
        assert (await here.log.sessions("closed"))[0].session == name
        assert (
            await code_of(here.hub.resume(Resumption(session=name, token="t", control_id="r")))
            == "session_resume_expired"
        )


# -- faults of ours ------------------------------------------------------------------------------------------


@rule("M10")
async def test_a_command_that_crashes_is_told_and_the_session_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        with monkeypatch.context() as patched:
            patched.setitem(core.REQUESTS, Heartbeat, boom)  # type: ignore[arg-type]
            attachment.send(Heartbeat(attachment=1, event_id="e1"))
            await settle()
        (told,) = [event for event in await here.events(attachment.session) if isinstance(event, ErrorReported)]
        assert (told.code, told.event_id) == ("internal_error", "e1")
        assert attachment.current
        assert here.hub.statistics().crashed == 0
        attachment.send(Heartbeat(attachment=1))
        await settle()
        events = await here.events(attachment.session)
        assert isinstance(events[-1], SessionTouched)
        recorded = [entry.command for entry in await here.recorded(attachment.session)]
        assert not [command for command in recorded if isinstance(command, Heartbeat)][1:], "it decided nothing"


@rule("M10", "G22")
async def test_an_append_that_crashes_fails_its_answer_and_ends_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(ScriptedStage(default=BUSY)) as here:
        attachment = await here.hub.open(opening())
        ask(attachment)
        await settle()
        monkeypatch.setitem(core.REQUESTS, AppendAudio, boom)  # type: ignore[arg-type]
        attachment.append(AppendRequest(data=b"\x00\x20" * 1_600, speech=True, event_id="e2"))
        await settle()
        events = await here.events(attachment.session)
        shown = [e for e in events if isinstance(e, ResponseEnded | ErrorReported | SessionClosing | SessionClosed)]
        assert [type(event) for event in shown] == [ResponseEnded, ErrorReported, SessionClosing, SessionClosed]
        assert isinstance(shown[-1], SessionClosed)
        assert shown[-1].reason == "runtime_append_task_failed"
        assert attachment.ended == "closed"


@rule("M10")
@pytest.mark.parametrize("where", ["decode", "level"])
async def test_sound_that_crashes_on_its_way_in_ends_the_session_too(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        monkeypatch.setattr(ingress, where, boom)
        attachment.append(AppendRequest(data=b"\x00\x20" * 1_600, event_id="e3"))
        await settle()
        (closed,) = await ends(here, attachment.session)
        assert closed.reason == "runtime_append_task_failed"


@rule("M10")
async def test_a_report_that_crashes_fails_what_it_was_about(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = ScriptedStage(scripts={0: BUSY})
    async with world(stage) as here:
        attachment = await here.hub.open(opening())
        with monkeypatch.context() as patched:
            patched.setitem(core.CONTROLS, StageProduced, boom)  # type: ignore[arg-type]
            ask(attachment)
            await settle()
        (ended,) = [event for event in await here.events(attachment.session) if isinstance(event, ResponseEnded)]
        assert ended.failure is not None
        assert ended.failure.code == "internal_error"
        assert stage.live == [], "and its stage forgets it"
        ask(attachment)
        await settle()
        ended = [event for event in await here.events(attachment.session) if isinstance(event, ResponseEnded)][-1]
        assert ended.status == "completed"


@rule("M10")
async def test_an_update_that_crashes_does_not_hold_up_what_came_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        monkeypatch.setitem(core.REQUESTS, UpdateSession, boom)  # type: ignore[arg-type]
        attachment.send(UpdateSession(attachment=1, patch=ConfigPatch(instructions="Be brief.")))
        attachment.append(AppendRequest(data=b"\x00\x20" * 1_600, speech=True))
        await settle()
        assert len(await here.commands(attachment.session, ReportFault)) == 1
        assert len(await here.commands(attachment.session, AppendAudio)) == 1


@rule("M10")
async def test_a_resume_that_crashes_is_answered_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        asked = Resumption(session=attachment.session, token=attachment.token or "", control_id="r")
        with monkeypatch.context() as patched:
            patched.setitem(core.CONTROLS, ResumeSession, boom)  # type: ignore[arg-type]
            assert await code_of(here.hub.resume(asked)) == "internal_error"
        assert attachment.current
        assert (await here.hub.resume(asked)).generation == 2


@rule("M11", "M20")
async def test_a_session_whose_time_fails_is_closed_and_the_others_expire_as_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(settings=HubSettings(idle_ttl_ms=10_000, shutdown_ms=200)) as here:
        attachments = [await here.hub.open(opening(f"open-{n}")) for n in range(3)]
        bad = attachments[1].session
        tick = core.CONTROLS[Tick]
        failures: list[str] = []

        def poisoned(draft: core.Draft, command: Tick) -> None:
            if draft.session.id == bad and not failures:
                failures.append(bad)
                boom()
            tick(draft, command)

        monkeypatch.setitem(core.CONTROLS, Tick, poisoned)  # type: ignore[arg-type]
        await here.advance(10_000)
        await here.advance(1_000)
        reasons = [(await ends(here, attachment.session))[0].reason for attachment in attachments]
        assert reasons == ["idle_ttl_expired", "internal_error", "idle_ttl_expired"]
        assert here.hub.statistics().admitted == 0


# -- the end of the server -----------------------------------------------------------------------------------


@rule("M15")
@pytest.mark.parametrize("dialect", ["duplex", "ga"])
async def test_a_shutdown_ends_every_handle_by_its_name(dialect: str) -> None:
    async with world() as here:
        attachment = await here.hub.open(Opening(dialect="ga" if dialect == "ga" else "duplex", control_id="o"))
        await here.hub.shutdown()
        assert attachment.ended == "shutdown"
        assert await attachment.wait_ended() == "shutdown"
        assert len(await ends(here, attachment.session)) == (1 if dialect == "ga" else 0)
        assert await code_of(here.hub.open(opening("late"))) == "going_away"


@rule("M15")
async def test_a_shutdown_that_cannot_be_recorded_ends_the_handles_all_the_same() -> None:
    log = MoodyLog()
    async with world(log=log, settings=HubSettings(shutdown_ms=20)) as here:
        attachment = await here.hub.open(opening())
        log.holding = True
    assert attachment.ended == "shutdown"


@rule("M15", "D19")
async def test_a_session_that_a_shutdown_left_goes_on_in_the_next_server() -> None:
    log = MoodyLog()
    async with world(log=log) as here:
        old = await here.hub.open(opening())
    async with world(log=log) as here:
        asked = Resumption(session=old.session, token=old.token or "", control_id="r")
        new = await here.hub.resume(asked)
        new.send(Heartbeat(attachment=new.generation))
        await settle()
        assert isinstance((await here.events(old.session))[-1], SessionTouched)


@rule("M15")
async def test_a_shutdown_whose_caller_went_away_goes_on_when_it_is_asked_for_again() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        here.log.holding = True
        with anyio.CancelScope() as gone:
            gone.cancel()
            await here.hub.shutdown()
        assert attachment.current, "it is not in the log"
        asyncio.get_running_loop().call_soon(here.log.release)
        await here.hub.shutdown()
        assert attachment.ended == "shutdown"


@rule("M15", "P53")
async def test_a_server_whose_leaving_is_cancelled_ends_its_tasks_all_the_same() -> None:
    log, handles = MoodyLog(), list[Attachment]()
    before = asyncio.all_tasks()
    with anyio.CancelScope() as gone:
        async with world(log=log, settings=HubSettings(shutdown_ms=2_000)) as here:
            handles.append(await here.hub.open(opening()))
            log.holding = True
            asyncio.get_running_loop().call_soon(gone.cancel)
    assert gone.cancelled_caught
    assert asyncio.all_tasks() == before
    assert [handle.ended for handle in handles] == ["shutdown"]


@rule("M16")
async def test_a_server_whose_start_is_cancelled_leaves_nothing_of_it() -> None:
    """A stage's host may take its time, and whoever waits for the start may not have any."""

    class Slow(InlineHost):
        closed = 0

        async def start(self, on_report: OnReport) -> None:
            await anyio.lowlevel.checkpoint()
            raise AssertionError("nobody waits for this")

        async def aclose(self) -> None:
            self.closed += 1
            await super().aclose()

    host, before = Slow(ScriptedStage()), asyncio.all_tasks()
    with anyio.CancelScope() as gone:
        gone.cancel()
        async with world(host=host):
            raise AssertionError("it was started")
    assert (gone.cancelled_caught, host.closed) == (True, 1)
    await settle()
    assert asyncio.all_tasks() == before


@rule("M16")
async def test_when_the_engine_dies_every_handle_and_every_waiting_control_hears_it() -> None:
    log = MoodyLog()
    heard: list[str] = []
    attachments: list[Attachment] = []

    async def hear(request: Awaitable[object]) -> None:
        heard.append(await code_of(request))

    async def read(attachment: Attachment) -> None:
        with attachment.cursor() as cursor:
            async for _ in cursor:
                pass

    async with anyio.create_task_group() as outside:
        with pytest.raises(ExceptionGroup, match="unhandled"):  # noqa: PT012  # the hub is left by the error
            async with world(log=log) as here:
                attachments += [await here.hub.open(opening("a")), await here.hub.open(opening("b"))]
                outside.start_soon(hear, read(attachments[0]))
                await settle()
                log.holding = True
                outside.start_soon(hear, here.hub.open(opening("c")))
                outside.start_soon(hear, here.hub.close(attachments[1].session, "close"))
                await settle()
                hub = here.hub
                raise RuntimeError("the engine died")
        await settle()
    assert heard == ["engine_dead"] * 3
    assert [attachment.ended for attachment in attachments] == ["engine_dead"] * 2
    assert await code_of(hub.open(opening("late"))) == "engine_dead"


# -- in process ----------------------------------------------------------------------------------------------


@rule("M17")
async def test_a_close_in_process_waits_for_the_terminal_and_the_events_end_behind_it() -> None:
    async with world() as here, anyio.create_task_group() as group, DirectClient(here.hub) as client:
        listener = Listener(client)
        group.start_soon(listener.run)
        await settle()
        await client.close("done here")
        await settle()
        assert listener.names[-1] == "SessionClosed"
        assert listener.ended
        (closed,) = listener.all(SessionClosed)
        assert isinstance(closed, SessionClosed)
        assert closed.words == "done here"


@rule("M17")
async def test_a_close_in_process_that_is_not_answered_ends_locally() -> None:
    async with world() as here, anyio.create_task_group() as group:
        async with DirectClient(here.hub, close_s=3.0) as client:
            attachment = client.attachment
            here.log.holding = True
            done = anyio.Event()

            async def go() -> None:
                await client.close()
                done.set()

            group.start_soon(go)
            await settle()
            await here.advance(2_999)
            assert not done.is_set()
            await here.advance(1)
            assert done.is_set()
            assert (attachment.ended, attachment.current) == ("closed", False)
            assert [heard async for heard in client.events()] == []
            here.log.release()
        await settle()
        assert len(await ends(here, attachment.session)) == 1, "the session itself ends all the same"
