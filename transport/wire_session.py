"""From a session object to a patch: two spellings become one value, in the contract's order of checks (WIRE 4)."""

from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from antiphon.engine.errors import Refused
from antiphon.events.audio import AudioFormat
from antiphon.events.config import (
    ConfigPatch,
    Dialect,
    JsonText,
    Modality,
    OverlapPolicy,
    PlaybackPolicy,
    SessionConfig,
    Transcription,
    TurnDetection,
)

from .wire_client import ABSENT, VoiceIn
from .wire_errors import WireError, bad_value, translate, wrong_type
from .wire_formats import FormatIn, Spelled, SpelledRate, input_format, output_format
from .wire_limits import MOST_SHOWN, bounded
from .wire_recording import recorded
from .wire_response import modalities
from .wire_session_in import (
    AudioInputIn,
    AudioOutputIn,
    ExtraBody,
    SessionIn,
    TokenLimit,
    TranscriptionIn,
    TurnDetectionIn,
)
from .wire_session_kept import echoed, options, unknown
from .wire_tools import choice_from, tools_from

V = TypeVar("V")

_SILENCE_MS = {"low": 1500, "medium": 900, "high": 500, "auto": 900}
_IDLE_S = (5.0, 86_400.0)
_decode_session = msgspec.json.Decoder(SessionIn).decode
_decode_detection = msgspec.json.Decoder(TurnDetectionIn | None).decode


def patch_from(
    raw: Raw | bytes, config: SessionConfig, dialect: Dialect, *, whole_event: bool = False
) -> ConfigPatch:
    """Return the patch that a session object stands for, without the samples of a recording in it.

    Raises:
        WireError: as `read_session`.
    """
    return read_session(raw, config, dialect, whole_event=whole_event)[0]


def read_session(
    raw: Raw | bytes,
    config: SessionConfig,
    dialect: Dialect,
    *,
    whole_event: bool = False,
    no_recording: Refused | None = None,
) -> tuple[ConfigPatch, bytes]:
    """Return the patch that a session object stands for, against the configuration in force, and the samples of the
    recording in it (none: empty). A recording is not even read if there is a reason for `no_recording`.

    `whole_event` True: `raw` is an event whose own keys are the session's. Checks come in the contract's order:
    shape, formats, turn detection, then the rest; the first fault is raised. Whether a change is allowed, and
    whether an overlap policy fits the turn detection, is for the core to say.

    Raises:
        WireError: by the contract's code.
    """
    given = _shape(raw)
    audio_in = (given.audio.input if given.audio else None) or AudioInputIn()
    audio_out = (given.audio.output if given.audio else None) or AudioOutputIn()
    extra = given.extra_body or ExtraBody()
    input_is = _input_format(given, audio_in, config, dialect)
    output_is = _output_format(given, audio_out, config, dialect)
    detection = _turn_detection(given, audio_in, config, dialect)
    _refuse_foreign(given, raw, whole_event=whole_event)
    voice = recorded(given.ref_audio, no_recording) if given.ref_audio is not None else None
    tools = _tools(given, extra)
    patch = ConfigPatch(
        model=_or_unset(given.model),
        instructions="" if given.instructions is None else given.instructions,
        output_modalities=_modalities(given),
        input_format=input_is,
        output_format=output_is,
        voice=_voice(_first_set(given.voice, audio_out.voice)),
        speed=_or_unset(given.speed if given.speed is not None else audio_out.speed),
        turn_detection=detection,
        transcription=_transcription(given, audio_in),
        tools=tools,
        tool_choice=_tool_choice(given, extra, config.tools if isinstance(tools, UnsetType) else tools),
        max_output_tokens=_limit(given),
        temperature=given.temperature,
        metadata=given.metadata,
        idle_timeout_s=_idle_timeout(given, dialect),
        overlap_policy=_overlap(_or(extra.overlap_policy, given.overlap_policy)),
        overlap_short_ack_ms=_or_unset(_or(extra.overlap_short_ack_ms, given.overlap_short_ack_ms)),
        overlap_barge_in_ms=_or_unset(_or(extra.overlap_barge_in_ms, given.overlap_barge_in_ms)),
        overlap_silence_rms=_or_unset(_or(extra.overlap_silence_rms, given.overlap_silence_rms)),
        playback_policy=_playback(_or(extra.playback_commit_policy, given.playback_commit_policy)),
        auto_response=_or_unset(extra.auto_response if dialect == "duplex" else None),
        echo=echoed(given, audio_in, extra),
        unknown=unknown(raw, config, whole_event=whole_event),
        extras=UNSET if given.extra_body is None else options(raw, config),
        ref_audio=UNSET if voice is None else voice.recording,
    )
    return patch, b"" if voice is None else voice.sound


