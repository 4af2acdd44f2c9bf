"""What a model that listens decides, and whose turn its output is (BEHAVIOURS G14-G19, G38-G45, A6)."""

from typing import Any

import msgspec
import pytest

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.config import ConfigPatch
from antiphon.events.context import ContextTurn
from antiphon.events.metrics import StageCost, Usage
from antiphon.sessions import core

from tests.rules import rule
from tests.sessions.world import OVERLAPPING, World, kinds, only

CASCADE = core.REGISTRY["cascade"].capabilities


def listening(**more: Any) -> World:
    """A session whose model listens all the time, and has heard something."""
    world = World(plugin="echo", auto=True, **more)
    world.append()
    world.accept()
    return world


def decide(world: World, decision: cmd.Decision, request: str | None = None, **more: Any) -> list[ev.AnyEvent]:
    name = request or world.resident
    return world.do(cmd.StageSegmentFinished(request=name, decision=decision, **more))


def speak(world: World, text: str = "Well.", ms: int = 100, model_turn: int | None = None) -> list[ev.AnyEvent]:
    report = cmd.StageProduced(request=world.resident, text=text, size=ms * 48, model_turn=model_turn)
    return world.do(report)


def exhaust(world: World, units: int = 64) -> None:
    """Give the model all the time that it may have in a row."""
    for _ in range(units):
        events = decide(world, "speak")
        assert kinds(events) == ["ContinuationPlanned"]
        going = world.session.input.stream.continuation
        assert going is not None
        world.session.input.stream.continuation = msgspec.structs.replace(going, count=going.count + 1, due=None)
        world.watch.twin.input.stream.continuation = world.session.input.stream.continuation


# -- G14: a model that takes turns by itself -----------------------------------------------------------------


@rule("G14", "G25", "P24")
@pytest.mark.parametrize("decision", ["listen", "speak"])
def test_a_pause_in_an_answer_is_no_event_of_the_client(decision: cmd.Decision) -> None:
    world = listening()
    speak(world)
    events = decide(world, decision)
    assert kinds(events) == ["ContinuationPlanned"]
    assert world.session.response is not None


@rule("G14", "G15", "G17", "G20", "G43")
def test_the_end_of_the_model_s_turn_ends_its_answer_and_not_its_request() -> None:
    world = listening()
    head = only(speak(world), ev.ResponseCreated).head
    resident = world.resident
    events = decide(world, "end_of_turn")
    assert kinds(events) == ["ListenDecided", "ResponseEnded"]
    told, ended = only(events, ev.ListenDecided), only(events, ev.ResponseEnded)
    assert (told.response_id, told.reason, told.model) == (head.id, "model_listen", True)
    assert (ended.head.id, ended.status, ended.reason) == (head.id, "completed", "stop")
    assert world.resident == resident
    assert world.session.turn.turn == head.turn + 1
    assert world.effects(events) == []


@rule("G14", "G26")
@pytest.mark.parametrize("decision", ["listen", "speak"])
def test_with_no_time_left_the_answer_ends(decision: cmd.Decision) -> None:
    world = listening()
    head = only(speak(world), ev.ResponseCreated).head
    exhaust(world)
    events = decide(world, decision)
    told = only(events, ev.ListenDecided)
    assert (told.response_id, told.reason, told.model) == (head.id, "continuation_limit", False)
    assert only(events, ev.ResponseEnded).status == "completed"
    assert world.session.turn.turn == head.turn + 1
    assert world.resident


@rule("G1", "G14", "G17", "P24")
def test_only_changes_of_listening_are_told() -> None:
    world = listening()
    assert kinds(decide(world, "listen")) == ["ListenDecided"]
    assert decide(world, "listen") == []
    told = only(decide(world, "listen", reason="client_force_listen"), ev.ListenDecided)
    assert (told.response_id, told.reason) == (None, "client_force_listen")
    speak(world)
    decide(world, "end_of_turn")
    assert kinds(decide(world, "listen")) == ["ListenDecided"]


