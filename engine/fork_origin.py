"""The origin of a fork, read once: what commands met, what the stages were asked and said, when time had come."""

from collections.abc import Sequence

from msgspec import Struct, field

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.log import Transaction
from antiphon.sessions import core
from antiphon.sessions.plugins import REGISTRY, Registry
from antiphon.stages.base import AnyReport

from .fork_names import Counted, counted

Order = tuple[int, int]
"""Where something stands among what happens at the same time: by its transaction, and behind what."""


class Met(Struct, frozen=True):
    """The numbers that a command met, by which the fork finds its own; `seq` is the transaction before it."""

    seq: int
    attachment: int
    generation: int
    client_seq: int
    next_number: int
    token: str | None
    given: Counted


class Given(Struct, frozen=True):
    """Something that a request was given: its beginning, a unit, or (`effect` None) its end."""

    seq: int
    at: int
    effect: fx.SubmitToStage | fx.FeedStage | None


class Said(Struct, frozen=True):
    """A report of a stage, and which of the things that its request was given it answers (counted from 0).

    `seq` is its transaction, None for one that was put in; `order` its place among what happens at the same time.
    """

    seq: int | None
    at: int
    order: Order
    command: AnyReport
    cause: int
    line: int = 0

    @property
    def edited(self) -> bool:
        """Whether it is of the edits: of line `line`."""
        return self.line > 0


class Asked(Struct):
    """One request of the origin: all that it was given, and all that was said to it."""

    name: str
    inputs: list[Given] = field(default_factory=list[Given])
    outputs: list[Said] = field(default_factory=list[Said])

    def cause(self, operation: int | None) -> int:
        """Return which input a report answers that comes now: the unit it names, or the last one."""
        if operation is not None:
            for index in range(len(self.inputs) - 1, -1, -1):
                effect = self.inputs[index].effect
                if isinstance(effect, fx.FeedStage) and effect.operation == operation:
                    return index
        return len(self.inputs) - 1


class Utterance(Struct):
    """Something that the user said by voice: its item, and the bytes of the `in` stream that it is made of."""

    item_id: str
    start: int
    end: int


class Origin(Struct):
    """A log that is forked, with what its commands met (one entry each, and one for a command behind the last).

    `timers` is when a deadline was noticed: at the time and place of its `Tick`, or, if another command came first,
    behind that. `answers` are the responses to an item, in their order. `sounded` is when the sound of a response
    began, and `heard` which of them a transaction acknowledges.
    """

    session: str
    transactions: Sequence[Transaction]
    met: list[Met] = field(default_factory=list[Met])
    requests: dict[str, Asked] = field(default_factory=dict[str, Asked])
    timers: dict[int, tuple[int, Order]] = field(default_factory=dict[int, tuple[int, Order]])
    utterances: list[Utterance] = field(default_factory=list[Utterance])
    answers: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    sounded: dict[str, int] = field(default_factory=dict[str, int])
    heard: dict[int, str] = field(default_factory=dict[int, str])
    given: Counted = Counted()
    closed: bool = False

    @property
    def end(self) -> int:
        """The session time of the last entry."""
        return self.transactions[-1].at


def read(transactions: Sequence[Transaction], plugins: Registry = REGISTRY) -> Origin:
    """Read a log, which begins with the opening of its session and can be decided again."""
    first = transactions[0].command
    assert isinstance(first, cmd.OpenSession), "a log begins with an opening"
    origin = Origin(first.session, transactions)
    session = core.new()
    item = ""
    for transaction in transactions:
        origin.met.append(_met(session, transaction.seq - 1))
        _note_timer(origin, session, transaction)
        if isinstance(transaction.command, cmd.StageReport):
            _note_report(origin, transaction, transaction.command)
        core.fold([transaction], session)
        for event in transaction.events:
            item = _note_event(origin, event, item)
            if isinstance(event, ev.AudioDelta):
                origin.sounded.setdefault(event.response_id, transaction.at)
            elif isinstance(event, ev.PlaybackAcknowledged) and event.response_id in origin.sounded:
                origin.heard[transaction.seq] = event.response_id
            for effect in core.react(session, event, plugins):
                for name, given in inputs(effect, transaction.seq, transaction.at):
                    origin.requests.setdefault(name, Asked(name)).inputs.append(given)
    origin.met.append(_met(session, len(transactions)))
    origin.given = counted(session)
    origin.closed = session.phase == "closed"
    return origin


def inputs(effect: fx.AnyEffect, seq: int, at: int) -> list[tuple[str, Given]]:
    """Return what requests are given by an effect, with their names."""
    match effect:
        case fx.SubmitToStage() | fx.FeedStage():
            return [(effect.request, Given(seq, at, effect))]
        case fx.AbortRequests() | fx.ReleaseRequests():
            return [(name, Given(seq, at, None)) for name in effect.requests]
        case _:
            return []


def _met(session: core.Session, seq: int) -> Met:
    lease = session.lease
    return Met(
        seq,
        lease.attachment,
        lease.generation,
        lease.client_seq,
        session.next_number,
        lease.token,
        counted(session),
    )


def _note_timer(origin: Origin, session: core.Session, transaction: Transaction) -> None:
    deadline = core.next_deadline(session)
    if deadline is None:
        return
    if isinstance(transaction.command, cmd.Tick):
        origin.timers[deadline] = (transaction.at, (transaction.seq, 0))
    elif deadline < transaction.at:
        origin.timers[deadline] = (transaction.at, (transaction.seq, 1))


def _note_report(origin: Origin, transaction: Transaction, report: AnyReport) -> None:
    asked = origin.requests.setdefault(report.request, Asked(report.request))
    cause = asked.cause(operation_of(report))
    asked.outputs.append(Said(transaction.seq, transaction.at, (transaction.seq, 0), report, cause))


def operation_of(report: AnyReport) -> int | None:
    """Return the unit that a report names."""
    match report:
        case (
            cmd.StageAccepted(operation=operation)
            | cmd.StageProduced(operation=operation)
            | cmd.StageSegmentFinished(operation=operation)
            | cmd.StageRefused(operation=operation)
        ):
            return operation
        case _:
            return None


def _note_event(origin: Origin, event: ev.AnyEvent, item: str) -> str:
    """Note what the user said and what answers it; return the item that an answer would be to."""
    match event:
        case ev.SpeechStarted():
            origin.utterances.append(Utterance(event.item_id, event.start, event.start))
        case ev.InputCommitted(ref=ref) if not event.empty:
            if ref is not None:
                _note_sound(origin, event.item_id, ref.start, ref.end)
            return event.item_id
        case ev.ItemCreated(item=created):
            return created.id
        case ev.ResponseCreated(head=head):
            origin.answers.setdefault(item, []).append(head.id)
        case _:
            pass
    return item


def _note_sound(origin: Origin, item_id: str, start: int, end: int) -> None:
    for known in origin.utterances:
        if known.item_id == item_id:
            known.start, known.end = min(known.start, start), end
            return
    origin.utterances.append(Utterance(item_id, start, end))
