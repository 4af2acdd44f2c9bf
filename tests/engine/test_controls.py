"""Controls of a session: order, repetition, refusal, and callers who go away (BEHAVIOURS B18-B25, C14)."""

from collections.abc import Awaitable, Callable

import anyio
import pytest

from antiphon.engine.direct import DirectClient
from antiphon.engine.errors import Refused
from antiphon.engine.hub import Hub
from antiphon.engine.ingress import AppendRequest
from antiphon.engine.opening import Opening, Resumption
from antiphon.engine.openings import KEPT
from antiphon.engine.runner import RUN_AHEAD
from antiphon.engine.settings import HubSettings
from antiphon.events.commands import CloseSession, CommitInput, Detach, Heartbeat, OpenSession, ResumeSession
from antiphon.events.errors import error_type, retryable
from antiphon.events.events import (
    AudioReceived,
    ErrorReported,
    SessionClosed,
    SessionDetached,
    SessionOpened,
    SessionResumed,
)
from antiphon.events.log import Unavailable
from antiphon.stages.scripted import Deaf, Hang, ScriptedStage

from .worlds import ONE, World, ask, code_of, opening, resumption, settle, world
from tests.rules import rule

pytestmark = pytest.mark.anyio


def life(events: list[object]) -> list[str]:
    kinds = (SessionOpened, SessionResumed, SessionDetached, SessionClosed)
    return [type(event).__name__ for event in events if isinstance(event, kinds)]


# -- in their order: B18 -------------------------------------------------------------------------------------


@rule("B18")
async def test_controls_take_effect_in_the_order_of_their_asking_and_a_failed_one_blocks_no_other() -> None:
    async with world() as here:
        old = await here.hub.open(opening())
        answers: list[str] = []

        async def note(name: str, request: Awaitable[object]) -> None:
            try:
                await request
            except Refused as refused:
                name = f"{name}: {refused.code}"
            answers.append(name)

        async with anyio.create_task_group() as group:
            for name, request in (
                ("resume", here.hub.resume(resumption(old, "a"))),
                ("stale detach", here.hub.detach(old.session, "b", expected=0)),
                ("wrong token", here.hub.resume(Resumption(session=old.session, token="x", control_id="c"))),
                ("detach", here.hub.detach(old.session, "d", expected=1)),
                ("resume again", here.hub.resume(resumption(old, "e"))),
                ("close", here.hub.close(old.session, "f")),
                ("too late", here.hub.resume(resumption(old, "g"))),
            ):
                group.start_soon(note, name, request)
                await anyio.lowlevel.checkpoint()
        assert life(await here.events(old.session)) == [
            "SessionOpened",
            "SessionResumed",
            "SessionDetached",
            "SessionResumed",
            "SessionClosed",
        ]
        assert sorted(answers) == [
            "close",
            "detach",
            "resume",
            "resume again",
            "stale detach: session_resume_conflict",
            "too late: session_resume_expired",
            "wrong token: invalid_resume_token",
        ]


@rule("B18", "P57")
async def test_a_control_of_one_session_does_not_wait_for_another_session() -> None:
    stage = ScriptedStage(default=(Deaf(), Hang()))
    async with world(stage) as here:
        stuck = await here.hub.open(opening("stuck"))
        ask(stuck)
        await settle()
        other = await here.hub.open(opening("other"))
        async with anyio.create_task_group() as group:
            group.start_soon(here.hub.close, stuck.session, "c")
            await settle()
            assert (await here.hub.resume(resumption(other))).current
            await here.hub.close(other.session, "c")
            assert life(await here.events(stuck.session)) == ["SessionOpened"], "it waits for its stage"
            await here.advance(2_000)
        assert life(await here.events(stuck.session)) == ["SessionOpened", "SessionClosed"]


@rule("B18", "D32")
async def test_a_control_whose_caller_went_away_blocks_no_other() -> None:
    async with world() as here:
        old = await here.hub.open(opening())
        here.log.holding = True
        async with anyio.create_task_group() as group:
            group.start_soon(here.hub.resume, resumption(old, "gone"))
            await settle()
            group.cancel_scope.cancel()
        here.log.release()
        await settle()
        assert (await here.hub.resume(resumption(old, "next"))).current


# -- repeated: B19, B20, B21 ---------------------------------------------------------------------------------


