"""Durable append: this store beside a bare sqlite3 loop of the same rows, and beside the memory store.

Run it: python tests/benchmarks/bench_append.py [--rows 20000] [--seconds 2] [--rounds 3]

Part 1 appends rows of 100 sessions with equal commit sizes and prints microseconds a row and the ratio to the
bare loop, which inserts rows that are encoded already into the same tables with the same settings, and moves
its write-ahead log as SQLite does by default: in the commit that makes it too long.
Part 2 is the server's case: 100 sessions, 25 commands a second each, a fifth of them with 3,840 bytes of sound,
on a loop that other work keeps busy; it prints how long an append takes to settle, and how late the loop runs.
"""

import argparse
import asyncio
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from antiphon.engine.datadir import DataDirectory
from antiphon.engine.log_head import summarise
from antiphon.engine.memory_log import MemoryLog
from antiphon.engine.sqlite_log import SqliteLog
from antiphon.engine.sqlite_schema import checksum, connect_writer
from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.commands import StageProduced
from antiphon.events.events import AudioDelta
from antiphon.events.log import LogError, SampleWrite, Transaction, encode

SESSIONS = 100
SOUND = bytes(3840)
Store = MemoryLog | SqliteLog


def delta(session: str, seq: int) -> Transaction:
    """One piece of an answer, as the core would decide it."""
    event = AudioDelta(
        number=seq,
        count=1,
        session=session,
        response_id="resp_" + "0" * 32,
        item_id="item_" + "0" * 32,
        ref=SampleRef("out", (seq - 1) * len(SOUND), len(SOUND)),
        format=AudioFormat("pcm16", 24_000),
        audio_ms=80 * seq,
        text="word ",
        epoch=3,
    )
    command = StageProduced(request=f"{session}.e3.turn4", text="word ", size=len(SOUND))
    return Transaction(seq=seq, term=1, at=seq * 40_000, command=command, events=(event,))


