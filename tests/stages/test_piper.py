"""The voice: pieces that are the whole, durations known first, stops, and marks that fit the text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from antiphon.stages import piper
from antiphon.stages.piper import SCHEDULE, PiperVoice
from antiphon.stages.piper_split import VoiceError, split

from .models import model, voice

pytestmark = pytest.mark.models

SENTENCE = "Well, the weather in Paris is usually mild in the spring, and rather warm during the summer months."


@pytest.fixture(scope="module")
def speaker() -> Iterator[PiperVoice]:
    opened = voice()
    yield opened
    opened.close()


def sound(pieces: Iterator[NDArray[np.int16]]) -> NDArray[np.int16]:
    return np.concatenate(list(pieces))


def test_the_first_piece_is_small_and_the_length_is_known_before_it(speaker: PiperVoice) -> None:
    utterance = speaker.speak(SENTENCE)
    total = utterance.total_samples
    pieces = list(utterance)
    assert pieces[0].dtype == np.int16
    assert len(pieces[0]) == SCHEDULE[0] * speaker.hop
    assert max(len(piece) for piece in pieces) == SCHEDULE[-1] * speaker.hop
    assert sum(len(piece) for piece in pieces) == total
    # About 17 words; people say two to four in a second.
    assert 4 < total / speaker.sample_rate < 9
    assert int(np.abs(np.concatenate(pieces)).max()) > 5_000


def test_the_pieces_are_the_samples_of_one_whole_decode(
    speaker: PiperVoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    streamed = sound(speaker.speak(SENTENCE)).astype(int)
    monkeypatch.setattr(piper, "SCHEDULE", (10**6,))
    monkeypatch.setattr(piper, "_FIRST_FLOW_BLOCK", 10**6)
    whole = list(speaker.speak(SENTENCE))
    assert len(whole) == 1
    # One step of 16 bits is what rounding may differ by.
    assert np.abs(streamed - whole[0]).max() <= 1


def test_marks_follow_the_text_and_the_sound(speaker: PiperVoice) -> None:
    text = 'Hello there, Dr. Smith paid $3.50; did he? "Really?" (he said) ... the end  '
    utterance = speaker.speak(text)
    assert [text[a.text_end : b.text_end].strip() for a, b in pairwise(utterance.marks)] == [
        "Dr. Smith paid $3.50;",
        "did he?",
        '"Really?"',
        "(he said) ...",
        "the end",
    ]
    ends = [mark.sample_end for mark in utterance.marks]
    assert ends == sorted(ends)
    assert (utterance.marks[-1].text_end, ends[-1]) == (len(text), utterance.total_samples)
    # "Dr. Smith paid $3.50;" says ten words, "did he?" two.
    assert ends[1] - ends[0] > 2 * (ends[2] - ends[1])


def test_a_mark_s_sample_lies_in_a_pause(speaker: PiperVoice) -> None:
    utterance = speaker.speak("This is the first part of it. And here comes another one.")
    first = utterance.marks[0].sample_end
    loud = np.abs(sound(utterance).astype(float))
    near = loud[first - 1_500 : first + 1_500].reshape(-1, 100).max(axis=1).min()
    assert near < 0.05 * loud.max()


def test_speed_changes_the_length(speaker: PiperVoice) -> None:
    normal, fast, slow = (speaker.speak(SENTENCE, speed=speed).total_samples for speed in (1.0, 2.0, 0.5))
    assert fast / normal == pytest.approx(0.5, abs=0.1)
    assert slow / normal == pytest.approx(1.9, abs=0.3)  # each phoneme is rounded up to whole frames
    with pytest.raises(ValueError, match="speed"):
        speaker.speak(SENTENCE, speed=0)


def test_stop_ends_it_at_the_next_piece(speaker: PiperVoice) -> None:
    answers = iter([False, False, True])
    utterance = speaker.speak(SENTENCE, stop=lambda: next(answers))
    assert len(list(utterance)) == 2
    assert list(utterance) == []


@pytest.mark.parametrize("text", ["", "  \n", "...", "?!"])
def test_nothing_to_say_is_no_sound(speaker: PiperVoice, text: str) -> None:
    utterance = speaker.speak(text)
    assert (utterance.total_samples, utterance.marks, list(utterance)) == (0, (), [])


def test_strange_text_is_spoken_or_left_out(speaker: PiperVoice) -> None:
    utterance = speaker.speak("Déjà vu 🐉 costs 100 % — in 2026。 <b>x</b> \x00 你好")
    assert len(sound(utterance)) == utterance.total_samples > speaker.sample_rate


def test_with_noise_no_two_takes_are_alike() -> None:
    lively = voice(noise=None)
    try:
        first, second = sound(lively.speak("Good morning.")), sound(lively.speak("Good morning."))
    finally:
        lively.close()
    assert first.shape != second.shape or not np.array_equal(first, second)


class SilentPhonemiser:
    """Answers every text with the same phonemes, and knows whether it was closed."""

    def __init__(self) -> None:
        self.closed = False

    def phonemes(self, voice: str, texts: object) -> list[str]:
        assert voice == "en-us"
        assert isinstance(texts, list)
        return ["həlˈoʊ (fr)"] * len(texts)

    def close(self) -> None:
        self.closed = True


def test_a_phonemiser_that_was_given_is_not_closed() -> None:
    phonemiser = SilentPhonemiser()
    guest = PiperVoice(model("tts"), phonemiser=phonemiser, noise=0.0, noise_w=0.0)
    assert len(guest.speak("a, b").marks) == 2
    guest.close()
    assert not phonemiser.closed


def test_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "out").mkdir()
    with pytest.raises(VoiceError):
        split(model("vad"), tmp_path / "config.json", tmp_path / "out")
