"""PersonaPlex (after Moshi): a resident, frame-locked model with a bundled voice and a persona."""

from msgspec import Struct
from msgspec.structs import replace

from antiphon.events.audio import AudioFormat
from antiphon.events.config import Capabilities, Sampling, SessionConfig

from .base import OPENAI_VOICES, Baked, TurnModel
from .extras import PARAM, read

DEFAULT_VOICE = "NATF2"
DEFAULT_PERSONA = (
    "You are a wise and friendly teacher. Answer questions or provide advice in a clear and engaging way."
)
VOICES = (
    DEFAULT_VOICE,
    *("NATF0", "NATF1", "NATF3", "NATM0", "NATM1", "NATM2", "NATM3"),
    *("VARF0", "VARF1", "VARF2", "VARF3", "VARF4", "VARM0", "VARM1", "VARM2", "VARM3", "VARM4"),
)
FRAME = 1_920
CONTEXT_FRAMES = 3_000
"""About 240 s, what is prefilled included (N63)."""
SILENCE_FRAMES = 12
"""What stands between the voice and the persona, and behind it: six frames each (N61)."""


class PersonaOptions(Struct, frozen=True, kw_only=True):
    """`voice` and `persona` are other words for the session's voice and instructions."""

    voice: str | None = None
    persona: str | None = None


class PersonaPlex(TurnModel, frozen=True, kw_only=True):
    """Frames of 80 ms at 24 kHz; it listens and speaks all the time and never ends a turn (N60, N63)."""

    def settled(self, config: SessionConfig) -> SessionConfig:
        """Return the configuration: voice and persona named, and the one mode there is."""
        config = super().settled(config)
        options = read(config.extras, PersonaOptions)
        voice = config.voice if options.voice is None else options.voice
        return replace(
            config,
            auto_response=True,
            voice=DEFAULT_VOICE if voice in ("default", *OPENAI_VOICES) else voice,
            instructions=options.persona or config.instructions or DEFAULT_PERSONA,
        )

    def baked(self, config: SessionConfig) -> tuple[Baked, ...]:
        """Return what is prefilled before the first frame (N61)."""
        return (
            Baked("voice", config.voice, "voice_update_unsupported", f"{PARAM}.voice", fixed=True),
            Baked("persona", config.instructions, "persona_update_unsupported", f"{PARAM}.persona", fixed=True),
        )


def first_frames(*, voice_rows: int, persona_tokens: int) -> int:
    """Return the steps that the first append reserves: what is prefilled, and its own frame (N61)."""
    return voice_rows + SILENCE_FRAMES + persona_tokens + 1


PERSONAPLEX = PersonaPlex(
    name="personaplex",
    version="1",
    capabilities=Capabilities(
        implementation_level="model_native_duplex",
        core_resumable_request=True,
        supports_barge_in=False,
        supports_client_commit=False,
        supports_external_turn_signal=False,
        supports_audio_truncate=False,
        supports_text_only_turn=False,
        supports_session_resume=False,
        required_input_modalities=("audio",),
        chunk_period_ms=80,
        target_barge_in_latency_ms=None,
        input_format=AudioFormat("pcm16", 24_000),
        output_rate=24_000,
        voices=VOICES,
    ),
    stages=("language", "vocoder"),
    defaults=(Sampling(), Sampling()),
    own_keys=frozenset({"voice_path", "voice_prompt_path", "codec_state"}),
    continuation=FRAME,
    promises_audio=True,
    max_tools=0,
    max_sessions=2,
)
