"""Decisions about turns that overlap at the model: one begins while the last is still spoken (BEHAVIOURS H)."""

from antiphon.events import commands as cmd
from antiphon.events import events as ev

from .deferring import promote
from .draft import Draft
from .feeding import live


def stage_inner_finished(draft: Draft, report: cmd.StageInnerFinished) -> None:
    """Let the next turn begin behind the stage that the model says, if it can (H1-H3); one that waits begins now.

    A gate of an answer that is not the active one is history: the next turn has begun already. A resident request
    leaves no room: it makes one answer at a time (H5).
    """
    session = draft.session
    known = live(session, report.request)
    able = session.capabilities.supports_concurrent_turn_requests
    if not able or not draft.plugins[session.plugin].opens_gate(report.stage):
        return
    if known is None or known.resident:
        return
    active = session.response
    if active is None or active.request != report.request or session.turn.gate is not None:
        return
    draft.emit(ev.GateOpened(request=report.request))
    promote(draft)


def stage_context(draft: Draft, report: cmd.StageContext) -> None:
    """Note what the model remembers of a turn: once for each request (H15).

    An interrupted turn's request is not live any more, so nothing unfinished is remembered.
    """
    known = live(draft.session, report.request)
    if known is not None and known.utterance is None and not known.remembered:
        draft.emit(ev.ContextCommitted(request=report.request, turn=report.turn))
