"""From a durable transaction to messages: a table of events, encoded once for each dialect (WIRE 3)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec
from msgspec import UNSET, Struct

from antiphon.engine.published import Published
from antiphon.engine.tokens import Veiled
from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.config import Dialect
from antiphon.events.events import Event, PublicEvent
from antiphon.events.ids import EventPosition

from . import wire_server as out
from .codes import error_body, respelled
from .wire_delta import Mould, cast
from .wire_items import content_out, item_out
from .wire_project import (
    Form,
    Scene,
    audio_delta,
    call_delta,
    call_ended,
    call_started,
    is_void,
    output_ended,
    output_started,
    response_created,
    response_ended,
    text_delta,
)
from .wire_server import ServerEvent
from .wire_view import playback_out, shown_session


class Message(Struct, frozen=True, gc=False):
    """One text frame. `number` is its `server_event_seq`, 0 if it has none; `sounds`: there is sound in it."""

    number: int
    data: bytes
    sounds: bool = False


class Messages(Struct, frozen=True, gc=False):
    """The messages of one transaction, as they lie in its cache."""

    all: tuple[Message, ...]


class Reader(Veiled, Struct):
    """Who reads: a connection and what only it is told.

    `form` is its dialect as it is written, `token` the resume token that its first message carries and
    `observer_token` the one for observers. `asked_to_close`: it sent `session.close`. `mould` is that of the
    response that it hears.
    """

    session: str
    form: Form
    attachment: int
    token: str | None = None
    asked_to_close: bool = False
    observer_token: str | None = None
    mould: Mould | None = None


def form_of(dialect: Dialect, *, resumable: bool) -> Form:
    """Return how a dialect is written: only what can be resumed is numbered."""
    return "plain" if dialect == "duplex" and not resumable else dialect


def project(entry: Published, reader: Reader, epoch: int) -> tuple[Message, ...]:
    """Return the messages of a transaction for a reader; `epoch` is the latest durable one.

    Encoded once for each dialect and for each of the two fates of its sound, and kept in the entry's cache;
    what names the reader (opening, resuming, closing) is not.
    """
    if entry.turning or entry.transaction.seq == 1:
        return _project(entry, reader, epoch)
    key = reader.form if entry.epoch >= epoch or not entry.sound else f"{reader.form} stale {epoch}"
    known = entry.cache.get(key)
    if isinstance(known, Messages):
        return known.all
    made = _project(entry, reader, epoch)
    entry.cache[key] = Messages(made)
    return made


def notice(message: ServerEvent, count: int, behind: EventPosition | None = None, attachment: int = 0) -> Message:
    """Encode a message that is in no log: `count` tells such messages of one connection apart.

    `behind` is up to where a client that names its last message has seen everything, if it has this one.
    """
    if behind is None:
        message.event_id = ids.event_id(0, 0, count)
    else:
        message.event_id = ids.unlogged_id(behind, attachment, count)
    return Message(0, _encode(message))


def welcome(entry: Published, reader: Reader, behind: EventPosition) -> Message:
    """Return the answer to a resume in a dialect that has no word for it: the session is shown once more.

    A client that has this message and no other since is still behind `behind`, and its id says so.
    """
    event = next(event for event in entry.transaction.events if isinstance(event, ev.SessionResumed))
    shown = out.SessionCreated(
        session=shown_session(event.view),
        attachment_generation=event.attachment,
        resume_token=reader.token or "",
        observer_token=reader.observer_token or UNSET,
        last_client_seq=event.last_client_seq,
        resumed=True,
    )
    return notice(shown, 0, behind, event.attachment)


def unseen(
    entry: Published, messages: Sequence[Message], number: int, position: EventPosition | None
) -> list[Message]:
    """Return what a client missed of a transaction that saw all up to `number`, or to `position`."""
    if position is None:
        return [message for message in messages if message.number > number]
    if entry.seq > position.seq:
        return list(messages)
    return [message for message in messages if _place_of(message) > position]


def _place_of(message: Message) -> EventPosition:
    known = ids.parse_event_id(_read_stamp(message.data).event_id)
    assert known is not None, "every message is stamped"
    return known


class _Stamp(Struct):
    event_id: str


_read_stamp = msgspec.json.Decoder(_Stamp).decode


def refusal(code: str, message: str, param: str | None, event_id: str | None, form: Form) -> ServerEvent:
    """Return an error that is in no log: the opening of a session failed, or its log cannot be written."""
    body = error_body(code, message, param, event_id)
    return out.ErrorOut(error=body if form in ("duplex", "plain") else respelled(body, None, None))


_encode = msgspec.json.Encoder().encode


def _project(entry: Published, reader: Reader, epoch: int) -> tuple[Message, ...]:
    transaction = entry.transaction
    numbered = reader.form == "duplex"
    messages: list[Message] = []
    scene: Scene | None = None
    for index, event in enumerate(transaction.events):
        row = _ROWS.get(type(event))
        if row is None or not isinstance(event, PublicEvent):
            continue
        if type(event) is ev.AudioDelta and _moulded(event, entry, index, reader, epoch, messages):
            continue
        if scene is None:
            scene = _scene(entry, reader, epoch)
        for part, message in enumerate(row(event, scene)):
            if message is None:
                continue
            message.event_id = ids.event_id(transaction.seq, index, part)
            number = event.number + part if numbered and event.number else 0
            if number:
                message.server_event_seq = number
            sounds = isinstance(message, out.AudioDeltaOut) and bool(message.delta)
            messages.append(Message(number, _encode(message), sounds))
        if isinstance(event, ev.SessionResumed) and event.attachment > reader.attachment:
            break  # what is decided behind it is for the connection that has the session now (P52)
    return tuple(messages)


def _scene(entry: Published, reader: Reader, epoch: int) -> Scene:
    return Scene(
        session=reader.session,
        form=reader.form,
        attachment=reader.attachment,
        token=reader.token,
        command=entry.transaction.command,
        sound=entry.sound,
        epoch=epoch,
        asked_to_close=reader.asked_to_close,
        observer_token=reader.observer_token,
    )


def _moulded(
    event: ev.AudioDelta, entry: Published, index: int, reader: Reader, epoch: int, messages: list[Message]
) -> bool:
    """Add the messages of a piece of sound, if they are made in a mould; it is the reader's, for the next ones."""
    form = reader.form
    number = event.number if form == "duplex" else 0
    if is_void(event, epoch) or event.costs or (form == "duplex" and not number):
        return False
    mould = reader.mould
    if mould is None or not mould.fits(event, form):
        mould = reader.mould = cast(event, _scene(entry, reader, epoch))
    if not mould.audio:
        return False
    sound = entry.sound[event.ref]
    first, second = ids.pair_of_event_ids(entry.transaction.seq, index)
    if number:
        messages.append(Message(number, mould.sound_of(event, (first, number), sound), bool(sound)))
        messages.append(Message(number + 1, mould.words_of(event, (second, number + 1))))
        return True
    messages.append(Message(0, mould.sound_of(event, (first,), sound), bool(sound)))
    if event.text or mould.told:
        messages.append(Message(0, mould.words_of(event, (second,))))
    return True