@rule("G17")
def test_what_is_no_news_is_a_beat() -> None:
    world = listening()

    def beats(decision: cmd.Decision = "listen", request: str | None = None, **more: Any) -> bool:
        report = cmd.StageSegmentFinished(request=request or world.resident, decision=decision, **more)
        before = core.load(core.dump(world.session))
        return core.is_beat(before, report, world.do(report))

    assert not beats(), "news"
    assert beats()
    world.append()
    assert beats(operation=world.session.input.stream.operation), "with the acceptance of its unit"
    assert not beats("speak")
    assert not beats(request="duplex-1.e7"), "of nobody"
    speak(world)
    assert not beats(), "a pause in an answer"
    assert not core.is_beat(world.session, cmd.Tick(), [])


@rule("G14")
def test_a_decision_about_another_turn_is_ignored() -> None:
    world = listening()
    speak(world)
    assert decide(world, "end_of_turn", model_turn=7) == []
    assert decide(world, "listen", model_turn=7) == []
    assert kinds(decide(world, "end_of_turn", model_turn=0)) == ["ListenDecided", "ResponseEnded"]


@rule("G1", "G18", "P24")
def test_a_model_that_must_hear_more_opens_nothing() -> None:
    world = listening()
    told = only(decide(world, "listen", buffering=True, reason="prefill"), ev.ListenDecided)
    assert (told.buffering, told.model, told.reason, told.response_id) == (True, False, "prefill", None)
    assert decide(world, "listen", buffering=True, reason="prefill") == []
    assert world.session.response is None


@rule("G18", "G25", "P37")
def test_a_model_that_must_hear_more_in_its_answer_is_given_time_and_no_answer_stays_open() -> None:
    world = World(plugin="echo")
    world.append(25)
    world.commit(create_response=True)
    assert decide(world, "listen", buffering=True) == [], "a unit is under way"
    world.accept()
    for _ in range(8):
        world.now = only(decide(world, "listen", buffering=True), ev.ContinuationPlanned).due
        assert only(world.tick(), ev.UnitTaken).kind == "silence"
        world.accept()
    events = decide(world, "listen", buffering=True)
    told = only(events, ev.ListenDecided)
    assert (told.reason, told.model) == ("continuation_limit", False)
    assert only(events, ev.ResponseEnded).status == "completed"


@rule("A6", "G1", "G19", "P24")
def test_a_turn_without_words_is_completed() -> None:
    world = listening()
    decide(world, "speak")
    events = decide(world, "end_of_turn")
    assert kinds(events) == ["ListenDecided", "TurnCompleted", "ContinuationDropped"]
    assert only(events, ev.ListenDecided).reason == "model_turn_completed_without_output"
    assert world.session.turn.turn == 1
    assert decide(world, "end_of_turn", model_turn=0) == []  # it is over already
    assert world.session.turn.turn == 1


@rule("G25")
def test_a_model_that_thinks_before_it_speaks_is_given_time() -> None:
    world = listening()
    planned = only(decide(world, "speak"), ev.ContinuationPlanned)
    assert planned.request == world.resident
    speak(world)
    after = only(decide(world, "speak"), ev.ContinuationPlanned)
    assert after.owner != planned.owner  # the response is another owner than its turn
    exhaust_turn = listening()
    exhaust(exhaust_turn)
    events = decide(exhaust_turn, "speak")
    assert kinds(events) == ["ListenDecided", "TurnCompleted"]
    assert only(events, ev.ListenDecided).reason == "continuation_limit"
    assert exhaust_turn.session.turn.turn == 1


@rule("K24", "K25")
def test_what_a_segment_cost_belongs_to_the_answer_it_was_in() -> None:
    world = listening()
    cost = StageCost(stage="thinker", output_tokens=1)
    decide(world, "listen", costs=(cost,), usage=Usage(input_audio=3))
    speak(world)
    decide(world, "speak", costs=(cost,))
    ended = only(decide(world, "end_of_turn", costs=(cost,)), ev.ResponseEnded)
    assert (ended.costs[0].output_tokens, ended.usage.input_audio) == (3, 3)


