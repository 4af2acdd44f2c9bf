"""The hub: admission, attaching and replacing, callers that go away, crashes, the end."""

from collections.abc import Awaitable

import anyio
import pytest

from antiphon.engine import hub
from antiphon.engine.attachment import REFUSALS_BURST, Attachment
from antiphon.engine.clock import VirtualClock
from antiphon.engine.errors import Refused, Resync
from antiphon.engine.hosts import InlineHost, ThreadHost
from antiphon.engine.ingress import AppendRequest
from antiphon.engine.opening import Opening, Resumption
from antiphon.engine.settings import HubSettings
from antiphon.events.commands import (
    CloseSession,
    Detach,
    Heartbeat,
    ReportRefusal,
    ResumeSession,
)
from antiphon.events.config import ConfigPatch
from antiphon.events.events import (
    AttachmentConfirmed,
    AttachmentWithdrawn,
    ConfigUpdated,
    ErrorReported,
    ResponseEnded,
    SessionClosed,
    SessionDetached,
    SessionOpened,
    SessionResumed,
    SessionTouched,
)
from antiphon.events.log import Unavailable
from antiphon.sessions import core
from antiphon.stages.base import AnyMessage, Report, StageUnavailable
from antiphon.stages.echo import EchoStage
from antiphon.stages.scripted import Deaf, Hang, ScriptedStage

from .worlds import ONE, MoodyLog, World, ask, code_of, killed, opening, resumption, settle, world
from tests.rules import rule

pytestmark = pytest.mark.anyio


def close(attachment: Attachment) -> None:
    attachment.send(CloseSession(control_id="c", attachment=attachment.generation))


# -- admission -----------------------------------------------------------------------------------------------


async def test_an_open_session_is_shown_as_it_was_opened() -> None:
    async with world() as here:
        attachment = await here.hub.open(
            opening(model="gpt-realtime", patch=ConfigPatch(instructions="Be brief."), by_update=True)
        )
        created, updated = attachment.entry.transaction.events
        assert isinstance(created, SessionOpened)
        assert isinstance(updated, ConfigUpdated)
        assert created.view.config.model == "gpt-realtime"
        assert created.view.config.instructions == "Be brief."
        assert attachment.session.startswith("duplex-")
        assert (attachment.generation, attachment.lease, len(attachment.token or "")) == (1, 0, 43)
        assert attachment.current


async def test_ga_sessions_have_no_token_and_say_so() -> None:
    async with world() as here:
        attachment = await here.hub.open(Opening(dialect="ga", control_id="o"))
        (created,) = attachment.entry.transaction.events
        assert isinstance(created, SessionOpened)
        assert attachment.token is None
        assert not created.view.resumable
        assert not created.view.capabilities.supports_session_resume
        assert attachment.session.startswith("sess_")


@rule("B2", "P53")
async def test_a_slot_is_held_until_the_log_is_closed_and_free_right_then() -> None:
    async with world(settings=ONE) as here:
        attachment = await here.hub.open(opening("one"))
        with pytest.raises(Refused) as refused:
            await here.hub.open(opening("two"))
        assert (refused.value.code, refused.value.retryable) == ("resource_exhausted", True)
        close(attachment)
        with attachment.cursor() as cursor:
            async for entry in cursor:
                if isinstance(entry.transaction.events[-1], SessionClosed):
                    await here.hub.open(opening("three"))
        assert here.hub.statistics().refused == 1


@rule("B2", "M6", "Q4.25")
async def test_a_stage_that_does_not_let_go_keeps_the_slot() -> None:
    stage = ScriptedStage(default=(Deaf(), Hang()))
    async with world(stage, settings=ONE) as here:
        attachment = await here.hub.open(opening("one"))
        ask(attachment)
        await settle()
        close(attachment)
        await settle()
        await here.advance(3_000)
        assert attachment.ended == "closed"
        assert await code_of(here.hub.open(opening("two"))) == "resource_exhausted"
        stage.let_go()
        await settle()
        await here.hub.open(opening("three"))


@rule("B3")
async def test_the_slot_is_held_while_an_open_is_being_prepared() -> None:
    async with world(settings=ONE) as here, anyio.create_task_group() as group:
        here.log.acquiring = anyio.Event()
        group.start_soon(here.hub.open, opening("one"))
        await settle()
        assert await code_of(here.hub.open(opening("two"))) == "resource_exhausted"
        here.log.acquiring.set()


