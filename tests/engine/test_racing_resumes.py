"""Resumes that race with one another and with everything else: the fourteen rows of BEHAVIOURS D33, and D10-D34.

A resume is one event here: lease, attachment and token change together, or nothing does. So nothing can be landed
and not yet activated, and the rows that ask who owns such a generation end in fewer ways; their scenes are played
all the same. `gN` is the lease generation, `aN` the attachment.
"""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import TaskGroup

from antiphon.engine.attachment import Attachment
from antiphon.engine.errors import Refused
from antiphon.engine.opening import Resumption
from antiphon.engine.runner import RUN_AHEAD
from antiphon.engine.settings import HubSettings
from antiphon.engine.tokens import digest
from antiphon.events.commands import Detach, Heartbeat, ResumeSession
from antiphon.events.events import (
    AttachmentWithdrawn,
    SessionClosed,
    SessionDetached,
    SessionResumed,
    SessionTouched,
)
from antiphon.events.log import Unavailable
from antiphon.sessions import core

from .links import Link
from .worlds import World, code_of, opening, resumption, settle, world
from tests.rules import rule

pytestmark = pytest.mark.anyio


def beat(attachment: Attachment, times: int = 1) -> None:
    for _ in range(times):
        attachment.send(Heartbeat(attachment=attachment.generation))


class Scene:
    """A session whose first connection A serves it at (a1, g0)."""

    def __init__(self, here: World, group: TaskGroup, first: Attachment) -> None:
        self.here = here
        self.group = group
        self.first = first

    @property
    def state(self) -> core.Session:
        found = self.here.hub.session(self.first.session)
        assert found is not None
        return found

    def link(self, attachment: Attachment, *, held: bool = False) -> Link:
        return Link(attachment, held).start(self.group)

    async def resume(self, token_of: Attachment, control_id: str, last: int = 0) -> Attachment:
        return await self.here.hub.resume(resumption(token_of, control_id, last))

    async def in_flight(self, token_of: Attachment, control_id: str, last: int = 0) -> "Flight":
        """Ask for a resume and let it be decided, with its answer still on the way."""
        self.here.log.holding = True
        flight = Flight()
        self.group.start_soon(flight.run, self.resume(token_of, control_id, last))
        await settle()
        return flight

    async def land(self) -> None:
        """Let all answers arrive."""
        self.here.log.release()
        await settle()

    async def detached(self) -> list[int]:
        """The generations that were given up, as the log has it."""
        events = await self.here.events(self.first.session)
        return [event.generation for event in events if isinstance(event, SessionDetached)]

    async def refused(self, generation: int) -> bool:
        live = self.here.hub._live[self.first.session]  # pyright: ignore[reportPrivateUsage]
        before = core.dump(self.state)
        outcome = await live.ask(Detach(generation=generation))
        assert core.dump(self.state) == before
        return isinstance(outcome.error, Refused) and outcome.error.code == "session_resume_conflict"

    @property
    def in_grace(self) -> bool:
        lease = self.state.lease
        return self.state.phase == "open" and not lease.attached and lease.expires_at is not None


class Flight:
    """A resume that is on its way."""

    def __init__(self) -> None:
        self.attachment: Attachment | None = None
        self.code: str | None = None
        self._scope = anyio.CancelScope()

    async def run(self, request: Awaitable[Attachment]) -> None:
        with self._scope:
            try:
                self.attachment = await request
            except Refused as refused:
                self.code = refused.code

    async def cancel(self) -> None:
        self._scope.cancel()
        await settle()

    @property
    def granted(self) -> Attachment:
        assert self.attachment is not None, self.code
        return self.attachment


@asynccontextmanager
async def scene(settings: HubSettings | None = None) -> AsyncIterator[Scene]:
    async with (
        world(settings=settings or HubSettings(shutdown_ms=200)) as here,
        anyio.create_task_group() as group,
    ):
        try:
            yield Scene(here, group, await here.hub.open(opening()))
        finally:
            here.log.release()
            here.log.broken = None
            group.cancel_scope.cancel()


