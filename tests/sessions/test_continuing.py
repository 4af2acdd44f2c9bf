"""Continuations: silence that is given to a model which paused, one unit a period, and never before real sound."""

import pytest

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.items import FunctionCall, FunctionOutput
from antiphon.sessions.plugins import ECHO
from antiphon.sessions.view import next_deadline

from tests.rules import rule
from tests.sessions.test_units import UNIT, listening, places, turns, units
from tests.sessions.world import FRAME, MS, OVERLAPPING, World, kinds, only

PERIOD = ECHO.continuation_samples // 16
"""Milliseconds of a unit of silence."""


def speaking(world: World) -> str:
    """Let the model begin an answer, all its input being accepted; return the response."""
    world.append(5)
    if not world.session.auto:
        world.commit(create_response=True)
    world.accept()
    return only(world.produce("Well, ", 100, world.resident), ev.OutputStarted).response_id


def pause(world: World, decision: cmd.Decision = "speak") -> list[ev.AnyEvent]:
    """The model waits for more; what it was given it has."""
    return world.decide(decision, world.session.input.stream.operation)


def to_deadline(world: World, late_ms: int = 0) -> list[ev.AnyEvent]:
    due = world.session.input.stream.continuation
    assert due is not None
    assert due.due is not None
    world.now = max(world.now, due.due) + late_ms * MS
    return world.tick()


@rule("G25", "G14")
@pytest.mark.parametrize("auto", [True, False])
@pytest.mark.parametrize("decision", ["listen", "speak"])
def test_a_model_that_pauses_in_an_answer_is_given_silence(auto: bool, decision: cmd.Decision) -> None:
    world = listening() if auto else turns()
    speaking(world)
    assert kinds(pause(world, decision)) == ["ContinuationPlanned"]
    events = to_deadline(world)
    assert kinds(events) == ["UnitTaken"]
    (unit,) = units(events)
    assert (unit.kind, unit.refs, unit.pad) == ("silence", (), 2 * ECHO.continuation_samples)
    assert not unit.speech
    assert not unit.final
    (feed,) = world.effects(events)
    assert isinstance(feed, fx.FeedStage)
    assert (feed.kind, feed.pad) == ("silence", unit.pad)
    assert world.session.input.reserved == 0, "silence costs the client nothing"


@rule("G25")
def test_a_model_that_listens_without_an_answer_is_left_alone() -> None:
    world = listening()
    world.append(5)
    world.accept()
    assert kinds(pause(world, "listen")) == ["ListenDecided"]
    assert kinds(pause(world, "speak")) == ["ContinuationPlanned"]


@rule("G28")
def test_the_first_deadline_counts_from_the_last_accepted_unit_and_the_next_from_the_deadline() -> None:
    world = listening()
    speaking(world)
    given = world.now
    world.wait(100)
    first = only(pause(world), ev.ContinuationPlanned).due
    assert first == given + PERIOD * MS
    to_deadline(world, late_ms=30)
    world.wait(200)
    assert only(pause(world), ev.ContinuationPlanned).due == first + PERIOD * MS, "30 ms late: the pace is kept"
    to_deadline(world)
    assert only(pause(world), ev.ContinuationPlanned).due == first + 2 * PERIOD * MS


@rule("G28", "P25")
def test_more_than_a_unit_late_is_made_up_for_by_no_burst() -> None:
    world = listening()
    speaking(world)
    pause(world)
    events = to_deadline(world, late_ms=3 * PERIOD)
    assert kinds(events) == ["UnitTaken"]
    late = world.now
    assert only(pause(world), ev.ContinuationPlanned).due == late + PERIOD * MS


@rule("G28")
def test_a_pause_behind_its_time_is_filled_at_once() -> None:
    world = listening()
    speaking(world)
    world.wait(5 * PERIOD)
    due = only(pause(world), ev.ContinuationPlanned).due
    assert due < world.now
    assert next_deadline(world.session) == due
    assert kinds(world.tick()) == ["UnitTaken"]


@rule("G28", "G27", "P26")
def test_real_sound_supersedes_a_planned_unit_and_sets_the_pace_anew() -> None:
    world = listening()
    speaking(world)
    pause(world)
    to_deadline(world)
    pause(world)
    assert kinds(world.append(5)) == ["AudioReceived", "UnitTaken"]
    going = world.session.input.stream.continuation
    assert going is not None
    assert going.due is None
    given = world.now
    world.accept()
    assert only(pause(world), ev.ContinuationPlanned).due == given + PERIOD * MS


@rule("G27", "P26")
def test_nothing_is_given_while_sound_is_under_way() -> None:
    world = listening()
    speaking(world)
    world.append(5)
    world.decide("speak", world.session.input.stream.operation - 1)
    assert world.session.input.stream.continuation is None, "not planned: sound is under way"
    world.accept()
    pause(world)
    world.append(5)
    assert next_deadline(world.session) is None, "sound came after it was planned, and nothing is idle (C3)"
    assert world.tick() == []


