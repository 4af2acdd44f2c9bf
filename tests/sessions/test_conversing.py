"""Conversation items: create, delete, retrieve (BEHAVIOURS J, WIRE 7)."""

from typing import Literal

import pytest

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.config import Limits
from antiphon.events.items import FunctionCall, FunctionOutput, Message, TextPart
from antiphon.sessions.view import prompt

from tests.rules import rule
from tests.sessions.world import World, error, kinds, only


def call(call_id: str = "c1") -> FunctionCall:
    return FunctionCall(id="", call_id=call_id, name="weather", arguments="{}")


def output(call_id: str = "c1") -> FunctionOutput:
    return FunctionOutput(id="", call_id=call_id, output="sunny")


@rule("J2")
def test_j2_an_item_of_the_user_counts_as_a_turn_to_answer() -> None:
    world = World()
    created = only(world.say("Hello."), ev.ItemCreated)
    assert created.item.id == ids.item_id("duplex-1", 1)
    assert (created.count, created.previous_item_id) == (3, None)
    assert only(world.say("Again."), ev.ItemCreated).previous_item_id == created.item.id
    assert world.session.turn.unanswered == 2


@rule("J6")
@pytest.mark.parametrize("role", ["system", "assistant"])
def test_j6_other_items_are_history_and_no_turn(role: Literal["system", "assistant"]) -> None:
    world = World()
    world.item(Message(id="", role=role, content=(TextPart("Known."),)))
    assert world.session.turn.unanswered == 0
    assert world.heard() == (["Known."] if role == "assistant" else [])


@rule("J7")
def test_wire_7_2_an_item_may_be_placed() -> None:
    world = World()
    world.say("b", "b")
    world.say("a", "a", previous_item_id="root")
    world.say("c", "c", previous_item_id="b")
    world.say("ab", "ab", previous_item_id="a")
    assert world.session.conversation.order == ["a", "ab", "b", "c"]
    assert error(world.say("x", "x", previous_item_id="none")) == "item_not_found"


@rule("J1")
@pytest.mark.parametrize("item_id", ["no good", "x" * 65, "ü"])
def test_wire_12_19_a_bad_id_is_refused(item_id: str) -> None:
    assert error(World().say("x", item_id)) == "bad_event"


@rule("J1")
def test_wire_12_19_an_id_in_use_is_refused() -> None:
    world = World()
    world.say("x", "mine")
    assert error(world.say("y", "mine")) == "item_already_exists"


@rule("J1")
def test_an_id_that_clients_were_promised_is_in_use() -> None:
    world = World()
    promised = only(world.append(), ev.SpeechStarted).item_id
    assert error(world.say("x", promised)) == "item_already_exists"
    response_id = world.begin()
    assert error(world.say("x", f"item_{response_id}")) == "item_already_exists"


def test_a_name_that_a_client_guessed_is_skipped() -> None:
    world = World()
    world.say("I guess your names.", ids.item_id("duplex-1", 2))
    assert only(world.say("x"), ev.ItemCreated).item.id == ids.item_id("duplex-1", 1)
    assert only(world.say("x"), ev.ItemCreated).item.id == ids.item_id("duplex-1", 3)
    assert world.session.counters.items == 3


def test_of_a_long_conversation_the_oldest_items_leave_the_context_and_stay_retrievable() -> None:
    world = World(limits=Limits(items=2))
    for n in range(4):
        world.say(f"line {n}", f"u{n}")
    assert [item.id for item in prompt(world.session)] == ["u2", "u3"]
    shown = world.do(cmd.RetrieveItem(attachment=1, item_id="u0"))
    assert kinds(shown) == ["ItemRetrieved"]


@rule("J10")
def test_j10_a_function_output_needs_its_call_and_comes_once() -> None:
    world = World()
    assert error(world.item(output())) == "invalid_function_call_output"
    world.item(call())
    assert kinds(world.item(output())) == ["ItemCreated"]
    refused = world.item(output())[0]
    assert isinstance(refused, ev.ErrorReported)
    assert (refused.code, refused.param) == ("invalid_function_call_output", "item.output")
    assert error(world.item(output("other"))) == "invalid_function_call_output"


# -- delete and retrieve -------------------------------------------------------------------------------------


def delete(world: World, item_id: str) -> list[ev.AnyEvent]:
    return world.do(cmd.DeleteItem(attachment=world.attachment, item_id=item_id))


@rule("J8", "I21", "P42")
def test_p42_a_deleted_item_is_gone_and_the_others_stay() -> None:
    world = World()
    for name in "abc":
        world.say(name, name)
    assert only(delete(world, "b"), ev.ItemDeleted).item_id == "b"
    assert world.session.conversation.order == ["a", "c"]
    assert error(delete(world, "b")) == "item_not_found"
    assert error(delete(world, "")) == "missing_item_id"


@rule("J8")
def test_wire_2_9_the_item_of_a_running_response_cannot_be_deleted() -> None:
    world = World()
    response_id = world.begin()
    world.produce("Hello", 100)
    world.item(Message(id="draft", role="assistant", status="in_progress", content=(TextPart("x"),)))
    assert error(delete(world, f"item_{response_id}")) == "item_in_progress"
    assert kinds(delete(world, "draft")) == ["ItemDeleted"]


def test_an_answer_finds_its_place_although_the_item_before_it_is_deleted() -> None:
    world = World()
    world.say("a", "a")
    world.say("b", "b")
    world.respond()
    delete(world, "b")
    assert only(world.produce("Hello", 100), ev.OutputStarted).previous_item_id == "a"
    delete(world, "a")
    assert only(world.finish(), ev.ResponseEnded).previous_item_id is None


def test_deleting_another_item_leaves_the_place_alone() -> None:
    world = World()
    world.say("a", "a")
    world.say("b", "b")
    world.respond()
    delete(world, "a")
    assert only(world.produce("Hello", 100), ev.OutputStarted).previous_item_id == "b"


@rule("J8")
def test_retrieve_shows_the_item_as_it_is() -> None:
    world = World()
    response_id = world.answer("one two three four", 1_000)
    world.ack(500, truncate=True)
    shown = only(world.do(cmd.RetrieveItem(attachment=1, item_id=f"item_{response_id}")), ev.ItemRetrieved)
    assert shown.item == world.session.conversation.entries[f"item_{response_id}"].item
    assert error(world.do(cmd.RetrieveItem(attachment=1, item_id="none"))) == "item_not_found"


@rule("J10")
def test_a_second_call_of_the_same_id_is_refused() -> None:
    world = World()
    call = FunctionCall(id="c1", call_id="call_1", name="look", arguments="{}")
    world.do(cmd.CreateItem(attachment=1, item=call))
    again = FunctionCall(id="c2", call_id="call_1", name="look", arguments="{}")
    assert error(world.do(cmd.CreateItem(attachment=1, item=again))) == "bad_event"


@rule("J7")
def test_a_call_without_a_name_is_given_one() -> None:
    world = World()
    made = [
        only(world.item(FunctionCall(id=f"c{n}", call_id="", name="f", arguments="")), ev.ItemCreated)
        for n in range(3)
    ]
    names = [event.item.call_id for event in made if isinstance(event.item, FunctionCall)]
    assert len(set(names)) == 3
    assert all(name.startswith("call_") and len(name) == 29 for name in names)
    assert kinds(world.item(output(names[0]))) == ["ItemCreated"]