# -- G14: sessions of turns ----------------------------------------------------------------------------------


@rule("G14", "G15", "G16", "G29", "G44", "G45")
@pytest.mark.parametrize("abort", [True, False])
def test_a_silent_decision_ends_a_turn_and_lets_go_of_its_request(abort: bool) -> None:
    world = World()
    response_id = world.begin()
    request = world.request
    events = decide(world, "listen", request, abort=abort)
    assert kinds(events) == ["RequestFinished", "ListenDecided", "ResponseEnded"]
    assert only(events, ev.ListenDecided).response_id == response_id
    ended = only(events, ev.ResponseEnded)
    assert (ended.status, ended.item) == ("completed", None)
    effect = fx.AbortRequests if abort else fx.ReleaseRequests
    assert world.effects(events) == [effect(requests=(request,))]
    assert world.produce("late", 100, request) == []


@rule("G15", "G16", "K12")
@pytest.mark.parametrize("abort", [True, False])
def test_a_stage_that_finishes_in_silence_says_so(abort: bool) -> None:
    world = World()
    response_id = world.begin()
    request = world.request
    events = world.do(cmd.StageFinished(request=request, silent=True, reason="nothing_to_say", abort=abort))
    assert kinds(events) == ["RequestFinished", "ListenDecided", "ResponseEnded"]
    told = only(events, ev.ListenDecided)
    assert (told.response_id, told.reason, told.model) == (response_id, "nothing_to_say", True)
    effect = fx.AbortRequests if abort else fx.ReleaseRequests
    assert world.effects(events) == [effect(requests=(request,))]


@rule("G42", "G43")
def test_the_end_of_a_text_is_not_the_end_of_a_turn() -> None:
    world = World()
    world.begin()
    world.produce("All is well.", 100)
    world.do(cmd.StageContext(request=world.request, turn=ContextTurn(user="?", assistant="All is well.")))
    assert world.session.response is not None
    assert kinds(world.produce("", 900)) == ["AudioDelta"]
    assert only(world.finish(), ev.ResponseEnded).status == "completed"


@rule("G29")
@pytest.mark.parametrize("decision", ["speak", "end_of_turn"])
def test_a_model_without_a_memory_cannot_go_on(decision: cmd.Decision) -> None:
    world = World()
    world.begin()
    world.produce("All is well.", 100)
    assert kinds(decide(world, decision, world.request)) == ["RequestFinished", "ResponseEnded"]


@rule("G29", "H14", "Q4.12")
def test_a_segment_of_a_draining_answer_ends_nothing() -> None:
    world = World(plugins=OVERLAPPING)
    world.append(30)
    first = only(world.commit(create_response=True), ev.ResponseCreated)
    world.end_inner(request=first.request)
    world.append(30)
    world.commit(create_response=True)
    assert decide(world, "speak", first.request) == []
    assert len(world.session.open_responses) == 2


@rule("F22", "G45")
def test_a_turn_that_waits_goes_on_behind_a_silent_one() -> None:
    world = World()
    world.begin()
    world.append(30)
    world.commit(create_response=True)
    events = decide(world, "listen", world.request)
    assert kinds(events)[-2:] == ["ResponseCreated", "RequestSubmitted"]


def test_a_decision_of_nobody_is_nothing() -> None:
    world = listening()
    assert decide(world, "listen", "nobody.e0") == []


def of_turns() -> World:
    """A session whose resident model answers no more by itself."""
    world = listening()
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(auto_response=False)))
    return world


@rule("A6", "G19")
def test_in_a_session_of_turns_a_turn_without_words_is_completed_in_silence() -> None:
    world = of_turns()
    assert kinds(decide(world, "end_of_turn")) == ["TurnCompleted"]
    assert world.resident


