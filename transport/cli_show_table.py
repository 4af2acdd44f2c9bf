"""A log as a table: when, who, and what came of it; what comes often is summed up."""

from collections.abc import Iterable

from msgspec import Struct, field
from rich.console import Console
from rich.markup import escape

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.items import FunctionCall, FunctionOutput, Item, Message, text_of
from antiphon.events.log import Transaction

from .entries import is_quiet
from .plain import plain

WIDEST = 72
"""Characters of what somebody said."""

_UNSAID = (ev.AudioReceived, ev.CommandSequenced, ev.ActivityNoted, ev.CostsNoted, ev.UnitTaken, ev.UnitsAccepted)
"""Events that only say what their entry says already."""


class _Run(Struct):
    """Entries that are summed up."""

    entries: list[Transaction] = field(default_factory=list[Transaction])
    appends: int = 0
    acks: int = 0
    beats: int = 0
    costs: int = 0
    heard_ms: int | None = None
    pieces: int = 0
    until_ms: int = 0
    text: str = ""

    def add(self, transaction: Transaction) -> None:
        """Count one more."""
        self.entries.append(transaction)
        self.appends += isinstance(transaction.command, cmd.AppendAudio)
        self.acks += isinstance(transaction.command, cmd.AckPlayback)
        self.beats += isinstance(transaction.command, cmd.Heartbeat)
        for event in transaction.events:
            match event:
                case ev.PlaybackAcknowledged():
                    self.heard_ms = event.playback.played_ms
                case ev.AudioDelta():
                    self.pieces += 1
                    self.until_ms = event.audio_ms
                    self.text += event.text
                case ev.CostsNoted():
                    self.costs += isinstance(transaction.command, cmd.StageMeasured)
                case _:
                    pass

    def words(self) -> str:
        """Return what they were, as markup."""
        parts: list[str] = []
        if self.appends:
            parts.append(_count(self.appends, "piece of sound", "pieces of sound"))
        if self.pieces:
            said = f" {_quoted(self.text)}" if self.text.strip() else ""
            parts.append(f"{_count(self.pieces, 'piece', 'pieces')} of the answer, to {_ms(self.until_ms)}{said}")
        if self.acks:
            heard = "" if self.heard_ms is None else f", heard to {_ms(self.heard_ms)}"
            parts.append(f"{_count(self.acks, 'acknowledgement', 'acknowledgements')}{heard}")
        if self.beats:
            parts.append(_count(self.beats, "heartbeat", "heartbeats"))
        if self.costs:
            parts.append(_count(self.costs, "measurement", "measurements"))
        return " · ".join(parts)


def show_table(console: Console, transactions: Iterable[Transaction], origin: int, *, sum_up: bool = True) -> None:
    """Print entries, each in one line, with times from `origin` (µs) on; runs of what comes often are one line."""
    console.print(f"[bold]{'entry':>11} {'time':>10}  {'who':<6}  what[/]")
    run = _Run()
    for transaction in transactions:
        if sum_up and (is_quiet(transaction) or _only_speaks(transaction)):
            run.add(transaction)
            continue
        run = _flushed(console, run, origin)
        console.print(
            f"{_head(str(transaction.seq), transaction.at - origin, _who(transaction))}{_what(transaction)}"
        )
    _flushed(console, run, origin)


def _only_speaks(transaction: Transaction) -> bool:
    """Return whether an entry is one more piece of an answer, and nothing else."""
    return bool(transaction.events) and all(
        isinstance(event, ev.AudioDelta | ev.CostsNoted) for event in transaction.events
    )


def _flushed(console: Console, run: _Run, origin: int) -> _Run:
    """Print a run, if there is one; return an empty one."""
    if not run.entries:
        return run
    first, last = run.entries[0], run.entries[-1]
    place = str(first.seq) if first is last else f"{first.seq}–{last.seq}"
    console.print(f"{_head(place, first.at - origin, '')}[dim]{run.words()}[/]")
    return _Run()


def _head(place: str, at: int, who: str) -> str:
    colour = {"client": "red", "stage": "blue"}.get(who, "dim")
    return f"[dim]{place:>11}[/] [cyan]{at / 1e6:>10.3f}[/]  [{colour}]{who:<6}[/]  "


