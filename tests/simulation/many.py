"""Many worlds, in several processes."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from .report import Report
from .script import script
from .world import Broken, live

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
    work = [range(first, min(first + CHUNK, seeds.stop)) for first in range(seeds.start, seeds.stop, CHUNK)]
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for part in pool.map(run, work):
            report.join(part)
            told(part)
    return report
