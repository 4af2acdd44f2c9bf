"""Written turns of resident models: the conversation as a unit, silence for a seeded text, what a unit tells."""

from typing import Any

import msgspec
import pytest

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.audio import Recording, SampleRef
from antiphon.events.config import Capabilities, ConfigPatch
from antiphon.events.items import AudioPart, FunctionCall, FunctionOutput, Message, TextPart, text_of
from antiphon.sessions import core
from antiphon.sessions.plugins import REGISTRY

from tests.rules import rule
from tests.sessions.world import FRAME, World, error, kinds, only

SECOND = 32_000
"""Bytes of one second that MiniCPM hears."""
VOICE = Recording(SampleRef("ref", 0, 32_000), 7)


def able(**changes: Any) -> Capabilities:
    """The echo, with units of 160 ms."""
    return msgspec.structs.replace(REGISTRY["echo"].capabilities, **{"chunk_period_ms": 160, **changes})


def listening(**changes: Any) -> World:
    return World(plugin="echo", auto=True, capabilities=able(**changes))


def seeded(*, auto: bool) -> World:
    """MiniCPM, asked to sing."""
    world = World(plugin="minicpm-o-4.5", auto=auto, ref_audio=VOICE)
    patch = ConfigPatch(echo={"initial_user_text": '"Sing."'})
    world.do(cmd.UpdateSession(attachment=1, patch=patch))
    return world


def units(events: list[ev.AnyEvent]) -> list[ev.UnitTaken]:
    return [event for event in events if isinstance(event, ev.UnitTaken)]


def feeds(world: World, events: list[ev.AnyEvent]) -> list[fx.FeedStage]:
    return [effect for effect in world.effects(events) if isinstance(effect, fx.FeedStage)]


def told(world: World, events: list[ev.AnyEvent]) -> list[list[str]]:
    """The words that each unit tells the model of."""
    return [[text_of(item) for item in feed.items] for feed in feeds(world, events)]


# -- a seeded text (G7) --------------------------------------------------------------------------------------


@rule("G7", "N37", "G8")
@pytest.mark.parametrize("auto", [False, True])
def test_a_seeded_text_is_begun_with_announced_and_given_the_silence_to_start(auto: bool) -> None:
    world = seeded(auto=auto)
    assert world.session.turn.seeded
    events = world.respond()
    assert kinds(events) == ["ResponseCreated", "RequestSubmitted", "UnitTaken", "UnitTaken", "UnitTaken"]
    head = only(events, ev.ResponseCreated).head
    assert [(unit.kind, unit.pad, unit.refs, unit.speech) for unit in units(events)] == [
        ("silence", SECOND, (), False)
    ] * 3
    assert {unit.response_id for unit in units(events)} == {head.id}
    assert [unit.final for unit in units(events)] == [False, False, True]
    assert [unit.force_listen for unit in units(events)] == [False] * 3
    submitted, *given = world.effects(events)
    assert isinstance(submitted, fx.SubmitToStage)
    assert [text_of(item) for item in submitted.payload.items] == ["Sing."]
    last = given[-1]
    assert isinstance(last, fx.FeedStage)
    assert last.turn is not None
    assert last.turn.response_id == head.id
    assert not world.session.turn.seeded
    world.accept()
    created = kinds(world.produce("La la.", 500))
    assert created == ["OutputStarted", "AudioDelta"]
    assert world.session.response is not None
    assert world.session.response.head.id == head.id


@rule("N40", "G25", "G7")
@pytest.mark.parametrize(("auto", "most"), [(False, 8), (True, 64)])
def test_the_silence_that_lets_it_start_is_no_continuation(auto: bool, most: int) -> None:
    world = seeded(auto=auto)
    world.respond()
    world.accept()
    given = 0
    while True:
        events = world.decide("listen" if auto else "speak")
        if "ContinuationPlanned" not in kinds(events):
            break
        world.wait(1_000)
        (unit,) = units(world.tick())
        assert (unit.kind, unit.pad, unit.response_id) == ("silence", SECOND, None)
        world.accept()
        given += 1
    assert given == most


@rule("G22", "G7", "E25")
def test_a_refused_unit_of_its_silence_fails_the_answer() -> None:
    world = seeded(auto=False)
    world.respond()
    events = world.refuse(2)
    assert kinds(events) == ["UnitsGivenUp", "ErrorReported", "ResponseEnded"]
    assert world.session.response is None
    assert world.session.input.reserved == 0


@rule("G7", "G6")
def test_sound_that_was_committed_starts_a_seeded_turn_by_itself() -> None:
    world = seeded(auto=False)
    world.append(20)
    events = world.commit(create_response=True)
    (unit,) = units(events)
    assert (unit.kind, unit.refs[0].size, unit.final) == ("audio", 20 * FRAME, True)


