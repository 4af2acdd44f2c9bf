"""What may be asked for again: acknowledgements, overflow and its end, age (BEHAVIOURS D15-D17, DESIGN 4)."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.clock import VirtualClock
from antiphon.engine.errors import Refused, Resync
from antiphon.engine.feed import Feed
from antiphon.engine.memory_log import MemoryLog
from antiphon.engine.opening import Resumption
from antiphon.engine.published import OVERHEAD, published
from antiphon.engine.replay_window import MARK_BYTES, ReplayWindow, Trail
from antiphon.engine.settings import HubSettings
from antiphon.events.commands import Heartbeat

from . import records
from .records import SESSION
from .worlds import opening, settle, world
from tests.rules import rule

pytestmark = pytest.mark.anyio

PIECE = MARK_BYTES
LIMIT = 4 * PIECE


def window(count: int = 0, *, limit: int = LIMIT, clock: VirtualClock | None = None) -> ReplayWindow:
    """A window behind `count` transactions of one message each."""
    made = ReplayWindow(clock or VirtualClock())
    made.bytes = limit
    for seq in range(1, count + 1):
        made.published(seq, seq, PIECE)
    return made


def journaled(made: ReplayWindow, seqs: Sequence[int]) -> list[bool]:
    return [made.overflow_at(seq) is None for seq in seqs]


def feed(count: int) -> Feed:
    log = MemoryLog()
    made = Feed(SESSION, log, log.samples, VirtualClock())
    for seq in range(1, count + 1):
        made.publish(published(records.spoken(seq, number=seq), {}), seq)
    return made


@rule("D15")
async def test_acknowledgements_move_the_boundary_forward_only() -> None:
    made = feed(10)
    made.acknowledge(6)
    made.acknowledge(4)
    made.acknowledge(6)
    assert made.window.acknowledged == 6
    assert [made.window.replayable(after) for after in (5, 6, 10)] == [False, True, True]


@rule("D15")
@pytest.mark.parametrize("number", [11, -1])
async def test_what_was_never_sent_cannot_be_acknowledged(number: int) -> None:
    made = feed(10)
    made.acknowledge(3)
    with pytest.raises(Refused, match="invalid_event_ack"):
        made.acknowledge(number)
    assert made.window.acknowledged == 3


@rule("D17", "P50")
def test_too_much_that_is_unacknowledged_is_an_overflow_from_that_message_on() -> None:
    made = window(4)
    assert made.replayable(0)
    made.published(5, 5, PIECE)
    made.published(6, 6, PIECE)
    assert journaled(made, range(1, 7)) == [True] * 4 + [False] * 2
    assert made.overflow_at(5) is made.overflow_at(6), "one overflow, to be told once"
    assert not made.replayable(4)


@rule("D17")
def test_what_is_not_public_does_not_overflow_by_itself() -> None:
    made = window(4)
    made.published(5, 4, PIECE)
    assert made.overflow_at(5) is None
    made.published(6, 5, 1)
    assert made.overflow_at(6) is not None


@rule("D17", "P50")
def test_an_overflow_ends_when_everything_that_has_a_number_is_acknowledged() -> None:
    made = window(6)
    made.acknowledge(3, 6)
    made.published(7, 7, PIECE)
    assert made.overflow_at(7) is not None, "not all of it"
    made.acknowledge(4, 7)
    made.published(8, 8, PIECE)
    assert journaled(made, [4, 5, 7, 8]) == [True, False, False, True], "the numbering goes on"
    assert not made.replayable(4), "what was sent without a number is a gap"
    assert [made.replayable(after) for after in (6, 7, 8)] == [False, True, True]
    for seq in range(9, 13):
        made.published(seq, seq, PIECE)
    assert made.overflow_at(12) not in (None, made.overflow_at(5)), "the account began anew; this is another one"


@rule("D17")
def test_acknowledging_in_time_keeps_the_window_open() -> None:
    made = window()
    for seq in range(1, 100):
        made.published(seq, seq, PIECE)
        if seq > 3:
            made.acknowledge(seq - 3, seq)
    assert all(journaled(made, range(1, 100)))
    assert made.replayable(97)


@rule("D16")
def test_with_a_bound_on_age_what_is_older_cannot_be_asked_for() -> None:
    clock = VirtualClock()
    made = window(clock=clock, limit=100 * PIECE)
    made.age_us = 60_000_000
    made.published(1, 1, 10)
    clock.advance(30_000_000)
    made.published(2, 2, 10)
    clock.advance(30_000_000)
    assert made.replayable(0)
    clock.advance(1)
    assert [made.replayable(after) for after in (0, 1, 2)] == [False, True, True]
    clock.advance(10**9)
    assert [made.replayable(after) for after in (1, 2)] == [False, True], "what was seen never grows old"


@rule("D16")
@pytest.mark.parametrize(("replay_ms", "good"), [(0, True), (30_001, True), (30_000, False), (60_001, False)])
def test_what_is_missed_is_kept_for_longer_than_the_grace(replay_ms: int, good: bool) -> None:
    if good:
        HubSettings(replay_ms=replay_ms)
    else:
        with pytest.raises(ValueError, match="longer than grace_ms"):
            HubSettings(replay_ms=replay_ms)


@rule("D15", "D17", "P49", "P50")
@given(st.lists(st.one_of(st.just("say"), st.integers(0, 12)), max_size=60))
def test_whatever_is_acknowledged_when(steps: list[str | int]) -> None:
    """Beside a model that keeps every single message: the boundary, and what has a number."""
    made, said, boundary, unnumbered, numbered_to = window(), 0, 0, set[int](), 0
    overflowing, unconfirmed = False, 0
    for step in steps:
        if step == "say":
            said += 1
            made.published(said, said, PIECE)
            unconfirmed += 1
            overflowing = overflowing or unconfirmed > LIMIT // PIECE
            if overflowing:
                unnumbered.add(said)
            else:
                numbered_to = said
        elif isinstance(step, int) and step <= said:
            made.acknowledge(step, said)
            boundary = max(boundary, step)
            if overflowing and boundary >= numbered_to:
                overflowing, boundary = False, said
            unconfirmed = said - boundary
        assert made.acknowledged == boundary
        assert {seq for seq in range(1, said + 1) if made.overflow_at(seq)} == unnumbered
        for after in range(said + 1):
            assert made.replayable(after) == (not overflowing and after >= boundary)


# -- at a session --------------------------------------------------------------------------------------------


@rule("D17", "D22", "D27")
async def test_a_session_whose_window_has_overflowed_cannot_be_resumed_until_all_is_acknowledged() -> None:
    settings = HubSettings(replay_bytes=3 * OVERHEAD, shutdown_ms=200)
    async with world(settings=settings) as here:
        attachment = await here.hub.open(opening())
        for _ in range(6):
            attachment.send(Heartbeat(attachment=1))
        await settle()
        assert attachment.feed.number == 6
        assert attachment.feed.overflow_at(attachment.feed.durable) is not None
        asked = Resumption(session=attachment.session, token=attachment.token or "", control_id="r", last_number=6)
        with pytest.raises(Resync, match="journal_gap"):
            await here.hub.resume(asked)
        assert attachment.current, "who is attached is not disturbed"
        attachment.acknowledge(6)
        assert (await here.hub.resume(asked)).generation == 2


@rule("D11", "D12", "D13")
async def test_events_are_recorded_and_numbered_whether_or_not_anybody_is_there() -> None:
    async with world() as here:
        attachment = await here.hub.open(opening())
        live = here.hub._live[attachment.session]  # pyright: ignore[reportPrivateUsage]
        attachment.send(Heartbeat(attachment=1))
        await settle()
        await attachment.detach()
        before = live.runner.feed.number
        token = attachment.token or ""
        again = await here.hub.resume(
            Resumption(session=attachment.session, token=token, control_id="r", last_number=0)
        )
        assert before == 1
        assert [entry.number async for entry in again.replay()][:1] == [1]


@rule("D16")
async def test_a_restart_forgets_acknowledgements_and_makes_more_replayable() -> None:
    """What is acknowledged is not state: the log holds everything, so a client that asks for it gets it."""
    async with world(settings=HubSettings(shutdown_ms=200)) as here:
        log, clock = here.log, here.clock
        attachment = await here.hub.open(opening())
        for _ in range(3):
            attachment.send(Heartbeat(attachment=1))
        await settle()
        attachment.acknowledge(3)
    async with world(log=log, clock=clock) as again:
        asked = Resumption(session=attachment.session, token=attachment.token or "", control_id="r", last_number=1)
        resumed = await again.hub.resume(asked)
        numbers = [entry.number async for entry in resumed.replay() if entry.number > 1]
        assert numbers[:2] == [2, 3]


# -- where nobody confirms anything --------------------------------------------------------------------------


def trail(count: int, *, limit: int = LIMIT, clock: VirtualClock | None = None, age_us: int = 0) -> Trail:
    """A trail that begins behind transaction 10, and `count` transactions of a mark's size each."""
    made = Trail(clock or VirtualClock(), 10, limit, age_us)
    for seq in range(11, 11 + count):
        made.published(seq, PIECE)
    return made


