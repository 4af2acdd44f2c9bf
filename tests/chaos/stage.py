"""The stage of the scripted cascade: the one of the simulator's worlds, in real time, in a good mood."""

import asyncio
import threading
import time
from collections.abc import Callable

from antiphon.stages.base import Stage

from tests.simulation.stage import SimStage

GAP_US = 12_000
"""Between two things that it says, at most."""


class RealTime:
    """The running loop, or in a process without one a loop in a thread, as the stage asks for it."""

    def __init__(self) -> None:
        self._own: asyncio.AbstractEventLoop | None = None

    @property
    def now_us(self) -> int:
        """The time."""
        return time.monotonic_ns() // 1000

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> None:
        """Call back at a time in seconds."""
        delay = max(when - self.now_us / 1e6, 0)
        try:
            asyncio.get_running_loop().call_later(delay, callback, *args)
        except RuntimeError:
            loop = self._thread()
            loop.call_soon_threadsafe(lambda: loop.call_later(delay, callback, *args))

    def _thread(self) -> asyncio.AbstractEventLoop:
        if self._own is None:
            self._own = asyncio.new_event_loop()
            threading.Thread(target=self._own.run_forever, daemon=True).start()
        return self._own


def cascade(seed: str) -> Stage:
    """Return a stage that recognises, thinks and speaks as a seed says."""
    return SimStage(RealTime(), seed, GAP_US, count=lambda _: None, given=lambda _: None)
