"""What the page of a session shows: the story of its log as lists, each thing with the entry that tells of it."""

from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from antiphon.events import events as ev
from antiphon.events.log import Transaction
from antiphon.events.metrics import StageCost

from .timeline import Answer, Mark, Story, Turn
from .timeline_spans import spans, voice_end

Interval = tuple[float, float]


class TurnShown(Struct, frozen=True, kw_only=True):
    """Something that the user said; `seq` is the entry."""

    seq: int
    start: float
    stop: float
    committed: float | None
    text: str


class AnswerShown(Struct, frozen=True, kw_only=True):
    """One response. `spans` are the stretches in which it was heard, `sent` pairs of a time and milliseconds."""

    seq: int
    id: str
    created: float
    first: float | None
    ended: float | None
    status: str
    cause: str | None
    text: str
    heard_text: str | None
    sent_ms: int
    heard_ms: int
    basis: str | None
    spans: list[Interval]
    sent: list[tuple[float, int]]


class RequestShown(Struct, frozen=True, kw_only=True):
    """One request at the stages, from its submission to its end."""

    seq: int
    id: str
    start: float
    accepted: float | None
    first: float | None
    end: float | None
    how: str | None


class StageShown(Struct, frozen=True, kw_only=True):
    """What one stage did for a response: it waited, worked up to its first output, and on to its last."""

    seq: int
    stage: str
    response: str
    queued: float
    start: float
    first: float
    end: float
    cost: StageCost


class Part(Struct, frozen=True):
    """A part of a wait, and what it went to."""

    name: str
    start: float
    end: float


class WaitShown(Struct, frozen=True, kw_only=True):
    """From the end of the voice to the first sound of the answer, and its parts."""

    seq: int
    start: float
    end: float
    parts: list[Part]


class ConnectionShown(Struct, frozen=True, kw_only=True):
    """A connection that served the session."""

    attachment: int
    start: float
    end: float | None
    reason: str | None


class MarkShown(Struct, frozen=True, kw_only=True):
    """Something at one moment."""

    seq: int
    at: float
    text: str


class HoldShown(Struct, frozen=True, kw_only=True):
    """Delivery stood still, until it was clear what the speech was."""

    seq: int
    start: float
    end: float | None
    how: str


class Tableau(Struct, kw_only=True):
    """All of it; times are seconds of session time from the first entry on."""

    session: str
    plugin: str
    opened_us: int
    seconds: float
    closed: str | None
    transactions: int
    events: int
    turns: list[TurnShown] = field(default_factory=list[TurnShown])
    answers: list[AnswerShown] = field(default_factory=list[AnswerShown])
    requests: list[RequestShown] = field(default_factory=list[RequestShown])
    stages: list[StageShown] = field(default_factory=list[StageShown])
    waits: list[WaitShown] = field(default_factory=list[WaitShown])
    connections: list[ConnectionShown] = field(default_factory=list[ConnectionShown])
    interruptions: list[MarkShown] = field(default_factory=list[MarkShown])
    errors: list[MarkShown] = field(default_factory=list[MarkShown])
    holds: list[HoldShown] = field(default_factory=list[HoldShown])


class _Found(Struct):
    """The entries that tell of things, by what each is known by; and what the story does not hold."""

    opened_us: int = 0
    turns: dict[str, int] = field(default_factory=dict[str, int])
    answers: dict[str, int] = field(default_factory=dict[str, int])
    requests: dict[str, int] = field(default_factory=dict[str, int])
    accepted: dict[str, float] = field(default_factory=dict[str, float])
    sounds: dict[str, int] = field(default_factory=dict[str, int])
    ends: dict[str, int] = field(default_factory=dict[str, int])
    interruptions: list[int] = field(default_factory=list[int])
    errors: list[int] = field(default_factory=list[int])
    holds: list[HoldShown] = field(default_factory=list[HoldShown])


def tableau(story: Story, transactions: Sequence[Transaction]) -> Tableau:
    """Return what is shown of a log."""
    found = _find(transactions)
    shown = Tableau(
        session=story.session,
        plugin=story.plugin,
        opened_us=found.opened_us,
        seconds=story.end_s,
        closed=story.closed,
        transactions=story.transactions,
        events=story.events,
        turns=[_turn(turn, story, found) for turn in story.turns],
        answers=[_answer(answer, found) for answer in story.answers],
        connections=[
            ConnectionShown(attachment=one.attachment, start=one.start_s, end=one.end_s, reason=one.reason)
            for one in story.connections
        ],
        interruptions=_marks(story.interruptions, found.interruptions),
        errors=_marks(story.errors, found.errors),
        holds=found.holds,
    )
    shown.requests = [
        RequestShown(
            seq=found.requests.get(work.request, 0),
            id=work.request,
            start=work.start_s,
            accepted=found.accepted.get(work.request),
            first=work.first_s,
            end=work.end_s,
            how=work.end,
        )
        for work in story.work
    ]
    shown.stages = list(_stages(story, found))
    shown.waits = list(_waits(story, found, shown.stages))
    return shown


def _marks(marks: list[Mark], entries: list[int]) -> list[MarkShown]:
    return [MarkShown(seq=seq, at=mark.at_s, text=mark.label) for mark, seq in zip(marks, entries, strict=True)]


