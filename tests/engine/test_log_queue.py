"""Between the loop and a store: nobody waits for ever."""

import threading
from queue import SimpleQueue

import anyio
import pytest

from antiphon.engine import log_queue
from antiphon.engine.log_queue import Answer, ThreadQueue
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