@pytest.mark.parametrize(("wildcard", "code"), [(True, None), (False, "model_not_found")])
async def test_an_unknown_model_is_served_only_with_a_wildcard(wildcard: bool, code: str | None) -> None:
    settings = HubSettings(wildcard=wildcard, aliases=("known",), shutdown_ms=200)
    async with world(settings=settings) as here:
        await here.hub.open(opening("a", model="known"))
        if code is None:
            await here.hub.open(opening("b", model="foreign"))
        else:
            assert await code_of(here.hub.open(opening("b", model="foreign"))) == code


@rule("B5", "B11")
async def test_what_the_plugin_refuses_makes_no_session() -> None:
    async with world() as here:
        with pytest.raises(Refused) as refused:
            await here.hub.open(opening(patch=ConfigPatch(voice="nobody")))
        assert (refused.value.code, refused.value.param) == ("bad_event", "session.audio.output.voice")
        assert await here.log.sessions() == []
        assert here.hub.statistics().admitted == 0


@rule("B11")
async def test_a_store_that_fails_refuses_the_open_and_frees_the_slot() -> None:
    async with world(settings=ONE) as here:
        here.log.broken = Unavailable("disk full")
        assert await code_of(here.hub.open(opening())) == "storage_unavailable"
        here.log.broken = None
        await settle()
        await here.advance(2_000)
        await here.hub.open(opening())


class Missing(EchoStage):
    def start(self, report: Report) -> None:
        raise StageUnavailable("no voice is installed")


@rule("K1")
async def test_a_stage_that_cannot_load_refuses_by_name() -> None:
    async with world(Missing()) as here:
        assert here.hub.ready.is_set()
        assert here.hub.unavailable == "no voice is installed"
        assert await code_of(here.hub.open(opening())) == "stage_unavailable"


class Faulty(EchoStage):
    def start(self, report: Report) -> None:
        raise RuntimeError("a fault of the model")


@rule("K1")
@pytest.mark.parametrize("kind", [InlineHost, ThreadHost])
async def test_a_stage_that_raises_in_its_start_refuses_by_name(kind: type[InlineHost | ThreadHost]) -> None:
    async with world(host=kind(Faulty())) as here:
        with anyio.fail_after(20):
            await here.hub.ready.wait()
        assert here.hub.not_ready == "cannot load: RuntimeError"
        with pytest.raises(Refused, match="cannot load: RuntimeError") as refused:
            await here.hub.open(opening())
        assert refused.value.code == "stage_unavailable"


class Restarting(InlineHost):
    """A host whose stage can be lost, and loaded again."""

    def lose(self) -> None:
        self._wait_for("It is being restarted.")

    def load(self) -> None:
        self._loaded()


@rule("K1")
async def test_while_a_stage_is_loaded_again_openings_wait_and_the_hub_is_not_ready() -> None:
    host = Restarting(EchoStage())
    async with world(host=host) as here, anyio.create_task_group() as group:
        assert (here.hub.ready.is_set(), here.hub.not_ready) == (True, None)
        host.lose()
        assert (here.hub.ready.is_set(), here.hub.not_ready) == (False, "It is being restarted.")
        group.start_soon(here.hub.open, opening())
        await settle()
        assert (here.hub.statistics().live, here.hub.statistics().admitted) == (0, 1)
        host.load()
        await settle()
        assert (here.hub.statistics().live, here.hub.ready.is_set()) == (1, True)


@rule("B27")
async def test_openings_wait_for_a_stage_no_longer_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "WARM_UP_S", 0.001)
    host = Restarting(EchoStage())
    async with world(host=host) as here:
        host.lose()
        with pytest.raises(Refused, match="It is being restarted") as refused:
            await here.hub.open(opening())
        assert (refused.value.code, refused.value.retryable) == ("resource_exhausted", True)
        assert here.hub.statistics().admitted == 0


async def test_an_opening_that_waited_into_the_shutdown_makes_no_session() -> None:
    host = Restarting(EchoStage())
    async with world(host=host) as here, anyio.create_task_group() as group:
        host.lose()

        async def late() -> None:
            assert await code_of(here.hub.open(opening())) == "going_away"

        group.start_soon(late)
        await settle()
        await here.hub.shutdown()
        host.load()
        await settle()
        assert await here.log.sessions() == []


