"""The stage of the scripted cascade: the one of the simulator's worlds, in real time, in a good mood."""

import asyncio
import time
from collections.abc import Callable

from antiphon.stages.base import Stage

from tests.simulation.stage import SimStage

GAP_US = 12_000
"""Between two things that it says, at most."""


class RealTime:
    """The running loop, as the stage asks for it."""

    @property
    def now_us(self) -> int:
        """The time."""
        return time.monotonic_ns() // 1000

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        """Call back at a time in seconds."""
        delay = when - self.now_us / 1e6
        return asyncio.get_running_loop().call_later(max(delay, 0), callback, *args)


def cascade(seed: str) -> Stage:
    """Return a stage that recognises, thinks and speaks as a seed says."""
    return SimStage(RealTime(), seed, GAP_US, count=lambda _: None, given=lambda _: None)
