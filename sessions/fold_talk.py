"""What the events of the conversation change: items, responses, requests, what was heard."""

import msgspec

from antiphon.events import events as ev
from antiphon.events.items import AudioPart, FunctionCall, Message, TextPart, counts, is_user, pieces, weight
from antiphon.events.metrics import Usage

from . import fold_units, phases
from .cleaning import again, joined
from .fold_calls import call_deleted, call_named, output_given, response_called
from .fold_delivery import decided
from .fold_input import asked_ahead, count_item, drop_deferred, let_go, put_off, rest, stir, waits_no_more
from .folding import insert, opened, stand_behind, step_over
from .measuring import added, spent
from .models.aura_context import remembered
from .phases import move
from .playback import finished, history_of, settled, start_of
from .prefix import place
from .state import KEPT_ASIDES, KEPT_PLAYOUTS, Entry, Playout, Request, Response, Session, next_response_number


def item_created(session: Session, event: ev.ItemCreated) -> None:
    item = event.item
    count_item(session, item.id)
    session.started = True
    insert(session, item, event.previous_item_id, weight=weight(item))
    if isinstance(item, FunctionCall):
        call_named(session, item.call_id)
    if is_user(item) and item.id != session.input.prompted:
        stir(session)
    fold_units.written(session, item)
    ends = [part.ref.end for part in pieces(item) if part.ref is not None]
    session.conversation.attached = max(session.conversation.attached, *ends, 0)
    if counts(item):
        session.turn.waiting += (item.id,)
        output_given(session, item)


def item_deleted(session: Session, event: ev.ItemDeleted) -> None:
    order = session.conversation.order
    at = order.index(event.item_id)
    for response in session.open_responses:
        if response.previous_item_id == event.item_id:
            response.previous_item_id = order[at - 1] if at else None
    del order[at]
    fold_units.forgotten(session, event.item_id)
    entry = session.conversation.entries.pop(event.item_id)
    session.conversation.weight -= entry.weight
    waits_no_more(session, entry.item)
    call_deleted(session, entry.item)
    for key, playout in list(session.playouts.items()):
        if playout.item_id == event.item_id:
            del session.playouts[key]


def item_truncated(session: Session, event: ev.ItemTruncated) -> None:
    if event.response_id in session.playouts:
        _cut(session, event.response_id, event.audio_end_ms, "truncate", event.text)
    else:
        _shorten(session, event.item_id, event.audio_end_ms, event.text)


def history_cut(session: Session, event: ev.HistoryCut) -> None:
    _cut(session, event.response_id, event.ms, event.basis, event.text)


def response_created(session: Session, event: ev.ResponseCreated) -> None:
    head = event.head
    phase: phases.ResponsePhase = move(phases.RESPONSE, "absent", event)
    order = session.conversation.order
    response = Response(
        head=head,
        request=event.request,
        options=event.options,
        phase=phase,
        opened_at=session.now,
        since=session.now,
        previous_item_id=order[-1] if order else None,
    )
    session.counters.responses = next_response_number(session)
    step_over(session)
    session.started = True
    if response.aside:
        session.others[head.id] = response
        return
    stream = session.input.stream
    if session.auto and stream.anchor is not None and session.requests[event.request].resident:
        response.since, response.by_unit = stream.anchor, True
    session.response = response
    session.input.idle_since = None
    response.costs, session.costs = session.costs, ()
    response.usage, session.usage = session.usage, Usage()
    session.reserved = None
    session.turn.listens = None
    session.turn.state = "assistant_generating"
    if session.auto or not event.unasked:
        _answered(session)
        session.turn.due = ()


def options_reserved(session: Session, event: ev.OptionsReserved) -> None:
    session.reserved = event.options


def unanswered_dropped(session: Session, _event: ev.UnansweredDropped) -> None:
    _answered(session)


def _answered(session: Session) -> None:
    session.turn.waiting, session.turn.sown, session.turn.seeded = (), 0, False
    session.turn.early, session.turn.answered = (), False


def aside_cancelled(session: Session, event: ev.AsideCancelled) -> None:
    for request in event.requests:
        request_to(session, request, event)


def gate_opened(session: Session, event: ev.GateOpened) -> None:
    session.turn.gate = event.request


def context_committed(session: Session, event: ev.ContextCommitted) -> None:
    session.context = remembered(session.context, event.turn)
    known = session.requests[event.request]
    session.requests[event.request] = msgspec.structs.replace(known, remembered=True)


def costs_noted(session: Session, event: ev.CostsNoted) -> None:
    bearer = session if event.response_id is None else opened(session, event.response_id)
    bearer.costs = added(bearer.costs, event.costs)
    bearer.usage = spent(bearer.usage, event.usage)


def turn_completed(session: Session, event: ev.TurnCompleted) -> None:
    session.turn.turn = max(session.turn.turn, event.turn + 1)


