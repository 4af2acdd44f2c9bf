"""Nemotron VoiceChat: one mode, one frame at a time, few tools."""

import json

import pytest

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.batches import take
from antiphon.sessions.plugins import NEMOTRON

from tests.rules import rule
from tests.sessions.models.configs import Refused, changed, config, opening, refused
from tests.sessions.world import World, error, kinds, only

MODE = "unsupported_nemotron_duplex_mode"


def tools(*names: str) -> str:
    return json.dumps([{"type": "function", "name": name} for name in names])


@rule("N45")
def test_continuous_duplex_by_either_name() -> None:
    assert opening(NEMOTRON, changed(config(), auto_response=True)).auto_response
    assert opening(NEMOTRON, config(full_duplex=True)).auto_response
    assert refused(lambda: opening(NEMOTRON, config())) == (MODE, "session.extra_body.auto_response")
    assert refused(lambda: opening(NEMOTRON, config(full_duplex=False)))[0] == MODE


@pytest.mark.parametrize("period", [40, 1000, "80"])
@rule("N45")
def test_the_period_is_80_ms(period: object) -> None:
    assert NEMOTRON.capabilities.chunk_period_ms == 80
    opening(NEMOTRON, config(full_duplex=True, chunk_period_ms=80))
    wrong = config(full_duplex=True, chunk_period_ms=period)
    assert refused(lambda: opening(NEMOTRON, wrong)) == (MODE, "session.extra_body.chunk_period_ms")


NAMED: list[tuple[str, Refused | None]] = [
    (tools("a", "b", "c", "d", "e"), None),
    (tools("a", "b", "c", "d", "e", "f"), ("invalid_duplex_runtime_config", "session.tools")),
    ('[{"type":"function"}]', ("invalid_duplex_runtime_config", "session.tools")),
]


@pytest.mark.parametrize(("given", "expected"), NAMED, ids=["five", "six", "nameless"])
@rule("N48")
def test_at_most_five_tools_each_with_a_name(given: str, expected: Refused | None) -> None:
    asked = changed(config(full_duplex=True), tools=given)
    if expected is None:
        opening(NEMOTRON, asked)
    else:
        assert refused(lambda: opening(NEMOTRON, asked)) == expected


@rule("N48", "J15", "N6", "L8")
def test_tools_and_instructions_are_fixed_once_heard() -> None:
    current = opening(NEMOTRON, changed(config(full_duplex=True), tools=tools("a")))
    same = changed(current, tools=tools("a").replace(":", " : "))
    other = changed(current, tools=tools("b"))
    NEMOTRON.check_update(current, other, locked=False, started=True)
    NEMOTRON.check_update(current, same, locked=True, started=True)
    for candidate, param in ((other, "tools"), (changed(current, instructions="x"), "instructions")):
        assert refused(
            lambda candidate=candidate: NEMOTRON.check_update(current, candidate, locked=True, started=True)
        ) == ("instructions_update_unsupported", f"session.{param}")


def nemotron() -> World:
    return World(plugin="nemotron-voicechat", auto=True)


def append(here: World, samples: int, sent: int = 0) -> list[ev.AnyEvent]:
    return here.do(cmd.AppendAudio(attachment=here.attachment, size=2 * samples, sent=sent))


@rule("N45")
def test_an_append_holds_one_frame() -> None:
    here = nemotron()
    assert "AudioReceived" in kinds(append(here, 1_280))
    assert error(append(here, 1_281)) == "bad_event"
    assert "AudioReceived" in kinds(append(here, 1_468, sent=1_280)), "what the resampler adds is not the client's"
    assert error(append(here, 979, sent=1_281)) == "bad_event"


@rule("N45")
def test_a_commit_finds_one_frame() -> None:
    NEMOTRON.check_commit(config(), samples=1_280)
    assert refused(lambda: NEMOTRON.check_commit(config(), samples=1_281)) == ("bad_event", None)


@rule("N46", "N2")
def test_one_greedy_token_a_frame_whatever_bound_the_client_sets() -> None:
    language = NEMOTRON.sampling(changed(config(), max_output_tokens=100))[0]
    assert (language.temperature, language.max_tokens) == (0.0, 1)


@rule("N51")
def test_it_may_greet_before_anybody_has_spoken_and_nothing_holds_it_back() -> None:
    here = World(plugin="nemotron-voicechat", auto=True, extras={"force_listen_count": "9"})
    silence = cmd.AppendAudio(attachment=here.attachment, size=2_560, speech=False)
    told = [effect for effect in here.effects(here.do(silence)) if isinstance(effect, fx.FeedStage)]
    assert [unit.force_listen for unit in told] == [False]
    greeting = here.produce("Hello!", 80, here.resident)
    assert kinds(greeting) == ["ResponseCreated", "OutputStarted", "AudioDelta"]


@rule("N45", "L8")
def test_a_session_cannot_leave_its_mode() -> None:
    here = nemotron()
    patch = cmd.ConfigPatch(auto_response=False)
    assert error(here.do(cmd.UpdateSession(attachment=here.attachment, patch=patch))) == MODE
    assert here.session.config.auto_response


