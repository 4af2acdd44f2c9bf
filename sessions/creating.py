"""Decisions about `response.create` and `response.cancel`: what a client asks of an answer (G4-G7, G31)."""

import msgspec

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.items import AudioPart, FunctionOutput, Item, ItemReference, Message

from .answering import open_response
from .checking import asked_for_one_response, check_config
from .draft import Draft
from .ending import cancel_alone, interrupt, newest_answer
from .feeding import resident
from .models.extras import public
from .options import with_options
from .playback import blocks
from .refusal import Refusal, refuse
from .state import Session, unanswered

MOST_ASIDES = 4
"""Responses out of band that may be open at a time."""


def create_response(draft: Draft, command: cmd.CreateResponse) -> None:
    """Answer because the client asks: the first row of G6 that fits."""
    session = draft.session
    if session.turn.absorbs and command.options.remember:
        draft.emit(ev.CreationAbsorbed())
        return
    options = _public(draft, command.options)
    _check_options(draft, options)
    if not options.remember:
        _open_aside(draft, options)
        return
    _check_free(session, draft.now)
    if session.auto and not _must_be_told(session):
        if resident(session) is None:
            refuse("response_create_without_input", "The model decides on its own when to speak.")
        draft.emit(ev.OptionsReserved(options=options))
    elif _only_written(session, options) and not _begins_with_text(draft, session):
        message = "This model answers what it hears. Seed a written turn with `initial_user_text`, or speak."
        draft.emit(Refusal("text_only_turn_unsupported", message).event(draft.number, command.event_id))
        draft.emit(ev.UnansweredDropped())
    else:
        _check_something(session, options)
        open_response(draft, options)


def _public(draft: Draft, options: cmd.ResponseOptions) -> cmd.ResponseOptions:
    """Return the options without the keys that only the server may set; here they are dropped (G4, L12)."""
    if options.extras is None:
        return options
    private = draft.plugins[draft.session.plugin].private_keys
    return msgspec.structs.replace(options, extras=public(options.extras, private) or None)


def _check_free(session: Session, now: int) -> None:
    """Refuse while another answer of the conversation is made, played, or asked for (G2, G6).

    A turn of the user that nobody answers may be answered beside one that leaves room, as a commit is (H3).
    """
    blocked = blocks(session, now)
    if session.response is not None and (blocked or not session.turn.unanswered):
        refuse(
            "response_already_active",
            f"Conversation already has an active response in progress: {session.response.head.id}. Wait until "
            "the response is finished before creating a new one.",
        )
    if session.reserved is not None:
        refuse("response_already_active", "A response was asked for already; the model is about to give it.")
    if blocked:
        refuse("response_already_active", "The last response is still being played.")


def _check_something(session: Session, options: cmd.ResponseOptions) -> None:
    given = options.instructions is not None or options.input is not None
    if session.dialect == "duplex" and session.turn.unanswered == 0 and not given:
        refuse(
            "response_create_without_input", "There is no user turn to answer: commit audio or add an item first."
        )


def _check_options(draft: Draft, options: cmd.ResponseOptions) -> None:
    session = draft.session
    if session.capabilities.implementation_level == "model_native_duplex":
        _check_native(options)
    named: set[str] = set()
    for item in options.input or ():
        if not isinstance(item, ItemReference):
            continue
        if item.id not in session.conversation.entries:
            refuse("item_not_found", f"There is no item {item.id[:64]!r} to refer to.", "response.input", "value")
        if item.id in named:  # a name costs nothing, what it stands for may be minutes of sound
            refuse("bad_event", f"The item {item.id[:64]!r} is named twice.", "response.input", "value")
        named.add(item.id)
    config = with_options(session.config, options)
    if config.tool_choice == '"required"' and config.tools == "[]":
        refuse("bad_event", "A call is required, and there are no tools.", "response.tool_choice", "value")
    with asked_for_one_response():
        check_config(config, session.dialect)
        draft.plugins[session.plugin].check(config)


def _check_native(options: cmd.ResponseOptions) -> None:
    """Refuse what would have to be told to a model in the middle of its stream (G4, WIRE 2.6)."""
    given = {
        "instructions": options.instructions,
        "voice": options.voice,
        "tools": options.tools,
        "tool_choice": options.tool_choice,
        "max_output_tokens": options.max_output_tokens,
        "temperature": options.temperature,
        "input": options.input,
        "conversation": None if options.remember else "none",
    }
    for name, value in given.items():
        if value is not None:
            refuse(
                "unsupported_native_response_options",
                f"This model cannot be told {name!r} for one response; set it for the session.",
                f"response.{name}",
            )


def _must_be_told(session: Session) -> bool:
    """Return whether a model that listens all the time would not answer by itself: a turn was written (G6, row 4).

    Not while it is about to answer what it heard: the answer that opens then is the one that was asked for (row 2).
    """
    stream = session.input.stream
    planned = stream.continuation is not None and stream.continuation.due is not None
    if planned or any(unit.taken.speech for unit in stream.in_flight):
        return False
    sown = session.turn.seeded and resident(session) is None
    return sown or any(isinstance(turn, Message) and not _sounds(turn) for turn in unanswered(session))


def _only_written(session: Session, options: cmd.ResponseOptions) -> bool:
    """Return whether there are new turns of the user, and no sound in them."""
    heard = session.input.unanswered is not None or (bool(session.input.stream.queue) and not session.auto)
    if options.input is not None or not session.turn.unanswered or heard:
        return False
    turns = unanswered(session)
    if any(isinstance(item, FunctionOutput) for item in turns):
        return False  # that is no turn of the user, and any model that calls functions answers it
    return session.auto or not any(_sounds(item) for item in turns)


def _begins_with_text(draft: Draft, session: Session) -> bool:
    """Return whether the model answers what is written: always, or its seed if it can start so (G7)."""
    primes = not session.resident or draft.plugins[session.plugin].priming_units > 0
    return session.capabilities.supports_text_only_turn or (session.turn.seeded and primes)


def _sounds(item: Item) -> bool:
    return isinstance(item, Message) and any(isinstance(part, AudioPart) for part in item.content)


def _open_aside(draft: Draft, options: cmd.ResponseOptions) -> None:
    """Answer beside the conversation: it is read, and nothing is written into it (G5, WIRE 2.6)."""
    asides = sum(response.aside for response in draft.session.others.values())
    if asides >= MOST_ASIDES:
        refuse("input_backpressure", f"{asides} responses out of band are open; wait until one has ended.")
    open_response(draft, options)


def cancel_response(draft: Draft, command: cmd.CancelResponse) -> None:
    """Stop the named answer, else the active one (G31, WIRE 2.7: with nothing to stop it is an error).

    One out of band is stopped alone. The others stop together: an epoch ends as a whole (G30).
    """
    session = draft.session
    named = newest_answer(session) if command.response_id is None else session.open_response(command.response_id)
    if named is None:
        about = (
            "no active response found" if command.response_id is None else f"{command.response_id[:64]!r} is over"
        )
        refuse("response_not_active", f"Cancellation failed: {about}")
    if named.aside:
        cancel_alone(draft, named, "client_cancelled")
    else:
        interrupt(draft, reason="client_cancelled", cause="client_cancelled")
