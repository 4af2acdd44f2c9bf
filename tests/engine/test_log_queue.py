"""Between the loop and a store: nobody waits for ever."""

import asyncio
import threading
from queue import SimpleQueue

import anyio
import anyio.lowlevel
import pytest

from antiphon.engine import log_queue
from antiphon.engine.log_queue import QUICK, SLOW_S, Answer, InlineQueue, ThreadQueue
from antiphon.events.log import LogError, Unavailable

pytestmark = pytest.mark.anyio

SOON_S = 0.2
"""Longer than a thread needs that may end now."""


class Late(SimpleQueue[Answer | None]):
    """A queue whose `put`, once it is armed, comes when the writer has died if that is possible at all."""

    dies = threading.Event()
    armed = False

    def put(self, item: Answer | None, block: bool = True, timeout: float | None = None) -> None:
        if self.armed:
            self.dies.set()
            (writer,) = (thread for thread in threading.enumerate() if thread.name == "writer")
            writer.join(SOON_S)
        super().put(item, block, timeout)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_what_is_put_while_the_writer_dies_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_queue, "SimpleQueue", Late)
    monkeypatch.setattr(Late, "dies", threading.Event())
    told: list[LogError | None] = []
    answered = anyio.Event()

    def perform(_: list[Answer]) -> None:
        Late.dies.wait(10)
        raise RuntimeError("a fault of ours")

    def settled(error: LogError | None) -> None:
        told.append(error)
        if len(told) == 3:
            answered.set()

    queue = ThreadQueue(perform, "writer")
    queue.put(Answer(settled))
    monkeypatch.setattr(Late, "armed", True)
    queue.put(Answer(settled))
    monkeypatch.setattr(Late, "armed", False)
    await queue.aclose()
    queue.put(Answer(settled))
    with anyio.fail_after(10):
        await answered.wait()
    assert all(isinstance(error, Unavailable) for error in told)


class Disk:
    """A disk whose commits take as long as a test says, by a clock of its own; nobody waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.takes = 0.001
        self.places: list[str] = []
        self.fault: Exception | None = None
        self._now = 0.0
        monkeypatch.setattr(log_queue, "monotonic", lambda: self._now)

    def perform(self, batch: list[Answer]) -> None:
        self.places.append("loop" if threading.current_thread() is threading.main_thread() else "thread")
        self._now += self.takes
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault


async def test_while_the_disk_stands_a_thread_waits_for_it_and_the_loop_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk(monkeypatch)
    told: list[int] = []
    queue = InlineQueue(disk.perform)

    async def commit(count: int) -> list[str]:
        """Commit one after the other; return where that was done."""
        before = len(disk.places)
        for _ in range(count):
            settled = anyio.Event()
            number = len(told)
            queue.put(Answer(lambda _, number=number, settled=settled: (told.append(number), settled.set())))  # type: ignore[misc]
            with anyio.fail_after(10):
                await settled.wait()
        return disk.places[before:]

    assert set(await commit(3)) == {"loop"}
    disk.takes = SLOW_S
    assert await commit(1) == ["loop"]
    disk.takes = 0.001
    assert await commit(2) == ["loop"] * 2, "one slow commit is no slow disk"
    disk.takes = 4.0
    assert await commit(5) == ["loop"] * 2 + ["thread"] * 3
    disk.takes = 0.001
    assert await commit(QUICK + 2) == ["thread"] * QUICK + ["loop"] * 2, "it has come round"
    assert told == sorted(told)
    await queue.aclose()


async def test_what_a_thread_still_does_is_done_at_the_end_and_its_fault_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk(monkeypatch)
    queue = InlineQueue(disk.perform)
    monkeypatch.setattr(queue, "_aside", QUICK)
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(type(context["exception"])))
    told: list[LogError | None] = []
    disk.fault = ZeroDivisionError()
    for _ in range(3):
        queue.put(Answer(told.append))
        await anyio.lowlevel.checkpoint()
    await queue.aclose()
    await anyio.lowlevel.checkpoint()
    assert [type(error) for error in told] == [Unavailable, type(None), type(None)]
    assert faults == [ZeroDivisionError]
    assert set(disk.places) == {"thread"}
