"""What is particular to the embedded store: what survives, what is found damaged, and a disk that is full."""

import asyncio
import errno
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import msgspec
import pytest
from anyio import to_thread
from structlog.testing import capture_logs

from antiphon.engine import sqlite_checkpoint, sqlite_writer
from antiphon.engine.datadir import DataDirectory, DataPaths
from antiphon.engine.log_queue import MOST_ROWS
from antiphon.engine.sqlite_log import SqliteLog, Writer
from antiphon.engine.sqlite_schema import checksum
from antiphon.events.audio import SampleRef
from antiphon.events.log import (
    Corrupt,
    Fenced,
    LaterRecord,
    SampleWrite,
    Snapshot,
    Unavailable,
    UnknownSession,
    encode,
)

from .records import SESSION, Outcomes, closed, heard, opened, spoken

pytestmark = pytest.mark.anyio


@pytest.fixture
def data(tmp_path: Path) -> Iterator[DataDirectory]:
    with DataDirectory(tmp_path / "data") as directory:
        yield directory


@pytest.fixture(params=["inline", "thread"])
async def log(request: pytest.FixtureRequest, data: DataDirectory) -> AsyncIterator[SqliteLog]:
    writer: Writer = "inline" if request.param == "inline" else "thread"
    store = await SqliteLog.open(data, writer=writer)
    yield store
    await store.aclose()


async def fill(log: SqliteLog, count: int, session: str = SESSION) -> None:
    """Acquire a session and append `count` records."""
    await log.acquire(session)
    outcomes = Outcomes(log)
    for seq in range(1, count + 1):
        outcomes.append(opened(session=session) if seq == 1 else heard(seq), session=session)
    assert all(error is None for _, error in await outcomes.all())


def size(path: str) -> int:
    """Return the size of a file in bytes."""
    return os.stat(path).st_size


def change(paths: DataPaths, statement: str, *values: object) -> None:
    """Change the database behind the store's back."""
    connection = sqlite3.connect(paths.database, isolation_level=None)
    connection.execute(statement, values)
    connection.close()


class TestReopening:
    async def test_everything_is_there_again(self, log: SqliteLog, data: DataDirectory) -> None:
        await log.acquire(SESSION)
        outcomes = Outcomes(log)
        ref = SampleRef("out", 0, 3840)
        records = [opened(), heard(2), spoken(3, number=2)]
        for transaction in records:
            outcomes.append(transaction, [SampleWrite(ref, bytes(3840))] if transaction.seq == 3 else [])
        await outcomes.all()
        await log.save_snapshot(SESSION, Snapshot(seq=2, version=1, state=b"state"))
        index = await log.sessions()
        await log.aclose()

        again = await SqliteLog.open(data)
        assert await again.read(SESSION, 0) == records
        assert await again.sessions() == index
        assert await again.load_snapshot(SESSION) == Snapshot(seq=2, version=1, state=b"state")
        assert await again.samples.read(SESSION, ref) == bytes(3840)
        outcomes = Outcomes(again)
        outcomes.append(heard(4, term=1))
        assert await again.acquire(SESSION) == 2
        outcomes.append(spoken(4, term=2, number=3))
        assert await outcomes.all() == [(4, Fenced), (4, None)]
        assert await again.locate(SESSION, 2) == 3
        await again.aclose()

    async def test_a_closed_log_is_one_file(self, log: SqliteLog, data: DataDirectory) -> None:
        await fill(log, 10)
        await log.aclose()
        await log.aclose()
        assert [path.name for path in data.paths.root.glob("log*")] == ["log.sqlite3"]

    async def test_another_layout_is_refused(self, log: SqliteLog, data: DataDirectory) -> None:
        await log.aclose()
        change(data.paths, "PRAGMA user_version = 99")
        with pytest.raises(Unavailable, match="layout 99, which a later version"):
            await SqliteLog.open(data)
        change(data.paths, "PRAGMA application_id = 1")
        with pytest.raises(Unavailable, match="not a log"):
            await SqliteLog.open(data)

    async def test_a_file_that_is_no_database_is_refused(self, data: DataDirectory) -> None:
        data.paths.database.write_bytes(b"no database at all" * 100)
        with pytest.raises(Unavailable):
            await SqliteLog.open(data)


