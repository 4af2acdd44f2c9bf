"""Clocks: where the engine gets its time from, and one that tests move by hand."""

import asyncio
import heapq
import time
from collections.abc import Callable
from itertools import count
from typing import Protocol

import anyio
import anyio.lowlevel


class Timer(Protocol):
    """Something that will happen once."""

    def cancel(self) -> None:
        """Let it not happen; harmless when it already did."""
        ...


class Clock(Protocol):
    """Time in whole microseconds. A clock inherits from this, and with it `sleep_until`."""

    def monotonic_us(self) -> int:
        """Return a time that never goes back; its zero means nothing."""
        ...

    def wall_us(self) -> int:
        """Return microseconds since 1970 (UTC)."""
        ...

    def call_at(self, us: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` on the event loop when `monotonic_us()` has reached `us`, or soon if it has passed."""
        ...

    async def sleep_until(self, us: int) -> None:
        """Wait until `monotonic_us()` has reached `us`; when it has, only give the others their turn."""
        if self.monotonic_us() >= us:
            await anyio.lowlevel.checkpoint()
            return
        reached = anyio.Event()
        timer = self.call_at(us, reached.set)
        try:
            await reached.wait()
        finally:
            timer.cancel()


class SystemClock(Clock):
    """The machine's time, with the running event loop's timers."""

    def monotonic_us(self) -> int:
        """Return the machine's monotonic clock."""
        return time.monotonic_ns() // 1000

    def wall_us(self) -> int:
        """Return the machine's wall clock."""
        return time.time_ns() // 1000

    def call_at(self, us: int, callback: Callable[[], None]) -> Timer:
        """Ask the running loop; a loop's own clock may be coarser, so the callback may be a little early."""
        return asyncio.get_running_loop().call_later(max(0, us - self.monotonic_us()) / 1e6, callback)


class _VirtualTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualClock(Clock):
    """A clock that stands still until it is moved."""

    def __init__(self, start_us: int = 0, wall_us: int = 1_700_000_000_000_000) -> None:
        self._now = start_us
        self._wall_offset = wall_us - start_us
        self._order = count()
        self._timers: list[tuple[int, int, _VirtualTimer]] = []

    def monotonic_us(self) -> int:
        """Return the time that the clock was moved to."""
        return self._now

    def wall_us(self) -> int:
        """Return the wall time that belongs to it."""
        return self._now + self._wall_offset

    def call_at(self, us: int, callback: Callable[[], None]) -> Timer:
        """Keep the callback; `advance` calls it, also when `us` has passed already."""
        timer = _VirtualTimer(callback)
        heapq.heappush(self._timers, (us, next(self._order), timer))
        return timer

    @property
    def next_us(self) -> int | None:
        """The time of the earliest timer, None when there is none."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def advance(self, us: int) -> None:
        """Move by `us` microseconds and call what falls due on the way, in order, each at its own time."""
        end = self._now + us
        while (due := self.next_us) is not None and due <= end:
            self._now = max(self._now, due)
            callback = heapq.heappop(self._timers)[2].callback
            if callback is not None:
                callback()
        self._now = end

    def jump_wall(self, us: int) -> None:
        """Set the wall clock forward or back, as an operator may; the monotonic time is unmoved."""
        self._wall_offset += us
