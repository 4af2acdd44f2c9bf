"""What of a session object is kept without being understood: options of models, and what is only shown again."""

import msgspec
from msgspec import UNSET, Raw, UnsetType

from antiphon.events.config import JsonText, SessionConfig

from .wire_client import ClientEvent
from .wire_limits import MOST_SHOWN, bounded, check_options
from .wire_session_in import AudioInputIn, ExtraBody, SessionIn
from .wire_view import SHOWN

_READ_HERE = frozenset(
    {
        "auto_response",
        "duplex_initial_user_text",
        "overlap_barge_in_ms",
        "overlap_policy",
        "overlap_short_ack_ms",
        "overlap_silence_rms",
        "playback_commit_policy",
        "realtime_tool_choice",
        "realtime_tools",
    }
)
"""Keys of `extra_body` that mean the same for every model; the others are the business of its plugin."""

MOST_UNKNOWN, LARGEST_UNKNOWN = 64, 16 * 1024
"""Fields of a client that nobody here knows are shown again up to so many, and so many characters of JSON."""


class _Extra(msgspec.Struct, frozen=True):
    extra_body: dict[str, Raw] | None = None


_decode_extra = msgspec.json.Decoder(_Extra).decode
_decode_keys = msgspec.json.Decoder(dict[str, Raw]).decode


def options(raw: Raw | bytes, config: SessionConfig) -> dict[str, JsonText] | UnsetType:
    """Return the options that only the model's plugin knows, as JSON text.

    Raises:
        WireError: with those that there are they are too much.
    """
    keys = _decode_extra(raw).extra_body or {}
    extras = {key: bytes(text).decode() for key, text in keys.items() if key not in _READ_HERE}
    check_options({**config.extras, **extras}, "session.extra_body")
    return extras or UNSET


def echoed(given: SessionIn, audio: AudioInputIn, extra: ExtraBody) -> dict[str, JsonText] | UnsetType:
    """Return the fields that are only kept and shown again, as JSON text by their key on the wire.

    Raises:
        WireError: one of them is too much.
    """
    noise, seed = audio.noise_reduction, given.initial_user_text
    values: dict[str, object] = {
        "parallel_tool_calls": _set(given.parallel_tool_calls),
        "truncation": _set(given.truncation),
        "include": given.include,
        "prompt": given.prompt,
        "tracing": given.tracing,
        "reasoning": given.reasoning,
        "noise_reduction": given.input_audio_noise_reduction if noise is UNSET else noise,
        "initial_user_text": _set(extra.duplex_initial_user_text if seed is None else seed),
    }
    echo = {key: msgspec.json.encode(value).decode() for key, value in values.items() if value is not UNSET}
    for key in _FREE & echo.keys():
        bounded(echo[key], MOST_SHOWN, f"session.{key}")
    return echo or UNSET


def _set(value: object) -> object:
    return UNSET if value is None else value


_FREE = frozenset({"include", "prompt", "tracing"})
"""Of the fields that are shown again, those that may hold anything."""


_NOT_ECHOED = SHOWN | frozenset(SessionIn.__struct_fields__) | {"resume_token", "observer_token", "api_key"}
_OF_THE_EVENT = frozenset(ClientEvent.__struct_fields__) | {"type", "session"}


def unknown(raw: Raw | bytes, config: SessionConfig, *, whole_event: bool) -> dict[str, JsonText] | UnsetType:
    """Return the fields that nobody here knows, as JSON text: kept and shown again within bounds (L13)."""
    fields = _decode_keys(raw)
    mine = {key: bytes(value).decode() for key, value in fields.items() if key not in _NOT_ECHOED}
    if whole_event:
        mine = {key: value for key, value in mine.items() if key not in _OF_THE_EVENT}
    if not mine:
        return UNSET
    kept = {**config.unknown, **mine}
    if len(kept) > MOST_UNKNOWN or sum(len(key) + len(text) for key, text in kept.items()) > LARGEST_UNKNOWN:
        return UNSET
    return mine
