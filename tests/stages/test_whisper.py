"""The recogniser: its features against the formula, its windows, and real speech through the real model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from antiphon.stages.whisper import MAX_WINDOW_S, WhisperRecogniser, split_at_silence
from antiphon.stages.whisper_features import SAMPLE_RATE, log_mel, mel_filters

from ..recordings import recordings, word_errors, words
from .models import model, spoken

Floats = NDArray[np.float32]


def noise(seconds: float, level: float) -> Floats:
    return np.random.default_rng(3).normal(0, level, int(SAMPLE_RATE * seconds)).astype(np.float32)


# --- features ----------------------------------------------------------------------------------------------


def test_features_follow_the_formula() -> None:
    samples = noise(0.3, 0.1)
    padded = np.pad(samples.astype(np.float64), 200, mode="reflect")
    n = np.arange(400)
    fourier = np.exp(-2j * np.pi * np.outer(np.arange(201), n) / 400)
    hann = np.sin(np.pi * n / 400) ** 2
    power = np.array([np.abs(fourier @ (padded[i * 160 : i * 160 + 400] * hann)) ** 2 for i in range(30)]).T
    log = np.log10(np.maximum(mel_filters(80).astype(np.float64) @ power, 1e-10))
    expected = (np.maximum(log, log.max() - 8) + 4) / 4
    np.testing.assert_allclose(log_mel(samples), expected, atol=2e-4)


def test_the_mel_filters_are_triangles_of_area_one() -> None:
    filters = mel_filters(80)
    assert filters.shape == (80, 201)
    # An area needs a few bins under the triangle to be seen; the high filters have them.
    np.testing.assert_allclose(filters[40:].sum(axis=1) * 40.0, 1.0, atol=0.1)
    peaks = filters.argmax(axis=1)
    assert (np.diff(peaks) >= 0).all()
    # Below 1 kHz the scale is linear: 200/3 Hz a mel.
    assert abs(peaks[20] * 40.0 - (20 + 1) * 45.245_640 / 81 * 200 / 3) < 40


@pytest.mark.parametrize("hertz", [250, 1_000, 4_000])
def test_a_tone_lights_its_filter(hertz: int) -> None:
    tone = np.sin(2 * np.pi * hertz * np.arange(SAMPLE_RATE) / SAMPLE_RATE).astype(np.float32)
    brightest = int(log_mel(tone)[:, 50].argmax())
    centre = float((mel_filters(80)[brightest] * np.arange(201)).sum() / mel_filters(80)[brightest].sum() * 40.0)
    assert abs(centre - hertz) < 0.06 * hertz + 25


# --- windows -----------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.floats(0, 100))
def test_windows_joined_are_the_audio(seconds: float) -> None:
    samples = noise(seconds, 0.1)
    windows = split_at_silence(samples)
    np.testing.assert_array_equal(np.concatenate(windows), samples)
    assert max(len(window) for window in windows) <= MAX_WINDOW_S * SAMPLE_RATE
    assert all(len(window) >= 20 * SAMPLE_RATE for window in windows[:-1])


def test_a_window_ends_in_the_pause() -> None:
    samples = noise(40.0, 0.1)
    pause = slice(25 * SAMPLE_RATE, 26 * SAMPLE_RATE)
    samples[pause] = 0
    first, second = split_at_silence(samples)
    assert pause.start < len(first) < pause.stop
    assert len(first) + len(second) == len(samples)


# --- the model ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recogniser() -> WhisperRecogniser:
    return WhisperRecogniser(model("asr"))


@pytest.mark.models
@pytest.mark.parametrize(
    "sentence",
    [
        "What is the capital of France?",
        "How many days are there in a week?",
        "I would like to book a table for two people tomorrow evening.",
    ],
)
def test_speech_becomes_its_words(recogniser: WhisperRecogniser, sentence: str) -> None:
    heard = recogniser.recognise(spoken(sentence))
    assert words(heard.text) == words(sentence)
    assert heard.no_speech_prob < 0.5
    assert -1.0 < heard.avg_logprob < 0.0
    assert heard.timings.model_s > heard.timings.features_s > 0.0


@pytest.mark.models
def test_bytes_and_floats_are_heard_alike(recogniser: WhisperRecogniser) -> None:
    speech = spoken("How many days are there in a week?")
    pcm16 = np.round(speech * 32_767).astype("<i2").tobytes()
    assert recogniser.recognise(pcm16).text == recogniser.recognise(speech).text
    with pytest.raises(ValueError, match="even number"):
        recogniser.recognise(pcm16[:-1])


@pytest.mark.models
@pytest.mark.parametrize(
    "samples",
    [
        np.zeros(0, np.float32),
        np.zeros(32_000, np.float32),
        noise(2.0, 0.003),
        noise(0.25, 0.01),
        noise(2.0, 0.05),
        (0.05 * np.sin(np.arange(32_000) * 2 * np.pi * 50 / SAMPLE_RATE)).astype(np.float32),
    ],
    ids=["empty", "silence", "faint noise", "a breath", "loud noise", "hum"],
)
def test_nothing_said_is_nothing_heard(recogniser: WhisperRecogniser, samples: Floats) -> None:
    heard = recogniser.recognise(samples)
    assert heard.text == ""
    assert heard.no_speech_prob > 0.6


@pytest.mark.models
def test_long_audio_is_heard_to_its_end(recogniser: WhisperRecogniser) -> None:
    sentences = [
        "My sister lives in a small house near the river.",
        "The meeting was moved to next Thursday afternoon.",
        "He plays the piano every morning before breakfast.",
        "I forgot my umbrella at the office yesterday.",
        "Our garden is full of yellow and red flowers.",
        "The children ran down the hill to the beach.",
        "I would like to book a table for two people tomorrow evening.",
        "The train to London leaves at half past nine.",
        "What time does the last train to Berlin leave?",
        "Can you explain how a rainbow is formed?",
        "Let us meet in front of the old library.",
        "What is the capital of France?",
    ]
    gap = np.zeros(SAMPLE_RATE // 2, np.float32)
    samples = np.concatenate([part for sentence in sentences for part in (spoken(sentence), gap)])
    assert len(samples) > MAX_WINDOW_S * SAMPLE_RATE
    heard = words(recogniser.recognise(samples).text)
    said = [word for sentence in sentences for word in words(sentence)]
    assert heard[:3] == said[:3]
    assert heard[-6:] == said[-6:]
    assert abs(len(heard) - len(said)) < 0.1 * len(said)


@pytest.mark.models
def test_a_longer_context_may_be_asked_for() -> None:
    patient = WhisperRecogniser(model("asr"), min_context_s=16)
    assert words(patient.recognise(spoken("What is the capital of France?")).text)[-1] == "france"
    with pytest.raises(ValueError, match="context"):
        WhisperRecogniser(model("asr"), min_context_s=31)


@pytest.mark.models
def test_the_bigger_model_knows_languages() -> None:
    base = model("asr", "base")
    heard = WhisperRecogniser(base).recognise(spoken("What is the capital of France?"))
    assert words(heard.text) == words("What is the capital of France?")
    with pytest.raises(ValueError, match="tlh"):
        WhisperRecogniser(base, language="tlh")


@pytest.mark.models
def test_recorded_people_are_understood(recogniser: WhisperRecogniser) -> None:
    wrong = total = 0
    for recording in recordings():
        speech = recording.samples.astype(np.float32) / np.float32(32_768)
        wrong += word_errors(recording.said, recogniser.recognise(speech).text)
        total += len(words(recording.said))
    assert wrong / total <= 0.25