CHILD = """
import sys
from pathlib import Path
import anyio
from antiphon.engine.datadir import DataDirectory
from antiphon.engine.sqlite_log import SqliteLog
from antiphon.events.audio import SampleRef
from antiphon.events.commands import Tick
from antiphon.events.events import AudioReceived
from antiphon.events.log import SampleWrite, Transaction

async def main():
    log = await SqliteLog.open(DataDirectory(Path(sys.argv[1])), writer=sys.argv[2])
    await log.acquire("s")
    seq = 0
    ahead = anyio.Semaphore(200)
    def settled(error, seq):
        assert error is None
        print(seq, flush=True)
        ahead.release()
    while True:
        await ahead.acquire()
        seq += 1
        ref = SampleRef("in", (seq - 1) * 8, 8)
        transaction = Transaction(
            seq=seq, term=1, at=seq, command=Tick(), events=(AudioReceived(ref=ref, wire_bytes=8),)
        )
        log.append(
            "s", transaction, [SampleWrite(ref, b"%08d" % seq)], lambda error, seq=seq: settled(error, seq)
        )

anyio.run(main, backend_options={"use_uvloop": True})
"""


def run_and_kill(folder: Path, writer: Writer, least: int) -> int:
    """Let a child append until `least` records are settled, kill it, and return how many it said were settled."""
    settled = 0
    command = [sys.executable, "-c", CHILD, str(folder), writer]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            settled = int(line) if line.endswith("\n") else settled
            if settled == least:
                child.kill()
        child.wait()
    assert settled >= least
    return settled


@pytest.mark.parametrize("writer", ["inline", "thread"])
@pytest.mark.parametrize("least", [1, 3_000])
async def test_a_killed_process_loses_nothing_that_was_settled(tmp_path: Path, writer: Writer, least: int) -> None:
    settled = run_and_kill(tmp_path, writer, least)
    reader = SqliteLog.open_reader(DataPaths(tmp_path))
    assert len(await reader.read("s", 0, limit=10**6)) >= settled
    await reader.aclose()
    with DataDirectory(tmp_path) as data:
        log = await SqliteLog.open(data, writer=writer)
        records = await log.read("s", 0, limit=10**6)
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        assert len(records) >= settled
        sound = await log.samples.read("s", SampleRef("in", 0, 8 * len(records)))
        assert sound == b"".join(b"%08d" % record.seq for record in records)
        assert await log.acquire("s") == 2
        outcomes = Outcomes(log)
        outcomes.append(heard(len(records) + 1, term=2), session="s")
        assert await outcomes.all() == [(len(records) + 1, None)]
        await log.aclose()


