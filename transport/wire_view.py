"""The session object as it is shown: every key always, both spellings side by side (WIRE 1.6, 1.7)."""

from typing import Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from antiphon.events.config import Capabilities, SessionConfig, Transcription, TurnDetection
from antiphon.events.events import PlaybackCursor, SessionView

from .wire_formats import FormatOut, shown


class ServerVadOut(Struct, frozen=True, kw_only=True, tag_field="type", tag="server_vad"):
    """Server voice activity detection, with the values that are in force."""

    threshold: float
    prefix_padding_ms: int
    silence_duration_ms: int
    min_speech_duration_ms: int
    create_response: bool
    interrupt_response: bool
    idle_timeout_ms: int | None
    false_interruption: bool | UnsetType = UNSET


class SemanticVadOut(Struct, frozen=True, kw_only=True, tag_field="type", tag="semantic_vad"):
    """Semantic detection, as the client gave it."""

    eagerness: str
    create_response: bool
    interrupt_response: bool
    false_interruption: bool | UnsetType = UNSET


class TranscriptionOut(Struct, frozen=True, omit_defaults=True):
    """What was asked of the transcription."""

    model: str | None = None
    language: str | None = None
    languages: tuple[str, ...] | None = None
    prompt: str | None = None
    keywords: tuple[str, ...] | None = None
    delay: str | None = None


class AudioInputOut(Struct, frozen=True, kw_only=True):
    """`session.audio.input`."""

    format: FormatOut
    sample_rate_hz: int
    transcription: TranscriptionOut | None
    noise_reduction: Raw
    turn_detection: ServerVadOut | SemanticVadOut | None


class AudioOutputOut(Struct, frozen=True, kw_only=True):
    """`session.audio.output`."""

    format: FormatOut
    sample_rate_hz: int
    voice: str
    speed: float


class AudioOut(Struct, frozen=True, kw_only=True):
    """`session.audio`."""

    input: AudioInputOut
    output: AudioOutputOut


class PlaybackOut(Struct, frozen=True, kw_only=True):
    """How far a response has come, in milliseconds."""

    generated_ms: int = 0
    sent_ms: int = 0
    played_ms: int = 0
    committed_ms: int = 0


class PausedOut(Struct, frozen=True, kw_only=True):
    """Where a response stands still because of speech that may interrupt it."""

    response_id: str
    at_ms: int


class CapabilitiesOut(Struct, frozen=True, kw_only=True):
    """What the model can do. The facts about engines are for information only."""

    implementation_level: str
    supports_model_native_turn_policy: bool
    supports_session_adapter: bool = True
    supports_external_turn_signal: bool
    supports_client_commit: bool
    supports_turn_commit_only: bool
    supports_barge_in: bool
    supports_playback_ack: bool
    supports_audio_truncate: bool
    supports_input_append: bool
    supports_replace_latest_chunk: bool = False
    supports_reencode_context: bool
    supports_rollback_to_checkpoint: bool = False
    supports_image_input: bool
    supports_text_only_turn: bool
    required_input_modalities: tuple[str, ...]
    optional_input_modalities: tuple[str, ...]
    supports_concurrent_turn_requests: bool
    supports_independent_io_streams: bool = True
    supports_realtime_endpoint: bool = True
    supports_session_lease: bool
    supports_session_resume: bool
    session_admission_mode: str = "engine_managed"
    supports_multi_session: bool
    supports_multi_session_same_replica: bool
    supports_kv_lease: bool = False
    supports_core_kv_lease: bool = False
    supports_model_internal_state: bool
    supports_stage_resumption: bool
    supports_scheduler_native_append: bool = False
    supports_core_resumable_request: bool
    supports_stage_connector_handoff: bool = False
    requires_model_runner_kv: bool = False
    requires_native_stage_role: bool = False
    adapter_patterns: tuple[str, ...] = ("chunk_group_append",)
    input_modes: tuple[str, ...] = ("append_audio_chunk",)
    signal_sources: tuple[str, ...]
    stage_handoff_transport: str | None = None
    chunk_period_ms: int | None
    target_barge_in_latency_ms: int | None


