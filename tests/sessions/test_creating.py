"""What a client asks of an answer: `response.create` row by row, options, `response.cancel` (G1-G8, G31)."""

from typing import Literal

import msgspec
import pytest

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.audio import AudioFormat
from antiphon.events.config import ConfigPatch
from antiphon.events.items import AudioPart, FunctionCall, FunctionOutput, ItemReference, Message, TextPart
from antiphon.sessions import core
from antiphon.sessions.view import prompt

from tests.rules import rule
from tests.sessions.world import World, capable, error, kinds, only

CASCADE = core.REGISTRY["cascade"].capabilities
HEARS = capable(CASCADE, supports_text_only_turn=False)


# -- G6, row by row ------------------------------------------------------------------------------------------


@rule("G2", "G6", "P18")
def test_row_1_one_answer_at_a_time() -> None:
    world = World()
    response_id = world.begin()
    refused = only(world.respond(), ev.ErrorReported)
    assert refused.code == "response_already_active"
    assert response_id in refused.message
    world.produce("All is well.", 1_000)
    world.finish()
    world.say("More?")
    assert error(world.respond()) == "response_already_active"  # it is still played
    world.wait(1_000)
    assert kinds(world.respond())[0] == "ResponseCreated"


@rule("G3", "G6")
def test_row_2_options_wait_for_the_answer_that_the_model_is_about_to_give() -> None:
    world = World(plugin="echo", auto=True)
    world.append()
    assert kinds(world.respond(cmd.ResponseOptions(metadata={"k": "v"}))) == ["OptionsReserved"]
    created = only(world.produce("", 100, world.resident), ev.ResponseCreated)
    assert created.head.metadata == {"k": "v"}
    assert created.options == cmd.ResponseOptions(metadata={"k": "v"})
    world.finish(world.resident)
    world.append()
    again = only(world.produce("", 100, world.resident), ev.ResponseCreated)
    assert again.head.metadata is None  # once


@rule("G4", "G6")
def test_row_2_options_are_reserved_once() -> None:
    world = World(plugin="echo", auto=True)
    world.append()
    world.respond(cmd.ResponseOptions(speed=1.5))
    assert error(world.respond(cmd.ResponseOptions(speed=0.5))) == "response_already_active"
    assert only(world.produce("", 100, world.resident), ev.ResponseCreated).head.speed == 1.5


@rule("G36", "A5")
def test_an_interruption_drops_reserved_options() -> None:
    world = World(plugin="echo", auto=True)
    world.append()
    world.produce("", 100, world.resident)
    world.finish(world.resident)
    world.append()
    world.respond(cmd.ResponseOptions(speed=1.5))
    assert "Interrupted" in kinds(world.barge_in())
    assert world.session.reserved is None


@rule("G6")
def test_row_2_they_wait_also_for_the_request_that_takes_the_place_of_the_last_one() -> None:
    world = World(plugin="echo", auto=True)
    world.append(2)
    world.accept()
    options = cmd.ResponseOptions(metadata={"topic": "weather"})
    assert kinds(world.respond(options)) == ["OptionsReserved"]
    world.finish(world.resident)
    assert world.session.reserved == options
    world.append(2)
    opened = only(world.produce("Well.", 100, world.resident), ev.ResponseCreated)
    assert opened.head.metadata == {"topic": "weather"}


@rule("G6")
def test_row_3_an_answer_to_committed_sound() -> None:
    world = World(capabilities=HEARS)
    world.append(10)
    world.commit(create_response=False)
    assert world.session.input.retained
    assert world.session.turn.unanswered == 1
    assert kinds(world.respond()) == ["ResponseCreated", "RequestSubmitted"]
    assert not world.session.input.retained
    assert world.session.turn.unanswered == 0


@rule("G6")
def test_row_4_an_answer_to_what_was_written() -> None:
    world = World()
    world.say("Hello?")
    assert kinds(world.respond()) == ["ResponseCreated", "RequestSubmitted"]
    assert world.session.turn.unanswered == 0


