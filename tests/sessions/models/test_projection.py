"""What stages report of a model's outputs becomes events: in order, once, in the response's own format (N20-N27).

How raw outputs become reports (cursors over cumulative sound, incremental decoding, padding as a listen beat) is
the stage half's business; here stands what the session promises of whatever is reported.
"""

from itertools import pairwise

import pytest

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.audio import AudioFormat, TextMark
from antiphon.events.config import ConfigPatch
from antiphon.events.items import Message
from antiphon.sessions.plugins import REGISTRY

from tests.rules import rule
from tests.sessions.models.configs import VOICE, hear
from tests.sessions.world import OUT, World, kinds, only

RESIDENT = ("minicpm-o-4.5", "nemotron-voicechat", "personaplex")
EPHEMERAL = ("cascade", "qwen3-omni", "aura")


def answering(name: str) -> tuple[World, str]:
    """Return a session whose model is at work, and the request that it works on."""
    plugin = REGISTRY[name]
    voice = VOICE if plugin.ref_audio == "required" else None
    can_resume = plugin.capabilities.supports_session_resume
    here = World(plugin=name, auto=name in RESIDENT, ref_audio=voice, resumable=can_resume)
    hear(here)
    here.accept()
    if name in EPHEMERAL:
        here.commit(create_response=True)
        return here, here.request
    return here, here.resident


def spoken(events: list[ev.AnyEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, ev.AudioDelta | ev.TextDelta))


@pytest.mark.parametrize("name", [*RESIDENT, *EPHEMERAL])
@rule("N22", "N20")
def test_each_result_becomes_its_event_in_the_order_of_the_reports(name: str) -> None:
    here, request = answering(name)
    events = here.produce("One ", 80, request, marks=(TextMark(3, 80),))
    events += here.produce("two ", 0, request)
    events += here.produce("", 160, request)
    told = [event for event in events if isinstance(event, ev.AudioDelta | ev.TextDelta)]
    assert [(type(event).__name__, event.text) for event in told] == [
        ("AudioDelta", "One "),
        ("TextDelta", "two "),
        ("AudioDelta", ""),
    ]
    first, _, last = told
    assert isinstance(first, ev.AudioDelta)
    assert isinstance(last, ev.AudioDelta)
    assert (first.marks, first.audio_ms, last.audio_ms) == ((TextMark(3, 80),), 80, 240)


@pytest.mark.parametrize("name", [*RESIDENT, *EPHEMERAL])
@rule("N22", "G1")
def test_a_report_of_nothing_opens_no_response(name: str) -> None:
    here, request = answering(name)
    before = here.session.response
    assert here.produce("", 0, request) == []
    assert here.session.response is before


@pytest.mark.parametrize("name", [*RESIDENT, *EPHEMERAL])
@rule("N23", "P20")
def test_each_sample_has_one_place_and_none_is_left_out(name: str) -> None:
    here, request = answering(name)
    events: list[ev.AnyEvent] = []
    for ms in (80, 7, 160, 1):
        events += here.produce("", ms, request)
    refs = [event.ref for event in events if isinstance(event, ev.AudioDelta)]
    assert refs[0].start == 0
    assert all(one.end == two.start for one, two in pairwise(refs))
    assert sum(ref.size for ref in refs) == sum(OUT.bytes_for(ms) for ms in (80, 7, 160, 1))


@pytest.mark.parametrize("name", EPHEMERAL)
@rule("N24", "P20")
def test_each_character_is_told_once_and_the_item_is_their_sum(name: str) -> None:
    here, request = answering(name)
    pieces = ["Gr", "üß", "e, ", "世", "界", " 👋🏽", "."]
    events = [event for piece in pieces for event in here.produce(piece, 80, request)]
    assert spoken(events) == "Grüße, 世界 👋🏽."
    ended = only(here.finish(request), ev.ResponseEnded)
    assert ended.text == "Grüße, 世界 👋🏽."


@pytest.mark.parametrize("name", [*RESIDENT, *EPHEMERAL])
@rule("N26", "P15")
def test_behind_its_terminal_a_request_produces_nothing(name: str) -> None:
    here, request = answering(name)
    here.produce("One ", 80, request)
    here.cancel()
    assert here.produce("two", 80, request) == []
    assert here.do(cmd.StageTranscribed(request=request, item_id="x", text="late")) == []
    assert here.do(cmd.StageFinished(request=request)) == []
    assert here.fail(request) == []


@pytest.mark.parametrize("name", EPHEMERAL)
@rule("N26")
def test_a_request_that_finished_produces_nothing_and_the_next_one_does(name: str) -> None:
    here, request = answering(name)
    here.produce("One ", 80, request)
    here.finish(request)
    assert here.produce("more", 80, request) == []
    hear(here)
    here.ack(80)
    here.commit(create_response=True)
    assert here.request != request
    assert spoken(here.produce("two", 80)) == "two"


@pytest.mark.parametrize("name", EPHEMERAL)
@rule("N27", "K15", "G23")
def test_a_fault_of_one_output_fails_one_response_and_the_session_lives(name: str) -> None:
    here, request = answering(name)
    here.produce("One ", 80, request)
    events = here.do(cmd.StageFailed(request=request, code="engine_error", message="A projector broke."))
    assert [kind for kind in kinds(events) if kind in ("ErrorReported", "ResponseEnded")] == [
        "ErrorReported",
        "ResponseEnded",
    ]
    ended = only(events, ev.ResponseEnded)
    assert (ended.status, ended.failure) == ("failed", ev.Failure("engine_error", "A projector broke."))
    assert here.session.phase == "open"
    hear(here)
    here.commit(create_response=True)
    assert here.session.response is not None


