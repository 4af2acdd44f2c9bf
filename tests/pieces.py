"""Many seeds in several processes: what the simulator and the fuzzer have in common."""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

P = TypeVar("P")


def in_pieces(seeds: range, size: int, jobs: int, run: Callable[[range], P]) -> Iterator[P]:
    """Run seeds `size` by `size` in `jobs` processes; give what came of each piece, in order."""
    work = [range(first, min(first + size, seeds.stop)) for first in range(seeds.start, seeds.stop, size)]
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(run, work)
