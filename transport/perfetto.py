"""A session as a trace that ui.perfetto.dev and chrome://tracing open: the lanes of its page, and what led to what.

It is the JSON of trace events: slices (`X`) that nest within their lane, counters (`C`), moments (`i`), names of
lanes (`M`) and arrows from slice to slice (`s`, `t`, `f`). Times are whole microseconds of session time.
"""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw, Struct, field

from antiphon.events import commands as cmd
from antiphon.events.log import Transaction, to_json

from .entries import is_quiet
from .tableau import AnswerShown, RequestShown, StageShown, Tableau, WaitShown, tableau
from .timeline import Story, tell

Value = str | int | float | bool | None | Raw
Arguments = dict[str, Value]

PID = 1
ROWS = 100
"""Numbers of a lane: what overlaps in it goes into a row of its own."""

LEAST = 0.02
"""A probability that changes by less is not told again."""

SHORT_US = 200
"""How long an entry is drawn, if the next one leaves room."""


class TraceEvent(Struct, kw_only=True, omit_defaults=True):
    """One event of a trace; `ph` says what kind it is."""

    name: str
    ph: str
    ts: int
    tid: int
    pid: int
    dur: int | None = None
    cat: str = ""
    id: int | None = None
    bp: str | None = None
    s: str | None = None
    args: Arguments | None = None


class Slice(Struct, kw_only=True):
    """Something that lasts, in microseconds, before it has its row; `inside` is what it consists of."""

    name: str
    start: int
    end: int
    args: Arguments
    inside: list["Slice"] = field(default_factory=list["Slice"])
    tid: int = 0


class Lane(Struct):
    """A track. `order` is its place from above."""

    name: str
    order: int
    slices: list[Slice] = field(default_factory=list[Slice])

    def placed(self) -> Iterator[TraceEvent]:
        """Yield the lane's names and its slices, each in the first row that is free."""
        free: list[int] = []
        for one in sorted(self.slices, key=lambda one: one.start):
            row = next((row for row, until in enumerate(free) if until <= one.start), len(free))
            if row == len(free):
                free.append(0)
            free[row] = max(one.end, one.start + 1)
            one.tid = self.order * ROWS + row
            yield from _slice(one, one.tid)
        for row in range(max(1, len(free))):
            tid = self.order * ROWS + row
            name = self.name if row == 0 else f"{self.name} {row + 1}"
            yield TraceEvent(name="thread_name", ph="M", ts=0, pid=PID, tid=tid, args={"name": name})
            yield TraceEvent(name="thread_sort_index", ph="M", ts=0, pid=PID, tid=tid, args={"sort_index": tid})


def trace(transactions: Sequence[Transaction]) -> bytes:
    """Return the trace of a log."""
    story = tell(transactions)
    shown = tableau(story, transactions)
    lanes = _lanes(story, shown)
    said = _entries(transactions, len(lanes))
    events: list[TraceEvent] = [_process(shown)]
    for lane in (*lanes.values(), *said.lanes):
        events += lane.placed()
    events += _counters(story)
    events += _moments(shown)
    events += _arrows(story, lanes, said)
    body = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"session": shown.session, "plugin": shown.plugin},
    }
    return msgspec.json.encode(body)


def _slice(one: Slice, tid: int) -> Iterator[TraceEvent]:
    yield TraceEvent(
        name=one.name,
        ph="X",
        ts=one.start,
        pid=PID,
        tid=tid,
        dur=max(one.end - one.start, 1),
        cat="session",
        args=one.args,
    )
    for part in one.inside:
        if part.end > part.start:
            yield from _slice(part, tid)


def _lasting(name: str, start: float, end: float, args: Arguments | None = None) -> Slice:
    """Return a slice between two times in seconds."""
    return Slice(name=name, start=_us(start), end=_us(end), args=args or {})


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def _process(shown: Tableau) -> TraceEvent:
    return TraceEvent(name="process_name", ph="M", ts=0, pid=PID, tid=0, args={"name": f"session {shown.session}"})


# -- lanes ---------------------------------------------------------------------------------------------------


def _lanes(story: Story, shown: Tableau) -> dict[str, Lane]:
    stages = dict.fromkeys(stage.stage for stage in shown.stages)
    names = ("user", "heard", "sent", "delivery held", "waits", *(f"stage {stage}" for stage in stages))
    lanes = {name: Lane(name, order) for order, name in enumerate((*names, "requests", "connection"), 1)}
    lanes["user"].slices = [
        _lasting(turn.text or "(no words)", turn.start, turn.stop, {"seq": turn.seq}) for turn in shown.turns
    ]
    for answer in shown.answers:
        _say(answer, lanes)
    lanes["delivery held"].slices = [
        _lasting(hold.how or "undecided", hold.start, _ended(hold.end, shown), {"seq": hold.seq})
        for hold in shown.holds
    ]
    lanes["waits"].slices = [_waited(wait) for wait in shown.waits]
    for stage in shown.stages:
        lanes[f"stage {stage.stage}"].slices.append(_worked(stage))
    lanes["requests"].slices = [_requested(one, shown) for one in shown.requests]
    lanes["connection"].slices = [
        _lasting(f"attachment {one.attachment}", one.start, _ended(one.end, shown), {"ended": one.reason})
        for one in shown.connections
    ]
    return lanes