class TestDamage:
    async def expect(self, log: SqliteLog, seq: int, why: str) -> None:
        """What stands before the damage is read; what stands there is named."""
        assert [record.seq for record in await log.read(SESSION, 0)] == list(range(1, seq))
        with pytest.raises(Corrupt, match=why) as caught:
            await log.read(SESSION, seq - 1)
        assert caught.value.seq == seq

    async def test_a_changed_byte_is_found(self, log: SqliteLog, data: DataDirectory) -> None:
        await fill(log, 5)
        change(data.paths, "UPDATE records SET data = zeroblob(length(data)) WHERE seq = 4")
        await self.expect(log, 4, "checksum")

    async def test_a_torn_tail_is_found(self, log: SqliteLog, data: DataDirectory) -> None:
        await fill(log, 5)
        change(data.paths, "UPDATE records SET data = substr(data, 1, length(data) - 1) WHERE seq = 5")
        await self.expect(log, 5, "checksum")

    async def test_a_missing_record_is_found(self, log: SqliteLog, data: DataDirectory) -> None:
        await fill(log, 5)
        change(data.paths, "DELETE FROM records WHERE seq = 3")
        await self.expect(log, 3, "missing")
        with pytest.raises(Corrupt):
            await log.locate(SESSION, 1)

    async def test_a_misplaced_record_is_found(self, log: SqliteLog, data: DataDirectory) -> None:
        await fill(log, 5)
        change(data.paths, "UPDATE records SET seq = 10 - seq WHERE seq IN (4)")
        await self.expect(log, 4, "missing")
        change(data.paths, "UPDATE records SET seq = 4 WHERE seq = 5")
        await self.expect(log, 4, "checksum")

    async def test_a_record_of_another_version_is_found(self, log: SqliteLog, data: DataDirectory) -> None:
        await fill(log, 2)
        strange = b"\x81\xa3seq\x02"
        change(data.paths, "UPDATE records SET data = ?, crc = ? WHERE seq = 2", strange, checksum(strange, 2))
        await self.expect(log, 2, "decoded")

    async def test_a_record_of_a_later_version_is_not_taken_for_damage(
        self, log: SqliteLog, data: DataDirectory
    ) -> None:
        await fill(log, 2)
        later = b"\x82\xa3seq\x02\xa1v\x7f"
        change(data.paths, "UPDATE records SET data = ?, crc = ? WHERE seq = 2", later, checksum(later, 2))
        await self.expect(log, 2, "record 2 cannot be read: it has layout 127, which a later version")
        with pytest.raises(LaterRecord):
            await log.read(SESSION, 1)

    async def test_a_record_of_layout_1_is_read(self, log: SqliteLog, data: DataDirectory) -> None:
        await fill(log, 2)
        (record,) = await log.read(SESSION, 1)
        former = msgspec.to_builtins(record)
        del former["v"]
        old = msgspec.msgpack.encode(former)
        change(data.paths, "UPDATE records SET data = ?, crc = ? WHERE seq = 2", old, checksum(old, 2))
        assert await log.read(SESSION, 1) == [record]

    async def test_a_record_that_names_another_place_is_found(self, log: SqliteLog, data: DataDirectory) -> None:
        await fill(log, 2)
        other = encode(heard(7))
        change(data.paths, "UPDATE records SET data = ?, crc = ? WHERE seq = 2", other, checksum(other, 2))
        await self.expect(log, 2, "says that it is 7")

    async def test_a_damaged_snapshot_counts_as_none(self, log: SqliteLog, data: DataDirectory) -> None:
        await fill(log, 2)
        await log.save_snapshot(SESSION, Snapshot(seq=2, version=1, state=b"state"))
        change(data.paths, "UPDATE snapshots SET state = X'00'")
        assert await log.load_snapshot(SESSION) is None

    async def test_a_snapshot_ahead_of_the_log_counts_as_none(self, log: SqliteLog) -> None:
        await fill(log, 2)
        await log.save_snapshot(SESSION, Snapshot(seq=3, version=1, state=b"state"))
        assert await log.load_snapshot(SESSION) is None

    async def test_a_damaged_database_is_not_an_empty_log(self, log: SqliteLog, data: DataDirectory) -> None:
        await fill(log, 400)
        await log.aclose()
        with data.paths.database.open("r+b") as file:
            file.seek(8 * 4096)
            file.write(os.urandom(16 * 4096))
        reader = SqliteLog.open_reader(data.paths)

        async def read_all() -> None:
            for after in range(0, 400, 10):
                await reader.read(SESSION, after)

        with pytest.raises((Corrupt, Unavailable)):
            await read_all()
        await reader.aclose()

    async def test_sound_that_a_loss_of_power_took_is_told_at_the_start(
        self, log: SqliteLog, data: DataDirectory
    ) -> None:
        await log.acquire(SESSION)
        outcomes = Outcomes(log)
        outcomes.append(opened())
        for seq in range(2, 40):
            ref = SampleRef("in", 10 * (seq - 2), 10)
            outcomes.append(heard(seq, start=ref.start, size=10), [SampleWrite(ref, bytes([seq] * 10))])
        await outcomes.all()
        await log.aclose()
        os.truncate(log.samples.path(SESSION, "in"), 355)
        again = await SqliteLog.open(data)
        with capture_logs() as lines:
            assert await again.acquire(SESSION) == 2
            assert await again.acquire(SESSION) == 3
        ((line),) = lines
        assert (line["session"], line["seq"], line["records"]) == (SESSION, 37, 3)
        assert "was never written, or is lost" in line["why"]
        assert len(await again.read(SESSION, 0)) == 39, "nothing is cut for it"
        change(data.paths, "UPDATE records SET data = X'00' WHERE seq = 39")
        change(data.paths, "UPDATE records SET sound = X'00' WHERE seq = 38")
        with capture_logs() as lines:
            await (third := await SqliteLog.open(data)).acquire(SESSION)
        assert [line["seq"] for line in lines] == [37], "whoever reads the record is told what is wrong with it"
        await third.aclose()
        await again.aclose()