# -- session -------------------------------------------------------------------------------------------------


def _opened(event: ev.SessionOpened, scene: Scene) -> Iterator[ServerEvent]:
    resumable = scene.token is not None
    yield out.SessionCreated(
        session=shown_session(event.view),
        attachment_generation=1 if resumable else UNSET,
        resume_token=scene.token if scene.token is not None else UNSET,
        observer_token=scene.observer_token or UNSET,
    )
    if scene.beta:
        yield out.ConversationCreated(conversation=out.ConversationInfo(id=ids.conversation_id(event.session)))


def _resumed(event: ev.SessionResumed, scene: Scene) -> Iterator[ServerEvent]:
    """For the connection that resumed: what it needs to go on. For the one before it: that it is over.

    The other dialects have no words for either: see `welcome`, and the code of the close.
    """
    if not scene.extended:
        return
    if event.attachment != scene.attachment:
        yield out.SessionReplaced(session_id=scene.session, attachment_generation=event.attachment)
        return
    yield out.SessionResumed(
        session_id=scene.session,
        session=shown_session(event.view),
        attachment_generation=event.attachment,
        resume_token=scene.token or "",
        observer_token=scene.observer_token or UNSET,
        last_client_seq=event.last_client_seq,
    )


def _touched(event: ev.SessionTouched, _scene: Scene) -> Iterator[ServerEvent]:
    yield out.HeartbeatAck(session_id=event.session)


def _signalled(event: ev.TurnSignalled, _scene: Scene) -> Iterator[ServerEvent]:
    yield out.TurnEvent(
        session_id=event.session, epoch=event.epoch, event=event.signal, turn_state=event.turn_state
    )


def _updated(event: ev.ConfigUpdated, _scene: Scene) -> Iterator[ServerEvent]:
    yield out.SessionUpdated(session=shown_session(event.view))


_HOUR = "Your session hit the maximum duration of 60 minutes."


def _closed(event: ev.SessionClosed, scene: Scene) -> Iterator[ServerEvent]:
    if scene.extended and event.expired:
        yield out.SessionExpired(session_id=event.session, reason=event.reason)
    elif event.expired:
        if event.reason == "max_duration":
            yield out.ErrorOut(error=error_body("session_expired", _HOUR, None, None))
    elif scene.extended or scene.asked_to_close:
        yield out.SessionClosedOut(
            session_id=event.session,
            reason=event.words or event.reason,
            event=out.EndInfo(session_id=event.session, reason=event.reason, detail=event.words or UNSET),
        )


