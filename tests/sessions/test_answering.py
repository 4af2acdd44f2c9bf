"""Responses: how they open, what stages report of them, and what a failing stage does (BEHAVIOURS G, K)."""

import pytest

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.audio import AudioFormat, SampleRef, TextMark
from antiphon.events.config import ConfigPatch, Transcription
from antiphon.events.items import AudioPart, Message, TextPart
from antiphon.sessions import core

from tests.rules import rule
from tests.sessions.world import OUT, World, capable, error, kinds, only

OUTPUT = 2  # AudioDelta: the sound and its transcript


# -- response.create -----------------------------------------------------------------------------------------


@rule("G8")
def test_g8_a_response_is_announced_before_it_is_submitted() -> None:
    world = World()
    world.say("Hello?")
    events = world.respond()
    assert kinds(events) == ["ResponseCreated", "RequestSubmitted"]
    head = only(events, ev.ResponseCreated).head
    assert head.item_id == f"item_{head.id}"
    assert head.conversation_id == ids.conversation_id("duplex-1")
    assert only(events, ev.RequestSubmitted).request == ids.turn_request("duplex-1", 0, 0)


@rule("G6")
def test_g6_a_second_response_is_refused_while_one_is_active() -> None:
    world = World()
    response_id = world.begin()
    refused = world.respond()[0]
    assert isinstance(refused, ev.ErrorReported)
    assert refused.code == "response_already_active"
    assert response_id in refused.message


@rule("G6")
def test_g6_a_response_is_refused_while_the_last_is_played_under_ack_only() -> None:
    world = World()
    world.answer("All is well.", 1_000)
    world.say("More?")
    world.wait(999)
    assert error(world.respond()) == "response_already_active"
    world.wait(1)
    assert kinds(world.respond())[0] == "ResponseCreated"


@rule("G6")
def test_g6_the_other_policy_does_not_wait_for_playback() -> None:
    world = World(dialect="ga")
    world.answer("All is well.", 1_000)
    assert kinds(world.respond())[0] == "ResponseCreated"


@rule("G6")
def test_g6_duplex_needs_something_to_answer() -> None:
    world = World()
    assert error(world.respond()) == "response_create_without_input"
    assert kinds(world.respond(cmd.ResponseOptions(instructions="Greet the user.")))[0] == "ResponseCreated"
    assert kinds(World(dialect="ga").respond())[0] == "ResponseCreated"


@rule("G6")
def test_an_auto_session_decides_by_itself() -> None:
    world = World(plugin="echo", auto=True)
    assert error(world.respond()) == "response_create_without_input"


def test_a_voice_that_the_model_lacks_is_refused() -> None:
    world = World()
    world.say("Hello?")
    assert error(world.respond(cmd.ResponseOptions(voice="nobody"))) == "bad_event"


@rule("G3", "P23")
def test_g3_a_response_keeps_its_own_configuration() -> None:
    world = World()
    world.say("Hello?")
    options = cmd.ResponseOptions(
        instructions="Be brief.",
        output_modalities=("text",),
        output_format=AudioFormat("g711_ulaw", 8_000),
        voice="joe",
        speed=1.5,
        max_output_tokens=7,
        temperature=0.1,
        metadata={"k": "v"},
        tools="[1]",
        tool_choice='"none"',
    )
    events = world.respond(options)
    head = only(events, ev.ResponseCreated).head
    assert (head.instructions, head.voice, head.speed, head.part) == ("Be brief.", "joe", 1.5, "text")
    assert (head.max_output_tokens, head.temperature, head.metadata) == (7, 0.1, {"k": "v"})
    assert (head.tools, head.tool_choice) == ("[1]", '"none"')
    (submit,) = world.effects(events)
    assert isinstance(submit, fx.SubmitToStage)
    assert (submit.payload.speaks, submit.payload.voice) == (False, "joe")
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(instructions="Else.")))
    assert world.session.response is not None
    assert world.session.response.head == head


@rule("A9")
def test_a_response_id_whose_item_the_client_made_up_is_skipped() -> None:
    world = World()
    taken = ids.assistant_item_id(ids.response_id("duplex-1", 1))
    world.say("I guess your names.", taken)
    head = only(world.respond(), ev.ResponseCreated).head
    assert head.id == ids.response_id("duplex-1", 2)
    world.produce("Fine", 100)
    world.finish()
    world.wait(100)
    world.say("?")
    assert only(world.respond(), ev.ResponseCreated).head.id == ids.response_id("duplex-1", 3)