@rule("B19")
async def test_an_opening_is_repeated_to_the_same_session_as_long_as_its_log_exists() -> None:
    async with world(settings=HubSettings(shutdown_ms=200)) as here:
        log, clock = here.log, here.clock
        first = await here.hub.open(opening("same"))
        for number in range(KEPT):
            here.hub._openings.begin(opening(f"other {number}"))  # pyright: ignore[reportPrivateUsage]
        again = await here.hub.open(opening("same"))
        assert (again.session, again.token, again.generation) == (first.session, first.token, 1)
        await here.hub.resume(resumption(again, "r"))
        replaced = await here.hub.open(opening("same"))
        assert (replaced.session, replaced.ended) == (first.session, "replaced"), "it disturbs nobody"
    async with world(log=log, clock=clock) as later:
        found = await later.hub.open(opening("same"))
        assert (found.session, found.ended) == (first.session, "replaced")
        await later.hub.close(first.session, "c")
        assert await code_of(later.hub.open(opening("same"))) == "session_closed"
    async with world(log=log, clock=clock) as last:
        assert await code_of(last.hub.open(opening("same"))) == "session_closed"
        assert len(await log.sessions()) == 1


@rule("B20")
async def test_an_opening_with_another_body_is_refused_also_when_only_the_log_knows_the_first() -> None:
    async with world(settings=HubSettings(shutdown_ms=200)) as here:
        log, clock = here.log, here.clock
        await here.hub.open(opening("same"))
        assert await code_of(here.hub.open(opening("same", model="other"))) == "control_id_reused"
    async with world(log=log, clock=clock) as later:
        assert await code_of(later.hub.open(opening("same", model="other"))) == "control_id_reused"
        assert len(await log.sessions()) == 1


@rule("B19", "B16")
async def test_an_opening_that_was_given_up_is_none_also_after_a_restart() -> None:
    async with world(settings=HubSettings(shutdown_ms=200)) as here:
        log, clock = here.log, here.clock
        log.holding = True
        async with anyio.create_task_group() as group:
            group.start_soon(here.hub.open, opening("same"))
            await settle()
            group.cancel_scope.cancel()
        log.release()
        await settle()
        (given_up,) = await log.sessions("closed")
    async with world(log=log, clock=clock) as later:
        opened = await later.hub.open(opening("same"))
        assert opened.current
        assert opened.session != given_up.session


@rule("B19", "C11", "P45")
async def test_a_resume_is_repeated_after_the_memory_of_its_answer_is_gone() -> None:
    async with world() as here:
        old = await here.hub.open(opening())
        first = await here.hub.resume(resumption(old, "same"))
        here.hub._live[old.session].answers.clear()  # pyright: ignore[reportPrivateUsage]
        again = await here.hub.resume(resumption(old, "same"))
        assert (again.generation, again.lease, again.token) == (first.generation, first.lease, first.token)
        assert len(await here.commands(old.session, ResumeSession)) == 1


@rule("B19", "C6")
async def test_an_operators_detach_is_answered_the_same_and_starts_one_grace() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        assert await here.hub.detach(attachment.session, "d") == 0
        await here.advance(20_000)
        assert await here.hub.detach(attachment.session, "d") == 0
        assert await here.hub.detach(attachment.session, "other") == 0
        assert attachment.ended == "detached"
        assert await code_of(here.hub.detach(attachment.session, "d", expected=0)) == "control_id_reused"
        await here.advance(10_000)
        assert life(await here.events(attachment.session)) == ["SessionOpened", "SessionDetached", "SessionClosed"]


@rule("B19", "M8")
async def test_a_close_is_answered_when_the_end_is_there_and_again_ever_after() -> None:
    stage = ScriptedStage(default=(Hang(),))
    async with world(stage) as here:
        attachment = await here.hub.open(opening())
        ask(attachment)
        await settle()
        for control_id in ("c", "c", "another"):
            await here.hub.close(attachment.session, control_id)
            assert attachment.ended == "closed"
        await here.hub.close("duplex-nobody", "c")
        assert len(await here.commands(attachment.session, CloseSession)) == 1


@rule("B20")
async def test_a_close_under_the_id_of_something_else_is_refused() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        await here.hub.detach(attachment.session, "same")
        assert await code_of(here.hub.close(attachment.session, "same")) == "control_id_reused"
        assert attachment.ended == "detached"
        assert life(await here.events(attachment.session)) == ["SessionOpened", "SessionDetached"]


# -- refused, by one table: B22 ------------------------------------------------------------------------------


async def no_slot(here: World) -> None:
    await here.hub.open(opening("a"))
    async with DirectClient(here.hub):
        pass


async def no_such_session(here: World) -> None:
    await here.hub.detach("duplex-nobody", "d")


async def after_the_close(here: World) -> None:
    attachment = await here.hub.open(opening("a"))
    await here.hub.close(attachment.session, "c")
    await here.hub.open(opening("a"))