@rule("B19", "B20")
async def test_an_opening_is_repeated_by_its_control_id_and_no_other_body() -> None:
    async with world() as here:
        first = await here.hub.open(opening("same"))
        again = await here.hub.open(opening("same"))
        assert (again.session, again.token, again.entry.seq) == (first.session, first.token, 1)
        assert await code_of(here.hub.open(opening("same", model="other"))) == "control_id_reused"
        assert here.hub.statistics().opened == 1


@rule("D31")
async def test_the_late_detach_of_a_connection_whose_answer_was_repeated_changes_nothing() -> None:
    async with world() as here:
        lost = await here.hub.open(opening("same"))
        found = await here.hub.open(opening("same"))
        assert (lost.ended, found.current) == ("replaced", True)
        await lost.detach()
        found.send(Heartbeat(attachment=1))
        await settle()
        assert found.current
        lost = await here.hub.resume(resumption(found, "again"))
        found = await here.hub.resume(resumption(found, "again"))
        assert (lost.ended, found.current) == ("replaced", True)
        await lost.detach()
        await settle()
        assert found.current
        assert await here.commands(found.session, Detach) == []


async def test_an_opening_that_was_given_up_leaves_the_one_that_followed_alone() -> None:
    async with world() as here:
        here.log.holding = True
        async with anyio.create_task_group() as group:
            group.start_soon(here.hub.open, opening("same"))
            await settle()
            group.cancel_scope.cancel()
        found: list[str] = []

        async def go() -> None:
            found.append((await here.hub.open(opening("same"))).session)

        async with anyio.create_task_group() as group:
            group.start_soon(go)
            await settle()
            here.log.release(1)
            await settle()
            here.log.release()
        assert (await here.hub.open(opening("same"))).session == found[0]


@rule("B19")
async def test_a_repeated_opening_waits_for_the_first_one() -> None:
    async with world() as here, anyio.create_task_group() as group:
        found: list[str] = []

        async def go() -> None:
            found.append((await here.hub.open(opening("same"))).session)

        here.log.holding = True
        group.start_soon(go)
        group.start_soon(go)
        await settle()
        assert found == []
        here.log.release()
        await settle()
        assert len(found) == 2
        assert len(set(found)) == 1


# -- callers that go away ------------------------------------------------------------------------------------


async def cancelled(here: World, request: Awaitable[object]) -> None:
    """Begin a request whose answer does not come, and give up."""

    async def go() -> None:
        await request

    here.log.holding = True
    async with anyio.create_task_group() as group:
        group.start_soon(go)
        await settle()
        group.cancel_scope.cancel()
    here.log.release()
    await settle()


@rule("B13", "B16", "B17")
async def test_an_abandoned_open_closes_what_was_opened_for_it() -> None:
    async with world(settings=ONE) as here:
        await cancelled(here, here.hub.open(opening("gone")))
        (row,) = await here.log.sessions()
        assert row.state == "closed"
        last = (await here.events(row.session))[-1]
        assert isinstance(last, SessionClosed)
        assert last.reason == "open_abandoned"
        await here.hub.open(opening("gone"))


@rule("B12", "B17")
async def test_an_open_cancelled_in_its_preparation_frees_the_slot_and_writes_nothing() -> None:
    async with world(settings=ONE) as here:
        here.log.acquiring = anyio.Event()
        await cancelled(here, here.hub.open(opening("gone")))
        here.log.acquiring.set()
        await here.hub.open(opening("next"))
        assert len(await here.log.sessions()) == 1


@rule("C14", "D25", "D31")
async def test_an_abandoned_resume_is_decided_and_then_detached_by_its_generation() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        await cancelled(here, here.hub.resume(resumption(attachment)))
        events = await here.events(attachment.session)
        assert [type(event) for event in events[1:]] == [SessionResumed, SessionDetached]
        assert attachment.ended == "replaced"
        # The client never heard: the token it presented still works (DESIGN 5.6).
        again = await here.hub.resume(resumption(attachment, "other"))
        assert (again.generation, again.lease) == (3, 2)


@rule("D32")
async def test_a_cancelled_detach_changes_nothing_but_the_waiting() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        await cancelled(here, attachment.detach())
        assert [type(event) for event in (await here.events(attachment.session))[1:]] == [SessionDetached]


@rule("B13")
async def test_an_answer_that_comes_in_the_same_moment_as_the_cancelling_is_not_lost() -> None:
    async with world(settings=ONE) as here:
        here.log.holding = True
        async with anyio.create_task_group() as group:
            group.start_soon(here.hub.open, opening("gone"))
            await settle()
            here.log.release()
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        await settle()
        assert here.hub.statistics().admitted == 0 or here.hub.statistics().attached == 1