# -- output --------------------------------------------------------------------------------------------------


@rule("G9")
def test_wire_3_3_the_first_output_opens_item_and_part() -> None:
    world = World()
    response_id = world.begin()
    events = world.produce("Hello", 100, marks=(TextMark(5, 100),))
    assert kinds(events) == ["OutputStarted", "AudioDelta"]
    started, delta = only(events, ev.OutputStarted), only(events, ev.AudioDelta)
    assert started.item == Message(id=f"item_{response_id}", role="assistant", status="in_progress")
    assert (started.count, delta.count) == (5, OUTPUT)
    assert delta.ref == SampleRef("out", 0, OUT.bytes_for(100))
    assert (delta.audio_ms, delta.text, delta.marks) == (100, "Hello", (TextMark(5, 100),))


@rule("G11", "P20")
def test_p20_durations_are_cumulative() -> None:
    world = World()
    world.begin()
    world.produce("a", 100)
    delta = only(world.produce("b", 50), ev.AudioDelta)
    assert (delta.audio_ms, delta.ref.start) == (150, OUT.bytes_for(100))
    assert (delta.playback.generated_ms, delta.playback.sent_ms) == (150, 150)


@rule("G10")
def test_words_without_sound_are_a_text_delta() -> None:
    world = World()
    world.begin()
    assert kinds(world.produce("Hello")) == ["OutputStarted", "TextDelta"]
    assert only(world.produce(" you"), ev.TextDelta).part == "audio"
    ended = only(world.finish(), ev.ResponseEnded)
    assert ended.text == "Hello you"
    assert ended.item is not None
    assert ended.item.content == (AudioPart("Hello you", None, 24_000, 0),)


def test_a_response_of_text_has_no_place_for_sound() -> None:
    world = World(modalities=("text",))
    world.begin()
    assert world.produce("", 100) == []
    events = world.produce("Hello", 100)
    assert kinds(events) == ["OutputStarted", "TextDelta"]
    assert only(events, ev.OutputStarted).count == 4
    ended = only(world.finish(), ev.ResponseEnded)
    assert ended.count == 6
    assert ended.item is not None
    assert ended.item.content == (TextPart("Hello"),)
    assert world.heard() == ["Hello"]


def test_an_empty_report_says_nothing() -> None:
    world = World()
    world.begin()
    assert world.produce() == []


@rule("A16", "G38", "K21")
def test_g39_output_of_a_request_that_is_not_live_is_dropped() -> None:
    world = World()
    world.begin()
    request = world.request
    world.cancel()
    assert world.produce("late", 100, request) == []
    assert world.finish(request) == []
    assert world.fail(request) == []
    assert world.do(cmd.StageAccepted(request=request)) == []
    assert world.produce("nobody", 100, "duplex-1.e9") == []
    world.release()
    assert world.do(cmd.StageReleased(request=request)) == []
    assert world.lose(request) == []


@rule("G1")
def test_g1_output_of_a_resident_opens_a_response() -> None:
    world = World(plugin="echo", auto=True)
    world.append()
    events = world.produce("", 100, world.resident)
    assert kinds(events) == ["ResponseCreated", "OutputStarted", "AudioDelta"]
    assert world.request == world.resident
    assert kinds(world.produce("", 100)) == ["AudioDelta"]


def test_output_for_a_resident_of_a_text_session_opens_nothing_for_sound_alone() -> None:
    world = World(plugin="echo", auto=True, modalities=("text",))
    world.append()
    assert world.produce("", 100, world.resident) == []
    assert kinds(world.produce("word", 100, world.resident))[-1] == "TextDelta"


@rule("P5")
def test_a_stage_accepts_a_request_once() -> None:
    world = World()
    world.begin()
    assert kinds(world.do(cmd.StageAccepted(request=world.request))) == ["RequestAccepted"]
    assert world.do(cmd.StageAccepted(request=world.request)) == []


# -- the end -------------------------------------------------------------------------------------------------


