"""AURA: a model that watches, one request for each turn, and may begin the next turn while the last one speaks."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.config import Capabilities, Sampling, SessionConfig

from ..refusal import refuse
from .base import TurnModel
from .extras import INVALID, PARAM, filled, read

VISION_LANGUAGE = 1
TALKER, VOCODER = 2, 3
SILENT_TOKEN = 151_669
END_OF_MESSAGE = 151_645
SPOKEN_END = 2150


class AuraOptions(Struct, frozen=True, kw_only=True):
    """What a client may choose of the speech; a spoken piece has at least `tts_min_chars` characters (N56, N58)."""

    tts_task_type: Literal["CustomVoice", "Base"] = "CustomVoice"
    tts_language: str = "Chinese"
    tts_speaker: str | None = None
    tts_x_vector_only: bool = False
    tts_pass_token_ids: bool = False
    tts_min_chars: int = 30
    aura_system_prompt: str | None = None


DEFAULT_SPEAKER = "Vivian"


class Aura(TurnModel, frozen=True, kw_only=True):
    """Whole turns of frames and maybe sound; the gate opens when the text is complete (N52, N55)."""

    def settled(self, config: SessionConfig) -> SessionConfig:
        """Return the configuration with every option in place; only a custom voice has a speaker."""
        config = filled(super().settled(config), AuraOptions)
        options = read(config.extras, AuraOptions)
        if options.tts_task_type == "CustomVoice" and options.tts_speaker is None:
            config = replace(config, extras={**config.extras, "tts_speaker": f'"{DEFAULT_SPEAKER}"'})
        return config

    def check(self, config: SessionConfig) -> None:
        """Refuse pairs of options that no checkpoint has (S-F8)."""
        super().check(config)
        options = read(config.extras, AuraOptions)
        if not 1 <= options.tts_min_chars <= 200:
            refuse(INVALID, "tts_min_chars is 1 to 200.", f"{PARAM}.tts_min_chars", "value")
        if options.tts_task_type == "Base":
            if config.ref_audio is None:
                refuse(INVALID, "A voice of type Base needs ref_audio.", "session.ref_audio", "missing")
            if options.tts_speaker is not None:
                refuse(INVALID, "A voice of type Base has no speaker.", f"{PARAM}.tts_speaker", "value")
        elif config.ref_audio is not None or options.tts_x_vector_only:
            refuse(INVALID, "A voice of type CustomVoice takes no ref_audio.", f"{PARAM}.tts_task_type", "value")

    def pictures(self, groups: Sequence[tuple[SampleRef, ...]]) -> tuple[SampleRef, ...]:
        """Return the last two of the newest append that had any; a single one is doubled (N52)."""
        newest = next((group for group in reversed(groups) if group), ())
        return newest * 2 if len(newest) == 1 else newest[-2:]


AURA = Aura(
    name="aura",
    version="1",
    capabilities=Capabilities(
        supports_concurrent_turn_requests=True,
        supports_audio_truncate=False,
        supports_text_only_turn=False,
        required_input_modalities=("video",),
        optional_input_modalities=("audio",),
        input_format=AudioFormat("pcm16", 16_000),
        output_rate=24_000,
    ),
    stages=("recogniser", "vision_language", "talker", "vocoder"),
    language_stage=VISION_LANGUAGE,
    gate=VISION_LANGUAGE,
    draining=frozenset({TALKER, VOCODER}),
    defaults=(
        Sampling(temperature=0.0, max_tokens=256),
        Sampling(temperature=0.0, max_tokens=256, stops=(SILENT_TOKEN, END_OF_MESSAGE)),
        Sampling(
            temperature=0.5,
            top_k=50,
            repetition_penalty=1.05,
            min_tokens=8,
            max_tokens=240,
            stops=(SPOKEN_END,),
        ),
        Sampling(seed=42),
    ),
    own_keys=frozenset({"model_context", "sentence_state"}),
    promises_audio=True,
    max_tools=0,
    ref_audio="optional",
)