# -- resuming ------------------------------------------------------------------------------------------------


@rule("D23", "D24", "P52", "P43")
async def test_a_resume_moves_lease_attachment_and_token_in_one_event_and_ends_the_old_connection() -> None:
    async with world() as here:
        old = await here.hub.open(opening())
        new = await here.hub.resume(resumption(old))
        (resumed,) = new.entry.transaction.events
        assert isinstance(resumed, SessionResumed)
        assert (new.generation, new.lease) == (resumed.attachment, resumed.generation) == (2, 1)
        assert new.token != old.token
        assert (old.current, old.ended, new.current) == (False, "replaced", True)
        with old.cursor() as cursor:
            seen = [type(entry.transaction.events[0]) async for entry in cursor]
        assert seen == [SessionOpened, SessionResumed], "the old one is told, and then ends"
        assert cursor.end == "replaced"
        old.send(Heartbeat(attachment=old.generation))
        await old.detach()
        new.send(Heartbeat(attachment=new.generation))
        await settle()
        events = await here.events(old.session)
        assert sum(isinstance(event, SessionTouched) for event in events) == 1
        assert not any(isinstance(event, SessionDetached) for event in events)


@rule("D22")
async def test_the_checks_of_a_resume_answer_in_their_order() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        ga = await here.hub.open(Opening(dialect="ga", control_id="ga"))
        for _ in range(5):
            attachment.send(Heartbeat(attachment=1))
        await settle()
        attachment.acknowledge(3)
        unknown = Resumption(session="duplex-0", token="x", control_id="r")
        assert await code_of(here.hub.resume(unknown)) == "session_resume_expired"
        not_able = Resumption(session=ga.session, token="x", control_id="r")
        assert await code_of(here.hub.resume(not_able)) == "session_resume_expired"
        wrong = Resumption(session=attachment.session, token="x", control_id="r", last_number=1)
        assert await code_of(here.hub.resume(wrong)) == "invalid_resume_token"
        with pytest.raises(Resync, match="journal_gap"):
            await here.hub.resume(resumption(attachment, "gap", last_number=2))
        assert await code_of(here.hub.resume(resumption(attachment, "r", 6))) == "session_resume_conflict"
        assert attachment.current, "a failed attempt changes nothing"
        assert await here.commands(attachment.session, ResumeSession) == []
        await here.hub.resume(resumption(attachment, "good", last_number=3))


@rule("C11", "D33.10")
async def test_a_lost_answer_of_a_resume_is_given_again_and_changes_nothing() -> None:
    async with world() as here:
        old = await here.hub.open(opening())
        first = await here.hub.resume(resumption(old, "same"))
        again = await here.hub.resume(resumption(old, "same"))
        assert (again.generation, again.token, again.entry.seq) == (2, first.token, first.entry.seq)
        assert len(await here.commands(old.session, ResumeSession)) == 1
        await here.hub.resume(resumption(first, "newer"))
        assert await code_of(here.hub.resume(resumption(old, "same"))) == "session_resume_conflict"


@rule("D33.9", "D33")
async def test_two_resumes_at_once_have_one_winner_and_a_loser_with_an_error() -> None:
    async with world() as here, anyio.create_task_group() as group:
        old = await here.hub.open(opening())
        answers: list[str] = []

        async def go(control_id: str) -> None:
            try:
                attachment = await here.hub.resume(resumption(old, control_id))
                attachment.heard()
                answers.append("won")
            except Refused as refused:
                answers.append(refused.code)

        group.start_soon(go, "a")
        await settle()
        group.start_soon(go, "b")
        await settle()
        assert answers == ["won", "invalid_resume_token"]


@rule("C4", "D31", "D33.12")
async def test_a_stale_detach_does_not_touch_the_winner() -> None:
    async with world() as here:
        old = await here.hub.open(opening())
        new = await here.hub.resume(resumption(old))
        live = here.hub._live[old.session]  # pyright: ignore[reportPrivateUsage]
        live.runner.post(Detach(generation=old.lease))
        await settle()
        assert new.current
        assert await here.commands(old.session, Detach) == []


