"""Hostile inputs: `python -m tests.fuzz --inputs 100000 --jobs 2`; a failure is cut short and kept."""

import argparse
import multiprocessing
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .draw import plan
from .many import Report, fuzz
from .place import Broken, carry_out
from .plan import load, save
from .shrink import shrink, sort
from tests.pieces import one_of_each, positive, progress

KEPT = Path(__file__).parent / "kept"
NIGHTLY = 100_000


def main(words: list[str] | None = None) -> int:
    """Carry the command line out; return its exit status: 1 if something was not as documented."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=positive, default=NIGHTLY, metavar="N", help="how many connections")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first one's seed")
    parser.add_argument("--jobs", type=positive, default=multiprocessing.cpu_count(), metavar="N", help="processes")
    parser.add_argument("--plan", type=Path, metavar="FILE", help="carry out a plan that was kept, instead")
    parser.add_argument("--keep", type=Path, default=KEPT, metavar="FOLDER", help="where short plans go")
    parser.add_argument("--most", type=positive, default=5, metavar="N", help="how many failures are cut short")
    asked = parser.parse_args(words)
    console = Console()
    if asked.plan is not None:
        return _again(asked.plan, console)
    begun = time.monotonic()
    seeds = range(asked.first, asked.first + asked.inputs)
    with progress(console, "inputs", asked.inputs) as told:
        report = fuzz(seeds, asked.jobs, lambda part: told(part.inputs, part.broken))
    show(report, time.monotonic() - begun, console)
    for seed, message in one_of_each(report.broken, sort, asked.most):
        _keep(seed, message, asked.keep, console)
    return 1 if report.broken else 0


def show(report: Report, seconds: float, console: Console) -> None:
    """Print what became of the inputs."""
    table = Table("kind", "how it ended", "inputs", title=f"{report.inputs} inputs in {seconds:.0f} s")
    for (kind, outcome), count in sorted(report.outcomes.items(), key=lambda entry: (entry[0][0], -entry[1])):
        table.add_row(kind, outcome, str(count))
    console.print(table)
    codes = Table("dialect", "error", "sent", title="errors, by code")
    for (dialect, code), count in sorted(report.codes.items(), key=lambda entry: (entry[0][0], -entry[1])):
        codes.add_row(dialect, code, str(count))
    console.print(codes)
    console.print(f"{len(report.broken)} were not as documented")


def _again(path: Path, console: Console) -> int:
    try:
        console.print(f"{path.name}: {carry_out(load(path)).outcome}", markup=False)
    except Broken as broken:
        console.print(f"{path.name}: {broken}", markup=False)
        return 1
    return 0


def _keep(seed: int, message: str, folder: Path, console: Console) -> None:
    short = shrink(plan(seed))
    folder.mkdir(exist_ok=True)
    path = folder / f"seed_{seed}.json"
    save(short, path)
    console.print(f"{message}\n  kept in {path.name}, {len(short.steps)} steps: --plan {path}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
