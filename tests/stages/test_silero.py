"""Silero's scorer: rows are independent, and speech is told from silence and noise."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from antiphon.stages.energy import FRAME_SAMPLES
from antiphon.stages.silero import SileroScorer

from .models import model, spoken

pytestmark = pytest.mark.models
Floats = NDArray[np.float32]


@pytest.fixture(scope="module")
def scorer() -> SileroScorer:
    return SileroScorer(model("vad"))


def frames(samples: Floats) -> list[Floats]:
    count = len(samples) // FRAME_SAMPLES
    return list(samples[: count * FRAME_SAMPLES].reshape(count, FRAME_SAMPLES))


def scores(scorer: SileroScorer, samples: Floats) -> list[float]:
    state = scorer.new_state()
    return [float(scorer.score([state], [frame])[0]) for frame in frames(samples)]


def noise(seconds: float, level: float) -> Floats:
    return np.random.default_rng(7).normal(0, level, int(16_000 * seconds)).astype(np.float32)


def test_speech_is_told_from_silence_and_noise(scorer: SileroScorer) -> None:
    speech = scores(scorer, spoken("Can you tell me what time it is?"))
    assert np.mean(np.array(speech) > 0.5) > 0.7
    assert max(scores(scorer, np.zeros(32_000, np.float32))) < 0.2
    assert max(scores(scorer, noise(2.0, 0.02))) < 0.5


def test_speech_in_noise_is_found_where_it_is(scorer: SileroScorer) -> None:
    speech = spoken("Hello there, how are you?")
    found = np.array(scores(scorer, np.concatenate([noise(1.0, 0.001), speech, noise(1.0, 0.001)])))
    begin, end = 16_000 // FRAME_SAMPLES, (16_000 + len(speech)) // FRAME_SAMPLES
    assert found[begin + 2 : end - 4].mean() > 0.8
    assert found[: begin - 1].max() < 0.3
    assert found[end + 6 :].max() < 0.3


def test_a_batch_gives_what_single_runs_give(scorer: SileroScorer) -> None:
    streams = [frames(part) for part in (spoken("Good morning to you all."), noise(1.5, 0.05), noise(1.5, 0.0001))]
    ticks = min(len(stream) for stream in streams)
    states = [scorer.new_state() for _ in streams]
    together = [scorer.score(states, [stream[i] for stream in streams]) for i in range(ticks)]
    for row, stream in enumerate(streams):
        state = scorer.new_state()
        alone = [scorer.score([state], [frame])[0] for frame in stream[:ticks]]
        np.testing.assert_allclose([tick[row] for tick in together], alone, atol=1e-6)
        np.testing.assert_allclose(states[row].hidden, state.hidden, atol=1e-5)


def test_the_context_is_the_end_of_the_last_frame(scorer: SileroScorer) -> None:
    state = scorer.new_state()
    frame = noise(1.0, 0.1)[:FRAME_SAMPLES]
    scorer.score([state], [frame])
    np.testing.assert_array_equal(state.context, frame[-64:])
    assert not np.shares_memory(state.context, frame)


def test_a_refused_call_moves_no_state(scorer: SileroScorer) -> None:
    state = scorer.new_state()
    hidden, context = state.hidden, state.context
    frame = np.zeros(FRAME_SAMPLES, np.float32)
    with pytest.raises(ValueError, match="in order"):
        scorer.score([state, state], [frame, frame])
    with pytest.raises(ValueError, match="shape"):
        scorer.score([state], [frame[1:]])
    with pytest.raises(ValueError, match="2 frames"):
        scorer.score([state], [frame, frame])
    assert state.hidden is hidden
    assert state.context is context
    assert scorer.score([], []).tolist() == []
