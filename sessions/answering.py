"""Decisions about responses: when one opens, and which request makes it."""

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events import ids

from .draft import Draft
from .options import with_options
from .phases import LIVE
from .playback import blocks
from .state import Request, Session, next_response_number


def answer(draft: Draft) -> None:
    """Open a response that is due: now, or behind the one that runs or plays (F21, WIRE 6.2)."""
    if not blocks(draft.session, draft.now):
        open_response(draft)
    else:
        draft.emit(ev.AnswerDeferred())


def open_response(
    draft: Draft, options: cmd.ResponseOptions | None = None, request: str | None = None
) -> ev.ResponseHead:
    """Draft the response and its request (G8). `request` names a resident one that exists already.

    Without `options` it takes those that the client reserved for it (G3). An answer that leaves room drains beside
    it from here on (H4).
    """
    session = draft.session
    chosen = options or session.reserved or cmd.ResponseOptions()
    if session.response is not None and chosen.remember:
        draft.emit(ev.ResponseDrains(response_id=session.response.head.id))
        session = draft.session
    head = _head(session, chosen)
    turn = session.turn.turn
    name = request or _new_request(session, chosen)
    draft.emit(ev.ResponseCreated(number=draft.number, count=1, head=head, request=name, options=chosen))
    if request is None:
        draft.emit(ev.RequestSubmitted(request=name, response_id=head.id, epoch=session.epoch, turn=turn))
    return head


def about_to_speak(session: Session) -> bool:
    """Return whether the next response of the conversation is one of sound."""
    reserved = session.reserved
    return session.config.speaks if reserved is None else with_options(session.config, reserved).speaks


def _new_request(session: Session, options: cmd.ResponseOptions) -> str:
    if options.remember:
        return ids.turn_request(session.id, session.epoch, session.turn.turn)
    return ids.aside_request(session.id, session.epoch, next_response_number(session))


def _head(session: Session, options: cmd.ResponseOptions) -> ev.ResponseHead:
    config = with_options(session.config, options)
    response_id = ids.response_id(session.id, next_response_number(session))
    return ev.ResponseHead(
        id=response_id,
        item_id=ids.assistant_item_id(response_id),
        conversation_id=ids.conversation_id(session.id) if options.remember else None,
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
