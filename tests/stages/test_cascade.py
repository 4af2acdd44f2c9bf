"""The cascade stage: its grammar of reports, its hand-over by clauses, and how it stops."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.commands import (
    StageAccepted,
    StageFailed,
    StageFinished,
    StageProduced,
    StageReleased,
    StageTranscribed,
)
from antiphon.events.effects import TurnInput
from antiphon.events.items import AudioPart, Item, Message, TextPart
from antiphon.stages import cascade
from antiphon.stages.base import Abort, Confirm, Release, StageUnavailable, Submit
from antiphon.stages.cascade import CascadeSettings, CascadeStage
from antiphon.stages.chat_prompt import PromptTooLong
from antiphon.stages.turn import SILENCE, Models
from antiphon.stages.whisper import Recognition

from .fakes import FakeChat, FakeRecogniser, FakeVoice, Listener
from tests.rules import rule

PCM = AudioFormat("pcm16", 24_000)
SPEECH = SampleRef("in", 0, 32_000)


def spoken(item_id: str = "item_u", transcript: str | None = None) -> Message:
    return Message(id=item_id, role="user", content=(AudioPart(transcript, SPEECH, 16_000, 1000),))


def preview(request: str) -> Submit:
    """Ask for the words of an utterance that is still open."""
    asked = submit(spoken("item_open"), speaks=False)
    return replace(asked, request=request, payload=replace(asked.payload, response_id=None, purpose="transcribe"))


def submit(*items: Item, speaks: bool = True, target: AudioFormat = PCM, hold: bool = False) -> Submit:
    payload = TurnInput(
        session="s",
        response_id="resp_1",
        items=items or (spoken(),),
        instructions="",
        speaks=speaks,
        format=target,
        voice="default",
    )
    return Submit(request="r1", payload=payload, sound=((SPEECH, b"\0" * SPEECH.size),), hold=hold)


class Bench:
    """A started cascade over fakes."""

    def __init__(self, chat: FakeChat | None = None, recogniser: FakeRecogniser | None = None) -> None:
        self.chat, self.recogniser, self.voice = chat or FakeChat(), recogniser or FakeRecogniser(), FakeVoice()
        self.listener = Listener()
        self.stage = CascadeStage()
        models = cast("Any", (self.recogniser, self.chat, self.voice))
        self.stage.begin(Models(*models, "Be brief."), self.listener)

    def run(self, message: Submit) -> Listener:
        self.stage.handle(message)
        self.listener.until(StageFinished, StageFailed)
        return self.listener


@pytest.fixture
def bench() -> Any:
    made: list[Bench] = []

    def make(**fakes: Any) -> Bench:
        made.append(Bench(**fakes))
        return made[-1]

    yield make
    for one in made:
        if one.chat.gate is not None:
            one.chat.gate.set()
        one.stage.close()


@rule("K14", "N12")
def test_a_spoken_turn_is_recognised_written_and_spoken_in_order(bench: Any) -> None:
    one = bench()
    reports = [report for report, _ in one.run(submit()).reports]
    kinds = [type(report) for report in reports]
    assert kinds[:2] == [StageAccepted, StageTranscribed]
    assert kinds[-1] is StageFinished
    assert set(kinds[2:-1]) == {StageProduced}
    text = "".join(report.text for report in reports if isinstance(report, StageProduced))
    assert text == "Paris is the capital, and it is lovely. Come and see it."
    assert one.voice.spoken == ["Paris is the capital, ", "and it is lovely. ", "Come and see it."]


@rule("K10", "K13", "G42", "G43")
def test_k10_all_stages_of_a_turn_work_under_its_one_request_which_ends_once(bench: Any) -> None:
    listener = bench().run(submit())
    reports = [report for report, _ in listener.reports]
    assert {report.request for report in reports} == {"r1"}
    finished = [index for index, report in enumerate(reports) if isinstance(report, StageFinished)]
    produced = [index for index, report in enumerate(reports) if isinstance(report, StageProduced)]
    assert finished == [len(reports) - 1], "neither a clause nor a stage in the middle ends the turn"
    assert len(produced) > 3


def test_the_words_of_an_open_utterance_are_all_that_is_looked_for(bench: Any) -> None:
    one = bench()
    accepted, heard, finished = [report for report, _ in one.run(preview("p1")).reports]
    assert accepted == StageAccepted(request="p1")
    assert isinstance(heard, StageTranscribed)
    assert (heard.item_id, heard.text, heard.final) == ("item_open", one.recogniser.words, False)
    assert isinstance(finished, StageFinished)
    assert [cost.stage for cost in finished.costs] == ["asr"]
    assert one.chat.asked == []
    one.stage.handle(Confirm(request="p1"))
    one.stage.handle(Release(requests=("p1",)))
    assert one.listener.reports[-1][0] == StageReleased(request="p1")


def test_words_that_are_not_wanted_any_more_are_not_looked_for(bench: Any) -> None:
    """A recognition that has begun goes on and is told to nobody; one that waits does not begin."""
    entered, gate = threading.Event(), threading.Event()

    class Slow(FakeRecogniser):
        def recognise(self, audio: bytes) -> Recognition:
            entered.set()
            gate.wait(10)
            return super().recognise(audio)

    one = bench(recogniser=Slow())
    one.stage.handle(preview("p1"))
    one.stage.handle(preview("p2"))
    assert entered.wait(10)
    one.stage.handle(Abort(requests=("p1", "p2")))
    gate.set()
    one.run(submit(Message(id="item_t", role="user", content=(TextPart("Hello."),))))
    one.stage.handle(preview("p3"))
    one.listener.until(StageFinished, count=2)
    assert len(one.recogniser.heard) == 2
    told = [report.request for report, _ in one.listener.reports if isinstance(report, StageTranscribed)]
    assert told == ["p3"]


def test_a_recogniser_that_breaks_fails_the_question(bench: Any) -> None:
    class Broken(FakeRecogniser):
        def recognise(self, audio: bytes) -> Recognition:
            raise ArithmeticError

    one = bench(recogniser=Broken())
    (failed,) = one.run(preview("p1")).of(StageFailed)
    assert failed.request == "p1"


@rule("G12", "N20")
def test_sound_is_resampled_to_the_frozen_format_without_losing_a_millisecond(bench: Any) -> None:
    for target in (
        PCM,
        AudioFormat("pcm16", 16_000),
        AudioFormat("g711_ulaw", 8_000),
        AudioFormat("g711_alaw", 8_000),
    ):
        listener = bench().run(submit(target=target))
        total = sum(len(sound) for _, sound in listener.reports)
        declared = sum(report.size for report in listener.of(StageProduced))
        assert total == declared
        assert abs(target.ms(total) - 12 * 100) <= 1


def test_marks_are_on_the_responses_clock_and_may_lie_ahead(bench: Any) -> None:
    listener = bench().run(submit())
    marks = [mark for report in listener.of(StageProduced) for mark in report.marks]
    assert [(mark.chars, mark.ms) for mark in marks] == [
        (0, 0),
        (22, 400),
        (22, 400),
        (40, 800),
        (40, 800),
        (56, 1200),
    ]


def test_a_text_answer_is_shown_token_by_token(bench: Any) -> None:
    one = bench()
    listener = one.run(submit(Message(id="u", role="user", content=(TextPart("Hello"),)), speaks=False))
    assert [report.text for report in listener.of(StageProduced)] == list(one.chat.pieces)
    assert one.voice.spoken == []
    assert not any(sound for _, sound in listener.reports)


def test_the_model_is_asked_with_instructions_history_and_words(bench: Any) -> None:
    one = bench()
    history = (
        Message(id="a", role="user", content=(AudioPart("Hi.", SPEECH, 16_000, 1000),)),
        Message(id="b", role="assistant", content=(TextPart("Hello!"),)),
        spoken("c"),
    )
    one.run(submit(*history))
    asked = [(message.role, message.content) for message in one.chat.asked[0]]
    assert asked == [
        ("system", "Be brief."),
        ("user", "Hi."),
        ("assistant", "Hello!"),
        ("user", "what is the capital of france"),
    ]
    assert len(one.recogniser.heard) == 1, "known words are not recognised again"


def test_noise_without_words_is_answered_by_nothing(bench: Any) -> None:
    one = bench(recogniser=FakeRecogniser(words=""))
    listener = one.run(submit())
    assert listener.of(StageProduced) == []
    assert one.chat.asked == []
    assert isinstance(listener.until(StageFinished), StageFinished)


def test_a_user_who_stays_silent_is_prompted(bench: Any) -> None:
    """WIRE 6.3: an idle prompt has no words, and a response starts all the same."""
    one = bench(recogniser=FakeRecogniser(words=""))
    message = submit(Message(id="a", role="user", content=(TextPart("Hi."),)), spoken("b"))
    listener = one.run(replace(message, payload=replace(message.payload, idle=True)))
    assert [message.content for message in one.chat.asked[0]] == ["Be brief.", "Hi.", SILENCE]
    assert listener.of(StageProduced) != []


@rule("K24")
def test_costs_and_tokens_are_measured_where_they_happen(bench: Any) -> None:
    finished = bench().run(submit()).until(StageFinished)
    assert isinstance(finished, StageFinished)
    assert {cost.stage for cost in finished.costs} == {"asr", "llm", "tts"}
    assert (finished.usage.input_text, finished.usage.output_text) == (7, 3)


@rule("N19")
def test_an_aborted_turn_says_nothing_after_its_release(bench: Any) -> None:
    gate = threading.Event()
    one = bench(chat=FakeChat(gate=gate))
    one.stage.handle(submit())
    one.listener.until(StageTranscribed)
    one.stage.handle(Abort(requests=("r1",)))
    gate.set()
    one.stage.close()
    reports = [report for report, _ in one.listener.reports]
    assert isinstance(reports[-1], StageReleased)
    assert [type(report) for report in reports].count(StageReleased) == 1


@rule("N14", "K14")
def test_each_turn_has_sentences_of_its_own(bench: Any) -> None:
    """The first turn is in the middle of a sentence while the second one is written and spoken."""
    gate = threading.Event()
    one = bench(chat=FakeChat(pieces=("We were in the mid", "dle of it. "), gate=gate))
    one.stage.handle(submit())
    assert one.chat.begun.wait(10)
    one.chat.pieces, one.chat.gate = ("Here is another answer. ",), None
    one.stage.handle(replace(submit(), request="r2"))
    one.listener.until(StageFinished)
    assert one.voice.spoken == ["Here is another answer. "]
    gate.set()
    one.listener.until(StageFinished, count=2)
    assert one.voice.spoken[1:] == ["We were in the middle of it. "]


@rule("K19")
def test_unknown_requests_are_released_too(bench: Any) -> None:
    one = bench()
    one.stage.handle(Release(requests=("never", "seen")))
    assert one.listener.of(StageReleased) == [StageReleased(request="never"), StageReleased(request="seen")]


@rule("K5")
def test_submitting_twice_does_the_work_once(bench: Any) -> None:
    one = bench()
    one.stage.handle(submit())
    one.stage.handle(submit())
    one.listener.until(StageFinished)
    assert len(one.chat.asked) == 1
    assert len(one.listener.of(StageAccepted)) == 1


@rule("K16", "Q4.21")
def test_a_fault_of_a_model_fails_the_request_by_name_k16(bench: Any) -> None:
    listener = bench(chat=FakeChat(fault=RuntimeError("boom"))).run(submit())
    failed = listener.until(StageFailed)
    assert isinstance(failed, StageFailed)
    assert failed.code == "runtime_data_plane_stream_failed"
    assert "boom" not in failed.message, "details of a fault stay inside"


@rule("K17")
def test_instructions_without_room_for_an_answer_fail_by_the_contracts_code(bench: Any) -> None:
    failed = bench(chat=FakeChat(fault=PromptTooLong("no room"))).run(submit()).until(StageFailed)
    assert isinstance(failed, StageFailed)
    assert failed.code == "context_length_exceeded"


@pytest.mark.parametrize(("asked", "given"), [(None, 160), (7, 7), (4096, 1024)])
def test_the_length_of_an_answer_leaves_room_for_the_question(bench: Any, asked: int | None, given: int) -> None:
    one = bench()
    message = submit()
    one.run(replace(message, payload=replace(message.payload, max_output_tokens=asked)))
    assert one.chat.limits == [given]


def test_a_held_turn_speaks_when_it_is_confirmed_and_loses_nothing(bench: Any) -> None:
    one = bench()
    one.stage.handle(submit(hold=True))
    one.listener.until(StageAccepted)
    assert one.listener.of(StageProduced, StageTranscribed, StageFinished) == []
    one.stage.handle(Confirm(request="r1"))
    one.listener.until(StageFinished)
    text = "".join(report.text for report in one.listener.of(StageProduced))
    assert text == "".join(one.chat.pieces)


def test_a_missing_model_says_what_is_missing_and_how_to_get_it(tmp_path: Any) -> None:
    stage = CascadeStage(CascadeSettings(asr=str(tmp_path / "nowhere")))
    with pytest.raises(StageUnavailable, match="nowhere"):
        stage.start(Listener())
    stage.close()


def test_a_file_that_is_no_model_is_named(tmp_path: Any) -> None:
    def load(path: Path) -> None:
        raise ValueError(f"{path.name} has no magic")

    (tmp_path / "junk").write_bytes(b"junk")
    with pytest.raises(StageUnavailable, match=r"the asr model '.*junk' is not usable: junk has no magic"):
        cascade._loaded("asr", str(tmp_path / "junk"), load)
