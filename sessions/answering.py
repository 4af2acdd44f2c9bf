"""Decisions about responses: when one opens, and which request makes it."""

from typing import TypeVar

from msgspec import UNSET, UnsetType

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.config import ConfigPatch, SessionConfig, merged

from .draft import Draft
from .ending import interrupt
from .phases import LIVE
from .playback import blocks
from .refusal import refuse
from .state import Request, Session, next_response_number

T = TypeVar("T")

_NO_OPTIONS = cmd.ResponseOptions()


# -- opening -------------------------------------------------------------------------------------------------


def create_response(draft: Draft, command: cmd.CreateResponse) -> None:
    """Answer because the client asks (G6)."""
    session = draft.session
    if session.turn.absorbs:
        draft.emit(ev.CreationAbsorbed())
        return
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


def live(session: Session, request: str) -> Request | None:
    """Return a request that may still produce something; its absence is the fence (DESIGN 3)."""
    known = session.requests.get(request)
    return known if known is not None and known.phase in LIVE else None


def answers(session: Session, request: str) -> bool:
    """Return whether what a request produces now belongs to an answer: an open one, or one that it may open.

    A resident request may open one when none is active. What a turn's request makes behind the end of its response
    is late, and opens no second one (G39).
    """
    known = live(session, request)
    if known is None:
        return False
    return session.served_by(request) is not None or (session.response is None and known.response_id is None)


def cancel_response(draft: Draft, command: cmd.CancelResponse) -> None:
    """Stop the active response (G31, SUPERSEDED: nothing to cancel is an error)."""
    active = draft.session.response
    if active is None or command.response_id not in (None, active.head.id):
        refuse("response_not_active", "Cancellation failed: no active response found")
    interrupt(draft, reason="client_cancelled", cause="client_cancelled")
