"""From a text frame to a command: decoded once, closed, with the contract's code for everything refused.

What a few events mean depends on the configuration of the session, and that may be about to change when they
arrive. They are decoded as far as they go (`Undecided`) and understood when their turn comes.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec import Raw

from antiphon.engine.item_request import ItemRequest
from antiphon.events import commands
from antiphon.events.audio import AudioFormat
from antiphon.events.commands import CloseSession
from antiphon.events.config import SessionConfig

from . import wire_append
from . import wire_client as given
from .wire_client import ABSENT, ClientEvent
from .wire_errors import WireError, bad_value, missing, quoted, translate
from .wire_formats import Spelled, SpelledRate, input_format
from .wire_items import Pieces, item_from
from .wire_json import check, check_numbers, diagnose, invalid_json
from .wire_read import Decoded, EventAck, Reading, Recorded, SessionResume, Undecided, Understood
from .wire_response import options_from
from .wire_session import read_session
from .wire_signal import ALIASED, SIGNALS, payload_of, unfolded

LARGEST = 2**53
"""No number of a client is taken to be greater."""


def decode(frame: bytes | str, reading: Reading, config: SessionConfig | None = None) -> Decoded:
    """Decode one text frame. With the `config` that it is understood by, an append is decided at once.

    Raises:
        WireError: by the contract's code; it carries the client's event id if there was one.
    """
    data = frame.encode() if isinstance(frame, str) else frame
    appended = wire_append.quick(data, reading, config)
    return decode_slowly(data, reading) if appended is None else appended


def decode_slowly(data: bytes, reading: Reading) -> Decoded:
    """Decode a frame that nothing is known of; raises as `decode` does."""
    check(data)
    head = _head(data)
    if head.type is msgspec.UNSET:
        raise WireError("bad_event", "The 'type' field is missing.", None, "type_missing", event_id=head.event_id)
    read = _READERS.get(head.type)
    try:
        if read is None:
            raise _unknown(head.type)
        return read(data, reading)
    except WireError as refusal:
        refusal.about(head.event_id, head.type, head.client_seq)
        raise


def _head(data: bytes) -> given.Head:
    try:
        return _decode_head(data)
    except msgspec.ValidationError as error:
        check_numbers(data, len(data))
        if "Expected `object`" in str(error):
            raise WireError("bad_event", "An event is a JSON object.") from None
        refusal = translate(error, given.Head)
        refusal.event_id = _event_id(data)
        raise refusal from None
    except msgspec.DecodeError as error:
        raise diagnose(data, error) from None
    except RecursionError:
        raise invalid_json() from None


def head_of(frame: bytes) -> given.Head:
    """Return what a frame begins with, for one that is refused unread.

    Raises:
        WireError: it is no event.
    """
    check(frame)
    return _head(frame)


def _event_id(data: bytes) -> str | None:
    """Return the `event_id` of an event whose head is wrong elsewhere, if that much of it is right."""
    try:
        return _decode_named(data).event_id
    except msgspec.DecodeError:
        return None


def _unknown(name: str) -> WireError:
    return WireError("unknown_event", f"Invalid value: {quoted(name)}.", "type")


_decode_head = msgspec.json.Decoder(given.Head).decode
_decode_named = msgspec.json.Decoder(given.Named).decode


# -- one builder for each event ------------------------------------------------------------------------------


def _undecided(event: ClientEvent, size: int, build: Callable[[SessionConfig], Understood]) -> Undecided:
    return Undecided(
        build=build,
        size=size,
        event_id=event.event_id,
        event_type=str(event.__struct_config__.tag),
        client_seq=event.client_seq,
    )


def _update(event: given.SessionUpdate, reading: Reading) -> Decoded:
    if event.session == ABSENT:
        raise missing("session")
    return _patched(event, event.session, reading)


def _patched(
    event: given.SessionUpdate, session: Raw | bytes, reading: Reading, *, whole_event: bool = False
) -> Undecided:
    def build(config: SessionConfig) -> Understood:
        patch, recording = read_session(
            session, config, reading.dialect, whole_event=whole_event, no_recording=reading.no_recording
        )
        update = commands.UpdateSession(
            attachment=reading.attachment,
            event_id=event.event_id,
            client_seq=event.client_seq,
            patch=patch,
        )
        return Recorded(update, recording) if recording else update

    return _undecided(event, memoryview(session).nbytes, build)


def _commit(event: given.CommitBuffer, reading: Reading) -> Decoded:
    wanted = event.create_response if event.response_create is None else event.response_create
    if wanted is None and isinstance(event, InputCommit):
        wanted = True
    return commands.CommitInput(
        attachment=reading.attachment,
        event_id=event.event_id,
        client_seq=event.client_seq,
        create_response=wanted,
        is_speech=event.is_speech,
        final=event.final,
    )


def _create_item(event: given.ItemCreate, reading: Reading) -> Decoded:
    def build(config: SessionConfig) -> Understood:
        def formatted(part: given.PartIn, path: str) -> AudioFormat | None:
            name = Spelled(part.format, f"{path}.format") if part.format is not None else None
            rate = None
            if part.sample_rate_hz is not None:
                rate = SpelledRate(part.sample_rate_hz, f"{path}.sample_rate_hz")
            return input_format(name, rate, config.input_format, reading.dialect) if name or rate else None

        found = Pieces(reading.dialect, formatted)
        command = commands.CreateItem(
            attachment=reading.attachment,
            event_id=event.event_id,
            client_seq=event.client_seq,
            item=item_from(event.item, found),
            previous_item_id=event.previous_item_id or None,
        )
        return ItemRequest(command=command, pieces=tuple(found.pieces)) if found.pieces else command

    return _undecided(event, _weight(event.item), build)


def _weight(item: given.ItemIn) -> int:
    """Return how many bytes of sound, pictures and words an item holds, about."""
    parts = [given.PartIn("text", item.content)] if isinstance(item.content, str) else item.content or []
    brought = sum(len(part.audio or part.image_url or "") for part in parts) * 3 // 4
    words = sum(len(part.text or "") + len(part.transcript or "") for part in parts)
    return brought + words + len(item.arguments or "") + memoryview(item.output).nbytes


def _item_id(value: str | None) -> str:
    if not value:
        raise WireError("missing_item_id", "Missing required parameter: 'item_id'.", "item_id")
    return value


def _retrieve(event: given.ItemRetrieve, reading: Reading) -> Decoded:
    return commands.RetrieveItem(
        attachment=reading.attachment,
        event_id=event.event_id,
        client_seq=event.client_seq,
        item_id=_item_id(event.item_id),
    )


def _delete(event: given.ItemDelete, reading: Reading) -> Decoded:
    return commands.DeleteItem(
        attachment=reading.attachment,
        event_id=event.event_id,
        client_seq=event.client_seq,
        item_id=_item_id(event.item_id),
    )


def _truncate(event: given.ItemTruncate, reading: Reading) -> Decoded:
    return commands.TruncateItem(
        attachment=reading.attachment,
        event_id=event.event_id,
        client_seq=event.client_seq,
        item_id=_item_id(event.item_id),
        audio_end_ms=_ms(event.audio_end_ms),
        content_index=min(event.content_index, LARGEST),
    )


def _respond(event: given.ResponseCreate, reading: Reading) -> Decoded:
    def build(config: SessionConfig) -> Understood:
        return commands.CreateResponse(
            attachment=reading.attachment,
            event_id=event.event_id,
            client_seq=event.client_seq,
            options=options_from(event.response, config, reading.dialect),
        )

    return _undecided(event, memoryview(event.response).nbytes, build)


def _cancel(event: given.ResponseCancel, reading: Reading) -> Decoded:
    return commands.CancelResponse(
        attachment=reading.attachment,
        event_id=event.event_id,
        client_seq=event.client_seq,
        response_id=event.response_id,
    )


def _clear_output(event: given.OutputClear, reading: Reading) -> Decoded:
    return commands.ClearOutput(
        attachment=reading.attachment,
        event_id=event.event_id,
        client_seq=event.client_seq,
        response_id=event.response_id,
    )


def _ack_playback(event: given.PlaybackAck, reading: Reading) -> Decoded:
    return _played(event, reading)


def _read_ack(data: bytes) -> given.PlaybackAck:
    try:
        return _decode_ack(data)
    except msgspec.ValidationError as error:
        raise translate(error, given.PlaybackAck, "payload.") from None


_decode_ack = msgspec.json.Decoder(given.PlaybackAck).decode


def _played(event: given.PlaybackAck, reading: Reading) -> commands.AckPlayback:
    return commands.AckPlayback(
        attachment=reading.attachment,
        event_id=event.event_id,
        client_seq=event.client_seq,
        played_ms=_ms(event.played_ms),
        committed_ms=None if event.committed_ms is None else _ms(event.committed_ms),
        response_id=event.response_id,
        item_id=event.item_id,
        truncate=event.truncate,
    )


def _append_text(event: given.AppendText, reading: Reading) -> Decoded:
    return commands.AppendText(
        attachment=reading.attachment,
        event_id=event.event_id,
        client_seq=event.client_seq,
        text=event.text,
    )


def _signal(event: given.TurnSignal, reading: Reading) -> Decoded:
    """Understand a signal: one of its own, or another event in other words, with identical effect (L14)."""
    if not reading.signals:
        raise WireError("unsupported", "This model takes no signals about turns.", "event")
    if event.event in ALIASED:
        return _READERS[event.event](unfolded(event), reading)
    signal = SIGNALS.get(event.event)
    if signal is None:
        raise bad_value(f"There is no signal {quoted(event.event)}.", "event")
    played: commands.AckPlayback | None = None
    if signal == "playback_ack":
        payload = {**payload_of(event), "type": Raw(b'"playback.ack"')}
        played = _played(_read_ack(msgspec.json.encode(payload)), reading)
    return commands.SignalTurn(
        attachment=reading.attachment,
        event_id=event.event_id,
        client_seq=event.client_seq,
        signal=signal,
        playback=played,
    )


def _close(event: given.SessionClose, reading: Reading) -> Decoded:
    words = (event.reason or "").encode()[:120].decode(errors="ignore")
    return CloseSession(
        control_id=event.event_id or f"close-{reading.attachment}",
        words=words if words not in ("", "client_close") else None,
        attachment=reading.attachment,
    )


def _resume(event: given.Resume, reading: Reading) -> Decoded:
    if not event.session_id or not event.resume_token:
        raise missing("resume_token" if event.session_id else "session_id")
    return SessionResume(
        session=event.session_id,
        token=event.resume_token,
        last_number=min(event.last_received_server_event_seq, LARGEST),
        event_id=event.event_id,
    )


def _ack(event: given.EventAckIn, reading: Reading) -> Decoded:
    return EventAck(number=min(event.server_event_seq, LARGEST), event_id=event.event_id)


E = TypeVar("E", bound=ClientEvent)


def _ms(value: float) -> int:
    return int(min(value, LARGEST))


# -- the table -----------------------------------------------------------------------------------------------


class InputCommit(given.CommitBuffer, frozen=True, kw_only=True, tag="input.commit"):
    """The extension's spelling of a commit: it asks for an answer."""


