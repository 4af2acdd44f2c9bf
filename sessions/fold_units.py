"""What the events of a resident model's input change: its buffer, units, continuations, commands that wait."""

from bisect import bisect_left

from msgspec.structs import replace

from antiphon.events import events as ev
from antiphon.events.audio import SampleRef
from antiphon.events.items import AudioPart, Item, Message, Part, TextPart

from .options import with_options
from .phases import LIVE
from .state import KEPT_FORMATS, Continuation, Group, Session, Span, Stream, Told, Unit, size_of

# -- sound on its way ----------------------------------------------------------------------------------------


def heard(session: Session, event: ev.AudioReceived) -> None:
    """Keep sound and pictures where the model, or the next commit, finds them."""
    stream = session.input.stream
    if event.frames:
        stream.shown = max(stream.shown, event.frames[-1].end)
        if event.queued or event.buffered:
            (stream.groups if event.queued else stream.pictures).append(event.frames)
            stream.reserved += size_of(event.frames)
    if event.queued:
        stream.fed = session.now
        stream.reserved += event.ref.size
        push(stream.queue, span_of(event), merge=session.capabilities.chunk_period_ms is not None)
    elif session.resident:
        push(stream.buffer, span_of(event), merge=True)
        while stream.buffer and stream.buffer[0].end <= session.input.start:
            del stream.buffer[0]


def span_of(event: ev.AudioReceived) -> Span:
    """Return the sound of an event and its flags (E21)."""
    return Span(event.ref.start, event.ref.end, event.speech, event.force_listen)


def push(queue: list[Span], span: Span, *, merge: bool) -> None:
    """Add sound at the end. `merge`: it may become one with what lies before it."""
    if span.start == span.end:
        return
    last = queue[-1] if queue and merge else None
    if last is not None and (last.end, last.speech, last.force_listen, last.final) == (
        span.start,
        span.speech,
        span.force_listen,
        False,
    ):
        queue[-1] = Span(last.start, span.end, span.speech, span.force_listen)
    else:
        queue.append(span)


def committed(session: Session, event: ev.InputCommitted) -> None:
    """Retain what is committed for its answer; what a listening model was not given by now it never is (E35)."""
    stream = session.input.stream
    stream.sealed = event.item_id
    if session.auto:
        _forget(stream.queue, stream.groups)
    elif not event.empty:
        stream.queue += _behind(stream.buffer, session.input.start) if event.ref is not None else []
        stream.groups += stream.pictures
    _forget(stream.buffer, stream.pictures)
    stream.weigh()


def _behind(spans: list[Span], start: int) -> list[Span]:
    """Return what of `spans` lies at or behind `start`."""
    return [replace(span, start=max(span.start, start)) for span in spans if span.end > start]


def discarded(session: Session) -> None:
    """Forget what is not committed (F16)."""
    stream = session.input.stream
    _forget(stream.buffer, stream.pictures)
    if session.auto:
        _forget(stream.queue, stream.groups)
    stream.weigh()


def forget(session: Session) -> None:
    """Forget all that was not handed over; what was goes on (E28)."""
    stream = session.input.stream
    _forget(stream.buffer, stream.pictures)
    _forget(stream.queue, stream.groups)
    stream.weigh()


def let_go(session: Session) -> None:
    """Forget what is committed and was not handed over."""
    stream = session.input.stream
    _forget(stream.queue, stream.groups)
    stream.weigh()


def unsaid(session: Session, sound: SampleRef) -> None:
    """Forget sound that was committed and not handed over: its turn is deleted."""
    stream = session.input.stream
    stream.queue = [span for span in stream.queue if not sound.start <= span.start < sound.end]
    stream.weigh()


def _forget(spans: list[Span], groups: list[Group]) -> None:
    spans.clear()
    groups.clear()


def listen(session: Session) -> None:
    """The model hears everything from here on: what was kept for a commit, too."""
    taken, stream = session.input, session.input.stream
    stream.queue += _behind(stream.buffer, taken.start)
    stream.groups += stream.pictures
    _forget(stream.buffer, stream.pictures)
    taken.start = taken.position
    stream.weigh()


