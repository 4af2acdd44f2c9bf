"""Options that several commands share, and how they take what is given."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from typer.core import TyperGroup, TyperOption

DATA = Path("antiphon-data")


def given(text: object) -> str:
    """Take what an option says; nothing is a slip, often of a variable that is not set, and never a choice."""
    if not str(text).strip():
        raise typer.BadParameter("it is empty; give a value or leave the option out")
    return str(text)


def named(text: object) -> Path:
    """Take the path that an option names."""
    return Path(given(text))


Session = Annotated[
    str,
    typer.Argument(
        parser=given, metavar="SESSION|FILE", help="An id, its beginning, `latest`, or an exported file."
    ),
]
DataOption = Annotated[
    Path, typer.Option("--data", parser=named, metavar="FOLDER", help="The data directory of the server.")
]
UrlKeyOption = Annotated[
    str | None,
    typer.Option("--api-key", envvar="ANTIPHON_API_KEY", parser=given, metavar="KEY", help="The server's key."),
]
CaOption = Annotated[
    Path | None,
    typer.Option("--ca", parser=named, metavar="FILE", help="Trust this certificate authority (PEM)."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]


def explain(context: typer.Context) -> None:
    """Without a command, show what there is."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


def retained(text: object) -> str:
    """Take how long sound is kept."""
    from antiphon.engine.keeper import retention

    try:
        retention(given(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return str(text)


def command_of(app: typer.Typer) -> Callable[..., object]:
    """Return the command of an app, whose help tells no type of flags: they have no value."""
    command = typer.main.get_command(app)
    waiting = [command]
    while waiting:
        one = waiting.pop()
        for option in one.get_params(typer.Context(one)):
            if isinstance(option, TyperOption) and option.is_flag:
                option.metavar = ""
        if isinstance(one, TyperGroup):
            waiting.extend(one.commands.values())
    return command


def origin_of(text: object) -> str:
    """Take an origin as browsers send it: `https://HOST` or `https://HOST:PORT`, or `null`."""
    origin = given(text).strip().rstrip("/").lower()
    parts = urlsplit(origin)
    whole = f"{parts.scheme}://{parts.netloc}"
    if origin != "null" and not (parts.scheme and parts.netloc and origin == whole):
        raise typer.BadParameter("it is no origin; one looks like https://example.org")
    return origin
