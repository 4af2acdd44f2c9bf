"""How answers end: once, by whoever stopped them, with all settled in the same decision (G13, G20-G46)."""

from collections.abc import Callable

import pytest

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.config import ConfigPatch
from antiphon.events.items import AudioPart, Message
from antiphon.sessions import core

from tests.rules import rule
from tests.sessions.world import OVERLAPPING, World, capable, error, kinds, only

CASCADE = core.REGISTRY["cascade"].capabilities

Do = Callable[[World], list[ev.AnyEvent]]


def ask(world: World, frames: int = 30) -> list[ev.AnyEvent]:
    world.append(frames)
    return world.commit(create_response=True)


# -- G13: one decision ---------------------------------------------------------------------------------------


@rule("G13", "Q4.18")
@pytest.mark.parametrize("policy", ["commit_all_on_done", "ack_only"])
def test_the_terminal_tells_what_is_history_by_then(policy: str) -> None:
    world = World(policy=policy)  # type: ignore[arg-type]
    world.begin()
    world.produce("All is well.", 1_000)
    ended = only(world.finish(), ev.ResponseEnded)
    assert ended.committed == (policy == "commit_all_on_done")
    assert bool(world.heard()) == ended.committed  # in the state behind the same transaction
    assert world.session.turn.turn == ended.head.turn + 1
    assert world.session.response is None


@rule("G13", "Q4.18")
def test_a_log_that_breaks_off_behind_the_terminal_has_the_history() -> None:
    world = World(policy="commit_all_on_done")
    response_id = world.begin()
    world.produce("All is well.", 1_000)
    world.finish()
    folded = core.fold(world.log)
    assert folded.conversation.entries[f"item_{response_id}"].heard == "All is well."
    assert folded.turn.turn == 1


# -- G20, G21: exactly one, and why --------------------------------------------------------------------------

ENDINGS: dict[str, tuple[Do, str, str | None, str | None]] = {
    "stop": (lambda w: w.finish(), "completed", "stop", None),
    "max_output_tokens": (
        lambda w: w.do(cmd.StageFinished(request=w.request, stop="max_output_tokens")),
        "incomplete",
        "max_output_tokens",
        None,
    ),
    "client_cancelled": (lambda w: w.cancel(), "cancelled", "client_cancelled", "client_cancelled"),
    "barge_in": (lambda w: w.barge_in(), "cancelled", "turn_detected", "barge_in"),
    "output_audio_buffer_clear": (
        lambda w: w.do(cmd.ClearOutput(attachment=1)),
        "cancelled",
        "client_cancelled",
        "output_audio_buffer_clear",
    ),
    "input_cancel": (
        lambda w: w.do(cmd.CancelInput(attachment=1)),
        "cancelled",
        "client_cancelled",
        "input_cancel",
    ),
    "session_close": (lambda w: w.close(), "cancelled", "client_cancelled", "session_close"),
    "engine_error": (lambda w: w.fail(), "failed", None, None),
    "runtime_data_plane_stream_failed": (lambda w: w.lose(), "failed", None, None),
    "engine_restarted": (lambda w: w.restart(), "failed", None, None),
}


@rule("G20", "G21", "P16", "P17")
@pytest.mark.parametrize("name", ENDINGS)
@pytest.mark.parametrize("spoken", [True, False])
def test_every_end_has_its_name_and_is_the_only_one(name: str, spoken: bool) -> None:
    end, status, reason, cause = ENDINGS[name]
    world = World()
    response_id = world.begin()
    request = world.request
    world.take()
    if spoken:
        world.produce("All is well.", 1_000)
    ended = only(end(world), ev.ResponseEnded)
    assert (ended.head.id, ended.status, ended.reason, ended.cause) == (response_id, status, reason, cause)
    assert (ended.failure.code if ended.failure else None) == (name if status == "failed" else None)
    assert (ended.item is not None) == spoken
    assert not world.session.open_responses
    for late in (world.produce("late", 100, request), world.finish(request), world.fail(request)):
        assert late == []


@rule("G20")
def test_a_second_cancel_of_sound_that_is_still_played_stops_only_the_sound() -> None:
    world = World()
    response_id = world.answer("All is well.", 5_000)
    assert error(world.cancel(response_id)) == "response_not_active"
    events = world.barge_in()
    assert only(events, ev.OutputCleared).response_id == response_id
    assert not [event for event in events if isinstance(event, ev.ResponseEnded)]


