"""Turns of the user that nobody has answered: by which way each of them ends (BEHAVIOURS E13, E28, F21-F23, G6)."""

import pytest

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.items import FunctionOutput

from tests.rules import rule
from tests.sessions.world import FRAME, World, error, kinds, only

LONG = 25
"""Frames of 32 ms: 800 ms of speech over an answer."""


def spoken(world: World, frames: int = LONG, *, wanted: bool = False) -> str:
    """Let the user say something; return the item."""
    world.append(frames)
    return only(world.commit(create_response=wanted), ev.InputCommitted).item_id


def delete(world: World, item_id: str) -> list[ev.AnyEvent]:
    return world.do(cmd.DeleteItem(attachment=1, item_id=item_id))


def fed(events: list[ev.AnyEvent]) -> list[tuple[int, int]]:
    """Return the sound that a resident model is given because of events."""
    units = [event for event in events if isinstance(event, ev.UnitTaken)]
    return [(ref.start, ref.end) for unit in units for ref in unit.refs]


def answered(world: World) -> None:
    """Let a resident model answer a turn and be heard."""
    spoken(world, wanted=True)
    world.accept()
    world.produce("Well.", 200)
    world.decide("end_of_turn")
    world.ack(200)


@rule("G1", "G46", "F21")
def test_what_a_resident_model_says_unasked_answers_no_turn_that_it_was_not_given() -> None:
    world = World(plugin="echo")
    answered(world)
    spoken(world)
    assert only(world.produce("And more.", 200, request=world.resident), ev.ResponseCreated).unasked
    assert world.session.turn.unanswered == 1
    world.decide("end_of_turn")
    world.ack(200)
    events = world.respond()
    assert kinds(events) == ["ResponseCreated", "UnitTaken"]
    assert fed(events) == [(LONG * FRAME, 2 * LONG * FRAME)]
    world.accept()
    assert world.session.input.reserved == 0


@rule("F22", "P37")
def test_an_answer_that_is_due_is_given_behind_one_that_nobody_asked_for() -> None:
    world = World(plugin="echo")
    spoken(world, wanted=True)
    world.accept()
    world.produce("Well.", 200)
    spoken(world, wanted=True)
    world.do(cmd.StageFailed(request=world.resident, code="engine_error", message="It stumbled.", goes_on=True))
    world.produce("As I said.", 200, request=world.resident)
    assert world.session.turn.deferred == 0
    spoken(world, wanted=True)
    assert world.session.turn.deferred == 1
    turn = LONG * FRAME
    assert fed(world.decide("end_of_turn")) == [(turn, 2 * turn), (2 * turn, 3 * turn)]


@rule("E28", "G6")
def test_sound_that_a_resident_model_will_never_hear_is_no_turn() -> None:
    world = World(plugin="echo")
    answered(world)
    spoken(world)
    world.clear()
    assert world.session.input.reserved == 0
    assert error(world.respond()) == "response_create_without_input"


@rule("E28", "G6")
def test_what_was_written_is_still_there_behind_a_clear() -> None:
    world = World(plugin="echo")
    answered(world)
    written = only(world.say("Hello."), ev.ItemCreated).item.id
    spoken(world)
    world.clear()
    assert world.session.turn.waiting == (written,)


@rule("J8", "G6")
@pytest.mark.parametrize("plugin", ["cascade", "echo"])
def test_a_turn_that_is_deleted_is_neither_heard_nor_answered(plugin: str) -> None:
    world = World(plugin=plugin)
    gone, kept = spoken(world), spoken(world)
    delete(world, gone)
    assert world.session.turn.waiting == (kept,)
    assert world.session.input.reserved == LONG * FRAME
    delete(world, kept)
    assert world.session.input.reserved == 0
    assert world.session.input.keep_from == 2 * LONG * FRAME
    assert error(world.respond()) == "response_create_without_input"


@rule("J8")
def test_a_resident_model_hears_what_is_left() -> None:
    world = World(plugin="echo")
    gone = spoken(world)
    spoken(world)
    delete(world, gone)
    assert fed(world.respond()) == [(LONG * FRAME, 2 * LONG * FRAME)]


@rule("J8", "F22")
def test_an_answer_that_is_due_to_a_deleted_turn_is_not_given() -> None:
    world = World()
    world.begin()
    world.produce("One two three.", 2_000)
    gone = spoken(world, wanted=True)
    assert world.session.turn.due == (gone,)
    delete(world, gone)
    assert (world.session.turn.deferred, world.session.input.reserved) == (0, 0)
    assert kinds(world.finish()) == ["RequestFinished", "ResponseEnded"]


@rule("J8", "E28")
def test_to_delete_a_turn_whose_sound_was_cleared_gives_nothing_back_twice() -> None:
    world = World()
    gone = spoken(world)
    world.clear()
    spoken(world)
    delete(world, gone)
    assert world.session.input.reserved == LONG * FRAME


@rule("J8")
def test_to_delete_the_only_output_calls_its_answer_off() -> None:
    world = World(auto=True)
    world.begin()
    world.call("look", call_id="c1")
    world.finish()
    world.say("And?")
    world.respond()
    world.produce("Well.", 500)
    output = only(world.item(FunctionOutput(id="", call_id="c1", output="42")), ev.ItemCreated).item.id
    assert world.session.turn.due == ("",)
    delete(world, output)
    assert (world.session.turn.deferred, world.session.turn.absorbs) == (0, False)
    assert "ResponseCreated" not in kinds(world.finish())


@rule("F23")
def test_what_is_called_off_is_the_turn_that_was_due_and_no_other() -> None:
    world = World()
    world.begin()
    world.produce("One two three.", 2_000)
    spoken(world, wanted=True)
    written = only(world.say("Hello."), ev.ItemCreated).item.id
    world.cancel()
    assert world.session.turn.waiting == (written,)
