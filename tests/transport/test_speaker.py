"""The speaker: when each sample is heard, and what an interruption leaves."""

import numpy as np

from antiphon.transport.speaker import Speaker, track

MS = 1_000


def tone(ms: int, rate: int = 24_000, value: int = 1_000) -> bytes:
    return np.full(ms * rate // 1000, value, "<i2").tobytes()


def test_pieces_are_played_one_behind_the_other() -> None:
    speaker = Speaker()
    speaker.feed(0, "a", tone(100), 24_000)
    speaker.feed(10 * MS, "a", tone(100), 24_000)
    assert speaker.played_ms("a", 150 * MS) == 150
    assert speaker.playing(150 * MS) == "a"
    assert speaker.played_ms("a", 500 * MS) == 200
    assert speaker.playing(500 * MS) is None
    assert [piece.start_us for piece in speaker.heard] == [0, 100 * MS]


def test_an_empty_queue_waits_for_the_next_piece() -> None:
    speaker = Speaker()
    speaker.feed(0, "a", tone(100), 24_000)
    speaker.feed(300 * MS, "a", tone(100), 24_000)
    assert speaker.played_ms("a", 350 * MS) == 150
    speaker.advance(400 * MS)
    assert [piece.start_us for piece in speaker.heard] == [0, 300 * MS]


def test_stopping_keeps_what_was_heard_and_drops_what_comes_later() -> None:
    speaker = Speaker()
    speaker.feed(0, "a", tone(100), 24_000)
    speaker.feed(0, "b", tone(100), 24_000)
    assert speaker.stop(40 * MS) == {"a": 40, "b": 0}
    speaker.feed(50 * MS, "a", tone(100), 24_000)
    assert speaker.received_ms("a") == 100
    assert speaker.playing(60 * MS) is None
    assert sum(len(piece.samples) for piece in speaker.heard) == 40 * 24
    speaker.feed(70 * MS, "c", tone(10), 24_000)
    assert speaker.playing(75 * MS) == "c"


def test_a_pause_holds_the_sound_to_the_sample() -> None:
    speaker = Speaker()
    speaker.feed(0, "a", tone(100, value=1) + tone(100, value=2), 24_000)
    speaker.pause(40 * MS)
    speaker.pause(45 * MS)
    speaker.feed(60 * MS, "a", tone(100, value=3), 24_000)
    assert speaker.played_ms("a", 1_000 * MS) == 40
    assert speaker.playing(1_000 * MS) == "a"
    speaker.resume(1_040 * MS)
    speaker.resume(1_050 * MS)
    assert speaker.played_ms("a", 1_140 * MS) == 140
    speaker.advance(9_000 * MS)
    assert [piece.start_us for piece in speaker.heard] == [0, 1_040 * MS, 1_200 * MS]
    heard = np.concatenate([piece.samples for piece in speaker.heard])
    assert heard.tolist() == [1] * 2_400 + [2] * 2_400 + [3] * 2_400, "no sample is lost, none comes twice"


def test_a_pause_in_silence_holds_what_comes() -> None:
    speaker = Speaker()
    speaker.pause(10 * MS)
    speaker.feed(20 * MS, "a", tone(100), 24_000)
    assert speaker.played_ms("a", 500 * MS) == 0
    speaker.resume(510 * MS)
    assert speaker.played_ms("a", 560 * MS) == 50


def test_stopping_in_a_pause_keeps_what_was_heard_before() -> None:
    speaker = Speaker()
    speaker.feed(0, "a", tone(100), 24_000)
    speaker.pause(40 * MS)
    assert speaker.stop(90 * MS) == {"a": 40}
    speaker.feed(100 * MS, "b", tone(100), 24_000)
    assert speaker.played_ms("b", 150 * MS) == 50, "it plays again"


def test_many_uneven_pieces_add_up_to_the_whole() -> None:
    speaker = Speaker()
    for _ in range(100):
        speaker.feed(0, "a", np.zeros(1_111, "<i2").tobytes(), 22_050)
    speaker.advance(60_000 * MS)
    assert speaker.received_ms("a") == speaker.played_ms("a", 60_000 * MS) == 111_100 * 1_000 // 22_050


def test_stopping_in_silence_cuts_nothing() -> None:
    speaker = Speaker()
    speaker.feed(0, "a", tone(10), 24_000)
    assert speaker.stop(20 * MS) == {}
    speaker.feed(20 * MS, "a", tone(10), 24_000)
    assert speaker.received_ms("a") == 20


def test_a_track_has_each_piece_where_it_was_heard_and_no_gap_inside_a_run() -> None:
    speaker = Speaker()
    for _ in range(10):  # 1,001 samples last 41,708.33 µs: rounding must not show
        speaker.feed(1_000 * MS, "a", np.full(1_001, 500, "<i2").tobytes(), 24_000)
    speaker.feed(2_000 * MS, "b", tone(100, rate=16_000, value=700), 16_000)
    speaker.advance(9_000 * MS)
    channel = track(speaker.heard, 500 * MS, 24_000, length=100_000)
    assert len(channel) == 100_000
    assert not channel[: 500 * 24].any()
    assert (channel[500 * 24 : 500 * 24 + 10_010] == 500).all()
    assert not channel[500 * 24 + 10_010 : 1_500 * 24 - 50].any()
    assert abs(int(channel[1_550 * 24]) - 700) < 20
    assert not track([], 0, 24_000).size
