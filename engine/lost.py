"""Sessions that go on in the log and have no runner: each is taken over again, sooner or later."""

from collections.abc import Awaitable, Callable, Set

import anyio

from antiphon.events.commands import CloseSession
from antiphon.events.log import LogError

from .clock import Clock
from .live import Live

RETRY_US = 1_000_000
MAX_RETRY_US = 60_000_000

TakeOver = Callable[[str], Awaitable[Live | None]]
"""Makes a session live again; None if it has ended or is somebody else's. Raises `LogError` to be tried again."""


class Lost:
    """They hold their slots until the log says that they are over."""

    def __init__(self, clock: Clock, stopping: anyio.Event, take_over: TakeOver) -> None:
        self._clock = clock
        self._stopping = stopping
        self._take_over = take_over
        self._locks: dict[str, anyio.Lock] = {}

    @property
    def names(self) -> Set[str]:
        """The lost sessions."""
        return self._locks.keys()

    def __contains__(self, name: str) -> bool:
        return name in self._locks

    def add(self, name: str) -> None:
        """A session has no runner any more, or not yet."""
        self._locks.setdefault(name, anyio.Lock())

    async def revive(self, name: str) -> Live | None:
        """Take one over now; None if it has ended, or still cannot be (then it is still lost)."""
        async with self._locks[name]:
            if name not in self._locks:
                return None
            try:
                live = await self._take_over(name)
            except LogError:
                return None
            self._locks.pop(name, None)
            return live

    async def keep_trying(self, name: str, crashed: bool) -> None:
        """Take one over after a second, doubling to a minute; a crashed one at once, to end it."""
        wait_us = RETRY_US
        while name in self._locks and not self._stopping.is_set():
            if not crashed:
                await self.sleep(wait_us)
                wait_us = min(wait_us * 2, MAX_RETRY_US)
            if name in self._locks:
                live = await self.revive(name)
                if live is not None and crashed:
                    live.runner.post(CloseSession(control_id=f"{name}:crash", reason="internal_error"))
            crashed = False

    async def sleep(self, us: int) -> None:
        """Wait by the clock."""
        done = anyio.Event()
        timer = self._clock.call_at(self._clock.monotonic_us() + us, done.set)
        try:
            await done.wait()
        finally:
            timer.cancel()