def _who(transaction: Transaction) -> str:
    match transaction.command:
        case cmd.ClientCommand():
            return "client"
        case cmd.StageReport():
            return "stage"
        case _:
            return "engine"


def _what(transaction: Transaction) -> str:
    """Return the command, and the events that say more than it does."""
    told = [event for event in transaction.events if not isinstance(event, _UNSAID)]
    parts = " · ".join(f"[green]{type(event).__name__}[/]{_detail(event)}" for event in told)
    return f"[bold]{type(transaction.command).__name__}[/]{f' → {parts}' if parts else ''}"


def _detail(event: ev.AnyEvent) -> str:
    words = _of_talk(event) or _of_life(event)
    return f" {words}" if words else ""


def _of_talk(event: ev.AnyEvent) -> str:
    """Return what matters of an event of the conversation, as markup."""
    match event:
        case ev.SpeechStarted():
            return f"at {_ms(event.audio_start_ms)}"
        case ev.SpeechStopped():
            return f"at {_ms(event.audio_end_ms)} ({event.reason})"
        case ev.InputCommitted():
            return "empty" if event.empty else _quoted(event.transcript or "")
        case ev.UserTranscribed():
            return _quoted(event.text) if event.error is None else _plainly(event.error)
        case ev.TurnPreviewed():
            return f"{_quoted(event.text)} ({event.sentence})"
        case ev.TextReceived() | ev.TextDelta():
            return _quoted(event.text)
        case ev.AudioDelta():
            return f"to {_ms(event.audio_ms)} {_quoted(event.text)}".rstrip()
        case ev.ItemCreated():
            return _item(event.item)
        case ev.CallEnded():
            return _called(event.item)
        case ev.ResponseEnded():
            why = event.cause or event.reason or (event.failure.code if event.failure is not None else "")
            return f"{event.status}{f' ({_plainly(why)})' if why else ''} {_quoted(event.text)}".rstrip()
        case ev.HistoryCut():
            return f"heard {_ms(event.ms)} (by {event.basis}) {_quoted(event.text)}".rstrip()
        case ev.ItemTruncated():
            return f"at {_ms(event.audio_end_ms)} {_quoted(event.text)}".rstrip()
        case ev.PlaybackAcknowledged():
            return f"to {_ms(event.playback.played_ms)}"
        case ev.Interrupted():
            return event.cause
        case ev.OverlapDecided():
            return f"{event.action} ({event.reason})"
        case ev.InterruptionSuspected():
            return f"at {_ms(event.at_ms)}"
        case ev.InterruptionDismissed() | ev.InterruptionDoubted():
            return f"at {_ms(event.at_ms)} ({event.reason})"
        case _:
            return ""


def _of_life(event: ev.AnyEvent) -> str:
    """Return what matters of an event of the session's life and work, as markup."""
    match event:
        case ev.SessionOpened():
            return _plainly(f"{event.view.dialect}, {event.plugin} {event.plugin_version}")
        case ev.SessionResumed():
            return f"connection {event.attachment}"
        case ev.SessionDetached() | ev.SessionClosing() | ev.SessionClosed():
            return _plainly(event.reason)
        case ev.ErrorReported():
            return _plainly(f"{event.code}: {event.message}")
        case ev.RequestSubmitted() | ev.RequestAccepted() | ev.RequestFinished() | ev.RequestReleased():
            return _plainly(event.request.rpartition(".")[2])
        case ev.EngineRestarted():
            return f"term {event.term}"
        case _:
            return ""


def _item(item: Item) -> str:
    match item:
        case Message():
            return f"{item.role} {_quoted(text_of(item))}".rstrip()
        case FunctionCall():
            return _called(item)
        case FunctionOutput():
            return _quoted(item.output)


def _called(item: FunctionCall) -> str:
    return _plainly(f"{item.name}({_short(item.arguments)})")


def _quoted(text: str) -> str:
    words = " ".join(text.split())
    return f"“{_plainly(_short(words))}”" if words else ""


def _short(text: str) -> str:
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def _plainly(text: str) -> str:
    return escape(plain(text))


def _ms(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.2f} s"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