async def wrong_generation(here: World) -> None:
    attachment = await here.hub.open(opening("a"))
    await here.hub.detach(attachment.session, "d", expected=7)


async def too_long(here: World) -> None:
    attachment = await here.hub.open(opening("a"))
    here.log.holding = True
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(here.advance, 10_000)
            await here.hub.resume(resumption(attachment))
    except* Refused as refused:
        raise refused.exceptions[0] from None
    finally:
        here.log.release()


async def no_fence(here: World) -> None:
    attachment = await here.hub.open(opening("a"))
    live = here.hub._live[attachment.session]  # pyright: ignore[reportPrivateUsage]
    outcome = await live.ask(Detach())
    assert isinstance(outcome.error, Refused)
    raise outcome.error


async def exists(here: World) -> None:
    attachment = await here.hub.open(opening("a"))
    live = here.hub._live[attachment.session]  # pyright: ignore[reportPrivateUsage]
    (command,) = await here.commands(attachment.session, OpenSession)
    assert isinstance(command, OpenSession)
    from msgspec.structs import replace

    outcome = await live.ask(replace(command, control_id="another"))
    assert isinstance(outcome.error, Refused)
    raise outcome.error


async def no_store(here: World) -> None:
    here.log.broken = Unavailable("full")
    await here.hub.open(opening("a"))


async def going_away(here: World) -> None:
    await here.hub.shutdown()
    await here.hub.open(opening("a"))


Refusing = Callable[[World], Awaitable[None]]

TABLE: list[tuple[str, bool, Refusing | None]] = [
    ("resource_exhausted", True, no_slot),
    ("session_exists", False, exists),
    ("unknown_session", False, no_such_session),
    ("session_closed", False, after_the_close),
    ("session_resume_conflict", False, wrong_generation),
    ("stale_fence", False, None),
    ("invalid_argument", False, no_fence),
    ("not_found", False, None),
    ("timeout", True, too_long),
    ("engine_dead", False, None),
    ("engine_error", False, None),
    ("engine_backpressure", True, None),
    ("failed_precondition", False, None),
    ("storage_unavailable", True, no_store),
    ("going_away", True, going_away),
]
"""Ours beyond the book: the store, and a server that stops. A row without a way to get there names a code that the
one log leaves no occasion for, or that comes from elsewhere."""


@rule("B22")
@pytest.mark.parametrize(("code", "again", "refusing"), TABLE, ids=[row[0] for row in TABLE])
async def test_a_refused_control_has_a_code_and_says_whether_trying_again_may_help(
    code: str, again: bool, refusing: Refusing | None
) -> None:
    assert retryable(code) == again
    assert (error_type(code) == "rate_limit_error") == (code in ("resource_exhausted", "engine_backpressure"))
    if refusing is None:
        return
    async with world(settings=ONE) as here:
        with pytest.raises(Refused) as refused:
            await refusing(here)
        here.log.broken = None
        assert (refused.value.code, refused.value.retryable) == (code, again)


@rule("B22", "B16", "C14")
async def test_who_waited_too_long_is_told_and_what_was_asked_for_is_taken_back() -> None:
    async with world(settings=ONE) as here:
        here.log.holding = True
        codes: list[str] = []

        async def go(hub: Hub) -> None:
            codes.append(await code_of(hub.open(opening("slow"))))

        async with anyio.create_task_group() as group:
            group.start_soon(go, here.hub)
            await settle()
            await here.advance(9_999)
            assert codes == []
            await here.advance(1)
            assert codes == ["timeout"]
        here.log.release()
        await settle()
        (row,) = await here.log.sessions()
        closed = (await here.events(row.session))[-1]
        assert isinstance(closed, SessionClosed)
        assert closed.reason == "open_abandoned"
        assert (await here.hub.open(opening("slow"))).current, "the slot is free, and the id stands for a new one"


# -- commands: B23, B24, B25 ---------------------------------------------------------------------------------


@rule("B23")
async def test_a_command_on_a_connection_whose_session_is_gone_goes_nowhere() -> None:
    """Impossible by construction: a command needs a connection, and that ends with its session."""
    async with world() as here:
        attachment = await here.hub.open(opening())
        await here.hub.close(attachment.session, "c")
        before = len(await here.recorded(attachment.session))
        attachment.send(Heartbeat(attachment=1))
        await settle()
        assert len(await here.recorded(attachment.session)) == before
        assert await code_of(here.hub.detach(attachment.session, "d")) == "unknown_session"


