"""Decisions about function calls: the model asks for one, piece by piece, as an item of its response (WIRE 7.4)."""

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.items import FunctionCall

from .answering import answers, open_response
from .batches import retired
from .draft import Draft
from .ending import end_response, final_item
from .feeding import live
from .segments import answer_next
from .state import Calling, Response, Session, call_ids, next_call_id, next_item_number


def stage_called(draft: Draft, report: cmd.StageCalled) -> None:
    """Add a piece of a call; the first piece of it closes what is open: one item at a time (WIRE 3.3).

    A late piece of a call that is complete, and a call without a name, decide to nothing.
    """
    session = draft.session
    if not answers(session, report.request):
        return
    response = session.served_by(report.request)
    done = len(response.calls) if response is not None else 0
    begins = response is None or response.calling is None or report.index > done
    if report.index < done or (begins and not report.name):
        return
    if begins:
        if response is None:
            open_response(draft, request=report.request)
        _begin(draft, report)
    if report.arguments:
        _write(draft, report)
    if report.final:
        _end_call(draft, _served(draft, report.request))
    if report.ends and session.requests[report.request].resident:
        end_response(draft, _served(draft, report.request), "completed")
        answer_next(draft)


def stage_owned(draft: Draft, report: cmd.StageOwned) -> None:
    """Note which function outputs the model has taken in; one that reports less, or again, decides to nothing."""
    session = draft.session
    if live(session, report.request) is None:
        return
    owned = min(report.generation, session.batches.generation)
    if retired(session.batches, owned) is not session.batches:
        draft.emit(ev.FunctionBatchesOwned(generation=owned))


def _served(draft: Draft, request: str) -> Response:
    response = draft.session.served_by(request)
    assert response is not None, "it was open, or has just been opened"
    return response


def _begin(draft: Draft, report: cmd.StageCalled) -> None:
    response = _served(draft, report.request)
    if response.phase == "speaking":
        _close_message(draft, response)
    elif response.calling is not None:
        _end_call(draft, response)
    session = draft.session
    response = _served(draft, report.request)
    number = next_item_number(session)
    item = FunctionCall(
        id=ids.item_id(session.id, number),
        call_id=_call_id(session, "" if response.aside else report.call_id),
        name=report.name,
        arguments="",
        status="in_progress",
    )
    draft.emit(
        ev.CallStarted(
            number=draft.number,
            count=1 if response.aside else 3,
            response_id=response.head.id,
            output_index=len(response.calls) + (response.said is not None),
            item=item,
            previous_item_id=last_item(response),
            aside=response.aside,
        )
    )


def _call_id(session: Session, wanted: str) -> str:
    """Return the model's name for a call, or one of ours.

    If it has none, one that is longer than clients take, or one that was used before, deleted or not.
    """
    fits = 0 < len(wanted) <= ids.LONGEST_CALL_ID
    free = fits and wanted not in session.conversation.called and wanted not in call_ids(session)
    return wanted if free else next_call_id(session)


def last_item(response: Response) -> str | None:
    """Return the item that the next one of a response stands behind."""
    if response.calls:
        return response.calls[-1].id
    return response.previous_item_id if response.said is None else response.said.id


def _close_message(draft: Draft, response: Response) -> None:
    playout = draft.session.playout(response.head.id)
    item = final_item(response, playout, "completed")
    assert item is not None, "a response that speaks has a message"
    head = response.head
    draft.emit(
        ev.OutputEnded(
            number=draft.number,
            count=(5 if head.part == "audio" else 4) - response.aside,
            response_id=head.id,
            item=item,
            previous_item_id=response.previous_item_id,
            part=head.part,
            text=response.text,
            aside=response.aside,
        )
    )


def _write(draft: Draft, report: cmd.StageCalled) -> None:
    response = _served(draft, report.request)
    calling = _open_call(response)
    draft.emit(
        ev.CallDelta(
            number=draft.number,
            count=1,
            response_id=response.head.id,
            output_index=calling.index,
            item_id=calling.item_id,
            call_id=calling.call_id,
            arguments=report.arguments,
        )
    )


def _end_call(draft: Draft, response: Response) -> None:
    calling = _open_call(response)
    draft.emit(
        ev.CallEnded(
            number=draft.number,
            count=3 - response.aside,
            response_id=response.head.id,
            output_index=calling.index,
            item=calling.item("completed"),
            previous_item_id=last_item(response),
            aside=response.aside,
        )
    )


def _open_call(response: Response) -> Calling:
    assert response.calling is not None, "a call is open"
    return response.calling