@rule("G6")
@pytest.mark.parametrize("dialect", ["ga", "beta", "duplex"])
def test_row_5_a_model_that_only_listens_answers_nothing_written(dialect: str) -> None:
    world = World(dialect=dialect, capabilities=HEARS)  # type: ignore[arg-type]
    world.say("Hello?")
    events = world.respond()
    assert kinds(events) == ["ErrorReported", "UnansweredDropped"]
    refused = only(events, ev.ErrorReported)
    assert refused.code == "text_only_turn_unsupported"
    assert "initial_user_text" in refused.message
    assert world.session.response is None
    assert world.session.turn.unanswered == 0
    if dialect == "duplex":
        assert error(world.respond()) == "response_create_without_input"


@rule("G6")
def test_row_5_sound_among_what_was_written_makes_it_a_turn() -> None:
    world = World(capabilities=HEARS)
    world.say("Hello?")
    world.item(Message(id="", role="user", content=(AudioPart("Look here."),)))
    assert kinds(world.respond())[0] == "ResponseCreated"
    world.finish()
    world.item(FunctionCall(id="", call_id="a", name="f", arguments="{}"))
    world.say("Hello?")
    assert only(world.respond(), ev.ErrorReported).code == "text_only_turn_unsupported"
    world.item(FunctionOutput(id="", call_id="a", output="1"))
    assert kinds(world.respond())[0] == "ResponseCreated", "the output of a call is no turn of the user"


@rule("G6")
def test_row_6_nothing_to_answer_and_what_is_buffered_is_no_turn() -> None:
    world = World()
    assert error(world.respond()) == "response_create_without_input"
    world.append(10)
    assert error(world.respond()) == "response_create_without_input"
    assert world.session.reserved is None


@rule("G6")
def test_row_6_instructions_or_input_of_its_own_are_something() -> None:
    assert kinds(World().respond(cmd.ResponseOptions(instructions="Greet the user.")))[0] == "ResponseCreated"
    assert kinds(World().respond(cmd.ResponseOptions(input=())))[0] == "ResponseCreated"
    assert kinds(World(dialect="ga").respond())[0] == "ResponseCreated"


def test_an_auto_session_that_heard_nothing_has_nothing_to_answer() -> None:
    world = World(plugin="echo", auto=True)
    world.append(4)
    assert world.session.requests, "what is heard is the model's to answer"
    other = World(plugin="echo", auto=True)
    assert error(other.respond()) == "response_create_without_input"


@rule("G1", "G8")
def test_a_response_is_announced_before_its_work_begins() -> None:
    world = World()
    world.append(10)
    events = world.commit(create_response=True)
    assert kinds(events) == [
        "SpeechStopped",
        "InputCommitted",
        "ItemCreated",
        "ResponseCreated",
        "RequestSubmitted",
    ]
    created, submitted = only(events, ev.ResponseCreated), only(events, ev.RequestSubmitted)
    assert created.request == submitted.request
    assert submitted.response_id == created.head.id
    assert only(world.finish(), ev.ResponseEnded).head == created.head


def seeds(text: str) -> ConfigPatch:
    return ConfigPatch(echo={"initial_user_text": msgspec.json.encode(text).decode()})


@rule("G7")
def test_a_seeded_text_is_a_turn_of_the_user() -> None:
    world = World(capabilities=HEARS)
    for text, turns in (("Say hello.", 1), ("Say hello.", 1), ("Say goodbye.", 2), ("", 2)):  # the same one: once
        world.do(cmd.UpdateSession(attachment=1, patch=seeds(text)))
        assert world.session.turn.unanswered == turns
    world.do(cmd.UpdateSession(attachment=1, patch=seeds("Say goodbye.")))
    events = world.respond()
    assert kinds(events) == ["ResponseCreated", "RequestSubmitted"]
    assert shown(world, events) == ["seed"]
    world.finish()
    assert error(world.respond()) == "response_create_without_input"


def test_a_seed_that_is_no_text_is_none() -> None:
    world = World()
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(echo={"initial_user_text": "7"})))
    assert error(world.respond()) == "response_create_without_input"


@rule("G4", "L12")
def test_private_keys_among_the_options_are_dropped() -> None:
    world = World()
    world.say("Hello?")
    extras = {"request_id": '"mine"', "top_p": "0.5"}
    events = world.respond(cmd.ResponseOptions(extras=extras))
    assert only(events, ev.ResponseCreated).options.extras == {"top_p": "0.5"}
    (submit,) = world.effects(events)
    assert isinstance(submit, fx.SubmitToStage)
    assert submit.payload.extras == {"top_p": "0.5"}
    assert submit.payload.sampling[-1].top_p in (0.5, None)
    world.finish()
    assert world.session.config.extras == {}


