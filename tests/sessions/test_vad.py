"""Turns from scores (BEHAVIOURS F5-F8, WIRE 6.1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.events.config import TurnDetection
from antiphon.sessions.state import Vad
from antiphon.sessions.vad import FRAME, Change, advance, reset, thresholds

from tests.rules import rule

QUICK = thresholds(TurnDetection(silence_duration_ms=96, min_speech_duration_ms=64, prefix_padding_ms=32))
"""Starts after two frames, stops after three, with a frame of padding."""


def changes(scores: list[int], vad: Vad | None = None, first: int = 0) -> list[tuple[str, int]]:
    return [(change.kind, change.at // FRAME) for change in advance(vad or Vad(), QUICK, scores, first)]


@rule("F5")
def test_f5_a_start_needs_its_frames_in_a_row() -> None:
    assert changes([0, 900]) == []
    assert changes([0, 900, 0, 900, 900]) == [("start", 2)]
    assert changes([500, 500]) == [("start", 0)]
    assert changes([499, 499]) == []


@rule("F5")
def test_f5_a_start_is_not_before_the_last_reset() -> None:
    vad = Vad()
    reset(vad, 4 * FRAME)
    assert changes([900, 900], vad, 4 * FRAME) == [("start", 4)]


@rule("F6")
def test_f6_a_stop_needs_its_silence() -> None:
    vad = Vad(speaking=True)
    assert changes([0, 0], vad) == []
    assert changes([0], vad, 2 * FRAME) == [("stop", 3)]


@rule("F6")
def test_f6_a_frame_of_speech_cancels_the_timer() -> None:
    assert changes([0, 0, 900, 0, 0, 0], Vad(speaking=True)) == [("stop", 6)]


@rule("F6")
def test_f6_frames_in_the_band_keep_the_timer_and_do_not_close() -> None:
    assert changes([0, 400, 400, 400, 0], Vad(speaking=True)) == [("stop", 5)]
    assert changes([400, 400, 400, 400], Vad(speaking=True)) == []


@rule("F7")
def test_f7_an_append_may_hold_both() -> None:
    assert changes([900, 900, 0, 0, 0, 900, 900]) == [("start", 0), ("stop", 5), ("start", 4)]


@rule("F8")
def test_f8_a_reset_forgets_the_stream() -> None:
    vad = Vad(run=1, run_start=5, speaking=True, silent_since=7, floor=0)
    reset(vad, 100)
    assert (vad.run, vad.speaking, vad.silent_since, vad.floor) == (0, False, None, 100)


@rule("F2")
@pytest.mark.parametrize(
    ("detection", "start", "stop", "min_frames", "silence", "prefix"),
    [
        (TurnDetection(), 500, 350, 3, 8_000, 4_800),
        (TurnDetection(threshold=0.0), 160, 10, 3, 8_000, 4_800),
        (TurnDetection(threshold=1.0, min_speech_duration_ms=0), 1_000, 850, 1, 8_000, 4_800),
        (TurnDetection(min_speech_duration_ms=33, silence_duration_ms=0, prefix_padding_ms=0), 500, 350, 2, 0, 0),
        (TurnDetection(type="semantic_vad", silence_duration_ms=1), 500, 350, 3, 14_400, 4_800),
        (TurnDetection(type="semantic_vad", eagerness="low"), 500, 350, 3, 24_000, 4_800),
    ],
)
def test_wire_4_4_the_effective_numbers(
    detection: TurnDetection, start: int, stop: int, min_frames: int, silence: int, prefix: int
) -> None:
    limits = thresholds(detection)
    assert (limits.start, limits.stop, limits.min_frames) == (start, stop, min_frames)
    assert (limits.silence, limits.prefix) == (silence, prefix)


@rule("F4")
@given(scores=st.lists(st.integers(0, 1_000), max_size=60), cut=st.integers(0, 60))
def test_it_does_not_matter_how_scores_are_delivered(scores: list[int], cut: int) -> None:
    whole, pieces = Vad(), Vad()
    expected = advance(whole, QUICK, scores, 0)
    cut = min(cut, len(scores))
    found: list[Change] = advance(pieces, QUICK, scores[:cut], 0)
    found += advance(pieces, QUICK, scores[cut:], cut * FRAME)
    assert found == expected
    assert pieces == whole


@rule("F5", "F6")
@given(scores=st.lists(st.sampled_from([0, 400, 900]), max_size=60))
def test_starts_and_stops_alternate(scores: list[int]) -> None:
    kinds = [change.kind for change in advance(Vad(), QUICK, scores, 0)]
    assert kinds == ["start", "stop"] * (len(kinds) // 2) + ["start"] * (len(kinds) % 2)