def _error(event: ev.ErrorReported, scene: Scene) -> Iterator[ServerEvent]:
    body = error_body(event.code, event.message, event.param, event.event_id)
    yield out.ErrorOut(error=body if scene.extended else respelled(body, event.detail, scene.command))


# -- input ---------------------------------------------------------------------------------------------------


def _speech_started(event: ev.SpeechStarted, _scene: Scene) -> Iterator[ServerEvent]:
    yield out.SpeechStartedOut(audio_start_ms=event.audio_start_ms, item_id=event.item_id)


def _speech_stopped(event: ev.SpeechStopped, _scene: Scene) -> Iterator[ServerEvent]:
    yield out.SpeechStoppedOut(audio_end_ms=event.audio_end_ms, item_id=event.item_id)


def _timed_out(event: ev.InputTimedOut, _scene: Scene) -> Iterator[ServerEvent]:
    yield out.TimeoutTriggered(
        audio_start_ms=event.audio_start_ms, audio_end_ms=event.audio_end_ms, item_id=event.item_id
    )


def _committed(event: ev.InputCommitted, scene: Scene) -> Iterator[ServerEvent]:
    info = out.CommittedInfo(
        session_id=event.session,
        turn_id=event.turn,
        epoch=event.epoch,
        history_len=event.history_len,
        realtime_item_id=event.item_id,
        message=out.CommittedMessage(content=content_out(event.content)) if event.content else None,
        transcript=event.transcript,
        is_speech=event.is_speech,
        empty=event.empty,
        no_response=event.no_response,
        overlap_ack=event.overlap_ack,
        overlap_deferred=event.overlap_deferred,
        response_create_deferred=event.response_create_deferred,
    )
    yield out.BufferCommitted(
        item_id=event.item_id,
        previous_item_id=event.previous_item_id,
        event=info if scene.extended else UNSET,
    )


def _input_cleared(_event: ev.InputCleared, _scene: Scene) -> Iterator[ServerEvent]:
    yield out.BufferCleared()


def _transcribed(event: ev.UserTranscribed, _scene: Scene) -> Iterator[ServerEvent]:
    if not event.count:
        return
    if event.error is not None:
        yield out.TranscriptionFailed(
            item_id=event.item_id,
            content_index=event.content_index,
            error=out.TranscriptionError(message=event.error),
        )
    elif event.final:
        yield out.TranscriptionCompleted(
            item_id=event.item_id,
            content_index=event.content_index,
            transcript=event.text,
            usage=out.DurationUsage(seconds=event.seconds),
        )
    else:
        yield out.TranscriptionDelta(item_id=event.item_id, content_index=event.content_index, delta=event.text)


def _overlap(event: ev.OverlapDecided, scene: Scene) -> Iterator[ServerEvent]:
    if scene.extended:
        yield out.OverlapDecision(
            session_id=event.session,
            epoch=event.epoch,
            policy=event.policy,
            action=event.action,
            reason=event.reason,
            metadata=out.OverlapMetadata(
                duration_ms=event.duration_ms,
                overlap_speech_ms=event.overlap_ms,
                buffer_audio=event.buffer,
                defer_runtime_append=event.defer,
                force_listen=event.force_listen,
                preserve_realtime_input=event.keep,
                cancel_reason=event.cancel,
            ),
        )


def _listen(event: ev.ListenDecided, scene: Scene) -> Iterator[ServerEvent]:
    if scene.extended:
        ended = event.response_id if event.response_id is not None else UNSET
        yield out.ResponseListen(
            session_id=event.session,
            epoch=event.epoch,
            response_id=ended,
            response=out.ListenInfo(
                id=ended,
                metadata=out.ListenMetadata(
                    reason=event.reason, model_listen=event.model, buffering=True if event.buffering else UNSET
                ),
            ),
        )


# -- conversation --------------------------------------------------------------------------------------------


def _item_created(event: ev.ItemCreated, scene: Scene) -> Iterator[ServerEvent]:
    item = item_out(event.item, beta=scene.beta)
    previous = event.previous_item_id
    if not scene.beta:
        yield out.ItemAdded(item=item, previous_item_id=previous)
    if scene.form != "ga":
        yield out.ItemCreatedOut(item=item, previous_item_id=previous)
    if not scene.beta:
        yield out.ItemDone(item=item, previous_item_id=previous)


