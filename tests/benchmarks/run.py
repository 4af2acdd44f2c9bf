"""Every measurement, each beside a rival or a limit of the same run: `make bench`.

    python tests/benchmarks/run.py [core] [append] [inside] [socket] [resume] [clients] [voice] [recovery]

Prints one table and writes out/bench.json. Nothing is asserted: the figures belong to the machine, and to what
else runs on it meanwhile; the ratios travel better. Takes about six minutes on two cores, without `recovery`:
that writes 5 GB and takes four minutes more, and runs only when it is named.
"""

import argparse
import importlib
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import bench_append
import bench_core
import bench_visible
import msgspec
import uvloop
from figures import Figure, Say, first_in_line, fresh_folder
from rich.console import Console
from rich.table import Table

from antiphon.engine.datadir import DataDirectory
from antiphon.engine.memory_log import MemoryLog

RESULTS = Path("out") / "bench.json"
Measure = Callable[[Say], list[Figure]]


def core(say: Say) -> list[Figure]:
    """The pure core, from `bench_core`."""
    count = 8_000
    say("core: a plain loop")
    base = bench_core.unit(count)
    say("core: commands")
    rival = "plain loop: 3 calls, a dict"
    made = [
        Figure(part="core", what=name.rstrip("."), ours=us, unit="µs", beside=rival, theirs=base, goal="<= 10")
        for name, us in bench_core.commands(count)
    ]
    say("core: fold")
    fold = bench_core.folded(count)
    return [
        *made,
        Figure(
            part="core",
            what="events folded a second",
            ours=fold,
            unit="1/s",
            beside=f"{rival} a second",
            theirs=1e6 / base,
            goal=">= 250,000",
        ),
    ]


def append(say: Say) -> list[Figure]:
    """A durable append, from `bench_append`, and until it is visible, from `bench_visible`."""
    work = bench_append.transactions(8_000)
    made: list[Figure] = []
    for size in (1, 8, 64):
        say(f"append: {size} rows a commit")
        with fresh_folder() as folder:
            bare = bench_append.bare(work, size, folder)[0]
        with fresh_folder() as folder, DataDirectory(folder) as data:
            ours = uvloop.run(_through(data, work, size))
        memory = uvloop.run(_in_memory(work, size))
        for what, us in (("durable append", ours), ("append in memory", memory)):
            made.append(
                Figure(
                    part="append",
                    what=f"{what}, {size} rows a commit",
                    ours=us * 1e6,
                    unit="µs/row",
                    beside="bare sqlite3 loop",
                    theirs=bare * 1e6,
                )
            )
    return [*made, *bench_visible.measure(say)]


async def _through(data: DataDirectory, work: list[tuple[str, bench_append.Transaction]], size: int) -> float:
    log = await bench_append.store("sqlite inline", data)
    return (await bench_append.through(log, work, size))[0]


async def _in_memory(work: list[tuple[str, bench_append.Transaction]], size: int) -> float:
    return (await bench_append.through(MemoryLog(), work, size))[0]


def module(name: str) -> Measure:
    """Return a benchmark that is loaded when it is run: not all of them can be everywhere."""

    def measure(say: Say) -> list[Figure]:
        found: Measure = importlib.import_module(name).measure
        return found(say)

    return measure


BENCHMARKS: dict[str, Measure] = {
    "core": core,
    "append": append,
    "inside": module("bench_inside"),
    "socket": module("bench_socket"),
    "resume": module("bench_resume"),
    "clients": module("bench_clients"),
    "voice": module("bench_voice"),
    "recovery": module("bench_recovery"),
}
ASKED_FOR = ("recovery",)
"""Only when they are named."""


def number(value: float | None) -> str:
    """Write a figure with about three digits."""
    if value is None or value != value:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(figures: Sequence[Figure]) -> Table:
    """Put everything into one table."""
    made = Table(title="Measured here, now", title_justify="left")
    made.add_column("")
    made.add_column("what", overflow="fold")
    for name in ("measured", "beside it", "ratio"):
        made.add_column(name, justify="right")
    made.add_column("beside")
    made.add_column("goal")
    for part, group in groupby(figures, lambda figure: figure.part):
        for index, figure in enumerate(group):
            ratio = figure.ratio
            made.add_row(
                part if index == 0 else "",
                figure.what,
                f"{number(figure.ours)} {figure.unit}",
                number(figure.theirs) if figure.theirs is not None else "",
                f"x {number(ratio)}" if ratio is not None else "",
                figure.beside,
                figure.goal,
            )
        made.add_section()
    return made


def run(names: Sequence[str], console: Console) -> list[Figure]:
    """Run benchmarks; one that cannot be run says so, and the others go on."""
    figures: list[Figure] = []
    for name in names:
        begin = time.perf_counter()
        with console.status(name) as status:

            def say(text: str) -> None:
                status.update(text)
                if not console.is_terminal:
                    console.print(f"  {text}", highlight=False)

            try:
                figures += BENCHMARKS[name](say)
            except (TimeoutError, ImportError, OSError, RuntimeError, ExceptionGroup) as error:
                console.print(f"[yellow]{name} could not be measured[/]: {type(error).__name__}: {error}")
        console.print(f"[dim]{name}: {time.perf_counter() - begin:.0f} s[/]", highlight=False)
    return figures


def save(figures: Sequence[Figure], load: tuple[float, float, float], *, first: bool) -> None:
    """Write what was measured, and where."""
    RESULTS.parent.mkdir(exist_ok=True)
    found = {
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "load_before": load[0],
        "went_first": first,
        "figures": [{**msgspec.to_builtins(figure), "ratio": figure.ratio} for figure in figures],
    }
    RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> int:
    """Run what is named, or everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    usual = [name for name in BENCHMARKS if name not in ASKED_FOR]
    names: list[str] = parser.parse_args().names or usual
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    console = Console(width=max(140, shutil.get_terminal_size().columns))
    load = os.getloadavg()
    with first_in_line() as first:
        if load[0] > 0.5:
            helped = "they go last meanwhile" if first else "the tails below are theirs too"
            console.print(f"[yellow]Other programs are busy here (load {load[0]:.1f}): {helped}.[/]")
        figures = run(names, console)
    console.print(table(figures))
    save(figures, load, first=first)
    console.print(f"[dim]Also in {RESULTS}.[/]", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
