"""The session object as clients write it, in both spellings (WIRE 4.3): shapes only."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from .wire_client import (
    ABSENT,
    Instructions,
    Metadata,
    NotNegative,
    Probability,
    VoiceIn,
    VoiceName,
    Words,
)
from .wire_formats import FormatIn, Rate

Speed = Annotated[float, Meta(ge=0.25, le=1.5)]
TokenLimit = Annotated[int, Meta(ge=1, le=4096)] | Literal["inf"]
Modalities = list[Literal["audio", "text"]]
Milliseconds = Annotated[int, Meta(ge=0, le=3_600_000)]
ModelName = Annotated[str, Meta(max_length=256)]


class TranscriptionIn(Struct, frozen=True):
    """What is asked of the transcription; other keys are ignored."""

    model: str | None = None
    language: str | None = None
    languages: tuple[str, ...] | None = None
    prompt: str | None = None
    keywords: tuple[str, ...] | None = None
    delay: str | None = None


class NoiseReduction(Struct, frozen=True, omit_defaults=True):
    """Echoed; nothing is done."""

    type: Literal["near_field", "far_field"]
    strength: Probability | None = None


class TokenLimits(Struct, frozen=True, omit_defaults=True):
    """Limits of the retention strategy."""

    post_instructions: Annotated[int, Meta(ge=0)] | None = None


class RetentionRatio(Struct, frozen=True, omit_defaults=True):
    """A truncation strategy."""

    type: Literal["retention_ratio"]
    retention_ratio: Probability
    token_limits: TokenLimits | None = None


class Reasoning(Struct, frozen=True):
    """How hard to think."""

    effort: Literal["minimal", "low", "medium", "high", "xhigh"]


class AudioInputIn(Struct, frozen=True):
    """`session.audio.input`."""

    format: str | FormatIn | None = None
    sample_rate_hz: Rate | None = None
    transcription: TranscriptionIn | UnsetType | None = UNSET
    noise_reduction: NoiseReduction | UnsetType | None = UNSET
    turn_detection: Raw = ABSENT


class AudioOutputIn(Struct, frozen=True):
    """`session.audio.output`."""

    format: str | FormatIn | None = None
    sample_rate_hz: Rate | None = None
    voice: VoiceName | VoiceIn | UnsetType | None = UNSET
    speed: Speed | None = None


class AudioIn(Struct, frozen=True):
    """`session.audio`."""

    input: AudioInputIn | None = None
    output: AudioOutputIn | None = None


class ExtraBody(Struct, frozen=True):
    """`session.extra_body`: the keys with a meaning; the rest belongs to models that know it."""

    auto_response: bool | None = None
    realtime_tools: Raw = ABSENT
    realtime_tool_choice: Raw = ABSENT
    return_stage_metrics: bool | None = None
    duplex_initial_user_text: Words | None = None
    force_listen_count: Annotated[int, Meta(ge=0)] | None = None
    overlap_policy: str | None = None
    overlap_short_ack_ms: Milliseconds | None = None
    overlap_barge_in_ms: Milliseconds | None = None
    overlap_silence_rms: NotNegative | None = None
    playback_commit_policy: str | None = None
    ref_audio_path: Raw = ABSENT


class SessionIn(Struct, frozen=True):
    """A partial session object; an absent field keeps its value, null resets one that can be reset."""

    type: str | None = None
    model: ModelName | None = None
    instructions: Instructions | UnsetType | None = UNSET
    output_modalities: Modalities | None = None
    modalities: Modalities | None = None
    audio: AudioIn | None = None
    input_audio_format: str | FormatIn | None = None
    output_audio_format: str | FormatIn | None = None
    response_format: Literal["wav", "pcm"] | None = None
    sample_rate_hz: Rate | None = None
    voice: VoiceName | VoiceIn | UnsetType | None = UNSET
    speed: Speed | None = None
    turn_detection: Raw = ABSENT
    input_audio_transcription: TranscriptionIn | UnsetType | None = UNSET
    input_audio_noise_reduction: NoiseReduction | UnsetType | None = UNSET
    tools: Raw = ABSENT
    tool_choice: Raw = ABSENT
    parallel_tool_calls: bool | None = None
    max_output_tokens: TokenLimit | UnsetType | None = UNSET
    max_response_output_tokens: TokenLimit | UnsetType | None = UNSET
    max_tokens: TokenLimit | UnsetType | None = UNSET
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | UnsetType | None = UNSET
    truncation: Literal["auto", "disabled"] | RetentionRatio | None = None
    include: list[str] | UnsetType | None = UNSET
    prompt: dict[str, object] | UnsetType | None = UNSET
    tracing: Literal["auto"] | dict[str, object] | UnsetType | None = UNSET
    reasoning: Reasoning | UnsetType | None = UNSET
    metadata: Metadata | UnsetType | None = UNSET
    ref_audio: str | None = None
    initial_user_text: Words | None = None
    idle_timeout_s: NotNegative | None = None
    overlap_policy: str | None = None
    overlap_short_ack_ms: Milliseconds | None = None
    overlap_barge_in_ms: Milliseconds | None = None
    overlap_silence_rms: NotNegative | None = None
    playback_commit_policy: str | None = None
    extra_body: ExtraBody | None = None


class TurnDetectionIn(Struct, frozen=True, forbid_unknown_fields=True):
    """`turn_detection`, both kinds; which keys belong to which is checked where it is read."""

    type: str | None = None
    threshold: Probability | None = None
    prefix_padding_ms: Annotated[int, Meta(ge=0, le=10_000)] | None = None
    silence_duration_ms: Annotated[int, Meta(ge=0, le=60_000)] | None = None
    min_speech_duration_ms: Annotated[int, Meta(ge=0, le=10_000)] | None = None
    eagerness: Literal["low", "medium", "high", "auto"] | None = None
    create_response: bool | None = None
    interrupt_response: bool | None = None
    idle_timeout_ms: Annotated[int, Meta(ge=5_000, le=30_000)] | None = None
    false_interruption: bool | None = None