@rule("B24", "E12", "P28")
async def test_sound_over_the_budget_is_refused_before_it_waits_in_a_queue() -> None:
    """The trap: checked when it is carried out, a queue behind a busy writer holds sound without a bound."""
    async with world(settings=HubSettings(input_bytes=10_000, shutdown_ms=200)) as here:
        attachment = await here.hub.open(opening())
        runner = here.hub._live[attachment.session].runner  # pyright: ignore[reportPrivateUsage]
        here.log.holding = True
        for _ in range(RUN_AHEAD + 1):
            attachment.send(Heartbeat(attachment=1))
        await settle()
        before = len(here.log.appended)
        for number in range(20):
            attachment.append(AppendRequest(data=b"\x00\x20" * 500, speech=True, event_id=f"e{number}"))
            assert runner.inbox.queued_bytes <= 10_000
        assert len(here.log.appended) == before, "nothing of it was decided"
        here.log.release()
        await settle()
        events = await here.events(attachment.session)
        refused = [event for event in events if isinstance(event, ErrorReported)]
        taken = [event for event in events if isinstance(event, AudioReceived)]
        assert {event.code for event in refused} == {"input_backpressure"}
        assert len(refused) + len(taken) == 20
        assert 0 < sum(event.ref.size for event in taken) <= 10_000


@rule("B24", "E14")
async def test_commits_over_the_budget_of_turns_are_refused() -> None:
    stage = ScriptedStage(default=(Hang(),))
    async with world(stage, settings=HubSettings(pending_commits=2, shutdown_ms=200)) as here:
        attachment = await here.hub.open(opening())
        for _ in range(5):
            attachment.append(AppendRequest(data=b"\x00\x20" * 1_600, speech=True))
            attachment.send(CommitInput(attachment=1, create_response=True))
        await settle()
        events = await here.events(attachment.session)
        codes = [event.code for event in events if isinstance(event, ErrorReported)]
        assert codes
        assert set(codes) == {"input_backpressure"}


# -- callers who go away: C14, D27, D32 ----------------------------------------------------------------------


@rule("C14", "D25", "D31", "D32")
async def test_a_resume_that_landed_for_nobody_is_given_up_by_its_own_generation() -> None:
    """(a) The caller is free at once, (b) nothing is given back before the outcome is known, (f) then it is."""
    async with world() as here:
        old = await here.hub.open(opening())
        here.log.holding = True
        async with anyio.create_task_group() as group:
            group.start_soon(here.hub.resume, resumption(old))
            await settle()
            group.cancel_scope.cancel()
        assert [type(entry.command) for entry in here.log.appended[1:]] == [ResumeSession]
        await settle()
        assert [type(entry.command) for entry in here.log.appended[1:]] == [ResumeSession], "not known yet"
        here.log.release()
        await settle()
        resume, detach = here.log.appended[1:]
        assert detach.command == Detach(generation=1)
        assert life(list(resume.events + detach.events)) == ["SessionResumed", "SessionDetached"]


@rule("C14", "D33.10", "P45")
async def test_a_lost_answer_is_read_again_under_the_same_control_id() -> None:
    """Row 10: B was cancelled, its answer lost. Whatever it replays: one bump, and it is settled once."""
    async with world() as here:
        old = await here.hub.open(opening())
        asked = resumption(old, "one id")
        here.log.holding = True
        async with anyio.create_task_group() as group:
            group.start_soon(here.hub.resume, asked)
            await settle()
            group.cancel_scope.cancel()
        here.log.release()
        await settle()
        for _ in range(3):
            again = await here.hub.resume(asked)
            assert (again.lease, again.ended) == (1, "detached"), "the known generation; nobody serves it"
        assert life(await here.events(old.session)) == ["SessionOpened", "SessionResumed", "SessionDetached"]
        assert (await here.hub.resume(resumption(old, "other"))).lease == 2, "the token it presented is good"


@rule("C14")
async def test_an_error_means_that_the_resume_did_not_land() -> None:
    async with world() as here:
        old = await here.hub.open(opening())
        here.log.broken = Unavailable("full")
        assert await code_of(here.hub.resume(resumption(old))) == "storage_unavailable"
        here.log.broken = None
        await settle()
        await here.advance(1_000)
        found = here.hub.session(old.session)
        assert found is not None
        assert (found.lease.generation, found.lease.attachment) == (0, 1)


@rule("B25")
async def test_any_front_end_may_serve_any_session() -> None:
    """Two doors to one log: what was opened through one is resumed through the other."""
    async with world() as here:
        doors = [here.hub, here.hub]
        attachment = await doors[0].open(Opening(dialect="duplex", control_id="a"))
        assert (await doors[1].resume(resumption(attachment))).current
