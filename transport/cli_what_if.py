"""The commands `fork` and `diff`: what would have been otherwise, and where two logs part."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.markup import escape

from . import cli_logs
from .cli_errors import FAILED, UNUSABLE, Stop
from .cli_files import writable
from .cli_options import DATA, DataOption, JsonOption, Session, given, named
from .cli_terminal import print_json, screen


class Pace(StrEnum):
    """What time does in a fork while live stages work."""

    REAL = "real"
    VIRTUAL = "virtual"


def fork(
    target: Session,
    data: DataOption = DATA,
    at: Annotated[
        int | None,
        typer.Option(
            metavar="SEQ", help="The last transaction that stays as it is; default: before the first change."
        ),
    ] = None,
    commands: Annotated[
        Path | None,
        typer.Option(parser=named, metavar="EDITS.jsonl", help="Changed commands, an edit on each line."),
    ] = None,
    config_patch: Annotated[
        str | None,
        typer.Option(
            parser=given, metavar="JSON|FILE", help="Fields of the configuration that shall be otherwise."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            parser=named,
            metavar="FILE",
            help="The new log: .jsonl, or with sound .antiphon.",
        ),
    ] = None,
    assume: Annotated[
        bool,
        typer.Option(
            "--assume-answers", help="Take what the stages said in the same turn, though asked otherwise."
        ),
    ] = False,
    pipeline: Annotated[
        str | None,
        typer.Option(
            parser=given,
            metavar="NAME|FILE.toml",
            help="What answers live where nothing was recorded.",
        ),
    ] = None,
    pace: Annotated[
        Pace,
        typer.Option(help="While live stages work, time goes on (`real`) or stands still (`virtual`)."),
    ] = Pace.REAL,
    everything: Annotated[bool, typer.Option("--all", help="Name every run of entries.")] = False,
    as_json: JsonOption = False,
) -> None:
    """
    Make another log of a session, in which something is otherwise, and say what came of it.

        antiphon fork latest --config-patch '{"turn_detection": {"silence_duration_ms": 300}}'

        antiphon fork session.jsonl --at 120 --commands edits.jsonl --out what-if.jsonl

    What came from outside comes again at its time, with the edits in place, and is decided anew. What the stages
    said is taken over where they were asked the same; where not, a --pipeline answers live, or the request fails by
    name. Each line of the edits is one of

        {"drop": 14}   {"drop": [14, 20]}

        {"replace": 14, "command": {"type": "CommitInput"}}   {"replace": 14, "at_us": 2500000}

        {"insert_after": 14, "command": {"type": "BargeIn"}, "at_us": 2600000}

        {"append": {"type": "CreateResponse"}}

    The fork is a log like any other: it can be shown, drawn, replayed, compared and forked again. Named so, with
    --out what-if.antiphon, it is a bundle that has the sound too.
    """
    from . import cli_fork

    if out is not None:
        writable(out)
        origin = cli_logs.file_of(target)
        if origin is not None and out.resolve() == origin.resolve():
            raise Stop(f"{out} is the log that is to be forked: give the fork another file", UNUSABLE)
    log = cli_logs.load(target, data)
    wish = cli_fork.wish(at, commands, config_patch, assumes=assume)
    if pipeline is None:
        made = cli_fork.make(log, wish)
    else:
        from . import cli_fork_live

        made = cli_fork_live.make(log, wish, cli_fork_live.Stages(pipeline, pace.value), screen(stderr=True))
    path = cli_fork.write(made, out)
    if as_json:
        print_json(msgspec.json.encode(made.report))
        return
    cli_fork.show(screen(), made.report, everything=everything)
    screen().print(f"{escape(str(path))}: {escape(made.report.session)}, {made.report.transactions:,} transactions")


def diff(
    a: Session,
    b: Session,
    data: DataOption = DATA,
    times: Annotated[
        bool, typer.Option("--times", help="That something came at another time is a difference too.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Every difference, with all that it has.")] = False,
    as_json: JsonOption = False,
) -> None:
    """
    Lay two logs beside each other: where they part, and how their turns differ.

        antiphon diff session.jsonl what-if.jsonl

        antiphon diff latest duplex-4f02 --json

    Names that only one of them has, and numbers that count what came before, are no differences.

    Exit code 0: the same; 1: different; 2: one of them cannot be read.
    """
    from . import cli_diff

    verdict = cli_diff.judge(cli_logs.load(a, data), cli_logs.load(b, data), everything=everything, times=times)
    if as_json:
        print_json(msgspec.json.encode(verdict))
    else:
        cli_diff.show(screen(), verdict, everything=everything)
    if not verdict.equal:
        raise typer.Exit(FAILED)


def register(app: typer.Typer) -> None:
    """Add the commands to a program."""
    app.command()(fork)
    app.command()(diff)
