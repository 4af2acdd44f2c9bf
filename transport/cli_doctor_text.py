"""The finding of `antiphon doctor` as text."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .cli_doctor import CORE, Report

_PURPOSE = {
    "voice": "the spoken pipeline on CPU cores",
    "demo": "`antiphon log draw` and the demo's picture",
    "cluster": "the distributed log",
    "kernels": "Triton kernels",
    "diffusion": "image, video and sound pipelines",
    "vllm": "language models on a GPU",
}

_HOW_TO_GET = {extra: f".venv/bin/pip install -e '.\\[{extra}]'" for extra in _PURPOSE} | {"demo": "make voice"}


def show(console: Console, report: Report) -> None:
    """Print the finding: what is there, then what each pipeline lacks and how to get it."""
    console.print(f"[bold]antiphon {report.version}[/] on Python {report.python}, {report.machine}")
    console.print(_packages(report))
    for line in report.models:
        console.print(f"  model {escape(line)}")
    console.print()
    for line in advice(report):
        console.print(line)


def _packages(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2), show_header=False)
    for extra, packages in report.packages.items():
        missing = report.lacks(extra)
        there = [f"{package.name} {package.found}" for package in packages if package.name not in missing]
        name = "core" if extra == CORE else extra
        state = "[green]complete[/]" if not missing else "[yellow]incomplete[/]" if there else "[dim]absent[/]"
        table.add_row(f"[bold]{name}[/]", state, ", ".join(there) or _PURPOSE.get(extra, ""))
    return table


def advice(report: Report) -> list[str]:
    """Return for each pipeline one line: ready, or what it lacks and the command that gets it."""
    lines: list[str] = []
    core = report.lacks(CORE)
    if core:
        lines.append(f"[red]echo lacks[/] {', '.join(core)}; get it with: make core")
    else:
        lines.append("[green]echo is ready[/]: antiphon serve --pipeline echo")
    lacking = [*report.lacks("voice"), *(["espeak-ng"] if report.espeak is None else [])]
    if lacking:
        lines.append(f"[yellow]voice lacks[/] {', '.join(lacking)}; get it with: make voice")
    elif not report.models_ready:
        lines.append("[yellow]voice lacks models[/], as said above")
    else:
        lines.append("[green]voice is ready[/]: antiphon serve --pipeline voice")
    lines.extend(
        f"[dim]{extra} ({purpose}) lacks {', '.join(report.lacks(extra))}; get it with: {_HOW_TO_GET[extra]}[/]"
        for extra, purpose in _PURPOSE.items()
        if extra != "voice" and report.lacks(extra)
    )
    return lines