# -- options -------------------------------------------------------------------------------------------------


@rule("G3", "P23")
def test_options_and_the_configuration_of_the_moment_are_the_response_s() -> None:
    world = World()
    world.say("Hello?")
    options = cmd.ResponseOptions(output_format=AudioFormat("g711_ulaw", 8_000), voice="joe")
    head = only(world.respond(options), ev.ResponseCreated).head
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(voice="alloy", instructions="Else.")))
    world.produce("Hello.", 10)
    ended = only(world.finish(), ev.ResponseEnded)
    assert ended.head == head
    assert (head.voice, head.output_format, head.instructions) == ("joe", AudioFormat("g711_ulaw", 8_000), "")


@rule("G3", "G4")
@pytest.mark.parametrize(("asked", "holds"), [(None, 9), (7, 7), ("inf", None)])
def test_no_limit_for_one_response_is_not_the_limit_of_the_session(
    asked: int | Literal["inf"] | None, holds: int | None
) -> None:
    """WIRE 2.6: all overrides are for this response only, `inf` among them."""
    world = World()
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(max_output_tokens=9)))
    world.say("Hello?")
    events = world.respond(cmd.ResponseOptions(max_output_tokens=asked))
    (submit,) = world.effects(events)
    assert isinstance(submit, fx.SubmitToStage)
    assert (only(events, ev.ResponseCreated).head.max_output_tokens, submit.payload.max_output_tokens) == (
        holds,
        holds,
    )
    assert world.session.config.max_output_tokens == 9


@rule("G4", "P32")
@pytest.mark.parametrize(
    ("options", "param"),
    [
        (cmd.ResponseOptions(voice="nobody"), "response.audio.output.voice"),
        (cmd.ResponseOptions(extras={"top_p": '"much"'}), "response.extra_body.top_p"),
        (cmd.ResponseOptions(extras={"top_k": str(2**63)}), "response.extra_body.top_k"),
        (cmd.ResponseOptions(output_modalities=()), "response.output_modalities"),
        (cmd.ResponseOptions(speed=9.0), "response.audio.output.speed"),
        (cmd.ResponseOptions(temperature=3.0), "response.temperature"),
        (cmd.ResponseOptions(max_output_tokens=4097), "response.max_output_tokens"),
        (cmd.ResponseOptions(instructions="x" * (1024 * 1024 + 1)), "response.instructions"),
        (cmd.ResponseOptions(output_format=AudioFormat("pcm_f32le", 24_000)), "response.audio.output.format.type"),
        (cmd.ResponseOptions(output_format=AudioFormat("pcm16", 7)), "response.audio.output.format.rate"),
    ],
)
def test_what_is_wrong_with_one_response_is_named_as_a_field_of_it(
    options: cmd.ResponseOptions, param: str
) -> None:
    world = World()
    world.say("Hello?")
    (refused,) = world.do(cmd.CreateResponse(attachment=1, event_id="e", options=options))
    assert isinstance(refused, ev.ErrorReported)
    assert (refused.param, refused.event_id) == (param, "e")
    assert kinds(world.respond())[0] == "ResponseCreated"


@rule("G4")
@pytest.mark.parametrize(
    ("options", "name"),
    [
        (cmd.ResponseOptions(instructions="Be brief."), "instructions"),
        (cmd.ResponseOptions(voice="default"), "voice"),
        (cmd.ResponseOptions(tools="[]"), "tools"),
        (cmd.ResponseOptions(tool_choice='"auto"'), "tool_choice"),
        (cmd.ResponseOptions(max_output_tokens=7), "max_output_tokens"),
        (cmd.ResponseOptions(temperature=0.5), "temperature"),
        (cmd.ResponseOptions(input=()), "input"),
        (cmd.ResponseOptions(remember=False), "conversation"),
    ],
)
def test_a_native_model_cannot_be_told_for_one_response(options: cmd.ResponseOptions, name: str) -> None:
    world = World(plugin="echo", auto=True, native=True)
    world.append()
    refused = only(world.respond(options), ev.ErrorReported)
    assert (refused.code, refused.param) == ("unsupported_native_response_options", f"response.{name}")
    assert world.session.reserved is None


