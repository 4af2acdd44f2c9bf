"""The real models for tests, each loaded once; a test whose model is not installed is skipped by its name."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import soxr
from numpy.typing import NDArray

from antiphon.stages.asset_errors import AssetMissing
from antiphon.stages.asset_manifest import Kind
from antiphon.stages.assets import resolve
from antiphon.stages.piper import PiperVoice


def model(kind: Kind, name: str | None = None) -> Path:
    """The path of a model of the voice extra; skips the test, saying what is absent, where it is not."""
    try:
        return resolve(kind, name)
    except AssetMissing as error:
        pytest.skip(str(error))


def voice(noise: float | None = 0.0) -> PiperVoice:
    """A Piper voice; without noise it says the same text in the same samples. Close it."""
    try:
        return PiperVoice(model("tts"), noise=noise, noise_w=noise)
    except AssetMissing as error:
        pytest.skip(str(error))


@cache
def spoken(text: str) -> NDArray[np.float32]:
    """`text` as speech at 16 kHz; shared between tests, do not write to it."""
    speaker = voice()
    try:
        pieces = list(speaker.speak(text))
    finally:
        speaker.close()
    samples = np.concatenate(pieces).astype(np.float32) / np.float32(32_768.0)
    speech = np.asarray(soxr.resample(samples, speaker.sample_rate, 16_000), dtype=np.float32)
    speech.flags.writeable = False
    return speech