# -- the fourteen rows ---------------------------------------------------------------------------------------


@rule("D33.1", "D30", "P44", "P51")
async def test_row_1_a_detached_session_is_resumed_for_somebody_who_is_cancelled() -> None:
    async with scene() as play:
        await play.first.detach()
        b = await play.in_flight(play.first, "b")
        await b.cancel()
        await play.land()
        assert await play.detached() == [0, 1], "detach(g1) was accepted"
        assert play.in_grace
        assert (await play.resume(play.first, "again")).current, "the token that B presented still resumes"


@rule("D33.2", "D24", "D25", "D30")
async def test_row_2_b_takes_over_and_is_cancelled_while_a_is_being_told() -> None:
    async with scene() as play:
        a = play.link(play.first)
        await settle()
        a.held = True
        b = play.link(await play.resume(play.first, "b"))
        await b.cancel()
        assert await play.detached() == [1]
        assert play.in_grace
        a.go()
        await settle()
        assert (a.ended, a.words) == ("replaced", ["SessionOpened", "replaced"]), "A stays replaced"
        assert await play.detached() == [1]
        assert (await play.resume(play.first, "again")).current


@rule("D33.3", "D31", "P46")
async def test_row_3_a_is_cancelled_while_a_newer_resume_with_its_token_is_on_its_way() -> None:
    async with scene() as play:
        a = play.link(await play.resume(play.first, "a"))
        await settle()
        b = await play.in_flight(a.attachment, "b")
        await a.cancel()
        assert a.attachment.ended == "detached"
        await play.land()
        assert await play.detached() == [], "detach(g1) was refused"
        assert (b.granted.generation, b.granted.lease, b.granted.current) == (3, 2, True)
        await b.granted.detach()
        assert await play.detached() == [2]


@rule("D33.4", "D27", "C14")
async def test_row_4_b_is_cancelled_before_its_turn_and_a_keeps_serving() -> None:
    """The turn of a resume is where it lands and activates; before that there is nothing to give back."""
    async with scene() as play:
        a = play.link(play.first)
        await settle()
        play.here.log.holding = True
        beat(play.first, RUN_AHEAD + 1)
        await settle()
        b = await play.in_flight(play.first, "b")
        await b.cancel()
        await play.land()
        await settle()
        assert await play.here.commands(play.first.session, ResumeSession) == []
        assert play.first.current
        assert len(a.numbers) == RUN_AHEAD + 1, "A keeps receiving"
        await a.fail()
        assert await play.detached() == [0]


@rule("D33.4", "D30")
async def test_row_4_b_is_cancelled_after_its_turn_and_a_is_replaced_like_in_row_2() -> None:
    async with scene() as play:
        a = play.link(play.first)
        await settle()
        b = await play.in_flight(play.first, "b")
        await b.cancel()
        await play.land()
        assert (a.ended, await play.detached(), play.in_grace) == ("replaced", [1], True)


@rule("D33.5", "D14", "D31", "P46")
async def test_row_5_the_send_to_a_fails_while_b_has_landed() -> None:
    async with scene() as play:
        a = play.link(play.first)
        await settle()
        a.held = True
        beat(play.first)
        await settle()
        b = await play.in_flight(play.first, "b")
        await a.fail()
        await play.land()
        assert await play.detached() == [], "detach(g0) was refused"
        assert await play.refused(0)
        assert (b.granted.generation, b.granted.lease, b.granted.current) == (2, 1, True)
        await b.granted.detach()
        assert await play.detached() == [1]


@rule("D14", "D31", "P46")
async def test_a_reader_that_is_too_slow_takes_nothing_from_the_one_that_has_landed() -> None:
    async with scene() as play:
        a = play.first
        with a.cursor() as cursor:
            await anext(cursor)
            play.here.log.holding = True
            beat(a)
            await settle()
            b = await play.in_flight(a, "b")
            a.feed.total += 17 * 1024 * 1024
            play.here.log.release(1)
            await settle()
            assert (a.ended, cursor.end) == ("slow_consumer", "slow_consumer")
            await play.land()
        assert await play.detached() == [], "detach(g0) was refused"
        assert (b.granted.lease, b.granted.current) == (1, True)


