"""The exact moments at which a server dies: one place of the product each, in which the process kills itself.

Nothing of this is in the product. `burn_at` wraps the function that does the step, in a server of its own
(`tests/chaos/server.py`); a name that is not there any more ends that server at once.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from antiphon.engine import roster, runner, sample_store, sqlite_checkpoint, sqlite_writer
from antiphon.transport import websocket

LONGEST_US = 400
"""A step that is to be cut in the middle is given at most so long."""


class Fuse:
    """Kills this process at the `count`-th occasion after `after_s`."""

    def __init__(self, rng: random.Random, after_s: float, count: int) -> None:
        self._rng = rng
        self._from = time.monotonic() + after_s
        self._left = count
        self._pause_s = LONGEST_US / 1e6 * rng.random() ** 3  # a commit takes some 20 us, a checkpoint milliseconds
        self._lit = threading.Event()
        self._thread = threading.Thread(target=self._burn_soon, daemon=True)
        self._thread.start()

    @property
    def due(self) -> bool:
        """Count an occasion; return whether it is the one."""
        if time.monotonic() < self._from:
            return False
        self._left -= 1
        return self._left == 0

    def burn(self) -> None:
        """Kill the process, if it is time."""
        if self.due:
            die()

    def light(self) -> None:
        """Kill the process in a moment, whatever it does then, if it is time."""
        if self.due:
            self._lit.set()

    def share(self) -> float:
        """Return how much of something is done before the end."""
        return self._rng.random()

    def _burn_soon(self) -> None:
        self._lit.wait()
        time.sleep(self._pause_s)
        die()


def die() -> None:
    """End as a crash does."""
    os.kill(os.getpid(), signal.SIGKILL)


def before(owner: Any, name: str, act: Callable[[], None]) -> None:
    """Call `act` before a function of the product."""
    inner = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        act()
        return inner(*args, **kwargs)

    setattr(owner, name, wrapped)


def behind(owner: Any, name: str, act: Callable[[], None]) -> None:
    """Call `act` behind a function of the product that has succeeded."""
    inner = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        done = inner(*args, **kwargs)
        act()
        return done

    setattr(owner, name, wrapped)


def half_a_sample(fuse: Fuse) -> None:
    """Write a part of the bytes of some sound."""
    whole = sample_store._pwrite

    def part(descriptor: int, data: bytes, start: int) -> None:
        if fuse.due:
            os.pwrite(descriptor, data[: int(len(data) * fuse.share())], start)
            die()
        whole(descriptor, data, start)

    sample_store._pwrite = part


def a_message(fuse: Fuse, part: float | None) -> None:
    """Hand a part of what is written to the socket itself (None: some of it), and nothing more."""
    whole = websocket.WebSocket._write

    def write(self: websocket.WebSocket, framed: Sequence[bytes]) -> None:
        transport = self._transport
        if framed and transport is not None and not transport.get_write_buffer_size() and fuse.due:
            data = b"".join(framed)
            share = fuse.share() if part is None else part
            os.write(transport.get_extra_info("socket").fileno(), data[: int(len(data) * share)])
            die()
        whole(self, framed)

    websocket.WebSocket._write = write  # type: ignore[method-assign]


def a_checkpoint(fuse: Fuse) -> None:
    """Die while the write-ahead log is moved, by either of those who do that."""
    before(sqlite_checkpoint, "move", fuse.light)
    before(sqlite_writer, "move", fuse.light)


def a_snapshot(fuse: Fuse) -> None:
    """Die between the statement that keeps a snapshot and its commit."""
    before(sqlite_writer.SqliteWriter, "save_snapshot", fuse.light)


Moment = Callable[[Fuse], None]

RUNNING: dict[str, Moment] = {
    "before the samples": lambda fuse: before(sample_store.FileSamples, "write", fuse.burn),
    "half of the samples": half_a_sample,
    "between samples and row": lambda fuse: behind(sample_store.FileSamples, "write", fuse.burn),
    "before the row": lambda fuse: before(sqlite_writer.SqliteWriter, "_insert", fuse.burn),
    "during the commit": lambda fuse: before(sqlite_writer.SqliteWriter, "_insert", fuse.light),
    "between row and index": lambda fuse: before(sqlite_writer.SqliteWriter, "_index", fuse.burn),
    "between append and answer": lambda fuse: behind(sqlite_writer.SqliteWriter, "_insert", fuse.burn),
    "between append and send": lambda fuse: before(websocket.WebSocket, "_write", fuse.burn),
    "half of a message": lambda fuse: a_message(fuse, None),
    "behind a send": lambda fuse: a_message(fuse, 1.0),
    "a term and no record": lambda fuse: behind(sqlite_writer.SqliteWriter, "acquire", fuse.burn),
    "in a checkpoint": a_checkpoint,
    "before a snapshot": lambda fuse: before(sqlite_writer.SqliteWriter, "save_snapshot", fuse.burn),
    "in a snapshot": a_snapshot,
    "behind a snapshot": lambda fuse: behind(sqlite_writer.SqliteWriter, "save_snapshot", fuse.burn),
}
"""Moments of a server that talks."""

RECOVERING: dict[str, Moment] = {
    "the log is opened": lambda fuse: before(sqlite_writer, "connect_writer", fuse.light),
    "recovery: a session is taken": lambda fuse: behind(sqlite_writer.SqliteWriter, "acquire", fuse.burn),
    "recovery: a session is folded": lambda fuse: before(roster, "fold", fuse.burn),
    "recovery: between fold and record": lambda fuse: before(roster.Roster, "start", fuse.burn),
    "recovery: before its record": lambda fuse: before(sqlite_writer.SqliteWriter, "_insert", fuse.burn),
    "recovery: behind its record": lambda fuse: behind(sqlite_writer.SqliteWriter, "_insert", fuse.burn),
}
"""Moments of a server that takes over what a killed one left."""

MOMENTS = {**RUNNING, **RECOVERING}


def burn_at(moment: str, seed: str) -> None:
    """Let this process die at a moment; which occasion of it, the seed says."""
    rng = random.Random(seed)
    recovering = moment in RECOVERING
    rare = "snapshot" in moment or "checkpoint" in moment or "index" in moment or "term" in moment
    after_s = 0.0 if recovering else rng.uniform(0.0, 0.6)
    most = 1 if moment == "the log is opened" else 3 if rare or recovering else 40
    MOMENTS[moment](Fuse(rng, after_s, rng.randint(1, most)))


def hurry(rng: random.Random) -> None:
    """Let snapshots and checkpoints be made as often in a second as else in minutes."""
    runner.SNAPSHOT_ENTRIES, runner.SNAPSHOT_AFTER = 60, 5
    sqlite_checkpoint.PAGES = rng.choice((20, 100, 400))
    sqlite_checkpoint.CATCH_UP_PAGES = rng.choice((100, 32_000))
