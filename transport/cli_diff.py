"""`antiphon diff`: two logs beside each other, as a verdict and as text."""

from collections import Counter

from msgspec import Struct
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from antiphon.engine.compare import Field, Pair, compare

from .cli_logs import LoadedLog
from .turn_rows import TurnRow, changes, counterparts, rows

WIDEST = 160
MOST_FIELDS = 12


class Parting(Struct, frozen=True, kw_only=True):
    """An entry that is not the same: where it is in each log (None: it is not), what it is, and what differs."""

    a: int | None
    b: int | None
    command: str
    at_s: float
    fields: tuple[Field, ...]


class Verdict(Struct, frozen=True, kw_only=True):
    """What `antiphon diff --json` prints; `differences` has the first one, or with `--all` every one."""

    equal: bool
    a: str
    b: str
    common: int
    same: int
    otherwise: int
    only_a: int
    only_b: int
    largest_shift_us: int
    largest_shift_at: int
    differences: list[Parting]
    turns_a: list[TurnRow]
    turns_b: list[TurnRow]
    changes: list[str]


def judge(a: LoadedLog, b: LoadedLog, *, everything: bool = False, times: bool = False) -> Verdict:
    """Compare two logs. `times`: that something came at another time is a difference too."""
    found = compare(a.transactions, b.transactions)
    counted = Counter(_kind(pair) for pair in found.pairs)
    parted = [_parting(pair) for pair in found.pairs if not pair.same]
    turns_a, turns_b = rows(a.transactions), rows(b.transactions)
    return Verdict(
        equal=found.equal and not (times and found.shift_us),
        a=a.header.session,
        b=b.header.session,
        common=found.common,
        same=counted["same"],
        otherwise=counted["otherwise"],
        only_a=counted["only a"],
        only_b=counted["only b"],
        largest_shift_us=found.shift_us,
        largest_shift_at=found.shift_seq,
        differences=parted if everything else parted[:1],
        turns_a=turns_a,
        turns_b=turns_b,
        changes=changes(turns_a, turns_b, counterparts(turns_a, turns_b, found.counterpart).get),
    )


def _kind(pair: Pair) -> str:
    if pair.a is None or pair.b is None:
        return "only b" if pair.a is None else "only a"
    return "otherwise" if pair.fields else "same"


def _parting(pair: Pair) -> Parting:
    entry = pair.a or pair.b
    assert entry is not None, "a pair has at least one entry"
    return Parting(
        a=None if pair.a is None else pair.a.seq,
        b=None if pair.b is None else pair.b.seq,
        command=type(entry.command).__name__,
        at_s=entry.at / 1e6,
        fields=pair.fields,
    )


def show(console: Console, verdict: Verdict, *, everything: bool = False) -> None:
    """Print where two logs part and what differs from there on; `everything`: each difference with all it has."""
    if not verdict.differences:
        console.print(f"[bold green]the same[/]: {verdict.common:,} transactions of {_name(verdict.a)}")
        if verdict.largest_shift_us:
            console.print(f"but for their times: up to {_shift(verdict)}")
        return
    console.print(f"[bold red]different[/]: A is {_name(verdict.a)}, B is {_name(verdict.b)}")
    console.print(f"the first {verdict.common:,} transactions are the same; they part at")
    for parting in verdict.differences:
        _show_parting(console, parting, everything=everything)
    console.print(
        f"in all {verdict.same:,} the same, {verdict.otherwise:,} decided otherwise, "
        f"{verdict.only_a:,} only in A, {verdict.only_b:,} only in B"
    )
    if verdict.largest_shift_us:
        console.print(f"what is the same came up to {_shift(verdict)}")
    if verdict.turns_a or verdict.turns_b:
        console.print(_table(verdict))
    for sentence in verdict.changes or ["no turn differs"]:
        console.print(escape(sentence))


def _name(session: str) -> str:
    return escape(session)


def _shift(verdict: Verdict) -> str:
    way = "later" if verdict.largest_shift_us > 0 else "earlier"
    return (
        f"{abs(verdict.largest_shift_us) / 1000:,.1f} ms {way} in B (transaction {verdict.largest_shift_at} of A)"
    )


def _show_parting(console: Console, parting: Parting, *, everything: bool) -> None:
    places = [f"{seq} of {log}" for seq, log in ((parting.a, "A"), (parting.b, "B")) if seq is not None]
    alone = "" if len(places) == 2 else ", which the other has not"
    console.print(
        f"  transaction {' and '.join(places)}{alone}: [bold]{parting.command}[/] at {parting.at_s:.3f} s"
    )
    shown = parting.fields if everything else parting.fields[:MOST_FIELDS]
    for known in shown:
        console.print(f"    [cyan]{escape(known.path)}[/]")
        for log, text in (("A", known.a), ("B", known.b)):
            console.print(f"      {log} {escape(_short(text, everything=everything))}")
    if len(shown) < len(parting.fields):
        console.print(f"    [dim]… and {len(parting.fields) - len(shown)} more (--all)[/]")


def _short(text: str | None, *, everything: bool) -> str:
    if text is None:
        return "nothing"
    return text if everything or len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def _table(verdict: Verdict) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("turn", "log", "began", "ended", "first sound", "heard", "interrupted by", "words", "answer"):
        table.add_column(name, no_wrap=True)
    for number in range(max(len(verdict.turns_a), len(verdict.turns_b))):
        for log, known in (("A", verdict.turns_a), ("B", verdict.turns_b)):
            if number < len(known):
                table.add_row(str(number + 1), log, *_cells(known[number]))
    return table


def _cells(row: TurnRow) -> list[str]:
    return [
        f"{row.start_s:.3f} s",
        "" if row.end_s is None else f"{row.end_s:.3f} s",
        "" if row.first_ms is None else f"+{row.first_ms:,} ms",
        "" if row.heard_ms is None else f"{row.heard_ms:,} ms",
        ", ".join(row.interruptions),
        *(escape(text if len(text) <= 32 else f"{text[:31]}…") for text in (row.words, row.answer)),
    ]
