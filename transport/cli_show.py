"""A log as text: the index of a data directory, and one session line by line."""

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.items import FunctionCall, FunctionOutput, Message, text_of
from antiphon.events.log import SessionRow, Transaction

from .moments import moment
from .plain import plain

_WIDEST = 96
INDEX_WIDTH = 140
"""Columns that the index needs; a narrower terminal wraps its lines."""

_HIDDEN = frozenset(
    {
        *("number", "count", "session", "attachment", "client_seq", "event_id", "control_id", "token_digest"),
        *("presented", "next_digest", "view", "config", "capabilities", "limits", "scores", "lead", "wire_bytes"),
        *("head", "marks", "playback", "costs", "usage", "previous_item_id", "wall_us"),
    }
)
"""Fields that are long, secret-like or the same in every line; `--json` shows them all."""


def index(rows: list[SessionRow]) -> Table:
    """Return the sessions of a data directory, newest first."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("session", "kind", "state", "dialect", "model", "plugin", "opened (UTC)"):
        table.add_column(name, no_wrap=True)
    for name in ("length", "transactions"):
        table.add_column(name, justify="right")
    for row in rows:
        colour = "green" if row.state == "open" else "dim"
        table.add_row(
            *(_one_line(row.session), row.kind, f"[{colour}]{row.state}[/]", row.dialect, _one_line(row.model)),
            _one_line(f"{row.plugin} {row.plugin_version}"),
            *(moment(row.opened_us), _length(row.at), f"{row.head:,}"),
        )
    return table


def print_index(console: Console, rows: list[SessionRow]) -> None:
    """Print the sessions; each in one line, however narrow the terminal is."""
    console.print(index(rows), width=max(console.width, INDEX_WIDTH))


def show(console: Console, transactions: list[Transaction], origin: int | None = None) -> None:
    """Print all of a log, a block for each transaction. Times count from `origin` (µs), else from the first one."""
    for transaction in transactions:
        origin = transaction.at if origin is None else origin
        show_one(console, transaction, origin)


def show_one(console: Console, transaction: Transaction, origin: int) -> None:
    """Print one transaction; its time is told from `origin` on."""
    seconds = (transaction.at - origin) / 1e6
    head = f"[dim]{transaction.seq:>6}[/] [cyan]{seconds:>9.3f}[/]  "
    console.print(f"{head}[bold]{type(transaction.command).__name__}[/] {_fields(transaction.command)}")
    for event in transaction.events:
        console.print(f"{'':18}[green]→ {type(event).__name__}[/] {_fields(event)}")


def _fields(record: Struct) -> str:
    shown: list[str] = []
    for name, value in msgspec.structs.asdict(record).items():
        if name in _HIDDEN or value in (None, "", (), 0):
            continue
        shown.append(f"[dim]{name}[/]={_value(value)}")
    return " ".join(shown)


def _value(value: object) -> str:
    """Return a value as markup; of a record its fields, as far as they go."""
    if isinstance(value, Struct) and not isinstance(value, _WRITTEN):
        return _fields(value)
    text = plain(_text(value))
    return escape(text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…")


def _text(value: object) -> str:
    match value:
        case str():
            return repr(value)
        case SampleRef():
            return f"{value.stream}[{value.start:,}…{value.end:,}]"
        case AudioFormat():
            return f"{value.encoding}@{value.rate}"
        case Message() | FunctionCall() | FunctionOutput():
            return f"{value.id} {text_of(value)!r}"
        case tuple():
            return f"({len(value)})"  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return str(value)


_WRITTEN = (SampleRef, AudioFormat, Message, FunctionCall, FunctionOutput)
"""Records that are shown in words of their own."""


def _one_line(text: str) -> str:
    """Return a text that was given, as markup that stays in its line."""
    return escape(plain(text))


def _length(at_us: int) -> str:
    seconds = at_us / 1e6
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