@rule("G7", "G6")
def test_a_seeded_turn_starts_in_the_first_command_behind_a_resume_too() -> None:
    world, straight = seeded(auto=False), seeded(auto=False)
    world.detach()
    world.resume()
    assert [unit.kind for unit in units(world.respond())] == [unit.kind for unit in units(straight.respond())]


@rule("G7", "G6")
def test_once_answered_a_seeded_model_is_not_primed_again() -> None:
    world = seeded(auto=False)
    world.respond()
    world.accept()
    world.produce("La.", 100)
    world.decide("end_of_turn")
    world.ack(100)
    assert error(world.respond()) == "response_create_without_input"
    world.say("Again!")
    assert only(world.respond(), ev.ErrorReported).code == "text_only_turn_unsupported"


@rule("G6", "G7")
def test_a_resident_model_that_cannot_be_primed_answers_no_seeded_text() -> None:
    world = listening(supports_text_only_turn=False)
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(echo={"initial_user_text": '"Sing."'})))
    events = world.respond()
    assert kinds(events) == ["ErrorReported", "UnansweredDropped"]
    assert only(events, ev.ErrorReported).code == "text_only_turn_unsupported"


@rule("G6", "G7")
def test_a_model_that_heard_something_was_told_its_seed() -> None:
    world = seeded(auto=True)
    world.append(32)
    world.accept()
    assert kinds(world.respond()) == ["OptionsReserved"]


# -- the conversation (G6, row 4) ----------------------------------------------------------------------------


@rule("G6", "G8")
def test_row_4_a_session_that_heard_nothing_yet_answers_what_was_written() -> None:
    world = listening()
    world.say("How are you?")
    events = world.respond()
    assert kinds(events) == ["ResponseCreated", "RequestSubmitted", "UnitTaken"]
    (unit,) = units(events)
    assert (unit.kind, unit.refs, unit.pad, unit.final, unit.told) == ("conversation", (), 0, True, ())
    (feed,) = feeds(world, events)
    assert feed.turn is not None
    assert [text_of(item) for item in feed.turn.items] == ["How are you?"]
    world.accept()
    assert kinds(world.produce("Well.", 100)) == ["OutputStarted", "AudioDelta"]
    assert "ResponseEnded" in kinds(world.decide("end_of_turn"))


@rule("G6", "K27")
def test_row_4_a_model_that_listens_is_told_what_was_written_and_asked_for_an_answer() -> None:
    world = listening()
    world.append(7, speech=False)
    world.accept()
    world.wait(1_000)
    world.say("How are you?", "mine")
    events = world.respond()
    assert kinds(events) == ["ResponseCreated", "UnitTaken"]
    (unit,) = units(events)
    assert (unit.kind, unit.told, unit.seq, unit.response_id) == (
        "conversation",
        ("mine",),
        2,
        only(events, ev.ResponseCreated).head.id,
    )
    assert told(world, events) == [["How are you?"]]
    assert world.session.response is not None
    assert (world.session.response.since, world.session.response.by_unit) == (world.now, False)
    assert world.session.input.stream.waiting == 2 * FRAME, "sound that is no unit yet goes on"
    world.accept()
    assert [unit.refs[0].start for unit in units(world.append(3, speech=False))] == [5 * FRAME]


@rule("E22", "G6")
def test_pictures_of_sound_that_waits_stay_with_it() -> None:
    world = listening(optional_input_modalities=("text", "video"))
    world.append(2, speech=False, pictures=(10,))
    world.say("What is that?")
    assert [unit.frames for unit in units(world.respond())] == [()]
    world.accept()
    assert [len(unit.frames) for unit in units(world.append(3, speech=False))] == [1]


@rule("G6", "G3")
def test_row_2_a_model_that_is_about_to_answer_answers_the_written_turn_with_it() -> None:
    world = listening()
    world.append(5)
    world.say("In French, please.")
    assert kinds(world.respond()) == ["OptionsReserved"], "speech is under way"
    other = listening()
    other.append(5, speech=False)
    other.accept()
    other.decide("speak")
    other.say("In French, please.")
    assert kinds(other.respond()) == ["OptionsReserved"], "the model has said that it will speak"


@rule("G6")
def test_row_5_a_model_that_only_listens_refuses_in_its_stream_too() -> None:
    world = listening(supports_text_only_turn=False)
    world.say("Hello?")
    assert only(world.respond(), ev.ErrorReported).code == "text_only_turn_unsupported"
    assert error(world.respond()) == "response_create_without_input"
    world.append(5, speech=False)
    world.accept()
    world.say("Hello?")
    assert kinds(world.respond()) == ["ErrorReported", "UnansweredDropped"]
    assert kinds(world.respond()) == ["OptionsReserved"]


