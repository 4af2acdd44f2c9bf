"""Between the event loop and a store: what waits to be written, and the answers in the order of the asking."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Generic, Protocol, TypeVar

from anyio import CancelScope, to_thread

from antiphon.events.log import LogError, Settled, Unavailable

MOST_ROWS = 64
"""The most rows of one commit; what comes behind them waits for the next."""


class Work(Protocol):
    """Something for the writer to do. `error` says why it was not done."""

    error: LogError | None

    def deliver(self) -> None:
        """Give the outcome to whoever asked; called once, on the loop."""
        ...


WorkT = TypeVar("WorkT", bound=Work)


@dataclass(slots=True)
class Answer:
    """The outcome of an append, for the one who asked."""

    settled: Settled
    error: LogError | None = None

    def deliver(self) -> None:
        """Give it."""
        self.settled(self.error)


class Outcomes:
    """Gives outcomes to those who asked: on the loop, in order, never from inside the call that asked."""

    def __init__(self) -> None:
        """Belong to the running loop."""
        self.loop = asyncio.get_running_loop()
        self._waiting: deque[Work] = deque()
        self._scheduled = False

    def soon(self, done: Iterable[Work]) -> None:
        """Deliver in the next round of the loop."""
        self._waiting.extend(done)
        self._schedule()

    def soon_from_thread(self, done: Sequence[Work]) -> None:
        """Deliver soon; may be called from any thread."""
        self.loop.call_soon_threadsafe(self.now, done)

    def now(self, done: Iterable[Work]) -> None:
        """Deliver at once, behind those that still wait."""
        self._waiting.extend(done)
        self.deliver()

    def deliver(self) -> None:
        """Deliver all that wait. A callback that raises costs nobody else the answer."""
        self._scheduled = False
        try:
            while self._waiting:
                self._waiting.popleft().deliver()
        finally:
            if self._waiting:
                self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self.deliver)


Perform = Callable[[list[WorkT]], Callable[[], object] | None]
"""Does a batch. What it returns, if anything, blocks for long and is to be done before the next batch."""


_Timed = tuple[float, Callable[[], object] | None]
"""How long a batch took, and what still has to be done for it."""

SLOW_S = 0.25
"""A disk of which two commits in a row take so long stands: a loop that waits for it serves nobody meanwhile."""

QUICK = 64
"""Commits in a row that must have been quicker before the loop does them itself again."""


class InlineQueue(Generic[WorkT]):
    """Performs on the loop itself: all that one round of the loop has put, in its next round.

    While the disk stands, a thread does it instead, one batch at a time.
    """

    def __init__(self, perform: Perform[WorkT]) -> None:
        """Hand at most `MOST_ROWS` at a time to `perform`."""
        self._perform = perform
        self._outcomes = Outcomes()
        self._waiting: deque[WorkT] = deque()
        self._scheduled = False
        self._held: asyncio.Future[object] | asyncio.Future[_Timed] | None = None
        self._closed = False
        self._slow = 0
        self._aside = 0
        """Commits that a thread still does."""

    def put(self, work: WorkT) -> None:
        """Take it; never waits."""
        if self._closed:
            work.error = Unavailable("the log is closed")
            self._outcomes.soon([work])
            return
        self._waiting.append(work)
        self._schedule()

    async def aclose(self) -> None:
        """Perform and deliver all that waits, and take nothing more."""
        self._closed = True
        with CancelScope(shield=True):
            while self._waiting or self._held is not None:
                held = self._held
                if held is not None:
                    await asyncio.wait([held])
                    self._release(held)
                else:
                    self._step()

    def _schedule(self) -> None:
        if self._waiting and not self._scheduled and self._held is None:
            self._scheduled = True
            self._outcomes.loop.call_soon(self._step)

    def _step(self) -> None:
        self._scheduled = False
        if self._held is not None:
            return
        batch = [self._waiting.popleft() for _ in range(min(MOST_ROWS, len(self._waiting)))]
        if self._aside:
            done = self._outcomes.loop.run_in_executor(None, self._timed, batch)
            done.add_done_callback(partial(self._performed, batch))
            self._held = done
            return
        performed = False
        try:
            took, blocking = self._timed(batch)
            performed = True
            self._slow = self._slow + 1 if took >= SLOW_S else 0
            if self._slow == 2:  # one may have been the scheduler's fault
                self._aside = QUICK
            self._hold(blocking)
        finally:
            if not performed:
                _died(batch)
            self._schedule()
            self._outcomes.now(batch)

    def _timed(self, batch: list[WorkT]) -> _Timed:
        started = monotonic()
        blocking = self._perform(batch)
        return monotonic() - started, blocking

    def _performed(self, batch: list[WorkT], done: asyncio.Future[_Timed]) -> None:
        """A batch comes back from the thread."""
        if self._held is done:
            self._held = None
        try:
            took, blocking = done.result()
            self._aside = self._aside - 1 if took < SLOW_S else QUICK
            self._slow = 0
            self._hold(blocking)
        except BaseException:
            _died(batch)
            raise
        finally:
            self._schedule()
            self._outcomes.now(batch)

    def _hold(self, blocking: Callable[[], object] | None) -> None:
        """Let a thread do what takes long, and perform nothing before its end."""
        if blocking is not None:
            held = self._outcomes.loop.run_in_executor(None, blocking)
            held.add_done_callback(self._release)
            self._held = held

    def _release(self, held: asyncio.Future[object] | asyncio.Future[_Timed]) -> None:
        if self._held is held:
            self._held = None
        self._schedule()


class ThreadQueue(Generic[WorkT]):
    """Performs in a thread of its own, which takes what is there and never waits for more."""

    def __init__(self, perform: Perform[WorkT], name: str) -> None:
        """Hand at most `MOST_ROWS` at a time to `perform`, in the thread `name`."""
        self._perform = perform
        self._outcomes = Outcomes()
        self._waiting: SimpleQueue[WorkT | None] = SimpleQueue()
        self._ended = False
        self._ending = threading.Lock()
        """Held to look at `_ended` and act on it: what is put while the writer ends is taken or refused."""
        # A daemon: a program that ends without closing loses what a killed one does, and does not hang.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, work: WorkT) -> None:
        """Take it; never waits."""
        with self._ending:
            if not self._ended:
                self._waiting.put(work)
                return
        work.error = Unavailable("the log is closed")
        self._outcomes.soon([work])

    async def aclose(self) -> None:
        """Perform and deliver all that waits, and take nothing more."""
        with self._ending:
            if not self._ended:
                self._ended = True
                self._waiting.put(None)
        with CancelScope(shield=True):
            await to_thread.run_sync(self._thread.join)

    def _run(self) -> None:
        batch: list[WorkT] = []
        try:
            while self._take(batch):
                blocking = self._perform(batch)
                self._outcomes.soon_from_thread(batch)
                batch = []
                if blocking is not None:
                    blocking()
        finally:
            self._abandon(batch)

    def _take(self, batch: list[WorkT]) -> bool:
        """Wait for work and fill `batch` with what is there; return False at the end."""
        work = self._waiting.get()
        while work is not None:
            batch.append(work)
            if len(batch) == MOST_ROWS:
                return True
            try:
                work = self._waiting.get_nowait()
            except Empty:
                return True
        if batch:
            self._waiting.put(None)  # the end comes again, after what stood before it
        return bool(batch)

    def _abandon(self, batch: list[WorkT]) -> None:
        """Answer what a fault of ours left behind, so that nobody waits for ever; nothing after a clean end."""
        with self._ending:
            self._ended = True
        while True:
            if batch:
                _died(batch)
                self._outcomes.soon_from_thread(batch)
            try:
                left = self._waiting.get_nowait()
            except Empty:
                return
            batch = [left] if left is not None else []


def _died(batch: Iterable[Work]) -> None:
    """A fault of ours stopped the writer somewhere in `batch`: nothing of it may count as done."""
    for work in batch:
        work.error = work.error or Unavailable("the log's writer has failed")
