"""Slots: what counts against `max_sessions`, whatever stages, callers and the store do."""

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.attachment import Attachment
from antiphon.engine.errors import Refused
from antiphon.engine.opening import Opening
from antiphon.engine.settings import HubSettings
from antiphon.events.commands import CancelResponse, CloseSession, Heartbeat, StageAbortFailed
from antiphon.events.events import (
    CleanupRetried,
    ErrorReported,
    RequestReleased,
    SessionClosed,
    SessionTouched,
)
from antiphon.sessions import core
from antiphon.stages.scripted import ANSWER, Cue, Deaf, Hang, Say, Script, ScriptedStage, Stuck

from .worlds import World, ask, opening, settle, world
from tests.rules import rule

ONE = HubSettings(max_sessions=1, shutdown_ms=200)
LIMIT = 3

in_time = pytest.mark.anyio


def close(attachment: Attachment) -> None:
    attachment.send(CloseSession(control_id="c", attachment=attachment.generation))


async def refusal(here: World) -> Refused:
    with pytest.raises(Refused) as refused:
        await here.hub.open(opening("refused"))
    return refused.value


@in_time
@rule("B2", "M6", "M12", "M13", "Q4.25")
async def test_a_failed_clean_up_holds_the_slot_behind_the_terminal_and_is_asked_again() -> None:
    stage = ScriptedStage(default=(Stuck(), Hang()))
    async with world(stage, settings=ONE) as here:
        attachment = await here.hub.open(opening("one"))
        ask(attachment)
        await settle()
        close(attachment)
        await settle()
        assert attachment.ended == "closed", "after the first attempt (M4)"
        assert isinstance((await here.events(attachment.session))[-1], SessionClosed)
        told = await refusal(here)
        assert (told.code, told.retryable) == ("resource_exhausted", True)
        assert here.hub.statistics().uncleaned == 1
        await here.advance(5_000)
        await here.advance(10_000)
        events = await here.events(attachment.session)
        assert sum(isinstance(event, CleanupRetried) for event in events) == 2
        assert here.hub.statistics().admitted == 1
        stage.let_go()
        await here.advance(19_000)
        assert here.hub.statistics().admitted == 1, "nobody has said so yet"
        await here.advance(1_000)
        assert (here.hub.statistics().admitted, here.hub.statistics().uncleaned) == (0, 0)
        await here.hub.open(opening("two"))


@in_time
@rule("K22", "M12")
async def test_an_abort_that_fails_during_an_interruption_is_told_and_asked_again() -> None:
    stage = ScriptedStage(scripts={0: (Stuck(), Say("I go on", 80), Hang())})
    async with world(stage) as here:
        attachment = await here.hub.open(opening())
        ask(attachment)
        await settle()
        (running,) = stage.live
        cancel(attachment)
        await settle()
        events = await here.events(attachment.session)
        assert [event.code for event in events if isinstance(event, ErrorReported)] == ["runtime_abort_failed"]
        assert stage.live == [running]
        stage.let_go()
        await here.advance(5_000)
        assert stage.live == []
        assert isinstance((await here.events(attachment.session))[-1], RequestReleased)
        ask(attachment)
        await settle()
        assert attachment.current


def cancel(attachment: Attachment) -> None:
    attachment.send(CancelResponse(attachment=attachment.generation))


@in_time
@rule("B2", "M13", "Q4.25")
@pytest.mark.parametrize("script", [(Deaf(), Hang()), (Stuck(), Hang())], ids=["deaf", "stuck"])
async def test_a_crashed_session_holds_its_slot_until_its_stage_has_let_go(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner that crashed hands its clean-up over; the session is closed by name, and freed once."""
    stage = ScriptedStage(default=script)
    async with world(stage, settings=ONE) as here:
        attachment = await here.hub.open(opening("one"))
        ask(attachment)
        await settle()
        evolve = core.evolve

        def poisoned(session: core.Session, event: object, at: int) -> None:
            if isinstance(event, SessionTouched):
                raise RuntimeError("a fault of ours")
            evolve(session, event, at)  # type: ignore[arg-type]

        monkeypatch.setattr(core, "evolve", poisoned)
        attachment.send(Heartbeat(attachment=1))
        await settle()
        await here.advance(2_000)
        closed = [event for event in await here.events(attachment.session) if isinstance(event, SessionClosed)]
        assert [event.reason for event in closed] == ["internal_error"]
        assert (await refusal(here)).code == "resource_exhausted"
        assert stage.live
        stage.let_go()
        await settle()
        for _ in range(4):
            await here.advance(10_000)
        assert stage.live == []
        assert here.hub.statistics().admitted == 0
        await here.hub.open(opening("two"))


@in_time
@rule("B2", "M13", "M12")
async def test_what_a_closed_session_leaves_behind_when_its_runner_crashes_holds_its_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody takes over a session that has ended; its clean-up goes on without it."""
    stage = ScriptedStage(default=(Stuck(), Hang()))
    async with world(stage, settings=ONE) as here:
        attachment = await here.hub.open(opening("one"))
        ask(attachment)
        await settle()
        close(attachment)
        await settle()
        evolve = core.evolve

        def poisoned(session: core.Session, event: object, at: int) -> None:
            if isinstance(event, CleanupRetried):
                raise RuntimeError("a fault of ours")
            evolve(session, event, at)  # type: ignore[arg-type]

        monkeypatch.setattr(core, "evolve", poisoned)
        await here.advance(5_000)
        statistics = here.hub.statistics()
        assert (statistics.crashed, statistics.live) == (1, 0)
        assert (statistics.admitted, statistics.uncleaned) == (1, 1)
        assert (await refusal(here)).code == "resource_exhausted"
        stage.let_go()
        await here.advance(5_000)
        assert here.hub.statistics().admitted == 0
        await here.hub.open(opening("two"))


@in_time
@rule("K11", "B28")
async def test_what_a_stage_says_of_nobodys_request_reaches_nobody() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        before = await here.recorded(attachment.session)
        roster = here.hub._roster  # pyright: ignore[reportPrivateUsage]
        for name in ("duplex-gone.e0", "batch-1", attachment.session + ".e7.turn9"):
            roster.on_report(StageAbortFailed(request=name), b"")
        await settle()
        assert await here.recorded(attachment.session) == before
        assert here.hub.statistics().admitted == 1


# -- P53: any interleaving -----------------------------------------------------------------------------------

SCRIPTS: tuple[Script, ...] = (
    ANSWER,
    (Say("Well", 80), Hang()),
    (Deaf(), Hang()),
    (Stuck(), Hang()),
    (Stuck(), Say("Well", 80), Cue("go"), *ANSWER),
)

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["open", "open ga", "open in vain", "visit", "visit", "let go", "go"]), st.just(0)
        ),
        st.tuples(st.sampled_from(["ask", "ask", "close", "drop", "cancel"]), st.integers(0, 5)),
        st.tuples(st.just("wait"), st.sampled_from([1_000, 5_000, 40_000])),
    ),
    max_size=14,
)


