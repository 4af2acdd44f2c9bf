"""Turns that wait for the answer before them: what lets them go on, and what drops them (BEHAVIOURS F22-F24)."""

import msgspec
import pytest

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.config import Limits, PlaybackPolicy
from antiphon.sessions.view import next_deadline

from tests.rules import rule
from tests.sessions.world import FRAME, MS, QUICK_VAD, World, error, kinds, only

LONG = 25
"""Frames of 32 ms: 800 ms of speech over an answer."""


def waiting(*, wanted: bool = True, policy: PlaybackPolicy = "ack_only") -> World:
    """Return a session in which a turn was spoken over an answer that is being made."""
    world = World(policy=policy)
    world.begin()
    world.produce("One two three.", 2_000)
    world.append(LONG)
    world.commit(create_response=wanted)
    return world


def behind_playback(ms: int = 4_000, *, wanted: bool = True) -> World:
    """Return a session in which a turn was spoken over an answer that is only played any more."""
    world = World()
    world.answer("One two three.", ms)
    world.append(LONG)
    events = world.commit(create_response=wanted)
    assert only(events, ev.InputCommitted).overlap_deferred
    assert ("AnswerDeferred" in kinds(events)) == wanted
    return world


@rule("F22")
def test_f22_the_end_of_the_answer_promotes_though_its_sound_is_still_played() -> None:
    world = waiting()
    events = world.finish()
    assert kinds(events) == ["RequestFinished", "ResponseEnded", "ResponseCreated", "RequestSubmitted"]
    assert world.session.turn.deferred == 0
    assert world.session.input.reserved == 0
    assert next_deadline(world.session) != world.now


@rule("E40", "F22")
def test_f22_several_turns_have_one_answer() -> None:
    world = waiting()
    world.append(LONG)
    world.commit(create_response=True)
    assert kinds(world.finish()).count("ResponseCreated") == 1
    assert world.session.turn.deferred == world.session.turn.unanswered == 0


@rule("F22", "Q4.2")
def test_q4_2_a_turn_that_asked_for_no_answer_gets_none() -> None:
    world = waiting(wanted=False)
    assert kinds(world.finish()) == ["RequestFinished", "ResponseEnded"]
    world.ack(2_000)
    assert "ResponseCreated" in kinds(world.respond())


@rule("Q4.2")
def test_q4_2_nor_is_the_wish_of_another_turn_forgotten() -> None:
    world = waiting(wanted=True)
    world.append(LONG)
    world.commit(create_response=False)
    assert "ResponseCreated" in kinds(world.finish())


@rule("F22", "Q4.3")
def test_q4_3_full_acknowledgement_of_the_playback_promotes() -> None:
    world = behind_playback()
    assert kinds(world.ack(2_000)) == ["PlaybackAcknowledged"]
    events = world.ack(4_000)
    assert kinds(events) == ["PlaybackAcknowledged", "ResponseCreated", "RequestSubmitted"]


@rule("F22", "Q4.3")
def test_q4_3_the_clock_promotes_what_was_played_and_never_acknowledged() -> None:
    world = behind_playback(4_000)
    due = next_deadline(world.session)
    assert due == (4_000) * MS
    world.now = due - 1
    assert world.tick() == []
    world.now = due
    assert kinds(world.tick()) == ["ResponseCreated", "RequestSubmitted"]


@rule("I19", "Q4.3")
def test_q4_3_a_client_that_stops_to_acknowledge_blocks_for_twice_the_rest() -> None:
    world = behind_playback(4_000)
    world.release()
    world.ack(1_000)
    acked = world.now
    assert next_deadline(world.session) == acked + 2 * 3_000 * MS
    assert error(world.respond()) == "response_already_active"
    world.wait(6_000)
    assert kinds(world.tick()) == ["ResponseCreated", "RequestSubmitted"]


@rule("Q4.3")
def test_q4_3_response_create_works_again_when_the_playback_is_over() -> None:
    world = behind_playback(4_000)
    assert error(world.respond()) == "response_already_active"
    world.wait(4_000)
    assert "ResponseCreated" in kinds(world.respond())
    assert world.session.turn.deferred == 0


@rule("Q4.3")
def test_q4_3_a_truncation_ends_the_playback() -> None:
    world = behind_playback()
    spoken = world.session.conversation.order[-2]
    assert kinds(world.truncate(spoken, 500)) == ["ItemTruncated", "ResponseCreated", "RequestSubmitted"]


@rule("Q4.3")
def test_q4_3_a_deleted_answer_blocks_nothing() -> None:
    world = behind_playback()
    world.do(cmd.DeleteItem(attachment=1, item_id=world.session.conversation.order[-2]))
    assert next_deadline(world.session) == world.now
    assert kinds(world.tick()) == ["ResponseCreated", "RequestSubmitted"]


@rule("F22")
def test_f22_nobody_who_could_hear_it_no_clock() -> None:
    world = World()
    response_id = world.begin()
    world.detach()
    world.produce("One", 2_000)
    world.finish()
    world.resume()
    world.append(LONG)
    world.commit(create_response=True)
    assert world.session.turn.deferred == 1
    world.do(cmd.ConfirmAttachment(attachment=2))
    world.detach()
    due = next_deadline(world.session)
    assert due is not None
    world.now = due
    assert "ResponseCreated" in kinds(world.tick()), "what was sent before the connection went plays on"
    assert response_id in world.session.playouts


@rule("F22")
def test_f22_without_acknowledgements_playback_blocks_nothing() -> None:
    world = World(policy="commit_all_on_done")
    world.answer("One two three.", 4_000)
    world.append(LONG)
    events = world.commit(create_response=True)
    assert not only(events, ev.InputCommitted).response_create_deferred
    assert "ResponseCreated" in kinds(events)


