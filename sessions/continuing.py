"""Time for a model that paused: units of silence, so many and no more (BEHAVIOURS G25-G28)."""

from antiphon.events import events as ev

from .draft import Draft
from .state import Session


def owner_of(session: Session) -> str:
    """Return whose continuations are counted: the response's, or without one the model turn's (G25)."""
    response = session.response
    return f"{session.epoch}.turn{session.turn.turn}" if response is None else response.head.id


def left(draft: Draft) -> int:
    """Return how many continuations the model may still have in a row."""
    session = draft.session
    going = session.input.stream.continuation
    count = going.count if going is not None and going.owner == owner_of(session) else 0
    return draft.plugins[session.plugin].continuations(auto=session.auto) - count


def offer(draft: Draft, request: str) -> None:
    """Plan a unit of silence, a period behind the last unit that was accepted (G28)."""
    session = draft.session
    period_us = 1000 * (session.capabilities.chunk_period_ms or 1000)
    anchor = session.input.stream.anchor
    due = (draft.now if anchor is None else anchor) + period_us
    draft.emit(ev.ContinuationPlanned(request=request, owner=owner_of(session), due=max(due, draft.now)))


def stop(draft: Draft) -> None:
    """Give the model no more time: what it would have continued is over (G27)."""
    going = draft.session.input.stream.continuation
    if going is not None and going.due is not None:
        draft.emit(ev.ContinuationDropped())
