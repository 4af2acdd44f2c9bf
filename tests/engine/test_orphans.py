"""What runners that are gone have left at the stages."""

from antiphon.engine.clock import VirtualClock
from antiphon.engine.orphans import Orphans, session_of
from antiphon.events.effects import AbortRequests

from tests.rules import rule


class Asked:
    """Orphans, and what the stages were asked."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.asked: list[tuple[int, tuple[str, ...]]] = []
        self.used: set[str] = set()
        self.failing: str | None = None
        self.orphans = Orphans(self.clock, self.abort, self.used.__contains__)

    def abort(self, effect: AbortRequests) -> None:
        self.asked.append((self.clock.monotonic_us() // 1_000_000, effect.requests))
        if self.failing in effect.requests:
            raise RuntimeError("a fault of ours")


@rule("M12", "B14", "B15")
def test_they_are_asked_for_again_until_the_stage_confirms() -> None:
    here = Asked()
    here.orphans.add(["s.e0.turn1", "s.e0.turn0"])
    here.clock.advance(80_000_000)
    both = ("s.e0.turn0", "s.e0.turn1")
    assert here.asked == [(5, both), (15, both), (35, both), (75, both)]
    here.orphans.settle("s.e0.turn0")
    assert ("s.e0.turn0" in here.orphans, "s.e0.turn1" in here.orphans) == (False, True)
    assert (here.orphans.count, set(here.orphans.sessions)) == (1, {"s"})
    here.clock.advance(60_000_000)
    assert here.asked[-1] == (135, ("s.e0.turn1",))
    here.orphans.settle("s.e0.turn1")
    here.orphans.settle("s.e0.turn1")
    assert (here.orphans.count, set(here.orphans.sessions)) == (0, set())
    here.clock.advance(600_000_000)
    assert len(here.asked) == 5


@rule("M11")
def test_a_fault_with_one_session_leaves_the_others_in_turn() -> None:
    here = Asked()
    here.failing = "a.e0"
    here.orphans.add(["a.e0", "b.e0"])
    here.clock.advance(15_000_000)
    assert here.asked == [(5, ("a.e0",)), (5, ("b.e0",)), (15, ("a.e0",)), (15, ("b.e0",))]


def test_the_work_of_a_new_runner_under_the_same_name_is_not_disturbed() -> None:
    here = Asked()
    here.orphans.add(["a.e0"])
    here.used.add("a.e0")
    here.clock.advance(5_000_000)
    assert here.asked == []
    here.used.clear()
    here.clock.advance(10_000_000)
    assert here.asked == [(15, ("a.e0",))]


@rule("M15")
def test_nothing_is_asked_once_the_stages_end_too() -> None:
    here = Asked()
    here.orphans.add(["a.e0"])
    here.orphans.close()
    here.orphans.add(["b.e0"])
    here.clock.advance(600_000_000)
    assert here.asked == []


def test_a_request_names_its_session() -> None:
    assert session_of("duplex-1.e3.turn4") == session_of("duplex-1.e3") == "duplex-1"
