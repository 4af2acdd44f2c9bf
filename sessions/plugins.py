"""The session half of model plugins: what a model can do and which configurations it takes. Pure."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from antiphon.events.audio import AudioFormat
from antiphon.events.config import Capabilities, SessionConfig

from .refusal import refuse


class SessionPlugin(Protocol):
    """A model, as the session sees it. Its name and version stand in the log; replay needs the same ones."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    def check(self, config: SessionConfig) -> None:
        """Accept a configuration at opening and at every update (N4, N6).

        Raises:
            Refusal: by the contract's code.
        """
        ...


Registry = Mapping[str, SessionPlugin]

OPENAI_VOICES = (
    "alloy",
    "ash",
    "ballad",
    "cedar",
    "coral",
    "echo",
    "fable",
    "marin",
    "nova",
    "onyx",
    "sage",
    "shimmer",
    "verse",
)
"""Names that clients of the field ask for; a model with one voice answers to all of them."""


class TurnModel(Struct, frozen=True, kw_only=True):
    """A model that needs no rules of its own: everything follows from its capabilities."""

    name: str
    version: str
    capabilities: Capabilities

    def check(self, config: SessionConfig) -> None:
        """Refuse a voice that the model does not have."""
        voices = self.capabilities.voices
        if config.voice not in voices and config.voice not in OPENAI_VOICES:
            refuse(
                "bad_event",
                f"There is no voice {config.voice[:64]!r}; there are: {', '.join(voices)}.",
                "session.audio.output.voice",
                "value",
            )


ECHO = TurnModel(
    name="echo",
    version="1",
    capabilities=Capabilities(
        supports_external_turn_signal=False,
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
        supports_external_turn_signal=False,
        optional_input_modalities=("text",),
        input_format=AudioFormat("pcm16", 16_000),
        output_rate=24_000,
        voices=("default", "joe"),
    ),
)
"""Voice activity, recogniser, language model and speech, one request for each committed turn."""

REGISTRY: Registry = {plugin.name: plugin for plugin in (ECHO, CASCADE)}
