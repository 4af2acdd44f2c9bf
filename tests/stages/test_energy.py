"""The scorer by loudness."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.stages.energy import FRAME_SAMPLES, EnergyScorer


def level(dbfs: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """A frame of exactly this RMS level."""
    frame = np.full(FRAME_SAMPLES, 10.0 ** (dbfs / 20.0), np.float32)
    frame[::2] *= -1
    return frame


def score(*levels: float) -> list[float]:
    scorer = EnergyScorer(threshold_dbfs=-45.0, slope_db=10.0)
    return scorer.score([scorer.new_state() for _ in levels], [level(dbfs) for dbfs in levels]).tolist()


def test_silence_is_no_speech_and_a_voice_is() -> None:
    assert score(-120.0, -20.0) == [0.0, 1.0]
    scorer = EnergyScorer()
    assert scorer.score([scorer.new_state()], [np.zeros(FRAME_SAMPLES, np.float32)]).tolist() == [0.0]


def test_the_threshold_is_one_half_and_the_slope_is_linear() -> None:
    assert score(-45.0, -40.0, -50.0, -35.0, -55.0) == pytest.approx([0.5, 0.75, 0.25, 1.0, 0.0], abs=1e-4)


@given(st.floats(-100, 0), st.floats(-100, 0))
def test_louder_is_never_less_likely(one: float, other: float) -> None:
    quiet, loud = score(*sorted([one, other]))
    assert quiet <= loud


def test_bad_input_is_refused() -> None:
    scorer = EnergyScorer()
    with pytest.raises(ValueError, match="1 states but 2"):
        scorer.score([scorer.new_state()], [level(-10), level(-10)])
    with pytest.raises(ValueError, match="shape"):
        scorer.score([scorer.new_state()], [np.zeros(100, np.float32)])
    with pytest.raises(ValueError, match="slope_db"):
        EnergyScorer(slope_db=0)
    assert scorer.score([], []).tolist() == []
