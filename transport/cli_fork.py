"""`antiphon fork`: a log from the beginning of another, with something otherwise; and what came of it."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import anyio
from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from antiphon.engine import fork_edits, fork_patch
from antiphon.engine.bundle import SUFFIX
from antiphon.engine.errors import UnknownPlugin
from antiphon.engine.fork import Fork
from antiphon.engine.fork_note import ForkNote, Gap, Run, fork_id, note
from antiphon.engine.fork_origin import Origin, read
from antiphon.engine.fork_samples import ForkSamples
from antiphon.engine.forked import Circling
from antiphon.engine.replay import replay

from . import cli_export, cli_logs
from .cli_errors import UNUSABLE, Stop
from .cli_logs import LoadedLog, header_of
from .cli_progress import progress
from .turn_rows import TurnRow, changes, rows

SOURCES = {
    "prefix": "as it was",
    "decided": "decided anew",
    "edited": "edited",
    "recorded": "recorded answers of the stages",
    "assumed": "recorded answers, though asked otherwise",
    "timer": "timers",
    "live": "live answers of the stages",
    "missing": "stands for an answer that nobody has",
}
MOST_SPANS = 8


class Wish(Struct, frozen=True, kw_only=True):
    """What shall be otherwise: from where on (None: from the first change), by which edits and configuration.

    `assumes`: what the stages said in the same turn shall do where they are asked otherwise.
    """

    at: int | None = None
    edits: bytes = b""
    patch: str = ""
    assumes: bool = False


class Report(Struct, frozen=True, kw_only=True):
    """What `antiphon fork --json` prints."""

    session: str
    fork: ForkNote
    transactions: int
    turns: list[TurnRow]
    changes: list[str]
    unheeded_edits: list[int]
    """Lines of the edits that came to nothing."""


class Made(Struct, frozen=True):
    """A fork, ready to be written, and what is said about it."""

    log: LoadedLog
    report: Report


def wish(at: int | None, commands: Path | None, patch: str | None, *, assumes: bool = False) -> Wish:
    """Take what was given on the command line; a file may hold the configuration.

    Raises:
        Stop: a file cannot be read.
    """
    return Wish(
        at=at,
        edits=b"" if commands is None else _bytes(commands),
        patch="" if patch is None else _text(patch),
        assumes=assumes,
    )


def _text(patch: str) -> str:
    if patch.lstrip().startswith("{"):
        return patch
    try:
        return _bytes(Path(patch)).decode()
    except UnicodeDecodeError:
        raise Stop(f"{patch} is no text", UNUSABLE) from None


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise Stop(f"there is no file {path}", UNUSABLE) from None
    except OSError as error:
        raise Stop(f"cannot read {path}: {error.strerror}", UNUSABLE) from error


def make(log: LoadedLog, wanted: Wish) -> Made:
    """Make a fork; what has no recorded answer gets one that says so.

    Raises:
        Stop: the log cannot be decided again, or what is wanted cannot be done.
    """
    fork = begun(log, wanted, salt="")
    try:
        with progress("deciding anew", len(log.transactions)) as told:
            while fork.step():
                told(1)
    except (fork_patch.PatchError, Circling) as error:
        raise Stop(str(error), UNUSABLE) from error
    return finished(log, wanted, fork, ForkSamples(fork.sounds, log.read))


def begun(log: LoadedLog, wanted: Wish, *, salt: str, live: bool = False) -> Fork:
    """Return a fork with all that comes before the first change; `salt` gives it an id of its own.

    Raises:
        Stop: the log cannot be decided again, or what is wanted cannot be done.
    """
    origin, edits, patch, at = prepared(log, wanted)
    salt += "assumed" if wanted.assumes else ""
    session = fork_id(origin.session, at, wanted.edits, wanted.patch, salt)
    try:
        return Fork(origin, edits, session=session, at=at, wanted=patch, live=live, assumes=wanted.assumes)
    except fork_patch.PatchError as error:
        raise Stop(str(error), UNUSABLE) from error


def prepared(log: LoadedLog, wanted: Wish) -> tuple[Origin, fork_edits.Edits, fork_patch.Wanted | None, int]:
    """Return the origin, what is edited in it, what is patched, and the last transaction that stays as it is.

    Raises:
        Stop: it cannot be done.
    """
    last = len(log.transactions)
    header_of(log.header.session, log.transactions)
    if wanted.at is not None and not 0 <= wanted.at <= last:
        raise Stop(f"there is no transaction {wanted.at} to begin behind: the log has 1 to {last}", UNUSABLE)
    _check(log, last if wanted.at is None else wanted.at)
    try:
        patch = fork_patch.parse(wanted.patch) if wanted.patch else None
        origin = read(log.transactions)
        edits = fork_edits.parse(wanted.edits.splitlines(), origin, wanted.at or 0)
    except (fork_patch.PatchError, fork_edits.EditError) as error:
        raise Stop(str(error), UNUSABLE) from error
    return origin, edits, patch, _begins(wanted.at, edits, patch is not None, last)


def _begins(at: int | None, edits: fork_edits.Edits, patched: bool, last: int) -> int:
    if at is not None:
        return at
    if patched:
        return 0
    return last if edits.first is None else edits.first - 1


def _check(log: LoadedLog, at: int) -> None:
    """Raises `Stop` if the log is not decided today as it was: what is forked would not be what happened."""
    try:
        found = replay(log.transactions).first_difference
    except UnknownPlugin as error:
        raise Stop(str(error), UNUSABLE) from error
    if found is not None and found.seq <= at:
        raise Stop(
            f"transaction {found.seq} is not decided today as it was recorded (`antiphon replay` shows how): "
            f"fork before it, with --at {found.seq - 1} or less",
            UNUSABLE,
        )


def finished(log: LoadedLog, wanted: Wish, fork: Fork, samples: ForkSamples, pipeline: str = "") -> Made:
    """Return a fork that has nothing left to do, with its header and what has changed.

    Raises:
        Stop: the configuration that was wanted made no difference to any.
    """
    if wanted.patch and not fork.patched:
        raise Stop(
            "there is nothing to change: the session has this configuration already, or never has the record of "
            "which only some fields are given (to switch on turn detection, give its type too)",
            UNUSABLE,
        )
    forked = fork.account()
    noted = note(forked, fork.origin.session, edits=wanted.edits, patch=wanted.patch.strip(), pipeline=pipeline)
    header = replace(header_of(forked.session, forked.transactions), fork=noted)
    after = rows(forked.transactions)
    report = Report(
        session=forked.session,
        fork=noted,
        transactions=len(forked.transactions),
        turns=after,
        changes=changes(rows(log.transactions), after, fork.counterpart),
        unheeded_edits=forked.unheeded,
    )
    return Made(LoadedLog(header, forked.transactions, samples), report)


def show(console: Console, report: Report, *, everything: bool = False) -> None:
    """Print which entries of a fork are which, what of its origin is not in it, and what has changed in words.

    `everything`: each run of entries in a line of its own.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("entries of the fork", no_wrap=True)
    table.add_column("number", justify="right")
    table.add_column("transactions")
    for source, words in SOURCES.items():
        found = [run for run in report.fork.entries if run.source == source]
        if found and everything:
            for run in found:
                table.add_row(words, f"{run.last - run.first + 1:,}", _run(run))
        elif found:
            where = spans([(run.first, run.last) for run in found])
            table.add_row(words, f"{sum(run.last - run.first + 1 for run in found):,}", where)
    otherwise = [(run.first, run.last) for run in report.fork.entries if run.otherwise]
    if otherwise:
        number = sum(last - first + 1 for first, last in otherwise)
        table.add_row("[dim]of these, decided otherwise than then[/]", f"{number:,}", spans(otherwise))
    for why in dict.fromkeys(gap.why for gap in report.fork.left):
        gaps = [gap for gap in report.fork.left if gap.why == why]
        table.add_row(
            f"[dim]left out: {escape(why)}[/]", f"{_count(gaps):,}", spans([(g.first, g.last) for g in gaps])
        )
    console.print(table)
    for line in report.unheeded_edits:
        console.print(
            f"[yellow]line {line} of the edits came to nothing[/]: the fork has no use for it, or refuses it"
        )
    for sentence in report.changes or ["no turn has changed"]:
        console.print(escape(sentence))


def _run(run: Run) -> str:
    span = spans([(run.first, run.last)])
    if run.origin is None:
        return span
    was = spans([(run.origin, run.origin + run.last - run.first)])
    return f"{span} [dim]was {was}{', decided otherwise' if run.otherwise else ''}[/]"


def _count(gaps: Sequence[Gap]) -> int:
    return sum(gap.last - gap.first + 1 for gap in gaps)


def spans(known: Sequence[tuple[int, int]]) -> str:
    """Return spans of transactions as text, joined where one follows another, and not more than a line of them."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(known):
        if joined and joined[-1][1] + 1 == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    shown = [f"{first}" if first == last else f"{first}–{last}" for first, last in joined[:MOST_SPANS]]
    return ", ".join([*shown, "…"] if len(joined) > MOST_SPANS else shown)


def write(made: Made, out: Path | None) -> Path:
    """Write a fork, as a bundle with its sound if the file is named so; return where.

    Raises:
        Stop: it cannot be written.
    """
    path = out or Path(f"{quote(made.report.session, safe='')}.jsonl")
    if path.suffix == SUFFIX:
        anyio.run(cli_export.write_bundle, path, made.log)
    else:
        cli_logs.write_export(path, made.log)
    return path
