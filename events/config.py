"""The configuration of a session, patches to it, and what a model can do."""

from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from .audio import AudioFormat, Recording

Dialect = Literal["ga", "beta", "duplex"]
OverlapPolicy = Literal["listen_only", "barge_in_on_speech"]
PlaybackPolicy = Literal["commit_all_on_done", "ack_only"]
Modality = Literal["audio", "text"]

JsonText = str
"""A JSON document as text: echoed to the client, never looked into by the core."""


class TurnDetection(Struct, frozen=True, kw_only=True):
    """Server voice activity detection (WIRE 4.4). Times in milliseconds; `threshold` is a probability.

    `false_interruption`: speech over an answer interrupts it only when it has proved to be a turn (DESIGN 5.13);
    duplex dialect.
    """

    type: Literal["server_vad", "semantic_vad"] = "server_vad"
    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_duration_ms: int = 500
    min_speech_duration_ms: int = 96
    create_response: bool = True
    interrupt_response: bool = True
    idle_timeout_ms: int | None = None
    eagerness: Literal["low", "medium", "high", "auto"] = "auto"
    false_interruption: bool = False


LOWEST_THRESHOLD = 0.16
SHORTEST_SPEECH_MS = 32


def effective(detection: TurnDetection) -> TurnDetection:
    """Return a detection as it is carried out: a threshold or a shortest speech below the floor is raised to it."""
    return msgspec.structs.replace(
        detection,
        threshold=max(detection.threshold, LOWEST_THRESHOLD),
        min_speech_duration_ms=max(detection.min_speech_duration_ms, SHORTEST_SPEECH_MS),
    )


class Transcription(Struct, frozen=True, kw_only=True):
    """What the client asked of the transcription of its speech; the server uses its own recogniser."""

    model: str | None = None
    language: str | None = None
    languages: tuple[str, ...] | None = None
    prompt: str | None = None
    keywords: tuple[str, ...] | None = None
    delay: str | None = None


