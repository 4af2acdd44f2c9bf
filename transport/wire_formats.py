"""Audio formats as clients spell them (WIRE 4.2)."""

from typing import Annotated

from msgspec import Meta, Struct

from antiphon.events.audio import G711_RATE, MAX_RATE, MIN_RATE, AudioFormat, Encoding
from antiphon.events.config import Dialect

from .wire_errors import WireError, bad_value, quoted

Rate = Annotated[int, Meta(ge=MIN_RATE, le=MAX_RATE)]


class FormatIn(Struct, frozen=True):
    """The object spelling of a format."""

    type: str
    rate: Rate | None = None


class FormatOut(Struct, frozen=True, omit_defaults=True):
    """A format as it is shown; G.711 has no rate of its own to show."""

    type: str
    rate: int = 0


ENCODINGS: dict[str, Encoding] = {
    "audio/pcm": "pcm16",
    "pcm": "pcm16",
    "pcm16": "pcm16",
    "pcm_s16le": "pcm16",
    "s16le": "pcm16",
    "audio/pcm16": "pcm16",
    "linear16": "pcm16",
    "pcm_f32le": "pcm_f32le",
    "f32le": "pcm_f32le",
    "audio/pcm_f32le": "pcm_f32le",
    "audio/pcmu": "g711_ulaw",
    "g711_ulaw": "g711_ulaw",
    "g711-ulaw": "g711_ulaw",
    "audio/g711_ulaw": "g711_ulaw",
    "ulaw": "g711_ulaw",
    "mulaw": "g711_ulaw",
    "audio/pcma": "g711_alaw",
    "g711_alaw": "g711_alaw",
    "g711-alaw": "g711_alaw",
    "audio/g711_alaw": "g711_alaw",
    "alaw": "g711_alaw",
    "wav": "wav",
    "audio/wav": "wav",
}

_SHOWN: dict[Encoding, str] = {
    "pcm16": "audio/pcm",
    "pcm_f32le": "audio/pcm_f32le",
    "g711_ulaw": "audio/pcmu",
    "g711_alaw": "audio/pcma",
    "wav": "audio/wav",
}

_G711 = frozenset({"g711_ulaw", "g711_alaw"})
_NOT_IN = frozenset({"wav"})
_NOT_OUT = {
    "ga": frozenset({"pcm_f32le", "wav"}),
    "beta": frozenset({"pcm_f32le", "wav"}),
    "duplex": frozenset({"pcm_f32le"}),
}
DEFAULT_INPUT_RATE: dict[Dialect, int] = {"ga": 24_000, "beta": 24_000, "duplex": 16_000}
OUTPUT_RATE = 24_000


class Spelled(Struct, frozen=True):
    """A value that a client gave, and the path where it stood."""

    value: str
    path: str


class SpelledRate(Struct, frozen=True):
    """A rate that a client gave, in Hz, and the path where it stood."""

    value: int
    path: str


def shown(audio_format: AudioFormat) -> FormatOut:
    """Return a format as an object of the wire."""
    rate = 0 if audio_format.encoding in _G711 else audio_format.rate
    return FormatOut(_SHOWN[audio_format.encoding], rate)


def input_format(
    name: Spelled | None, rate: SpelledRate | None, current: AudioFormat, dialect: Dialect
) -> AudioFormat:
    """Return the input format that a patch or an append asks for.

    Raises:
        WireError: `unsupported_audio_format`, or `bad_event` for a rate that G.711 does not have.
    """
    encoding = _encoding(name, current, _NOT_IN)
    return _with_rate(encoding, rate, current, DEFAULT_INPUT_RATE[dialect])


def output_format(
    name: Spelled | None, rate: SpelledRate | None, current: AudioFormat, dialect: Dialect
) -> AudioFormat:
    """Return the output format that a patch or a response asks for.

    Raises:
        WireError: `unsupported_audio_format`, or `bad_event` for a rate that cannot be had.
    """
    encoding = _encoding(name, current, _NOT_OUT[dialect])
    chosen = _with_rate(encoding, rate, current, OUTPUT_RATE)
    if dialect != "duplex" and encoding == "pcm16" and chosen.rate != OUTPUT_RATE:
        raise bad_value("PCM output has a rate of 24000 Hz.", rate.path if rate else "session.audio.output")
    return chosen


def _encoding(name: Spelled | None, current: AudioFormat, refused: frozenset[str]) -> Encoding:
    if name is None:
        return current.encoding
    encoding = ENCODINGS.get(name.value)
    if encoding is None or encoding in refused:
        raise WireError(
            "unsupported_audio_format", f"Audio format {quoted(name.value)} is not supported.", name.path
        )
    return encoding


def _with_rate(encoding: Encoding, rate: SpelledRate | None, current: AudioFormat, default: int) -> AudioFormat:
    if encoding in _G711:
        if rate is not None and rate.value != G711_RATE:
            raise bad_value("G.711 has a rate of 8000 Hz.", rate.path)
        return AudioFormat(encoding, G711_RATE)
    if rate is not None:
        return AudioFormat(encoding, rate.value)
    return AudioFormat(encoding, default if current.encoding in _G711 else current.rate)