def transactions(rows: int) -> list[tuple[str, Transaction]]:
    """`rows` transactions, the sessions taking turns."""
    names = [f"sess_{n:032x}" for n in range(SESSIONS)]
    return [(names[n % SESSIONS], delta(names[n % SESSIONS], n // SESSIONS + 1)) for n in range(rows)]


def percentile(times: Sequence[float], share: float) -> float:
    """Return the value that `share` of `times` does not exceed."""
    return sorted(times)[min(int(len(times) * share), len(times) - 1)]


# -- part 1 --------------------------------------------------------------------------------------------------


def bare(work: list[tuple[str, Transaction]], size: int, folder: Path) -> tuple[float, list[float]]:
    """Insert encoded rows, `size` a commit; return seconds a row and the time of each commit."""
    connection = connect_writer(folder / "bare.sqlite3", "normal")
    connection.execute("PRAGMA wal_autocheckpoint = 1000")
    keys = {f"sess_{n:032x}": n for n in range(SESSIONS)}
    rows: list[tuple[int, int, int, int, int, bytes]] = []
    for session, transaction in work:
        data = encode(transaction)
        number = summarise(transaction).number
        crc = checksum(data, transaction.seq)
        rows.append((keys[session], transaction.seq, transaction.at, number, crc, data))
    insert = "INSERT INTO records (key, seq, at, number, crc, data) VALUES (?, ?, ?, ?, ?, ?)"
    commits: list[float] = []
    start = time.perf_counter()
    for first in range(0, len(rows), size):
        begin = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(insert, rows[first : first + size])
        connection.execute("COMMIT")
        commits.append(time.perf_counter() - begin)
    each = (time.perf_counter() - start) / len(rows)
    connection.close()
    return each, commits


async def through(log: Store, work: list[tuple[str, Transaction]], size: int) -> tuple[float, list[float]]:
    """Append `size` rows, wait until they are settled, and so on; return as `bare` does."""
    for n in range(SESSIONS):
        await log.acquire(f"sess_{n:032x}")
    commits: list[float] = []
    start = time.perf_counter()
    for first in range(0, len(work), size):
        begin = time.perf_counter()
        done = asyncio.get_running_loop().create_future()
        group = work[first : first + size]

        def settled(error: LogError | None, last: bool = False, done: asyncio.Future[None] = done) -> None:
            if error is not None:
                raise error
            if last:
                done.set_result(None)

        for session, transaction in group[:-1]:
            log.append(session, transaction, (), settled)
        session, transaction = group[-1]
        log.append(session, transaction, (), lambda error, settled=settled: settled(error, True))
        await done
        commits.append(time.perf_counter() - begin)
    each = (time.perf_counter() - start) / len(work)
    await log.aclose()
    return each, commits


async def throughput(rows: int, size: int) -> None:
    """Print one line for each store at one commit size."""
    work = transactions(rows)
    results: dict[str, tuple[float, list[float]]] = {}
    with fresh_folder() as folder:
        results["bare sqlite3 loop"] = bare(work, size, folder)
    results["memory"] = await through(MemoryLog(), work, size)
    for name in ("sqlite inline", "sqlite thread"):
        with fresh_folder() as folder, DataDirectory(folder) as data:
            results[name] = await through(await store(name, data), work, size)
    base = results["bare sqlite3 loop"][0]
    for name, (each, commits) in results.items():
        print(
            f"  {size:3} a commit  {name:18} {each * 1e6:7.1f} us a row  x{each / base:5.2f} of bare"
            f"   commit p50 {percentile(commits, 0.5) * 1e6:6.0f}  p99 {percentile(commits, 0.99) * 1e6:6.0f}"
            f"  max {max(commits) * 1e6:6.0f} us"
        )


# -- part 2 --------------------------------------------------------------------------------------------------


class Delays:
    """What one run measured, in seconds."""

    def __init__(self) -> None:
        self.settled: list[float] = []
        self.late: list[float] = []
        self.cpu = 0.0

    def line(self) -> str:
        """Render it."""
        settled, late = self.settled, self.late
        return (
            f"settled p50 {percentile(settled, 0.5) * 1e3:6.2f} p99 {percentile(settled, 0.99) * 1e3:7.2f}"
            f" p99.9 {percentile(settled, 0.999) * 1e3:7.2f} ms"
            f"   loop late p99 {percentile(late, 0.99) * 1e3:6.2f} ms   cpu {self.cpu * 100:3.0f} %"
        )


async def talk(log: Store, session: str, begin: float, end: float, delays: Delays) -> None:
    """Append 25 times a second, and note how long it takes to settle and how late this was called."""
    due = begin
    seq = 0
    while due < end:
        await asyncio.sleep(due - time.perf_counter())
        delays.late.append(time.perf_counter() - due)
        due += 0.04
        seq += 1
        transaction = delta(session, seq)
        sound = [SampleWrite(SampleRef("out", (seq - 1) * len(SOUND), len(SOUND)), SOUND)]
        asked = time.perf_counter()

        def settled(error: LogError | None, asked: float = asked) -> None:
            if error is not None:
                raise error
            delays.settled.append(time.perf_counter() - asked)

        log.append(session, transaction, sound if seq % 5 == 0 else [], settled)


async def other_work(busy: float, end: float) -> None:
    """Take the share `busy` of the loop, in pieces of 0.2 ms with the loop's other callbacks in between."""
    began, worked = time.perf_counter(), 0.0
    while busy and (now := time.perf_counter()) < end:
        if worked > busy * (now - began):
            await asyncio.sleep(0.001)
            continue
        while time.perf_counter() < now + 0.0002:
            pass
        worked += 0.0002
        await asyncio.sleep(0)


async def paced(log: Store, seconds: float, busy: float, delays: Delays) -> None:
    """Append at the server's pace beside work that takes the share `busy` of the loop."""
    names = [f"sess_{n:032x}" for n in range(SESSIONS)]
    for name in names:
        await log.acquire(name)
    cpu, begin = time.process_time(), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        group.create_task(other_work(busy, begin + seconds))
        for n, name in enumerate(names):
            group.create_task(talk(log, name, begin + n * 0.04 / SESSIONS, begin + seconds, delays))
    delays.cpu += (time.process_time() - cpu) / (time.perf_counter() - begin)
    await log.aclose()


async def all_delays(seconds: float, rounds: int) -> None:
    """Print the delays of each store under each load; the stores take turns, so that noise is shared."""
    for busy in (0.0, 0.5, 0.8, 1.0):
        found = {name: Delays() for name in ("memory", "sqlite inline", "sqlite thread")}
        for _ in range(rounds):
            for name, delays in found.items():
                with fresh_folder() as folder, DataDirectory(folder) as data:
                    await paced(await store(name, data), seconds, busy, delays)
        for name, delays in found.items():
            delays.cpu /= rounds
            print(f"  loop {busy * 100:3.0f} % busy  {name:14} {delays.line()}")


async def store(name: str, data: DataDirectory) -> Store:
    """Open a store by its name in the tables."""
    if name == "memory":
        return MemoryLog()
    return await SqliteLog.open(data, writer="inline" if name == "sqlite inline" else "thread")


class fresh_folder:  # noqa: N801, used as a function
    """A folder on the disk of the working directory, removed afterwards."""

    def __enter__(self) -> Path:
        self.path = Path(tempfile.mkdtemp(prefix="bench-append-"))
        return self.path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path)


def main() -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(
        f"SQLite {sqlite3.sqlite_version}, {options.rows} rows of {len(encode(delta('sess_' + '0' * 32, 9)))} bytes"
    )
    for size in (1, 8, 64):
        uvloop.run(throughput(options.rows, size))
    uvloop.run(all_delays(options.seconds, options.rounds))


if __name__ == "__main__":
    main()