def _say(answer: AnswerShown, lanes: dict[str, Lane]) -> None:
    facts: Arguments = {
        "seq": answer.seq,
        "response": answer.id,
        "status": answer.status,
        "cause": answer.cause,
        "sent_ms": answer.sent_ms,
        "heard_ms": answer.heard_ms,
        "basis": answer.basis,
    }
    text = answer.heard_text or answer.text or answer.id
    lanes["heard"].slices += [_lasting(text, start, end, facts) for start, end in answer.spans]
    if answer.first is not None:
        last = max([answer.first, *(at for at, _ in answer.sent[-1:])])
        lanes["sent"].slices.append(_lasting(answer.text or answer.id, answer.first, last, facts))


def _waited(wait: WaitShown) -> Slice:
    name = f"{(wait.end - wait.start) * 1000:.0f} ms to the first sound"
    slice_ = _lasting(name, wait.start, wait.end, {"seq": wait.seq})
    slice_.inside = [_lasting(part.name, part.start, part.end) for part in wait.parts]
    return slice_


def _ended(end: float | None, shown: Tableau) -> float:
    return shown.seconds if end is None else end


def _worked(stage: StageShown) -> Slice:
    cost: Arguments = {"seq": stage.seq, "response": stage.response, "cost": Raw(msgspec.json.encode(stage.cost))}
    slice_ = _lasting(stage.stage, stage.queued, stage.end, cost)
    slice_.inside = [
        _lasting("queue", stage.queued, stage.start),
        _lasting("first output", stage.start, stage.first),
        _lasting("further outputs", stage.first, stage.end),
    ]
    return slice_


def _requested(one: RequestShown, shown: Tableau) -> Slice:
    end, at = _ended(one.end, shown), one.start
    slice_ = _lasting(one.id, one.start, end, {"seq": one.seq, "ended": one.how})
    for name, until in (("queue", one.accepted), ("to the first output", one.first), ("outputs", end)):
        until = at if until is None else min(max(until, at), end)
        slice_.inside.append(_lasting(name, at, until))
        at = until
    return slice_


# -- entries, and what led to what ---------------------------------------------------------------------------


class _Said(Struct):
    """The entries, by who spoke, and by their sequence."""

    lanes: list[Lane]
    by_seq: dict[int, Slice] = field(default_factory=dict[int, Slice])


def _entries(transactions: Sequence[Transaction], behind: int) -> _Said:
    names = ("client's commands", "what stages report", "the engine")
    said = _Said([Lane(name, behind + place) for place, name in enumerate(names, 1)])
    origin = transactions[0].at
    for transaction in transactions:
        lane = said.lanes[_speaker(transaction)]
        start = transaction.at - origin
        if lane.slices:
            last = lane.slices[-1]
            start = max(start, last.start + 1)
            last.end = min(last.end, start)
        one = Slice(
            name=type(transaction.command).__name__,
            start=start,
            end=start + SHORT_US,
            args={"seq": transaction.seq} if is_quiet(transaction) else {"entry": Raw(to_json(transaction))},
        )
        lane.slices.append(one)
        said.by_seq[transaction.seq] = one
    return said


def _speaker(transaction: Transaction) -> int:
    match transaction.command:
        case cmd.ClientCommand():
            return 0
        case cmd.StageReport():
            return 1
        case _:
            return 2


def _arrows(story: Story, lanes: dict[str, Lane], said: _Said) -> Iterator[TraceEvent]:
    """Yield arrows from the entry that asked for work, to the request, to the first sound that came of it."""
    requests = {one.name: one for one in lanes["requests"].slices}
    sent = {one.args["response"]: one for one in lanes["sent"].slices}
    for number, work in enumerate(story.work, 1):
        request = requests.get(work.request)
        entry = None if request is None else said.by_seq.get(_seq(request))
        if request is None or entry is None:
            continue
        path = [entry, request, *([sent[work.response_id]] if work.response_id in sent else [])]
        yield from _arrow(number, path)


def _arrow(number: int, path: list[Slice]) -> Iterator[TraceEvent]:
    """Yield the points of an arrow, if it leads forward: entries of one moment lie side by side."""
    times: list[int] = []
    for one in path:
        times.append(max(one.start, min(times[-1] if times else one.start, max(one.end, one.start + 1) - 1)))
    if times != sorted(times):
        return
    for place, (at, one) in enumerate(zip(times, path, strict=True)):
        kind = "s" if place == 0 else "f" if place == len(path) - 1 else "t"
        end = "e" if kind == "f" else None
        yield TraceEvent(name="came of", ph=kind, ts=at, pid=PID, tid=one.tid, cat="cause", id=number, bp=end)


def _seq(one: Slice) -> int:
    seq = one.args["seq"]
    return seq if isinstance(seq, int) else 0


# -- moments and counters ------------------------------------------------------------------------------------


def _counters(story: Story) -> Iterator[TraceEvent]:
    """Yield the probability of speech, where it changes."""
    last = -1.0
    for at, score in story.scores:
        if abs(score - last) >= LEAST:
            last = score
            yield TraceEvent(
                name="probability of speech", ph="C", ts=_us(max(at, 0.0)), pid=PID, tid=0, args={"p": score}
            )


def _moments(shown: Tableau) -> Iterator[TraceEvent]:
    for kind, marks in (("interrupted", shown.interruptions), ("error", shown.errors)):
        for mark in marks:
            yield TraceEvent(
                name=f"{kind}: {mark.text}",
                ph="i",
                ts=_us(mark.at),
                pid=PID,
                tid=0,
                s="p",
                cat=kind,
                args={"seq": mark.seq},
            )
