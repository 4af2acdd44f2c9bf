"""MiniCPM-o 4.5: a resident streaming model that hears units of one second and decides about turns itself."""

from typing import Literal

from msgspec import Struct

from antiphon.events.audio import RECORDING, AudioFormat
from antiphon.events.config import Capabilities, Sampling, SessionConfig

from ..refusal import refuse
from . import minicpm_budget
from .base import Baked, TurnModel, locked_extra, locked_instructions, locked_tools
from .extras import PARAM, filled, read

WINDOW = "invalid_sliding_window_config"


class WindowOptions(Struct, frozen=True, kw_only=True):
    """The window over the model's memory, in tokens and units (N38)."""

    sliding_window_mode: Literal["off", "basic", "context"] = "off"
    basic_window_high_tokens: int = 8000
    basic_window_low_tokens: int = 6000
    context_previous_max_tokens: int = 500
    context_max_units: int = 24


class MiniCPMOptions(WindowOptions, frozen=True, kw_only=True):
    """What a client may choose. The first `force_listen_count` units of each turn are heard in silence (N36)."""

    force_listen_count: int = 0


_WINDOW_KEYS = WindowOptions.__struct_fields__
_CODES = dict.fromkeys(_WINDOW_KEYS, WINDOW)


class MiniCPM(TurnModel, frozen=True, kw_only=True):
    """Units of one second; a turn is the model's or the client's to end; one prompt for the session."""

    def settled(self, config: SessionConfig) -> SessionConfig:
        """Return the configuration with every option in place."""
        return filled(super().settled(config), MiniCPMOptions, _CODES)

    def check(self, config: SessionConfig) -> None:
        """Refuse a voice that nobody lent, and a window that cannot work (N34, N38)."""
        super().check(config)
        options = read(config.extras, MiniCPMOptions, _CODES)
        if options.force_listen_count < 0:
            refuse(
                "invalid_duplex_runtime_config",
                "force_listen_count counts units: it is 0 or more.",
                f"{PARAM}.force_listen_count",
                "value",
            )
        _check_window(options)
        if config.speaks and config.ref_audio is None:
            refuse(
                "ref_audio_required",
                "This model speaks with the voice of a recording: send one as ref_audio, or ask for text only.",
                "session.ref_audio",
                "missing",
            )

    def budget(self, config: SessionConfig, *, samples: int, frames: int, first: bool) -> int:
        """Return what is enough whatever the pictures hold: their headers are the stage's to read (N32, N33)."""
        voice = config.ref_audio
        reference = 0 if voice is None else RECORDING.samples(voice.ref.size)
        context = minicpm_budget.context(None, reference) if first else None
        return minicpm_budget.tokens(samples, first=context, frames=(None,) * frames)

    def only_listens(self, config: SessionConfig, turn_seq: int) -> bool:
        """Return whether it is one of the first `force_listen_count` (N36)."""
        return turn_seq <= read(config.extras, MiniCPMOptions, _CODES).force_listen_count

    def baked(self, config: SessionConfig) -> tuple[Baked, ...]:
        """Return the prompt's values, and the window, which is part of the plan from the first unit on."""
        code = "sliding_window_update_unsupported"
        window = (locked_extra(config, key, "sliding window", code, fixed=True) for key in _WINDOW_KEYS)
        return (locked_instructions(config), locked_tools(config), *window)


def _check_window(options: WindowOptions) -> None:
    low, high = options.basic_window_low_tokens, options.basic_window_high_tokens
    if not 0 < low < high:
        refuse(
            WINDOW,
            f"The window is cut down to {low} tokens when it exceeds {high}: choose 0 < low < high.",
            f"{PARAM}.basic_window_low_tokens",
            "value",
        )
    if options.context_previous_max_tokens < 0 or options.context_max_units < 1:
        refuse(
            WINDOW,
            "A context window keeps at least one unit, and 0 or more tokens of what went before.",
            f"{PARAM}.context_max_units",
            "value",
        )


MINICPM = MiniCPM(
    name="minicpm-o-4.5",
    version="1",
    capabilities=Capabilities(
        implementation_level="model_native_duplex",
        core_resumable_request=True,
        supports_text_only_turn=False,
        required_input_modalities=("audio",),
        optional_input_modalities=("video",),
        chunk_period_ms=1000,
        input_format=AudioFormat("pcm16", 16_000),
        output_rate=24_000,
    ),
    stages=("thinker", "talker", "vocoder"),
    defaults=(
        Sampling(
            temperature=0.7,
            top_p=0.8,
            top_k=20,
            repetition_penalty=1.05,
            repetition_window=512,
            max_tokens=20,
            max_chars=28,
            stops=("<|chunk_eos|>", "<|chunk_tts_eos|>", "<|listen|>"),
        ),
        Sampling(max_tokens=8192),
        Sampling(),
    ),
    own_keys=frozenset({"duplex_window_plan", "tts_token_ids"}),
    continuation=16_000,
    priming_units=3,
    promises_audio=True,
    max_tools=0,
    ref_audio="required",
    max_sessions=1,
)