def _shape(raw: Raw | bytes) -> SessionIn:
    try:
        return _decode_session(raw)
    except msgspec.ValidationError as error:
        if str(error).startswith("Expected `object`") and " - at " not in str(error):
            raise wrong_type("The session is an object.", "session") from None
        raise translate(error, SessionIn, "session.") from None


def _refuse_foreign(given: SessionIn, raw: Raw | bytes, *, whole_event: bool) -> None:
    """Refuse what no session of ours can be: another kind, a recording by its path."""
    if given.type is not None and given.type != "realtime" and not whole_event:
        if given.type == "transcription":
            raise WireError("unsupported", "There are no transcription sessions.", "session.type")
        raise bad_value("The type of a session is 'realtime'.", "session.type")
    if given.extra_body is not None and given.extra_body.ref_audio_path != ABSENT:
        raise WireError(
            "unsupported_ref_audio_path",
            "Reference audio is sent as data, not as a path.",
            "session.extra_body.ref_audio_path",
        )


# -- formats -------------------------------------------------------------------------------------------------


def _spelled(value: str | FormatIn | None, path: str) -> Spelled | None:
    if isinstance(value, FormatIn):
        return Spelled(value.type, f"{path}.type")
    return Spelled(value, path) if value is not None else None


def _rate_of(value: str | FormatIn | None, path: str) -> SpelledRate | None:
    return SpelledRate(value.rate, f"{path}.rate") if isinstance(value, FormatIn) and value.rate else None


def _rate(value: int | None, path: str) -> SpelledRate | None:
    return SpelledRate(value, path) if value is not None else None


def _input_format(
    given: SessionIn, audio: AudioInputIn, config: SessionConfig, dialect: Dialect
) -> AudioFormat | UnsetType:
    nested = "session.audio.input.format"
    name = _first(
        (_spelled(given.input_audio_format, "session.input_audio_format"), _spelled(audio.format, nested))
    )
    rate = _first(
        (
            _rate(given.sample_rate_hz, "session.sample_rate_hz"),
            _rate(audio.sample_rate_hz, "session.audio.input.sample_rate_hz"),
            _rate_of(given.input_audio_format, "session.input_audio_format"),
            _rate_of(audio.format, nested),
        )
    )
    if name is None and rate is None:
        return UNSET
    return input_format(name, rate, config.input_format, dialect)


def _output_format(
    given: SessionIn, audio: AudioOutputIn, config: SessionConfig, dialect: Dialect
) -> AudioFormat | UnsetType:
    nested = "session.audio.output.format"
    name = _first(
        (
            _spelled(given.output_audio_format, "session.output_audio_format"),
            _spelled(given.response_format, "session.response_format"),
            _spelled(audio.format, nested),
        )
    )
    rate = _first(
        (
            _rate(audio.sample_rate_hz, "session.audio.output.sample_rate_hz"),
            _rate_of(given.output_audio_format, "session.output_audio_format"),
            _rate_of(audio.format, nested),
        )
    )
    if name is None and rate is None:
        return UNSET
    return output_format(name, rate, config.output_format, dialect)


# -- turn taking ---------------------------------------------------------------------------------------------


def _turn_detection(
    given: SessionIn, audio: AudioInputIn, config: SessionConfig, dialect: Dialect
) -> TurnDetection | UnsetType | None:
    raw, path = audio.turn_detection, "session.audio.input.turn_detection"
    if raw == ABSENT:
        raw, path = given.turn_detection, "session.turn_detection"
    if raw == ABSENT:
        return UNSET
    try:
        detection = _decode_detection(raw)
    except msgspec.ValidationError as error:
        raise _detection_refusal(error, path) from None
    if detection is None:
        return None
    current = config.turn_detection.type if config.turn_detection else None
    kind = detection.type or current
    careful = dialect == "duplex" and _or(detection.false_interruption, False)
    if kind == "server_vad" and detection.eagerness is None:
        return _server_vad(detection, careful=careful)
    if kind == "semantic_vad" and not _has_vad_keys(detection):
        return _semantic_vad(detection, careful=careful)
    raise WireError(
        "unsupported_turn_detection",
        "Turn detection is 'server_vad' or 'semantic_vad', with keys of its own.",
        f"{path}.type",
    )


def _detection_refusal(error: msgspec.ValidationError, path: str) -> WireError:
    """Return the refusal of a turn detection; an unknown key stands in msgspec's message, not in its path."""
    text = str(error)
    unknown = text.partition("unknown field `")[2].partition("`")[0]
    wrong = translate(error, TurnDetectionIn, f"{path}.")
    if not unknown:
        return WireError("unsupported_turn_detection", wrong.message, wrong.param)
    at = f"{path}.{unknown}"
    return WireError("unsupported_turn_detection", f"Turn detection has no key like '{at}'.", at)


