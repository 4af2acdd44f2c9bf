"""Server events: one closed struct for each (WIRE 3.2). The server encodes them, the client decodes them.

A field that only one dialect has is `UNSET` in the others. `server_event_seq` is the number in the duplex
dialect; the client reads 0 where there is none.
"""

from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from antiphon.engine.tokens import Veiled

from .codes import ErrorBody
from .wire_formats import FormatOut
from .wire_items import ItemOut, PartOut
from .wire_metrics import Metrics
from .wire_view import PlaybackOut

ResponseMetadata = dict[str, object]
"""The client's map; the duplex dialect adds keys of its own, some of which are objects."""


class ServerEvent(Struct, kw_only=True, tag_field="type"):
    """Anything that the server sends. Not frozen: the last thing done to a message is to stamp it."""

    event_id: str = ""
    server_event_seq: int | UnsetType = UNSET


# -- session -------------------------------------------------------------------------------------------------


class SessionCreated(Veiled, ServerEvent, kw_only=True, tag="session.created"):
    """The session is open; or `resumed`, in a dialect that has no word for it; or shown to an `observer`."""

    session: Raw
    attachment_generation: int | UnsetType = UNSET
    resume_token: str | UnsetType = UNSET
    last_client_seq: int | UnsetType = UNSET
    resumed: bool | UnsetType = UNSET
    observer_token: str | UnsetType = UNSET
    observer: bool | UnsetType = UNSET


class SessionUpdated(ServerEvent, kw_only=True, tag="session.updated"):
    """The configuration that is in force from here on."""

    session: Raw


class SessionResumed(Veiled, ServerEvent, kw_only=True, tag="session.resumed"):
    """The session is served by this connection now; what was missed follows."""

    session_id: str
    session: Raw
    attachment_generation: int
    resume_token: str
    last_client_seq: int
    observer_token: str | UnsetType = UNSET


class TurnEvent(ServerEvent, kw_only=True, tag="turn.event"):
    """What the session says of the turn, in answer to a signal of the client."""

    session_id: str
    epoch: int
    event: str
    turn_state: str


class SessionReplaced(ServerEvent, kw_only=True, tag="session.replaced"):
    """Another connection serves the session now."""

    session_id: str
    attachment_generation: int


class ResyncRequired(ServerEvent, kw_only=True, tag="session.resync_required"):
    """What was missed cannot be sent again."""

    session_id: str
    reason: str


class SessionGoingAway(ServerEvent, kw_only=True, tag="session.going_away"):
    """The server stops; the session can be resumed when it is back."""

    session_id: str
    reason: str
    resume_within_s: float


class HeartbeatAck(ServerEvent, kw_only=True, tag="session.heartbeat_ack"):
    """The lease was renewed."""

    session_id: str


class EndInfo(Struct, frozen=True, kw_only=True):
    """The engine's own event behind `session.closed`: `reason` is one of `CloseReason`, `detail` what was said."""

    type: Literal["session.closed"] = "session.closed"
    session_id: str
    reason: str
    detail: str | UnsetType = UNSET


class SessionClosedOut(ServerEvent, kw_only=True, tag="session.closed"):
    """The session has ended as it was asked to. `reason` is the client's own word, if it gave one (WIRE 8.7)."""

    session_id: str
    reason: str
    event: EndInfo


class SessionExpired(ServerEvent, kw_only=True, tag="session.expired"):
    """The session has ended by a limit."""

    session_id: str
    reason: str


class ConversationInfo(Struct, frozen=True, kw_only=True):
    """The default conversation."""

    id: str
    object: Literal["realtime.conversation"] = "realtime.conversation"


class ConversationCreated(ServerEvent, kw_only=True, tag="conversation.created"):
    """The conversation exists (beta dialect)."""

    conversation: ConversationInfo


class ErrorOut(ServerEvent, kw_only=True, tag="error"):
    """Something was refused or failed."""

    error: ErrorBody


# -- input ---------------------------------------------------------------------------------------------------


class SpeechStartedOut(ServerEvent, kw_only=True, tag="input_audio_buffer.speech_started"):
    """The user began to speak."""

    audio_start_ms: int
    item_id: str


class SpeechStoppedOut(ServerEvent, kw_only=True, tag="input_audio_buffer.speech_stopped"):
    """The user fell silent."""

    audio_end_ms: int
    item_id: str


class TimeoutTriggered(ServerEvent, kw_only=True, tag="input_audio_buffer.timeout_triggered"):
    """The user stayed silent for too long; the silence is committed as this item, and answered."""

    audio_start_ms: int
    audio_end_ms: int
    item_id: str


