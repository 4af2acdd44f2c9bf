"""What the client reads: the server's events by their types, and whatever it does not know, as it came."""

import msgspec
from msgspec import Struct, UnsetType

from . import wire_server as out


class Unknown(Struct, frozen=True, kw_only=True):
    """An event of a type, or a shape, that this client does not know. `raw` is the whole frame."""

    type: str
    number: int
    raw: bytes


class Missed(Struct, frozen=True, kw_only=True):
    """Not from the server: nobody read for so long that `count` events were let go; `last_number` is the last of
    their numbers, 0 if none had one."""

    count: int
    last_number: int


AnyServerEvent = (
    out.SessionCreated
    | out.SessionUpdated
    | out.TurnEvent
    | out.SessionResumed
    | out.SessionReplaced
    | out.ResyncRequired
    | out.SessionGoingAway
    | out.HeartbeatAck
    | out.SessionClosedOut
    | out.SessionExpired
    | out.ConversationCreated
    | out.ErrorOut
    | out.SpeechStartedOut
    | out.SpeechStoppedOut
    | out.TimeoutTriggered
    | out.BufferCommitted
    | out.BufferCleared
    | out.OverlapDecision
    | out.ResponseListen
    | out.ItemAdded
    | out.ItemCreatedOut
    | out.ItemDone
    | out.ItemRetrievedOut
    | out.ItemDeletedOut
    | out.ItemTruncatedOut
    | out.TranscriptionDelta
    | out.TranscriptionCompleted
    | out.TranscriptionFailed
    | out.ResponseCreatedOut
    | out.OutputItemAdded
    | out.OutputItemDone
    | out.ContentPartAdded
    | out.ContentPartDone
    | out.ResponseSpeak
    | out.AudioDeltaOut
    | out.AudioDone
    | out.TranscriptDelta
    | out.TranscriptDone
    | out.TextDeltaOut
    | out.TextDone
    | out.ArgumentsDelta
    | out.ArgumentsDone
    | out.ResponseDone
    | out.RateLimits
    | out.OutputClearedOut
    | out.OutputPaused
    | out.OutputResumed
    | out.PlaybackAcknowledgedOut
)
"""Every event of the GA and duplex dialects."""

Received = AnyServerEvent | Unknown | Missed


class _Head(Struct, frozen=True):
    type: str = ""
    server_event_seq: int = 0


_decode: msgspec.json.Decoder[AnyServerEvent] = msgspec.json.Decoder(AnyServerEvent)
_decode_head = msgspec.json.Decoder(_Head).decode


def read(frame: bytes) -> AnyServerEvent | Unknown:
    """Return the event in a frame.

    Raises:
        msgspec.DecodeError: the frame is not a JSON object.
    """
    try:
        return _decode.decode(frame)
    except msgspec.ValidationError:
        head = _decode_head(frame)
        return Unknown(type=head.type, number=head.server_event_seq, raw=frame)


def number_of(event: Received) -> int:
    """Return the number of an event; 0 if it has none."""
    if isinstance(event, Missed):
        return 0
    if isinstance(event, Unknown):
        return event.number
    seq = event.server_event_seq
    return 0 if isinstance(seq, UnsetType) else seq
