"""Decisions about output: a piece of an answer becomes a delta; the first one opens item and part."""

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import SampleRef
from antiphon.events.items import Message

from .answering import about_to_speak, answers, open_response
from .draft import Draft
from .ending import end_response
from .feeding import accept
from .measuring import outlined
from .state import Response, Session


def stage_produced(draft: Draft, report: cmd.StageProduced, place: SampleRef | None = None) -> None:
    """Turn a piece of an answer into a delta; the first one opens item and part.

    `place` is where its sound lies already, if it was held.
    """
    session = draft.session
    if not answers(session, report.request):
        return
    accept(draft, session, report.request, report.operation)
    response = session.served_by(report.request)
    if report.model_turn is not None and session.requests[report.request].resident:
        if not (report.text or report.size) or not _keeps_up(draft, response, report.model_turn):
            return
        session = draft.session
        response = session.served_by(report.request)
    if response is not None and report.size and _otherwise(session, response, report):
        if response.phase == "created":
            return  # it was announced for a later unit
        end_response(draft, response, "completed")
        session, response = draft.session, None
    speaks = about_to_speak(session) if response is None else response.head.part == "audio"
    # A response of text has no place for sound, whatever the stage made.
    sounds = speaks and report.size > 0
    if not (report.text or sounds) or (response is not None and response.phase == "calling"):
        return  # nothing to say, or said too late: calls come last (WIRE 3.3)
    if response is None:
        open_response(draft, request=report.request, operation=report.operation)
        session = draft.session
        response = session.response
        assert response is not None, "it was just opened"
    if response.phase == "created":
        _start_output(draft, session, response)
    if sounds:
        _audio_delta(draft, session, response, report, place)
    else:
        _text_delta(draft, session, response.head, report.text)


def _keeps_up(draft: Draft, response: Response | None, model_turn: int) -> bool:
    """Bring the session to the turn of an output of a resident model; False if the output is of another time.

    Of an older turn it is late (G39). A newer one completes the answer that is open, if the model takes turns by
    itself (G40); turns never go back (A6).
    """
    session = draft.session
    turn = session.turn.turn if response is None else response.head.turn
    if model_turn < turn or (model_turn > turn and response is not None and not session.auto):
        return False
    if model_turn > turn and response is not None:
        end_response(draft, response, "completed")
    if draft.session.turn.turn < model_turn:
        draft.emit(ev.TurnCompleted(turn=model_turn - 1))
    return True


def _otherwise(session: Session, response: Response, report: cmd.StageProduced) -> bool:
    """Return whether a resident model says something in another format than its answer has (L9, P23).

    It was told so with the unit, before the answer began.
    """
    if report.operation is None or response.phase == "calling" or response.head.part != "audio":
        return False
    return session.input.stream.delivers(report.operation) not in (None, response.head.output_format)


def _start_output(draft: Draft, session: Session, response: Response) -> None:
    head = response.head
    draft.emit(
        ev.OutputStarted(
            number=draft.number,
            count=(3 if head.part == "audio" else 2) if response.aside else 5 if head.part == "audio" else 4,
            session=session.id,
            response_id=head.id,
            item=Message(id=head.item_id, role="assistant", status="in_progress"),
            previous_item_id=response.previous_item_id,
            part=head.part,
            epoch=session.epoch,
            aside=response.aside,
        )
    )


def _audio_delta(
    draft: Draft, session: Session, response: Response, report: cmd.StageProduced, place: SampleRef | None
) -> None:
    head = response.head
    playout = session.playout(head.id)
    sent = (playout.sent if playout else 0) + report.size
    audio_ms = head.output_format.ms(sent)
    draft.emit(
        ev.AudioDelta(
            number=draft.number,
            count=2,
            session=session.id,
            response_id=head.id,
            item_id=head.item_id,
            ref=place or SampleRef("out", session.output.position, report.size),
            format=head.output_format,
            audio_ms=audio_ms,
            text=report.text,
            epoch=session.epoch,
            marks=report.marks,
            playback=ev.PlaybackCursor(
                audio_ms,
                audio_ms,
                playout.played_ms if playout else 0,
                playout.committed_ms if playout else 0,
            ),
            aside=response.aside,
            costs=outlined(session, response.costs),
        )
    )


def _text_delta(draft: Draft, session: Session, head: ev.ResponseHead, text: str) -> None:
    draft.emit(
        ev.TextDelta(
            number=draft.number,
            count=1,
            response_id=head.id,
            item_id=head.item_id,
            part=head.part,
            text=text,
            epoch=session.epoch,
        )
    )