@rule("F23", "G46", "Q4.4")
def test_q4_4_a_failed_answer_keeps_the_turn_answerable_with_its_bytes() -> None:
    world = waiting()
    events = world.fail()
    assert kinds(events) == ["ErrorReported", "ResponseEnded", "RequestFinished"]
    assert (world.session.turn.deferred, world.session.turn.unanswered) == (0, 1)
    assert world.session.input.retained == LONG * 1024
    world.ack(2_000)
    assert "ResponseCreated" in kinds(world.respond())
    assert world.session.input.retained == 0


@rule("Q4.4")
def test_q4_4_nor_does_a_restart_strand_it() -> None:
    world = waiting()
    world.restart()
    assert world.session.turn.deferred == 0
    assert world.session.input.retained == LONG * 1024


@rule("F23", "G30")
def test_f23_clearing_the_output_keeps_and_promotes() -> None:
    world = waiting()
    events = world.do(cmd.ClearOutput(attachment=1))
    assert kinds(events) == [
        "OutputCleared",
        "Interrupted",
        "HistoryCut",
        "ResponseEnded",
        "ResponseCreated",
        "RequestSubmitted",
    ]


@rule("F23", "G30")
def test_f23_clearing_what_is_only_played_promotes_too() -> None:
    world = behind_playback()
    events = world.do(cmd.ClearOutput(attachment=1))
    assert kinds(events) == ["OutputCleared", "Interrupted", "HistoryCut", "ResponseCreated", "RequestSubmitted"]


@rule("F23")
@pytest.mark.parametrize("command", [cmd.CancelResponse, cmd.BargeIn, cmd.CancelInput, cmd.ClearInput])
def test_f23_what_the_client_calls_off_is_dropped_with_its_bytes(command: type[cmd.ClientCommand]) -> None:
    world = waiting()
    made: cmd.AnyCommand = command(attachment=1)  # type: ignore[assignment]
    world.do(made)
    assert (world.session.turn.deferred, world.session.turn.unanswered) == (0, 0)
    assert world.session.input.reserved == 0
    if world.session.response is not None:
        assert kinds(world.finish()) == ["RequestFinished", "ResponseEnded"]
        world.ack(2_000)
    assert error(world.respond()) == "response_create_without_input"


@rule("F23")
def test_f23_speech_that_interrupts_drops_it_too() -> None:
    world = waiting()
    world.do(cmd.AppendAudio(attachment=1, size=1024, overlap="barge_in"))
    assert (world.session.turn.deferred, world.session.input.retained) == (0, 0)


@rule("F24")
def test_f24_input_that_is_open_at_the_end_of_an_answer_is_left_alone() -> None:
    world = World()
    world.begin()
    started = only(world.append(LONG), ev.SpeechStarted)
    assert world.session.input.overlap_ms == 800
    world.finish()
    assert (world.session.input.overlap_ms, world.session.input.phase) == (0, "speaking")
    world.append(2)
    committed = only(world.commit(), ev.InputCommitted)
    assert committed.item_id == started.item_id
    assert committed.ref is not None
    assert committed.ref.size == (LONG + 2) * 1024


@rule("P37")
def test_p37_a_turn_waits_with_a_deadline_or_for_an_answer_that_runs() -> None:
    world = behind_playback()
    assert world.session.response is None
    assert next_deadline(world.session) is not None
    world = waiting()
    assert world.session.response is not None


@rule("E14")
def test_e14_what_the_detector_ends_stays_in_the_buffer_when_too_many_turns_wait() -> None:
    vad = msgspec.structs.replace(QUICK_VAD, interrupt_response=False)
    world = World(vad=vad, limits=Limits(pending_commits=2))
    world.begin()
    for n in range(2):
        world.append(LONG, score=900)
        world.append(10, score=0)
        assert world.session.turn.deferred == n + 1
    started = only(world.append(LONG, score=900), ev.SpeechStarted)
    before = world.session.input.reserved
    told = world.append(10, score=0)
    assert only(told, ev.ErrorReported).code == "input_backpressure"
    assert "InputCommitted" not in kinds(told)
    assert world.session.input.reserved > before
    assert kinds(world.finish()).count("ResponseCreated") == 1
    world.append(LONG, score=900)
    committed = only(world.append(10, score=0), ev.InputCommitted)
    assert committed.item_id == started.item_id
    assert committed.ref is not None
    assert committed.ref.size > (2 * LONG + 10) * FRAME


@rule("F22", "G5")
def test_the_end_of_an_answer_out_of_band_promotes_nothing_that_it_did_not_block() -> None:
    world = behind_playback()
    aside = only(world.respond(cmd.ResponseOptions(remember=False, instructions="Rate it.")), ev.ResponseCreated)
    assert kinds(world.finish(aside.request)) == ["RequestFinished", "ResponseEnded"]
    assert world.session.turn.deferred == 1
    assert "ResponseCreated" in kinds(world.ack(4_000))


@rule("F22", "J9")
def test_a_call_that_ends_the_answer_of_a_resident_model_promotes_as_any_end_does() -> None:
    world = World(plugin="echo")
    world.append(LONG)
    world.commit(create_response=True)
    world.accept()
    world.append(LONG)
    world.commit(create_response=True)
    assert world.session.turn.deferred == 1
    events = world.call(ends=True)
    assert kinds(events)[-3:] == ["ResponseEnded", "ResponseCreated", "UnitTaken"]