@rule("G6", "J11")
def test_the_output_of_a_call_is_no_written_turn_of_a_model_that_listens() -> None:
    world = listening(supports_text_only_turn=False)
    world.append(5, speech=False)
    world.accept()
    world.item(FunctionCall(id="", call_id="a", name="f", arguments="{}"))
    world.give_output("a")
    assert kinds(world.respond()) == ["OptionsReserved"]


# -- what a unit tells ---------------------------------------------------------------------------------------


@rule("G6", "J11")
def test_each_unit_tells_what_was_written_since_the_last_one_once() -> None:
    world = listening()
    world.say("Before.")
    first = world.append(5, speech=False)
    assert told(world, first) == [[]], "the request begins with it"
    world.say("One.")
    world.say("Two.")
    assert told(world, world.append(10, speech=False)) == [["One.", "Two."], []]
    assert world.session.input.stream.untold == ()
    world.item(FunctionCall(id="", call_id="a", name="f", arguments="{}"))
    world.accept()
    world.give_output("a")
    (feed,) = feeds(world, world.tick())
    assert [type(item) for item in feed.items] == [FunctionCall, FunctionOutput]


@rule("G6")
def test_what_was_deleted_meanwhile_is_not_told() -> None:
    world = listening()
    world.append(5, speech=False)
    world.say("One.", "one")
    world.say("Two.", "two")
    world.do(cmd.DeleteItem(attachment=1, item_id="one"))
    world.accept()
    events = world.append(5, speech=False)
    assert told(world, events) == [["Two."]]
    world.do(cmd.DeleteItem(attachment=1, item_id="two"))
    world.refuse()
    assert told(world, world.append(5, speech=False)) == [[]]


@rule("E25", "G6")
def test_what_a_refused_unit_would_have_told_is_told_by_the_next() -> None:
    world = listening()
    world.append(5, speech=False)
    world.accept()
    world.say("One.")
    world.append(5, speech=False)
    world.say("Two.")
    world.refuse()
    assert told(world, world.append(5, speech=False)) == [["One.", "Two."]]


@rule("G6", "E35")
def test_sound_that_was_heard_is_not_told_and_what_was_written_beside_it_is() -> None:
    world = World(plugin="echo", capabilities=able())
    world.begin()
    world.accept()
    world.decide("end_of_turn")
    world.append(7)
    world.do(cmd.AppendText(attachment=1, text="See above."))
    first, last = feeds(world, world.commit(create_response=True))
    (item,) = first.items
    assert isinstance(item, Message)
    assert item.content == (TextPart("See above."),)
    assert last.items == ()
    world = listening()
    world.append(5)
    world.accept()
    world.commit()
    assert told(world, world.append(5)) == [[]]
    world.item(Message(id="", role="user", content=(AudioPart(size=320),)))
    (feed,) = feeds(world, world.append(5))
    assert [type(item) for item in feed.items] == [Message], "sound of an item is nothing that it heard"


@rule("G6")
def test_a_turn_with_input_of_its_own_tells_nothing_of_the_conversation() -> None:
    world = World(plugin="echo", capabilities=able())
    world.begin("One.")
    world.accept()
    world.decide("end_of_turn")
    world.say("Two.")
    events = world.respond(cmd.ResponseOptions(input=()))
    assert told(world, events) == [[]]
    world.accept()
    world.decide("end_of_turn")
    world.say("Three.")
    assert told(world, world.respond()) == [["Two.", "Three."]]


@rule("A10", "E20")
def test_a_request_that_begins_anew_is_told_everything_at_its_beginning() -> None:
    world = listening()
    world.append(5)
    world.accept()
    world.produce("Yes.", 100, world.resident)
    world.say("One.")
    world.cancel()
    events = world.append(5)
    assert told(world, events) == [[]]
    (submitted,) = [effect for effect in world.effects(events) if isinstance(effect, fx.SubmitToStage)]
    assert "One." in [text_of(item) for item in submitted.payload.items]


@rule("J12")
def test_function_outputs_that_come_in_batches_are_told_so() -> None:
    world = World(plugin="nemotron-voicechat", auto=True)
    assert core.REGISTRY["nemotron-voicechat"].tool_batches
    world.do(cmd.AppendAudio(attachment=1, size=2_560, wire_bytes=2_560))
    world.accept()
    world.produce("", 10, world.resident)
    call = world.call(request=world.resident)
    call_id = only(call, ev.CallStarted).item.call_id
    world.give_output(call_id)
    assert world.session.batches.pending
    assert world.session.input.stream.untold == ()
