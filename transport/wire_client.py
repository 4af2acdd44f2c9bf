"""Client events: one closed struct for each, in every spelling that is accepted (WIRE 2).

The server decodes them, the client encodes them. Numbers are never booleans; what may be left out may be null.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from antiphon.engine.tokens import Veiled
from antiphon.events.items import MOST_WORDS

from .wire_formats import FormatIn, Rate

EventId = Annotated[str, Meta(max_length=512)]
ItemId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{0,64}$")]
Name = Annotated[str, Meta(max_length=512)]
"""A name that is looked up: none of ours is longer."""
VoiceName = Annotated[str, Meta(max_length=256)]
Hint = Annotated[str, Meta(max_length=64 * 1024)]
"""What a client knows of the words in one append."""
Words = Annotated[str, Meta(max_length=MOST_WORDS)]
Instructions = Annotated[str, Meta(max_length=1024 * 1024)]
Probability = Annotated[float, Meta(ge=0.0, le=1.0)]
NotNegative = Annotated[float, Meta(ge=0.0)]
Count = Annotated[int, Meta(ge=0)]
MetadataKey = Annotated[str, Meta(max_length=64)]
MetadataValue = Annotated[str, Meta(max_length=512)]
Metadata = Annotated[dict[MetadataKey, MetadataValue], Meta(max_length=16)]

ClientSeq = Annotated[int, Meta(ge=1, le=2**53)]

ABSENT = Raw(b"")
"""The value of a field that is decoded later and was not given."""


class Head(Struct, frozen=True):
    """What every client event begins with; the rest is decoded by its type."""

    type: str | UnsetType = UNSET
    event_id: EventId | None = None
    client_seq: ClientSeq | None = None


class Named(Struct, frozen=True):
    """Of an event that is wrong: what its refusal must name."""

    event_id: EventId | None = None


class ClientEvent(Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Anything that a client may send.

    `client_seq` counts the commands of a session from 1 for exactly-once delivery; it is our own (docs/wire.md).
    """

    event_id: EventId | None = None
    client_seq: ClientSeq | None = None


class SessionUpdate(ClientEvent, frozen=True, kw_only=True, tag="session.update"):
    """Change the configuration; as the first message of the duplex dialect it opens the session with it."""

    session: Raw = ABSENT


class Vad(Struct, frozen=True, omit_defaults=True):
    """The verdict of a client's own voice detector."""

    is_speech: bool | None = None
    speech_probability: Probability | None = None
    probability: Probability | None = None
    silence_rms: NotNegative | None = None


class AppendBuffer(ClientEvent, frozen=True, kw_only=True, tag="input_audio_buffer.append"):
    """A piece of the user's sound."""

    audio: str | None = None
    delta: str | None = None
    format: str | None = None
    input_audio_format: str | None = None
    sample_rate_hz: Rate | None = None
    sample_rate: Rate | None = None
    is_speech: bool | None = None
    speech: bool | None = None
    speech_probability: Probability | None = None
    vad: Vad | None = None
    duration_ms: float | None = None
    audio_duration_ms: float | None = None
    audio_start_ms: float | None = None
    audio_end_ms: float | None = None
    overlap_action: str | None = None
    overlap: str | None = None
    force_listen: bool | None = None
    force_barge_in: bool | None = None
    overlap_silence_rms: NotNegative | None = None
    text: Hint | None = None
    transcript: Hint | None = None
    video_frames: list[str] | None = None
    max_slice_nums: Raw = ABSENT


class CommitBuffer(ClientEvent, frozen=True, kw_only=True, tag="input_audio_buffer.commit"):
    """Seal what is buffered into a user item."""

    final: bool = True
    create_response: bool | None = None
    response_create: bool | None = None
    is_speech: bool | None = None


class ClearBuffer(ClientEvent, frozen=True, kw_only=True, tag="input_audio_buffer.clear"):
    """Drop what is buffered."""


class InputCancel(ClientEvent, frozen=True, kw_only=True, tag="input.cancel"):
    """Drop what is buffered and stop a running or playing answer."""


class OutputClear(ClientEvent, frozen=True, kw_only=True, tag="output_audio_buffer.clear"):
    """Stop playing."""

    response_id: Name | None = None


class PartIn(Struct, frozen=True, omit_defaults=True):
    """A content part as a client writes it."""

    type: str
    text: str | None = None
    audio: str | None = None
    transcript: str | None = None
    image_url: str | None = None
    detail: str | None = None
    format: str | None = None
    sample_rate_hz: Rate | None = None
    is_speech: bool | None = None
    speech: bool | None = None
    speech_probability: Probability | None = None


