"""Decisions about responses: when one opens, and which request makes it."""

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.audio import AudioFormat

from .draft import Draft
from .ending import end_response
from .feeding import hand_over_turn, live, name_of_resident
from .options import with_options
from .playback import blocks
from .state import Response, Session, next_response_number


def answer(draft: Draft, item_id: str = "") -> None:
    """Open a response that is due: now, or behind the one that runs or plays (F21, WIRE 6.2).

    `item_id` is the turn that it answers, if it is one: function outputs are not.
    """
    if not blocks(draft.session, draft.now):
        open_response(draft)
    else:
        draft.emit(ev.AnswerDeferred(item_id=item_id))


def open_response(
    draft: Draft,
    options: cmd.ResponseOptions | None = None,
    request: str | None = None,
    operation: int | None = None,
) -> ev.ResponseHead:
    """Draft the response and its request. `request` names a resident one that speaks already, because of a unit
    (`operation`): its sound has the format that was told with that.

    The response is announced first, and its input handed over then (G8): a request of its own, or for a resident
    model the units that were committed. Without `options` it takes those that the client reserved for it (G3). An
    answer that leaves room drains beside it from here on (H4).
    """
    session = draft.session
    chosen = options or session.reserved or cmd.ResponseOptions()
    if session.response is not None and chosen.remember:
        _make_room(draft, session.response)
        session = draft.session
    head = _head(session, chosen, None if request is None else session.input.stream.delivers(operation))
    name = request or _new_request(session, chosen)
    seeded = session.turn.seeded  # the announcement makes it an answered turn
    draft.emit(
        ev.ResponseCreated(
            number=draft.number, count=1, head=head, request=name, options=chosen, unasked=request is not None
        )
    )
    if request is None:
        _hand_over(draft, head, name, seeded=seeded)
    return head


def _make_room(draft: Draft, response: Response) -> None:
    """Let an answer go on beside the next one; one of which no stage outlives its turn is complete (H4, N17)."""
    if draft.plugins[draft.session.plugin].draining:
        draft.emit(ev.ResponseDrains(response_id=response.head.id))
    else:
        draft.emit(ev.RequestFinished(request=response.request))
        end_response(draft, response, "completed")


def _hand_over(draft: Draft, head: ev.ResponseHead, request: str, *, seeded: bool) -> None:
    session = draft.session
    response = session.open_response(head.id)
    assert response is not None, "it was just opened"
    if session.resident and not response.aside:
        hand_over_turn(draft, response, seeded=seeded)
        return
    groups = [] if response.aside else session.input.stream.groups
    draft.emit(
        ev.RequestSubmitted(
            request=request,
            response_id=head.id,
            epoch=session.epoch,
            turn=session.turn.turn,
            frames=draft.plugins[session.plugin].pictures(groups),
        )
    )


def about_to_speak(session: Session) -> bool:
    """Return whether the next response of the conversation is one of sound."""
    reserved = session.reserved
    return session.config.speaks if reserved is None else with_options(session.config, reserved).speaks


def _new_request(session: Session, options: cmd.ResponseOptions) -> str:
    if not options.remember:
        return ids.aside_request(session.id, session.epoch, next_response_number(session))
    if session.resident:
        return name_of_resident(session)
    return ids.turn_request(session.id, session.epoch, session.turn.turn)


def _head(session: Session, options: cmd.ResponseOptions, told: AudioFormat | None) -> ev.ResponseHead:
    config = with_options(session.config, options)
    response_id = ids.response_id(session.id, next_response_number(session))
    return ev.ResponseHead(
        id=response_id,
        item_id=ids.assistant_item_id(response_id),
        conversation_id=ids.conversation_id(session.id) if options.remember else None,
        turn=session.turn.turn,
        epoch=session.epoch,
        output_modalities=config.output_modalities,
        output_format=told or config.output_format,
        voice=config.voice,
        speed=config.speed,
        instructions=config.instructions,
        max_output_tokens=config.max_output_tokens,
        temperature=config.temperature,
        metadata=options.metadata,
        tools=config.tools,
        tool_choice=config.tool_choice,
    )


def answers(session: Session, request: str) -> bool:
    """Return whether what a request produces now belongs to an answer: an open one, or one that it may open.

    A resident request may open one when none is active. What a turn's request makes behind the end of its response
    is late, and opens no second one (G39).
    """
    known = live(session, request)
    if known is None:
        return False
    return session.served_by(request) is not None or (session.response is None and known.resident)