class TextAlias(given.AppendText, frozen=True, kw_only=True, tag="input_text.append"):
    """Another spelling of `input.text.append`."""


class PushText(given.AppendText, frozen=True, kw_only=True, tag="push_text"):
    """Another spelling of `input.text.append`."""


class SignalAlias(given.TurnSignal, frozen=True, kw_only=True, tag="signal_turn"):
    """Another spelling of `turn.signal`."""


class CloseAlias(given.SessionClose, frozen=True, kw_only=True, tag="close"):
    """Another spelling of `session.close`."""


class CloseSessionAlias(given.SessionClose, frozen=True, kw_only=True, tag="close_session"):
    """Another spelling of `session.close`."""


class PlaybackAckAlias(given.PlaybackAck, frozen=True, kw_only=True, tag="audio.playback_ack"):
    """Another spelling of `playback.ack`."""


_Reader = Callable[[bytes, Reading], Decoded]
_Bare = type[commands.ClearInput | commands.CancelInput | commands.BargeIn | commands.Heartbeat]


def _reader(shape: type[E], build: Callable[[E, Reading], Decoded]) -> _Reader:
    read = msgspec.json.Decoder(shape).decode

    def reader(data: bytes, reading: Reading) -> Decoded:
        try:
            event = read(data)
        except msgspec.ValidationError as error:
            check_numbers(data, len(data))
            raise translate(error, shape) from None
        except msgspec.DecodeError as error:
            raise diagnose(data, error) from None
        check_numbers(data, len(data) - _payload(event))
        return build(event, reading)

    return reader