class Sampling(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one stage chooses its tokens; None: as the stage does by itself.

    `stops` are ids, or special tokens by their text, which the stage's tokeniser knows. `max_chars` bounds a unit,
    `repetition_window` is how many tokens back a repetition counts.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    repetition_penalty: float | None = None
    repetition_window: int | None = None
    min_tokens: int = 0
    max_tokens: int | None = None
    max_chars: int | None = None
    seed: int | None = None
    stops: tuple[int | str, ...] = ()


class SessionConfig(Struct, frozen=True, kw_only=True):
    """Everything a session was told at opening and by later updates, as effective values.

    `auto_response`: the model answers on its own (duplex dialect). `max_output_tokens` None means no limit.
    `echo` holds fields that are only stored and shown again (key as on the wire -> JSON text), `unknown` those
    that nobody here knows (L13), `extras` the options of `extra_body` that only the model's plugin knows.
    `ref_audio` is the recording whose voice the model shall have. The last two are never shown.
    """

    model: str
    instructions: str = ""
    output_modalities: tuple[Modality, ...] = ("audio",)
    input_format: AudioFormat = AudioFormat("pcm16", 24_000)
    output_format: AudioFormat = AudioFormat("pcm16", 24_000)
    voice: str = "default"
    speed: float = 1.0
    turn_detection: TurnDetection | None = None
    transcription: Transcription | None = None
    tools: JsonText = "[]"
    tool_choice: JsonText = '"auto"'
    max_output_tokens: int | None = None
    temperature: float | None = None
    metadata: dict[str, str] | None = None
    idle_timeout_s: float = 0.0
    overlap_policy: OverlapPolicy = "listen_only"
    overlap_short_ack_ms: int = 700
    overlap_barge_in_ms: int = 1200
    overlap_silence_rms: float = 0.003
    playback_policy: PlaybackPolicy = "commit_all_on_done"
    auto_response: bool = False
    echo: dict[str, JsonText] = {}
    extras: dict[str, JsonText] = {}
    ref_audio: Recording | None = None
    unknown: dict[str, JsonText] = {}

    @property
    def speaks(self) -> bool:
        """Whether answers are spoken (text only otherwise)."""
        return "audio" in self.output_modalities

    @property
    def seed(self) -> str:
        """What the user is taken to have written before anything was said, for the model to answer (G7)."""
        try:
            return msgspec.json.decode(self.echo.get("initial_user_text", '""').encode(), type=str)
        except msgspec.DecodeError:
            return ""


class ConfigPatch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A partial configuration: an absent field keeps its value. The wire has merged all spellings into one.

    `model`, `playback_policy` and friends are present when the client named them, even unchanged: whether a
    change is allowed is the core's decision (L6). None clears a field that can be cleared; a `voice` of None is the
    model's first one.
    """

    model: str | UnsetType = UNSET
    instructions: str | UnsetType = UNSET
    output_modalities: tuple[Modality, ...] | UnsetType = UNSET
    input_format: AudioFormat | UnsetType = UNSET
    output_format: AudioFormat | UnsetType = UNSET
    voice: str | UnsetType | None = UNSET
    speed: float | UnsetType = UNSET
    turn_detection: TurnDetection | UnsetType | None = UNSET
    transcription: Transcription | UnsetType | None = UNSET
    tools: JsonText | UnsetType = UNSET
    tool_choice: JsonText | UnsetType = UNSET
    max_output_tokens: int | UnsetType | None = UNSET
    temperature: float | UnsetType | None = UNSET
    metadata: dict[str, str] | UnsetType | None = UNSET
    idle_timeout_s: float | UnsetType = UNSET
    overlap_policy: OverlapPolicy | UnsetType = UNSET
    overlap_short_ack_ms: int | UnsetType = UNSET
    overlap_barge_in_ms: int | UnsetType = UNSET
    overlap_silence_rms: float | UnsetType = UNSET
    playback_policy: PlaybackPolicy | UnsetType = UNSET
    auto_response: bool | UnsetType = UNSET
    echo: dict[str, JsonText] | UnsetType = UNSET
    unknown: dict[str, JsonText] | UnsetType = UNSET
    extras: dict[str, JsonText] | UnsetType = UNSET
    ref_audio: Recording | UnsetType | None = UNSET


def merged(config: SessionConfig, patch: ConfigPatch) -> SessionConfig:
    """Return `config` with the present fields of `patch` in place (L7).

    `echo`, `unknown` and `extras` are merged key by key, and an extra that is null is taken out; everything else is
    replaced as a whole. Numbers that have only a lower bound are raised to it. A `voice` of None keeps the one that
    there is: only the caller knows the first.
    """
    changes = {name: value for name, value in msgspec.structs.asdict(patch).items() if value is not UNSET}
    if "echo" in changes:
        changes["echo"] = {**config.echo, **changes["echo"]}
    if "extras" in changes:
        extras = {**config.extras, **changes["extras"]}
        changes["extras"] = {key: text for key, text in extras.items() if text != "null"}
    if "unknown" in changes:
        changes["unknown"] = {**config.unknown, **changes["unknown"]}
    if changes.get("voice", "") is None:
        del changes["voice"]
    if isinstance(patch.turn_detection, TurnDetection):
        changes["turn_detection"] = effective(patch.turn_detection)
    for name in _NOT_NEGATIVE & changes.keys():
        changes[name] = max(changes[name], type(changes[name])())
    return msgspec.structs.replace(config, **changes) if changes else config


_NOT_NEGATIVE = frozenset({"idle_timeout_s", "overlap_short_ack_ms", "overlap_barge_in_ms", "overlap_silence_rms"})


def overlap_policy(detection: TurnDetection | None) -> OverlapPolicy:
    """Return the overlap policy that a turn detection implies (WIRE 4.5)."""
    barges = detection is not None and detection.interrupt_response
    return "barge_in_on_speech" if barges else "listen_only"


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a model can do; advertised to the client as `session.capabilities` and enforced (DESIGN 5.8).

    Two are not advertised. `text_requires_complete_audio`: text and sound are streams of their own, so a part of
    the sound says nothing about a part of the text (I4). `transcribes_ahead`: its stage can be asked for the words
    of an utterance that is still open.
    """

    implementation_level: Literal["model_native_duplex", "turn_based_duplex"] = "turn_based_duplex"
    supports_external_turn_signal: bool = True
    supports_client_commit: bool = True
    supports_barge_in: bool = True
    supports_playback_ack: bool = True
    supports_audio_truncate: bool = True
    supports_input_append: bool = True
    supports_image_input: bool = False
    supports_text_only_turn: bool = True
    supports_auto_response: bool = True
    supports_session_resume: bool = True
    supports_reencode_context: bool = False
    supports_concurrent_turn_requests: bool = False
    multi_session: bool = True
    core_resumable_request: bool = False
    text_requires_complete_audio: bool = False
    transcribes_ahead: bool = False
    required_input_modalities: tuple[str, ...] = ("audio",)
    optional_input_modalities: tuple[str, ...] = ()
    chunk_period_ms: int | None = None
    target_barge_in_latency_ms: int | None = 200
    input_format: AudioFormat = AudioFormat("pcm16", 16_000)
    output_rate: int = 24_000
    voices: tuple[str, ...] = ("default",)


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds of one session, frozen into its log at opening. Times in milliseconds, sizes in bytes; 0 = none."""

    grace_ms: int = 30_000
    idle_ttl_ms: int = 300_000
    activation_ms: int = 10_000
    max_session_ms: int = 0
    input_bytes: int = 16 * 1024 * 1024
    pending_commits: int = 4
    min_commit_ms: int = 0
    items: int = 4096
    item_bytes: int = 64 * 1024 * 1024
    images: int = 8
    image_bytes: int = 4 * 1024 * 1024