# -- G22: an announced answer whose work never begins --------------------------------------------------------


NOT_TAKEN: dict[str, tuple[Callable[[World], list[ev.AnyEvent]], str]] = {
    "refused": (lambda w: w.fail(), "runtime_append_failed"),
    "prepared in vain": (lambda w: w.fail(code="runtime_data_plane_stream_failed"), "runtime_append_failed"),
    "too long": (lambda w: w.fail(code="context_length_exceeded"), "context_length_exceeded"),
    "lost": (lambda w: w.lose(), "runtime_data_plane_stream_failed"),
    "broken by us": (lambda w: w.do(cmd.ReportFault(request=w.request)), "internal_error"),
}
"""What becomes of a turn before its stage has taken it, and what the client is told (G22, K17, K18, M10)."""


@rule("G22", "P21")
@pytest.mark.parametrize("how", NOT_TAKEN)
def test_a_turn_that_the_stage_does_not_take_fails_by_the_code_for_it(how: str) -> None:
    end, code = NOT_TAKEN[how]
    world = World()
    response_id = only(ask(world), ev.ResponseCreated).head.id
    events = end(world)
    assert kinds(events)[:2] == ["ErrorReported", "ResponseEnded"]
    ended = only(events, ev.ResponseEnded)
    assert (ended.head.id, ended.status) == (response_id, "failed")
    assert ended.failure is not None
    assert ended.failure.code == only(events, ev.ErrorReported).code == code
    assert world.session.phase == "open"
    assert world.session.response is None
    assert world.session.input.reserved == 0
    assert "ResponseCreated" in kinds(ask(world))


@rule("G23", "G24")
@pytest.mark.parametrize("spoken", [False, True])
def test_a_turn_that_was_taken_fails_by_the_error_of_its_stage(spoken: bool) -> None:
    """What it says proves that it was taken, whatever the stage reported."""
    world = World()
    ask(world)
    if spoken:
        world.produce("Well, ", 100)
    else:
        world.take()
    events = world.fail(code="engine_error")
    assert only(events, ev.ErrorReported).code == "engine_error"
    failure = only(events, ev.ResponseEnded).failure
    assert failure is not None
    assert failure.code == "engine_error"


@rule("G22", "G5")
def test_an_answer_out_of_band_that_no_stage_takes_fails_in_the_same_way() -> None:
    world = World()
    head = only(world.respond(cmd.ResponseOptions(remember=False, input=())), ev.ResponseCreated)
    failure = only(world.fail(head.request), ev.ResponseEnded).failure
    assert failure is not None
    assert failure.code == "runtime_append_failed"


@rule("G24", "G20")
def test_an_error_behind_the_end_of_an_answer_is_only_told() -> None:
    """A resident request outlives its answers: what fails then is nobody's."""
    world = World(plugin="echo", auto=True)
    world.append(20)
    world.produce("Yes.", 100, world.resident)
    world.decide("end_of_turn")
    said = cmd.StageFailed(request=world.resident, code="engine_error", message="It broke.", goes_on=True)
    assert kinds(world.do(said)) == ["ErrorReported"]


@rule("K7", "K9")
def test_a_chain_that_cannot_be_warmed_is_given_up_whole_before_it_was_accepted() -> None:
    """Later stages have no request of their own: that of the turn fails, is cleaned up, and the session lives."""
    world = World()
    world.begin()
    request = world.request
    events = world.do(cmd.StageFailed(request=request, code="engine_error", message="The voice cannot be loaded."))
    assert kinds(events) == ["ErrorReported", "ResponseEnded", "RequestFinished"]
    assert world.effects(events) == [fx.ReleaseRequests(requests=(request,))]
    assert world.produce("late", 100, request) == []
    world.release()
    assert not world.session.requests
    assert world.answer()


@rule("G22", "E28")
def test_clearing_the_input_does_not_reach_a_turn_that_was_committed() -> None:
    """There is no queue between a commit and its submission, so nothing of it can be cleared while it waits."""
    world = World()
    response_id = only(ask(world), ev.ResponseCreated).head.id
    world.append(2)
    assert kinds(world.clear()) == ["InputCleared"]
    assert world.session.response is not None
    assert world.session.response.head.id == response_id
    world.produce("Yes.", 100)
    assert only(world.finish(), ev.ResponseEnded).status == "completed"


