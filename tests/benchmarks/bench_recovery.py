"""Starting again: how long it takes until the sessions that a killed process left can be resumed.

Run it: python tests/benchmarks/run.py recovery, or with other sizes
python tests/benchmarks/bench_recovery.py [--sessions 1000] [--minutes 10] [--whole 20]

The store holds 1,000 conversations of 10 minutes: half of them give back every frame of 80 ms, the others take
turns of 10 s. Each was cut off somewhere in its last 2,000 records, so that a snapshot is up to 2,000 records old.
The limit is a bare sqlite3 loop that reads the same rows, snapshots and what lies behind them, and checks their
sums. Without snapshots only some sessions are folded, and the time is that of a thousand such. The second part is
one session of an hour: what it takes on the disk, and how long its fold. 5 GB of disk, about four minutes.
"""

import argparse
import asyncio
import sqlite3
import time
import zlib
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import uvloop
from figures import Figure, Say, first_in_line, fresh_folder, quiet
from long_talks import TALKS, Kept, SnapshotRow, fill, save, talk
from rich.console import Console

from antiphon.engine.clock import SystemClock
from antiphon.engine.datadir import DataDirectory, DataPaths
from antiphon.engine.hosts import InlineHost
from antiphon.engine.hub import Hub
from antiphon.engine.opening import Resumption
from antiphon.engine.recovery import fold
from antiphon.engine.settings import HubSettings
from antiphon.engine.sqlite_log import SqliteLog
from antiphon.engine.tokens import token
from antiphon.sessions.plugins import ECHO
from antiphon.stages.echo import EchoStage
from antiphon.transport.serve import calm_collector

SESSIONS, MINUTES, WHOLE = 1_000, 10, 20
ROUNDS = 2
BEAT_S = 0.001
PCM_IN, PCM_OUT = 32_000, 48_000
"""Bytes of sound in a second, in and out."""
LIMIT = "bare sqlite3 and crc32 of the same rows"


class Restarted(NamedTuple):
    """One start: seconds until all sessions were back, and until one was whose client came at once; the longest
    time for which the loop did nothing else."""

    back: float
    resumed: float
    late: float


def bare(paths: DataPaths) -> tuple[float, int]:
    """Read what a start has to read; return the seconds and the records."""
    records = 0
    with closing(sqlite3.connect(paths.database)) as connection:
        begin = time.perf_counter()
        for (key,) in connection.execute("SELECT key FROM sessions WHERE state = 'open'").fetchall():
            after = 0
            for seq, crc, state in connection.execute(
                "SELECT seq, crc, state FROM snapshots WHERE key = ?", (key,)
            ):
                assert zlib.crc32(state, seq) == crc
                after = seq
            rows = connection.execute(
                "SELECT seq, crc, data, sound FROM records WHERE key = ? AND seq > ? ORDER BY seq", (key, after)
            )
            for seq, crc, data, sound in rows:
                assert zlib.crc32(sound or b"", zlib.crc32(data, seq)) == crc
                records += 1
        return time.perf_counter() - begin, records


async def restarted(folder: Path, names: list[str]) -> Restarted:
    """Start on a store, and be killed when everything is back."""
    late = 0.0

    async def beat() -> None:
        nonlocal late
        while True:
            begin = time.perf_counter()
            await asyncio.sleep(BEAT_S)
            late = max(late, time.perf_counter() - begin - BEAT_S)

    calm_collector()
    settings = HubSettings(max_sessions=len(names), shutdown_ms=1)
    with DataDirectory(folder) as data:
        begin = time.perf_counter()
        log = await SqliteLog.open(data)
        beating = asyncio.create_task(beat())
        async with Hub(
            log, log.samples, InlineHost(EchoStage()), ECHO, settings, SystemClock(), data.secret
        ) as hub:
            await hub.counted.wait()
            last = names[0]  # the index is read from its end
            await hub.resume(Resumption(session=last, token=token(data.secret, last, 1), control_id="back"))
            resumed = time.perf_counter() - begin
            await hub.recovered.wait()
            back = time.perf_counter() - begin
            assert (hub.restart.back, hub.restart.left) == (len(names), len(names))
            beating.cancel()
            await log.aclose()
    return Restarted(back, resumed, late)


def _lateness(found: Restarted) -> float:
    return found.late


