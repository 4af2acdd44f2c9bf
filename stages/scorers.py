"""Scorers as the engine wants them: frames of bytes in, probabilities out, over either detector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from antiphon.stages.asset_errors import UNLOADABLE
from antiphon.stages.assets import resolve
from antiphon.stages.base import StageUnavailable
from antiphon.stages.energy import EnergyScorer, EnergyState
from antiphon.stages.silero import SileroScorer, SileroState

State = TypeVar("State")


class Detector(Protocol[State]):
    """A voice-activity model with states of its own kind."""

    def new_state(self) -> State:
        """The state of a stream that has not begun."""
        ...

    def score(self, states: Sequence[State], frames: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """One probability for each stream's next frame."""
        ...


class FrameScorer(Generic[State]):
    """A `stages.base.Scorer` over a detector; a stream is the detector's state."""

    def __init__(self, detector: Detector[State], kind: type[State]) -> None:
        self._detector = detector
        self._kind = kind

    def new_stream(self) -> State:
        """Return the state of one session's stream."""
        return self._detector.new_state()

    def score(self, streams: list[object], frames: list[bytes]) -> list[float]:
        """Score one frame (1,024 bytes of pcm16 at 16 kHz) of each stream."""
        states = [stream for stream in streams if isinstance(stream, self._kind)]
        samples = [np.frombuffer(frame, dtype="<i2").astype(np.float32) / np.float32(32_768.0) for frame in frames]
        return [float(probability) for probability in self._detector.score(states, samples)]


def energy() -> FrameScorer[EnergyState]:
    """Return the scorer that needs no model: loudness alone."""
    return FrameScorer(EnergyScorer(), EnergyState)


def silero(vad: str | None = None) -> FrameScorer[SileroState]:
    """Return Silero's model: the shipped one, or the ONNX file (or place on a hub) that `vad` names.

    Raises:
        StageUnavailable: the model or onnxruntime is missing.
    """
    try:
        return FrameScorer(SileroScorer(resolve("vad", vad)), SileroState)
    except UNLOADABLE as error:
        raise StageUnavailable(str(error)) from error