def listen_decided(session: Session, event: ev.ListenDecided) -> None:
    if event.model or event.buffering:
        session.turn.listens = event.reason if event.response_id is None else None


def response_drains(session: Session, event: ev.ResponseDrains) -> None:
    response = opened(session, event.response_id)
    response.phase = move(phases.RESPONSE, response.phase, event)
    session.others[event.response_id] = response
    session.response = None
    session.turn.turn = max(session.turn.turn, response.head.turn + 1)


def answer_deferred(session: Session, event: ev.AnswerDeferred) -> None:
    session.turn.due += (event.item_id,)


def request_submitted(session: Session, event: ev.RequestSubmitted) -> None:
    phase: phases.RequestPhase = move(phases.REQUEST, "unknown", event)
    session.requests[event.request] = Request(phase, event.response_id, event.epoch)
    served = session.served_by(event.request)
    if served is not None and served.aside:
        return  # it answers no turn
    session.turn.gate = None
    if event.response_id is None:
        session.input.stream.configuration = session.config_generation
    else:
        let_go(session)


def preview_requested(session: Session, event: ev.PreviewRequested) -> None:
    phase: phases.RequestPhase = move(phases.REQUEST, "unknown", event)
    session.requests[event.request] = Request(phase, None, event.epoch, utterance=event.item_id)
    session.counters.previews += 1
    asked_ahead(session, event)


def request_accepted(session: Session, event: ev.RequestAccepted) -> None:
    request_to(session, event.request, event)
    if session.requests[event.request].resident:
        session.locked = True


def request_moved(session: Session, event: ev.RequestFinished | ev.RequestReleased | ev.PreviewDropped) -> None:
    request_to(session, event.request, event)


def request_to(session: Session, request: str, event: ev.AnyEvent) -> None:
    known = session.requests[request]
    phase: phases.RequestPhase = move(phases.REQUEST, known.phase, event)
    if known.resident and known.phase in phases.LIVE and phase not in phases.LIVE:
        fold_units.lose(session)
    if phase == "gone":
        del session.requests[request]
    else:
        aborted = known.aborted or isinstance(event, ev.Interrupted | ev.AsideCancelled)
        session.requests[request] = msgspec.structs.replace(known, phase=phase, aborted=aborted)
    if phase == "leaving" and known.phase in phases.LIVE:
        session.cleanup = joined(session.cleanup, session.now)
    elif phase == "gone" and not any(known.phase in phases.LEFT for known in session.requests.values()):
        session.cleanup = None


def cleanup_failed(session: Session, event: ev.CleanupFailed) -> None:
    request_to(session, event.request, event)


def cleanup_retried(session: Session, event: ev.CleanupRetried) -> None:
    for request in event.requests:
        request_to(session, request, event)
    session.cleanup = again(event.attempt, session.now)


def output_started(session: Session, event: ev.OutputStarted) -> None:
    response = opened(session, event.response_id)
    response.phase = move(phases.RESPONSE, response.phase, event)
    if response.aside:
        _follow(session.asides, session, response, event.part, KEPT_ASIDES)
        return
    insert(session, event.item, event.previous_item_id, heard="")
    stand_behind(session, response, event.previous_item_id, event.item.id)
    for key in settled(session):
        del session.playouts[key]
    _follow(session.playouts, session, response, event.part, KEPT_PLAYOUTS)


def _follow(
    playouts: dict[str, Playout], session: Session, response: Response, part: ev.PartKind, most: int
) -> None:
    """Begin to follow what is heard of a response; of too many, the oldest that owes nothing is let go (I14).

    One that opens while the user speaks belongs to the turn that is spoken (I12).
    """
    head = response.head
    playouts[head.id] = Playout(
        response_id=head.id,
        item_id=head.item_id,
        format=head.output_format,
        turn=head.turn,
        commits=session.turn.commits + session.input.speech,
        spoken=part == "audio",
        unaligned=session.capabilities.text_requires_complete_audio,
        placed=session.requests[response.request].response_id is not None,
        # Who acknowledges is believed, and has said that nothing was heard yet (DESIGN 5.10).
        acked_at=session.now if response.acknowledged else None,
    )
    if len(playouts) > most:
        ended = next((key for key in playouts if session.open_response(key) is None), None)
        if ended is not None:
            del playouts[ended]


def audio_delta(session: Session, event: ev.AudioDelta) -> None:
    playout = session.asides[event.response_id] if event.aside else session.playouts[event.response_id]
    session.output.position = max(session.output.position, event.ref.end)
    if playout.started is None and not event.aside:
        playout.started = start_of(session, session.now)
    playout.sent += event.ref.size
    response = opened(session, event.response_id)
    if response.first_audio_at is None:
        response.first_audio_at = session.now
    if event.text:
        playout.text += event.text
        _written(session, response, event.text)
    for mark in event.marks:
        place(playout.marks, mark)