class CommittedMessage(Struct, frozen=True, kw_only=True):
    """What the model is told of a commit, without the sound."""

    role: Literal["user"] = "user"
    content: list[PartOut]


class CommittedInfo(Struct, frozen=True, kw_only=True):
    """The engine's own event behind a commit (duplex dialect)."""

    type: Literal["input.committed"] = "input.committed"
    session_id: str
    turn_id: int
    epoch: int
    history_len: int
    realtime_item_id: str
    message: CommittedMessage | None
    transcript: str | None
    is_speech: bool
    empty: bool
    no_response: bool
    overlap_ack: bool
    overlap_deferred: bool
    response_create_deferred: bool


class BufferCommitted(ServerEvent, kw_only=True, tag="input_audio_buffer.committed"):
    """The buffer became a user item."""

    item_id: str
    previous_item_id: str | None
    event: CommittedInfo | UnsetType = UNSET


class BufferCleared(ServerEvent, kw_only=True, tag="input_audio_buffer.cleared"):
    """What was buffered is dropped."""


class OverlapMetadata(Struct, frozen=True, kw_only=True):
    """How long the user spoke over the answer, and what becomes of the sound."""

    duration_ms: int
    overlap_speech_ms: int
    buffer_audio: bool
    defer_runtime_append: bool
    force_listen: bool
    preserve_realtime_input: bool
    cancel_reason: str | None


class OverlapDecision(ServerEvent, kw_only=True, tag="overlap.decision"):
    """What was done about speech during an answer."""

    session_id: str
    epoch: int
    policy: str
    action: str
    reason: str
    metadata: OverlapMetadata


class ListenMetadata(Struct, frozen=True, kw_only=True):
    """Why the model goes on listening."""

    type: Literal["response.listen"] = "response.listen"
    reason: str
    model_listen: bool
    buffering: bool | UnsetType = UNSET


class ListenInfo(Struct, frozen=True, kw_only=True):
    """The response part of a listen decision; it has an id only if it ends that response."""

    object: Literal["realtime.response"] = "realtime.response"
    status: Literal["listening"] = "listening"
    id: str | UnsetType = UNSET
    metadata: ListenMetadata


class ResponseListen(ServerEvent, kw_only=True, tag="response.listen"):
    """The model goes on listening."""

    session_id: str
    epoch: int
    response_id: str | UnsetType = UNSET
    response: ListenInfo


# -- conversation --------------------------------------------------------------------------------------------


class ItemAdded(ServerEvent, kw_only=True, tag="conversation.item.added"):
    """An item came into the conversation."""

    item: ItemOut
    previous_item_id: str | None


class ItemCreatedOut(ServerEvent, kw_only=True, tag="conversation.item.created"):
    """The same, by its beta name."""

    item: ItemOut
    previous_item_id: str | None


class ItemDone(ServerEvent, kw_only=True, tag="conversation.item.done"):
    """An item of the conversation is final."""

    item: ItemOut
    previous_item_id: str | None


class ItemRetrievedOut(ServerEvent, kw_only=True, tag="conversation.item.retrieved"):
    """An item as the server has it."""

    item: ItemOut


class DeletedInfo(Struct, frozen=True, kw_only=True):
    """The engine's own event behind a deleted item (duplex dialect)."""

    type: Literal["conversation.item.deleted"] = "conversation.item.deleted"
    session_id: str
    item_id: str
    deleted: bool = True


class ItemDeletedOut(ServerEvent, kw_only=True, tag="conversation.item.deleted"):
    """An item was taken out."""

    item_id: str
    event: DeletedInfo | UnsetType = UNSET


class TruncatedInfo(Struct, frozen=True, kw_only=True):
    """The engine's own event behind a truncated item (duplex dialect)."""

    type: Literal["conversation.item.truncated"] = "conversation.item.truncated"
    session_id: str
    item_id: str
    content_index: int
    audio_end_ms: int
    truncated: bool = True


class ItemTruncatedOut(ServerEvent, kw_only=True, tag="conversation.item.truncated"):
    """An item was cut to what was heard."""

    item_id: str
    content_index: int
    audio_end_ms: int
    event: TruncatedInfo | UnsetType = UNSET


class TranscriptionDelta(ServerEvent, kw_only=True, tag="conversation.item.input_audio_transcription.delta"):
    """Words of the user, as they are recognised."""

    item_id: str
    content_index: int
    delta: str