class ItemIn(Struct, frozen=True, omit_defaults=True):
    """A conversation item as a client writes it."""

    type: str
    id: ItemId | None = None
    role: str | None = None
    content: str | list[PartIn] | None = None
    name: Name | None = None
    call_id: Name | None = None
    arguments: str | None = None
    output: Raw = ABSENT


class ItemCreate(ClientEvent, frozen=True, kw_only=True, tag="conversation.item.create"):
    """Add an item."""

    item: ItemIn
    previous_item_id: Name | None = None


class ItemRetrieve(ClientEvent, frozen=True, kw_only=True, tag="conversation.item.retrieve"):
    """Show an item."""

    item_id: Name | None = None


class ItemDelete(ClientEvent, frozen=True, kw_only=True, tag="conversation.item.delete"):
    """Take an item out."""

    item_id: Name | None = None


class ItemTruncate(ClientEvent, frozen=True, kw_only=True, tag="conversation.item.truncate"):
    """Say how much of an answer was heard."""

    item_id: Name | None = None
    audio_end_ms: NotNegative
    content_index: Count = 0


class ResponseCreate(ClientEvent, frozen=True, kw_only=True, tag="response.create"):
    """Ask for an answer."""

    response: Raw = ABSENT


class ResponseCancel(ClientEvent, frozen=True, kw_only=True, tag="response.cancel"):
    """Stop an answer."""

    response_id: Name | None = None


class Resume(Veiled, ClientEvent, frozen=True, kw_only=True, tag="session.resume"):
    """Take a session over after its connection was lost; only as the first message."""

    session_id: str
    resume_token: str
    last_received_server_event_seq: Count = 0


class EventAckIn(ClientEvent, frozen=True, kw_only=True, tag="session.event_ack"):
    """Everything up to this number was received."""

    server_event_seq: Count


class HeartbeatIn(ClientEvent, frozen=True, kw_only=True, tag="session.heartbeat"):
    """Renew the lease."""


class SessionClose(ClientEvent, frozen=True, kw_only=True, tag="session.close"):
    """End the session."""

    reason: str | None = None


class PlaybackAck(ClientEvent, frozen=True, kw_only=True, tag="playback.ack"):
    """Tell how far an answer was played."""

    played_ms: NotNegative
    committed_ms: NotNegative | None = None
    response_id: Name | None = None
    item_id: Name | None = None
    truncate: bool = False


class BargeInNow(ClientEvent, frozen=True, kw_only=True, tag="barge_in"):
    """The user has cut in."""


class AppendText(ClientEvent, frozen=True, kw_only=True, tag="input.text.append"):
    """Write into the turn that is being built."""

    text: Words


class TurnSignal(ClientEvent, frozen=True, kw_only=True, tag="turn.signal"):
    """What the client sees of the turn, or another event in other words."""

    event: str
    payload: Raw = ABSENT


class ResponseIn(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The overrides of one response; what other fields of the wire hold is not looked at here."""

    instructions: Instructions | None = None
    output_modalities: list[Literal["audio", "text"]] | None = None
    modalities: list[Literal["audio", "text"]] | None = None
    audio: "ResponseAudio | None" = None
    voice: "VoiceName | VoiceIn | None" = None
    output_audio_format: str | None = None
    response_format: str | None = None
    speed: Annotated[float, Meta(ge=0.25, le=1.5)] | None = None
    max_output_tokens: Annotated[int, Meta(ge=1, le=4096)] | Literal["inf"] | None = None
    max_response_output_tokens: Annotated[int, Meta(ge=1, le=4096)] | Literal["inf"] | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=4096)] | Literal["inf"] | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    conversation: Literal["auto", "none"] | None = None
    metadata: Metadata | None = None
    tools: Raw = ABSENT
    tool_choice: Raw = ABSENT
    input: Raw = ABSENT
    extra_body: dict[str, Raw] | None = None


class VoiceIn(Struct, frozen=True):
    """The object spelling of a voice."""

    id: VoiceName


class ResponseAudioOut(Struct, frozen=True, omit_defaults=True):
    """`response.audio.output`."""

    format: str | FormatIn | None = None
    voice: VoiceName | VoiceIn | None = None
    speed: Annotated[float, Meta(ge=0.25, le=1.5)] | None = None


class ResponseAudio(Struct, frozen=True, omit_defaults=True):
    """`response.audio`."""

    output: ResponseAudioOut | None = None
