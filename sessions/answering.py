"""Decisions about responses: when one opens, what the stages report of it, and how it ends."""

from typing import TypeVar

from msgspec import UNSET, UnsetType

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.audio import SampleRef
from antiphon.events.config import ConfigPatch, SessionConfig, merged
from antiphon.events.items import Message, is_user

from .draft import Draft
from .ending import close, close_if_free, end_response, interrupt
from .lifecycle import begin_close
from .phases import LIVE
from .playback import blocks, cursor
from .refusal import refuse
from .state import Request, Response, Session, next_response_number

T = TypeVar("T")

_NO_OPTIONS = cmd.ResponseOptions()


# -- opening -------------------------------------------------------------------------------------------------


def create_response(draft: Draft, command: cmd.CreateResponse) -> None:
    """Answer because the client asks (G6)."""
    session = draft.session
    _check_create(draft, command.options)
    if session.auto:
        refuse("response_create_without_input", "The model decides on its own when to speak.")
    open_response(draft, command.options)


def _check_create(draft: Draft, options: cmd.ResponseOptions) -> None:
    session = draft.session
    if session.response is not None:
        refuse(
            "response_already_active",
            f"Conversation already has an active response in progress: {session.response.head.id}. Wait until "
            "the response is finished before creating a new one.",
        )
    if blocks(session, draft.now):
        refuse("response_already_active", "The last response is still being played.")
    if session.dialect == "duplex" and session.turn.unanswered == 0 and options.instructions is None:
        refuse("response_create_without_input", "There is no user turn to answer.")
    if not options.remember:
        refuse("unsupported", "Out-of-band responses are not offered.", "response.conversation", "value")
    config = with_options(session.config, options)
    if config.tool_choice == '"required"' and config.tools == "[]":
        refuse("bad_event", "A call is required, and there are no tools.", "response.tool_choice", "value")
    draft.plugins[session.plugin].check(config)


def with_options(config: SessionConfig, options: cmd.ResponseOptions) -> SessionConfig:
    """Return the configuration that a response with these overrides has (G3)."""

    def given(value: T | None) -> T | UnsetType:
        return UNSET if value is None else value

    patch = ConfigPatch(
        instructions=given(options.instructions),
        output_modalities=given(options.output_modalities),
        output_format=given(options.output_format),
        voice=given(options.voice),
        speed=given(options.speed),
        max_output_tokens=given(options.max_output_tokens),
        temperature=given(options.temperature),
        tools=given(options.tools),
        tool_choice=given(options.tool_choice),
    )
    return merged(config, patch)


def answer(draft: Draft) -> None:
    """Open a response that is due: now, or behind the one that runs or plays (F21, WIRE 6.2)."""
    if not blocks(draft.session, draft.now):
        open_response(draft)
    else:
        draft.emit(ev.AnswerDeferred())


def open_response(draft: Draft, options: cmd.ResponseOptions = _NO_OPTIONS, request: str | None = None) -> None:
    """Draft the response and its request. `request` names a resident one that exists already."""
    session = draft.session
    head = _head(session, options)
    turn = session.turn.turn
    name = request or ids.turn_request(session.id, session.epoch, turn)
    draft.emit(ev.ResponseCreated(number=draft.number, count=1, head=head, request=name, options=options))
    if request is None:
        draft.emit(ev.RequestSubmitted(request=name, response_id=head.id, epoch=session.epoch, turn=turn))


def _head(session: Session, options: cmd.ResponseOptions) -> ev.ResponseHead:
    config = with_options(session.config, options)
    response_id = ids.response_id(session.id, next_response_number(session))
    return ev.ResponseHead(
        id=response_id,
        item_id=ids.assistant_item_id(response_id),
        conversation_id=ids.conversation_id(session.id),
        turn=session.turn.turn,
        epoch=session.epoch,
        output_modalities=config.output_modalities,
        output_format=config.output_format,
        voice=config.voice,
        speed=config.speed,
        instructions=config.instructions,
        max_output_tokens=config.max_output_tokens,
        temperature=config.temperature,
        metadata=options.metadata,
        tools=config.tools,
        tool_choice=config.tool_choice,
    )


def resident(session: Session) -> str | None:
    """Return the resident request that listens, if there is one."""
    for name, known in session.requests.items():
        if known.response_id is None and known.phase in LIVE:
            return name
    return None


def submit_resident(draft: Draft) -> str:
    """Return the resident request that listens; draft its submission if there is none.

    It is named after the epoch in which it began, and outlives interruptions of mere playback.
    """
    session = draft.session
    listening = resident(session)
    if listening is not None:
        return listening
    request = ids.resident_request(session.id, session.epoch)
    draft.emit(ev.RequestSubmitted(request=request, response_id=None, epoch=session.epoch, turn=session.turn.turn))
    return request


def cancel_response(draft: Draft, command: cmd.CancelResponse) -> None:
    """Stop the active response (G31, SUPERSEDED: nothing to cancel is an error)."""
    active = draft.session.response
    if active is None or command.response_id not in (None, active.head.id):
        refuse("response_not_active", "Cancellation failed: no active response found")
    interrupt(draft, reason="client_cancelled", cause="client_cancelled")


# -- what the stages report ----------------------------------------------------------------------------------


def _live(session: Session, request: str) -> Request | None:
    """Return a request that may still produce something; its absence is the fence (DESIGN 3)."""
    known = session.requests.get(request)
    return known if known is not None and known.phase in LIVE else None


def stage_accepted(draft: Draft, report: cmd.StageAccepted) -> None:
    """Note that the stage has the request."""
    known = _live(draft.session, report.request)
    if known is not None and known.phase == "submitted":
        draft.emit(ev.RequestAccepted(request=report.request))


