"""The scripted stage: each step does what it says, and nothing happens by itself."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from antiphon.events.audio import AudioFormat
from antiphon.events.commands import StageAccepted, StageFinished, StageProduced, StageRefused, StageTranscribed
from antiphon.events.effects import TurnInput
from antiphon.events.items import AudioPart, Message
from antiphon.stages.base import Abort, AnyReport, Confirm, Release, Submit
from antiphon.stages.scripted import (
    Crash,
    Crashed,
    Cue,
    Deaf,
    Decide,
    Fail,
    Finish,
    Hang,
    Hear,
    Late,
    Refuse,
    Repeat,
    Say,
    Script,
    ScriptedStage,
    Sleep,
    Take,
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


def test_questions_about_an_open_utterance_have_scripts_of_their_own() -> None:
    reports: list[AnyReport] = []
    previews = {1: (Transcribe("so far", final=False), Finish())}
    stage = ScriptedStage(scripts={0: (Say("Yes."), Finish())}, previews=previews)
    stage.start(lambda report, _: reports.append(report))
    for name in ("p1", "p2"):
        asked = submit(name)
        stage.handle(replace(asked, payload=replace(asked.payload, response_id=None, purpose="transcribe")))
    stage.handle(submit("q"))
    names = [(report.request, type(report).__name__.removeprefix("Stage")) for report in reports]
    assert names == [
        *[("p1", "Accepted"), ("p1", "Finished")],
        *[("p2", "Accepted"), ("p2", "Transcribed"), ("p2", "Finished")],
        *[("q", "Accepted"), ("q", "Produced"), ("q", "Finished")],
    ]
    assert reports[3] == StageTranscribed(request="p2", item_id="said", text="so far", final=False)


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
    assert play.names[3:] == ["Accepted"]
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


def test_units_are_taken_and_refused_as_the_script_says() -> None:
    play = Play(
        (Take(2), Say("word", takes=True), Refuse(), Take(), Decide("listen", reason="why"), Decide("speak"))
    )
    play.stage.handle(submit())
    for number in range(1, 6):
        play.stage.handle(unit("q", number, b"ab"))
    answers = [report for report, _ in play.reports[1:]]
    assert [type(report).__name__ for report in answers[:4]] == [
        "StageAccepted",
        "StageAccepted",
        "StageProduced",
        "StageRefused",
    ]
    named = [report for report in answers if isinstance(report, StageAccepted | StageProduced | StageRefused)]
    assert [report.operation for report in named[:4]] == [1, 2, 3, 4]
    late = answers[4]
    assert isinstance(late, StageRefused)
    assert late.operation == 5, "it was under way behind the refused one"
    play.stage.handle(replace(unit("q", 6, b"ab"), seq=4, turn_seq=4))
    assert [type(report).__name__ for report, _ in play.reports[6:]] == [
        "StageAccepted",
        "StageSegmentFinished",
        "StageSegmentFinished",
    ]
    said = len(play.reports)
    play.stage.handle(unit("q", 6, b"ab"))
    assert len(play.reports) == said, "a unit comes once"


def test_a_unit_that_is_not_the_next_is_refused() -> None:
    play = Play((Hear(100),))
    play.stage.handle(submit())
    play.stage.handle(unit("q", 2, b"ab"))
    report, _ = play.reports[-1]
    assert isinstance(report, StageRefused)
    play.stage.handle(replace(unit("q", 3, b"ab"), seq=1))
    assert play.names[-1] == "Accepted"