def listen_no_more(session: Session) -> None:
    """What the model was not given is the beginning of what will be committed."""
    taken, stream = session.input, session.input.stream
    if stream.queue:
        taken.start = stream.queue[0].start
    stream.buffer = [replace(span, final=False) for span in stream.queue]
    stream.pictures += stream.groups
    _forget(stream.queue, stream.groups)
    stream.weigh()


# -- units ---------------------------------------------------------------------------------------------------


def unit_taken(session: Session, event: ev.UnitTaken) -> None:
    stream = session.input.stream
    stream.operation = event.operation
    if event.configuration is not None:
        stream.configuration = event.configuration
    stream.in_flight.append(Unit(event, session.now))
    _tell_format(session, event)
    if event.told:
        stream.untold = ()
    stream.given = session.batches.generation
    if event.response_id is not None:
        _answered(session, event.response_id)
    _take(stream.queue, size_of(event.refs))
    if event.frames:
        del stream.groups[0]
    if event.final and not stream.queue and not (session.auto and event.response_id is not None):
        stream.groups.clear()  # there is no unit left that they could go with (E22)
        stream.weigh()
    going = stream.continuation
    if going is not None:
        stream.continuation = _went_on(session, going, event)


def _tell_format(session: Session, event: ev.UnitTaken) -> None:
    """Note the format that goes with a unit: that of its answer, or of the next one. Open ones keep theirs."""
    stream = session.input.stream
    if event.response_id is not None:
        response = session.open_response(event.response_id)
        assert response is not None, "it was announced for the unit"
        wanted = response.head.output_format
    elif session.response is not None and stream.told:
        return
    else:
        reserved = session.reserved
        wanted = (session.config if reserved is None else with_options(session.config, reserved)).output_format
    if not stream.told or stream.told[-1].format != wanted:
        stream.told = (*stream.told, Told(event.operation, wanted))[-KEPT_FORMATS:]


def _answered(session: Session, response_id: str) -> None:
    """What was asked for is measured from here, whatever the model heard before (K27)."""
    response = session.open_response(response_id)
    assert response is not None, "it was announced for the unit"
    response.since, response.by_unit = session.now, False


def _went_on(session: Session, going: Continuation, event: ev.UnitTaken) -> Continuation:
    """Count a unit of silence; sound ends the pace of silence (G28)."""
    if event.kind != "silence" or event.response_id is not None or going.due is None:
        return replace(going, due=None, paced=None)
    late_us = session.now - going.due
    sound = session.capabilities.input_format
    period_us = sound.samples(event.pad) * 1_000_000 // sound.rate
    return replace(going, count=going.count + 1, due=None, paced=going.due if late_us <= period_us else session.now)


def _take(queue: list[Span], size: int) -> None:
    """Take `size` bytes from the front."""
    while size:
        span = queue[0]
        here = min(span.end - span.start, size)
        size -= here
        if span.start + here == span.end:
            del queue[0]
        else:
            queue[0] = replace(span, start=span.start + here)


def units_accepted(session: Session, event: ev.UnitsAccepted) -> None:
    stream = session.input.stream
    flying = stream.in_flight
    done = _index(stream, event.operation + 1)
    last = flying[done - 1]
    for unit in flying[:done]:
        stream.reserved -= unit.size
    del flying[:done]
    stream.seq, stream.turn, stream.turn_seq = last.taken.seq, last.taken.turn, last.taken.turn_seq
    stream.anchor = last.at
    session.locked = True


def units_given_up(session: Session, event: ev.UnitsGivenUp) -> None:
    stream = session.input.stream
    at = _index(stream, event.operation)
    stream.untold = tuple(dict.fromkeys((*_told(stream.in_flight[at:]), *stream.untold)))
    stream.given = 0
    del stream.in_flight[at:]
    stream.weigh()


def _told(units: list[Unit]) -> list[str]:
    """Return what the model would have been told of with these."""
    return [item_id for unit in units for item_id in unit.taken.told]


