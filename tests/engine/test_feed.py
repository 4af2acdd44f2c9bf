"""Durable transactions and their readers: the tail, the store behind it, ends, lag, acknowledgements."""

from collections.abc import Callable

import anyio
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from antiphon.engine.clock import VirtualClock
from antiphon.engine.cursor import YIELD_EVERY, Cursor, Patience
from antiphon.engine.errors import Refused
from antiphon.engine.feed import TAIL_ENTRIES, Feed
from antiphon.engine.log_head import summarise
from antiphon.engine.memory_log import MemoryLog
from antiphon.engine.published import Published, deltas, published
from antiphon.engine.replay_window import Trail
from antiphon.events.audio import SampleRef
from antiphon.events.commands import Detach
from antiphon.events.events import ItemCreated, SessionDetached
from antiphon.events.items import Message, TextPart
from antiphon.events.log import Corrupt, LogError, SampleWrite, Transaction, Unavailable

from . import records
from .records import SESSION, Outcomes, closed, opened
from .worlds import settle
from tests.rules import rule

pytestmark = pytest.mark.anyio

SLOW_BYTES = 16 * 1024 * 1024
SLOW_US = 30_000_000


def spoken(seq: int, *, start: int, size: int, number: int) -> Transaction:
    """Sound of an answer, of a size."""
    transaction = records.spoken(seq, number=number)
    (event,) = transaction.events
    return replace(transaction, events=(replace(event, ref=SampleRef("out", start, size)),))