@rule("G4")
def test_what_is_decided_outside_the_model_can_be_chosen_for_one_response() -> None:
    world = World(plugin="echo", auto=True, native=True)
    world.append()
    options = cmd.ResponseOptions(
        output_modalities=("text",), speed=1.5, output_format=AudioFormat("pcm16", 8_000), metadata={"k": "v"}
    )
    assert kinds(world.respond(options)) == ["OptionsReserved"]


# -- input of its own (WIRE 2.6) -----------------------------------------------------------------------------


def shown(world: World, events: list[ev.AnyEvent]) -> list[str]:
    """The ids of what the model is given, or the words of what has none."""
    (submit,) = world.effects(events)
    assert isinstance(submit, fx.SubmitToStage)
    return [item.id for item in submit.payload.items]


def test_input_stands_in_place_of_the_conversation() -> None:
    world = World()
    world.say("My name is Ann.", "first")
    world.say("And I am here.", "second")
    mine = Message(id="own", role="user", content=(TextPart("Who are you?"),))
    options = cmd.ResponseOptions(input=(ItemReference("second"), mine))
    assert shown(world, world.respond(options)) == ["second", "own"]
    assert "own" not in world.session.conversation.entries


def test_empty_input_is_no_context() -> None:
    world = World()
    world.say("My name is Ann.")
    assert shown(world, world.respond(cmd.ResponseOptions(input=()))) == []


def test_a_reference_to_an_answer_shows_what_was_heard_of_it() -> None:
    world = World()
    response_id = world.answer("All is well.", 1_000)
    world.ack(1_000)
    unheard = World()
    silent = unheard.answer("All is well.", 1_000)
    unheard.wait(1_000)
    assert shown(world, world.respond(cmd.ResponseOptions(input=(ItemReference(f"item_{response_id}"),)))) == [
        f"item_{response_id}"
    ]
    assert shown(unheard, unheard.respond(cmd.ResponseOptions(input=(ItemReference(f"item_{silent}"),)))) == []


def test_a_reference_to_nothing_is_refused() -> None:
    world = World()
    refused = only(world.respond(cmd.ResponseOptions(input=(ItemReference("none"),))), ev.ErrorReported)
    assert (refused.code, refused.param) == ("item_not_found", "response.input")


@rule("G5")
@pytest.mark.parametrize("remember", [True, False])
def test_an_item_is_named_once(remember: bool) -> None:
    """A name has a few bytes; what it stands for, which may be minutes of sound, is read each time."""
    world = World()
    world.say("Hello.", "a")
    world.say("Hello?", "b")
    twice = tuple(map(ItemReference, ("a", "b", "a")))
    refused = only(world.respond(cmd.ResponseOptions(input=twice, remember=remember)), ev.ErrorReported)
    assert (refused.code, refused.param, refused.detail) == ("bad_event", "response.input", "value")
    assert shown(world, world.respond(cmd.ResponseOptions(input=twice[:2], remember=remember))) == ["a", "b"]


# -- out of band (WIRE 2.6, G5) ------------------------------------------------------------------------------

ASIDE = cmd.ResponseOptions(remember=False)


@rule("G5", "I18")
def test_an_answer_out_of_band_leaves_the_conversation_alone() -> None:
    world = World()
    world.say("Hello?")
    before = core.dump(world.session)
    created = only(world.respond(ASIDE), ev.ResponseCreated)
    assert created.head.conversation_id is None
    assert created.request == ids.aside_request("duplex-1", 0, 1)
    assert world.session.turn == core.load(before).turn
    assert world.session.response is None
    events = world.produce("The user greets.", 500, created.request)
    assert (only(events, ev.OutputStarted).count, only(events, ev.OutputStarted).aside) == (3, True)
    assert only(events, ev.AudioDelta).aside
    acked = only(world.ack(500, response_id=created.head.id), ev.PlaybackAcknowledged)
    assert (acked.history, acked.history_committed) == ("", False)
    ended = only(world.finish(created.request), ev.ResponseEnded)
    assert (ended.status, ended.committed, ended.count) == ("completed", False, 6)
    assert ended.item is not None
    assert ended.item.id not in world.session.conversation.entries
    assert world.heard() == []
    assert world.session.turn == core.load(before).turn
    assert not world.session.playouts


