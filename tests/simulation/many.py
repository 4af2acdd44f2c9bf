"""Many worlds, in several processes."""

from collections.abc import Callable

from .report import Report
from .script import script
from .world import Broken, live
from tests.pieces import in_pieces

CHUNK = 25
"""Worlds of one piece of work."""


def run(seeds: range) -> Report:
    """Live through worlds, one after another."""
    report = Report()
    for seed in seeds:
        try:
            report.add(live(script(seed)))
        except Broken as broken:
            report.broken.append((seed, str(broken)))
    return report


def simulate(seeds: range, jobs: int, told: Callable[[Report], None] = lambda _: None) -> Report:
    """Live through many worlds in several processes; `told` hears of each piece of work."""
    report = Report()
    for part in in_pieces(seeds, CHUNK, jobs, run):
        report.join(part)
        told(part)
    return report