@rule("D25", "P51")
async def test_a_client_that_is_never_heard_is_withdrawn_and_its_old_token_works() -> None:
    async with world() as here:
        old = await here.hub.open(opening())
        deaf = await here.hub.resume(resumption(old))
        await here.advance(10_001)
        assert isinstance((await here.events(old.session))[-1], AttachmentWithdrawn)
        assert deaf.ended == "detached"
        with deaf.cursor() as cursor:
            assert [entry.seq async for entry in cursor][-1] == len(await here.recorded(old.session))
        assert cursor.end == "withdrawn"
        assert (await here.hub.resume(resumption(old, "again"))).generation == 3
        heard = await here.hub.resume(resumption(old, "once more"))
        heard.heard()
        heard.heard()
        await here.advance(10_001)
        assert heard.current
        confirmed = [event for event in await here.events(old.session) if isinstance(event, AttachmentConfirmed)]
        assert len(confirmed) == 1


@rule("D23")
async def test_what_was_missed_is_replayed_up_to_the_attaching() -> None:
    async with world() as here:
        old = await here.hub.open(opening())
        for _ in range(4):
            old.send(Heartbeat(attachment=1))
        await settle()
        await old.detach()
        new = await here.hub.resume(resumption(old, last_number=2))
        new.send(Heartbeat(attachment=2))
        await settle()
        missed = [event for entry in [e async for e in new.replay()] for event in entry.transaction.events]
        assert [event.number for event in missed if isinstance(event, SessionTouched)] == [3, 4]
        with new.cursor() as cursor:
            assert [type((await anext(cursor)).transaction.events[0]) for _ in range(3)] == [
                SessionResumed,
                AttachmentConfirmed,
                SessionTouched,
            ]


@rule("D15")
async def test_an_acknowledgement_beyond_the_head_is_refused() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        with pytest.raises(Refused, match="invalid_event_ack"):
            attachment.acknowledge(1)


async def test_refusals_of_the_edge_are_limited_for_each_connection() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        for _ in range(2 * REFUSALS_BURST):
            attachment.report(ReportRefusal(attachment=1, code="bad_event", message="no"))
        await settle()
        assert len(await here.commands(attachment.session, ReportRefusal)) == REFUSALS_BURST
        here.clock.advance(100_000)
        for _ in range(20):
            attachment.report(ReportRefusal(attachment=1, code="bad_event", message="no"))
        await settle()
        assert len(await here.commands(attachment.session, ReportRefusal)) == REFUSALS_BURST + 5


@rule("D14")
async def test_a_slow_consumer_is_detached_by_its_generation() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        with attachment.cursor() as cursor:
            await anext(cursor)
            feed = attachment.feed
            feed.total += 17 * 1024 * 1024
            attachment.send(Heartbeat(attachment=1))
            await settle()
            assert attachment.ended == "slow_consumer"
            assert await attachment.wait_ended() == "slow_consumer"
            assert cursor.end == "slow_consumer"
        detached = [event for event in await here.events(attachment.session) if isinstance(event, SessionDetached)]
        assert [event.reason for event in detached] == ["slow_consumer"]


async def test_how_far_a_reader_may_be_behind_is_a_setting() -> None:
    async with world(settings=HubSettings(slow_bytes=4_000, slow_ms=1_000, shutdown_ms=200)) as here:
        attachment = await here.hub.open(opening())
        with attachment.cursor() as cursor:
            await anext(cursor)
            for _ in range(9):
                attachment.send(Heartbeat(attachment=1))
            await settle()
            assert attachment.ended == "slow_consumer"
            assert cursor.end == "slow_consumer"


# -- crashes -------------------------------------------------------------------------------------------------


@rule("P57")
async def test_a_crash_of_one_session_ends_that_session_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as here:
        one = await here.hub.open(opening("one"))
        two = await here.hub.open(opening("two"))
        evolve = core.evolve

        def poisoned(session: core.Session, event: object, at: int) -> None:
            if isinstance(event, SessionTouched) and session.id == one.session:
                raise RuntimeError("a fault of ours")
            evolve(session, event, at)  # type: ignore[arg-type]

        monkeypatch.setattr(core, "evolve", poisoned)
        one.send(Heartbeat(attachment=1))
        two.send(Heartbeat(attachment=1))
        await settle()
        assert one.ended == "failed"
        with one.cursor() as cursor:
            await anext(cursor)
            with pytest.raises(Refused, match="internal_error"):
                await anext(cursor)
        assert two.current
        assert isinstance((await here.events(two.session))[-1], SessionTouched)
        last = (await here.events(one.session))[-1]
        assert isinstance(last, SessionClosed)
        statistics = here.hub.statistics()
        assert (statistics.crashed, statistics.admitted) == (1, 1)