@rule("G26")
def test_in_a_session_of_turns_nothing_more_is_offered_and_nothing_told() -> None:
    world = of_turns()
    exhaust(world, 8)
    assert decide(world, "speak") == []


@rule("G14", "G25", "G26")
@pytest.mark.parametrize("decision", ["speak", "listen"])
def test_in_a_session_of_turns_a_model_that_has_had_its_time_has_answered(decision: cmd.Decision) -> None:
    world = listening()
    head = only(speak(world), ev.ResponseCreated).head
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(auto_response=False)))
    exhaust(world, 8)
    events = decide(world, decision)
    assert kinds(events) == ["ListenDecided", "ResponseEnded"]
    told = only(events, ev.ListenDecided)
    assert (told.response_id, told.model) == (head.id, decision == "listen")


# -- whose turn an output is ---------------------------------------------------------------------------------


@rule("A6", "G40")
def test_output_of_a_later_turn_completes_the_answer_before_it() -> None:
    world = listening()
    first = only(speak(world, "One.", model_turn=0), ev.ResponseCreated).head
    events = speak(world, "Two.", model_turn=3)
    assert kinds(events) == ["ResponseEnded", "TurnCompleted", "ResponseCreated", "OutputStarted", "AudioDelta"]
    ended = only(events, ev.ResponseEnded)
    assert (ended.head.id, ended.status, ended.text) == (first.id, "completed", "One.")
    assert only(events, ev.ResponseCreated).head.turn == 3
    assert world.session.turn.turn == 3


@rule("A6", "G39", "P7")
def test_output_of_an_earlier_turn_is_late() -> None:
    world = listening()
    speak(world, "One.", model_turn=0)
    decide(world, "end_of_turn")
    assert speak(world, "late", model_turn=0) == []  # it must not open a second response
    speak(world, "Two.", model_turn=1)
    assert speak(world, "late", model_turn=0) == []
    assert kinds(speak(world, "more", model_turn=1)) == ["AudioDelta"]
    assert world.session.turn.turn == 1


@rule("A6")
def test_the_session_is_pulled_up_to_the_model_s_turn() -> None:
    world = listening()
    events = speak(world, "Hm.", model_turn=5)
    assert kinds(events)[:2] == ["TurnCompleted", "ResponseCreated"]
    assert only(events, ev.ResponseCreated).head.turn == 5
    assert world.session.turn.turn == 5


@rule("G1")
def test_nothing_said_brings_no_turn() -> None:
    world = listening()
    assert speak(world, "", 0, model_turn=5) == []
    assert world.session.turn.turn == 0


@rule("G39")
def test_in_a_session_of_turns_output_of_another_turn_is_dropped() -> None:
    world = listening()
    speak(world, "One.", model_turn=0)
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(auto_response=False)))
    assert speak(world, "Two.", model_turn=1) == []


@rule("G24")
def test_a_fault_of_a_model_that_goes_on_fails_the_answer_only() -> None:
    world = listening()
    head = only(speak(world), ev.ResponseCreated).head
    resident = world.resident
    failed = cmd.StageFailed(
        request=resident, code="runtime_data_plane_text_without_audio", message="x", goes_on=True
    )
    events = world.do(failed)
    assert kinds(events) == ["ErrorReported", "ResponseEnded"]
    assert only(events, ev.ErrorReported).code == "runtime_data_plane_text_without_audio"
    ended = only(events, ev.ResponseEnded)
    assert (ended.head.id, ended.status) == (head.id, "failed")
    assert kinds(world.do(failed)) == ["ErrorReported"]  # no response: the error only
    assert world.resident == resident
    assert kinds(speak(world))[0] == "ResponseCreated"


@rule("G24")
def test_a_request_of_a_turn_that_failed_is_let_go_of_whatever_it_says() -> None:
    world = World()
    world.begin()
    failed = cmd.StageFailed(request=world.request, code="engine_error", message="x", goes_on=True)
    assert kinds(world.do(failed)) == ["ErrorReported", "ResponseEnded", "RequestFinished"]
