"""An event loop that one seed decides: one thread, a time that moves only when nothing else can happen."""

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

from anyio._core._eventloop import reset_current_async_library, set_current_async_library

from antiphon.engine.clock import Clock, Timer

T = TypeVar("T")

CALLBACK_US = 5
"""What a callback lasts in the world's time: enough that everything has an order in it."""


class SimTask(asyncio.Task[T]):
    """A task whose place in a set does not depend on where it lies in memory."""

    made = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        SimTask.made += 1
        self.number = SimTask.made
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimLoop(asyncio.BaseEventLoop):
    """Runs callbacks one by one. `steps` counts them; `after` is called behind each; what it raises ends the run.

    Time is the loop's own, in microseconds; it is the clock of the engine too (`SimClock`). A callback lasts
    `callback_us` of it.
    """

    def __init__(self, most: int = 2_000_000, callback_us: int = CALLBACK_US) -> None:
        super().__init__()
        self._callback_us = callback_us
        self.steps = 0
        self.after: Callable[[], None] | None = None
        self.failure: BaseException | None = None
        self._most = most
        self._now_us = 0
        self._soon: deque[asyncio.Handle] = deque()
        self._later: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._order = 0
        SimTask.made = 0
        self.set_task_factory(_task)  # type: ignore[arg-type]  # the stubs know only one of its shapes
        self.set_exception_handler(self._on_error)

    # -- what asyncio asks of a loop -------------------------------------------------------------------------

    def time(self) -> float:
        """Return the world's time in seconds."""
        return self._now_us / 1e6

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Call back in this moment, behind what waits already."""
        handle = events.Handle(callback, args, self, context)
        self._soon.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call back at a time."""
        handle = events.TimerHandle(when, callback, args, self, context)
        self._order += 1
        heapq.heappush(self._later, (round(when * 1e6), self._order, handle))
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call back after a while."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        del handle  # it is skipped when its time comes

    def _on_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self.failure is None:
            self.failure = error if isinstance(error, BaseException) else AssertionError(context["message"])

    # -- the world's side ------------------------------------------------------------------------------------

    @property
    def now_us(self) -> int:
        """The time."""
        return self._now_us

    def take_time(self, us: int) -> None:
        """Let the running callback last longer."""
        self._now_us += us

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end.

        Raises:
            Whatever it raises, or a callback, or `after`.
        """
        events._set_running_loop(self)
        library = set_current_async_library("asyncio")  # as `anyio.run` does, for callbacks that no task is behind
        try:
            task = self.create_task(main)
            while not task.done():
                self._step()
                if self.failure is not None:
                    raise self.failure
            return task.result()
        finally:
            reset_current_async_library(library)
            events._set_running_loop(None)
            self.close()

    def _step(self) -> None:
        later, now = self._later, self._now_us
        while later and (later[0][0] <= now or later[0][2].cancelled()):
            handle = heapq.heappop(later)[2]
            if not handle.cancelled():
                self._soon.append(handle)
        if not self._soon:
            if not later:
                raise AssertionError("P37, P58: everybody waits, and nothing will ever happen")
            self._now_us = later[0][0]
            return
        handle = self._soon.popleft()
        if handle.cancelled():
            return
        self.steps += 1
        if self.steps > self._most:
            raise AssertionError("P58: it never comes to rest")
        self._now_us = now + self._callback_us
        handle._run()
        if self.after is not None:
            self.after()


def _task(loop: SimLoop, coro: Coroutine[Any, Any, T], context: Context | None = None) -> SimTask[T]:
    return SimTask(coro, loop=loop, context=context)


class SimClock(Clock):
    """The engine's clock in that loop. `wall_us` can be set, as an operator may."""

    def __init__(self, loop: SimLoop, wall_us: int = 1_700_000_000_000_000) -> None:
        self._loop = loop
        self._wall = wall_us

    def monotonic_us(self) -> int:
        """Return the world's time."""
        return self._loop.now_us

    def wall_us(self) -> int:
        """Return the wall time that belongs to it."""
        return self._wall + self._loop.now_us

    def call_at(self, us: int, callback: Callable[[], None]) -> Timer:
        """Ask the loop."""
        return self._loop.call_at(max(us, self._loop.now_us) / 1e6, callback)

    def jump_wall(self, us: int) -> None:
        """Set the wall clock forward or back; the monotonic time is unmoved."""
        self._wall += us