@rule("G27", "P26", "P37")
def test_a_unit_that_is_being_filled_goes_first_and_one_that_stays_half_full_holds_nobody_up() -> None:
    world = listening()
    speaking(world)
    world.append(2)
    due = only(pause(world), ev.ContinuationPlanned).due
    assert due == world.now + PERIOD * MS, "not from the last unit: the rest of this one may come"
    world.wait(PERIOD - 64)
    world.append(1)
    filled = world.now
    assert only(to_deadline(world), ev.ContinuationPlanned).due == filled + PERIOD * MS
    assert [unit.kind for unit in units(to_deadline(world))] == ["silence"]
    world.accept()
    assert places(world.append(2)) == [(UNIT, 2 * UNIT, 0)], "what waited is not lost"


@rule("G27", "P26")
@pytest.mark.parametrize("how", ["ends", "cancelled"])
def test_nothing_is_given_to_an_answer_that_is_over(how: str) -> None:
    world = listening()
    speaking(world)
    pause(world)
    if how == "ends":
        assert "ContinuationDropped" in kinds(world.decide("end_of_turn"))
        going = world.session.input.stream.continuation
        assert going is not None
        assert going.due is None
    else:
        world.cancel()
        assert world.session.input.stream.continuation is None, "it died with its request"


@rule("G27")
def test_one_at_a_time() -> None:
    world = listening()
    speaking(world)
    assert kinds(pause(world)) == ["ContinuationPlanned"]
    assert pause(world) == []


@rule("G26", "G25", "P25")
def test_the_last_unit_of_an_owner_only_listens_and_then_the_answer_ends() -> None:
    world = listening()
    response_id = speaking(world)
    for count in range(1, 65):
        pause(world)
        (unit,) = units(to_deadline(world))
        assert unit.force_listen == (count == 64)
    events = pause(world)
    assert kinds(events) == ["UnitsAccepted", "ListenDecided", "ResponseEnded"]
    told = only(events, ev.ListenDecided)
    assert (told.reason, told.response_id) == ("continuation_limit", response_id)
    assert world.session.turn.turn == 1
    assert world.resident == "duplex-1.e0", "the request is kept"


@rule("G25", "N40")
def test_a_session_of_turns_has_eight() -> None:
    world = turns()
    speaking(world)
    for _ in range(8):
        pause(world)
        (unit,) = units(to_deadline(world))
        assert not unit.force_listen
    assert "ContinuationPlanned" not in kinds(pause(world))


@rule("G25")
def test_another_owner_counts_from_the_beginning() -> None:
    world = listening()
    speaking(world)
    for _ in range(3):
        pause(world)
        to_deadline(world)
    world.accept()
    world.decide("end_of_turn")
    world.produce("And ", 100, world.resident)
    pause(world)
    going = world.session.input.stream.continuation
    assert going is not None
    assert going.count == 0


@rule("G29")
@pytest.mark.parametrize("decision", ["listen", "speak"])
def test_a_model_without_a_memory_is_given_no_silence(decision: cmd.Decision) -> None:
    world = World()
    response_id = world.begin()
    world.produce("Yes.", 100)
    events = world.do(cmd.StageSegmentFinished(request=world.request, decision=decision))
    assert "ContinuationPlanned" not in kinds(events)
    if decision == "listen":
        ended = only(events, ev.ResponseEnded)
        assert (ended.head.id, ended.status) == (response_id, "completed")


@rule("G29", "Q4.12")
@pytest.mark.parametrize("decision", ["listen", "speak", "end_of_turn"])
def test_the_end_of_an_answer_that_drains_does_not_end_the_next_one(decision: cmd.Decision) -> None:
    world = World(plugins=OVERLAPPING)
    world.begin("One?")
    first = world.request
    world.produce("Yes.", 100)
    world.end_inner(request=first)
    world.append(30)
    second = only(world.commit(create_response=True), ev.ResponseCreated).head.id
    world.do(cmd.StageSegmentFinished(request=first, decision=decision))
    world.do(cmd.StageFinished(request=first))
    assert world.session.response is not None
    assert world.session.response.head.id == second


@rule("J11")
def test_the_output_of_a_call_wakes_a_model_that_hears_nothing() -> None:
    world = listening()
    world.append(5)
    world.accept()
    world.item(FunctionCall(id="", call_id="c", name="f", arguments="{}"))
    events = world.item(FunctionOutput(id="", call_id="c", output="1"))
    assert kinds(events) == ["ItemCreated", "ContinuationPlanned"]
    assert [unit.kind for unit in units(world.tick())] == ["silence"]


@rule("G28", "P25")
def test_continuations_do_not_count_against_the_clients_credit() -> None:
    world = listening()
    speaking(world)
    pause(world)
    to_deadline(world)
    assert world.session.input.reserved == 0
    assert world.session.input.position == UNIT
    assert world.session.input.position == 5 * FRAME


