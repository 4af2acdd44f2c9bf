"""Kill a server again and again while clients talk: `python -m tests.chaos --kills 1000 --jobs 16 --seed 1`."""

import argparse
import multiprocessing
import sys
import time
from pathlib import Path

import anyio
from rich.console import Console

from tests.chaos import checker
from tests.chaos.journal import load
from tests.chaos.many import Report, chaos, plans
from tests.chaos.round import JOURNALS, Plan
from tests.pieces import positive, progress

KEEP = Path("out/chaos")


def main(words: list[str] | None = None) -> int:
    """Carry the command line out; return its exit status: 1 if anything was lost or done twice."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=positive, default=100, metavar="N", help="how often a server is killed")
    parser.add_argument(
        "--jobs", type=positive, default=multiprocessing.cpu_count(), metavar="N", help="servers at a time"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="the first round's; the others count on")
    parser.add_argument("--keep", type=Path, default=KEEP, metavar="FOLDER", help="where a broken round is left")
    parser.add_argument("--check", type=Path, metavar="FOLDER", help="look at a round that was kept, again")
    asked = parser.parse_args(words)
    console = Console()
    if asked.check is not None:
        if not (asked.check / JOURNALS).is_file():
            parser.error(f"there is no round in {asked.check}: it holds no {JOURNALS}")
        found = anyio.run(checker.check, asked.check / "data", load(asked.check / JOURNALS))
        for wrong in found.wrong:
            console.print(wrong, markup=False, soft_wrap=True)
        console.print(f"{found.talks} sessions of clients, {len(found.wrong)} violations")
        return 1 if found.wrong else 0
    return _kill(asked, console)


def _kill(asked: argparse.Namespace, console: Console) -> int:
    begun = time.monotonic()
    with progress(console, "kills", asked.kills) as shown:

        def told(part: Report) -> None:
            shown(part.kills.total(), [(plan.seed, _said(plan, wrong, kept)) for plan, wrong, kept in part.broken])

        report = chaos(plans(asked.seed, asked.kills), asked.jobs, asked.keep.absolute(), told)
    console.print(report.text(time.monotonic() - begun), markup=False, soft_wrap=True)
    return 1 if report.broken else 0


def _said(plan: Plan, wrong: list[str], kept: str) -> str:
    """Return what went wrong in a round, a line each, and how to look at it again."""
    again = f"python -m tests.chaos --seed {plan.seed} --kills {plan.kills} --jobs 1"
    return "\n".join([*(f"seed {plan.seed}: {line}" for line in wrong), f"  kept in {kept}; again: {again}"])


if __name__ == "__main__":
    sys.exit(main())
