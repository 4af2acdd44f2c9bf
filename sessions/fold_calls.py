"""What function calls change: the items of a response, and the outputs that are awaited."""

from antiphon.events import events as ev
from antiphon.events.items import FunctionCall, FunctionOutput, Item

from . import fold_units, phases
from .batches import added, retired
from .fold_input import count_item
from .folding import insert, opened, stand_behind
from .phases import move
from .playback import finished, history_of
from .state import KEPT_CALLS, Calling, Entry, Session, answered_calls, next_call_id


def output_ended(session: Session, event: ev.OutputEnded) -> None:
    response = opened(session, event.response_id)
    response.phase = move(phases.RESPONSE, response.phase, event)
    response.said = event.item
    if response.aside:
        session.asides[event.response_id].ended = True
    else:
        playout = session.playouts[event.response_id] = finished(session.playouts[event.response_id], "completed")
        heard = history_of(playout, session.config.playback_policy)
        session.conversation.entries[event.item.id] = Entry(event.item, heard)


def function_batched(session: Session, event: ev.FunctionBatched) -> None:
    session.batches = added(session.batches, event.batch)
    fold_units.forgotten(session, event.batch.item_id)


def function_batches_owned(session: Session, event: ev.FunctionBatchesOwned) -> None:
    session.batches = retired(session.batches, event.generation)


def call_started(session: Session, event: ev.CallStarted) -> None:
    response = opened(session, event.response_id)
    response.phase = move(phases.RESPONSE, response.phase, event)
    if response.first_text_at is None:
        response.first_text_at = session.now
    item = event.item
    count_item(session, item.id)
    call_named(session, item.call_id)
    response.calling = Calling(event.output_index, item.id, item.call_id, item.name)
    if not response.aside:
        insert(session, item, event.previous_item_id)
        stand_behind(session, response, event.previous_item_id, item.id)


def call_named(session: Session, call_id: str) -> None:
    """Note the name of a call, which no later one is given: ours are counted, all others remembered."""
    conversation, counters = session.conversation, session.counters
    if call_id == next_call_id(session):
        counters.calls += 1
    elif call_id not in conversation.called:
        conversation.called = (*conversation.called, call_id)[-KEPT_CALLS:]
    while next_call_id(session) in conversation.called:
        counters.calls += 1


def call_delta(session: Session, event: ev.CallDelta) -> None:
    calling = opened(session, event.response_id).calling
    if calling is None:
        raise phases.IllegalTransition("no call is open")
    calling.arguments += event.arguments


def call_ended(session: Session, event: ev.CallEnded) -> None:
    response = opened(session, event.response_id)
    response.calling = None
    response.calls += (event.item,)
    if not response.aside:
        session.conversation.entries[event.item.id] = Entry(event.item)


def response_called(session: Session, event: ev.ResponseEnded, *, active: bool) -> None:
    """Keep what a response that ended called for: the outputs of its calls are awaited from here on.

    Of an older answer they are awaited with those of the newer one beside which it drained (H11). An output that
    came while the response was still open is not awaited any more.
    """
    if event.cut is not None:
        session.conversation.entries[event.cut.id] = Entry(event.cut)
    if event.calls and event.status == "completed":
        turn, own = session.turn, _without_output(session, event.calls)
        if not active:
            turn.awaited += own
            turn.beside += own if session.response is not None else ()
        else:
            turn.awaited = (*(call_id for call_id in turn.awaited if call_id in turn.beside), *own)
            turn.beside, turn.answered = (), False
        if given_early(session, event.calls):
            turn.answered, turn.early = True, ()
            turn.absorbs = continues(session)


def _without_output(session: Session, calls: tuple[FunctionCall, ...]) -> tuple[str, ...]:
    there = answered_calls(session)
    return tuple(call.call_id for call in calls if call.call_id not in there)


def given_early(session: Session, calls: tuple[FunctionCall, ...]) -> bool:
    """Return whether an output of one of these calls came before their response ended, and nothing answered it."""
    return any(call.call_id in session.turn.early for call in calls)


def output_given(session: Session, item: Item) -> None:
    """A function output came in. When it was the last one that was awaited, an auto session answers by itself."""
    turn = session.turn
    if not isinstance(item, FunctionOutput):
        turn.absorbs = False
        return
    if item.call_id in turn.awaited:
        turn.answered = True
        _no_more(session, item.call_id)
    elif any(item.call_id == call.call_id for response in session.open_responses for call in response.calls):
        turn.early += (item.call_id,)


def call_deleted(session: Session, item: Item) -> None:
    """A call that is gone is not awaited any more; the outputs of the others may then be all."""
    turn = session.turn
    if isinstance(item, FunctionCall) and item.call_id in turn.awaited:
        _no_more(session, item.call_id)
    elif isinstance(item, FunctionOutput):
        turn.early = tuple(call_id for call_id in turn.early if call_id != item.call_id)


def _no_more(session: Session, call_id: str) -> None:
    turn = session.turn
    turn.awaited = tuple(other for other in turn.awaited if other != call_id)
    turn.absorbs = turn.answered and continues(session)


def continues(session: Session) -> bool:
    """Return whether the session answers by itself once all outputs are there (WIRE 7.4)."""
    return session.config.auto_response and session.dialect == "duplex" and not session.turn.awaited


def creation_absorbed(session: Session, _event: ev.CreationAbsorbed) -> None:
    session.turn.absorbs = False