@rule("D33.6", "D30", "D34")
async def test_row_6_as_5_and_c_takes_the_same_token_and_is_cancelled() -> None:
    """C's turn came last, so what it took is given up; B hears that it was replaced, and its token is good."""
    async with scene() as play:
        a = play.link(play.first)
        await settle()
        a.held = True
        b = await play.in_flight(play.first, "b")
        c = await play.in_flight(play.first, "c")
        await c.cancel()
        await a.fail()
        await play.land()
        assert await play.detached() == [2], "neither g0 nor g1"
        assert play.in_grace
        assert (b.granted.lease, b.granted.ended) == (1, "replaced")
        again = await play.resume(play.first, "again")
        assert (again.generation, again.lease, again.current) == (4, 3, True)


@rule("D33.7", "D30", "D32")
async def test_row_7_a_is_cancelled_in_its_replay_after_b_took_its_token_and_was_cancelled() -> None:
    async with scene() as play:
        beat(play.first, 5)
        await settle()
        a = play.link(await play.resume(play.first, "a", 1))
        await settle(3)
        a.held = True
        await settle()
        b = await play.in_flight(a.attachment, "b", 1)
        await b.cancel()
        await play.land()
        await a.cancel()
        assert await play.detached() == [2], "exactly g2; g1 never"
        assert play.in_grace


@rule("D33.7", "D30", "D31")
async def test_row_7_what_b_gives_up_is_its_own_and_not_what_c_took_since() -> None:
    async with scene() as play:
        b = await play.in_flight(play.first, "b")
        await b.cancel()
        c = await play.in_flight(play.first, "c")
        await play.land()
        assert await play.detached() == [], "detach(g1) was refused"
        assert (c.granted.lease, c.granted.current) == (2, True)


@rule("D33.8", "C9")
async def test_row_8_b_has_lost_the_comparison() -> None:
    async with scene() as play:
        winner = await play.resume(play.first, "winner")
        live = play.here.hub._live[play.first.session]  # pyright: ignore[reportPrivateUsage]
        before = core.dump(play.state)
        late = ResumeSession(
            control_id="b", presented=digest(winner.token or ""), next_digest="x", expected_generation=0
        )
        outcome = await live.ask(late)
        assert isinstance(outcome.error, Refused)
        assert outcome.error.code == "runtime_resume_failed"
        assert core.dump(play.state) == before
        assert winner.current
        assert (await play.resume(winner, "next")).current, "the token is what it was"


@rule("D33.9", "D34", "D22", "P51")
async def test_row_9_two_resumes_with_one_token_and_the_first_was_heard() -> None:
    async with scene() as play:
        a = play.link(await play.resume(play.first, "a"))
        a.attachment.heard()
        b = await play.in_flight(play.first, "b")
        await play.land()
        assert b.code == "invalid_resume_token", "one error for the loser; the winner has rotated the token"
        assert a.attachment.current
        assert play.state.lease.generation == 1, "what the loser asked for never was"


@rule("D33.9", "D34", "D26")
async def test_row_9_two_resumes_with_one_token_and_the_first_was_not_heard() -> None:
    """Nobody knows whether the first answer arrived, so the token is still good: the later one is served."""
    async with scene() as play:
        first = await play.in_flight(play.first, "a")
        second = await play.in_flight(play.first, "b")
        await play.land()
        assert (first.granted.ended, second.granted.current) == ("replaced", True)
        assert play.state.lease.generation == second.granted.lease == 2
        second.granted.heard()
        await settle()
        assert await code_of(play.resume(play.first, "late")) == "invalid_resume_token"


@rule("D33.10", "C14", "P45")
async def test_row_10_a_lost_answer_is_replayed_late() -> None:
    async with scene() as play:
        b = await play.in_flight(play.first, "one id")
        await b.cancel()
        replays = [await play.in_flight(play.first, "one id") for _ in range(3)]
        await play.land()
        assert {flight.granted.lease for flight in replays} == {1}, "one bump, and all know it"
        assert await play.detached() == [1], "settled once"


