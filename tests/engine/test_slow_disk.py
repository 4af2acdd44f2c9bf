"""A disk that is slow, or takes nothing for a while: all wait, nothing is lost, nobody waits behind others."""

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from antiphon.engine.clock import VirtualClock
from antiphon.engine.datadir import DataDirectory
from antiphon.engine.direct import DirectClient
from antiphon.engine.errors import Refused
from antiphon.engine.hosts import InlineHost
from antiphon.engine.hub import Hub
from antiphon.engine.log_queue import MOST_ROWS
from antiphon.engine.replay import replay
from antiphon.engine.runner import RUN_AHEAD
from antiphon.engine.settings import HubSettings
from antiphon.engine.sqlite_log import SqliteLog, Writer
from antiphon.engine.sqlite_writer import Row
from antiphon.events.commands import Heartbeat
from antiphon.sessions.plugins import ECHO
from antiphon.stages.echo import EchoStage

from .worlds import SECRET, breathe, opening, resumption, settle

pytestmark = pytest.mark.anyio

SETTINGS = HubSettings(shutdown_ms=2_000)


class Slow:
    """Lets the writer's thread commit when a test says so."""

    def __init__(self, log: SqliteLog) -> None:
        self.turns = threading.Semaphore(0)
        self.commits: list[list[int]] = []
        self._insert = log._writer._insert
        log._writer._insert = self.insert  # type: ignore[method-assign]
        self.open = False

    def insert(self, rows: "list[Row]", indexed: object) -> None:
        if not self.open:
            self.turns.acquire()
        self.commits.append([row[0] for row in rows])
        self._insert(rows, indexed)  # type: ignore[arg-type]

    def release(self) -> None:
        self.open = True
        self.turns.release()


async def test_a_slow_disk_delays_and_no_more(tmp_path: Path) -> None:
    with DataDirectory(tmp_path) as data:
        log = await SqliteLog.open(data, writer="thread")
        async with Hub(log, log.samples, InlineHost(EchoStage()), ECHO, SETTINGS, VirtualClock(), SECRET) as hub:
            loud, quiet = await hub.open(opening("loud")), await hub.open(opening("quiet"))
            slow = Slow(log)
            for _ in range(RUN_AHEAD + 100):
                loud.send(Heartbeat(attachment=1))
            await settle()
            quiet.send(Heartbeat(attachment=1))
            await settle()
            runner = hub._live[loud.session].runner  # pyright: ignore[reportPrivateUsage]
            other = hub._live[quiet.session].runner  # pyright: ignore[reportPrivateUsage]
            assert (runner.ahead, runner.backlog) == (RUN_AHEAD, 100), "it runs ahead so far, and then waits"
            assert other.ahead == 1
            assert hub.not_ready is None, "a slow disk is no broken one"
            slow.release()
            with anyio.fail_after(20):
                while runner.ahead or runner.backlog or other.ahead:
                    await breathe()
            key = log._heads[quiet.session].key
            turn = next(n for n, rows in enumerate(slow.commits) if key in rows)
            assert turn <= RUN_AHEAD // MOST_ROWS + 1, "behind what was there, not behind what waits"
            for session in (loud.session, quiet.session):
                recorded = await log.read(session, 0, 10_000)
                assert replay(recorded).identical
            assert len(await log.read(loud.session, 0, 10_000)) >= RUN_AHEAD + 100
        await log.aclose()


@contextmanager
def no_file_grows(path: Path) -> Iterator[None]:
    """Let no file of this process become longer than the longest one below `path` is."""
    most = max(file.stat().st_size for file in path.rglob("*") if file.is_file())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("writer", ["inline", "thread"])
async def test_what_the_system_refuses_to_write_is_told_and_it_goes_on_when_it_does_not(
    tmp_path: Path, writer: Writer
) -> None:
    """A limit of the system stands for a full disk where none can be mounted: writes fail, and only those."""
    clock = VirtualClock()
    with DataDirectory(tmp_path) as data:
        log = await SqliteLog.open(data, writer=writer)
        async with Hub(log, log.samples, InlineHost(EchoStage()), ECHO, SETTINGS, clock, SECRET) as hub:
            attachment = await hub.open(opening())
            with no_file_grows(tmp_path):
                with anyio.fail_after(20):
                    while attachment.ended is None:
                        attachment.send(Heartbeat(attachment=1))
                        await breathe()
                assert attachment.ended == "failed"
                assert "cannot be recorded" in (hub.not_ready or "")
                before = await log.read(attachment.session, 0, 100_000)
                with pytest.raises(Refused, match="storage_unavailable"):
                    async with DirectClient(hub):
                        pass
                clock.advance(1_000_000)
                await breathe(5)
                assert hub.not_ready is not None
            with anyio.fail_after(20):
                while hub.not_ready is not None or hub.session(attachment.session) is None:
                    clock.advance(1_000_000)
                    await breathe()
            again = await hub.resume(resumption(attachment))
            again.send(Heartbeat(attachment=again.generation))
            await breathe(5)
            recorded = await log.read(attachment.session, 0, 100_000)
            assert recorded[: len(before)] == before
            assert replay(recorded).identical
        await log.aclose()