def _payload(event: ClientEvent) -> int:
    """Return how many characters of the message were sound and pictures."""
    if isinstance(event, given.AppendBuffer):
        return len(event.audio or event.delta or "") + sum(map(len, event.video_frames or ()))
    if isinstance(event, given.ItemCreate) and not isinstance(event.item.content, str):
        return sum(len(part.audio or part.image_url or "") for part in event.item.content or ())
    return 0


def _bare(shape: type[E], command: _Bare) -> _Reader:
    """Return the reader of an event that has no fields of its own."""

    def build(event: E, reading: Reading) -> Decoded:
        return command(attachment=reading.attachment, event_id=event.event_id, client_seq=event.client_seq)

    return _reader(shape, build)


def _recoded(read: _Reader, code: str, *, numbered: bool = True) -> _Reader:
    """Return a reader that says `code` whatever is wrong with the shape."""

    def reader(data: bytes, reading: Reading) -> Decoded:
        try:
            return read(data, reading)
        except WireError as refusal:
            raise WireError(code, refusal.message, refusal.param, numbered=numbered) from None

    return reader


def _update_or_itself(data: bytes, reading: Reading) -> Decoded:
    """Read `session.update`; in the duplex dialect the event's own keys may stand for the session object."""
    try:
        return _read_update(data, reading)
    except WireError as refusal:
        if reading.dialect != "duplex" or refusal.detail != "missing" or refusal.param != "session":
            raise
    return _patched(_decode_update(data), data, reading, whole_event=True)


