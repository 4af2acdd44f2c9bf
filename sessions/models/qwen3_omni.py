"""Qwen3-Omni: one request for each turn, with a window over the conversation, text and sound unaligned."""

from collections.abc import Sequence

from msgspec import Struct

from antiphon.events.audio import AudioFormat
from antiphon.events.config import Capabilities, Sampling, SessionConfig
from antiphon.events.items import Item

from ..refusal import refuse
from .base import TurnModel
from .extras import INVALID, PARAM, read
from .qwen3_window import window


class QwenOptions(Struct, frozen=True, kw_only=True):
    """Continuous duplex is what this model has not."""

    full_duplex: bool = False


class Qwen3Omni(TurnModel, frozen=True, kw_only=True):
    """Whole utterances; the client or voice activity ends a turn."""

    def check(self, config: SessionConfig) -> None:
        """Refuse continuous duplex; tools and reference audio are refused by the record (N41)."""
        super().check(config)
        if read(config.extras, QwenOptions).full_duplex:
            refuse(INVALID, "This model answers turns: there is no full duplex.", f"{PARAM}.full_duplex", "value")

    def prompt(self, config: SessionConfig, items: Sequence[Item]) -> tuple[Item, ...]:
        """Return the window over the conversation (N42)."""
        return window(items)


QWEN3_OMNI = Qwen3Omni(
    name="qwen3-omni",
    version="1",
    capabilities=Capabilities(
        supports_image_input=True,
        text_requires_complete_audio=True,
        required_input_modalities=("audio",),
        input_format=AudioFormat("pcm16", 16_000),
        output_rate=24_000,
    ),
    stages=("thinker", "talker", "vocoder"),
    defaults=(
        Sampling(temperature=0.0),
        Sampling(temperature=0.9, top_k=50, max_tokens=4096, seed=42),
        Sampling(temperature=0.0),
    ),
    own_keys=frozenset({"conversation_window", "multi_modal_data"}),
    promises_audio=True,
    max_tools=0,
    ref_audio="refused",
)
