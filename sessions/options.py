"""The configuration of one response: the session's, with what the client wants otherwise this time."""

from typing import TypeVar

from msgspec import UNSET, UnsetType

from antiphon.events.commands import ResponseOptions
from antiphon.events.config import ConfigPatch, SessionConfig, merged

T = TypeVar("T")


def with_options(config: SessionConfig, options: ResponseOptions) -> SessionConfig:
    """Return the configuration that a response with these overrides has (G3)."""
    patch = ConfigPatch(
        instructions=_given(options.instructions),
        output_modalities=_given(options.output_modalities),
        output_format=_given(options.output_format),
        voice=_given(options.voice),
        speed=_given(options.speed),
        max_output_tokens=None if options.max_output_tokens == "inf" else _given(options.max_output_tokens),
        temperature=_given(options.temperature),
        tools=_given(options.tools),
        tool_choice=_given(options.tool_choice),
        extras=_given(options.extras),
    )
    return merged(config, patch)


def _given(value: T | None) -> T | UnsetType:
    return UNSET if value is None else value
