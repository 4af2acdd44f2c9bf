"""What the benchmarks share: a figure beside its rival, percentiles, and processes to measure."""

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import structlog
from msgspec import Struct

HERE = Path(__file__).parent
PRIORITY = -15
Say = Callable[[str], None]
"""Where a benchmark tells what it is doing."""


class Figure(Struct, frozen=True, kw_only=True):
    """One line of the table: what was measured, and beside what.

    `beside` names the rival that ran in the same run and `theirs` is its figure; `goal` is the design's, in
    words. None is what could not be measured.
    """

    part: str
    what: str
    ours: float | None
    unit: str
    beside: str = ""
    theirs: float | None = None
    goal: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours to theirs."""
        return self.ours / self.theirs if self.ours is not None and self.theirs else None


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of `values` does not exceed; not a number if there is none."""
    if not values:
        return float("nan")
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


@contextmanager
def fresh_folder() -> Iterator[Path]:
    """A folder on the disk of the working directory, removed afterwards."""
    path = Path(tempfile.mkdtemp(prefix=".bench-", dir=Path.cwd()))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def quiet() -> None:
    """Log nothing: of sessions whose process is killed there is much to say."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


class Child:
    """A server in a process of its own, which prints where it listens; killed by its own id at the end."""

    def __init__(self, command: Sequence[str], core: int | None = None) -> None:
        """Start it, on one core if one is named, and wait until it listens."""
        before = os.sched_getaffinity(0)
        if core is not None:
            os.sched_setaffinity(0, {core})  # a child inherits it, and so do all its threads
        try:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        finally:
            os.sched_setaffinity(0, before)
        assert self.process.stdout is not None
        line = self.process.stdout.readline().split()
        if not line:
            raise RuntimeError(f"{' '.join(command)} ended with {self.process.wait()}")
        self.port = int(line[-1].rpartition(":")[2])

    def cpu(self) -> float:
        """Return the seconds that all its threads have run."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def memory(self) -> int:
        """Return its resident bytes."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def antiphon(data: Path, *more: str, core: int | None = None) -> Child:
    """Start the real server with the echo pipeline on a durable data directory."""
    program = str(Path(sys.executable).parent / "antiphon")
    return Child([program, "serve", "--pipeline", "echo", "--port", "0", "--data", str(data), *more], core)


def helper(module: str, *arguments: str, core: int | None = None) -> Child:
    """Start a file of this folder as a server."""
    return Child([sys.executable, str(HERE / f"{module}.py"), *arguments], core)


@contextmanager
def first_in_line() -> Iterator[bool]:
    """Let this process and those it starts go before others, where that is allowed; yields whether it is.

    What else runs on the machine is not what is measured; without privileges the figures are as noisy as it.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
        allowed = True
    except OSError:
        allowed = False
    group = _nice_group(PRIORITY) if allowed else None
    try:
        yield allowed
    finally:
        if group is not None:
            _nice_group(group)
        if allowed:
            os.setpriority(os.PRIO_PROCESS, 0, before)


def _nice_group(level: int) -> int | None:
    """Give this terminal session's share of the processor a priority; return what it was, None if it has none.

    Where Linux schedules by session, the priority of a process counts only inside its own.
    """
    file = Path("/proc/self/autogroup")
    try:
        before = int(file.read_text().split()[-1])
        file.write_text(str(level))
    except (OSError, ValueError, IndexError):
        return None
    return before


def timed(step: Callable[[], object], count: int, rounds: int = 5) -> float:
    """Return microseconds of a call: the best of some rounds."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(count):
            step()
        best = min(best, (time.perf_counter() - begin) / count * 1e6)
    return best