class SessionOut(Struct, frozen=True, kw_only=True):
    """The session object."""

    id: str
    object: Literal["realtime.session"] = "realtime.session"
    type: Literal["realtime"] = "realtime"
    model: str
    expires_at: int
    output_modalities: tuple[str, ...]
    modalities: tuple[str, ...]
    instructions: str
    audio: AudioOut
    input_audio_format: str
    output_audio_format: str
    voice: str
    speed: float
    turn_detection: ServerVadOut | SemanticVadOut | None
    input_audio_transcription: TranscriptionOut | None
    input_audio_noise_reduction: Raw
    tools: Raw
    tool_choice: Raw
    parallel_tool_calls: Raw
    max_output_tokens: int | Literal["inf"]
    max_response_output_tokens: int | Literal["inf"]
    max_tokens: int | None
    temperature: float | None
    truncation: Raw
    include: Raw
    prompt: Raw
    tracing: Raw
    reasoning: Raw
    metadata: dict[str, str] | None
    initial_user_text: Raw
    response_format: Literal["wav", "pcm"]
    idle_timeout_s: float
    overlap_policy: str
    overlap_short_ack_ms: int
    overlap_barge_in_ms: int
    overlap_silence_rms: float
    playback_commit_policy: str
    state: str
    turn_state: str
    epoch: int
    turn_id: int
    active_request_id: str | None
    active_response_id: str | None
    active_response_turn_id: int | None
    playback: PlaybackOut
    output_audio_paused: PausedOut | UnsetType | None = UNSET
    capabilities: CapabilitiesOut


_encode = msgspec.json.Encoder().encode
read_session = msgspec.json.Decoder(SessionOut).decode
"""Reads what `shown_session` made; the keys that nobody knows are left out."""

SHOWN = frozenset(SessionOut.__struct_fields__)
"""The keys of the session object."""


def shown_session(view: SessionView) -> Raw:
    """Return the session object as it is sent: behind the known keys those that the client alone knows (L13)."""
    data = _encode(session_out(view))
    if view.config.unknown:
        data = (
            data[:-1] + b"," + _encode({key: Raw(text.encode()) for key, text in view.config.unknown.items()})[1:]
        )
    return Raw(data)


def session_out(view: SessionView) -> SessionOut:
    """Return the object that a session is shown as."""
    config = view.config
    extended = view.dialect == "duplex"
    detection = detection_out(config.turn_detection, extended=extended)
    transcription = _transcription(config.transcription)
    noise = _echoed(config, "noise_reduction")
    limit: int | Literal["inf"] = "inf" if config.max_output_tokens is None else config.max_output_tokens
    return SessionOut(
        id=view.id,
        model=config.model,
        expires_at=view.expires_at,
        output_modalities=config.output_modalities,
        modalities=spoken_modalities(config.output_modalities),
        instructions=config.instructions,
        audio=AudioOut(
            input=AudioInputOut(
                format=shown(config.input_format),
                sample_rate_hz=config.input_format.rate,
                transcription=transcription,
                noise_reduction=noise,
                turn_detection=detection,
            ),
            output=AudioOutputOut(
                format=shown(config.output_format),
                sample_rate_hz=config.output_format.rate,
                voice=config.voice,
                speed=config.speed,
            ),
        ),
        input_audio_format=config.input_format.encoding,
        output_audio_format=config.output_format.encoding,
        voice=config.voice,
        speed=config.speed,
        turn_detection=detection,
        input_audio_transcription=transcription,
        input_audio_noise_reduction=noise,
        tools=Raw(config.tools.encode()),
        tool_choice=Raw(config.tool_choice.encode()),
        parallel_tool_calls=_echoed(config, "parallel_tool_calls", b"true"),
        max_output_tokens=limit,
        max_response_output_tokens=limit,
        max_tokens=config.max_output_tokens,
        temperature=config.temperature,
        truncation=_echoed(config, "truncation", b'"auto"'),
        include=_echoed(config, "include"),
        prompt=_echoed(config, "prompt"),
        tracing=_echoed(config, "tracing"),
        reasoning=_echoed(config, "reasoning"),
        metadata=config.metadata,
        initial_user_text=_echoed(config, "initial_user_text"),
        response_format="wav" if config.output_format.encoding == "wav" else "pcm",
        idle_timeout_s=config.idle_timeout_s,
        overlap_policy=config.overlap_policy,
        overlap_short_ack_ms=config.overlap_short_ack_ms,
        overlap_barge_in_ms=config.overlap_barge_in_ms,
        overlap_silence_rms=config.overlap_silence_rms,
        playback_commit_policy=config.playback_policy,
        state=view.state,
        turn_state=view.turn_state,
        epoch=view.epoch,
        turn_id=view.turn,
        active_request_id=view.active_request,
        active_response_id=view.active_response,
        active_response_turn_id=view.active_response_turn,
        playback=playback_out(view.playback),
        output_audio_paused=_paused(view),
        capabilities=capabilities_out(view.capabilities, resumable=view.resumable),
    )