@rule("G2", "P18")
def test_an_answer_out_of_band_blocks_nobody() -> None:
    world = World()
    aside = only(world.respond(ASIDE), ev.ResponseCreated)
    response_id = world.begin()
    assert kinds(world.produce("One", 100, aside.request)) == ["OutputStarted", "AudioDelta"]
    assert kinds(world.produce("Two", 100)) == ["OutputStarted", "AudioDelta"]
    delta = only(world.produce("more", 100, aside.request), ev.AudioDelta)
    assert (delta.response_id, delta.audio_ms) == (aside.head.id, 200)
    delta = only(world.produce("words", 50), ev.AudioDelta)
    assert (delta.response_id, delta.audio_ms) == (response_id, 150)


@rule("G2")
def test_four_answers_out_of_band_at_a_time() -> None:
    world = World()
    heads = [only(world.respond(ASIDE), ev.ResponseCreated) for _ in range(4)]
    assert len({created.request for created in heads}) == 4
    assert error(world.respond(ASIDE)) == "input_backpressure"
    world.finish(heads[0].request)
    assert kinds(world.respond(ASIDE)) == ["ResponseCreated", "RequestSubmitted"]


@rule("G5")
def test_an_answer_out_of_band_takes_no_sound_that_waits_for_an_answer() -> None:
    world = World()
    world.append(10)
    world.commit(create_response=False)
    retained = world.session.input.retained
    assert retained
    world.respond(ASIDE)
    assert world.session.input.retained == retained
    assert kinds(world.respond())[0] == "ResponseCreated"


def test_it_outlives_an_interruption_of_the_conversation() -> None:
    world = World()
    aside = only(world.respond(ASIDE), ev.ResponseCreated)
    world.produce("One", 100, aside.request)
    world.begin()
    events = world.barge_in()
    assert only(events, ev.ResponseEnded).head.id != aside.head.id
    assert only(events, ev.Interrupted).requests == (ids.turn_request("duplex-1", 0, 0),)
    delta = only(world.produce("two", 100, aside.request), ev.AudioDelta)
    assert (delta.epoch, delta.audio_ms) == (1, 200)
    assert only(world.finish(aside.request), ev.ResponseEnded).status == "completed"


@rule("G31")
def test_cancelled_by_its_name_it_dies_alone() -> None:
    world = World()
    aside = only(world.respond(ASIDE), ev.ResponseCreated)
    active = world.begin()
    events = world.cancel(aside.head.id)
    assert kinds(events) == ["AsideCancelled", "ResponseEnded"]
    assert world.effects(events) == [fx.AbortRequests(requests=(aside.request,))]
    ended = only(events, ev.ResponseEnded)
    assert (ended.head.id, ended.status, ended.reason) == (aside.head.id, "cancelled", "client_cancelled")
    assert world.session.epoch == 0
    assert world.session.response is not None
    assert world.session.response.head.id == active
    assert error(world.cancel(aside.head.id)) == "response_not_active"


@rule("G31")
def test_without_a_name_it_is_not_meant() -> None:
    world = World()
    world.respond(ASIDE)
    assert error(world.cancel()) == "response_not_active"


def test_clearing_its_output_stops_it_alone() -> None:
    world = World()
    aside = only(world.respond(ASIDE), ev.ResponseCreated)
    world.begin()
    clear = cmd.ClearOutput(attachment=1, response_id=aside.head.id)
    events = world.do(clear)
    assert kinds(events) == ["OutputCleared", "AsideCancelled", "ResponseEnded"]
    assert only(events, ev.ResponseEnded).cause == "output_audio_buffer_clear"
    assert kinds(world.do(clear)) == ["OutputCleared"]


@rule("G22")
def test_a_close_ends_it_too() -> None:
    world = World()
    world.respond(ASIDE)
    world.begin()
    assert kinds(world.close())[:3] == ["ResponseEnded", "ResponseEnded", "SessionClosing"]


@rule("G23")
def test_its_failure_is_its_own() -> None:
    world = World()
    aside = only(world.respond(ASIDE), ev.ResponseCreated)
    world.begin()
    events = world.fail(aside.request)
    assert kinds(events) == ["ErrorReported", "ResponseEnded", "RequestFinished"]
    assert only(events, ev.ResponseEnded).head.id == aside.head.id
    assert world.session.response is not None


