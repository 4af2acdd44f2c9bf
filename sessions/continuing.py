"""Continuations: silence for a resident model that paused in the middle of an answer (BEHAVIOURS G25-G28).

Time is the model's input: while nobody speaks, somebody must tell it that time goes by. One unit a period, never a
burst; real sound goes before.
"""

from antiphon.events import commands as cmd
from antiphon.events import events as ev

from .draft import Draft
from .feeding import hand_over_silence, resident
from .models.base import SessionPlugin
from .state import Session


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

    None is planned while sound waits or is under way: that is what the model goes on with (G27).
    """
    session = draft.session
    going, whose = session.input.stream.continuation, owner_of(session)
    planned = going is not None and going.due is not None and going.owner == whose
    if not planned and not _superseded(session):
        due = _due(session, draft.plugins[session.plugin], draft.now)
        draft.emit(ev.ContinuationPlanned(request=request, owner=whose, due=due))


def stop(draft: Draft) -> None:
    """Give the model no more time: what it would have continued is over (G27)."""
    going = draft.session.input.stream.continuation
    if going is not None and going.due is not None:
        draft.emit(ev.ContinuationDropped())


def _superseded(session: Session) -> bool:
    stream = session.input.stream
    return bool(stream.in_flight) or (session.auto and stream.waiting > 0)


def _due(session: Session, plugin: SessionPlugin, now: int) -> int:
    """Return when the next continuation is due: a period behind the last one, or behind the last unit (G28)."""
    stream = session.input.stream
    last = stream.continuation.paced if stream.continuation is not None else None
    if last is None:
        last = now if stream.anchor is None else stream.anchor
    return last + period_us(session, plugin)


def wake(draft: Draft) -> None:
    """Let the model go on without sound, as soon as the pace allows: there is news for it (J11)."""
    session = draft.session
    request = resident(session)
    if request is None or _superseded(session):
        return
    going = session.input.stream.continuation
    due = draft.now
    if going is not None and going.paced is not None:
        due = max(due, going.paced + period_us(session, draft.plugins[session.plugin]))
    if going is None or going.due is None or going.due > due or going.owner != owner_of(session):
        draft.emit(ev.ContinuationPlanned(request=request, owner=owner_of(session), due=due))


def tick(draft: Draft, _command: cmd.Tick) -> None:
    """Hand over the unit of silence that is due, or drop the plan: sound came, or the answer is over (G27)."""
    session = draft.session
    going = session.input.stream.continuation
    if session.phase != "open" or going is None or going.due is None or draft.now < going.due:
        return
    plugin = draft.plugins[session.plugin]
    if _superseded(session) or owner_of(session) != going.owner:
        draft.emit(ev.ContinuationDropped())
        return
    last = session.auto and left(draft) == 1
    hand_over_silence(draft, plugin.continuation_samples, force_listen=last)
