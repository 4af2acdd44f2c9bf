"""The microphone: what was said when."""

import numpy as np

from antiphon.transport.talk_mic import FRAME, RATE, Microphone, silent


def test_silence_until_something_is_said_and_after_it() -> None:
    mic = Microphone(5_000_000)
    assert mic.take() == bytes(2 * FRAME)
    voice = np.concatenate([np.full(700, 5_000), np.zeros(300)]).astype(np.int16)
    first = mic.say(voice)
    second = mic.say(voice)
    assert (first.start, first.end) == (FRAME, FRAME + 700)
    assert (second.start, second.end) == (FRAME + 1_000, FRAME + 1_700)
    while mic.speaking:
        mic.take()
    recording = mic.recording()
    assert len(recording) == 5 * FRAME
    assert np.array_equal(recording[FRAME : FRAME + 2_000], np.concatenate([voice, voice]))
    assert not recording[FRAME + 2_000 :].any()


def test_a_piece_is_due_when_its_last_sample_was_recorded() -> None:
    mic = Microphone(1_000)
    assert mic.due_us == 1_000 + 32_000
    mic.take()
    assert mic.due_us == 1_000 + 64_000
    assert mic.time_of(RATE) == 1_000 + 1_000_000


def test_a_pause_separates_two_utterances() -> None:
    mic = Microphone(0)
    loud, short, long = (np.full(1_000, 9_000), np.zeros(RATE // 5), np.zeros(RATE // 2))
    first = mic.say(np.concatenate([loud, short, loud, long, loud]).astype(np.int16))
    assert (first.start, first.end) == (0, 2_000 + len(short))
    assert [said.start for said in mic.utterances] == [0, 2_000 + len(short) + len(long)]


def test_a_quiet_utterance_ends_where_it_ends() -> None:
    mic = Microphone(0)
    assert mic.say(np.full(100, 5, np.int16)).end == 100
    assert len(mic.recording()) == 0


def test_what_nobody_could_hear_is_silence() -> None:
    assert silent(np.zeros(0, np.int16))
    assert silent(np.full(100, -300, np.int16))
    assert not silent(np.array([0, -32_768, 0], np.int16))