@rule("D33.11", "C18", "C13")
@pytest.mark.parametrize("first", ["expiry", "close", "resume"])
async def test_row_11_a_resume_races_with_expiry_and_close(first: str) -> None:
    async with scene() as play:
        if first == "close":
            play.group.start_soon(play.here.hub.close, play.first.session, "c")
            await anyio.lowlevel.checkpoint()
        else:
            await play.first.detach()
            play.here.clock.advance(30_000_000 - (first == "resume"))
        b = Flight()
        play.group.start_soon(b.run, play.resume(play.first, "b"))
        if first == "resume":
            await anyio.lowlevel.checkpoint()
            play.here.clock.advance(1)
        await settle()
        ends = [event for event in await play.here.events(play.first.session) if isinstance(event, SessionClosed)]
        if first == "resume":
            assert (b.granted.current, ends) == (True, [])
        else:
            assert (b.code, len(ends)) == ("session_resume_expired", 1)
            assert await play.here.commands(play.first.session, ResumeSession) == []


@rule("D33.12", "D31", "C4")
async def test_row_12_b_resumes_before_the_disconnect_of_a_is_handled() -> None:
    async with scene() as play:
        b = await play.in_flight(play.first, "b")
        play.group.start_soon(play.first.detach)
        await settle()
        await play.land()
        assert await play.detached() == []
        assert b.granted.current
        assert play.state.lease.expires_at is None


@rule("D33.13", "D24", "P52")
async def test_row_13_a_half_open_socket_goes_on_sending() -> None:
    async with scene() as play:
        a = play.link(play.first)
        b = await play.in_flight(play.first, "b")
        beat(play.first, 3)  # behind the takeover in the log, although nobody was told of it yet
        await settle()
        await play.land()
        beat(play.first, 3)
        await settle()
        assert b.granted.current
        events = await play.here.events(play.first.session)
        assert not any(isinstance(event, SessionTouched) for event in events)
        assert (a.ended, a.words) == ("replaced", ["SessionOpened", "replaced"])
        assert isinstance(a.sent[-1], SessionResumed), "and nothing is sent to it behind that"


@rule("D33.14", "C17", "P47")
async def test_row_14_a_client_that_never_reads_is_withdrawn_and_the_session_expires_in_its_grace() -> None:
    async with scene() as play:
        b = play.link(await play.resume(play.first, "b"), held=True)
        await play.here.advance(10_000)
        assert b.attachment.ended == "detached"
        assert play.in_grace
        await play.here.advance(30_000)
        last = (await play.here.events(play.first.session))[-1]
        assert isinstance(last, SessionClosed)
        assert last.reason == "disconnect_grace_expired"


@rule("D33.14", "D14")
async def test_row_14_the_write_fails_at_last() -> None:
    async with scene() as play:
        b = play.link(await play.resume(play.first, "b"), held=True)
        b.attachment.heard()
        await settle()
        await b.fail()
        assert (await play.detached(), play.in_grace) == ([1], True)


# -- what each may rely on -----------------------------------------------------------------------------------


@rule("D34", "D23", "D10", "D29")
async def test_the_winner_hears_what_it_missed_then_what_comes_and_nothing_twice() -> None:
    async with scene() as play:
        a = play.link(play.first)
        beat(play.first, 4)
        await settle()
        a.held = True
        beat(play.first, 3)
        await settle()
        seen = a.numbers
        b = play.link(await play.resume(play.first, "b", seen[-1]))
        beat(b.attachment, 2)
        a.go()
        await settle()
        assert type(b.sent[0]) is SessionResumed
        assert seen + b.numbers == list(range(1, 10))
        assert b.words == ["SessionResumed"]
        assert a.ended == "replaced"
        assert play.here.hub.statistics().attached == 1