@rule("G22", "G37")
@pytest.mark.parametrize("name", ["client_cancelled", "barge_in", "output_audio_buffer_clear", "input_cancel"])
def test_whoever_interrupts_ends_it_and_the_stage_stays_silent(name: str) -> None:
    world = World()
    response_id = only(ask(world), ev.ResponseCreated).head.id
    request = world.request
    events = ENDINGS[name][0](world)
    ended = only(events, ev.ResponseEnded)
    assert (ended.head.id, ended.status) == (response_id, "cancelled")
    assert world.session.input.reserved == 0
    assert world.session.requests[request].phase == "leaving"
    assert world.do(cmd.StageAccepted(request=request)) == []
    assert world.fail(request) == []  # no second end
    assert kinds(world.release()) == ["RequestReleased"]
    assert core.outstanding(world.session) == []


@rule("G22", "M14")
def test_an_expiry_tells_nothing_of_it() -> None:
    world = World()
    ask(world)
    world.detach()
    world.wait(60_000)
    events = world.tick()
    assert not [event for event in events if isinstance(event, ev.ResponseEnded)]
    assert world.session.phase in ("closing", "closed")


# -- G23: a resident model -----------------------------------------------------------------------------------


@rule("G23", "K15")
def test_the_error_comes_before_the_terminal_and_both_before_the_end_of_the_session() -> None:
    able = capable(core.REGISTRY["echo"].capabilities, supports_reencode_context=False)
    world = World(plugin="echo", auto=True, capabilities=able)
    world.append()
    world.produce("", 100, world.resident)
    told = [
        kind
        for kind in kinds(world.fail(world.resident))
        if kind in ("ErrorReported", "ResponseEnded", "SessionClosed")
    ]
    assert told == ["ErrorReported", "ResponseEnded", "SessionClosed"]


# -- G34, G35: the order of an interruption ------------------------------------------------------------------


@rule("G34", "A4", "I17")
def test_an_interruption_keeps_its_order() -> None:
    world = World()
    response_id = world.begin()
    request = world.request
    world.produce("All is well. And you?", 1_000)
    world.ack(500)
    world.wait(200)
    events = world.barge_in()
    assert kinds(events) == ["Interrupted", "HistoryCut", "ResponseEnded"]
    interrupted, cut, ended = events
    assert isinstance(interrupted, ev.Interrupted)
    assert isinstance(cut, ev.HistoryCut)
    assert isinstance(ended, ev.ResponseEnded)
    assert (interrupted.epoch, interrupted.requests) == (1, (request,))
    assert (cut.response_id, cut.ms, cut.basis, cut.text) == (response_id, 500, "ack", "All is")
    assert isinstance(ended.item, Message)
    assert ended.item.content == (AudioPart("All is", None, 24_000, 500),)  # the item ends where the history does
    assert ended.text == "All is well. And you?"
    assert world.effects(events) == [fx.AbortRequests(requests=(request,))]
    assert world.session.requests[request].phase == "leaving"
    assert world.session.lease.last_activity == world.now


@rule("G35", "G38", "K21", "P15")
def test_work_that_outlives_its_abort_finds_its_epoch_dead() -> None:
    world = World()
    world.begin()
    request = world.request
    world.cancel()
    assert world.produce("late", 100, request) == []
    assert world.finish(request) == []
    assert world.do(cmd.StageSegmentFinished(request=request, decision="listen")) == []
    assert world.do(cmd.StageMeasured(request=request, costs=(cmd.StageCost(stage="llm", outputs=1),))) == []
    assert only(ask(world), ev.ResponseCreated).head.epoch == 1


# -- G38-G46: what is late, and what ends something ----------------------------------------------------------


@rule("G38", "G41", "P55")
def test_once_closing_began_nothing_more_is_told_of_answers() -> None:
    world = World(plugin="echo", auto=True)
    world.append()
    resident = world.resident
    world.produce("", 100, resident)
    world.close()
    assert world.produce("", 100, resident) == []
    assert world.do(cmd.StageSegmentFinished(request=resident, decision="end_of_turn")) == []
    assert world.finish(resident) == []