def held(made: Trail, last: int) -> list[int]:
    return [after for after in range(last + 1) if made.replayable(after)]


@rule("D17")
def test_a_trail_reaches_back_as_far_as_its_bytes() -> None:
    assert held(trail(0), 10) == list(range(11)), "nothing is known of what was before: it may be read"
    assert held(trail(4), 14) == list(range(15))
    assert held(trail(5), 15) == [11, 12, 13, 14, 15]
    assert held(trail(1000), 1010) == list(range(1006, 1011))
    assert trail(1000).replayable(2000)


def test_a_transaction_that_is_larger_than_the_bound_is_gone_at_once() -> None:
    made = trail(3)
    made.published(14, 2 * LIMIT)
    made.published(15, PIECE)
    assert held(made, 15) == [14, 15]


@rule("D16")
def test_a_trail_reaches_back_as_far_as_its_age() -> None:
    clock = VirtualClock()
    made = trail(0, clock=clock, age_us=60_000_000)
    for seq in range(11, 131):
        made.published(seq, 10)
        clock.advance(1_000_000)
    assert held(made, 130) == list(range(70, 131))
    clock.advance(59_000_000)
    assert held(made, 130) == [129, 130]
    clock.advance(3_600_000_000)
    assert held(made, 130) == [130], "nothing was missed"


@given(st.lists(st.integers(1, 3 * PIECE), min_size=1, max_size=60), st.integers(PIECE, 10 * PIECE))
def test_a_trail_is_right_to_its_grain_and_small(sizes: list[int], limit: int) -> None:
    made = Trail(VirtualClock(), 0, limit, 0)
    for seq, size in enumerate(sizes, 1):
        made.published(seq, size)
    for after in range(len(sizes) + 1):
        behind = sum(sizes[after:])
        if behind > limit:
            assert not made.replayable(after)
        elif behind + 2 * PIECE + max(sizes) <= limit or after == len(sizes):
            assert made.replayable(after)
