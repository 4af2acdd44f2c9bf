"""State as a fold: what each event changes. Total over every log that `decide` can write."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.audio import AudioFormat
from antiphon.events.items import AudioPart, Item, Message, TextPart, is_user

from . import phases, vad
from .phases import move
from .playback import history_of, start_of
from .state import (
    KEPT_CONTROLS,
    KEPT_PLAYOUTS,
    Closing,
    ControlOutcome,
    Entry,
    Playout,
    Request,
    Response,
    Session,
    next_item_number,
    next_response_number,
    opening_body,
)


def evolve(session: Session, event: ev.AnyEvent, at: int) -> None:
    """Fold one event, which happened at session time `at` (µs), into the session, in place.

    Raises:
        IllegalTransition: no decision can have written the event here.
    """
    session.now = at
    if isinstance(event, ev.PublicEvent) and event.number:
        session.next_number = event.number + event.count
    kind = type(event)
    if kind in ACTIVITY:
        session.lease.last_activity = at
    handler = HANDLERS.get(kind)
    if handler is not None:
        handler(session, event)


# -- life cycle ----------------------------------------------------------------------------------------------


def _session_opened(session: Session, event: ev.SessionOpened) -> None:
    view = event.view
    session.phase = move(phases.SESSION, session.phase, event)
    session.id, session.dialect = event.session, view.dialect
    session.plugin, session.plugin_version = event.plugin, event.plugin_version
    session.config, session.capabilities, session.limits = view.config, view.capabilities, event.limits
    session.resumable = view.resumable
    session.opened_at = session.anchor_at = session.now
    session.opened_wall_us = session.anchor_wall_us = event.wall_us
    lease = session.lease
    lease.phase = move(phases.ATTACHMENT, lease.phase, event)
    lease.attachment, lease.token = 1, event.token_digest
    body = opening_body(view.dialect, event.plugin, view.config)
    _remember(session, event.control_id, ControlOutcome("open", body, 1, 0))


def _session_resumed(session: Session, event: ev.SessionResumed) -> None:
    lease = session.lease
    lease.phase = move(phases.ATTACHMENT, lease.phase, event)
    lease.attachment, lease.generation = event.attachment, event.generation
    lease.previous_token, lease.token = event.presented, event.token_digest
    lease.confirm_by = session.now + session.limits.activation_ms * 1000
    lease.expires_at = None
    body = f"{event.presented}:{event.last_number}"
    _remember(session, event.control_id, ControlOutcome("resume", body, event.attachment, event.generation))
    for playout in session.playouts.values():
        if playout.started is None and playout.sent and playout.cap_ms is None:
            playout.started = start_of(session, session.now)


def _attachment_confirmed(session: Session, event: ev.AttachmentConfirmed) -> None:
    lease = session.lease
    lease.phase = move(phases.ATTACHMENT, lease.phase, event)
    lease.previous_token = lease.confirm_by = None


def _attachment_withdrawn(session: Session, event: ev.AttachmentWithdrawn) -> None:
    lease = session.lease
    lease.phase = move(phases.ATTACHMENT, lease.phase, event)
    lease.token, lease.previous_token, lease.confirm_by = lease.previous_token, None, None
    lease.expires_at = session.now + session.limits.grace_ms * 1000


def _session_detached(session: Session, event: ev.SessionDetached) -> None:
    lease = session.lease
    lease.phase = move(phases.ATTACHMENT, lease.phase, event)
    lease.confirm_by = None
    lease.expires_at = session.now + event.grace_ms * 1000


def _config_updated(session: Session, event: ev.ConfigUpdated) -> None:
    if event.config.turn_detection != session.config.turn_detection:
        vad.reset(session.input.vad, _samples(session, session.input.position))
    session.config = event.config


def _engine_restarted(session: Session, event: ev.EngineRestarted) -> None:
    for request in event.lost:
        move(phases.REQUEST, session.requests.pop(request).phase, event)
    session.turn.epoch = event.epoch
    session.anchor_at, session.anchor_wall_us = session.now, event.wall_us


def _session_closing(session: Session, event: ev.SessionClosing) -> None:
    session.phase = move(phases.SESSION, session.phase, event)
    session.closing = Closing(event.reason, event.expired, event.deadline_us)
    lease = session.lease
    lease.phase = move(phases.ATTACHMENT, lease.phase, event)
    lease.generation += 1
    lease.token = lease.previous_token = lease.confirm_by = lease.expires_at = None
    session.response = None
    if event.control_id is not None:
        outcome = ControlOutcome("close", event.reason, lease.attachment, lease.generation)
        _remember(session, event.control_id, outcome)
    for request in event.requests:
        _request_to(session, request, event)


def _session_closed(session: Session, event: ev.SessionClosed) -> None:
    session.phase = move(phases.SESSION, session.phase, event)
    session.input.start = session.input.position
    _let_go(session)
    session.playouts.clear()


def _command_sequenced(session: Session, event: ev.CommandSequenced) -> None:
    session.lease.client_seq = event.client_seq


# -- input ---------------------------------------------------------------------------------------------------


def _audio_received(session: Session, event: ev.AudioReceived) -> None:
    taken = session.input
    before, empty = taken.position, taken.start == taken.position
    taken.position = event.ref.end
    if event.feed is not None:
        taken.fed += 1
    if event.speech:
        taken.speech = True
    else:
        taken.non_speech = True
    if event.transcript:
        taken.transcript += event.transcript
    if not event.buffered:
        taken.start = taken.position if empty or event.feed is not None else taken.start
    detection = session.config.turn_detection
    if detection is None:
        return
    limits = vad.thresholds(detection)
    vad.advance(taken.vad, limits, event.scores, _samples(session, before) - event.lead)
    if taken.phase == "silent" and not taken.vad.speaking:
        oldest = taken.vad.run_start if taken.vad.run else _samples(session, taken.position) - event.lead
        keep = max(oldest - limits.prefix - vad.FRAME, 0)
        taken.start = max(taken.start, keep * _input_format(session).width)


def _speech_started(session: Session, event: ev.SpeechStarted) -> None:
    taken = session.input
    _count_item(session, event.item_id)
    if taken.phase == "silent" and not session.auto:
        taken.start = event.start
    taken.phase = move(phases.INPUT, taken.phase, event)
    taken.item_id, taken.speech = event.item_id, True
    session.turn.state = "user_speaking"


def _speech_stopped(session: Session, event: ev.SpeechStopped) -> None:
    session.input.phase = move(phases.INPUT, session.input.phase, event)


def _input_committed(session: Session, event: ev.InputCommitted) -> None:
    taken = session.input
    _count_item(session, event.item_id)
    _empty_input(session, event)
    if event.empty:
        return
    session.turn.commits += 1
    session.turn.state = "user_committed"
    if event.ref is not None and not session.auto:
        taken.retained += event.ref.size
        if taken.unanswered is None:
            taken.unanswered = event.ref.start


def _input_cleared(session: Session, event: ev.InputCleared | ev.InputDropped) -> None:
    _empty_input(session, event)
    _let_go(session)
    if session.turn.state == "user_speaking":
        session.turn.state = "idle"


def _empty_input(session: Session, event: ev.InputCommitted | ev.InputCleared | ev.InputDropped) -> None:
    taken = session.input
    taken.phase = move(phases.INPUT, taken.phase, event)
    taken.start = taken.position
    taken.item_id, taken.speech, taken.non_speech, taken.transcript = None, False, False, ""
    vad.reset(taken.vad, _samples(session, taken.position))


def _let_go(session: Session) -> None:
    """Give back the bytes of committed sound: a request has them, or they are called off (E28, F23)."""
    session.input.unanswered, session.input.retained = None, 0


def _user_transcribed(session: Session, event: ev.UserTranscribed) -> None:
    entry = session.conversation.entries.get(event.item_id)
    if not event.final or event.error or entry is None or not isinstance(entry.item, Message):
        return
    content = tuple(
        msgspec.structs.replace(part, transcript=event.text)
        if isinstance(part, AudioPart) and part.transcript is None
        else part
        for part in entry.item.content
    )
    session.conversation.entries[event.item_id] = Entry(msgspec.structs.replace(entry.item, content=content))


# -- conversation --------------------------------------------------------------------------------------------


def _item_created(session: Session, event: ev.ItemCreated) -> None:
    item = event.item
    _count_item(session, item.id)
    _insert(session, item, event.previous_item_id)
    if not isinstance(item, Message) or is_user(item):
        session.turn.unanswered += 1


def _item_deleted(session: Session, event: ev.ItemDeleted) -> None:
    order = session.conversation.order
    at = order.index(event.item_id)
    response = session.response
    if response is not None and response.previous_item_id == event.item_id:
        response.previous_item_id = order[at - 1] if at else None
    del order[at]
    del session.conversation.entries[event.item_id]
    for key, playout in list(session.playouts.items()):
        if playout.item_id == event.item_id:
            del session.playouts[key]


def _item_truncated(session: Session, event: ev.ItemTruncated) -> None:
    _cut(session, event.response_id, event.audio_end_ms, "truncate", event.text)


def _history_cut(session: Session, event: ev.HistoryCut) -> None:
    _cut(session, event.response_id, event.ms, event.basis, event.text)


# -- responses -----------------------------------------------------------------------------------------------


def _response_created(session: Session, event: ev.ResponseCreated) -> None:
    head = event.head
    phase: phases.ResponsePhase = move(phases.RESPONSE, "absent", event)
    order = session.conversation.order
    session.response = Response(
        head=head,
        request=event.request,
        phase=phase,
        opened_at=session.now,
        previous_item_id=order[-1] if order else None,
    )
    session.counters.responses = next_response_number(session)
    session.turn.unanswered = 0
    session.turn.deferred = False
    session.turn.state = "assistant_generating"


def _answer_deferred(session: Session, event: ev.AnswerDeferred) -> None:
    session.turn.deferred = True


def _request_submitted(session: Session, event: ev.RequestSubmitted) -> None:
    phase: phases.RequestPhase = move(phases.REQUEST, "unknown", event)
    session.requests[event.request] = Request(phase, event.response_id, event.epoch)
    _let_go(session)
    if event.response_id is None:
        session.input.fed = 0


def _request_moved(session: Session, event: ev.RequestAccepted | ev.RequestFinished | ev.RequestReleased) -> None:
    _request_to(session, event.request, event)


def _request_to(session: Session, request: str, event: ev.AnyEvent) -> None:
    known = session.requests[request]
    phase: phases.RequestPhase = move(phases.REQUEST, known.phase, event)
    if phase == "gone":
        del session.requests[request]
    else:
        session.requests[request] = Request(phase, known.response_id, known.epoch)


def _output_started(session: Session, event: ev.OutputStarted) -> None:
    response = _active(session)
    response.phase = move(phases.RESPONSE, response.phase, event)
    response.first_output_at = session.now
    _insert(session, event.item, event.previous_item_id, heard="")
    head = response.head
    session.playouts[head.id] = Playout(
        response_id=head.id,
        item_id=head.item_id,
        format=head.output_format,
        turn=head.turn,
        commits=session.turn.commits,
    )
    if len(session.playouts) > KEPT_PLAYOUTS:
        del session.playouts[next(iter(session.playouts))]


def _audio_delta(session: Session, event: ev.AudioDelta) -> None:
    playout = session.playouts[event.response_id]
    session.output.position = event.ref.end
    if playout.started is None:
        playout.started = start_of(session, session.now)
    playout.sent += event.ref.size
    if event.text:
        playout.text += event.text
        _active(session).text += event.text
    if event.marks:
        playout.marks += event.marks


def _text_delta(session: Session, event: ev.TextDelta) -> None:
    _active(session).text += event.text
    session.playouts[event.response_id].text += event.text


def _response_ended(session: Session, event: ev.ResponseEnded) -> None:
    response = _active(session)
    move(phases.RESPONSE, response.phase, event)
    session.response = None
    turn = session.turn
    turn.turn = max(turn.turn, event.head.turn + 1)
    if event.status != "cancelled" or turn.state == "assistant_generating":
        turn.state = "idle"
    playout = session.playouts.get(event.head.id)
    if event.item is None or playout is None:
        return
    playout.ended = True
    if playout.sent and playout.cap_ms is None:
        turn.state = "assistant_playing"
    session.conversation.entries[event.item.id] = Entry(
        event.item, history_of(playout, session.config.playback_policy)
    )


def _interrupted(session: Session, event: ev.Interrupted) -> None:
    turn = session.turn
    turn.epoch = event.epoch
    if event.response_id is not None:
        turn.state = "barge_in" if session.input.phase == "silent" else "user_speaking"
        if turn.deferred:
            _let_go(session)
        turn.deferred = False
    for request in event.requests:
        _request_to(session, request, event)
    for name, known in session.requests.items():
        if known.phase in phases.LIVE:
            session.requests[name] = msgspec.structs.replace(known, epoch=event.epoch)


def _playback_acknowledged(session: Session, event: ev.PlaybackAcknowledged) -> None:
    playout = session.playouts[event.response_id]
    playout.acked_at = session.now
    playout.played_ms, playout.committed_ms = event.playback.played_ms, event.playback.committed_ms
    if event.truncate:
        _cap(playout, event.playback.committed_ms, "truncate", session.now)
    elif playout.cap_ms is not None:
        # The decision has kept it below the cap, unless that was an estimate that may still be corrected.
        playout.cap_ms = event.playback.committed_ms
    _keep_heard(session, playout, event.history)


# -- shared --------------------------------------------------------------------------------------------------


def _active(session: Session) -> Response:
    if session.response is None:
        raise phases.IllegalTransition("no response is active")
    return session.response


def _cap(playout: Playout, ms: int, basis: ev.Basis, at: int) -> None:
    playout.cap_ms, playout.cap_basis = ms, basis
    playout.cut_at = at if playout.cut_at is None else playout.cut_at


def _cut(session: Session, response_id: str, ms: int, basis: ev.Basis, text: str) -> None:
    playout = session.playouts[response_id]
    _cap(playout, ms, basis, session.now)
    playout.played_ms = playout.committed_ms = ms
    _keep_heard(session, playout, text)


def _keep_heard(session: Session, playout: Playout, text: str) -> None:
    """Make `text` the history of an ended answer; what is cut is cut in the item too."""
    item = session.conversation.entries[playout.item_id].item
    if playout.ended and isinstance(item, Message):
        kept = item if playout.cap_ms is None else shortened(item, text, playout.cap_ms)
        session.conversation.entries[item.id] = Entry(kept, text)


def shortened(item: Message, text: str, ms: int) -> Message:
    """Return an assistant message of which only `text`, `ms` milliseconds of sound, is left."""
    content = tuple(
        msgspec.structs.replace(part, transcript=text, ms=ms) if isinstance(part, AudioPart) else TextPart(text)
        for part in item.content
    )
    return msgspec.structs.replace(item, content=content)


def _insert(session: Session, item: Item, previous: str | None, heard: str | None = None) -> None:
    conversation = session.conversation
    order = conversation.order
    at = 0 if previous is None else order.index(previous) + 1
    order.insert(at, item.id)
    conversation.entries[item.id] = Entry(item, heard)


def _count_item(session: Session, item_id: str) -> None:
    """Move the counter on when an id of our own making was used."""
    number = next_item_number(session)
    if item_id == ids.item_id(session.id, number):
        session.counters.items = number


def _remember(session: Session, control_id: str, outcome: ControlOutcome) -> None:
    controls = session.lease.controls
    controls[control_id] = outcome
    if len(controls) > KEPT_CONTROLS:
        del controls[next(iter(controls))]


def _input_format(session: Session) -> AudioFormat:
    return session.capabilities.input_format


def _samples(session: Session, position: int) -> int:
    return position // _input_format(session).width


# A handler takes the one event type of its key, which no type of this table can say; `tests` hold the pairs.
HANDLERS: Mapping[type[ev.Event], Callable[[Session, Any], None]] = {
    ev.SessionOpened: _session_opened,
    ev.SessionResumed: _session_resumed,
    ev.AttachmentConfirmed: _attachment_confirmed,
    ev.AttachmentWithdrawn: _attachment_withdrawn,
    ev.SessionDetached: _session_detached,
    ev.ConfigUpdated: _config_updated,
    ev.EngineRestarted: _engine_restarted,
    ev.SessionClosing: _session_closing,
    ev.SessionClosed: _session_closed,
    ev.CommandSequenced: _command_sequenced,
    ev.AudioReceived: _audio_received,
    ev.SpeechStarted: _speech_started,
    ev.SpeechStopped: _speech_stopped,
    ev.InputCommitted: _input_committed,
    ev.InputCleared: _input_cleared,
    ev.InputDropped: _input_cleared,
    ev.UserTranscribed: _user_transcribed,
    ev.ItemCreated: _item_created,
    ev.ItemDeleted: _item_deleted,
    ev.ItemTruncated: _item_truncated,
    ev.ResponseCreated: _response_created,
    ev.AnswerDeferred: _answer_deferred,
    ev.RequestSubmitted: _request_submitted,
    ev.RequestAccepted: _request_moved,
    ev.RequestFinished: _request_moved,
    ev.RequestReleased: _request_moved,
    ev.OutputStarted: _output_started,
    ev.AudioDelta: _audio_delta,
    ev.TextDelta: _text_delta,
    ev.ResponseEnded: _response_ended,
    ev.Interrupted: _interrupted,
    ev.HistoryCut: _history_cut,
    ev.PlaybackAcknowledged: _playback_acknowledged,
}

NO_CHANGE: frozenset[type[ev.Event]] = frozenset(
    {
        ev.SessionTouched,
        ev.ErrorReported,
        ev.OverlapDecided,
        ev.ListenDecided,
        ev.ItemRetrieved,
        ev.OutputCleared,
    }
)
"""Events that only tell; with `HANDLERS` they are all members of the union."""

ACTIVITY: frozenset[type[ev.Event]] = frozenset(
    {
        ev.SessionOpened,
        ev.SessionResumed,
        ev.SessionDetached,
        ev.SessionTouched,
        ev.ConfigUpdated,
        ev.AudioReceived,
        ev.InputCommitted,
        ev.InputCleared,
        ev.InputDropped,
        ev.UserTranscribed,
        ev.ItemCreated,
        ev.ItemDeleted,
        ev.ItemRetrieved,
        ev.ItemTruncated,
        ev.ResponseCreated,
        ev.OutputStarted,
        ev.AudioDelta,
        ev.TextDelta,
        ev.ResponseEnded,
        ev.Interrupted,
        ev.HistoryCut,
        ev.OutputCleared,
        ev.PlaybackAcknowledged,
    }
)
"""Events that renew the lease: what a client asked for and what a model said (C1, WIRE 8.6)."""