@rule("G41", "G39")
def test_an_end_is_never_too_late_for_its_own_answer() -> None:
    world = World(plugins=OVERLAPPING)
    first = only(ask(world), ev.ResponseCreated)
    world.end_inner(request=first.request)
    for _ in range(2):  # the session's turn goes on
        second = only(ask(world), ev.ResponseCreated)
        world.end_inner(request=second.request)
        world.finish(second.request)
    assert world.session.turn.turn > first.head.turn + 1
    assert only(world.finish(first.request), ev.ResponseEnded).head.id == first.head.id


@rule("G41")
def test_an_end_of_a_dead_epoch_ends_nothing() -> None:
    world = World()
    first = only(ask(world), ev.ResponseCreated)
    world.cancel()
    second = only(ask(world), ev.ResponseCreated)
    assert world.finish(first.request) == []
    assert world.session.response is not None
    assert world.session.response.head.id == second.head.id


@rule("Q4.12", "G29", "H14")
def test_the_end_of_a_draining_answer_does_not_end_a_newer_one() -> None:
    world = World(plugins=OVERLAPPING)
    first = only(ask(world), ev.ResponseCreated)
    world.produce("One.", 100)
    world.end_inner(request=first.request)
    second = only(ask(world), ev.ResponseCreated)
    events = world.finish(first.request)
    assert [event.head.id for event in events if isinstance(event, ev.ResponseEnded)] == [first.head.id]
    assert world.session.response is not None
    assert world.session.response.head.id == second.head.id
    assert world.session.input.stream.continuation is None
    assert kinds(world.produce("Two.", 100)) == ["OutputStarted", "AudioDelta"]


@rule("N13")
def test_words_of_the_user_come_once_for_the_item_that_was_spoken() -> None:
    world = World()
    ask(world)
    (item_id,) = world.session.conversation.order
    told = cmd.StageTranscribed(request=world.request, item_id=item_id, text="Hello?")
    assert only(world.do(told), ev.UserTranscribed).item_id == item_id
    world.do(cmd.StageTranscribed(request=world.request, item_id=item_id, text="Something else."))
    assert world.shown(item_id) == "Hello?"  # what was heard once stays
    world.cancel()
    assert world.do(told) == []


@rule("N15", "H15")
def test_a_model_s_context_takes_no_turn_twice_and_none_that_was_interrupted() -> None:
    world = World(plugins=OVERLAPPING)
    ask(world)
    turn = cmd.StageContext(request=world.request, turn=cmd.ContextTurn(user="?", assistant="Yes."))
    assert kinds(world.do(turn)) == ["ContextCommitted"]
    assert world.do(turn) == []
    world.cancel()
    assert world.do(turn) == []
    assert len(world.session.context) == 1


@rule("N11", "K12", "G15")
def test_a_direct_decision_is_consumed_and_says_nothing() -> None:
    world = World()
    world.begin()
    decided = cmd.StageSegmentFinished(request=world.request, decision="listen")
    events = world.do(decided)
    made = (ev.AudioDelta, ev.TextDelta, ev.OutputStarted)
    assert not [event for event in events if isinstance(event, made)]
    assert world.do(decided) == []  # asked twice, it decides nothing twice


@rule("A16")
def test_a_binding_that_is_reported_late_binds_nothing() -> None:
    world = World()
    world.begin()
    request = world.request
    world.cancel()
    assert world.do(cmd.StageAccepted(request=request)) == []
    assert world.session.requests[request].phase == "leaving"


@rule("G33")
@pytest.mark.parametrize("busy", [True, False])
def test_a_model_that_cannot_be_interrupted_says_so_and_goes_on(busy: bool) -> None:
    world = World(capabilities=capable(CASCADE, supports_barge_in=False))
    if busy:
        world.begin()
        world.produce("All is well.", 100)
    world.append(2)
    held = world.session.input.reserved
    assert error(world.barge_in()) == "barge_in_unsupported"
    assert world.session.input.reserved == held
    assert world.session.epoch == 0
    assert bool(world.session.response) == busy


@rule("G9", "G10")
def test_the_mode_of_a_session_may_change_and_an_answer_keeps_its_grammar() -> None:
    world = World()
    world.begin()
    world.produce("All is", 100)
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(output_modalities=("text",))))
    assert kinds(world.produce(" well.", 100)) == ["AudioDelta"]
    assert only(world.finish(), ev.ResponseEnded).count == 7