class TestFullDisk:
    async def limit(self, log: SqliteLog, pages: int) -> None:
        """Let the database grow to `pages` pages and no further."""
        log._writer.connection.execute(f"PRAGMA max_page_count = {pages}")

    async def test_nothing_settled_is_lost_and_the_store_recovers(self, log: SqliteLog) -> None:
        await fill(log, 10)
        await self.limit(log, 24)
        outcomes = Outcomes(log)
        for seq in range(11, 2_000):
            outcomes.append(heard(seq))
        told = await outcomes.all()
        kept = sum(kind is None for _, kind in told)
        assert 0 < kept < len(told)
        assert told == [(seq, None if seq < 11 + kept else Unavailable) for seq in range(11, 2_000)]
        assert [record.seq for record in await log.read(SESSION, 0, 5_000)] == list(range(1, 11 + kept))

        await self.limit(log, 100_000)
        outcomes.append(heard(11 + kept))  # there is space again, and this term has failed
        assert (await outcomes.all())[-1] == (11 + kept, Unavailable)
        assert await log.acquire(SESSION) == 2
        outcomes.append(heard(11 + kept, term=2))
        assert (await outcomes.all())[-1] == (11 + kept, None)

    async def test_another_session_goes_on_when_there_is_space(self, log: SqliteLog) -> None:
        await fill(log, 1)
        await fill(log, 1, "sess_other")
        log._writer.connection.execute("PRAGMA query_only = 1")
        outcomes = Outcomes(log)
        outcomes.append(heard(2))
        assert await outcomes.all() == [(2, Unavailable)]
        with pytest.raises(Unavailable, match="acquire"):
            await log.acquire(SESSION)
        with pytest.raises(Unavailable, match="snapshot"):
            await log.save_snapshot(SESSION, Snapshot(seq=1, version=1, state=b""))
        log._writer.connection.execute("PRAGMA query_only = 0")
        outcomes.append(heard(2), session="sess_other")
        assert (await outcomes.all())[-1] == (2, None)

    async def test_the_opening_fails_as_a_whole(self, log: SqliteLog) -> None:
        await log.acquire(SESSION)
        log._writer.connection.execute(
            "CREATE TEMP TRIGGER fault BEFORE UPDATE ON main.sessions BEGIN SELECT raise(FAIL, 'no'); END"
        )
        outcomes = Outcomes(log)
        outcomes.append(opened())
        outcomes.append(heard(2))
        assert await outcomes.all() == [(1, Unavailable), (2, Unavailable)]
        with pytest.raises(UnknownSession):
            await log.read(SESSION, 0)
        assert await log.sessions() == []

    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
    async def test_samples_that_cannot_be_written_fail_their_session_alone(
        self, log: SqliteLog, monkeypatch: pytest.MonkeyPatch, code: int
    ) -> None:
        await fill(log, 1)
        await fill(log, 1, "sess_other")

        def full(*_: object) -> int:
            raise OSError(code, os.strerror(code))

        outcomes = Outcomes(log)
        ref = SampleRef("in", 0, 2)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            outcomes.append(heard(2), [SampleWrite(ref, b"ab")])
        outcomes.append(heard(2))
        outcomes.append(heard(2), [SampleWrite(ref, b"cd")], session="sess_other")
        assert [kind for _, kind in await outcomes.all()] == [Unavailable, Unavailable, None]
        assert os.strerror(code) in str(outcomes.told[0][1])
        assert [record.seq for record in await log.read(SESSION, 0)] == [1]
        term = await log.acquire(SESSION)
        outcomes.append(heard(2, term), [SampleWrite(ref, b"ef")])
        assert (await outcomes.all())[-1] == (2, None)
        assert await log.samples.read(SESSION, ref) == b"ef"

    async def test_a_probe_says_whether_both_halves_can_be_written(
        self, log: SqliteLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await log.probe()
        log._writer.connection.execute("PRAGMA query_only = 1")
        with pytest.raises(Unavailable, match="cannot write the log"):
            await log.probe()
        log._writer.connection.execute("PRAGMA query_only = 0")
        await log.probe()

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(Path, "write_bytes", full)
            with pytest.raises(Unavailable, match=r"cannot write the samples: .*No space left"):
                await log.probe()
        await log.probe()
        assert await log.sessions() == []

    async def test_a_connection_that_cannot_even_roll_back_is_opened_anew(self, log: SqliteLog) -> None:
        await fill(log, 3)
        real = log._writer.connection
        log._writer.connection = Failing(real)  # type: ignore[assignment]
        outcomes = Outcomes(log)
        outcomes.append(heard(4))
        assert await outcomes.all() == [(4, Unavailable)]
        assert await log.acquire(SESSION) == 2, "what failed took nothing with it"
        outcomes.append(heard(4, term=2))
        assert (await outcomes.all())[-1] == (4, None)
        assert [record.seq for record in await log.read(SESSION, 0)] == [1, 2, 3, 4]

    async def test_a_database_that_is_gone_is_not_begun_anew(self, log: SqliteLog, data: DataDirectory) -> None:
        """A new one in its place would be an empty log, and every session of it lost for good."""
        await fill(log, 3)
        aside = data.paths.root / "aside"
        data.paths.database.rename(aside)
        log._writer.connection = Failing(log._writer.connection)  # type: ignore[assignment]
        outcomes = Outcomes(log)
        outcomes.append(heard(4))
        assert await outcomes.all() == [(4, Unavailable)]
        for _ in range(2):
            with pytest.raises(Unavailable):
                await log.acquire(SESSION)
        assert not data.paths.database.exists()
        aside.rename(data.paths.database)
        assert await log.acquire(SESSION) == 2


class Failing:
    """A connection whose disk fails in the middle of everything, also of taking it back."""

    in_transaction = True

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, *_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    def close(self) -> None:
        self._connection.close()


class TestReaders:
    async def test_read_beside_the_writer(self, log: SqliteLog, data: DataDirectory) -> None:
        reader = SqliteLog.open_reader(data.paths)
        with pytest.raises(UnknownSession):
            await reader.read(SESSION, 0)
        await fill(log, 3)
        assert await reader.read(SESSION, 0) == await log.read(SESSION, 0)
        assert await reader.sessions() == await log.sessions()
        assert await reader.locate(SESSION, 0) == 0
        assert await reader.load_snapshot(SESSION) is None
        with pytest.raises(UnknownSession):
            await reader.samples.read(SESSION, SampleRef("in", 0, 1))
        await reader.aclose()
        with pytest.raises(Unavailable, match="closed"):
            await reader.read(SESSION, 0)

    async def test_read_when_no_server_runs(self, log: SqliteLog, data: DataDirectory) -> None:
        await fill(log, 3)
        await log.aclose()
        reader = SqliteLog.open_reader(data.paths)
        assert len(await reader.read(SESSION, 0)) == 3
        await reader.aclose()

    async def test_say_that_there_is_no_log(self, tmp_path: Path) -> None:
        reader = SqliteLog.open_reader(DataPaths(tmp_path))
        with pytest.raises(Unavailable, match="there is no log"):
            await reader.sessions()

    async def test_many_at_a_time(self, log: SqliteLog) -> None:
        await fill(log, 300)
        sizes: list[int] = []

        async def read(after: int) -> None:
            sizes.append(len(await log.read(SESSION, after)))

        async with anyio.create_task_group() as group:
            for after in range(0, 300, 10):
                group.start_soon(read, after)
        assert sorted(sizes) == list(range(10, 301, 10))


class TestCheckpoints:
    async def test_move_the_log_while_it_is_written(
        self, log: SqliteLog, data: DataDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite_checkpoint, "PAGES", 20)
        await log.acquire(SESSION)
        outcomes = Outcomes(log)
        outcomes.append(opened())
        for seq in range(2, 3_000):
            outcomes.append(heard(seq))
            if not seq % 20:
                await outcomes.all()
                await to_thread.run_sync(log._writer._checkpoints.idle.wait)
        await outcomes.all()
        assert size(f"{data.paths.database}-wal") < 200 * 4096  # without them: 800 pages
        assert [record.seq for record in await log.read(SESSION, 0, 10_000)] == list(range(1, 3_000))
        await log.aclose()
        again = await SqliteLog.open(data)
        assert len(await again.read(SESSION, 0, 10_000)) == 2_999
        await again.aclose()

    async def test_one_that_fails_is_done_later(
        self, log: SqliteLog, data: DataDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The disk may be full: the write-ahead log is the durable copy, and grows meanwhile."""
        monkeypatch.setattr(sqlite_checkpoint, "PAGES", 20)
        asked: list[object] = []

        def fail(connection: sqlite3.Connection) -> int:
            asked.append(connection)
            if len(asked) > 3:
                return move(connection)
            return move(Failing(connection))  # type: ignore[arg-type]

        move = sqlite_checkpoint.move
        monkeypatch.setattr(sqlite_checkpoint, "move", fail)
        await log.acquire(SESSION)
        outcomes = Outcomes(log)
        outcomes.append(opened())
        for seq in range(2, 400):
            outcomes.append(heard(seq))
            if not seq % 20:
                await outcomes.all()
                await to_thread.run_sync(log._writer._checkpoints.idle.wait)
        assert {kind for _, kind in await outcomes.all()} == {None}
        assert len(asked) > 4
        assert [record.seq for record in await log.read(SESSION, 0, 1_000)] == list(range(1, 400))

    async def test_the_writer_helps_when_the_log_has_become_long(
        self, log: SqliteLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        helped: list[int] = []

        def help_out(connection: sqlite3.Connection) -> int:
            helped.append(len(outcomes.told))
            return sqlite_checkpoint.move(connection)

        monkeypatch.setattr(sqlite_checkpoint, "PAGES", 20)
        monkeypatch.setattr(sqlite_checkpoint, "CATCH_UP_PAGES", 1)
        monkeypatch.setattr(sqlite_writer, "move", help_out)
        await log.acquire(SESSION)
        outcomes = Outcomes(log)
        outcomes.append(opened())
        for seq in range(2, 300):
            outcomes.append(heard(seq))
            await outcomes.all()
            await to_thread.run_sync(log._writer._checkpoints.idle.wait)
        await log.aclose()
        # Every 20 commits one checkpoint; the commit behind its end is the one after which the writer helps.
        assert 10 <= len(helped) <= 15
        assert all(kind is None for _, kind in await outcomes.all())


class TestBatches:
    async def test_a_commit_has_a_bounded_number_of_rows(
        self, log: SqliteLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sizes: list[int] = []
        insert = log._writer._insert
        monkeypatch.setattr(
            log._writer, "_insert", lambda rows, indexed: (sizes.append(len(rows)), insert(rows, indexed))
        )
        await fill(log, 1_000)
        assert sum(sizes) == 1_000
        assert max(sizes) == MOST_ROWS

    async def test_closed_sessions_are_not_kept_for_ever(
        self, log: SqliteLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("antiphon.engine.sqlite_log._CLOSED_HEADS", 2)
        for n in range(5):
            await log.acquire(f"s{n}")
            outcomes = Outcomes(log)
            outcomes.append(opened(session=f"s{n}"), session=f"s{n}")
            outcomes.append(closed(2, session=f"s{n}"), session=f"s{n}")
            await outcomes.all()
        assert sorted(log._heads) == ["s3", "s4"]

    async def test_a_cancelled_acquire_leaves_the_session_usable(self, log: SqliteLog) -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await log.acquire(SESSION)
        assert await log.acquire(SESSION) in (1, 2)
        outcomes = Outcomes(log)
        outcomes.append(opened(term=(await log.acquire(SESSION))))
        assert await outcomes.all() == [(1, None)]


async def test_a_writer_that_fails_answers_everybody(log: SqliteLog, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(log, 1)
    faults: list[object] = []
    monkeypatch.setattr("threading.excepthook", lambda fault: faults.append(fault.exc_type))
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(type(context["exception"])))

    def fault(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(log._writer, "record", fault)
    outcomes = Outcomes(log)
    for seq in range(2, 300):
        outcomes.append(heard(seq))
    assert {kind for _, kind in await outcomes.all()} == {Unavailable}
    with pytest.raises(Unavailable):
        await log.acquire(SESSION)
    await log.aclose()
    assert set(faults) == {ZeroDivisionError}
