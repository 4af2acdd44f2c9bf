"""The idle prompt: a user who stays silent behind an answer is answered all the same, once (WIRE 6.3)."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.config import ConfigPatch, Dialect, Limits, TurnDetection
from antiphon.events.items import AudioPart, Message
from antiphon.sessions.view import next_deadline, prompt_at

from tests.rules import rule
from tests.sessions.world import FRAME, FRAME_MS, MS, World, kinds, only

VAD = TurnDetection(silence_duration_ms=320, min_speech_duration_ms=64, idle_timeout_ms=5_000)
IDLE = 5_000


def world(dialect: Dialect = "ga", vad: TurnDetection = VAD) -> World:
    here = World(dialect=dialect, vad=vad)
    here.say("Hello?")
    here.respond()
    return here


def answered(dialect: Dialect = "ga", ms: int = 1_000, vad: TurnDetection = VAD) -> World:
    """A session whose answer of `ms` has just been made, none of it heard yet."""
    here = world(dialect, vad)
    here.produce("All is well.", ms)
    here.finish()
    here.release()
    return here


def silence(here: World, ms: int) -> None:
    for _ in range(ms // (10 * FRAME_MS)):
        here.append(10, score=0)
    here.wait(ms % (10 * FRAME_MS))


@pytest.mark.parametrize("dialect", ["ga", "beta", "duplex"])
def test_silence_behind_an_answer_is_a_turn(dialect: Dialect) -> None:
    here = answered(dialect)
    silence(here, 1_000)
    assert prompt_at(here.session) == next_deadline(here.session) == (1_000 + IDLE) * MS
    silence(here, 4_990)
    assert here.tick() == []
    here.wait(10)
    events = here.tick()
    assert kinds(events)[:3] == ["InputTimedOut", "InputCommitted", "ItemCreated"]
    assert kinds(events)[-2:] == ["ResponseCreated", "RequestSubmitted"]
    told, committed = only(events, ev.InputTimedOut), only(events, ev.InputCommitted)
    item = only(events, ev.ItemCreated).item
    assert told.item_id == committed.item_id == item.id
    assert committed.ref is not None
    assert committed.ref.end == here.session.input.position
    assert (told.audio_start_ms, told.audio_end_ms) == (committed.ref.start // 32, committed.ref.end // 32)
    assert isinstance(item, Message)
    (part,) = item.content
    assert isinstance(part, AudioPart)
    assert (part.ref, part.ms) == (committed.ref, told.audio_end_ms - told.audio_start_ms)
    assert abs(part.ms - IDLE) <= 10 * FRAME_MS, "the silence behind the answer, and no more"
    assert (committed.is_speech, committed.empty, committed.no_response) == (False, False, False)
    (submit,) = here.effects(events)
    assert isinstance(submit, fx.SubmitToStage)
    assert submit.payload.idle, "the stage knows that nobody has spoken"


def test_it_comes_once_until_the_user_does_something() -> None:
    here = answered()
    here.wait(1_000 + IDLE)
    here.tick()
    _answer(here)
    assert prompt_at(here.session) is None
    here.wait(60_000)
    assert here.tick() == []
    here.append(3, score=900)
    here.append(20, score=0)
    assert here.session.response is not None, "the user spoke"
    _answer(here)
    assert prompt_at(here.session) is not None


def _answer(here: World) -> None:
    here.produce("Are you there?", 500)
    here.finish()
    here.release()


def test_nothing_is_prompted_before_the_first_answer() -> None:
    here = World(dialect="ga", vad=VAD)
    silence(here, 20_000)
    assert prompt_at(here.session) is None
    here = World(dialect="ga", vad=VAD)
    here.say("Hello?")
    assert prompt_at(here.session) is None


def test_an_answer_in_words_is_over_when_it_is_made() -> None:
    here = World(dialect="ga", vad=VAD, modalities=("text",))
    here.say("Hello?")
    here.respond()
    here.produce("All is well.", 0)
    here.wait(100)
    here.finish()
    assert prompt_at(here.session) == here.now + IDLE * MS


@pytest.mark.parametrize(("played", "over"), [(1_000, 0), (400, 600)])
def test_acknowledgements_tell_when_the_answer_is_over(played: int, over: int) -> None:
    here = answered("duplex")
    here.wait(3_000)
    here.ack(played)
    assert prompt_at(here.session) == here.now + (over + IDLE) * MS


def test_speech_is_no_silence_whatever_comes_of_it() -> None:
    here = answered(vad=replace(VAD, create_response=False))
    here.wait(1_500)
    here.append(3, score=900)
    assert prompt_at(here.session) is None
    here.append(20, score=0)
    assert here.session.turn.unanswered == 1
    assert prompt_at(here.session) is None


def test_a_user_who_cuts_in_is_not_prompted() -> None:
    here = world()
    here.produce("All is well, and", 1_000)
    events = here.append(3, score=900)
    assert only(events, ev.ResponseEnded).status == "cancelled"
    assert prompt_at(here.session) is None


@pytest.mark.parametrize(
    "act",
    [
        lambda here: here.say("Wait."),
        lambda here: here.do(cmd.AppendText(attachment=1, text="Wait.")),
        lambda here: (here.append(10, score=0), here.commit()),
        lambda here: here.respond(cmd.ResponseOptions(instructions="Go on.")),
        lambda here: here.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(turn_detection=None))),
    ],
    ids=["item", "text", "commit", "response", "update"],
)
def test_who_does_something_is_not_silent(act: Callable[[World], object]) -> None:
    here = answered()
    here.wait(2_000)
    assert prompt_at(here.session) is not None
    act(here)
    assert prompt_at(here.session) is None


def test_a_prompt_without_sound_is_a_turn_without_sound() -> None:
    here = answered()
    here.wait(1_000 + IDLE)
    events = here.tick()
    told = only(events, ev.InputTimedOut)
    assert told.audio_start_ms == told.audio_end_ms == 0
    assert only(events, ev.InputCommitted).ref is None
    assert here.session.response is not None


def test_the_clock_of_a_cancelled_answer_runs_too() -> None:
    here = world()
    here.cancel()
    assert prompt_at(here.session) == here.now + IDLE * MS


def test_while_a_function_works_nobody_is_prompted() -> None:
    here = world()
    here.call("f")
    here.finish()
    assert len(here.session.turn.awaited) == 1
    assert prompt_at(here.session) is None


def test_out_of_band_answers_leave_the_silence_alone() -> None:
    here = answered()
    due = prompt_at(here.session)
    here.wait(10)
    here.respond(cmd.ResponseOptions(remember=False, instructions="Sum up."))
    assert prompt_at(here.session) == due
    here.finish(next(iter(here.session.requests)))
    assert here.session.others == {}
    assert prompt_at(here.session) == due


@rule("D8")
def test_nobody_is_prompted_who_is_not_there() -> None:
    here = answered("duplex")
    here.wait(2_000)
    here.detach()
    assert prompt_at(here.session) is None
    here.wait(20_000)
    here.resume()
    due = prompt_at(here.session)
    assert due is not None
    assert due >= here.now + IDLE * MS


def test_a_model_that_listens_all_the_time_prompts_by_itself() -> None:
    here = World(plugin="echo", auto=True, vad=VAD)
    here.append(20, score=900)
    here.session.input.idle_since = here.now
    assert prompt_at(here.session) is None


def test_more_silence_is_kept_only_for_a_prompt() -> None:
    plain = answered(vad=replace(VAD, idle_timeout_ms=None))
    prompted = answered()
    for here in (plain, prompted):
        here.wait(1_000)
        silence(here, 3_200)
    assert plain.session.input.reserved < 20 * FRAME
    assert prompted.session.input.reserved >= 2_900 * 32
    prompted.append(3, score=900)
    assert prompted.session.input.reserved < 20 * FRAME, "an utterance begins with its prefix"


@rule("E12")
def test_the_silence_that_is_kept_leaves_room_for_what_is_said() -> None:
    here = World(dialect="ga", vad=VAD, limits=Limits(input_bytes=80 * FRAME))
    here.answer(ms=100)
    silence(here, 4_800)
    assert 35 * FRAME < here.session.input.reserved < 45 * FRAME
    assert kinds(here.append(3, score=900)) == ["AudioReceived", "SpeechStarted"]
