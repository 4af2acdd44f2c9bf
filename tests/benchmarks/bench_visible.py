"""From decision to visible: how long what was decided waits until readers may see it, at 2,500 entries a second.

Run it: python tests/benchmarks/run.py append
or python tests/benchmarks/bench_visible.py [--seconds 3] [--rounds 3]

100 sessions of the echo, in one hub without sockets: each is given a frame of 80 ms and gives it back, 12.5 times
a second, which is 2,500 transactions. Measured from the decision to the moment at which every reader is told; with
the durable log (where the sound is written too), and with the log in memory. The limit is a bare sqlite3 loop that
is given as many rows as large at the same pace and follows the same rule: in the next round of the loop it commits
what is there, at most 64 rows, with the same settings; its log is moved as SQLite does by default.
"""

import argparse
import asyncio
import time
from collections.abc import Callable
from contextlib import closing
from itertools import chain
from pathlib import Path

import anyio
import uvloop
from figures import Figure, Say, first_in_line, fresh_folder, percentile
from long_talks import FRAME_MS, PLACES
from talkers import SOUND

from antiphon.engine.attachment import Attachment
from antiphon.engine.clock import SystemClock
from antiphon.engine.datadir import DataDirectory
from antiphon.engine.hosts import InlineHost
from antiphon.engine.hub import Hub
from antiphon.engine.ingress import AppendRequest
from antiphon.engine.memory_log import MemoryLog
from antiphon.engine.opening import Opening
from antiphon.engine.published import Published
from antiphon.engine.settings import HubSettings
from antiphon.engine.sqlite_log import SqliteLog
from antiphon.engine.sqlite_schema import connect_writer
from antiphon.engine.sqlite_writer import Row
from antiphon.events.config import ConfigPatch
from antiphon.sessions.plugins import ECHO
from antiphon.stages.echo import EchoStage
from antiphon.transport.serve import calm_collector

SESSIONS = 100
PERIOD_S = FRAME_MS / 1000
DATA, PLACE = bytes(420), bytes(17)
"""As large as a piece of sound that goes out, and what is said of where it lies."""
MOST = 64
SECONDS, ROUNDS = 3.0, 3


async def load(say: Callable[[int], None], seconds: float) -> None:
    """Let each of the sessions say something when its time comes."""
    begin = time.perf_counter() + 0.05
    for n in range(int(seconds / PERIOD_S * SESSIONS)):
        await asyncio.sleep(max(begin + n * PERIOD_S / SESSIONS - time.perf_counter(), 0))
        say(n % SESSIONS)


async def hub_delays(log: MemoryLog | SqliteLog, secret: bytes, seconds: float) -> list[float]:
    """Return the milliseconds of every transaction of the load."""
    delays: list[float] = []
    async with Hub(log, log.samples, InlineHost(EchoStage()), ECHO, HubSettings(), SystemClock(), secret) as hub:
        here: list[Attachment] = []
        for n in range(SESSIONS):
            opening = Opening(dialect="duplex", control_id=f"open-{n}", patch=ConfigPatch(auto_response=True))
            here.append(await hub.open(opening))
            here[-1].heard()
            here[-1].append(AppendRequest(data=SOUND))
        await anyio.sleep(0.2)
        calm_collector()
        live = hub._live  # pyright: ignore[reportPrivateUsage]  (nobody else need know a runner)

        def visible(session: str, entry: Published) -> None:
            delays.append((live[session].runner.now() - entry.transaction.at) / 1e3)

        hub.measure(visible)
        await load(lambda n: here[n].append(AppendRequest(data=SOUND)), seconds)
        await anyio.sleep(0.1)
        found = delays[:]
    await log.aclose()
    return found


class Bare:
    """A loop that inserts what is there."""

    def __init__(self, folder: Path) -> None:
        self.delays: list[float] = []
        self._connection = connect_writer(folder / "bare.sqlite3", "normal")
        self._connection.execute("PRAGMA wal_autocheckpoint = 1000")
        self._waiting: list[tuple[float, Row]] = []
        self._seqs = [0] * SESSIONS
        self._loop = asyncio.get_running_loop()

    def put(self, session: int) -> None:
        """Take two rows: the sound that came, and what goes out."""
        now = time.perf_counter()
        if not self._waiting:
            self._loop.call_soon(self._flush)
        for _ in range(2):
            seq = self._seqs[session] = self._seqs[session] + 1
            self._waiting.append((now, (session, seq, seq, seq, 0, DATA, PLACE)))

    def _flush(self) -> None:
        batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        places = ", ".join([PLACES] * len(batch))
        insert = f"INSERT INTO records (key, seq, at, number, crc, data, sound) VALUES {places}"
        self._connection.execute(insert, tuple(chain.from_iterable(row for _, row in batch)))
        done = time.perf_counter()
        self.delays += [(done - put) * 1e3 for put, _ in batch]
        if self._waiting:
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """End."""
        self._connection.close()


async def bare_delays(seconds: float) -> list[float]:
    """Return the milliseconds of every row."""
    with fresh_folder() as folder, closing(Bare(folder)) as bare:
        await load(bare.put, seconds)
        await asyncio.sleep(0)
        return bare.delays


async def durable_delays(seconds: float) -> list[float]:
    """The hub's, with its log on the disk."""
    with fresh_folder() as folder, DataDirectory(folder) as data:
        return await hub_delays(await SqliteLog.open(data), data.secret, seconds)


async def memory_delays(seconds: float) -> list[float]:
    """The hub's, with its log in memory."""
    return await hub_delays(MemoryLog(), b"secret" * 6, seconds)


def measure(say: Say, seconds: float = SECONDS, rounds: int = ROUNDS) -> list[Figure]:
    """Let the three take turns; the best round of each counts, by its p99."""
    runs = {"durable log": durable_delays, "log in memory": memory_delays, "bare": bare_delays}
    best: dict[str, list[float]] = {}
    for n in range(rounds):
        for name, run in runs.items():
            say(f"append: decision to visible, {name}, {n + 1} of {rounds}")
            found = uvloop.run(run(seconds))
            if name not in best or percentile(found, 0.99) < percentile(best[name], 0.99):
                best[name] = found
    return [
        Figure(
            part="append",
            what=f"decision to visible, {name}, p{share:.0%}".rstrip("%"),
            ours=percentile(best[name], share),
            unit="ms",
            beside="bare sqlite3 loop at the same pace",
            theirs=percentile(best["bare"], share),
        )
        for name in ("durable log", "log in memory")
        for share in (0.5, 0.99)
    ]


def main() -> None:
    """Measure it alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    with first_in_line():
        figures = measure(print, options.seconds, options.rounds)
    for found in figures:
        print(f"{found.what}: {found.ours:.3f} ms, beside {found.theirs:.3f} ({found.beside})")


if __name__ == "__main__":
    main()