def units_returned(session: Session, event: ev.UnitsReturned) -> None:
    stream = session.input.stream
    at = _index(stream, event.operation)
    back = [unit.taken for unit in stream.in_flight[at:]]
    del stream.in_flight[at:]
    spans: list[Span] = []
    for unit in back:
        for ref in unit.refs:
            final = unit.final and ref is unit.refs[-1]
            spans.append(Span(ref.start, ref.end, unit.speech, unit.force_listen, final))
    stream.queue[:0] = spans
    stream.groups[:0] = [unit.frames for unit in back if unit.frames]


def _index(stream: Stream, operation: int) -> int:
    """Return how many units in flight came before `operation`."""
    return bisect_left(stream.in_flight, operation, key=lambda unit: unit.taken.operation)


def continuation_planned(session: Session, event: ev.ContinuationPlanned) -> None:
    stream = session.input.stream
    going = stream.continuation
    count = going.count if going is not None and going.owner == event.owner else 0
    paced = going.paced if going is not None else None
    stream.continuation = Continuation(event.request, event.owner, count, event.due, paced)


def continuation_dropped(session: Session, _event: ev.ContinuationDropped) -> None:
    stream = session.input.stream
    assert stream.continuation is not None, "there is a plan"
    stream.continuation = replace(stream.continuation, due=None)


# -- what is written -----------------------------------------------------------------------------------------


def written(session: Session, item: Item) -> None:
    """A model that was prompted already is told of what is written with the next unit; sound it hears by itself."""
    stream = session.input.stream
    heard = item.id == stream.sealed and _only_spoken(item)
    if session.resident and not heard and _listens(session):
        stream.untold += (item.id,)


def _only_spoken(item: Item) -> bool:
    return isinstance(item, Message) and not any(isinstance(part, TextPart) for part in item.content)


def forgotten(session: Session, item_id: str) -> None:
    """The model need not be told of an item any more: it is deleted, or came another way (J12)."""
    stream = session.input.stream
    if item_id in stream.untold:
        stream.untold = tuple(other for other in stream.untold if other != item_id)


def as_written(item: Item) -> Item | None:
    """Return an item without the sound that was a turn of the user: that is given unit by unit. None: nothing else.

    Sound that is not kept, and of which nobody has told the words, is nothing.
    """
    if not isinstance(item, Message):
        return item
    content = tuple(part for part in item.content if not _spoken(part))
    return replace(item, content=content) if content else None


def _spoken(part: Part) -> bool:
    if not isinstance(part, AudioPart):
        return False
    return not part.transcript if part.ref is None else part.ref.stream == "in"


def _listens(session: Session) -> bool:
    return any(known.resident and known.phase in LIVE for known in session.requests.values())


# -- commands that wait --------------------------------------------------------------------------------------


def command_held(session: Session, event: ev.CommandHeld) -> None:
    stream = session.input.stream
    stream.held.append(event)
    stream.reserved += size_of(event.refs) + event.size
    for ref in event.refs:
        if ref.stream == "img":
            stream.shown = ref.end
        elif ref.stream == "item":
            session.conversation.attached = ref.end


def hold_ended(session: Session, _event: ev.HoldEnded) -> None:
    stream = session.input.stream
    ended = stream.held.pop(0)
    stream.reserved -= size_of(ended.refs) + ended.size


# -- the end -------------------------------------------------------------------------------------------------


def lose(session: Session) -> None:
    """The request is gone, and with it all that was on its way; the next one begins to count anew (A5)."""
    stream = session.input.stream
    stream.in_flight.clear()
    stream.weigh()
    stream.seq = stream.turn_seq = stream.given = 0
    stream.anchor = stream.continuation = None
    stream.untold = ()  # the next one begins with all of it
    stream.told = ()
    # What was said over the dead answer is ordinary input now (F17).
    stream.queue = [replace(span, force_listen=False) if span.force_listen else span for span in stream.queue]
    stream.buffer = [replace(span, force_listen=False) if span.force_listen else span for span in stream.buffer]
