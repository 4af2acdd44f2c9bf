"""Silero's voice-activity model on onnxruntime: probabilities of speech, many streams in one run.

The model takes 512 new samples at 16 kHz behind 64 samples of left context, and a recurrent state of
`[2, streams, 128]`. Its rows are independent (a batch gives bit for bit what single runs give), so a tick of
many sessions is one call: 0.07 ms for one stream, 0.5 ms for 16, 1.8 ms for 64 on one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from antiphon.stages.energy import FRAME_SAMPLES, stack_frames
from antiphon.stages.foreign import onnx_session

SAMPLE_RATE = 16_000
CONTEXT_SAMPLES = 64
_STATE_SHAPE = (2, 128)


@dataclass(slots=True)
class SileroState:
    """What the model remembers of one stream: `hidden [2, 128]` and the last 64 samples, both float32.

    `SileroScorer.score` replaces both arrays; it never writes into them, so a copy of the references is a
    snapshot.
    """

    hidden: NDArray[np.float32] = field(default_factory=lambda: np.zeros(_STATE_SHAPE, np.float32))
    context: NDArray[np.float32] = field(default_factory=lambda: np.zeros(CONTEXT_SAMPLES, np.float32))


class SileroScorer:
    """Scores frames with the ONNX model at `model`; one thread, which sleeps between calls.

    Calls may come from any thread; a `SileroState` belongs to one call at a time. Raises `AssetMissing` when
    onnxruntime is not installed.
    """

    def __init__(self, model: Path) -> None:
        self._session = onnx_session(model, threads=1)
        self._rate = np.array(SAMPLE_RATE, np.int64)

    def new_state(self) -> SileroState:
        """The state of a stream that has not begun."""
        return SileroState()

    def score(self, states: Sequence[SileroState], frames: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """One probability of speech for each stream's next frame; moves every state one frame on.

        A frame is 512 float32 samples in -1..1 at 16 kHz. Raises `ValueError` when the numbers of states and
        frames differ, a frame has another size or a state appears twice; the states are then untouched.
        """
        if not states and not frames:
            return np.zeros(0, np.float32)
        fresh = stack_frames(len(states), frames)
        if len({id(state) for state in states}) != len(states):
            raise ValueError("a stream's frames are scored in order: one of its frames in each call")
        context = np.stack([state.context for state in states])
        hidden = np.stack([state.hidden for state in states], axis=1)
        feed = {"input": np.concatenate([context, fresh], axis=1), "state": hidden, "sr": self._rate}
        probabilities, after = self._session.run(["output", "stateN"], feed)
        for row, state in enumerate(states):
            state.hidden = np.ascontiguousarray(after[:, row])
            state.context = fresh[row, FRAME_SAMPLES - CONTEXT_SAMPLES :].copy()
        return np.asarray(probabilities[:, 0], dtype=np.float32)