def _item_deleted(event: ev.ItemDeleted, scene: Scene) -> Iterator[ServerEvent]:
    info = out.DeletedInfo(session_id=scene.session, item_id=event.item_id)
    yield out.ItemDeletedOut(item_id=event.item_id, event=info if scene.extended else UNSET)


def _item_retrieved(event: ev.ItemRetrieved, scene: Scene) -> Iterator[ServerEvent]:
    yield out.ItemRetrievedOut(item=item_out(event.item, beta=scene.beta))


def _item_truncated(event: ev.ItemTruncated, scene: Scene) -> Iterator[ServerEvent]:
    item_id, index, end_ms = event.item_id, event.content_index, event.audio_end_ms
    info = out.TruncatedInfo(session_id=scene.session, item_id=item_id, content_index=index, audio_end_ms=end_ms)
    yield out.ItemTruncatedOut(
        item_id=item_id,
        content_index=index,
        audio_end_ms=end_ms,
        event=info if scene.extended else UNSET,
    )


# -- playback ------------------------------------------------------------------------------------------------


def _output_cleared(event: ev.OutputCleared, scene: Scene) -> Iterator[ServerEvent]:
    if scene.extended or event.asked:
        yield out.OutputClearedOut(response_id=event.response_id)


def _output_paused(event: ev.InterruptionSuspected, scene: Scene) -> Iterator[ServerEvent]:
    if scene.extended:
        yield out.OutputPaused(response_id=event.response_id, at_ms=event.at_ms, reason=event.reason)


def _output_resumed(
    event: ev.InterruptionDismissed | ev.InterruptionDoubted, scene: Scene
) -> Iterator[ServerEvent]:
    if scene.extended and event.count:
        yield out.OutputResumed(response_id=event.response_id, at_ms=event.at_ms, reason=event.reason)


def _acknowledged(event: ev.PlaybackAcknowledged, _scene: Scene) -> Iterator[ServerEvent]:
    yield out.PlaybackAcknowledgedOut(
        event=out.PlaybackInfo(
            session_id=event.session,
            epoch=event.epoch,
            response_id=event.response_id or None,
            item_id=event.item_id or None,
            played_ms=event.played_ms,
            committed_ms=event.committed_ms,
            truncate=event.truncate,
            history_committed=event.history_committed,
            playback=playback_out(event.playback),
        )
    )


# -- the table -----------------------------------------------------------------------------------------------

_Row = Callable[[Event, Scene], Iterable[ServerEvent | None]]
E = TypeVar("E", bound=Event)


def _row(kind: type[E], build: Callable[[E, Scene], Iterable[ServerEvent | None]]) -> tuple[type[Event], _Row]:
    """Pair an event with its builder; the table is only ever asked by the exact type."""

    def row(event: Event, scene: Scene) -> Iterable[ServerEvent | None]:
        assert isinstance(event, kind)
        return build(event, scene)

    return kind, row


_ROWS: dict[type[Event], _Row] = dict(
    (
        _row(ev.SessionOpened, _opened),
        _row(ev.SessionResumed, _resumed),
        _row(ev.SessionTouched, _touched),
        _row(ev.ConfigUpdated, _updated),
        _row(ev.TurnSignalled, _signalled),
        _row(ev.SessionClosed, _closed),
        _row(ev.ErrorReported, _error),
        _row(ev.SpeechStarted, _speech_started),
        _row(ev.SpeechStopped, _speech_stopped),
        _row(ev.InputTimedOut, _timed_out),
        _row(ev.InputCommitted, _committed),
        _row(ev.InputCleared, _input_cleared),
        _row(ev.UserTranscribed, _transcribed),
        _row(ev.OverlapDecided, _overlap),
        _row(ev.ListenDecided, _listen),
        _row(ev.ItemCreated, _item_created),
        _row(ev.ItemDeleted, _item_deleted),
        _row(ev.ItemRetrieved, _item_retrieved),
        _row(ev.ItemTruncated, _item_truncated),
        _row(ev.ResponseCreated, response_created),
        _row(ev.OutputStarted, output_started),
        _row(ev.AudioDelta, audio_delta),
        _row(ev.TextDelta, text_delta),
        _row(ev.OutputEnded, output_ended),
        _row(ev.CallStarted, call_started),
        _row(ev.CallDelta, call_delta),
        _row(ev.CallEnded, call_ended),
        _row(ev.ResponseEnded, response_ended),
        _row(ev.OutputCleared, _output_cleared),
        _row(ev.InterruptionSuspected, _output_paused),
        _row(ev.InterruptionDismissed, _output_resumed),
        _row(ev.InterruptionDoubted, _output_resumed),
        _row(ev.PlaybackAcknowledged, _acknowledged),
    )
)

PROJECTED = frozenset(_ROWS)
"""The events that become messages; a test holds that these are the public ones."""
