"""Run many worlds: `python -m tests.simulation --seeds 0..2000 --jobs 2`; a failure is cut short and kept."""

import argparse
import multiprocessing
import sys
import time
from pathlib import Path

from rich.console import Console

from .many import simulate
from .script import load, save, script
from .shrink import kind, shrink
from .world import Broken, live
from tests.pieces import one_of_each, positive, progress

KEPT = Path(__file__).parent / "kept"


def _seeds(text: str) -> range:
    first, dots, last = text.partition("..")
    try:
        seeds = range(int(first), int(last) if dots else int(first) + 1)
    except ValueError:
        seeds = range(0)
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text!r} names no worlds; say A..B, or one number")
    return seeds


def main(words: list[str] | None = None) -> int:
    """Carry the command line out; return its exit status: 1 if a rule was broken, 2 if something was never seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument(
        "--seeds", type=_seeds, default=range(2000), metavar="A..B", help="which worlds (B excluded)"
    )
    parser.add_argument("--jobs", type=positive, default=multiprocessing.cpu_count(), metavar="N", help="processes")
    parser.add_argument("--script", type=Path, metavar="FILE", help="run a script that was kept, instead of seeds")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the summary there, as Markdown")
    parser.add_argument("--keep", type=Path, default=KEPT, metavar="FOLDER", help="where short scripts go")
    parser.add_argument("--most", type=positive, default=3, metavar="N", help="how many failures are cut short")
    parser.add_argument(
        "--traces", action="store_true", help="print a checksum of each world's trace, nothing else"
    )
    parser.add_argument("--sometimes", action="store_true", help="fail if something rare was never seen")
    asked = parser.parse_args(words)
    console = Console()
    if asked.script is not None:
        if not asked.script.is_file():
            parser.error(f"there is no script {asked.script}")
        try:
            live(load(asked.script))
        except Broken as broken:
            console.print(f"{asked.script.name}: {broken}", markup=False)
            return 1
        console.print(f"{asked.script.name}: no rule was broken")
        return 0
    if asked.traces:
        for seed in asked.seeds:
            console.print(f"{seed} {live(script(seed)).trace.hexdigest()}", highlight=False)
        return 0
    return _many(asked, console)


def _many(asked: argparse.Namespace, console: Console) -> int:
    begun = time.monotonic()
    with progress(console, "worlds", len(asked.seeds)) as told:
        report = simulate(asked.seeds, asked.jobs, lambda part: told(part.worlds + len(part.broken), part.broken))
    text = report.text(time.monotonic() - begun)
    console.print(text, markup=False, soft_wrap=True)
    if asked.report is not None:
        asked.report.write_text(text + "\n")
    for seed, message in one_of_each(report.broken, kind, asked.most):
        _keep(seed, message, asked.keep, console)
    if report.broken:
        return 1
    if asked.sometimes and report.missing:
        console.print(f"never seen: {', '.join(report.missing)}", markup=False)
        return 2
    return 0


def _keep(seed: int, message: str, folder: Path, console: Console) -> None:
    with console.status(f"seed {seed}: cutting the script short") as status:
        short = shrink(script(seed), told=lambda left: status.update(f"seed {seed}: cut to {left} steps"))
    folder.mkdir(exist_ok=True)
    path = folder / f"seed_{seed}.json"
    save(short, path)
    console.print(f"{message}\n  kept in {path.name}, {len(short.steps)} steps: --script {path}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
