"""The story of a log: times, turns, answers, what was heard, and that it can be drawn."""

from pathlib import Path

import numpy as np
import pytest

from antiphon.events import commands as cmd
from antiphon.events.audio import AudioFormat
from antiphon.events.config import TurnDetection
from antiphon.transport.timeline import Answer, Story, tell
from antiphon.transport.timeline_spans import spans, waits
from antiphon.transport.wav import Pcm

from tests.sessions.world import QUICK_VAD, World


def say(world: World, frames: int = 20) -> None:
    """Speak and fall silent for long enough that the turn ends."""
    world.append(3, score=20)
    for _ in range(frames):
        world.append(1, score=900)
    for _ in range(12):
        world.append(1, score=20)


def ack(world: World, response_id: str, ms: int) -> None:
    world.do(cmd.AckPlayback(attachment=world.attachment, played_ms=ms, response_id=response_id))


@pytest.fixture
def world() -> World:
    """One turn answered in full, one cut at 500 ms of 900, and a lost connection."""
    world = World(vad=QUICK_VAD)
    for cut in (False, True):
        say(world)
        assert world.session.response is not None
        response_id = world.session.response.head.id
        world.wait(200)
        for _ in range(3):
            world.produce("some words ", 300)
        if not cut:
            world.finish()
        for ms in range(100, 1_000 if not cut else 501, 100):
            world.wait(100)
            ack(world, response_id, min(ms, 900))
    for _ in range(4):
        world.append(1, score=900)
    world.detach()
    world.wait(700)
    world.resume()
    return world


def story_of(world: World) -> Story:
    return tell(world.log)


def test_what_happened_is_told_in_seconds_from_the_beginning(world: World) -> None:
    story = story_of(world)
    assert story.session == "duplex-1"
    assert story.plugin == "cascade 1"
    assert story.transactions == len(world.log)
    assert story.end_s == pytest.approx((world.now - world.log[0].at) / 1e6)
    assert [turn.committed_s is not None for turn in story.turns] == [True, True, False]
    assert story.turns[0].start_s < 3 * 0.032 + 0.001  # with the padding, not before the beginning
    assert story.turns[0].stop_s is not None


def test_every_score_has_its_time(world: World) -> None:
    story = story_of(world)
    assert story.scores[0] == (pytest.approx(0.032), 0.02)
    assert story.scores[3] == (pytest.approx(0.128), 0.9)
    assert story.time_of(1_024) == pytest.approx(0.032)


def test_what_a_stage_was_asked_of_an_open_utterance_is_work() -> None:
    world = World(vad=TurnDetection(type="semantic_vad"))
    world.append(10, score=900)
    world.append(7, score=0)
    world.do(cmd.StageFinished(request="duplex-1.e0.preview1"))
    world.append(3, score=900)
    world.append(7, score=0)
    world.append(1, score=0)
    world.clear()
    first, second = tell(world.log).work
    assert (first.start_s, first.end_s, first.end) == (pytest.approx(0.544), pytest.approx(0.544), "finished")
    assert (second.start_s, second.end_s, second.end) == (pytest.approx(0.864), pytest.approx(0.896), "aborted")


def test_what_was_heard_of_an_answer(world: World) -> None:
    whole, cut = story_of(world).answers
    assert (whole.status, whole.sent_ms, whole.played_ms, whole.heard_ms) == ("completed", 900, 900, None)
    assert (cut.status, cut.sent_ms, cut.played_ms, cut.basis) == ("cancelled", 900, 500, "ack")
    assert cut.heard_text is not None
    assert cut.text.startswith(cut.heard_text)
    (stretch,) = spans(whole)
    assert (stretch.from_ms, stretch.to_ms) == (0, 900)
    assert stretch.end_s - stretch.start_s == pytest.approx(0.9)


def test_a_pause_is_seen_and_a_late_acknowledgement_is_none() -> None:
    answer = Answer("resp", "item", 0.0, AudioFormat("pcm16", 24_000))
    answer.points = [(1.1, 100), (1.2, 200), (1.9, 300), (1.9, 400), (1.9, 900), (2.5, 1_000), (2.6, 1_100)]
    first, second = spans(answer)
    assert (first.from_ms, first.to_ms, first.start_s, first.end_s) == (
        0,
        900,
        pytest.approx(1.0),
        pytest.approx(1.9),
    )
    assert (second.from_ms, second.to_ms, second.end_s) == (900, 1_100, pytest.approx(2.6))


def test_an_answer_nobody_acknowledged_is_heard_from_its_first_sound_on() -> None:
    world = World(dialect="ga")
    world.answer(ms=1_000)
    (answer,) = tell(world.log).answers
    (span,) = spans(answer)
    assert (span.start_s, span.end_s, span.to_ms) == (
        answer.first_s,
        pytest.approx((answer.first_s or 0) + 1),
        1_000,
    )


def test_interruptions_work_and_connections(world: World) -> None:
    story = story_of(world)
    assert [mark.label for mark in story.interruptions] == ["turn_detected"]
    assert [work.end for work in story.work] == ["finished", "aborted"]
    assert all(work.first_s is not None and work.first_s >= work.start_s for work in story.work)
    first, second = story.connections
    assert first.end_s is not None
    assert second.start_s - first.end_s == pytest.approx(0.7)
    assert (first.reason, second.attachment, second.end_s) == ("disconnect", 2, None)


def test_the_wait_runs_from_the_last_voice_to_the_first_sound(world: World) -> None:
    for wait in waits(story_of(world)):
        assert wait.until_s - wait.from_s == pytest.approx(0.32 + 0.2, abs=0.065)


def test_a_log_is_drawn_with_and_without_its_sound(world: World, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from antiphon.transport.timeline_plot import Sound, draw

    def noise(start: int, end: int) -> Pcm:
        return np.full((end - start) // 2, 9_000, np.int16)

    draw(story_of(world), tmp_path / "a.png")
    draw(story_of(world), tmp_path / "b", Sound(noise, noise))
    draw(tell(world.log[:1]), tmp_path / "c.png")
    sizes = [(tmp_path / name).stat().st_size for name in ("a.png", "b", "c.png")]
    assert sizes[1] > sizes[0] > sizes[2] > 5_000


def test_words_are_drawn_as_they_are_and_move_no_cursor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    from antiphon.transport.timeline_plot import draw

    world = World(vad=QUICK_VAD)
    say(world)
    world.produce("\x1b[2J\x9b\u202e it costs $5, or $\\frac$; 你好 ", 300)
    world.finish()
    draw(story_of(world), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5_000
    assert capsys.readouterr() == ("", "")