def _has_vad_keys(detection: TurnDetectionIn) -> bool:
    values = (
        detection.threshold,
        detection.prefix_padding_ms,
        detection.silence_duration_ms,
        detection.min_speech_duration_ms,
        detection.idle_timeout_ms,
    )
    return any(value is not None for value in values)


def _server_vad(given: TurnDetectionIn, *, careful: bool) -> TurnDetection:
    base = TurnDetection()
    return TurnDetection(
        type="server_vad",
        threshold=_or(given.threshold, base.threshold),
        prefix_padding_ms=_or(given.prefix_padding_ms, base.prefix_padding_ms),
        silence_duration_ms=_or(given.silence_duration_ms, base.silence_duration_ms),
        min_speech_duration_ms=_or(given.min_speech_duration_ms, base.min_speech_duration_ms),
        create_response=_or(given.create_response, True),
        interrupt_response=_or(given.interrupt_response, True),
        idle_timeout_ms=given.idle_timeout_ms,
        false_interruption=careful,
    )


def _semantic_vad(given: TurnDetectionIn, *, careful: bool) -> TurnDetection:
    eagerness = given.eagerness or "auto"
    return TurnDetection(
        type="semantic_vad",
        eagerness=eagerness,
        silence_duration_ms=_SILENCE_MS[eagerness],
        create_response=_or(given.create_response, True),
        interrupt_response=_or(given.interrupt_response, True),
        false_interruption=careful,
    )


def _overlap(policy: str | None) -> OverlapPolicy | UnsetType:
    if policy is None:
        return UNSET
    return "barge_in_on_speech" if policy == "barge_in_on_speech" else "listen_only"


# -- the rest ------------------------------------------------------------------------------------------------


def _first(values: Iterable[V | None]) -> V | None:
    return next((value for value in values if value is not None), None)


def _first_set(*values: V | UnsetType) -> V | UnsetType:
    return next((value for value in values if not isinstance(value, UnsetType)), UNSET)


def _or(value: V | None, other: V) -> V:
    return other if value is None else value


def _or_unset(value: V | None) -> V | UnsetType:
    return UNSET if value is None else value


def _modalities(given: SessionIn) -> tuple[Modality, ...] | UnsetType:
    if given.modalities is not None:
        return modalities(given.modalities, "session.modalities")
    chosen = given.output_modalities
    return UNSET if chosen is None else modalities(chosen, "session.output_modalities")


def _voice(voice: str | VoiceIn | UnsetType | None) -> str | UnsetType | None:
    return voice.id if isinstance(voice, VoiceIn) else voice


def _transcription(given: SessionIn, audio: AudioInputIn) -> Transcription | UnsetType | None:
    asked, path = given.input_audio_transcription, "session.input_audio_transcription"
    if isinstance(asked, UnsetType):
        asked, path = audio.transcription, "session.audio.input.transcription"
    if not isinstance(asked, TranscriptionIn):
        return asked
    bounded(msgspec.json.encode(asked).decode(), MOST_SHOWN, path)
    return Transcription(
        model=asked.model,
        language=asked.language,
        languages=asked.languages,
        prompt=asked.prompt,
        keywords=asked.keywords,
        delay=asked.delay,
    )


def _tools(given: SessionIn, extra: ExtraBody) -> JsonText | UnsetType:
    if given.tools != ABSENT:
        return tools_from(given.tools, "session.tools")
    if extra.realtime_tools != ABSENT:
        return tools_from(extra.realtime_tools, "session.extra_body.realtime_tools")
    return UNSET


def _tool_choice(given: SessionIn, extra: ExtraBody, tools: JsonText) -> JsonText | UnsetType:
    if given.tool_choice != ABSENT:
        return choice_from(given.tool_choice, tools, "session.tool_choice")
    if extra.realtime_tool_choice != ABSENT:
        return choice_from(extra.realtime_tool_choice, tools, "session.extra_body.realtime_tool_choice")
    return UNSET


def _limit(given: SessionIn) -> int | UnsetType | None:
    limit: TokenLimit | UnsetType | None = _first_set(
        given.max_response_output_tokens, given.max_output_tokens, given.max_tokens
    )
    return None if limit == "inf" else limit


def _idle_timeout(given: SessionIn, dialect: Dialect) -> float | UnsetType:
    if given.idle_timeout_s is None or dialect != "duplex":
        return UNSET
    return min(max(given.idle_timeout_s, _IDLE_S[0]), _IDLE_S[1])


def _playback(policy: str | None) -> PlaybackPolicy | UnsetType:
    if policy is None:
        return UNSET
    return "ack_only" if policy == "ack_only" else "commit_all_on_done"