@rule("A6", "G44")
def test_a_finished_response_is_completed_and_its_request_released() -> None:
    world = World()
    response_id = world.begin()
    world.wait(250)
    world.produce("All is well.", 500)
    usage, cost = cmd.Usage(output_text=3), cmd.StageCost(stage="llm")
    events = world.do(cmd.StageFinished(request=world.request, usage=usage, costs=(cost,)))
    assert kinds(events) == ["RequestFinished", "ResponseEnded"]
    ended = only(events, ev.ResponseEnded)
    assert (ended.status, ended.usage, ended.costs, ended.latency.first_audio_ms) == (
        "completed",
        usage,
        (cost,),
        250.0,
    )
    assert ended.head.id == response_id
    assert world.effects(events) == [fx.ReleaseRequests(requests=("duplex-1.e0.turn0",))]
    assert world.session.turn.turn == 1
    assert kinds(world.release()) == ["RequestReleased"]
    assert core.outstanding(world.session) == []


def test_a_limit_makes_a_response_incomplete() -> None:
    world = World()
    world.begin()
    world.produce("All is", 500)
    ended = only(world.do(cmd.StageFinished(request=world.request, stop="max_output_tokens")), ev.ResponseEnded)
    assert (ended.status, ended.reason) == ("incomplete", "max_output_tokens")
    assert ended.item is not None
    assert ended.item.status == "incomplete"


@rule("G10")
def test_wire_3_3_6_a_response_with_nothing_to_say_has_no_item() -> None:
    world = World()
    world.begin()
    ended = only(world.finish(), ev.ResponseEnded)
    assert (ended.item, ended.count, ended.text, ended.latency.first_text_ms) == (None, 2, "", None)


@rule("G23", "K15", "Q4.21")
def test_g23_a_failure_comes_with_its_error_first() -> None:
    world = World()
    world.begin()
    world.take()
    events = world.fail()
    assert kinds(events) == ["ErrorReported", "ResponseEnded", "RequestFinished"]
    ended = only(events, ev.ResponseEnded)
    assert ended.status == "failed"
    assert ended.failure == ev.Failure("engine_error", "It broke.")
    assert world.session.phase == "open"


@rule("K18")
def test_k18_a_lost_request_fails_what_it_served() -> None:
    world = World()
    world.begin()
    events = world.lose()
    assert kinds(events) == ["ErrorReported", "ResponseEnded", "RequestReleased"]
    assert only(events, ev.ErrorReported).code == "runtime_data_plane_stream_failed"
    assert core.outstanding(world.session) == []


def test_a_request_lost_while_it_was_leaving_is_only_forgotten() -> None:
    world = World()
    world.begin()
    request = world.request
    world.cancel()
    assert kinds(world.lose(request)) == ["RequestReleased"]


def test_a_loss_frees_a_closing_session() -> None:
    world = World()
    world.begin()
    request = world.request
    world.close()
    assert kinds(world.lose(request)) == ["RequestReleased", "SessionClosed"]


@rule("F23", "G46")
def test_f23_a_failure_keeps_the_deferred_turn_answerable() -> None:
    world = World()
    world.begin()
    world.append(4)
    world.commit(create_response=True)
    assert kinds(world.fail()) == ["ErrorReported", "ResponseEnded", "RequestFinished"]
    assert kinds(world.respond()) == ["ResponseCreated", "RequestSubmitted"]
    assert not world.session.turn.deferred


# -- a resident request that ends ----------------------------------------------------------------------------


@rule("K15", "M5")
@pytest.mark.parametrize("how", ["fail", "lose"])
def test_k15_a_session_whose_model_has_lost_its_memory_expires(how: str) -> None:
    able = capable(core.REGISTRY["echo"].capabilities, supports_reencode_context=False)
    world = World(plugin="echo", auto=True, capabilities=able)
    world.append()
    world.produce("", 100, world.resident)
    resident = world.resident
    events = world.fail(resident) if how == "fail" else world.lose(resident)
    assert kinds(events)[:2] == ["ErrorReported", "ResponseEnded"]
    assert kinds(events)[-2:] == ["SessionClosing", "SessionClosed"]
    closed = only(events, ev.SessionClosed)
    assert (closed.reason, closed.expired) == ("request_cleanup", True)
    assert kinds(world.release()) == (["RequestReleased"] if how == "fail" else [])


