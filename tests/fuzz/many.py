"""Many plans, in several processes."""

from collections import Counter
from collections.abc import Callable

from msgspec import Struct, field

from .draw import plan
from .place import Broken, carry_out
from tests.pieces import in_pieces

CHUNK = 100
"""Plans of one piece of work."""


class Report(Struct):
    """What became of them."""

    inputs: int = 0
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By kind of plan, and how it ended."""
    codes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By dialect, and error code."""
    broken: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    def join(self, other: "Report") -> None:
        """Add another one."""
        self.inputs += other.inputs
        self.outcomes += other.outcomes
        self.codes += other.codes
        self.broken += other.broken


def run(seeds: range) -> Report:
    """Carry plans out, one after another."""
    report = Report()
    for seed in seeds:
        drawn = plan(seed)
        report.inputs += 1
        try:
            place = carry_out(drawn)
        except Broken as broken:
            report.broken.append((seed, str(broken)))
            continue
        report.outcomes[drawn.kind, place.outcome] += 1
        report.codes.update((drawn.dialect, str(code)) for code in place.codes)
    return report


def fuzz(seeds: range, jobs: int, told: Callable[[Report], None] = lambda _: None) -> Report:
    """Carry many plans out in several processes; `told` hears of each piece of work."""
    report = Report()
    for part in in_pieces(seeds, CHUNK, jobs, run):
        report.join(part)
        told(part)
    return report