async def test_a_session_that_is_lost_counts_for_its_key() -> None:
    log = MoodyLog()
    async with world(log=log) as here:
        one = await here.hub.open(opening("one", owner="key_1", sessions=1))
        log.broken = Unavailable("the disk is gone")
        one.send(Heartbeat(attachment=1))
        await settle()
        assert one.ended == "failed"
        log.broken = None
        assert here.hub.session(one.session) is None
        assert await code_of(here.hub.open(opening("two", owner="key_1", sessions=1))) == "resource_exhausted"
        await here.hub.open(opening("three", owner="key_2", sessions=1))


class SlowlyTakenOver(MoodyLog):
    """It takes a while to become the writer of a session that there was before."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = ""
        self.go = anyio.Event()

    async def acquire(self, session: str) -> int:
        if session == self.slow:
            await self.go.wait()
        return await super().acquire(session)


async def test_behind_a_restart_no_key_gets_more_sessions_than_it_may_have() -> None:
    """While nobody knows whose a session is, it may be anybody's: who could be beyond the bound with it waits."""
    clock, log = VirtualClock(), SlowlyTakenOver()
    async with killed(ScriptedStage(clock), log, clock) as hub:
        log.slow = (await hub.open(opening("one", owner="key_1", sessions=1))).session
    answered: dict[str, str] = {}

    async def ask_for(key: str, sessions: int) -> None:
        try:
            await here.hub.open(opening(key, owner=key, sessions=sessions))
        except Refused as refused:
            answered[key] = refused.code
        else:
            answered[key] = "opened"

    async with world(log=log, clock=clock) as here, anyio.create_task_group() as group:
        for key, sessions in (("key_1", 1), ("key_2", 1), ("key_3", 2)):
            group.start_soon(ask_for, key, sessions)
        await settle()
        assert answered == {"key_3": "opened"}
        log.go.set()
        await settle()
        assert answered == {"key_1": "resource_exhausted", "key_2": "opened", "key_3": "opened"}


# -- the end -------------------------------------------------------------------------------------------------


@rule("M15")
async def test_a_shutdown_detaches_resumable_sessions_and_closes_the_others() -> None:
    async with world() as here:
        duplex = await here.hub.open(opening())
        ga = await here.hub.open(Opening(dialect="ga", control_id="ga"))
        ask(ga)
        await here.hub.shutdown()
        assert await code_of(here.hub.open(opening("late"))) == "going_away"
        assert await code_of(here.hub.resume(resumption(duplex))) == "going_away"
        (detached,) = [event for event in await here.events(duplex.session) if isinstance(event, SessionDetached)]
        assert detached.reason == "shutdown"
        last = (await here.events(ga.session))[-1]
        assert isinstance(last, SessionClosed)
        assert last.reason == "shutdown"
        states = {row.session: row.state for row in await here.log.sessions()}
        assert states == {duplex.session: "open", ga.session: "closed"}
        with duplex.cursor() as cursor:
            assert [type(entry.transaction.events[0]) async for entry in cursor] == [SessionOpened, SessionDetached]


@rule("M15")
async def test_a_shutdown_does_not_wait_for_ever_for_a_stage() -> None:
    stage = ScriptedStage(default=(Deaf(), Hang()))
    async with world(stage, settings=HubSettings(shutdown_ms=50)) as here:
        ga = await here.hub.open(Opening(dialect="ga", control_id="ga"))
        ask(ga)
        await settle()
    assert [row.state for row in await here.log.sessions()] == ["open"]


class Gated(EchoStage):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[AnyMessage] = []

    def handle(self, message: AnyMessage) -> None:
        self.messages.append(message)
        super().handle(message)


async def test_a_hub_with_a_thread_host_serves_the_same() -> None:
    stage = Gated()
    async with world(stage, host=ThreadHost(stage)) as here:
        attachment = await here.hub.open(opening())
        attachment.append(AppendRequest(data=b"\x00\x20" * 1_600, speech=True))
        ask(attachment)
        with attachment.cursor() as cursor, anyio.fail_after(20):
            async for entry in cursor:
                if any(isinstance(event, ResponseEnded) for event in entry.transaction.events):
                    break
        assert not any(isinstance(event, ErrorReported) for event in await here.events(attachment.session))