def _turn(turn: Turn, story: Story, found: _Found) -> TurnShown:
    stop = turn.stop_s if turn.stop_s is not None else turn.committed_s
    return TurnShown(
        seq=found.turns.get(turn.item_id, 0),
        start=turn.start_s,
        stop=story.end_s if stop is None else stop,
        committed=turn.committed_s,
        text=turn.text,
    )


def _answer(answer: Answer, found: _Found) -> AnswerShown:
    return AnswerShown(
        seq=found.answers.get(answer.response_id, 0),
        id=answer.response_id,
        created=answer.created_s,
        first=answer.first_s,
        ended=answer.ended_s,
        status=answer.status,
        cause=answer.cause,
        text=answer.text,
        heard_text=answer.heard_text,
        sent_ms=answer.sent_ms,
        heard_ms=answer.played_ms,
        basis=answer.basis,
        spans=[(span.start_s, span.end_s) for span in spans(answer)],
        sent=_sent(answer),
    )


def _sent(answer: Answer) -> list[tuple[float, int]]:
    """Return what was sent when, in milliseconds of sound; what went out in one moment is one."""
    sent: list[tuple[float, int]] = []
    for delta in answer.deltas:
        at, ms = round(delta.at_s, 2), delta.end_ms - delta.start_ms
        if sent and sent[-1][0] == at:
            ms += sent.pop()[1]
        sent.append((at, ms))
    return sent


def _stages(story: Story, found: _Found) -> Iterator[StageShown]:
    """Yield what each stage did, where it lies in time: costs count from when the stage had the request."""
    begun = {work.response_id: work.start_s for work in story.work if work.response_id is not None}
    for answer in story.answers:
        start = begun.get(answer.response_id, answer.created_s)
        for cost in answer.costs:
            at = start + cost.queue_ms / 1000
            end = at + max(cost.total_ms, cost.first_output_ms) / 1000
            yield StageShown(
                seq=found.ends.get(answer.response_id, 0),
                stage=cost.stage,
                response=answer.response_id,
                queued=start,
                start=at,
                first=at + cost.first_output_ms / 1000,
                end=end,
                cost=cost,
            )


def _waits(story: Story, found: _Found, stages: list[StageShown]) -> Iterator[WaitShown]:
    for turn, answer in story.answered():
        if turn.committed_s is None or answer.first_s is None:
            continue
        start = voice_end(story, turn)
        mine = [stage for stage in stages if stage.response == answer.response_id]
        yield WaitShown(
            seq=found.sounds.get(answer.response_id, 0),
            start=start,
            end=answer.first_s,
            parts=list(_parts(start, turn.committed_s, answer.first_s, mine)),
        )


def _parts(start: float, committed: float, first: float, stages: list[StageShown]) -> Iterator[Part]:
    """Yield what a wait went to: the silence that ends a turn, each stage up to its first output, and the way out.

    A stage's part begins with the first output of the one before it, whose work it was waiting for.
    """
    at = start
    rest = "sending" if stages else "model"
    ends = [("silence", committed), *((stage.stage, stage.first) for stage in stages), (rest, first)]
    for name, end in ends:
        end = min(max(end, at), first)
        if end > at:
            yield Part(name, at, end)
        at = end


# -- the entries ---------------------------------------------------------------------------------------------


def _find(transactions: Sequence[Transaction]) -> _Found:
    found = _Found()
    origin = transactions[0].at if transactions else 0
    for transaction in transactions:
        now = (transaction.at - origin) / 1e6
        for event in transaction.events:
            _note(found, event, transaction.seq, now)
    return found


def _note(found: _Found, event: ev.AnyEvent, seq: int, now: float) -> None:
    match event:
        case ev.SessionOpened():
            found.opened_us = event.wall_us
        case ev.SpeechStarted() | ev.InputCommitted() | ev.UserTranscribed():
            found.turns.setdefault(event.item_id, seq)
        case ev.ItemCreated():
            found.turns.setdefault(event.item.id, seq)
        case ev.ResponseCreated():
            found.answers[event.head.id] = seq
        case ev.ResponseEnded():
            found.ends[event.head.id] = seq
        case ev.AudioDelta():
            found.sounds.setdefault(event.response_id, seq)
        case ev.RequestSubmitted() | ev.PreviewRequested():
            found.requests[event.request] = seq
        case ev.RequestAccepted():
            found.accepted.setdefault(event.request, now)
        case ev.Interrupted():
            found.interruptions.append(seq)
            _end_hold(found, now, event.cause)
        case ev.ErrorReported():
            found.errors.append(seq)
        case ev.InterruptionSuspected():
            found.holds.append(HoldShown(seq=seq, start=now, end=None, how=""))
        case ev.InterruptionDismissed() | ev.InterruptionDoubted():
            _end_hold(found, now, event.reason)
        case _:
            pass


def _end_hold(found: _Found, now: float, how: str) -> None:
    if found.holds and found.holds[-1].end is None:
        last = found.holds.pop()
        found.holds.append(HoldShown(seq=last.seq, start=last.start, end=now, how=how))
