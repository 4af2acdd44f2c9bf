"""Decisions about what a model that listens has decided: to hear on, to speak on, to have done (G14-G19)."""

from collections.abc import Sequence

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.metrics import StageCost, Usage

from . import continuing
from .answering import open_response
from .draft import Draft
from .ending import end_response
from .feeding import accept, live
from .state import Response, Session

MODEL_LISTENS = "model_listen"
LIMIT = "continuation_limit"
NOTHING_SAID = "model_turn_completed_without_output"


def segment_finished(draft: Draft, report: cmd.StageSegmentFinished) -> None:
    """Act on what the model decided when it had worked off its units; its request goes on (G15).

    A decision about another turn than the one that is answered is ignored (G14).
    """
    session = draft.session
    known = live(session, report.request)
    if known is None:
        return
    accept(draft, session, report.request, report.operation)
    note(draft, report.request, report.costs, report.usage)
    session = draft.session
    response = session.served_by(report.request)
    if not known.resident:
        _without_memory(draft, response, report)
    elif response is None:
        _without_answer(draft, session, report)
    elif report.model_turn in (None, response.head.turn):
        _in_answer(draft, session, response, report)
    continuing.remind(draft)


def _without_memory(draft: Draft, response: Response | None, report: cmd.StageSegmentFinished) -> None:
    """A request of one turn has nothing that could be extended: its answer is over (G29), also a silent one (G45).

    What drains, or is out of band, ends by its own end only.
    """
    if response is None or response is not draft.session.response:
        return
    draft.emit(ev.RequestFinished(request=report.request, abort=report.abort))
    if report.decision == "listen":
        tell_listening(draft, report.reason or MODEL_LISTENS, response.head.id, model=True)
    end_response(draft, response, "completed")
    answer_next(draft)


def _without_answer(draft: Draft, session: Session, report: cmd.StageSegmentFinished) -> None:
    """Nobody is being answered: the model listens on, needs time, or had nothing to say (G14, G18, G19)."""
    if report.buffering:
        _beat(draft, report.reason or MODEL_LISTENS, model=False, buffering=True)
    elif report.decision == "speak":
        _think(draft, session, report.request)
    elif report.decision == "listen":
        _beat(draft, report.reason or MODEL_LISTENS, model=True)
    else:
        if session.auto:
            _beat(draft, NOTHING_SAID, model=True)
        done = session.turn.turn if report.model_turn is None else report.model_turn
        if done >= session.turn.turn:
            draft.emit(ev.TurnCompleted(turn=done))
        continuing.stop(draft)


def _think(draft: Draft, session: Session, request: str) -> None:
    """The model is about to speak: it is given time, and when it has had all of it, its turn is over (G25, G26)."""
    if continuing.left(draft) > 0:
        continuing.offer(draft, request)
    elif session.auto:
        tell_listening(draft, LIMIT, model=False)
        draft.emit(ev.TurnCompleted(turn=session.turn.turn))


def _in_answer(draft: Draft, session: Session, response: Response, report: cmd.StageSegmentFinished) -> None:
    """The model pauses in its answer, or has done with it; while it may go on nothing is told (WIRE 6.8)."""
    if report.decision == "end_of_turn" and not session.auto:
        continuing.stop(draft)
        end_response(draft, response, "completed")
        answer_next(draft)
    elif report.decision == "end_of_turn":
        yield_turn(draft, response, report.reason or MODEL_LISTENS)
    elif continuing.left(draft) > 0:
        continuing.offer(draft, report.request)
    elif session.auto or report.decision == "speak" or report.buffering:
        yield_turn(draft, response, LIMIT, model=False)  # nothing else would ever end it (P37)
    else:
        yield_turn(draft, response, report.reason or MODEL_LISTENS)


def yield_turn(draft: Draft, response: Response, reason: str, *, model: bool = True) -> None:
    """End an answer because the model listens again, which is told first; a turn that waited for it goes on."""
    continuing.stop(draft)
    tell_listening(draft, reason, response.head.id, model=model)
    end_response(draft, response, "completed")
    answer_next(draft)


def answer_next(draft: Draft) -> None:
    """Answer what waited behind a response that has ended."""
    session = draft.session
    if session.phase == "open" and session.turn.deferred and session.response is None:
        open_response(draft)


def is_beat(session: Session, command: cmd.AnyCommand, events: Sequence[ev.AnyEvent]) -> bool:
    """Return whether a model has decided to listen on, which is no news: `events` are what became of its report.

    Such a decision comes with every frame. It changes nothing, so no event and no state knows of it: it is for the
    shell to count (DESIGN 5.4).
    """
    if not isinstance(command, cmd.StageSegmentFinished) or command.decision != "listen":
        return False
    listens = live(session, command.request) is not None and session.served_by(command.request) is None
    return listens and not any(isinstance(event, ev.ListenDecided) for event in events)


def _beat(draft: Draft, reason: str, *, model: bool, buffering: bool = False) -> None:
    """Tell that the model listens, if it was not told before: only changes are events (DESIGN 5.4, G17)."""
    if draft.session.turn.listens != reason:
        tell_listening(draft, reason, model=model, buffering=buffering)


def tell_listening(
    draft: Draft, reason: str, response_id: str | None = None, *, model: bool, buffering: bool = False
) -> None:
    """Tell that the model listens; with `response_id` it has yielded that response."""
    session = draft.session
    draft.emit(
        ev.ListenDecided(
            number=draft.number,
            count=1,
            session=session.id,
            epoch=session.epoch,
            reason=reason,
            response_id=response_id,
            model=model,
            buffering=buffering,
        )
    )


# -- costs ---------------------------------------------------------------------------------------------------


def stage_measured(draft: Draft, report: cmd.StageMeasured) -> None:
    """Sum what stages spent into the response that they serve, or keep it for the next one (K24, K25)."""
    if live(draft.session, report.request) is not None:
        note(draft, report.request, report.costs, report.usage)


def note(draft: Draft, request: str, costs: tuple[StageCost, ...], usage: Usage) -> None:
    """Draft what was spent, if anything was."""
    if costs or usage != Usage():
        response = draft.session.served_by(request)
        response_id = None if response is None else response.head.id
        draft.emit(ev.CostsNoted(response_id=response_id, costs=costs, usage=usage))