@rule("N66")
@pytest.mark.parametrize("how", ["fail", "lose", "finish"])
def test_a_model_that_can_render_its_history_begins_a_new_epoch(how: str) -> None:
    world = World(plugin="echo", auto=True)
    world.append()
    world.produce("", 100, world.resident)
    end = {"fail": world.fail, "lose": world.lose, "finish": world.finish}[how]
    events = end(world.resident)
    # What the stage had not said it has is given to the next request, unless it may be why this one failed.
    end_of = {"fail": ["Interrupted"], "lose": ["RequestSubmitted", "UnitTaken"]}
    assert kinds(events)[-len(end_of.get(how, end_of["lose"])) :] == end_of.get(how, end_of["lose"])
    assert only(events, ev.ResponseEnded).status == ("completed" if how == "finish" else "failed")
    assert world.session.turn.state != "barge_in"
    events += world.append()
    assert only(events, ev.RequestSubmitted).request == "duplex-1.e1"


@rule("G24")
def test_a_resident_that_fails_in_silence_only_tells_the_error() -> None:
    world = World(plugin="echo", auto=True)
    world.append()
    assert kinds(world.fail(world.resident)) == ["ErrorReported", "RequestFinished", "Interrupted"]


# -- cancel --------------------------------------------------------------------------------------------------


@rule("G31")
def test_g31_cancel_stops_the_active_response() -> None:
    world = World()
    response_id = world.begin()
    assert error(world.cancel("resp_other")) == "response_not_active"
    events = world.cancel(response_id)
    assert kinds(events) == ["Interrupted", "ResponseEnded"]
    ended = only(events, ev.ResponseEnded)
    assert (ended.status, ended.reason, ended.cause) == ("cancelled", "client_cancelled", "client_cancelled")
    assert error(world.cancel()) == "response_not_active"
    assert world.session.epoch == 1


@rule("G37")
def test_g37_cancel_spares_the_input() -> None:
    world = World()
    world.begin()
    world.append(2)
    world.cancel()
    assert world.session.input.reserved == 2048
    assert world.session.input.item_id is not None


@rule("F23")
def test_f23_cancel_discards_the_deferred_turn_with_its_bytes() -> None:
    world = World()
    world.begin()
    world.append(4)
    world.commit(create_response=True)
    assert world.session.input.reserved == 4096
    world.cancel()
    assert not world.session.turn.deferred
    assert world.session.input.reserved == 0


# -- transcription -------------------------------------------------------------------------------------------


def transcribed(world: World, text: str, *, final: bool = True, failure: str | None = None) -> list[ev.AnyEvent]:
    item_id = world.session.conversation.order[0]
    return world.do(
        cmd.StageTranscribed(request=world.request, item_id=item_id, text=text, final=final, error=failure)
    )


def test_words_of_the_user_become_history_shown_or_not() -> None:
    world = World()
    world.append(4)
    world.commit(create_response=True)
    assert only(transcribed(world, "Good"), ev.UserTranscribed).count == 0
    assert world.shown(world.session.conversation.order[0]) == "Good"
    world = World()
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(transcription=Transcription())))
    world.append(4)
    world.commit(create_response=True)
    assert only(transcribed(world, "Good", final=False), ev.UserTranscribed).count == 1
    assert world.shown(world.session.conversation.order[0]) == ""
    transcribed(world, "", failure="Nothing was understood.")
    assert world.shown(world.session.conversation.order[0]) == ""
    transcribed(world, "Good morning")
    assert world.shown(world.session.conversation.order[0]) == "Good morning"


def test_words_of_an_item_that_is_gone_are_dropped() -> None:
    world = World()
    world.begin()
    late = cmd.StageTranscribed(request=world.request, item_id="gone", text="x")
    assert world.do(late) == []
    assert world.do(cmd.StageTranscribed(request="nobody.e0", item_id="gone", text="x")) == []


def test_words_change_only_sound_that_has_none() -> None:
    world = World()
    world.begin("Written.")
    transcribed(world, "Spoken.")
    assert world.shown(world.session.conversation.order[0]) == "Written."


def test_a_required_call_needs_tools() -> None:
    world = World()
    world.say("Look.")
    refused = only(world.respond(cmd.ResponseOptions(tool_choice='"required"')), ev.ErrorReported)
    assert (refused.code, refused.param) == ("bad_event", "response.tool_choice")
