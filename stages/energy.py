"""A voice-activity scorer by loudness alone: numpy, no model, for pipelines and tests that need none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FRAME_SAMPLES = 512
"""Samples of one scored frame: 32 ms at 16 kHz."""


@dataclass(slots=True)
class EnergyState:
    """What the scorer remembers of one stream: nothing, since each frame is judged by itself."""


class EnergyScorer:
    """Maps a frame's RMS level to a probability of speech.

    The probability is 0.5 at `threshold_dbfs`, rises linearly and reaches 0 and 1 at `slope_db` below and
    above it. A full-scale square wave is 0 dBFS.
    """

    def __init__(self, *, threshold_dbfs: float = -45.0, slope_db: float = 10.0) -> None:
        if slope_db <= 0:
            raise ValueError("slope_db must be positive")
        self._threshold = threshold_dbfs
        self._slope = slope_db

    def new_state(self) -> EnergyState:
        """The state of a stream that has not begun."""
        return EnergyState()

    def score(self, states: Sequence[EnergyState], frames: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """One probability of speech for each stream's next frame (512 float32 samples in -1..1).

        Raises `ValueError` when the numbers of states and frames differ or a frame has another size.
        """
        if not frames and not states:
            return np.zeros(0, np.float32)
        batch = stack_frames(len(states), frames)
        power = np.square(batch, dtype=np.float32).mean(axis=1)
        dbfs = 10.0 * np.log10(np.maximum(power, 1e-12))
        share = 0.5 + (dbfs - self._threshold) / (2.0 * self._slope)
        return np.asarray(np.clip(share, 0.0, 1.0), dtype=np.float32)


def stack_frames(streams: int, frames: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Frames as `[streams, 512]`; raises `ValueError` for a wrong number or size."""
    if len(frames) != streams:
        raise ValueError(f"{streams} states but {len(frames)} frames")
    for frame in frames:
        if frame.shape != (FRAME_SAMPLES,):
            raise ValueError(f"a frame has shape ({FRAME_SAMPLES},), not {frame.shape}")
    return np.stack(frames).astype(np.float32, copy=False)
