"""Nemotron VoiceChat: a resident, frame-locked model that listens and speaks all the time, and calls functions."""

from msgspec import Struct
from msgspec.structs import replace

from antiphon.events.audio import AudioFormat
from antiphon.events.config import Capabilities, Sampling, SessionConfig

from ..refusal import refuse
from .base import Baked, TurnModel, locked_instructions, locked_tools, tool_names
from .extras import INVALID, PARAM, read

MODE = "unsupported_nemotron_duplex_mode"
FRAME = 1_280
PERIOD_MS = 80


class NemotronOptions(Struct, frozen=True, kw_only=True):
    """`full_duplex` is another word for `auto_response`; the period is the model's and may only be repeated."""

    full_duplex: bool = False
    chunk_period_ms: int | None = None


_CODES = {"full_duplex": MODE, "chunk_period_ms": MODE}


class Nemotron(TurnModel, frozen=True, kw_only=True):
    """Frames of 80 ms, one token each; continuous duplex is the only mode (N45)."""

    def settled(self, config: SessionConfig) -> SessionConfig:
        """Return the configuration, with `full_duplex` as what it means."""
        config = super().settled(config)
        options = read(config.extras, NemotronOptions, _CODES)
        return replace(config, auto_response=True) if options.full_duplex else config

    def check(self, config: SessionConfig) -> None:
        """Refuse turns, another period, and tools without names (N45, N48)."""
        super().check(config)
        options = read(config.extras, NemotronOptions, _CODES)
        if not config.auto_response:
            refuse(
                MODE,
                "This model is always in full duplex: set auto_response or full_duplex to true.",
                f"{PARAM}.auto_response",
            )
        if options.chunk_period_ms not in (None, PERIOD_MS):
            refuse(MODE, f"The period of this model is {PERIOD_MS} ms.", f"{PARAM}.chunk_period_ms", "value")
        if not all(tool_names(config)):
            refuse(INVALID, "Every tool needs a name.", "session.tools", "missing")

    def check_append(self, config: SessionConfig, *, samples: int, frames: int, speech: bool) -> None:
        """Refuse more than one frame at once (N45)."""
        if samples > FRAME:
            refuse(
                "bad_event",
                f"An append holds at most {FRAME} samples ({PERIOD_MS} ms) for this model, not {samples}.",
                "audio",
                "value",
            )

    def check_commit(self, config: SessionConfig, *, samples: int) -> None:
        """Refuse a commit of more than one frame (N45)."""
        if samples > FRAME:
            refuse(
                "bad_event",
                f"A commit finds at most one frame of {FRAME} samples for this model, not {samples}.",
            )

    def baked(self, config: SessionConfig) -> tuple[Baked, ...]:
        """Return the prompt's values (J15, N48)."""
        return (locked_instructions(config), locked_tools(config))


NEMOTRON = Nemotron(
    name="nemotron-voicechat",
    version="1",
    capabilities=Capabilities(
        implementation_level="model_native_duplex",
        core_resumable_request=True,
        supports_barge_in=False,
        supports_external_turn_signal=False,
        supports_audio_truncate=False,
        supports_text_only_turn=False,
        required_input_modalities=("audio",),
        chunk_period_ms=PERIOD_MS,
        target_barge_in_latency_ms=None,
        input_format=AudioFormat("pcm16", 16_000),
        output_rate=22_050,
    ),
    stages=("language", "codec", "vocoder"),
    defaults=(Sampling(temperature=0.0, max_tokens=1), Sampling(), Sampling()),
    own_keys=frozenset({"function_batches", "function_generation", "token_ids"}),
    continuation=FRAME,
    promises_audio=True,
    max_tools=5,
    tool_batches=8,
    warmup_units=2,
    max_sessions=1,
)
