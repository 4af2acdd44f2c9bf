"""Decisions about requests: what the stages report of them, and what their end means for the answer."""

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.items import AudioPart, Item, Message

from . import continuing, previewing
from .deferring import promote
from .draft import Draft
from .ending import close, close_if_free, end_response, fail_response, not_taken
from .feeding import accept, go_on, live, lose_units
from .lifecycle import begin_close
from .rebuilding import renews
from .segments import LIMIT, MODEL_LISTENS, answer_next, note, tell_listening, yield_turn
from .state import Response, Session


def stage_accepted(draft: Draft, report: cmd.StageAccepted) -> None:
    """Note that the stage has the request, or units of it."""
    session = draft.session
    known = live(session, report.request)
    if known is None:
        return
    if known.phase == "submitted":
        draft.emit(ev.RequestAccepted(request=report.request))
    accept(draft, session, report.request, report.operation)
    if session.input.stream.untold or session.batches.pending:  # nothing else is news, and a look costs a copy
        continuing.remind(draft)


def stage_refused(draft: Draft, report: cmd.StageRefused) -> None:
    """Give up the unit and all behind it (E25). Each response that they were announced for fails, with an error of
    its own (G22); without any, the error is all that is told (G24)."""
    session = draft.session
    flying = [unit.taken for unit in session.input.stream.in_flight]
    lost = [unit for unit in flying if unit.operation >= report.operation]
    if live(session, report.request) is None or report.operation not in [unit.operation for unit in lost]:
        return
    bound = {unit.response_id for unit in lost}
    failing = [response for response in session.open_responses if response.head.id in bound]
    if not failing:
        draft.emit(ev.ErrorReported(number=draft.number, count=1, code=report.code, message=report.message))
    draft.emit(ev.UnitsGivenUp(operation=report.operation))
    for response in failing:
        fail_response(draft, response, not_taken(report.code, report.message))
    draft.failed = True
    _give_time(draft, report.request, silent=any(unit.kind == "silence" for unit in lost))
    continuing.remind(draft)


def _give_time(draft: Draft, request: str, *, silent: bool) -> None:
    """Keep an answer going whose unit was refused: what else should bring the model to its end? (P37)

    `silent`: time was refused, so it is offered again as long as there is some left.
    """
    session = draft.session
    response = session.response
    if response is None or response.request != request or session.input.stream.in_flight:
        return
    if continuing.left(draft) > 0:
        continuing.offer(draft, request)
    elif silent:
        yield_turn(draft, response, LIMIT, model=False)


def stage_transcribed(draft: Draft, report: cmd.StageTranscribed) -> None:
    """Give a user item its words, once; shown if the client asked for transcription (N13, WIRE 3.5).

    Those of an utterance that is still open are nobody's but the session's.
    """
    session = draft.session
    known = live(session, report.request)
    if known is not None and known.utterance is not None:
        previewing.transcribed(draft, report)
        return
    entry = session.conversation.entries.get(report.item_id)
    index = None if entry is None else _wordless(entry.item)
    if known is None or index is None:
        return
    shown = session.config.transcription is not None
    draft.emit(
        ev.UserTranscribed(
            number=draft.number,
            count=1 if shown else 0,
            item_id=report.item_id,
            text=report.text,
            seconds=report.seconds,
            final=report.final,
            error=report.error,
            content_index=index,
        )
    )


def _wordless(item: Item) -> int | None:
    """Return which part of an item is sound of the user of which nobody knows the words; None: there is none."""
    if not isinstance(item, Message) or item.role != "user":
        return None
    wordless = (isinstance(part, AudioPart) and part.transcript is None for part in item.content)
    return next((index for index, there in enumerate(wordless) if there), None)


def stage_finished(draft: Draft, report: cmd.StageFinished) -> None:
    """End the response that the request served, and answer what waited behind it."""
    session = draft.session
    known = live(session, report.request)
    if known is None:
        return
    response = session.served_by(report.request)
    if known.resident:
        lose_units(draft, again=renews(session, draft.plugins))
    if known.utterance is not None:
        note(draft, report.request, report.costs, report.usage)
    draft.emit(ev.RequestFinished(request=report.request, abort=report.abort))
    if response is not None and not report.silent and _called_off(session, response):
        failure = ev.Failure("append_cancelled", "The model has ended before it took in what was to be answered.")
        end_response(draft, response, "failed", failure=failure, usage=report.usage, costs=report.costs)
    elif response is not None:
        if report.silent:
            tell_listening(draft, report.reason or MODEL_LISTENS, response.head.id, model=True)
        end_response(
            draft,
            response,
            "completed" if report.stop == "stop" else "incomplete",
            reason=None if report.stop == "stop" else report.stop,
            usage=report.usage,
            costs=report.costs,
        )
    if known.resident:
        renew(draft)
    if response is None or response.aside:
        promote(draft)  # that blocked nobody: what is still played may
    else:
        answer_next(draft)