@pytest.mark.parametrize("name", RESIDENT)
@rule("N27", "K15")
def test_a_resident_models_failure_ends_its_session_by_name(name: str) -> None:
    here, request = answering(name)
    here.produce("One ", 80, request)
    events = here.fail(request)
    assert only(events, ev.ResponseEnded).status == "failed"
    assert only(events, ev.SessionClosing).reason == "request_cleanup"


@pytest.mark.parametrize("name", [*RESIDENT, *EPHEMERAL])
@rule("N21", "L9", "G3")
def test_what_an_output_is_projected_with_is_the_responses_own(name: str) -> None:
    here, request = answering(name)
    here.produce("One ", 80, request)
    other = AudioFormat("g711_ulaw", 8_000)
    patch = ConfigPatch(output_format=other, speed=1.5, output_modalities=("text",))
    here.do(cmd.UpdateSession(attachment=here.attachment, patch=patch))
    assert here.session.config.output_format == other
    delta = only(here.produce("two", 80, request), ev.AudioDelta)
    assert (delta.format, delta.epoch) == (OUT, 0)


@pytest.mark.parametrize("name", EPHEMERAL)
@rule("N21", "N5")
def test_the_next_request_is_told_what_holds_then(name: str) -> None:
    here, request = answering(name)
    here.produce("One.", 80, request)
    here.finish(request)
    here.ack(80)
    patch = ConfigPatch(speed=1.5, instructions="Be brief.")
    here.do(cmd.UpdateSession(attachment=here.attachment, patch=patch))
    hear(here)
    events = here.commit(create_response=True)
    (told,) = [effect for effect in here.effects(events) if isinstance(effect, fx.SubmitToStage)]
    assert (told.payload.speed, told.payload.instructions) == (1.5, "Be brief.")


@rule("N9", "N42", "I22")
def test_the_prompt_is_the_models_window_over_what_was_heard() -> None:
    here, request = answering("qwen3-omni")
    told: list[fx.SubmitToStage] = []
    for _ in range(12):
        here.produce("Yes.", 80, request)
        here.finish(request)
        here.ack(80)
        hear(here)
        events = here.commit(create_response=True)
        told += [effect for effect in here.effects(events) if isinstance(effect, fx.SubmitToStage)]
        request = here.request
    items = told[-1].payload.items
    assert len(here.session.conversation.order) == 25
    roles = [item.role for item in items if isinstance(item, Message)]
    assert roles == ["user", "assistant"] * 3 + ["user"], "four clips of sound"


@pytest.mark.parametrize("name", RESIDENT)
@rule("N18", "M19")
def test_with_the_session_goes_all_that_it_kept_for_its_model(name: str) -> None:
    here, request = answering(name)
    if REGISTRY[name].tool_batches:
        here.call(call_id="c", request=request, ends=True)
        here.give_output("c")
        assert here.session.batches.pending
    here.close()
    here.release()
    session = here.session
    assert session.phase == "closed"
    assert session.input.reserved == 0
    assert not session.batches.pending
    assert not session.input.stream.in_flight
    assert not session.input.stream.queue
    assert not session.requests
    assert not session.input.stream.held


@pytest.mark.parametrize("name", ["qwen3-omni", "aura"])
@rule("N25")
def test_words_that_nobody_spoke_are_a_failure(name: str) -> None:
    here, request = answering(name)
    here.produce("One two.", 0, request)
    events = here.finish(request)
    code = "runtime_data_plane_text_without_audio"
    assert only(events, ev.ErrorReported).code == code
    ended = only(events, ev.ResponseEnded)
    assert ended.failure is not None
    assert (ended.status, ended.failure.code) == ("failed", code)
    assert kinds(events).index("ErrorReported") < kinds(events).index("ResponseEnded")
    assert here.session.phase == "open"


@rule("N25")
def test_words_alone_are_an_answer_where_no_sound_is_wanted_or_promised() -> None:
    here = World(plugin="qwen3-omni", modalities=("text",))
    here.begin()
    here.produce("One two.")
    assert only(here.finish(), ev.ResponseEnded).status == "completed"
    here, request = answering("cascade")
    here.produce("One two.", 0, request)
    assert only(here.finish(request), ev.ResponseEnded).status == "completed"


@rule("N25")
def test_a_resident_model_that_ends_its_turn_without_a_sound_has_failed_it() -> None:
    here, request = answering("nemotron-voicechat")
    here.produce("One two.", 0, request)
    events = here.do(cmd.StageSegmentFinished(request=request, decision="end_of_turn"))
    assert only(events, ev.ResponseEnded).status == "failed"
    assert here.session.phase == "open"


@rule("N43", "I4")
def test_of_an_unaligned_answer_a_part_of_the_sound_is_no_part_of_the_text() -> None:
    here, request = answering("qwen3-omni")
    here.produce("One two three four.", 0, request)
    here.produce("", 1000, request)
    here.ack(500)
    here.cancel()
    assert here.heard() == []
    here, request = answering("qwen3-omni")
    here.produce("One two three four.", 0, request)
    here.produce("", 1000, request)
    here.finish(request)
    here.ack(1000)
    assert here.heard() == ["One two three four."]