@rule("L8")
def test_the_lock_is_set_by_acceptance_and_survives_an_interruption() -> None:
    here = nemotron()

    def instruct(words: str) -> list[ev.AnyEvent]:
        patch = cmd.ConfigPatch(instructions=words)
        return here.do(cmd.UpdateSession(attachment=here.attachment, patch=patch))

    append(here, 640)
    only(instruct("before"), ev.ConfigUpdated)
    append(here, 640)
    assert kinds(instruct("too late")) == ["CommandHeld"], "L1: it waits for the sound before it"
    assert error(here.accept()[-1:]) == "instructions_update_unsupported"
    assert error(instruct("after")) == "instructions_update_unsupported"
    only(instruct("before"), ev.ConfigUpdated)
    here.produce("Hello.", 80, here.resident)
    here.cancel()
    assert here.session.epoch == 1
    assert error(instruct("after")) == "instructions_update_unsupported"


@rule("N47", "G17")
def test_padding_is_a_beat_that_is_told_once_and_an_answer_ends_when_the_stage_says_so() -> None:
    here = nemotron()
    told: list[str] = []
    for _ in range(10):
        append(here, 1_280)
        told += kinds(here.do(cmd.StageSegmentFinished(request=here.resident, decision="listen")))
    assert told == ["ListenDecided"]
    here.produce("Hello.", 80, here.resident)
    for _ in range(5):  # the text is complete, and frames of its sound still come
        append(here, 1_280)
        assert "ResponseEnded" not in kinds(here.produce("", 80, here.resident))
    events = here.do(cmd.StageSegmentFinished(request=here.resident, decision="end_of_turn"))
    assert only(events, ev.ResponseEnded).status == "completed"
    playout = here.session.playouts[only(events, ev.ResponseEnded).head.id]
    assert playout.sent_ms == 480


# -- functions -----------------------------------------------------------------------------------------------


def calling() -> World:
    """A session in which the model speaks and has asked for nine calls."""
    here = nemotron()
    feed(here)
    here.produce("Let me see.", 80, here.resident)
    for index in range(9):
        here.call(call_id=f"c{index}", index=index, request=here.resident, ends=index == 8)
    return here


def feed(here: World) -> fx.FeedStage:
    """Give the model a frame; return what its stage is told."""
    (told,) = [effect for effect in here.effects(append(here, 1_280)) if isinstance(effect, fx.FeedStage)]
    here.accept()
    return told


def shown(told: fx.FeedStage) -> tuple[list[int], int]:
    """What a unit shows of function outputs."""
    return [batch.generation for batch in told.batches], told.generation


def own(here: World, generation: int, request: str | None = None) -> list[ev.AnyEvent]:
    return here.do(cmd.StageOwned(request=request or here.resident, generation=generation))


@rule("N7", "J12", "N49")
def test_outputs_are_numbered_and_shown_with_every_frame_until_they_are_owned() -> None:
    here = calling()
    assert shown(feed(here)) == ([], 0)
    assert kinds(here.give_output("c0", "sunny")) == ["ItemCreated", "FunctionBatched", "ContinuationPlanned"]
    here.give_output("c1")
    told = feed(here)
    assert shown(told) == ([1, 2], 2)
    assert (told.batches[0].call_id, told.batches[0].output) == ("c0", "sunny")
    assert shown(feed(here)) == ([1, 2], 2)


@rule("N8", "J14")
def test_what_the_model_owns_is_retired_in_order_and_told_to_nobody() -> None:
    here = calling()
    for index in range(3):
        here.give_output(f"c{index}")
    events = own(here, 2)
    assert kinds(events) == ["FunctionBatchesOwned"]
    assert not [event for event in events if isinstance(event, ev.PublicEvent)]
    assert shown(feed(here)) == ([3], 3)
    assert own(here, 2) == own(here, 1) == [], "a report again, or of less"
    assert own(here, 99) != []
    assert shown(feed(here)) == ([], 3)
    here.give_output("c3")
    assert shown(feed(here)) == ([4], 4), "numbers are not given again"


@rule("J12", "N49", "P32")
def test_the_ninth_output_waits_for_the_model() -> None:
    here = calling()
    for index in range(8):
        here.give_output(f"c{index}")
    assert error(here.give_output("c8")) == "function_response_backlog"
    own(here, 1)
    assert kinds(here.give_output("c8")) == ["ItemCreated", "FunctionBatched"]


@rule("N7", "J10")
def test_an_output_of_no_call_is_refused_before_it_is_numbered() -> None:
    here = calling()
    assert error(here.give_output("nobody")) == "invalid_function_call_output"
    assert shown(feed(here)) == ([], 0)


@rule("J14", "J13")
def test_an_interruption_loses_no_output_and_a_dead_request_owns_none() -> None:
    here = calling()
    here.produce("So", 80, here.resident)
    before = here.resident
    here.give_output("c0")
    here.cancel()
    assert own(here, 1, before) == []
    told = feed(here)
    assert told.request != before
    assert shown(told) == ([1], 1)
    assert take(told.generation - len(told.batches), told.batches, told.generation) == told.batches


@rule("J12")
def test_for_a_model_without_batches_an_output_is_an_item() -> None:
    here = World(plugin="echo", auto=True)
    here.append(3)
    here.call(call_id="c0", request=here.resident, ends=True)
    assert "FunctionBatched" not in kinds(here.give_output("c0"))


@rule("J11", "J12")
def test_a_batch_that_went_with_a_refused_unit_goes_with_another() -> None:
    here = calling()
    here.give_output("c0", "sunny")
    append(here, 1_280)
    planned = only(here.refuse(), ev.ContinuationPlanned)
    here.now = max(here.now, planned.due)
    (told,) = [effect for effect in here.effects(here.tick()) if isinstance(effect, fx.FeedStage)]
    assert shown(told) == ([1], 1)
    assert "ContinuationPlanned" not in kinds(here.accept()), "it has been told"
