"""Whisper's log-mel features in numpy: the input a Whisper encoder was trained on.

Formula, for 16 kHz samples `x`: frames of 400 samples every 160 under a periodic Hann window, power spectrum
`|rfft|²`, Slaney mel filters over 0-8 kHz, `log10(max(mel, 1e-10))`, floored at 8 below the maximum, then
`(value + 4) / 4`.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE = 16_000
HOP = 160
_WINDOW = 400
_LINEAR_HZ_PER_MEL = 200.0 / 3.0
_LOG_FROM_HZ = 1_000.0
_LOG_STEP = np.log(6.4) / 27.0


@cache
def mel_filters(count: int) -> NDArray[np.float32]:
    """Triangular filters `[count, 201]` on the Slaney scale, each of area one; shared, do not write to it."""
    edges = _mel_to_hz(np.linspace(0.0, _hz_to_mel(SAMPLE_RATE / 2), count + 2))
    bins = np.fft.rfftfreq(_WINDOW, 1.0 / SAMPLE_RATE)
    widths = np.diff(edges)
    slopes = edges[:, None] - bins[None, :]
    rising = -slopes[:-2] / widths[:-1, None]
    falling = slopes[2:] / widths[1:, None]
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    return np.asarray(triangles * (2.0 / (edges[2:] - edges[:-2]))[:, None], dtype=np.float32)


def log_mel(samples: NDArray[np.float32], mels: int = 80) -> NDArray[np.float32]:
    """Features `[mels, len(samples) // 160]`, float32, of mono 16 kHz samples in -1..1 (at least 201)."""
    padded = np.pad(samples, _WINDOW // 2, mode="reflect")
    count = len(samples) // HOP
    frames = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[: count * HOP : HOP]
    spectrum = np.fft.rfft(frames * _hann(), axis=1)
    power = spectrum.real**2 + spectrum.imag**2
    mel = np.log10(np.maximum(mel_filters(mels) @ power.T, 1e-10))
    mel = (np.maximum(mel, mel.max() - 8.0) + 4.0) / 4.0
    return np.ascontiguousarray(mel, dtype=np.float32)


@cache
def _hann() -> NDArray[np.float32]:
    return np.asarray(0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(_WINDOW) / _WINDOW), dtype=np.float32)


def _hz_to_mel(hz: float) -> float:
    if hz < _LOG_FROM_HZ:
        return hz / _LINEAR_HZ_PER_MEL
    return float(_LOG_FROM_HZ / _LINEAR_HZ_PER_MEL + np.log(hz / _LOG_FROM_HZ) / _LOG_STEP)


def _mel_to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    knee = _LOG_FROM_HZ / _LINEAR_HZ_PER_MEL
    return np.where(
        mel < knee, mel * _LINEAR_HZ_PER_MEL, _LOG_FROM_HZ * np.exp(_LOG_STEP * (np.maximum(mel, knee) - knee))
    )