def capabilities_out(can: Capabilities, *, resumable: bool) -> CapabilitiesOut:
    """Return what a model can do, every key of the contract; `resumable` is the session's own."""
    native = can.implementation_level == "model_native_duplex"
    return CapabilitiesOut(
        implementation_level=can.implementation_level,
        supports_model_native_turn_policy=native,
        supports_external_turn_signal=can.supports_external_turn_signal,
        supports_client_commit=can.supports_client_commit,
        supports_turn_commit_only=not native,
        supports_barge_in=can.supports_barge_in,
        supports_playback_ack=can.supports_playback_ack,
        supports_audio_truncate=can.supports_audio_truncate,
        supports_input_append=can.supports_input_append,
        supports_reencode_context=can.supports_reencode_context,
        supports_image_input=can.supports_image_input,
        supports_text_only_turn=can.supports_text_only_turn,
        required_input_modalities=can.required_input_modalities,
        optional_input_modalities=can.optional_input_modalities,
        supports_concurrent_turn_requests=can.supports_concurrent_turn_requests,
        supports_multi_session=can.multi_session,
        supports_multi_session_same_replica=can.multi_session,
        supports_session_lease=resumable,
        supports_session_resume=resumable,
        supports_model_internal_state=native,
        supports_stage_resumption=can.core_resumable_request,
        supports_core_resumable_request=can.core_resumable_request,
        signal_sources=("client_event", "server_policy", "model_native")
        if native
        else ("client_event", "server_policy"),
        chunk_period_ms=can.chunk_period_ms,
        target_barge_in_latency_ms=can.target_barge_in_latency_ms,
    )


def _paused(view: SessionView) -> PausedOut | UnsetType | None:
    """Return where sound stands still; the other dialects know nothing of that."""
    if view.dialect != "duplex":
        return UNSET
    paused = view.paused
    return None if paused is None else PausedOut(response_id=paused.response_id, at_ms=paused.at_ms)


def detection_out(detection: TurnDetection | None, *, extended: bool) -> ServerVadOut | SemanticVadOut | None:
    """Return a turn detection as it is shown; `extended`: in the duplex dialect. What only that has is not shown
    unless it was asked for."""
    if detection is None:
        return None
    careful = True if extended and detection.false_interruption else UNSET
    if detection.type == "semantic_vad":
        return SemanticVadOut(
            eagerness=detection.eagerness,
            create_response=detection.create_response,
            interrupt_response=detection.interrupt_response,
            false_interruption=careful,
        )
    return ServerVadOut(
        threshold=detection.threshold,
        prefix_padding_ms=detection.prefix_padding_ms,
        silence_duration_ms=detection.silence_duration_ms,
        min_speech_duration_ms=detection.min_speech_duration_ms,
        create_response=detection.create_response,
        interrupt_response=detection.interrupt_response,
        idle_timeout_ms=detection.idle_timeout_ms,
        false_interruption=careful,
    )


def playback_out(cursor: PlaybackCursor) -> PlaybackOut:
    """Return a playback cursor as it is shown."""
    return PlaybackOut(
        generated_ms=cursor.generated_ms,
        sent_ms=cursor.sent_ms,
        played_ms=cursor.played_ms,
        committed_ms=cursor.committed_ms,
    )


def spoken_modalities(output: tuple[str, ...]) -> tuple[str, ...]:
    """Return the beta spelling: spoken answers come with their text."""
    return ("audio", "text") if "audio" in output else ("text",)


def _transcription(asked: Transcription | None) -> TranscriptionOut | None:
    if asked is None:
        return None
    return TranscriptionOut(asked.model, asked.language, asked.languages, asked.prompt, asked.keywords, asked.delay)


def _echoed(config: SessionConfig, key: str, default: bytes = b"null") -> Raw:
    text = config.echo.get(key)
    return Raw(default) if text is None else Raw(text.encode())
