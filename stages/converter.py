"""From 16-bit samples to what a response wants: another rate, another encoding, piece by piece."""

from __future__ import annotations

import numpy as np
import soxr

from antiphon.events.audio import AudioFormat
from antiphon.stages.g711 import alaw_encode, ulaw_encode


class Converter:
    """Turns pcm16 of one rate into an output format; borders of pieces do not click, since its state lives on."""

    def __init__(self, rate: int, target: AudioFormat) -> None:
        self._target = target
        same = rate == target.rate
        self._resample = None if same else soxr.ResampleStream(rate, target.rate, 1, dtype="int16", quality="HQ")

    def feed(self, pcm16: bytes, *, last: bool = False) -> bytes:
        """Return what `pcm16` gives so far; a few milliseconds may stay inside until `last`."""
        if self._resample is not None:
            samples = np.frombuffer(pcm16, dtype="<i2")
            pcm16 = self._resample.resample_chunk(samples, last=last).astype("<i2").tobytes()
        return encoded(pcm16, self._target)


def encoded(pcm16: bytes, target: AudioFormat) -> bytes:
    """Encode samples that have the target's rate already."""
    if target.encoding in ("pcm16", "wav"):
        return pcm16
    samples = np.frombuffer(pcm16, dtype="<i2").astype(np.int16, copy=False)
    if target.encoding == "pcm_f32le":
        return bytes(samples.astype("<f4") / 32768)
    return ulaw_encode(samples) if target.encoding == "g711_ulaw" else alaw_encode(samples)
