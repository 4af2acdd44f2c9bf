"""Continuations: silence for a resident model that paused in the middle of an answer (BEHAVIOURS G25-G28).

Time is the model's input: while nobody speaks, somebody must tell it that time goes by. One unit a period, never a
burst; real sound goes before.
"""

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.items import FunctionOutput

from .draft import Draft
from .feeding import hand_over_silence, name_of_resident, resident
from .models.base import SessionPlugin
from .state import Session, unanswered
from .units import unit_bytes


def period_us(session: Session, plugin: SessionPlugin) -> int:
    """Return how long one continuation lasts, in microseconds."""
    return plugin.continuation_samples * 1_000_000 // session.capabilities.input_format.rate


def owner_of(session: Session) -> str:
    """Return whose continuations are counted: the response's, or without one the model turn's (G25)."""
    response = session.response
    return f"{session.epoch}.turn{session.turn.turn}" if response is None else response.head.id


def left(draft: Draft) -> int:
    """Return how many continuations the model may still have in a row (G25)."""
    session = draft.session
    going = session.input.stream.continuation
    count = going.count if going is not None and going.owner == owner_of(session) else 0
    return draft.plugins[session.plugin].continuations(auto=session.auto) - count


def offer(draft: Draft, request: str) -> None:
    """Plan the next unit of silence.

    None is planned while a unit is under way: that is what the model goes on with (G27).
    """
    session = draft.session
    going, whose = session.input.stream.continuation, owner_of(session)
    planned = going is not None and going.due is not None and going.owner == whose
    if not planned and not session.input.stream.in_flight:
        due = _due(session, draft.plugins[session.plugin], draft.now)
        draft.emit(ev.ContinuationPlanned(request=request, owner=whose, due=due))


def stop(draft: Draft) -> None:
    """Give the model no more time: what it would have continued is over (G27)."""
    going = draft.session.input.stream.continuation
    if going is not None and going.due is not None:
        draft.emit(ev.ContinuationDropped())


def _due(session: Session, plugin: SessionPlugin, now: int) -> int:
    """Return when the next continuation is due: a period behind the last one, or behind the last unit (G28)."""
    stream = session.input.stream
    last = stream.continuation.paced if stream.continuation is not None else None
    if last is None:
        last = now if stream.anchor is None else stream.anchor
    period = period_us(session, plugin)
    return max(last + period, _yields_until(session, period))


def _yields_until(session: Session, period: int) -> int:
    """Return until when silence waits for sound: a unit that is being filled goes before it (G27).

    A client that stops in the middle of a unit holds nobody up, nor does sound that is kept for the next turn.
    """
    stream, size = session.input.stream, unit_bytes(session)
    fills = session.auto and size is not None and 0 < stream.waiting < size
    return stream.fed + period if fills else 0


def wake(draft: Draft) -> None:
    """Let the model go on without sound, as soon as the pace allows: there is news for it (J11)."""
    session = draft.session
    if session.input.stream.in_flight or left(draft) <= 0:
        return
    going = session.input.stream.continuation
    period = period_us(session, draft.plugins[session.plugin])
    due = max(draft.now, _yields_until(session, period))
    if going is not None and going.paced is not None:
        due = max(due, going.paced + period)
    if going is None or going.due is None or going.due > due or going.owner != owner_of(session):
        draft.emit(ev.ContinuationPlanned(request=name_of_resident(session), owner=owner_of(session), due=due))


def remind(draft: Draft) -> None:
    """Wake a model that could not be woken when there was news for it, and that was not given them since (J11)."""
    session = draft.session
    if session.phase == "open" and session.auto and _owes(session):
        wake(draft)


def _owes(session: Session) -> bool:
    """Return whether there is the output of a function that the model does not know of."""
    known, stream = session.conversation.entries, session.input.stream
    if resident(session) is None:
        return any(isinstance(item, FunctionOutput) for item in unanswered(session))
    pending = session.batches.pending
    if pending and pending[-1].generation > stream.given:
        return True
    told_of = (known.get(item_id) for item_id in stream.untold)
    return any(entry is not None and isinstance(entry.item, FunctionOutput) for entry in told_of)


def tick(draft: Draft, _command: cmd.Tick) -> None:
    """Hand over the unit of silence that is due, or drop the plan if the answer is over (G27).

    No unit is under way: the one that is handed over ends the plan.
    """
    session = draft.session
    going = session.input.stream.continuation
    if session.phase != "open" or going is None or going.due is None or draft.now < going.due:
        return
    plugin = draft.plugins[session.plugin]
    if owner_of(session) != going.owner:
        draft.emit(ev.ContinuationDropped())
        remind(draft)
        return
    fresh = _yields_until(session, period_us(session, plugin))
    if draft.now < fresh:
        draft.emit(ev.ContinuationPlanned(request=going.request, owner=going.owner, due=fresh))
        return
    last = session.auto and left(draft) == 1
    hand_over_silence(draft, plugin.continuation_samples, force_listen=last)
