"""Sound of clients into the one format inside: 16-bit little-endian mono, at the model's rate."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import soxr  # pyright: ignore[reportMissingTypeStubs]  # it ships none

from antiphon.events.audio import MAX_RATE, MIN_RATE, AudioFormat

from .errors import Refused

Samples16 = npt.NDArray[np.int16]
_PCM16 = np.dtype("<i2")


def _ulaw_table() -> Samples16:
    """Expand the 256 codes of G.711 mu-law: sign, exponent, mantissa, all bits inverted; bias 132."""
    code = ~np.arange(256, dtype=np.int32) & 0xFF
    magnitude = ((((code & 0x0F) << 3) + 132) << ((code >> 4) & 7)) - 132
    return np.where(code & 0x80, -magnitude, magnitude).astype(np.int16)


def _alaw_table() -> Samples16:
    """Expand the 256 codes of G.711 A-law: even bits inverted; the first segment is linear."""
    code = np.arange(256, dtype=np.int32) ^ 0x55
    segment, mantissa = (code >> 4) & 7, (code & 0x0F) << 4
    magnitude = np.where(segment == 0, mantissa + 8, (mantissa + 264) << np.maximum(segment - 1, 0))
    return np.where(code & 0x80, magnitude, -magnitude).astype(np.int16)


ULAW = _ulaw_table()
ALAW = _alaw_table()


def decode(data: bytes, sound: AudioFormat) -> bytes:
    """Return `data` as 16-bit little-endian samples at the same rate.

    Raises:
        Refused: `unsupported_audio_format`; `bad_event` for a rate out of range; `bad_audio` for a byte count
            that is no whole number of samples, or for samples that are not finite.
    """
    if not MIN_RATE <= sound.rate <= MAX_RATE:
        raise Refused("bad_event", f"The rate must be {MIN_RATE} to {MAX_RATE} Hz.", param="sample_rate_hz")
    if len(data) % sound.width:
        raise Refused("bad_audio", "The audio is not a whole number of samples.", param="audio")
    match sound.encoding:
        case "pcm16":
            return data
        case "pcm_f32le":
            return _from_float(data)
        case "g711_ulaw":
            return _swapped(ULAW[np.frombuffer(data, np.uint8)])
        case "g711_alaw":
            return _swapped(ALAW[np.frombuffer(data, np.uint8)])
        case _:
            raise Refused("unsupported_audio_format", f"Input cannot be {sound.encoding!r}.", param="format")


def _from_float(data: bytes) -> bytes:
    samples = np.frombuffer(data, dtype="<f4")
    if not np.isfinite(samples).all():
        raise Refused("bad_audio", "The audio holds samples that are not finite.", param="audio")
    return _swapped((np.clip(samples, -1.0, 1.0) * 32767).round().astype(np.int16))


def _swapped(samples: Samples16) -> bytes:
    return samples.astype("<i2", copy=False).tobytes()


def level(pcm16: bytes) -> float:
    """Return the root mean square of samples, full scale = 1; 0 of nothing."""
    samples = np.frombuffer(pcm16, _PCM16).astype(np.float32)
    return math.sqrt(float(samples.dot(samples)) / samples.size) / 32768 if samples.size else 0.0


class Resampler:
    """Changes the rate of one stream; its state lives across chunks, so that their borders do not click.

    What comes out of all chunks and `flush` together is within one sample of the exact number.
    """

    def __init__(self, rate_in: int, rate_out: int) -> None:
        self.rate_in = rate_in
        self._resample: Any = (  # soxr ships no types
            None if rate_in == rate_out else soxr.ResampleStream(rate_in, rate_out, 1, dtype="int16")
        )

    def feed(self, pcm16: bytes) -> bytes:
        """Return what `pcm16` gives so far; a part stays inside until more comes."""
        if self._resample is None:
            return pcm16
        chunk: Samples16 = self._resample.resample_chunk(np.frombuffer(pcm16, dtype="<i2"))
        return _swapped(chunk)

    def flush(self) -> bytes:
        """Return what is still inside. The stream is over: nothing may be fed after it."""
        if self._resample is None:
            return b""
        tail: Samples16 = self._resample.resample_chunk(np.zeros(0, np.int16), last=True)
        return _swapped(tail)