@rule("D10")
async def test_a_connection_that_is_stuck_holds_up_no_other_session() -> None:
    async with scene() as play:
        play.link(play.first, held=True)
        other = await play.here.hub.open(opening("other"))
        free = play.link(other)
        beat(play.first, 3)
        beat(other, 3)
        await settle()
        assert free.numbers == [1, 2, 3]


@rule("D13", "D11", "D12", "D14")
async def test_what_was_recorded_stays_recorded_when_its_sending_fails() -> None:
    async with scene() as play:
        a = play.link(play.first)
        await settle()
        a.held = True
        beat(play.first, 2)
        await settle()
        await a.fail()
        assert (a.numbers, await play.detached()) == ([], [0])
        b = play.link(await play.resume(play.first, "b"))
        beat(b.attachment)
        await settle()
        assert b.numbers == [1, 2, 3]


@rule("D28", "C6", "P47")
async def test_only_the_first_disconnect_of_the_current_connection_begins_the_grace() -> None:
    async with scene() as play:
        a = play.link(play.first)
        await settle()
        await a.fail()
        due = play.state.lease.expires_at
        await play.here.advance(5_000)
        await play.first.detach()
        await a.cancel()
        assert (await play.detached(), play.state.lease.expires_at) == ([0], due)
        b = await play.resume(play.first, "b")
        await play.first.detach()
        assert b.current


@rule("D32")
async def test_giving_up_survives_a_second_cancellation() -> None:
    async with scene() as play:
        b = await play.in_flight(play.first, "b")
        await b.cancel()
        await b.cancel()
        await play.land()
        assert (await play.detached(), play.in_grace) == ([1], True)
        c = play.link(await play.resume(play.first, "c"))
        play.here.log.holding = True
        await c.cancel()
        await c.cancel()
        await play.land()
        assert (await play.detached(), play.in_grace) == ([1, 2], True)


@rule("D22", "D27")
async def test_no_check_that_fails_disturbs_who_is_attached() -> None:
    async with scene() as play:
        a = play.link(play.first)
        beat(play.first, 3)
        await settle()
        play.first.acknowledge(2)
        before = core.dump(play.state)
        wrong = Resumption(session=play.first.session, token="x", control_id="1")
        assert await code_of(play.here.hub.resume(wrong)) == "invalid_resume_token"
        assert await code_of(play.resume(play.first, "2", 9)) == "session_resume_conflict"
        assert core.dump(play.state) == before
        assert (play.first.current, a.ended, await play.detached()) == (True, None, [])


@rule("D27")
async def test_a_resume_that_the_store_does_not_take_leaves_the_session_where_it_was() -> None:
    async with scene() as play:
        play.here.log.broken = Unavailable("full")
        assert await code_of(play.resume(play.first, "b")) == "storage_unavailable"
        play.here.log.broken = None
        await settle()
        await play.here.advance(2_000)
        assert play.state.lease.generation == 0
        assert (await play.resume(play.first, "c")).lease == 1


@rule("D25", "D26", "P51")
async def test_what_was_withdrawn_gives_its_token_back_until_somebody_is_heard() -> None:
    """The new token stays good too: its client may have got it, and its sign of life was lost or came too late."""
    async with scene() as play:
        deaf = await play.resume(play.first, "deaf")
        await play.here.advance(10_000)
        withdrawn = [e for e in await play.here.events(deaf.session) if isinstance(e, AttachmentWithdrawn)]
        assert [event.attachment for event in withdrawn] == [2]
        again = await play.resume(deaf, "told")
        assert again.generation == 3, "the number of the withdrawn attachment is not used again"
        heard = await play.resume(deaf, "heard")
        heard.heard()
        await settle()
        assert await code_of(play.resume(play.first, "late")) == "invalid_resume_token"
        assert (await play.resume(heard, "next")).current


@rule("P43")
async def test_of_many_connections_one_is_current() -> None:
    async with scene() as play:
        found = [play.first]
        for number in range(6):
            found.append(await play.resume(found[-1], f"r{number}"))
            assert [attachment.current for attachment in found] == [False] * (number + 1) + [True]