def test_only_the_last_ones_are_remembered() -> None:
    world = World()
    first = ""
    for _ in range(17):
        aside = only(world.respond(ASIDE), ev.ResponseCreated)
        first = first or aside.head.id
        world.produce("x", 20, aside.request)
        world.finish(aside.request)
    assert len(world.session.asides) == 16
    assert error(world.ack(20, response_id=first)) == "playback_item_not_found"


def test_an_aside_in_writing_has_fewer_messages() -> None:
    world = World(modalities=("text",))
    aside = only(world.respond(ASIDE), ev.ResponseCreated)
    events = world.produce("Words.", request=aside.request)
    assert kinds(events) == ["OutputStarted", "TextDelta"]
    assert only(events, ev.OutputStarted).count == 2
    assert only(world.finish(aside.request), ev.ResponseEnded).count == 5


def test_calls_of_an_aside_are_its_own() -> None:
    world = World()
    aside = only(world.respond(ASIDE), ev.ResponseCreated)
    world.produce("Let me see.", 100, aside.request)
    call = cmd.StageCalled(request=aside.request, name="look", call_id="mine", arguments="{}")
    events = world.do(call)
    assert kinds(events) == ["OutputEnded", "CallStarted", "CallDelta", "CallEnded"]
    assert [only(events, kind).count for kind in (ev.OutputEnded, ev.CallStarted, ev.CallEnded)] == [4, 1, 2]
    item = only(events, ev.CallEnded).item
    assert item.call_id != "mine"  # nobody of the conversation may answer it
    assert item.id not in world.session.conversation.entries
    ended = only(world.finish(aside.request), ev.ResponseEnded)
    assert ended.calls == (item,)
    assert not world.session.turn.awaited
    assert world.session.asides[aside.head.id].ended


def test_a_call_of_an_aside_may_be_cut() -> None:
    world = World()
    aside = only(world.respond(ASIDE), ev.ResponseCreated)
    world.do(cmd.StageCalled(request=aside.request, name="look", arguments="{", final=False))
    ended = only(world.cancel(aside.head.id), ev.ResponseEnded)
    assert ended.count == 4
    assert ended.cut is not None
    assert ended.cut.id not in world.session.conversation.entries


@rule("G5", "P17")
def test_one_that_is_open_is_followed_however_many_come_after_it() -> None:
    world = World(plugin="echo")
    first = only(world.respond(ASIDE), ev.ResponseCreated)
    world.produce("x", 20, first.request)
    world.call(request=first.request, final=False)
    for _ in range(20):
        aside = only(world.respond(ASIDE), ev.ResponseCreated)
        world.produce("x", 20, aside.request)
        world.finish(aside.request)
        world.release()
    assert len(world.session.asides) == 16
    assert first.head.id in world.session.asides
    ended = only(world.finish(first.request), ev.ResponseEnded)
    assert ended.item is not None


@rule("G6", "J1")
def test_an_item_that_was_deleted_after_it_was_referred_to_is_left_out() -> None:
    world = World(plugin="echo", auto=True)
    world.append(20)
    world.say("Forget this.", item_id="gone")
    world.say("Read this.", item_id="kept")
    named = (ItemReference("gone"), ItemReference("kept"))
    assert kinds(world.respond(cmd.ResponseOptions(input=named))) == ["OptionsReserved"]
    world.do(cmd.DeleteItem(attachment=1, item_id="gone"))
    given = prompt(world.session, named)
    assert [item.id for item in given] == ["kept"]


@rule("G6", "L1")
def test_options_for_a_model_that_listens_are_dropped_when_it_stops_listening() -> None:
    world = World(plugin="echo", auto=True)
    world.say("Forget this.", item_id="gone")
    world.append(20)
    world.respond(cmd.ResponseOptions(input=(ItemReference("gone"),)))
    world.accept()
    world.do(cmd.DeleteItem(attachment=1, item_id="gone"))
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(instructions="Be brief.")))
    assert world.session.reserved is not None
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(auto_response=False)))
    assert world.session.reserved is None
    world.say("Hello?")
    events = world.respond()
    assert only(events, ev.ResponseCreated).options == cmd.ResponseOptions()
    world.effects(events)
