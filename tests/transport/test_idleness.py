"""The watch over a silent socket, on a clock that is moved by hand."""

import math

import pytest

from antiphon.engine.clock import VirtualClock
from antiphon.transport.idleness import Idleness


class Watched:
    """A watch, and how often it said that nothing was heard."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.said = 0
        self.idleness = Idleness(self.clock, self._say)

    def _say(self) -> None:
        self.said += 1


def test_silence_is_told_once() -> None:
    watched = Watched()
    watched.idleness.watch(10)
    watched.clock.advance(9_999_999)
    assert watched.said == 0
    watched.clock.advance(1)
    watched.clock.advance(60_000_000)
    assert watched.said == 1


def test_the_time_runs_from_the_last_that_was_heard() -> None:
    watched = Watched()
    watched.idleness.watch(10)
    watched.clock.advance(6_000_000)
    watched.idleness.heard()
    watched.clock.advance(9_000_000)
    assert watched.said == 0
    watched.idleness.watch(8)  # shorter than what has passed already
    watched.clock.advance(1)
    assert watched.said == 1


@pytest.mark.parametrize("timeout_s", [0.0, math.inf])
def test_no_limit(timeout_s: float) -> None:
    watched = Watched()
    watched.idleness.watch(1)
    watched.idleness.watch(timeout_s)
    watched.clock.advance(10**12)
    assert watched.said == 0
