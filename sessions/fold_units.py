"""What the events of a resident model's input change: units, continuations, commands that wait for units."""

from msgspec.structs import replace

from antiphon.events import events as ev
from antiphon.events.audio import SampleRef

from .state import Continuation, Held, Session, Span, Stream, Unit


def unit_taken(session: Session, event: ev.UnitTaken) -> None:
    stream = session.input.stream
    stream.operation = event.operation
    stream.in_flight.append(Unit(event, session.now))
    _take(stream.queue, sum(ref.size for ref in event.refs))
    if event.frames:
        del stream.groups[0]
    going = stream.continuation
    if event.kind == "silence" and going is not None:
        stream.continuation = replace(going, count=going.count + 1, due=None)


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
    del flying[:done]
    stream.seq, stream.turn, stream.turn_seq = last.taken.seq, last.taken.turn, last.taken.turn_seq
    stream.anchor = last.at
    session.locked = True


def units_given_up(session: Session, event: ev.UnitsGivenUp) -> None:
    stream = session.input.stream
    del stream.in_flight[_index(stream, event.operation) :]


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
    return sum(unit.taken.operation < operation for unit in stream.in_flight)


def continuation_planned(session: Session, event: ev.ContinuationPlanned) -> None:
    stream = session.input.stream
    going = stream.continuation
    count = going.count if going is not None and going.owner == event.owner else 0
    stream.continuation = Continuation(event.request, event.owner, count, event.due)


def continuation_dropped(session: Session, _event: ev.ContinuationDropped) -> None:
    stream = session.input.stream
    if stream.continuation is not None:
        stream.continuation = replace(stream.continuation, due=None)


def command_held(session: Session, event: ev.CommandHeld) -> None:
    session.held.append(Held(event.command, event.ref, event.frames))


def hold_ended(session: Session, _event: ev.HoldEnded) -> None:
    del session.held[0]


def forget_stream(session: Session) -> None:
    """Drop what waits for a resident model; what was handed over goes on (E28)."""
    session.input.stream.queue.clear()
    session.input.stream.groups.clear()


def lose_stream(session: Session) -> None:
    """Begin anew: the request is gone, and with it all that was on its way (A5)."""
    stream = session.input.stream
    stream.in_flight.clear()
    stream.seq = stream.turn_seq = 0
    stream.anchor = stream.continuation = None


def sound(start: int, size: int) -> SampleRef:
    """Return the place of sound in the `in` stream."""
    return SampleRef("in", start, size)