class DurationUsage(Struct, frozen=True, kw_only=True):
    """What a transcription cost, in seconds of sound."""

    type: Literal["duration"] = "duration"
    seconds: float


class TranscriptionCompleted(
    ServerEvent, kw_only=True, tag="conversation.item.input_audio_transcription.completed"
):
    """What the user said."""

    item_id: str
    content_index: int
    transcript: str
    usage: DurationUsage


class TranscriptionError(Struct, frozen=True, kw_only=True):
    """Why there are no words."""

    type: str = "server_error"
    code: str = "transcription_failed"
    message: str
    param: None = None


class TranscriptionFailed(ServerEvent, kw_only=True, tag="conversation.item.input_audio_transcription.failed"):
    """The user's words could not be recognised."""

    item_id: str
    content_index: int
    error: TranscriptionError


# -- responses -----------------------------------------------------------------------------------------------


class CachedTokens(Struct, frozen=True, kw_only=True):
    """Cached input tokens by kind."""

    text_tokens: int
    audio_tokens: int = 0
    image_tokens: int = 0


class InputTokens(Struct, frozen=True, kw_only=True):
    """Input tokens by kind."""

    text_tokens: int
    audio_tokens: int
    image_tokens: int = 0
    cached_tokens: int
    cached_tokens_details: CachedTokens


class OutputTokens(Struct, frozen=True, kw_only=True):
    """Output tokens by kind."""

    text_tokens: int
    audio_tokens: int


class UsageOut(Struct, frozen=True, kw_only=True):
    """Tokens spent on a response; what is unknown is 0."""

    total_tokens: int
    input_tokens: int
    output_tokens: int
    input_token_details: InputTokens
    output_token_details: OutputTokens


class FailureOut(Struct, frozen=True, kw_only=True):
    """The error of a failed response."""

    type: str
    code: str
    message: str


class StatusDetails(Struct, frozen=True, kw_only=True):
    """Why a response ended as it did."""

    type: str
    reason: str | UnsetType = UNSET
    error: FailureOut | UnsetType = UNSET
    cause: str | UnsetType = UNSET


class ResponseAudioFormat(Struct, frozen=True, kw_only=True):
    """How a response sounds."""

    format: FormatOut
    voice: str


class ResponseAudioInfo(Struct, frozen=True, kw_only=True):
    """`response.audio`."""

    output: ResponseAudioFormat


class ResponseOut(Struct, frozen=True, kw_only=True):
    """A response object (WIRE 3.4). `metadata` is the client's map; the duplex dialect adds keys of its own."""

    id: str
    object: Literal["realtime.response"] = "realtime.response"
    status: str
    status_details: StatusDetails | None
    output: list[ItemOut]
    conversation_id: str | None
    output_modalities: tuple[str, ...]
    modalities: tuple[str, ...] | UnsetType = UNSET
    audio: ResponseAudioInfo
    max_output_tokens: int | Literal["inf"]
    metadata: ResponseMetadata | None
    usage: UsageOut | None
    temperature: float | UnsetType | None = UNSET
    voice: str | UnsetType = UNSET
    output_audio_format: str | UnsetType = UNSET


class ResponseCreatedOut(ServerEvent, kw_only=True, tag="response.created"):
    """A response is open."""

    response_id: str
    response: ResponseOut


class OutputItemAdded(ServerEvent, kw_only=True, tag="response.output_item.added"):
    """The response has an item."""

    response_id: str
    output_index: int
    item: ItemOut


class OutputItemDone(ServerEvent, kw_only=True, tag="response.output_item.done"):
    """An item of the response is final."""

    response_id: str
    output_index: int
    item: ItemOut


class PartEvent(ServerEvent, kw_only=True):
    """An event about one content part of a response."""

    response_id: str
    item_id: str
    output_index: int = 0
    content_index: int = 0


class ResponsePart(Struct, frozen=True, kw_only=True):
    """A content part as the content-part events show it."""

    type: str
    transcript: str | UnsetType = UNSET
    text: str | UnsetType = UNSET


class ContentPartAdded(PartEvent, kw_only=True, tag="response.content_part.added"):
    """A content part is open."""

    part: ResponsePart


class ContentPartDone(PartEvent, kw_only=True, tag="response.content_part.done"):
    """A content part is final."""

    part: ResponsePart


class SpeakMetadata(Struct, frozen=True, kw_only=True):
    """Who decided to speak."""

    session_id: str
    epoch: int
    model_speak: bool = True


