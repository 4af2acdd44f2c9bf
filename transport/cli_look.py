"""`antiphon log show`, `log play` and `log timeline`: what they take, and what they print."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from antiphon.events.log import to_json

from . import cli_check, cli_logs
from .cli_options import DATA, DataOption, JsonOption, Session, given, named
from .cli_terminal import print_json, screen


def show(
    target: Session,
    data: DataOption = DATA,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", parser=given, metavar="NAME", help="Only these commands or events."),
    ] = None,
    turn: Annotated[int | None, typer.Option(min=1, help="Only this turn of the user, from 1 on.")] = None,
    start: Annotated[
        float | None, typer.Option("--from", min=0.0, metavar="SECONDS", help="From this time of the session.")
    ] = None,
    end: Annotated[
        float | None, typer.Option("--to", min=0.0, metavar="SECONDS", help="Up to this time of the session.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every entry with all that it says.")] = False,
    as_json: JsonOption = False,
) -> None:
    """
    Print a session: when, who, and what came of it. Runs of sound and acknowledgements are summed up.

        antiphon log show latest

        antiphon log show latest --turn 2

        antiphon log show latest --type interrupted --type HistoryCut

        antiphon log show session.jsonl --from 12.5 --to 20 --all

    With --json every entry is one line of JSON, as in an exported file. Part of a name is enough for --type.
    """
    from . import cli_select, cli_show, cli_show_table

    loaded = cli_logs.load(target, data, damaged=True)
    log = loaded.transactions
    choice = cli_select.Choice(types=tuple(types or ()), turn=turn, start_s=start, end_s=end)
    chosen = cli_select.select(log, choice)
    if as_json:
        for transaction in chosen:
            print_json(to_json(transaction))
    elif not chosen:
        screen().print("No entry is like that.")
    elif everything:
        cli_show.show(screen(), chosen, log[0].at)
    else:
        cli_show_table.show_table(screen(), chosen, log[0].at, sum_up=not types)
    cli_check.tell(loaded.damage)


def play(
    target: Session,
    data: DataOption = DATA,
    generated: Annotated[bool, typer.Option("--generated", help="All that was made, uncut.")] = False,
    start: Annotated[
        float, typer.Option("--from", min=0.0, metavar="SECONDS", help="Begin here in the session.")
    ] = 0.0,
) -> None:
    """
    Play a session: the user on the left, on the right the assistant as it was heard.

        antiphon log play latest

        antiphon log play latest --from 12.5
    """
    from . import cli_listen

    cli_listen.play(target, data, screen(), generated=generated, start_s=start)


def timeline(
    target: Session,
    data: DataOption = DATA,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", parser=named, metavar="FILE.html", help="The page; default: timeline.html."),
    ] = None,
    perfetto: Annotated[
        Path | None, typer.Option(parser=named, metavar="FILE.json", help="Write a trace for ui.perfetto.dev.")
    ] = None,
) -> None:
    """
    Write a session as one page to look at: both voices, the stages, what was sent and heard, every entry.

        antiphon log timeline latest -o session.html

        antiphon log timeline latest --perfetto trace.json

    The page needs no network and no server, so it can be sent to somebody else. With --perfetto, it is written only
    if it is named as well.
    """
    from . import cli_timeline

    log = cli_logs.load(target, data, damaged=True)
    if perfetto is not None:
        size = cli_timeline.write_trace(log, perfetto)
        screen().print(f"{escape(str(perfetto))}: {size / 1000:,.0f} KB; open it at ui.perfetto.dev")
    if out is not None or perfetto is None:
        path = out or Path("timeline.html")
        size = cli_timeline.write_page(log, path)
        screen().print(f"{escape(str(path))}: {size / 1000:,.0f} KB; open it in a browser")
    cli_check.tell(log.damage)