def _called_off(session: Session, response: Response) -> bool:
    """Return whether a response has said nothing, and was announced for units that the stage has not taken."""
    flying = session.input.stream.in_flight
    return response.phase == "created" and any(unit.taken.response_id == response.head.id for unit in flying)


def stage_failed(draft: Draft, report: cmd.StageFailed) -> None:
    """Fail the response that owns the request (G23, G24, K16); one that no stage accepted was not taken (G22)."""
    failure = ev.Failure(report.code, report.message)
    if _waits_for_its_stage(draft.session, report.request):
        failure = not_taken(report.code, report.message)
    fail_request(draft, report.request, failure, goes_on=report.goes_on)


def _waits_for_its_stage(session: Session, request: str) -> bool:
    known, response = session.requests.get(request), session.served_by(request)
    if known is None or response is None:
        return False
    return known.phase == "submitted" and known.response_id is not None and response.phase == "created"


def fail_request(draft: Draft, request: str, failure: ev.Failure, *, goes_on: bool = False) -> None:
    """Fail the response that a live request serves: the error first, then its terminal.

    `goes_on`: the request does, if its model can, a resident one.
    """
    known = live(draft.session, request)
    if known is None:
        return
    if known.utterance is None:  # nobody but the detector waits for those, and it has a limit
        _fail(draft, request, failure.code, failure.message)
    if goes_on and known.resident:
        return
    if known.resident:
        lose_units(draft, again=False)  # what broke the model is not tried again
    draft.emit(ev.RequestFinished(request=request))
    if known.resident:
        resident_lost(draft)


def _fail(draft: Draft, request: str, code: str, message: str) -> None:
    response = draft.session.served_by(request)
    if response is not None:
        fail_response(draft, response, ev.Failure(code, message))
    else:
        draft.emit(ev.ErrorReported(number=draft.number, count=1, code=code, message=message))


def stage_released(draft: Draft, report: cmd.StageReleased) -> None:
    """The stage has forgotten a request; the last one of a closing session frees it (M4).

    One that it was not told to forget is lost.
    """
    _forgotten(draft, report.request, "The stage has given up what it worked on.")


def stage_abort_failed(draft: Draft, report: cmd.StageAbortFailed) -> None:
    """The stage could not stop or forget a request: it is asked again later, and nothing else changes (K22, M12).

    Of an interruption the client is told, once until the stage has let go of everything. A closing session has
    made its attempt (M4).
    """
    session = draft.session
    known = session.requests.get(report.request)
    if known is None or known.phase != "leaving":
        return
    told = any(other.phase == "stuck" for other in session.requests.values())
    if known.aborted and session.phase == "open" and not told:
        message = "The model could not be stopped; what it still says is not heard. It is asked again."
        draft.emit(ev.ErrorReported(number=draft.number, count=1, code="runtime_abort_failed", message=message))
    draft.emit(ev.CleanupFailed(request=report.request))
    close_if_free(draft)


def stage_lost(draft: Draft, report: cmd.StageLost) -> None:
    """The stage died with the request: fail what it served (K18); it is also forgotten."""
    _forgotten(draft, report.request, "The stage that worked on this was lost.")


def _forgotten(draft: Draft, request: str, message: str) -> None:
    """No stage holds the request any more. If it was live, what it served fails."""
    session = draft.session
    if request not in session.requests:
        return
    known = live(session, request)
    if known is not None:
        if known.resident:
            lose_units(draft, again=renews(session, draft.plugins))
        if known.utterance is None:
            _fail(draft, request, "runtime_data_plane_stream_failed", message)
    draft.emit(ev.RequestReleased(request=request))
    if known is not None and known.resident:
        resident_lost(draft)
    else:
        close_if_free(draft)


def resident_lost(draft: Draft) -> None:
    """The memory of a resident model is gone (K15): begin again if the model can render the history, else end."""
    if renews(draft.session, draft.plugins):
        renew(draft)
    else:
        begin_close(draft, "request_cleanup", control_id=None, expired=True)
        if draft.session.phase == "closing":
            close(draft)  # announced before the clean-up (M5)


def renew(draft: Draft) -> None:
    """Begin a new epoch because the resident request of this one has ended: its name is used up (A10).

    A session that listens all the time goes on with the sound that is there.
    """
    epoch = draft.session.epoch + 1
    draft.emit(ev.Interrupted(epoch=epoch, cause="resident_ended", requests=(), renews=True))
    go_on(draft)
    continuing.remind(draft)