class Slots:
    """A hub, its sessions, and what must be counted."""

    def __init__(self, here: World) -> None:
        self.here = here
        self.attachments: list[Attachment] = []

    async def step(self, what: str, how: int) -> None:
        chosen = self.attachments[how % len(self.attachments)] if self.attachments else None
        if what.startswith("open"):
            await self.open(what)
        elif what == "visit":
            await self.visit()
        elif what == "wait":
            await self.here.advance(how)
        elif what == "let go":
            self.here.scripted.let_go()
        elif what == "go":
            self.here.scripted.cue("go")
        elif chosen is not None:
            await self.use(chosen, what)
        await settle()
        await self.check(what)

    async def open(self, what: str) -> None:
        before = self.here.hub.statistics().admitted
        control_id = f"open-{len(self.attachments)}-{before}"
        asked = Opening(dialect="ga" if what == "open ga" else "duplex", control_id=control_id)
        if what == "open in vain":
            await self.give_up(asked)
            await settle()
            assert self.here.hub.statistics().admitted == before, "P53: an open that did not succeed"
            return
        if before == LIMIT:
            assert (await refusal(self.here)).code == "resource_exhausted"
        else:
            self.attachments.append(await self.here.hub.open(asked))

    async def visit(self) -> None:
        """Open a session, ask, and leave while it is answered."""
        known = len(self.attachments)
        await self.open("open")
        for attachment in self.attachments[known:]:
            ask(attachment)
            await settle()
            close(attachment)

    async def give_up(self, asked: Opening) -> None:
        async def go() -> None:
            try:
                await self.here.hub.open(asked)
            except Refused:
                return

        self.here.log.holding = True
        async with anyio.create_task_group() as group:
            group.start_soon(go)
            await settle()
            group.cancel_scope.cancel()
        self.here.log.release()

    async def use(self, attachment: Attachment, what: str) -> None:
        if what == "ask":
            ask(attachment)
        elif what == "close":
            close(attachment)
        elif what == "drop":
            await attachment.detach()
        else:
            cancel(attachment)

    async def check(self, what: str) -> None:
        """Live, closing or held by a stage: nothing else counts, and all of these do."""
        held = {request.partition(".e")[0] for request in self.here.scripted.live}
        unfinished = {row.session for row in await self.here.log.sessions("open")}
        admitted = self.here.hub.statistics().admitted
        assert admitted == len(held | unfinished), what
        assert admitted <= LIMIT, what

    async def come_to_rest(self) -> None:
        """Everybody leaves, and the stages let go at last: the count returns to nothing."""
        for attachment in self.attachments:
            close(attachment)
        self.here.scripted.let_go()
        self.here.scripted.cue("go")
        for _ in range(4):
            self.here.scripted.let_go()
            await self.here.advance(70_000)
        assert self.here.hub.statistics().admitted == 0
        assert self.here.hub.statistics().uncleaned == 0
        assert self.here.scripted.live == []


@rule("P53", "P13", "B2", "B3", "M6")
@settings(max_examples=40)
@given(steps=STEPS, scripts=st.lists(st.sampled_from(SCRIPTS), min_size=5, max_size=6))
def test_the_count_is_what_is_live_closing_or_unclean(steps: list[tuple[str, int]], scripts: list[Script]) -> None:
    async def run() -> None:
        stage = ScriptedStage(scripts=dict(enumerate(scripts)))
        async with world(stage, settings=HubSettings(max_sessions=LIMIT, shutdown_ms=200)) as here:
            slots = Slots(here)
            for what, how in steps:
                await slots.step(what, how)
            await slots.come_to_rest()

    anyio.run(run)