def stage_transcribed(draft: Draft, report: cmd.StageTranscribed) -> None:
    """Give a user item its words; shown if the client asked for transcription (WIRE 3.5)."""
    session = draft.session
    entry = session.conversation.entries.get(report.item_id)
    if _live(session, report.request) is None or entry is None or not is_user(entry.item):
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
        )
    )


def stage_produced(draft: Draft, report: cmd.StageProduced) -> None:
    """Turn a piece of an answer into a delta; the first one opens item and part."""
    session = draft.session
    known = _live(session, report.request)
    response = session.response
    if known is None or (response is not None and response.request != report.request):
        return
    speaks = session.config.speaks if response is None else response.head.part == "audio"
    # A response of text has no place for sound, whatever the stage made.
    sounds = speaks and report.size > 0
    if not (report.text or sounds):
        return
    if response is None:
        open_response(draft, request=report.request)
        session = draft.session
        response = session.response
        assert response is not None, "it was just opened"
    if response.phase == "created":
        _start_output(draft, session, response)
    if sounds:
        _audio_delta(draft, session, response.head, report)
    else:
        _text_delta(draft, response.head, report.text)


def _start_output(draft: Draft, session: Session, response: Response) -> None:
    head = response.head
    draft.emit(
        ev.OutputStarted(
            number=draft.number,
            count=5 if head.part == "audio" else 4,
            session=session.id,
            response_id=head.id,
            item=Message(id=head.item_id, role="assistant", status="in_progress"),
            previous_item_id=response.previous_item_id,
            part=head.part,
            epoch=head.epoch,
        )
    )


def _audio_delta(draft: Draft, session: Session, head: ev.ResponseHead, report: cmd.StageProduced) -> None:
    playout = session.playouts.get(head.id)
    sent = (playout.sent if playout else 0) + report.size
    audio_ms = head.output_format.ms(sent)
    shown = cursor(playout)
    draft.emit(
        ev.AudioDelta(
            number=draft.number,
            count=2,
            session=session.id,
            response_id=head.id,
            item_id=head.item_id,
            ref=SampleRef("out", session.output.position, report.size),
            format=head.output_format,
            audio_ms=audio_ms,
            text=report.text,
            epoch=head.epoch,
            marks=report.marks,
            playback=ev.PlaybackCursor(audio_ms, audio_ms, shown.played_ms, shown.committed_ms),
        )
    )


def _text_delta(draft: Draft, head: ev.ResponseHead, text: str) -> None:
    draft.emit(
        ev.TextDelta(
            number=draft.number,
            count=1,
            response_id=head.id,
            item_id=head.item_id,
            part=head.part,
            text=text,
            epoch=head.epoch,
        )
    )


def stage_finished(draft: Draft, report: cmd.StageFinished) -> None:
    """End the response that the request served, and answer what waited behind it."""
    session = draft.session
    known = _live(session, report.request)
    if known is None:
        return
    response = session.response
    draft.emit(ev.RequestFinished(request=report.request))
    if response is not None and response.request == report.request:
        complete = report.stop == "stop"
        end_response(
            draft,
            "completed" if complete else "incomplete",
            reason=None if complete else report.stop,
            usage=report.usage,
            costs=report.costs,
        )
        if session.turn.deferred:
            open_response(draft)
    if known.response_id is None:
        renew(draft)


def stage_failed(draft: Draft, report: cmd.StageFailed) -> None:
    """Fail the response that owns the request (G23, K16): the error first, then its terminal."""
    session = draft.session
    known = _live(session, report.request)
    if known is None:
        return
    _fail(draft, report.request, report.code, report.message)
    draft.emit(ev.RequestFinished(request=report.request))
    if known.response_id is None:
        resident_lost(draft)


def _fail(draft: Draft, request: str, code: str, message: str) -> None:
    response = draft.session.response
    draft.emit(ev.ErrorReported(number=draft.number, count=1, code=code, message=message))
    if response is not None and response.request == request:
        end_response(draft, "failed", failure=ev.Failure(code, message))


def stage_released(draft: Draft, report: cmd.StageReleased) -> None:
    """The stage has forgotten a request; the last one of a closing session frees it (M4)."""
    if report.request in draft.session.requests:
        draft.emit(ev.RequestReleased(request=report.request))
        close_if_free(draft)


def stage_lost(draft: Draft, report: cmd.StageLost) -> None:
    """The stage died with the request: fail what it served (K18); it is also forgotten."""
    session = draft.session
    if report.request not in session.requests:
        return
    known = _live(session, report.request)
    if known is not None:
        message = "The stage that worked on this was lost."
        _fail(draft, report.request, "runtime_data_plane_stream_failed", message)
    draft.emit(ev.RequestReleased(request=report.request))
    if known is not None and known.response_id is None:
        resident_lost(draft)
    else:
        close_if_free(draft)


def resident_lost(draft: Draft) -> None:
    """The memory of a resident model is gone (K15): begin again if the model can render the history, else end."""
    if draft.session.capabilities.supports_reencode_context:
        renew(draft)
    else:
        begin_close(draft, "request_cleanup", control_id=None, expired=True)
        if draft.session.phase == "closing":
            close(draft)  # announced before the clean-up (M5)


def renew(draft: Draft) -> None:
    """Begin a new epoch because the resident request of this one has ended: its name is used up (A10)."""
    if draft.session.response is None:
        draft.emit(ev.Interrupted(epoch=draft.session.epoch + 1, cause="resident_ended", requests=()))
    else:  # of a turn, from before `auto_response` was switched on: it cannot go on in the new epoch
        interrupt(draft, reason="client_cancelled", cause="resident_ended", asked=False, spares_turns=True)
