"""The models without rules of their own: the echo, and the cascade of recogniser, language model and voice."""

from antiphon.events.audio import AudioFormat
from antiphon.events.config import Capabilities

from .base import TurnModel

ECHO = TurnModel(
    name="echo",
    version="1",
    capabilities=Capabilities(
        core_resumable_request=True,
        supports_reencode_context=True,
        optional_input_modalities=("text",),
        output_rate=24_000,
        voices=("default",),
    ),
)
"""Says back what it hears: a committed turn as a whole, or with `auto_response` every piece at once."""

CASCADE = TurnModel(
    name="cascade",
    version="1",
    capabilities=Capabilities(
        optional_input_modalities=("text",),
        transcribes_ahead=True,
        input_format=AudioFormat("pcm16", 16_000),
        output_rate=24_000,
        voices=("default", "joe"),
    ),
)
"""Voice activity, recogniser, language model and speech, one request for each committed turn."""
