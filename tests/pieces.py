"""Many seeds in several processes, and the command lines over them: what simulator and fuzzer have in common."""

import argparse
import multiprocessing
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

P = TypeVar("P")

Failure = tuple[int, str]
"""The seed that failed, and what was wrong."""

Told = Callable[[int, Iterable[Failure]], None]
"""Takes how many seeds are done besides, and which of them failed."""


def in_pieces(seeds: range, size: int, jobs: int, run: Callable[[range], P]) -> Iterator[P]:
    """Run seeds `size` by `size` in `jobs` processes; give what came of each piece, in order."""
    work = [range(first, min(first + size, seeds.stop)) for first in range(seeds.start, seeds.stop, size)]
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(run, work)


def positive(text: str) -> int:
    """Read an option that is a number of something, at least one."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of them")
    return int(text)


@contextmanager
def progress(console: Console, what: str, total: int) -> Generator[Told]:
    """Show how far it has come, and each failure as it is found."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as shown:
        task = shown.add_task(what, total=total)

        def told(done: int, broken: Iterable[Failure]) -> None:
            for _, message in broken:
                console.print(message, markup=False, soft_wrap=True)
            shown.update(task, advance=done)

        yield told


def one_of_each(broken: Iterable[Failure], kind: Callable[[str], str], most: int) -> list[Failure]:
    """Return the first failure of each kind, of `most` kinds."""
    kinds: dict[str, Failure] = {}
    for failure in broken:
        kinds.setdefault(kind(failure[1]), failure)
    return list(kinds.values())[:most]