class Stream:
    """A feed with a store behind it; sound of the n-th delta is the byte n."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.clock = VirtualClock()
        self.feed = Feed(SESSION, self.log, self.log.samples, self.clock)
        self.seq = 0

    async def begin(self) -> None:
        await self.log.acquire(SESSION)
        await self.put(opened())

    async def put(self, transaction: Transaction, size: int = 0) -> None:
        sound = {ref: bytes([transaction.seq & 255]) * ref.size for ref in deltas(transaction)}
        outcomes = Outcomes(self.log)
        outcomes.append(transaction, [SampleWrite(ref, data) for ref, data in sound.items()])
        await outcomes.all()
        self.publish(transaction, sound)

    def publish(self, transaction: Transaction, sound: dict[SampleRef, bytes] | None = None) -> None:
        self.seq = transaction.seq
        number = transaction.seq if summarise(transaction).number else self.feed.number
        self.feed.publish(published(transaction, sound or {}, epoch=transaction.seq), number)

    async def speak(self, count: int) -> None:
        for _ in range(count):
            seq = self.seq + 1
            await self.put(spoken(seq, start=(seq - 2) * 4, size=4, number=seq))


async def take(cursor: Cursor, count: int) -> list[int]:
    return [(await anext(cursor)).seq for _ in range(count)]


@rule("D10", "P3")
async def test_a_live_reader_sees_everything_in_order_and_shares_the_entry() -> None:
    stream = Stream()
    await stream.begin()
    with Cursor(stream.feed, 0) as one, Cursor(stream.feed, 0) as two:
        await stream.speak(3)
        first = [await anext(one) for _ in range(4)]
        second = [await anext(two) for _ in range(4)]
    assert [entry.seq for entry in first] == [1, 2, 3, 4]
    assert all(mine is other for mine, other in zip(first, second, strict=True))
    assert first[1].sound == {SampleRef("out", 0, 4): b"\x02" * 4}


async def test_what_left_memory_is_read_from_the_store_with_its_sound() -> None:
    stream = Stream()
    await stream.begin()
    await stream.speak(TAIL_ENTRIES + 100)
    assert stream.feed.tail(2) is None
    with Cursor(stream.feed, 0) as cursor:
        entries = [await anext(cursor) for _ in range(TAIL_ENTRIES + 101)]
    assert [entry.seq for entry in entries] == list(range(1, TAIL_ENTRIES + 102))
    for entry in entries[1:]:
        (data,) = entry.sound.values()
        assert data == bytes([entry.seq & 255]) * 4


async def test_a_reader_that_catches_up_lets_others_run() -> None:
    stream = Stream()
    await stream.begin()
    await stream.speak(200)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        with Cursor(stream.feed, 0) as cursor:
            await take(cursor, 201)
        group.cancel_scope.cancel()
    assert turns >= 200 // YIELD_EVERY - 1


async def test_one_wake_up_for_a_burst() -> None:
    stream = Stream()
    await stream.begin()
    woken: list[list[int]] = []

    async def read() -> None:
        with Cursor(stream.feed, 1) as cursor:
            while True:
                burst = [(await anext(cursor)).seq]
                while (entry := cursor.next_nowait()) is not None:
                    burst.append(entry.seq)
                woken.append(burst)

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await settle()
        for seq in (2, 3, 4):
            stream.publish(spoken(seq, start=seq * 4, size=4, number=seq))
        await settle()
        group.cancel_scope.cancel()
    assert woken == [[2, 3, 4]]


async def test_a_bounded_reader_ends_where_it_was_told() -> None:
    stream = Stream()
    await stream.begin()
    await stream.speak(5)
    with Cursor(stream.feed, 1, until=3) as cursor:
        assert [entry.seq async for entry in cursor] == [2, 3]
    assert cursor.end == "done"
    with Cursor(stream.feed, 3, until=3) as empty:
        assert [entry.seq async for entry in empty] == []


@rule("M17")
async def test_every_reader_ends_behind_the_terminal() -> None:
    stream = Stream()
    await stream.begin()
    await stream.put(closed(2))
    with Cursor(stream.feed, 0) as cursor:
        assert [entry.seq async for entry in cursor] == [1, 2]
    assert cursor.end == "closed"


@rule("D28")
async def test_a_detached_connections_reader_ends_and_a_newer_ones_does_not() -> None:
    stream = Stream()
    await stream.begin()
    event = SessionDetached(generation=4, reason="disconnect", grace_ms=1)
    await stream.put(Transaction(seq=2, term=1, at=0, command=Detach(generation=4), events=(event,)))
    with Cursor(stream.feed, 0, attachment=5, generation=4) as mine:
        assert [entry.seq async for entry in mine] == [1, 2]
    assert mine.end == "detached"
    with Cursor(stream.feed, 0, attachment=6, generation=5) as other:
        assert await take(other, 2) == [1, 2]
        assert other.end is None


@rule("D13")
async def test_a_failed_feed_still_gives_what_is_durable_and_then_says_why() -> None:
    stream = Stream()
    await stream.begin()
    stream.feed.fail(Refused("storage_unavailable", "full"))
    with Cursor(stream.feed, 0) as cursor:
        assert await take(cursor, 1) == [1]
        with pytest.raises(Refused, match="storage_unavailable"):
            await anext(cursor)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Corrupt(4, "its checksum does not match"), "session_resume_expired: .*record 4 is damaged"),
        (Unavailable("the disk is gone"), "storage_unavailable"),
    ],
)
async def test_what_is_damaged_or_gone_is_not_asked_for_again_and_again(
    error: LogError, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream()
    await stream.begin()
    await stream.speak(TAIL_ENTRIES + 5)

    async def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(stream.log, "read", refuse)
    with Cursor(stream.feed, 0) as cursor, pytest.raises(Refused, match=code) as refused:
        await anext(cursor)
    assert refused.value.retryable == (code == "storage_unavailable")


async def test_of_sound_that_is_gone_the_words_and_the_numbers_are_still_told() -> None:
    stream = Stream()
    await stream.begin()
    await stream.speak(TAIL_ENTRIES + 5)
    kept = stream.log.samples._streams[SESSION]["out"]  # pyright: ignore[reportPrivateUsage]
    whole = bytes(kept)
    del kept[10:]
    with capture_logs() as lines, Cursor(stream.feed, 0) as cursor:
        entries = [await anext(cursor) for _ in range(6)]
    sounds = [data for entry in entries for data in entry.sound.values()]
    assert [len(data) for data in sounds] == [4, 4, 0, 0, 0]
    assert b"".join(sounds) == whole[:8]
    assert [entry.seq for entry in entries] == [1, 2, 3, 4, 5, 6]
    assert {line["event"] for line in lines} == {"sound that a reader needs is gone"}


async def test_what_may_still_be_read_begins_behind_what_everybody_has() -> None:
    stream = Stream()
    await stream.begin()
    await stream.speak(9)
    assert await stream.feed.oldest_wanted() == 0, "nothing was acknowledged"
    stream.feed.acknowledge(4)
    assert await stream.feed.oldest_wanted() == 4
    stream.feed.acknowledge(10)
    assert await stream.feed.oldest_wanted() == 10
    with Cursor(stream.feed, 6):
        assert await stream.feed.oldest_wanted() == 6, "somebody is still reading"
    stream.feed.trail = Trail(stream.clock, 10, bytes=1_000, age_us=0)
    assert await stream.feed.oldest_wanted() == 0, "without numbers, what was before is not known"
    await stream.speak(1)
    stream.publish(*big(12, 70_000))
    stream.publish(*big(13, 70_000))
    assert await stream.feed.oldest_wanted() == 13, "no more than so much is kept"


def patience(lost: Callable[[], None]) -> Patience:
    return Patience(SLOW_BYTES, SLOW_US, lost)


def big(seq: int, size: int) -> tuple[Transaction, dict[SampleRef, bytes]]:
    transaction = spoken(seq, start=seq * size, size=size, number=seq)
    return transaction, {ref: bytes(size) for ref in deltas(transaction)}


async def test_a_reader_16_mib_behind_is_slow_once() -> None:
    stream = Stream()
    await stream.begin()
    slow: list[int] = []
    with Cursor(stream.feed, 0, patience=patience(lambda: slow.append(stream.seq))) as cursor:
        assert await take(cursor, 1) == [1]
        piece = SLOW_BYTES // 4
        for seq in range(2, 9):
            stream.publish(*big(seq, piece))
        assert slow == [5]
        assert cursor.end == "slow_consumer"
        with pytest.raises(StopAsyncIteration):
            await anext(cursor)


class Reader:
    """Reads until it has seen `seq`, and then does something else until it is let go."""

    def __init__(self, stream: Stream, seq: int) -> None:
        self.stream = stream
        self.slow: list[int] = []
        self.seen: list[int] = []
        self.seq = seq
        self.go_on = anyio.Event()

    async def run(self) -> None:
        with Cursor(self.stream.feed, 1, patience=patience(lambda: self.slow.append(self.stream.seq))) as cursor:
            async for entry in cursor:
                self.seen.append(entry.seq)
                if entry.seq == self.seq:
                    await self.go_on.wait()

    async def hear(self, after_us: int) -> None:
        self.stream.clock.advance(after_us)
        seq = self.stream.seq + 1
        self.stream.publish(spoken(seq, start=4 * seq, size=4, number=seq))
        await settle()


async def test_a_reader_is_slow_when_the_first_that_it_has_not_seen_is_30_s_old() -> None:
    stream = Stream()
    await stream.begin()
    reader = Reader(stream, 3)
    async with anyio.create_task_group() as group:
        group.start_soon(reader.run)
        await settle()
        await reader.hear(10 * SLOW_US)
        await reader.hear(SLOW_US + 1)
        await reader.hear(SLOW_US)  # the first that it does not see
        await reader.hear(SLOW_US)
        assert reader.slow == []
        await reader.hear(1)
        assert reader.slow == [6]
        reader.go_on.set()
    assert reader.seen == [2, 3]


async def test_a_reader_that_has_seen_everything_may_be_left_for_as_long_as_it_likes() -> None:
    stream = Stream()
    await stream.begin()
    reader = Reader(stream, 3)
    async with anyio.create_task_group() as group:
        group.start_soon(reader.run)
        await settle()
        await reader.hear(0)
        await reader.hear(0)
        # What is not public is nothing to be seen, however old it is.
        stream.publish(records.heard(4, size=2))
        for _ in range(3):
            stream.clock.advance(10 * SLOW_US)
            stream.publish(records.heard(stream.seq + 1, size=2))
        await reader.hear(SLOW_US + 1)
        assert reader.slow == []
        reader.go_on.set()
        await settle()
        group.cancel_scope.cancel()
    assert reader.seen == [2, 3, 4, 5, 6, 7, 8]


async def test_a_reader_that_is_always_a_little_behind_is_not_slow() -> None:
    stream = Stream()
    await stream.begin()
    slow: list[int] = []
    with Cursor(stream.feed, 1, patience=patience(lambda: slow.append(stream.seq))) as cursor:
        async with anyio.create_task_group() as group:
            group.start_soon(anext, cursor)
            await settle()
            stream.publish(spoken(2, start=8, size=4, number=2))
        stream.publish(spoken(3, start=12, size=4, number=3))
        for seq in range(4, 60):
            stream.clock.advance(SLOW_US // 10)
            stream.publish(spoken(seq, start=4 * seq, size=4, number=seq))
            assert (await anext(cursor)).seq == seq - 1
    assert slow == []


async def test_a_long_past_does_not_make_a_reader_slow() -> None:
    stream = Stream()
    await stream.begin()
    for seq in range(2, 9):
        stream.publish(*big(seq, SLOW_BYTES // 4))
    slow: list[int] = []
    with Cursor(stream.feed, 7, patience=patience(lambda: slow.append(1))):
        stream.clock.advance(2 * SLOW_US)
        stream.publish(*big(9, 4))
    assert slow == []


async def test_a_number_is_located_in_the_store() -> None:
    stream = Stream()
    await stream.begin()
    await stream.speak(4)
    assert await stream.feed.locate(3) == 3
    assert await stream.feed.locate(5) == 5


def test_an_entrys_size_counts_its_sound() -> None:
    transaction, sound = big(2, 1_000)
    assert published(transaction, sound).size - Published(transaction, {}).size == 1_000


@rule("D16", "D17")
def test_an_entrys_size_counts_its_words() -> None:
    """Replay windows, tails and slow readers are bounded by bytes, and most of them may be text."""
    item = Message(id="i", role="user", content=(TextPart("x" * 400_000),))
    events = (ItemCreated(number=1, count=3, item=item, previous_item_id=None),)
    entry = published(Transaction(seq=2, term=1, at=0, command=Detach(), events=events), {})
    assert 400_000 <= entry.size <= 401_500