class Before:
    """A store as it was, to be put back: the place of its last record, and its snapshots."""

    def __init__(self, folder: Path) -> None:
        self._paths = DataPaths(folder)
        with closing(sqlite3.connect(self._paths.database, isolation_level=None)) as connection:
            (self._last,) = connection.execute("SELECT max(n) FROM records").fetchone()
            self._snapshots: list[SnapshotRow] = connection.execute(
                "SELECT key, seq, version, crc, state FROM snapshots"
            ).fetchall()

    def put_back(self) -> None:
        """Forget what was recorded since."""
        with closing(sqlite3.connect(self._paths.database, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            connection.execute("DELETE FROM records WHERE n > ?", (self._last,))
            connection.execute("UPDATE sessions SET term = 1, state = 'open'")
            save(connection, self._snapshots)
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def many(say: Say, talks: list[Kept], sessions: int) -> list[Figure]:
    """Measure a start with many sessions, and the next one."""
    with fresh_folder() as folder:
        say(f"recovery: writing {sessions:,} sessions")
        names = fill(folder, talks, sessions)
        before = Before(folder)
        limits, firsts, seconds = list[float](), list[Restarted](), list[Restarted]()
        records = 0
        for n in range(ROUNDS):
            say(f"recovery: start {n + 1} of {ROUNDS}")
            took, records = bare(DataPaths(folder))
            limits.append(took)
            firsts.append(uvloop.run(restarted(folder, names)))
            seconds.append(uvloop.run(restarted(folder, names)))
            before.put_back()
    best = min(firsts)
    return [
        _figure(f"{sessions:,} sessions back, {records:,} records behind their snapshots", best.back, min(limits)),
        _figure("the same at the next start, right behind it", min(seconds).back, None),
        _figure("of these, a client that comes at once has the last one", best.resumed, None, "ms", ""),
        _figure(
            "longest time that the loop served nobody else", min(firsts, key=_lateness).late, None, "ms", "2 to 5"
        ),
    ]


def whole(say: Say, talks: list[Kept], sessions: int) -> list[Figure]:
    """Measure a start of sessions that have no snapshots."""
    with fresh_folder() as folder:
        say(f"recovery: {sessions} without snapshots")
        names = fill(folder, talks, sessions, snapshots=False)
        took, records = bare(DataPaths(folder))
        found = uvloop.run(restarted(folder, names))
    scale = 1_000 / sessions
    return [
        _figure("1,000 sessions back without snapshots", found.back * scale, took * scale, goal=""),
        _figure("longest time that the loop served nobody else", found.late, None, "ms", "2 to 5"),
        Figure(
            part="recovery",
            what="records read, checked, decoded and folded a second",
            ours=records / found.back,
            unit="1/s",
            beside=LIMIT,
            theirs=records / took,
        ),
    ]


def hour(say: Say, kind: str, seconds: int) -> list[Figure]:
    """Measure what an hour takes on the disk, and its fold."""
    with fresh_folder() as folder:
        say(f"recovery: an hour of {kind}")
        kept = uvloop.run(talk(folder, kind, seconds))
        paths = DataPaths(folder)
        log = paths.database.stat().st_size / 1e6
        sound = sum(file.stat().st_size for file in paths.samples.rglob("*") if file.is_file()) / 1e6
        tail = len(kept.records) - kept.snapshots[-1].seq
        behind = min(uvloop.run(_folded(folder, kept.session)) for _ in range(ROUNDS))
        with closing(sqlite3.connect(paths.database)) as connection, connection:
            connection.execute("DELETE FROM snapshots")
        limit, _ = bare(paths)
        alone = min(uvloop.run(_folded(folder, kept.session)) for _ in range(ROUNDS))
    said = seconds if kind == "frames" else seconds / 2
    records = f"{len(kept.records):,} records"
    return [
        Figure(
            part="1 hour",
            what=f"{kind}: sound on the disk",
            ours=sound,
            unit="MB",
            beside="pcm16 of what was said, 16 kHz in and 24 out",
            theirs=said * (PCM_IN + PCM_OUT) / 1e6,
        ),
        Figure(part="1 hour", what=f"{kind}: log on the disk, {records}", ours=log, unit="MB"),
        _figure(f"{kind}: folded from a snapshot {tail:,} records ago", behind, None, "ms", "", part="1 hour"),
        _figure(f"{kind}: folded from the beginning", alone, limit, "ms", "", part="1 hour"),
    ]


async def _folded(folder: Path, name: str) -> float:
    with DataDirectory(folder) as data:
        log = await SqliteLog.open(data)
        begin = time.perf_counter()
        assert await fold(log, name) is not None
        took = time.perf_counter() - begin
        await log.aclose()
    return took


def _figure(
    what: str, ours: float, theirs: float | None, unit: str = "s", goal: str = "seconds", part: str = "recovery"
) -> Figure:
    scale = 1e3 if unit == "ms" else 1.0
    return Figure(
        part=part,
        what=what,
        ours=ours * scale,
        unit=unit,
        beside=LIMIT if theirs is not None else "",
        theirs=theirs * scale if theirs is not None else None,
        goal=goal,
    )


def measure(
    say: Say, sessions: int = SESSIONS, minutes: int = MINUTES, alone: int = WHOLE, hours: float = 1.0
) -> list[Figure]:
    """Run it: about four minutes."""
    quiet()
    seconds = int(hours * 3_600)
    with ExitStack() as stack:
        talks: list[Kept] = []
        for kind in TALKS:
            say(f"recovery: {minutes} minutes of {kind}")
            talks.append(uvloop.run(talk(stack.enter_context(fresh_folder()), kind, minutes * 60)))
        made = [*many(say, talks, sessions), *whole(say, talks, alone)]
    return [*made, *(figure for kind in TALKS for figure in hour(say, kind, seconds))]


def main() -> None:
    """Measure in other sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--minutes", type=int, default=MINUTES)
    parser.add_argument("--whole", type=int, default=WHOLE, help="sessions that are folded without snapshots")
    parser.add_argument("--hours", type=float, default=1.0)
    options = parser.parse_args()
    console = Console()
    with first_in_line():
        figures = measure(console.log, options.sessions, options.minutes, options.whole, options.hours)
    for found in figures:
        beside = f"   beside {found.theirs:,.2f} ({found.beside})" if found.theirs is not None else ""
        console.print(f"{found.part}: {found.what}: {found.ours:,.2f} {found.unit}{beside}", highlight=False)


if __name__ == "__main__":
    main()
