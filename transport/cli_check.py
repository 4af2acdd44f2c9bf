"""`antiphon log check`: whether everything in a data directory is as it was written."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from antiphon.events.log import LogError

from .cli_errors import FAILED, UNUSABLE, Stop
from .cli_logs import choose, existing
from .cli_options import DATA, DataOption, JsonOption
from .cli_terminal import print_json, screen

if TYPE_CHECKING:
    from antiphon.engine.checking import Findings

Targets = Annotated[
    list[str] | None, typer.Argument(metavar="[SESSION]...", help="Ids, their beginnings, or `latest`; none: all.")
]


def log_check(sessions: Targets = None, data: DataOption = DATA, as_json: JsonOption = False) -> None:
    """
    Look whether every record, its sound and every snapshot is as it was written. Changes nothing.

        antiphon log check --data antiphon-data

        antiphon log check latest --json

    Each record's checksum and place, the order of terms and times, each piece of sound, and each snapshot against
    the fold of its log. A server may go on writing meanwhile.

    Exit code 0: all is whole; 1: something is damaged; 2: there is nothing that can be read.
    """
    found = run(sessions or [], data, screen(stderr=True))
    if as_json:
        print_json(msgspec.json.encode(found))
    else:
        show(screen(), found)
    if found.damage:
        raise typer.Exit(FAILED)


def run(targets: Sequence[str], data: Path, errors: Console) -> "Findings":
    """Check the sessions that are meant, or all of them; shows how far it is.

    Raises:
        Stop: there is no log, it cannot be read, or a target means none or more than one.
    """
    from antiphon.engine.checking import check

    paths = existing(data)
    wanted = {row.session for row in choose(targets, data)} if targets else None
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as shown:
        task = shown.add_task("checking", total=None)
        try:
            return check(paths, wanted, lambda done, total: shown.update(task, completed=done, total=total))
        except LogError as error:
            raise Stop(str(error), UNUSABLE) from error


def tell(damage: str) -> None:
    """Say why a log was shown or written only up to a damaged record, and fail.

    Raises:
        Stop: it was.
    """
    if damage:
        raise Stop(damage, FAILED)


def show(console: Console, found: "Findings") -> None:
    """Print what was found: each damage in a line, then the sum."""
    for damage in found.damage:
        where = f"{damage.session}: " if damage.session else ""
        record = f"record {damage.seq:,}: " if damage.seq else ""
        console.print(f"[bold red]damaged[/] {escape(where + record + damage.what)}")
    for name in found.stray:
        console.print(f"[yellow]stray[/] {escape(name)}: sound of no session of this log; it may be deleted")
    megabytes = found.sound_bytes / 1e6
    looked = f"{found.sessions:,} sessions, {found.records:,} records, {megabytes:,.1f} MB of sound"
    retired = f"; {found.retired:,} pieces of sound are past their retention" if found.retired else ""
    if found.later:
        console.print(f"{found.later:,} records were written by a later version of antiphon, and not looked into")
    if not found.damage:
        console.print(f"[bold green]whole[/]: {looked}{retired}")
        return
    hit = {damage.session for damage in found.damage if damage.session}
    console.print(f"[bold red]damaged[/]: {len(hit):,} of {looked}{retired}")
    if hit:
        console.print(
            "What stands before a damaged record can be shown and exported. Restore the directory from a backup, "
            "or remove these sessions with `antiphon log rm`; the others go on."
        )
