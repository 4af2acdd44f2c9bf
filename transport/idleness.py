"""How long a socket has been silent."""

import math
from collections.abc import Callable

from antiphon.engine.clock import Clock, Timer


class Idleness:
    """Calls `idle` when nothing was heard for as long as is watched for."""

    def __init__(self, clock: Clock, idle: Callable[[], None]) -> None:
        self._clock = clock
        self._idle = idle
        self._heard_us = clock.monotonic_us()
        self._after_us = 0
        self._timer: Timer | None = None

    def heard(self) -> None:
        """Something was heard now."""
        self._heard_us = self._clock.monotonic_us()

    def watch(self, timeout_s: float) -> None:
        """Watch for a silence of `timeout_s`; 0 stops watching."""
        self.stop()
        self._after_us = int(timeout_s * 1e6) if math.isfinite(timeout_s) else 0
        if self._after_us:
            self._timer = self._clock.call_at(self._heard_us + self._after_us, self._look)

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """It was silent for long, or something was heard meanwhile: then the timer goes on from there."""
        if self._clock.monotonic_us() < self._heard_us + self._after_us:
            self._timer = self._clock.call_at(self._heard_us + self._after_us, self._look)
        else:
            self._timer = None
            self._idle()