def text_delta(session: Session, event: ev.TextDelta) -> None:
    _written(session, opened(session, event.response_id), event.text)
    _followed(session, event.response_id).text += event.text


def _written(session: Session, response: Response, text: str) -> None:
    response.text += text
    if response.first_text_at is None:
        response.first_text_at = session.now


def response_ended(session: Session, event: ev.ResponseEnded) -> None:
    response = opened(session, event.head.id)
    move(phases.RESPONSE, response.phase, event)
    active = response is session.response
    if active:
        session.response = None
        _turn_ended(session, event)
    else:
        del session.others[event.head.id]
    if not response.aside:
        rest(session)
        response_called(session, event, active=active)
    playout = session.playout(event.head.id)
    if event.item is None or playout is None:
        return
    playout = finished(playout, event.status)
    if response.aside:
        session.asides[event.head.id] = playout
        return
    session.playouts[event.head.id] = playout
    if active and playout.sent and playout.cap_ms is None:
        session.turn.state = "assistant_playing"
    if not event.item_done:
        session.conversation.entries[event.item.id] = Entry(
            event.item, history_of(playout, session.config.playback_policy)
        )


def _turn_ended(session: Session, event: ev.ResponseEnded) -> None:
    turn = session.turn
    session.input.overlap_ms = 0
    if event.status == "failed":
        put_off(session)  # kept with its bytes, and answered when the client asks for it (F23)
    turn.turn = max(turn.turn, event.head.turn + 1)
    if event.status != "cancelled" or turn.state == "assistant_generating":
        turn.state = "idle"


def interrupted(session: Session, event: ev.Interrupted) -> None:
    turn = session.turn
    if not event.renews:
        decided(session, event)
    turn.epoch = event.epoch
    turn.gate = turn.listens = None
    session.costs, session.usage = (), Usage()
    if not event.renews:
        turn.voided = event.epoch
        session.reserved = None
    if event.response_id is not None:
        turn.state = "barge_in" if session.input.phase == "silent" else "user_speaking"
        session.input.overlap_ms = 0
        if not event.spares_turns:
            drop_deferred(session)
    for request in event.requests:
        request_to(session, request, event)
    for name, known in session.requests.items():
        if known.phase in phases.LIVE:
            session.requests[name] = msgspec.structs.replace(known, epoch=event.epoch)


def playback_acknowledged(session: Session, event: ev.PlaybackAcknowledged) -> None:
    playout, committed_ms = session.playout(event.response_id), event.playback.committed_ms
    if playout is None:
        response = session.open_response(event.response_id)
        if response is not None:
            response.acknowledged = True
        elif event.truncate:
            _shorten(session, event.item_id, committed_ms, event.history)
        return
    playout.acked_at = session.now
    playout.played_ms, playout.committed_ms = event.playback.played_ms, committed_ms
    if event.truncate:
        _cap(playout, committed_ms, "truncate", session.now)
    elif playout.cap_ms is not None:
        # The decision has kept it below the cap, unless that was an estimate that may still be corrected.
        playout.cap_ms = committed_ms
    _keep_heard(session, playout, event.history)


def _followed(session: Session, response_id: str) -> Playout:
    playout = session.playout(response_id)
    assert playout is not None, "what was sent of an open response is followed"
    return playout


def _cap(playout: Playout, ms: int, basis: ev.Basis, at: int) -> None:
    playout.cap_ms, playout.cap_basis = ms, basis
    playout.cut_at = at if playout.cut_at is None else playout.cut_at


def _cut(session: Session, response_id: str, ms: int, basis: ev.Basis, text: str) -> None:
    playout = session.playouts[response_id]
    _cap(playout, ms, basis, session.now)
    playout.played_ms = playout.committed_ms = ms
    _keep_heard(session, playout, text)


def _keep_heard(session: Session, playout: Playout, text: str) -> None:
    """Make `text` the history of an answer; once it has ended, what is cut is cut in the item too."""
    entry = session.conversation.entries.get(playout.item_id)
    if entry is None:
        return  # out of band: no part of the conversation
    if playout.ended and playout.cap_ms is not None:
        _shorten(session, playout.item_id, playout.cap_ms, text)
    else:
        session.conversation.entries[playout.item_id] = Entry(entry.item, text)


def _shorten(session: Session, item_id: str, ms: int, text: str) -> None:
    item = session.conversation.entries[item_id].item
    assert isinstance(item, Message), "only an answer is heard"
    session.conversation.entries[item_id] = Entry(shortened(item, text, ms), text)


def shortened(item: Message, text: str, ms: int) -> Message:
    """Return an assistant message of which only `text`, `ms` milliseconds of sound, is left."""
    content = tuple(
        msgspec.structs.replace(part, transcript=text, ms=ms) if isinstance(part, AudioPart) else TextPart(text)
        for part in item.content
    )
    return msgspec.structs.replace(item, content=content)
