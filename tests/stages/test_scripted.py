"""The scripted stage: each step does what it says, and nothing happens by itself."""

from collections.abc import Callable

import pytest

from antiphon.events.audio import AudioFormat
from antiphon.events.commands import StageFinished, StageProduced, StageTranscribed
from antiphon.events.effects import TurnInput
from antiphon.events.items import AudioPart, Message
from antiphon.stages.base import Abort, AnyReport, Confirm, Release, Submit
from antiphon.stages.scripted import (
    Crash,
    Crashed,
    Cue,
    Deaf,
    Fail,
    Finish,
    Hang,
    Hear,
    Late,
    Repeat,
    Say,
    Script,
    ScriptedStage,
    Sleep,
    Transcribe,
)

from tests.rules import rule
from tests.stages.units import unit


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0
        self.calls: list[tuple[int, Callable[[], None]]] = []

    def monotonic_us(self) -> int:
        return self.now

    def call_at(self, us: int, callback: Callable[[], None]) -> None:
        self.calls.append((us, callback))

    def move(self, ms: int) -> None:
        self.now += ms * 1000
        due = [call for call in self.calls if call[0] <= self.now]
        self.calls = [call for call in self.calls if call[0] > self.now]
        for _, callback in due:
            callback()


class Play:
    def __init__(self, *scripts: Script) -> None:
        self.clock = Hands()
        self.stage = ScriptedStage(self.clock, dict(enumerate(scripts)))
        self.reports: list[tuple[AnyReport, bytes]] = []
        self.stage.start(lambda report, sound: self.reports.append((report, sound)))

    @property
    def names(self) -> list[str]:
        return [type(report).__name__.removeprefix("Stage") for report, _ in self.reports]


def submit(request: str = "q", *, hold: bool = False) -> Submit:
    payload = TurnInput(
        session="s",
        response_id="r",
        items=(Message(id="said", role="user", content=(AudioPart(),)),),
        instructions="",
        speaks=True,
        format=AudioFormat("pcm16", 16_000),
        voice="default",
    )
    return Submit(request=request, payload=payload, hold=hold)


def test_words_sound_transcript_and_the_end() -> None:
    play = Play((Transcribe("hi"), Say("Yes.", 80), Finish()))
    play.stage.handle(submit())
    assert play.names == ["Accepted", "Transcribed", "Produced", "Finished"]
    transcribed, produced = play.reports[1][0], play.reports[2]
    assert isinstance(transcribed, StageTranscribed)
    assert transcribed.item_id == "said"
    assert isinstance(produced[0], StageProduced)
    assert (produced[0].size, len(produced[1]), set(produced[1]) != {0}) == (2_560, 2_560, True)


def test_each_request_has_its_script_and_later_ones_the_default() -> None:
    play = Play((Fail("engine_error"),))
    play.stage.handle(submit("a"))
    play.stage.handle(submit("b"))
    play.stage.handle(submit("b"))
    assert play.names == ["Accepted", "Failed", "Accepted", "Produced", "Finished"]
    assert play.stage.requests == ["a", "b", "b"]


def test_it_waits_for_cues_for_the_clock_and_for_sound() -> None:
    play = Play((Cue("go"), Say("1"), Sleep(100), Say("2"), Hear(4), Finish()))
    play.stage.handle(submit())
    assert play.names == ["Accepted"]
    play.stage.cue("go")
    assert play.names == ["Accepted", "Produced"]
    play.clock.move(99)
    assert len(play.names) == 2
    play.clock.move(1)
    assert len(play.names) == 3
    play.stage.handle(unit("q", 1, b"ab"))
    assert len(play.names) == 3
    play.stage.handle(unit("q", 2, b"cd"))
    assert play.names[-1] == "Finished"


def test_a_held_script_waits_for_its_confirmation() -> None:
    play = Play((Say("1"), Finish()))
    play.stage.handle(submit(hold=True))
    assert play.names == ["Accepted"]
    play.stage.handle(Confirm(request="q"))
    assert play.names == ["Accepted", "Produced", "Finished"]


@rule("K19")
def test_abort_ends_a_script_and_late_output_comes_before_the_release() -> None:
    play = Play((Late("late", 20), Say("1"), Hang()))
    play.stage.handle(submit())
    play.stage.handle(Abort(requests=("q", "unknown")))
    assert play.names == ["Accepted", "Produced", "Produced", "Released", "Released"]
    assert play.stage.live == []
    play.stage.cue("x")
    assert len(play.names) == 5


def test_a_deaf_script_answers_when_it_is_let_go() -> None:
    play = Play((Deaf(), Say("1"), Hang()))
    play.stage.handle(submit())
    play.stage.handle(Release(requests=("q",)))
    assert play.names == ["Accepted", "Produced"]
    play.stage.let_go()
    assert play.names[-1] == "Released"


def test_repetition_and_crash() -> None:
    play = Play((Say("1"), Repeat(), Finish(), Repeat()), (Crash(),))
    play.stage.handle(submit())
    assert play.names == ["Accepted", "Produced", "Produced", "Finished", "Finished"]
    assert play.reports[1] == play.reports[2]
    assert isinstance(play.reports[-1][0], StageFinished)
    with pytest.raises(Crashed):
        play.stage.handle(submit("b"))


def test_a_script_that_sleeps_needs_a_clock() -> None:
    stage = ScriptedStage(default=(Sleep(1),))
    stage.start(lambda report, sound: None)
    with pytest.raises(ValueError, match="clock"):
        stage.handle(submit())
    stage.close()