class ResponseSpeak(PartEvent, kw_only=True, tag="response.speak"):
    """The answer is about to be heard."""

    metadata: SpeakMetadata


class MarkOut(Struct, frozen=True):
    """So many characters are spoken after so many milliseconds."""

    text_chars: int
    audio_end_ms: int


class DeltaMetadata(Struct, frozen=True, kw_only=True):
    """What the duplex dialect tells beside a piece of sound."""

    session_id: str
    epoch: int
    model_speak: bool = True
    audio_duration_ms: int
    audio_text_marks: tuple[MarkOut, ...]
    playback: PlaybackOut
    vllm_omni: Metrics | UnsetType = UNSET


class AudioDeltaOut(PartEvent, kw_only=True, tag="response.output_audio.delta"):
    """A piece of sound."""

    delta: str
    format: str | UnsetType = UNSET
    sample_rate_hz: int | UnsetType = UNSET
    metadata: DeltaMetadata | UnsetType = UNSET


class AudioDone(PartEvent, kw_only=True, tag="response.output_audio.done"):
    """There is no more sound."""


class TranscriptDelta(PartEvent, kw_only=True, tag="response.output_audio_transcript.delta"):
    """Words that are spoken."""

    delta: str


class TranscriptDone(PartEvent, kw_only=True, tag="response.output_audio_transcript.done"):
    """All the words that were spoken."""

    transcript: str


class TextDeltaOut(PartEvent, kw_only=True, tag="response.output_text.delta"):
    """Written words."""

    delta: str


class TextDone(PartEvent, kw_only=True, tag="response.output_text.done"):
    """All the written words."""

    text: str


class ArgumentsDelta(ServerEvent, kw_only=True, tag="response.function_call_arguments.delta"):
    """The next piece of a call's arguments: raw JSON text of the model."""

    response_id: str
    item_id: str
    output_index: int
    call_id: str
    delta: str


class ArgumentsDone(ServerEvent, kw_only=True, tag="response.function_call_arguments.done"):
    """All of a call's arguments."""

    response_id: str
    item_id: str
    output_index: int
    call_id: str
    name: str
    arguments: str


class ResponseDone(ServerEvent, kw_only=True, tag="response.done"):
    """The response has ended."""

    response_id: str
    response: ResponseOut


class RateLimits(ServerEvent, kw_only=True, tag="rate_limits.updated"):
    """There are no rate limits to tell of."""

    rate_limits: tuple[()] = ()


class OutputClearedOut(ServerEvent, kw_only=True, tag="output_audio_buffer.cleared"):
    """Sound that was still to be played is void."""

    response_id: str | None


class OutputPaused(ServerEvent, kw_only=True, tag="output_audio_buffer.paused"):
    """Sound of a response stands still at `at_ms`: speech may turn out to interrupt it."""

    response_id: str
    at_ms: int
    reason: str


class OutputResumed(ServerEvent, kw_only=True, tag="output_audio_buffer.resumed"):
    """It goes on there: `reason` says why the speech does not interrupt it."""

    response_id: str
    at_ms: int
    reason: str


class PlaybackInfo(Struct, frozen=True, kw_only=True):
    """The resulting playback of a response."""

    type: Literal["playback.acknowledged"] = "playback.acknowledged"
    session_id: str
    epoch: int
    response_id: str | None
    item_id: str | None
    played_ms: int
    committed_ms: int
    truncate: bool
    history_committed: bool
    playback: PlaybackOut


class PlaybackAcknowledgedOut(ServerEvent, kw_only=True, tag="playback.acknowledged"):
    """The client's word on how far it played was taken."""

    event: PlaybackInfo


# -- the beta dialect's names --------------------------------------------------------------------------------


class BetaAudioDelta(AudioDeltaOut, kw_only=True, tag="response.audio.delta"):
    """A piece of sound, by its beta name."""


class BetaAudioDone(AudioDone, kw_only=True, tag="response.audio.done"):
    """There is no more sound, by its beta name."""


class BetaTranscriptDelta(TranscriptDelta, kw_only=True, tag="response.audio_transcript.delta"):
    """Words that are spoken, by their beta name."""


class BetaTranscriptDone(TranscriptDone, kw_only=True, tag="response.audio_transcript.done"):
    """All the words that were spoken, by their beta name."""


class BetaTextDelta(TextDeltaOut, kw_only=True, tag="response.text.delta"):
    """Written words, by their beta name."""


class BetaTextDone(TextDone, kw_only=True, tag="response.text.done"):
    """All the written words, by their beta name."""