@rule("J11", "P25")
def test_news_do_not_hurry_a_model_that_is_given_time_already() -> None:
    world = listening()
    world.item(FunctionCall(id="", call_id="c", name="f", arguments="{}"))
    speaking(world)
    pause(world)
    to_deadline(world)
    given = world.now
    world.accept()
    events = world.item(FunctionOutput(id="", call_id="c", output="1"))
    assert only(events, ev.ContinuationPlanned).due == given + PERIOD * MS


@rule("J11", "G27")
def test_a_model_that_still_hears_is_woken_behind_what_it_hears() -> None:
    world = listening()
    world.item(FunctionCall(id="", call_id="c", name="f", arguments="{}"))
    world.append(5)
    world.accept()
    world.append(1)
    heard = world.now
    events = world.item(FunctionOutput(id="", call_id="c", output="1"))
    assert only(events, ev.ContinuationPlanned).due == heard + PERIOD * MS
    assert only(world.append(4), ev.UnitTaken).told, "the sound brings it to the model"
    assert next_deadline(world.session) != heard + PERIOD * MS


@rule("J11")
@pytest.mark.parametrize("how", ["no request", "refused", "failed", "lost", "restarted"])
def test_an_output_reaches_a_model_that_could_not_be_told_of_it(how: str) -> None:
    world = listening(supports_reencode_context=True)
    world.item(FunctionCall(id="", call_id="c", name="f", arguments="{}"))
    if how != "no request":
        world.append(5)
        world.accept()
    events = world.item(FunctionOutput(id="", call_id="c", output="1"))
    if how == "refused":
        assert units(world.tick())[0].told
        events = world.refuse()
    elif how == "failed":
        events = world.fail(world.resident)
    elif how == "lost":
        events = world.lose(world.resident)
    elif how == "restarted":
        world.restart()
        world.resume()
        events = world.do(cmd.ConfirmAttachment(attachment=world.attachment))
    assert "ContinuationPlanned" in kinds(events)
    given = to_deadline(world)
    (unit,) = units(given)
    (*_, feed) = world.effects(given)
    assert isinstance(feed, fx.FeedStage)
    begun = [effect for effect in world.effects(given) if isinstance(effect, fx.SubmitToStage)]
    known = [*feed.items, *(item for submit in begun for item in submit.payload.items)]
    assert [item.call_id for item in known if isinstance(item, FunctionOutput)] == ["c"]
    assert unit.kind == "silence"


@rule("P37", "G25", "E25")
@pytest.mark.parametrize("auto", [True, False])
def test_an_answer_whose_time_was_refused_is_given_time_again_until_there_is_none_left(auto: bool) -> None:
    world = listening() if auto else turns()
    speaking(world)
    pause(world)
    offered = 0
    while world.session.response is not None:
        to_deadline(world)
        offered += 1
        events = world.refuse()
    assert offered == (64 if auto else 8)
    assert only(events, ev.ListenDecided).reason == "continuation_limit"
    assert only(events, ev.ResponseEnded).status == "completed"


@rule("E25", "P37")
def test_sound_that_was_refused_leaves_an_answer_going() -> None:
    world = listening()
    speaking(world)
    world.append(5)
    world.decide("speak", world.session.input.stream.operation - 1)
    assert "ContinuationPlanned" in kinds(world.refuse())
    for _ in range(2):
        world.append(5)
    first = world.session.input.stream.in_flight[-1].taken.operation
    assert "ContinuationPlanned" not in kinds(world.refuse(first)), "there is sound under way before it"


@rule("G27")
def test_time_that_was_planned_for_a_turn_is_not_given_to_the_answer_that_opened_since() -> None:
    world = listening()
    world.append(5)
    world.accept()
    pause(world)
    world.produce("Well, ", 100, world.resident)
    assert kinds(to_deadline(world)) == ["ContinuationDropped"]


@rule("J11", "G26")
def test_an_output_that_came_when_there_was_no_time_left_waits_for_the_next_turn() -> None:
    world = listening()
    world.item(FunctionCall(id="", call_id="c", name="f", arguments="{}"))
    speaking(world)
    for _ in range(64):
        pause(world)
        to_deadline(world)
    world.accept()
    assert kinds(world.item(FunctionOutput(id="", call_id="c", output="1"))) == ["ItemCreated"]
    world.append(5)
    assert kinds(world.refuse()) == ["ErrorReported", "UnitsGivenUp"], "the model has still to say what it does"
    assert kinds(pause(world)) == ["ListenDecided", "ResponseEnded", "ContinuationPlanned"]


@rule("J11")
def test_an_output_behind_a_refused_unit_waits_for_those_before_it() -> None:
    world = listening()
    world.item(FunctionCall(id="", call_id="c", name="f", arguments="{}"))
    world.append(10)
    world.item(FunctionOutput(id="", call_id="c", output="1"))
    events = world.refuse(2)
    assert "ItemCreated" in kinds(events)
    assert "ContinuationPlanned" not in kinds(events)
    assert kinds(world.accept()) == ["RequestAccepted", "UnitsAccepted", "ContinuationPlanned"]
