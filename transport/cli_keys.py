"""`antiphon keys`: the keys that clients show, in a file that holds their digests only."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from . import keys as store
from .cli_errors import UNUSABLE, Stop
from .cli_options import DATA, DataOption, JsonOption, explain, given, named
from .cli_terminal import print_json, screen
from .keys import FILE_NAME, ApiKey, KeyFileError
from .moments import moment

app = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode="markdown",
    help="""
    The keys that clients show to come in.

    The file of keys holds what each may do and its SHA-256, never the key. A server that uses the file reads it
    again within a second of a change: a key that is removed opens nothing from then on; who is connected stays.

        antiphon keys add kiosk --sessions 4

        antiphon keys list

        antiphon keys remove kiosk
    """,
)

KeysOption = Annotated[
    Path | None,
    typer.Option(
        "--keys",
        parser=named,
        metavar="FILE",
        help=f"The file of keys; default: {FILE_NAME} in the data directory.",
    ),
]


@app.callback()
def options(context: typer.Context) -> None:
    """Without a command, show what there is."""
    explain(context)


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(parser=given, metavar="NAME", help="What you will know it by.")],
    sessions: Annotated[
        int | None, typer.Option(min=1, help="At most so many open sessions, also those that wait for a resume.")
    ] = None,
    bytes_per_s: Annotated[
        int | None, typer.Option("--bytes-per-s", min=1, help="At most so many bytes a second may be sent.")
    ] = None,
    events_per_s: Annotated[
        int | None, typer.Option("--events-per-s", min=1, help="At most so many messages a second may be sent.")
    ] = None,
    admin: Annotated[
        bool, typer.Option("--admin", help="It may look at every session, at /sessions of the server.")
    ] = False,
    keys: KeysOption = None,
    data: DataOption = DATA,
) -> None:
    """
    Make a key and print it, this once.

        antiphon keys add kiosk --sessions 4 --bytes-per-s 200000 --events-per-s 100

        antiphon keys add ops --admin

    What a bound allows in two seconds may be sent at once.
    """
    with _told():
        key, text = store.add(
            file_in(data, keys),
            name,
            sessions=sessions,
            bytes_per_s=bytes_per_s,
            events_per_s=events_per_s,
            admin=admin,
        )
    screen(stderr=True).print(
        f"[dim]the key of {escape(key.name)} ({key.id}) stands in {escape(str(file_in(data, keys)))} as a digest: "
        "it is shown this once[/]"
    )
    typer.echo(text)


@app.command("list")
def list_(keys: KeysOption = None, data: DataOption = DATA, as_json: JsonOption = False) -> None:
    """
    List the keys: what they are called and what they may do.

        antiphon keys list
    """
    file = file_in(data, keys)
    with _told():
        known = store.load(file)
    if as_json:
        print_json(msgspec.json.encode(known))
    elif known:
        screen().print(_table(known))
    else:
        screen().print(f"No key stands in {escape(str(file))}: nobody can come in.")


@app.command("remove")
def remove(
    key: Annotated[str, typer.Argument(parser=given, metavar="NAME|ID", help="The key's name or its id.")],
    keys: KeysOption = None,
    data: DataOption = DATA,
) -> None:
    """
    Remove a key: nobody comes in with it any more.

        antiphon keys remove kiosk
    """
    with _told():
        gone = store.remove(file_in(data, keys), key)
    screen().print(f"removed {escape(gone.name)} ({gone.id})")


def file_in(data: Path, keys: Path | None) -> Path:
    """Return the file of keys that is meant: the one that is named, else that of the data directory."""
    return keys or data / FILE_NAME


@contextmanager
def _told() -> Generator[None]:
    """Let what is wrong with the file end the command."""
    try:
        yield
    except KeyFileError as error:
        raise Stop(str(error), UNUSABLE) from error


def _table(keys: tuple[ApiKey, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("id", "name", "made (UTC)"):
        table.add_column(name, no_wrap=True)
    for name in ("sessions", "bytes/s", "events/s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("may look at sessions", no_wrap=True)
    for key in keys:
        made = moment(key.created * 1_000_000, "%Y-%m-%d %H:%M") if key.created else "?"
        table.add_row(
            *(key.id, escape(key.name), made),
            *("any" if most is None else f"{most:,}" for most in (key.sessions, key.bytes_per_s, key.events_per_s)),
            "yes" if key.admin else "",
        )
    return table