_read_update = _reader(given.SessionUpdate, _update)
_decode_update = msgspec.json.Decoder(given.SessionUpdate).decode

_READERS: dict[str, _Reader] = {
    "session.update": _update_or_itself,
    wire_append.NAME: _reader(given.AppendBuffer, wire_append.append),
    "input_audio_buffer.commit": _reader(given.CommitBuffer, _commit),
    "input.commit": _reader(InputCommit, _commit),
    "input_audio_buffer.clear": _bare(given.ClearBuffer, commands.ClearInput),
    "input.cancel": _bare(given.InputCancel, commands.CancelInput),
    "output_audio_buffer.clear": _reader(given.OutputClear, _clear_output),
    "conversation.item.create": _reader(given.ItemCreate, _create_item),
    "conversation.item.retrieve": _reader(given.ItemRetrieve, _retrieve),
    "conversation.item.delete": _reader(given.ItemDelete, _delete),
    "conversation.item.truncate": _reader(given.ItemTruncate, _truncate),
    "response.create": _reader(given.ResponseCreate, _respond),
    "response.cancel": _reader(given.ResponseCancel, _cancel),
    "session.resume": _recoded(_reader(given.Resume, _resume), "invalid_session_resume"),
    "session.event_ack": _recoded(_reader(given.EventAckIn, _ack), "invalid_event_ack", numbered=False),
    "session.heartbeat": _bare(given.HeartbeatIn, commands.Heartbeat),
    "session.close": _reader(given.SessionClose, _close),
    "close": _reader(CloseAlias, _close),
    "close_session": _reader(CloseSessionAlias, _close),
    "playback.ack": _reader(given.PlaybackAck, _ack_playback),
    "audio.playback_ack": _reader(PlaybackAckAlias, _ack_playback),
    "barge_in": _bare(given.BargeInNow, commands.BargeIn),
    "input.text.append": _reader(given.AppendText, _append_text),
    "input_text.append": _reader(TextAlias, _append_text),
    "push_text": _reader(PushText, _append_text),
    "turn.signal": _reader(given.TurnSignal, _signal),
    "signal_turn": _reader(SignalAlias, _signal),
}

EVENT_NAMES = tuple(_READERS)
"""The client events that are carried out, in the contract's order."""
