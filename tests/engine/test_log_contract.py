"""What every store promises (events/log.py), held over each of them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.engine.datadir import DataDirectory
from antiphon.engine.memory_log import MemoryLog
from antiphon.engine.sqlite_log import SqliteLog
from antiphon.events.audio import SampleRef
from antiphon.events.log import (
    Conflict,
    EventLog,
    Fenced,
    LogError,
    Samples,
    SampleWrite,
    SessionRow,
    Snapshot,
    Unavailable,
    UnknownSession,
)

from .records import SESSION, Outcomes, closed, heard, opened, spoken
from tests.rules import rule

pytestmark = pytest.mark.anyio

Store = MemoryLog | SqliteLog


@pytest.fixture(params=["memory", "sqlite-inline", "sqlite-thread", "sqlite-full"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "memory":
        memory = MemoryLog()
        yield memory
        await memory.aclose()
        return
    with DataDirectory(tmp_path) as data:
        store = await SqliteLog.open(
            data,
            writer="inline" if request.param == "sqlite-inline" else "thread",
            durability="full" if request.param == "sqlite-full" else "normal",
        )
        yield store
        await store.aclose()


async def append_all(log: EventLog, *transactions: object) -> None:
    outcomes = Outcomes(log)
    for transaction in transactions:
        outcomes.append(transaction)  # type: ignore[arg-type]
    assert all(error is None for _, error in await outcomes.all())


class TestShape:
    async def test_a_store_is_an_event_log_with_samples(self, log: Store) -> None:
        as_log: EventLog = log
        samples: Samples = log.samples
        assert as_log is log
        assert samples is log.samples


class TestAppend:
    async def test_what_was_appended_is_read_back(self, log: Store) -> None:
        assert await log.acquire(SESSION) == 1
        written = [opened(), heard(2), spoken(3, number=2)]
        await append_all(log, *written)
        assert await log.read(SESSION, 0) == written

    async def test_nothing_is_settled_inside_append(self, log: Store) -> None:
        await log.acquire(SESSION)
        outcomes = Outcomes(log)
        outcomes.append(opened())
        outcomes.append(opened(seq=9))
        assert outcomes.told == []
        assert await outcomes.all() == [(1, None), (9, Conflict)]

    @rule("P3")
    async def test_many_appends_are_settled_in_order(self, log: Store) -> None:
        await log.acquire(SESSION)
        outcomes = Outcomes(log)
        outcomes.append(opened())
        for seq in range(2, 501):
            outcomes.append(heard(seq))
        assert await outcomes.all() == [(seq, None) for seq in range(1, 501)]
        assert [transaction.seq for transaction in await log.read(SESSION, 0)] == list(range(1, 501))

    async def test_sessions_do_not_mix(self, log: Store) -> None:
        names = [f"sess_{n}" for n in range(70)]
        outcomes = Outcomes(log)
        for name in names:
            await log.acquire(name)
        for seq in (1, 2):
            for name in names:
                outcomes.append(opened(session=name) if seq == 1 else heard(seq), session=name)
        assert all(error is None for _, error in await outcomes.all())
        for name in names:
            assert await log.read(name, 0) == [opened(session=name), heard(2)]

    async def test_a_callback_that_raises_costs_nobody_the_answer(self, log: Store) -> None:
        await log.acquire(SESSION)
        told: list[LogError | None] = []
        faults: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))

        def faulty(error: LogError | None) -> None:
            raise ValueError("mine")

        log.append(SESSION, opened(), [], faulty)
        log.append(SESSION, heard(2), [], told.append)
        outcomes = Outcomes(log)
        outcomes.append(heard(3))
        assert await outcomes.all() == [(3, None)]
        assert told == [None]
        assert [type(fault) for fault in faults] == [ValueError]

    async def test_an_append_after_the_end_is_unavailable(self, log: Store) -> None:
        await log.acquire(SESSION)
        await log.aclose()
        outcomes = Outcomes(log)
        outcomes.append(opened())
        assert await outcomes.all() == [(1, Unavailable)]
        with pytest.raises(Unavailable):
            await log.acquire(SESSION)

    async def test_closing_settles_what_was_appended(self, log: Store) -> None:
        await log.acquire(SESSION)
        outcomes = Outcomes(log)
        for transaction in (opened(), *(heard(seq) for seq in range(2, 200))):
            outcomes.append(transaction)
        await log.aclose()
        assert outcomes.told == [(seq, None) for seq in range(1, 200)]


class TestCompareAndSwap:
    async def test_terms_count_up(self, log: Store) -> None:
        assert [await log.acquire(SESSION) for _ in range(3)] == [1, 2, 3]
        assert await log.acquire("sess_other") == 1

    @rule("A20")
    async def test_an_older_term_is_fenced(self, log: Store) -> None:
        await log.acquire(SESSION)
        await append_all(log, opened())
        await log.acquire(SESSION)
        outcomes = Outcomes(log)
        outcomes.append(heard(2, term=1))
        outcomes.append(heard(2, term=2))
        assert await outcomes.all() == [(2, Fenced), (2, None)]

    @rule("A20")
    async def test_a_term_that_nobody_acquired_is_fenced(self, log: Store) -> None:
        outcomes = Outcomes(log)
        outcomes.append(opened())
        assert await outcomes.all() == [(1, Fenced)]
        with pytest.raises(UnknownSession):
            await log.read(SESSION, 0)

    async def test_what_was_appended_before_the_fence_is_part_of_the_log(self, log: Store) -> None:
        await log.acquire(SESSION)
        outcomes = Outcomes(log)
        outcomes.append(opened())
        outcomes.append(heard(2))
        await log.acquire(SESSION)
        assert [transaction.seq for transaction in await log.read(SESSION, 0)] == [1, 2]
        outcomes.append(heard(3, term=2))
        assert await outcomes.all() == [(1, None), (2, None), (3, None)]

    @rule("A20", "P3")
    @pytest.mark.parametrize("seq", [1, 3])
    async def test_a_record_that_does_not_follow_is_a_conflict(self, log: Store, seq: int) -> None:
        await log.acquire(SESSION)
        outcomes = Outcomes(log)
        outcomes.append(opened())
        outcomes.append(heard(seq))
        assert await outcomes.all() == [(1, None), (seq, Conflict)]

    async def test_after_a_failure_the_rest_of_the_term_fails(self, log: Store) -> None:
        await log.acquire(SESSION)
        outcomes = Outcomes(log)
        outcomes.append(opened())
        outcomes.append(heard(3))
        outcomes.append(heard(2))
        assert await outcomes.all() == [(1, None), (3, Conflict), (2, Conflict)]
        outcomes.append(heard(2))
        assert (await outcomes.all())[-1] == (2, Conflict)
        assert await log.acquire(SESSION) == 2
        outcomes.append(heard(2, term=2))
        assert (await outcomes.all())[-1] == (2, None)


class TestRead:
    async def test_in_pieces(self, log: Store) -> None:
        await log.acquire(SESSION)
        await append_all(log, opened(), *(heard(seq) for seq in range(2, 11)))
        assert [t.seq for t in await log.read(SESSION, 0, 4)] == [1, 2, 3, 4]
        assert [t.seq for t in await log.read(SESSION, 4, 4)] == [5, 6, 7, 8]
        assert [t.seq for t in await log.read(SESSION, 8, 4)] == [9, 10]
        assert await log.read(SESSION, 10) == []
        assert await log.read(SESSION, 99) == []

    async def test_of_an_unknown_session(self, log: Store) -> None:
        with pytest.raises(UnknownSession):
            await log.read(SESSION, 0)
        await log.acquire(SESSION)
        with pytest.raises(UnknownSession):
            await log.read(SESSION, 0)


class TestLocate:
    async def test_is_the_record_before_the_first_higher_number(self, log: Store) -> None:
        await log.acquire(SESSION)
        written = [
            opened(number=1),
            heard(2),
            spoken(3, number=2),
            heard(4),
            heard(5),
            spoken(6, number=3, count=4),
            spoken(7, number=7),
            heard(8),
        ]
        await append_all(log, *written)
        found = {number: await log.locate(SESSION, number) for number in range(9)}
        assert found == {0: 0, 1: 2, 2: 5, 3: 5, 4: 5, 5: 5, 6: 6, 7: 8, 8: 8}

    async def test_of_an_unknown_session(self, log: Store) -> None:
        with pytest.raises(UnknownSession):
            await log.locate(SESSION, 0)


class TestIndex:
    async def test_shows_what_was_opened(self, log: Store) -> None:
        await log.acquire(SESSION)
        assert await log.sessions() == []
        await append_all(log, opened(wall_us=77), heard(2), heard(3))
        row = SessionRow(
            session=SESSION,
            kind="voice",
            state="open",
            dialect="duplex",
            model="echo",
            plugin="echo",
            plugin_version="1",
            opened_us=77,
            at=60_000,
            term=1,
            head=3,
        )
        assert await log.sessions() == [row]
        assert await log.sessions("open") == [row]
        assert await log.sessions("closed") == []

    async def test_newest_first_and_by_state(self, log: Store) -> None:
        for age, name in enumerate(("a", "b", "c")):
            await log.acquire(name)
            outcomes = Outcomes(log)
            outcomes.append(opened(session=name, wall_us=10 + age), session=name)
            if name == "b":
                outcomes.append(closed(2, session=name), session=name)
            await outcomes.all()
        assert [row.session for row in await log.sessions()] == ["c", "b", "a"]
        assert [row.session for row in await log.sessions("open")] == ["c", "a"]
        assert [row.session for row in await log.sessions("closed")] == ["b"]


class TestSnapshots:
    async def test_only_the_latest_counts(self, log: Store) -> None:
        await log.acquire(SESSION)
        assert await log.load_snapshot(SESSION) is None
        await append_all(log, opened(), heard(2))
        await log.save_snapshot(SESSION, Snapshot(seq=1, version=4, state=b"one"))
        await log.save_snapshot(SESSION, Snapshot(seq=2, version=4, state=b"two"))
        assert await log.load_snapshot(SESSION) == Snapshot(seq=2, version=4, state=b"two")

    async def test_of_an_unknown_session(self, log: Store) -> None:
        assert await log.load_snapshot(SESSION) is None
        with pytest.raises(UnknownSession):
            await log.save_snapshot(SESSION, Snapshot(seq=1, version=4, state=b""))


class TestTrimAndDelete:
    async def test_an_open_session_is_not_trimmed(self, log: Store) -> None:
        await log.acquire(SESSION)
        await append_all(log, opened(), heard(2))
        with pytest.raises(Conflict):
            await log.trim(SESSION, 1)
        with pytest.raises(UnknownSession):
            await log.trim("sess_other", 1)

    @pytest.mark.parametrize("through", [3, 700, 5_000])
    async def test_trim_forgets_the_beginning(self, log: Store, through: int) -> None:
        await log.acquire(SESSION)
        records = [opened(), *(spoken(seq, number=seq) for seq in range(2, 1200))]
        await append_all(log, *records, closed(1200, number=1200, at=5))
        [before] = await log.sessions()
        await log.trim(SESSION, through)
        kept = [transaction.seq for transaction in await log.read(SESSION, 0, 2_000)]
        assert kept == list(range(through + 1, 1201))
        assert await log.sessions() == [before]
        assert await log.locate(SESSION, 1100) == max(1100, min(through, 1200))
        assert await log.acquire(SESSION) == 2
        outcomes = Outcomes(log)
        outcomes.append(heard(1201, term=2))
        assert await outcomes.all() == [(1201, None)]

    async def test_delete_forgets_all(self, log: Store) -> None:
        ref = SampleRef("in", 0, 4)
        await log.acquire(SESSION)
        outcomes = Outcomes(log)
        outcomes.append(opened())
        outcomes.append(heard(2, size=4), [SampleWrite(ref, b"abcd")])
        await outcomes.all()
        await log.save_snapshot(SESSION, Snapshot(seq=1, version=4, state=b"one"))
        await log.delete(SESSION)
        await log.delete(SESSION)
        assert await log.sessions() == []
        assert await log.load_snapshot(SESSION) is None
        with pytest.raises(UnknownSession):
            await log.read(SESSION, 0)
        with pytest.raises(UnknownSession):
            await log.samples.read(SESSION, ref)
        outcomes.append(heard(3))
        assert (await outcomes.all())[-1] == (3, Fenced)


class TestProbe:
    async def test_leaves_nothing_and_fails_once_the_store_is_closed(self, log: Store) -> None:
        await log.acquire(SESSION)
        await append_all(log, opened(), heard(2))
        before = await log.read(SESSION, 0)
        await log.probe()
        assert await log.read(SESSION, 0) == before
        await log.aclose()
        with pytest.raises(Unavailable):
            await log.probe()


class TestSamples:
    async def test_exact_bytes_come_back(self, log: Store) -> None:
        await log.acquire(SESSION)
        outcomes = Outcomes(log)
        outcomes.append(opened())
        first, second, out = SampleRef("in", 0, 5), SampleRef("in", 5, 3), SampleRef("out", 0, 2)
        outcomes.append(heard(2), [SampleWrite(first, b"hello"), SampleWrite(out, b"xy")])
        outcomes.append(heard(3), [SampleWrite(second, b"you")])
        await outcomes.all()
        assert await log.samples.read(SESSION, first) == b"hello"
        assert await log.samples.read(SESSION, second) == b"you"
        assert await log.samples.read(SESSION, SampleRef("in", 3, 4)) == b"loyo"
        assert await log.samples.read(SESSION, out) == b"xy"

    async def test_what_was_never_written_is_unavailable(self, log: Store) -> None:
        with pytest.raises(UnknownSession):
            await log.samples.read(SESSION, SampleRef("in", 0, 1))
        await log.acquire(SESSION)
        outcomes = Outcomes(log)
        outcomes.append(opened())
        outcomes.append(heard(2), [SampleWrite(SampleRef("in", 0, 3), b"abc")])
        await outcomes.all()
        for ref in (SampleRef("in", 2, 2), SampleRef("in", 9, 1), SampleRef("out", 0, 1)):
            with pytest.raises(Unavailable):
                await log.samples.read(SESSION, ref)

    async def test_a_refused_append_leaves_none(self, log: Store) -> None:
        await log.acquire(SESSION)
        outcomes = Outcomes(log)
        outcomes.append(opened())
        ref = SampleRef("in", 0, 4)
        outcomes.append(heard(2), [SampleWrite(ref, b"good")])
        outcomes.append(heard(2), [SampleWrite(ref, b"late")])
        outcomes.append(heard(3), [SampleWrite(SampleRef("in", 4, 4), b"more")])
        await log.acquire(SESSION)
        outcomes.append(heard(3, term=1), [SampleWrite(ref, b"old ")])
        assert [kind for _, kind in await outcomes.all()] == [None, None, Conflict, Conflict, Fenced]
        assert await log.samples.read(SESSION, ref) == b"good"
        with pytest.raises(Unavailable):
            await log.samples.read(SESSION, SampleRef("in", 4, 4))

    async def test_bytes_that_do_not_fit_their_place_are_a_fault_of_the_caller(self, log: Store) -> None:
        await log.acquire(SESSION)
        with pytest.raises(ValueError, match="3 bytes"):
            log.append(SESSION, opened(), [SampleWrite(SampleRef("in", 0, 4), b"abc")], lambda _: None)
