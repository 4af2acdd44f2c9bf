"""How far long work is, for somebody who waits at a terminal; nobody else is told."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from .cli_terminal import screen


@contextmanager
def progress(what: str, total: int | None = None) -> Generator[Callable[[int], None]]:
    """Show a line on standard error that goes when the work ends, if that is a terminal.

    What is lent is told how much was done since it was told the last time. `total` None: nobody knows how much.
    """
    console = screen(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    # It takes a while to load, and most of the time there is nothing to show.
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)
