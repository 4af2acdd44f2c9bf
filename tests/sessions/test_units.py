"""Units: what a resident model is given of the user's sound, when, and with which numbers."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.config import Capabilities, ConfigPatch, Limits
from antiphon.events.ids import parse_request, resident_request
from antiphon.sessions import core
from antiphon.sessions.state import Span
from antiphon.sessions.units import Cut, cut

from tests.rules import rule
from tests.sessions.world import FRAME, OUT, World, error, kinds, only

UNIT = 5 * FRAME
"""Bytes of a unit of 160 ms: five frames."""


def able(**changes: Any) -> Capabilities:
    """The echo, with units of 160 ms that may hold pictures."""
    echo = core.REGISTRY["echo"].capabilities
    given = {"chunk_period_ms": 160, "optional_input_modalities": ("text", "video"), **changes}
    return msgspec.structs.replace(echo, **given)


def listening(**changes: Any) -> World:
    """A session that listens all the time."""
    return World(plugin="echo", auto=True, capabilities=able(**changes))


def turns(**changes: Any) -> World:
    """A session of turns, whose model is resident all the same."""
    return World(plugin="echo", capabilities=able(**changes))


def units(events: list[ev.AnyEvent]) -> list[ev.UnitTaken]:
    return [event for event in events if isinstance(event, ev.UnitTaken)]


def places(events: list[ev.AnyEvent]) -> list[tuple[int, int, int]]:
    """Where the sound of each unit begins and ends, and how much silence follows."""
    return [(unit.refs[0].start, unit.refs[-1].end, unit.pad) for unit in units(events)]


# -- framing -------------------------------------------------------------------------------------------------


@rule("E16", "P30")
def test_a_unit_goes_out_as_soon_as_the_buffer_holds_it_and_the_rest_waits() -> None:
    world = listening()
    assert units(world.append(4)) == []
    assert world.session.requests == {}
    events = world.append(2)
    assert kinds(events) == ["AudioReceived", "RequestSubmitted", "UnitTaken"]
    assert places(events) == [(0, UNIT, 0)]
    world.accept()
    assert world.session.input.reserved == FRAME


@rule("E17", "Q4.6")
def test_all_complete_units_of_one_append_go_out_oldest_first() -> None:
    world = listening()
    world.append(2)
    events = world.append(14)
    assert places(events) == [(0, UNIT, 0), (UNIT, 2 * UNIT, 0), (2 * UNIT, 3 * UNIT, 0)]
    assert [unit.seq for unit in units(events)] == [1, 2, 3]
    feeds = [effect for effect in world.effects(events) if isinstance(effect, fx.FeedStage)]
    assert [feed.refs for feed in feeds] == [unit.refs for unit in units(events)]


@rule("E24", "A8", "P10")
def test_units_are_numbered_in_the_order_of_the_wire() -> None:
    world = listening()
    taken = [unit for _ in range(3) for unit in units(world.append(5))]
    assert [(unit.operation, unit.seq, unit.turn_seq) for unit in taken] == [(1, 1, 1), (2, 2, 2), (3, 3, 3)]
    world.accept()
    assert [(unit.operation, unit.seq) for unit in units(world.append(5))] == [(4, 4)]


@rule("A8", "A14")
def test_the_numbers_of_a_turn_begin_anew_with_the_turn() -> None:
    world = listening()
    world.append(5)
    world.accept()
    world.produce("word", 100, world.resident)
    assert [(unit.turn, unit.turn_seq) for unit in units(world.append(5))] == [(0, 2)]
    world.decide("end_of_turn", world.session.input.stream.operation)
    (unit,) = units(world.append(5))
    assert (unit.seq, unit.turn, unit.turn_seq) == (3, 1, 1)


@rule("A5", "A10", "N62", "Q4.30")
def test_an_interruption_begins_to_count_anew_in_a_request_of_the_new_epoch() -> None:
    world = listening()
    world.append(10)
    world.accept()
    world.produce("word", 100, world.resident)
    world.append(5)
    world.cancel()
    assert world.session.input.stream.in_flight == []
    assert world.session.turn.state in ("barge_in", "user_speaking")
    events = world.append(5)
    (unit,) = units(events)
    assert unit.request == resident_request("duplex-1", 1)
    assert (unit.seq, unit.turn_seq) == (1, 1)
    assert unit.operation == 4


@rule("A10")
def test_the_name_of_a_resident_request_tells_session_and_epoch() -> None:
    name = parse_request(resident_request("duplex-a-1", 3))
    assert name is not None
    assert (name.session, name.epoch, name.turn) == ("duplex-a-1", 3, None)
    for text in ("duplex-a.e03", "duplex-a.e", "duplex-a.e1.turn", "duplex-a", ".e1", "duplex-a.e1x"):
        assert parse_request(text) is None


@rule("A13")
@pytest.mark.parametrize("auto", [True, False])
def test_one_capability_says_that_requests_are_resident(auto: bool) -> None:
    world = World(plugin="echo", auto=auto)
    world.append(4)
    events = world.commit(create_response=True) if not auto else []
    assert world.resident == "duplex-1.e0"
    other = World(plugin="cascade", auto=auto)
    other.append(4)
    events = other.commit(create_response=True)
    assert only(events, ev.RequestSubmitted).request == "duplex-1.e0.turn0"


@rule("E16", "E31", "P31", "Q4.1")
def test_a_commit_pads_what_is_left_and_gives_it_to_the_model_once() -> None:
    world = listening()
    world.append(7)
    world.accept()
    events = world.commit()
    assert kinds(events) == ["SpeechStopped", "UnitTaken", "InputCommitted", "ItemCreated"]
    (unit,) = units(events)
    assert (unit.refs, unit.pad, unit.final) == ((SampleRef("in", UNIT, 2 * FRAME),), 3 * FRAME, True)
    assert unit.response_id is None
    assert world.session.input.reserved == 2 * FRAME
    world.accept()
    assert world.session.input.reserved == 0
    world.append(3)
    assert places(world.commit()) == [(7 * FRAME, 10 * FRAME, 2 * FRAME)]


@rule("E32")
def test_a_commit_on_a_boundary_gives_the_model_nothing_more() -> None:
    world = listening()
    world.append(5)
    world.accept()
    assert kinds(world.commit()) == ["SpeechStopped", "InputCommitted", "ItemCreated"]


@rule("E35", "E34")
def test_silence_that_is_left_at_a_commit_is_dropped() -> None:
    world = listening()
    world.append(2, speech=False)
    events = world.commit()
    assert kinds(events) == ["InputCommitted", "ListenDecided"]
    assert only(events, ev.InputCommitted).empty
    assert world.session.input.reserved == 0
    assert world.session.turn.commits == 0
    assert places(world.append(5)) == [(2 * FRAME, 7 * FRAME, 0)]


@rule("E21")
def test_a_unit_is_speech_if_any_byte_of_it_is_and_the_rest_keeps_its_flags() -> None:
    world = listening()
    world.append(3, speech=False)
    events = world.append(4, speech=True, force_listen=True)
    assert [(unit.speech, unit.force_listen) for unit in units(events)] == [(True, True)]
    events = world.append(3, speech=False)
    assert [(unit.speech, unit.force_listen) for unit in units(events)] == [(True, True)]
    events = world.append(5, speech=False)
    assert [(unit.speech, unit.force_listen) for unit in units(events)] == [(False, False)]


@rule("E22", "E7")
def test_one_group_of_pictures_rides_on_each_unit_in_order() -> None:
    world = listening()
    world.append(1, pictures=(10,))
    world.append(1, pictures=(20, 30))
    events = world.append(8)
    groups = [tuple(ref.size for ref in unit.frames) for unit in units(events)]
    assert groups == [(10,), (20, 30)]
    assert [ref.stream for unit in units(events) for ref in unit.frames] == ["img"] * 3
    assert [ref.start for unit in units(events) for ref in unit.frames] == [0, 10, 30]
    assert world.session.input.reserved == 10 * FRAME + 60


@rule("N28", "E20")
def test_the_cut_of_a_queue() -> None:
    queue = [Span(0, 60, True, False), Span(60, 150, False, False, True), Span(200, 230, False, True)]
    first = cut(queue, 100)
    assert first is not None
    assert first == Cut((SampleRef("in", 0, 60), SampleRef("in", 60, 40)), 0, True, False, False)
    second = cut(queue, 100)
    assert second == Cut((SampleRef("in", 100, 50),), 50, False, False, True)
    assert cut(queue, 100) is None
    assert queue == [Span(200, 230, False, True)]
    assert cut([], None) is None
    assert cut(queue, None) == Cut((SampleRef("in", 200, 30),), 0, False, True, False)


# -- acceptance and refusal ----------------------------------------------------------------------------------


@rule("K8", "E27", "E13")
def test_an_answer_to_one_unit_accepts_all_before_it() -> None:
    world = listening()
    world.append(15)
    assert not world.session.locked
    operation = world.session.input.stream.in_flight[1].taken.operation
    assert kinds(world.produce("word", 100, world.resident))[0] == "ResponseCreated"
    said = cmd.StageProduced(request=world.resident, text="x", operation=operation)
    assert kinds(world.do(said)) == ["UnitsAccepted", "TextDelta"]
    assert world.session.locked
    assert world.session.input.reserved == UNIT
    assert world.session.input.stream.seq == 2
    assert kinds(world.do(said)) == ["TextDelta"], "P5: an answer that comes twice"


@rule("E25", "A8", "P33", "P10")
def test_a_refused_unit_takes_those_behind_it_along_and_its_number_is_given_again() -> None:
    world = listening()
    world.append(15)
    world.do(cmd.StageAccepted(request=world.resident, operation=1))
    events = world.refuse(2)
    assert kinds(events) == ["ErrorReported", "UnitsGivenUp"]
    assert only(events, ev.ErrorReported).code == "runtime_append_failed"
    assert world.session.input.reserved == 0
    assert world.do(cmd.StageRefused(request=world.resident, operation=2, message="Again.")) == []
    events = world.append(5)
    assert [(unit.operation, unit.seq, unit.turn_seq) for unit in units(events)] == [(4, 2, 2)]
    assert places(events) == [(15 * FRAME, 20 * FRAME, 0)]
    world.accept()
    assert world.session.input.stream.seq == 2


@rule("E26", "Q4.5")
def test_one_refusal_does_not_poison_what_comes_later() -> None:
    world = turns()
    world.append(3)
    world.commit(create_response=True)
    world.refuse()
    world.append(3)
    events = world.commit(create_response=True)
    assert kinds(events) == [
        "SpeechStopped",
        "InputCommitted",
        "ItemCreated",
        "ResponseCreated",
        "UnitTaken",
    ]
    patch = ConfigPatch(temperature=0.5)
    world.accept()
    assert kinds(world.do(cmd.UpdateSession(attachment=1, patch=patch))) == ["ConfigUpdated"]


@rule("G22", "K9", "P21")
def test_a_refused_unit_fails_the_response_that_was_announced_for_it() -> None:
    world = turns()
    world.append(12)
    response_id = only(world.commit(create_response=True), ev.ResponseCreated).head.id
    world.do(cmd.StageAccepted(request=world.resident, operation=1))
    events = world.refuse(2)
    assert kinds(events) == ["UnitsGivenUp", "ErrorReported", "ResponseEnded"]
    ended = only(events, ev.ResponseEnded)
    assert (ended.head.id, ended.status) == (response_id, "failed")
    assert ended.failure is not None
    assert ended.failure.code == "runtime_append_failed"
    assert world.session.response is None
    assert world.session.input.reserved == 0
    assert world.resident == "duplex-1.e0"


@rule("G22", "E25", "G24", "P33")
@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("runtime_append_failed", "runtime_append_failed"),
        ("engine_error", "runtime_append_failed"),
        ("context_length_exceeded", "context_length_exceeded"),
    ],
)
def test_each_answer_that_refused_units_were_announced_for_fails_with_an_error_of_its_own(
    code: str, told: str
) -> None:
    """A resident model makes one answer at a time: that there are two is made up here."""
    world = turns()
    world.append(12)
    newer = only(world.commit(create_response=True), ev.ResponseCreated).head
    session = core.load(core.dump(world.session))
    active = session.response
    assert active is not None
    older = replace(active.head, id="resp_older", item_id="item_resp_older")
    session.others[older.id] = replace(active, head=older)
    first, *rest = session.input.stream.in_flight
    session.input.stream.in_flight = [replace(first, taken=replace(first.taken, response_id=older.id)), *rest]
    report = cmd.StageRefused(request=world.resident, operation=1, code=code, message="There is no room.")
    events = core.decide(session, report, world.now)
    assert kinds(events) == ["UnitsGivenUp", *["ErrorReported", "ResponseEnded"] * 2]
    assert [(event.code, event.message) for event in events if isinstance(event, ev.ErrorReported)] == [
        (told, "There is no room.")
    ] * 2
    ended = [event for event in events if isinstance(event, ev.ResponseEnded)]
    assert [event.head.id for event in ended] == [older.id, newer.id]
    assert [event.failure for event in ended] == [ev.Failure(told, "There is no room.")] * 2


@rule("G22", "E25", "P33")
def test_units_of_an_answer_that_is_over_fail_only_the_one_that_is_open() -> None:
    world = turns()
    world.append(12)
    over = only(world.commit(create_response=True), ev.ResponseCreated).head.id
    assert only(world.decide("end_of_turn"), ev.ResponseEnded).head.id == over
    world.say("And?")
    open_ = only(world.respond(), ev.ResponseCreated).head.id
    events = world.refuse()
    assert kinds(events) == ["UnitsGivenUp", "ErrorReported", "ResponseEnded"]
    assert only(events, ev.ResponseEnded).head.id == open_
    assert world.session.input.reserved == 0
    world.say("Once more?")
    assert only(world.respond(), ev.UnitTaken).seq == 1, "as if nothing had been sent"


@rule("G22", "G21", "P21")
@pytest.mark.parametrize("reencodes", [False, True])
def test_an_answer_whose_units_the_model_did_not_take_before_it_ended_is_append_cancelled(reencodes: bool) -> None:
    world = turns(supports_reencode_context=reencodes)
    world.append(12)
    response_id = only(world.commit(create_response=True), ev.ResponseCreated).head.id
    world.do(cmd.StageAccepted(request=world.resident, operation=1))
    events = world.finish(world.resident)
    assert kinds(events) == ["RequestFinished", "ResponseEnded", "Interrupted"], "nobody made an error"
    ended = only(events, ev.ResponseEnded)
    assert (ended.head.id, ended.status) == (response_id, "failed")
    assert ended.failure is not None
    assert ended.failure.code == "append_cancelled"
    assert (world.session.response, world.session.input.reserved, world.session.phase) == (None, 0, "open")
    world.append(5)
    assert only(world.commit(create_response=True), ev.RequestSubmitted).request == "duplex-1.e1"


@rule("G22")
@pytest.mark.parametrize("how", ["taken", "said", "silent"])
def test_an_answer_whose_units_the_model_has_heard_is_complete_when_it_ends(how: str) -> None:
    world = turns()
    world.append(5)
    world.commit(create_response=True)
    if how == "taken":
        world.accept()
    elif how == "said":
        world.produce("Yes.", 100)
    ended = only(world.do(cmd.StageFinished(request=world.resident, silent=how == "silent")), ev.ResponseEnded)
    assert (ended.status, ended.failure) == ("completed", None)


@rule("P5", "K21", "K9")
def test_answers_to_units_that_nobody_knows_change_nothing() -> None:
    world = listening()
    world.append(5)
    for report in (
        cmd.StageAccepted(request="duplex-1.e7", operation=1),
        cmd.StageAccepted(request=world.resident, operation=0),
        cmd.StageRefused(request=world.resident, operation=9, message="m"),
        cmd.StageRefused(request="duplex-1.e7", operation=1, message="m"),
        cmd.StageSegmentFinished(request="duplex-1.e7", decision="listen"),
    ):
        events = [event for event in world.do(report) if not isinstance(event, ev.RequestAccepted)]
        assert events == []


@rule("E20", "N59")
@pytest.mark.parametrize("how", ["lose", "finish"])
def test_units_whose_request_died_go_back_to_the_front_and_to_the_next_one(how: str) -> None:
    world = listening(supports_reencode_context=True)
    world.append(5, pictures=(10,), speech=False, force_listen=True)
    world.append(5, pictures=(20,))
    world.append(2)
    world.do(cmd.StageAccepted(request=world.resident, operation=1))
    events = {"lose": world.lose, "finish": world.finish}[how](world.resident)
    assert only(events, ev.UnitsReturned).operation == 2
    (unit,) = units(events)
    assert (unit.request, unit.seq, unit.speech) == ("duplex-1.e1", 1, True)
    assert places(events) == [(UNIT, 2 * UNIT, 0)]
    assert [ref.size for ref in unit.frames] == [20]
    assert places(world.append(3)) == [(2 * UNIT, 3 * UNIT, 0)]


@rule("E20", "E16")
def test_the_end_of_a_commit_goes_back_as_the_end_of_a_commit() -> None:
    world = listening(supports_reencode_context=True)
    world.append(7)
    world.accept()
    world.commit()
    events = world.lose(world.resident)
    assert places(events) == [(UNIT, 7 * FRAME, 3 * FRAME)]
    assert units(events)[0].final


@rule("P33", "E20")
def test_units_of_a_request_that_failed_are_not_tried_again() -> None:
    world = listening(supports_reencode_context=True)
    world.append(10)
    events = world.fail(world.resident)
    assert "UnitsReturned" not in kinds(events)
    assert world.session.input.reserved == 0


@rule("E20")
def test_a_restart_returns_what_the_stage_did_not_say_it_had() -> None:
    world = listening(supports_reencode_context=True)
    world.append(7)
    events = world.restart()
    assert only(events, ev.UnitsReturned).operation == 1
    assert units(world.resume()) == [], "whoever takes the session may not be heard"
    assert places(world.do(cmd.ConfirmAttachment(attachment=world.attachment))) == [(0, UNIT, 0)]
    assert places(world.append(3)) == [(UNIT, 2 * UNIT, 0)]


# -- clear and cancel ----------------------------------------------------------------------------------------


@rule("E28", "Q4.28", "P33")
def test_a_clear_drops_what_waits_and_spares_what_was_handed_over() -> None:
    world = listening()
    world.append(7, pictures=(10,))
    world.append(1, pictures=(20,))
    events = world.clear()
    assert kinds(events) == ["InputCleared"]
    assert world.session.epoch == 0
    assert world.session.input.reserved == UNIT + 10
    assert kinds(world.accept()) == ["RequestAccepted", "UnitsAccepted"]
    assert world.session.input.reserved == 0
    events = world.append(5)
    assert places(events) == [(8 * FRAME, 13 * FRAME, 0)]
    assert units(events)[0].frames == ()


@rule("E28", "Q4.20")
def test_units_that_are_refused_after_a_clear_leave_no_trace() -> None:
    world = listening()
    world.append(7)
    world.clear()
    world.append(2)
    assert kinds(world.refuse()) == ["ErrorReported", "UnitsGivenUp"]
    assert world.session.input.reserved == 2 * FRAME
    assert places(world.append(3)) == [(7 * FRAME, 12 * FRAME, 0)]


@rule("E29", "G30", "A4")
@pytest.mark.parametrize("how", [cmd.CancelInput, cmd.BargeIn])
def test_calling_the_input_off_kills_units_under_way_with_their_epoch(
    how: type[cmd.CancelInput] | type[cmd.BargeIn],
) -> None:
    world = listening()
    world.append(7)
    request = world.resident
    events = world.do(how(attachment=1))
    assert kinds(events) == ["Interrupted", "InputCleared"]
    assert world.effects(events) == [fx.AbortRequests(requests=(request,))]
    assert world.session.epoch == 1
    assert world.session.input.reserved == 0
    assert kinds(world.do(how(attachment=1))) == ["InputCleared"]
    assert world.session.epoch == 1, "P8: there was nothing to interrupt"


@rule("F17")
def test_a_barge_in_frees_the_sound_before_it_from_only_being_listened_to() -> None:
    world = listening()
    world.append(5)
    world.accept()
    world.produce("word", 500, world.resident)
    world.append(2, force_listen=True)
    world.cancel()
    (unit,) = units(world.append(3))
    assert not unit.force_listen


@rule("F17")
def test_a_cancel_frees_what_is_buffered_from_only_being_listened_to() -> None:
    world = turns()
    world.append(5)
    world.commit(create_response=True)
    world.accept()
    world.produce("word", 500)
    world.append(5, force_listen=True)
    assert [span.force_listen for span in world.session.input.stream.buffer] == [True]
    world.cancel()
    events = world.commit(create_response=True)
    assert [unit.force_listen for unit in units(events)] == [False]


# -- sessions of turns ---------------------------------------------------------------------------------------


@rule("E18", "E39")
def test_a_session_of_turns_only_buffers() -> None:
    world = turns()
    assert kinds(world.append(12)) == ["AudioReceived", "SpeechStarted"]
    assert kinds(world.commit(create_response=False)) == ["SpeechStopped", "InputCommitted", "ItemCreated"]
    assert world.session.requests == {}
    assert world.session.input.reserved == 12 * FRAME
    events = world.respond()
    assert kinds(events) == ["ResponseCreated", "RequestSubmitted", "UnitTaken", "UnitTaken", "UnitTaken"]
    assert [(unit.final, unit.pad) for unit in units(events)] == [(False, 0), (False, 0), (True, 3 * FRAME)]
    assert {unit.response_id for unit in units(events)} == {only(events, ev.ResponseCreated).head.id}
    assert world.session.input.reserved == 12 * FRAME
    world.accept()
    assert world.session.input.reserved == 0


@rule("G8", "E31", "K5")
def test_a_turn_is_announced_then_handed_over_and_the_last_unit_says_whose_it_is() -> None:
    world = turns()
    world.append(7)
    events = world.commit(create_response=True)
    assert kinds(events) == [
        "SpeechStopped",
        "InputCommitted",
        "ItemCreated",
        "ResponseCreated",
        "RequestSubmitted",
        "UnitTaken",
        "UnitTaken",
    ]
    effects = world.effects(events)
    assert [type(effect) for effect in effects] == [fx.SubmitToStage, fx.FeedStage, fx.FeedStage]
    first, last = effects[1:]
    assert isinstance(first, fx.FeedStage)
    assert isinstance(last, fx.FeedStage)
    assert first.turn is None
    assert last.turn is not None
    assert last.turn.response_id == only(events, ev.ResponseCreated).head.id
    assert world.request == world.resident
    world.accept()
    world.produce("Yes.", 100)
    assert only(world.decide("end_of_turn"), ev.ResponseEnded).status == "completed"
    world.do(cmd.AckPlayback(attachment=1, played_ms=100))
    world.append(5)
    events = world.commit(create_response=True)
    assert "RequestSubmitted" not in kinds(events), "K5: the same request is extended"
    assert [(unit.seq, unit.turn, unit.turn_seq) for unit in units(events)] == [(3, 1, 1)]


@rule("E40", "E39", "G6")
def test_two_commits_before_one_response_are_one_input() -> None:
    world = turns()
    world.append(3, force_listen=True)
    world.commit(create_response=False)
    world.append(4, speech=False)
    world.append(3)
    world.commit(create_response=False)
    assert len(world.session.conversation.order) == 2
    assert world.session.input.reserved == 6 * FRAME
    events = world.respond()
    (first, last) = units(events)
    assert first.refs == (SampleRef("in", 0, 3 * FRAME), SampleRef("in", 7 * FRAME, 2 * FRAME))
    assert first.force_listen
    assert first.speech
    assert (last.refs, last.pad) == ((SampleRef("in", 9 * FRAME, FRAME),), 4 * FRAME)


@rule("G6")
def test_a_conversation_alone_is_one_unit_of_its_own_kind() -> None:
    world = turns()
    world.say("How are you?")
    events = world.respond()
    assert kinds(events) == ["ResponseCreated", "RequestSubmitted", "UnitTaken"]
    (unit,) = units(events)
    assert (unit.kind, unit.refs, unit.pad, unit.final) == ("conversation", (), 0, True)


@rule("E22", "E34")
def test_pictures_alone_are_one_unit_of_silence_with_them() -> None:
    world = turns(required_input_modalities=("video",), optional_input_modalities=("audio", "text"))
    world.do(cmd.AppendAudio(attachment=1, size=0, wire_bytes=40, frames=(40,), speech=False))
    events = world.commit(create_response=True)
    (unit,) = units(events)
    assert (unit.kind, unit.refs, unit.pad, [ref.size for ref in unit.frames]) == ("audio", (), UNIT, [40])


@rule("E28", "E39")
@pytest.mark.parametrize("how", ["clear", "cancel_input", "barge_in"])
def test_retained_sound_is_dropped_by_whoever_drops_input(how: str) -> None:
    world = turns()
    world.append(12, pictures=(10,))
    world.commit(create_response=False)
    world.append(2)
    ways = {
        "clear": world.clear,
        "barge_in": world.barge_in,
        "cancel_input": lambda: world.do(cmd.CancelInput(attachment=1)),
    }
    ways[how]()
    assert world.session.input.reserved == 0


@rule("F16")
def test_what_is_committed_stays_when_an_acknowledgement_is_forgotten() -> None:
    world = turns()
    world.begin()
    world.accept()
    world.append(30)
    world.commit(create_response=False)
    assert world.session.input.reserved == 30 * FRAME
    world.append(2)
    hint = cmd.AppendAudio(attachment=1, size=FRAME, wire_bytes=FRAME, overlap="continue")
    assert "InputDiscarded" in kinds(world.do(hint))
    assert world.session.input.reserved == 30 * FRAME


@rule("E31", "G25")
def test_a_session_that_begins_to_listen_gives_the_model_what_it_kept() -> None:
    world = turns()
    world.append(4)
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(auto_response=True)))
    assert places(world.append(2)) == [(0, UNIT, 0)]


@rule("E16", "P30")
def test_what_is_whole_when_a_session_begins_to_listen_does_not_wait_for_more() -> None:
    world = turns()
    world.append(11)
    events = world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(auto_response=True)))
    assert places(events) == [(0, UNIT, 0), (UNIT, 2 * UNIT, 0)]
    assert kinds(events)[0] == "ConfigUpdated"
    assert world.session.input.stream.waiting == FRAME


@rule("E12", "P28")
def test_the_budget_counts_units_under_way_and_pictures() -> None:
    limits = Limits(input_bytes=UNIT + 50)
    world = World(plugin="echo", auto=True, capabilities=able(), limits=limits)
    world.append(5)
    assert error(world.append(1)) == "input_backpressure"
    assert world.session.input.reserved == UNIT
    world.accept()
    world.append(1, pictures=(2 * FRAME,))
    assert error(world.append(2, pictures=(2 * FRAME,))) == "input_backpressure"


@rule("E15", "P27", "M9")
def test_a_closing_session_gives_all_bytes_back() -> None:
    world = listening()
    world.append(7, pictures=(10,))
    world.commit()
    world.append(3)
    assert world.session.input.stream.held
    world.close()
    world.release()
    assert world.session.phase == "closed"
    assert world.session.input.reserved == 0


# -- modalities ----------------------------------------------------------------------------------------------


VIDEO_TOO = {"optional_input_modalities": ("text", "video")}
VIDEO_ALONE = {"required_input_modalities": ("video",), "optional_input_modalities": ("audio", "text")}
NO_VIDEO = {"optional_input_modalities": ("text",)}
ONLY_VIDEO = {"required_input_modalities": ("video",), "optional_input_modalities": ("text",)}


@rule("E6", "P32")
@pytest.mark.parametrize(
    ("capabilities", "size", "frames", "fits"),
    [
        (VIDEO_TOO, FRAME, (), True),
        (VIDEO_TOO, FRAME, (10,), True),
        (VIDEO_TOO, 0, (10,), False),
        (NO_VIDEO, FRAME, (10,), False),
        (VIDEO_ALONE, 0, (10,), True),
        (VIDEO_ALONE, FRAME, (10, 10), True),
        (VIDEO_ALONE, FRAME, (), False),
        (ONLY_VIDEO, FRAME, (10,), False),
    ],
)
def test_an_append_has_the_modalities_that_the_model_takes(
    capabilities: dict[str, Any], size: int, frames: tuple[int, ...], fits: bool
) -> None:
    world = turns(**capabilities)
    command = cmd.AppendAudio(attachment=1, size=size, wire_bytes=size + sum(frames), frames=frames)
    events = world.do(command)
    if fits:
        assert "AudioReceived" in kinds(events)
    else:
        assert error(events) == "invalid_input_modality"


@rule("E23", "E8")
def test_a_silent_append_with_pictures_is_kept_by_a_model_that_takes_them_alone() -> None:
    world = turns(**VIDEO_ALONE)
    picture = cmd.AppendAudio(attachment=1, size=0, wire_bytes=40, frames=(40,), speech=False)
    assert kinds(world.do(picture)) == ["AudioReceived"], "no `response.listen`: it is content"
    assert world.session.input.reserved == 40
    assert world.session.input.phase == "silent", "nobody speaks in a picture"
    events = world.commit(create_response=False)
    assert kinds(events) == ["InputCommitted", "ItemCreated"]
    assert not only(events, ev.InputCommitted).empty


@rule("E31", "E30")
def test_a_picture_that_makes_a_turn_reaches_a_model_that_listens_with_the_end_of_it() -> None:
    world = listening(**VIDEO_ALONE)
    world.append(2, speech=False, pictures=(40,))
    events = world.commit()
    (unit,) = units(events)
    assert (unit.final, [ref.size for ref in unit.frames]) == (True, [40])
    assert kinds(events)[-2:] == ["InputCommitted", "ItemCreated"]


@rule("F15")
def test_pictures_during_an_answer_are_seen_and_do_not_interrupt_it() -> None:
    world = turns(**VIDEO_ALONE)
    world.begin()
    picture = cmd.AppendAudio(attachment=1, size=0, wire_bytes=40, frames=(40,), speech=False)
    decided = only(world.do(picture), ev.OverlapDecided)
    assert (decided.action, decided.reason, decided.buffer) == ("listen", "vision_follow", True)
    assert [len(group) for group in world.session.input.stream.pictures] == [1]


@rule("E22", "E40")
def test_a_model_that_is_asked_turn_by_turn_is_given_all_pictures_of_the_turn() -> None:
    seeing = msgspec.structs.replace(
        core.REGISTRY["cascade"].capabilities, optional_input_modalities=("text", "video")
    )
    world = World(capabilities=seeing)
    world.append(2, pictures=(10,))
    world.commit(create_response=False)
    world.append(2, pictures=(20, 30))
    world.commit(create_response=False)
    events = world.respond()
    (submitted,) = [effect for effect in world.effects(events) if isinstance(effect, fx.SubmitToStage)]
    assert [ref.size for ref in submitted.payload.frames] == [10, 20, 30]
    assert world.session.input.reserved == 0


# -- the rest of the contract with the stage -----------------------------------------------------------------


@rule("K3", "L9", "K2")
def test_an_update_reaches_the_model_with_the_next_unit_and_only_once() -> None:
    world = listening()
    world.append(5)
    world.accept()
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(temperature=0.25)))
    first, second = units(world.append(10))
    assert (first.configuration, second.configuration) == (1, None)
    feeds = [core.react(world.session, unit)[0] for unit in (first, second)]
    sampling = [feed.sampling for feed in feeds if isinstance(feed, fx.FeedStage)]
    assert sampling[0] is not None
    assert sampling[0][0].temperature == 0.25
    assert sampling[1] is None
    assert feeds[0] == core.react(world.session, first)[0]


@rule("K4", "A6")
def test_each_unit_names_the_turn_of_the_session_whatever_the_model_counts() -> None:
    world = listening()
    world.append(5)
    world.accept()
    world.produce("word", 100, world.resident)
    world.decide("end_of_turn")
    turns_told: list[int] = []
    for _ in range(3):
        events = world.append(5)
        turns_told += [feed.model_turn for feed in world.effects(events) if isinstance(feed, fx.FeedStage)]
        world.accept()
    assert turns_told == [1, 1, 1]


@rule("N29", "P1", "P6")
def test_what_the_session_knows_of_the_model_survives_a_snapshot() -> None:
    world = listening()
    world.append(7, pictures=(10,))
    world.do(cmd.StageProduced(request=world.resident, text="x", operation=1))
    world.decide("speak")
    world.append(8, force_listen=True)
    world.commit()
    world.append(1)
    twin = core.load(core.dump(world.session))
    assert twin.input.stream == world.session.input.stream
    assert twin.input.stream.in_flight
    assert twin.input.stream.held
    accepted = cmd.StageAccepted(request=world.resident, operation=2)
    assert core.decide(twin, accepted, world.now) == core.decide(world.session, accepted, world.now)


@rule("E41")
def test_a_commit_that_is_not_final_is_a_commit() -> None:
    def events(*, final: bool) -> list[ev.AnyEvent]:
        world = listening()
        world.append(7)
        world.accept()
        return world.do(cmd.CommitInput(attachment=1, final=final))

    assert events(final=False) == events(final=True)


@rule("F15", "F16")
def test_sound_that_the_table_defers_is_kept_and_handed_over_with_the_next() -> None:
    world = listening()
    world.append(5)
    world.accept()
    world.produce("word", 5_000, world.resident)
    size = 25 * FRAME
    asked = cmd.AppendAudio(attachment=1, size=size, wire_bytes=size, overlap="listen")
    events = world.do(asked)
    assert only(events, ev.OverlapDecided).defer
    assert units(events) == []
    assert [unit.force_listen for unit in units(world.append(5))] == [True] * 5 + [False]


@rule("E22", "E23")
def test_pictures_of_sound_that_is_not_kept_go_with_it() -> None:
    world = turns()
    events = world.append(2, speech=False, pictures=(40,))
    assert "ListenDecided" in kinds(events)
    assert world.session.input.reserved == 0
    world.append(2, pictures=(30,))
    assert [[ref.start for ref in group] for group in world.session.input.stream.pictures] == [[40]]


@rule("A10", "F22")
def test_a_session_of_turns_goes_on_with_another_request_when_its_own_has_ended() -> None:
    world = turns()
    world.append(5)
    world.commit(create_response=True)
    world.accept()
    world.produce("Yes.")
    events = world.finish(world.resident)
    assert kinds(events) == ["RequestFinished", "ResponseEnded", "Interrupted"]
    world.append(5)
    assert only(world.commit(create_response=True), ev.RequestSubmitted).request == "duplex-1.e1"


@rule("P15")
def test_the_end_of_a_request_voids_nothing_of_what_it_said() -> None:
    world = turns()
    world.append(5)
    world.commit(create_response=True)
    world.accept()
    world.produce("Yes.", 100)
    assert only(world.finish(world.resident), ev.Interrupted).renews
    assert (world.session.epoch, world.session.turn.voided) == (1, 0)
    assert not only(world.barge_in(), ev.Interrupted).renews
    assert (world.session.epoch, world.session.turn.voided) == (2, 2)


@rule("E22", "E20")
@pytest.mark.parametrize("count", [1, 2, 3])
def test_pictures_behind_a_final_unit_that_came_back_are_given_again(count: int) -> None:
    world = listening()
    world.append(5)
    world.accept()
    world.append(1)
    world.commit()
    for index in range(count):
        world.append(5, pictures=(50 + index,))
    events = units(world.lose(world.resident))
    assert [unit.final for unit in events] == [True, *[False] * count]
    assert [ref.size for unit in events for ref in unit.frames] == list(range(50, 50 + count))


@rule("E24", "A10")
def test_only_the_request_that_has_units_accepts_them() -> None:
    world = turns()
    world.append(5)
    world.commit(create_response=True)
    listening = world.resident
    world.respond(cmd.ResponseOptions(remember=False))
    (aside,) = [name for name in world.session.requests if name != listening]
    assert "UnitsAccepted" not in kinds(world.do(cmd.StageAccepted(request=aside, operation=1)))
    assert kinds(world.accept()) == ["RequestAccepted", "UnitsAccepted"]


@rule("E28", "E39")
@pytest.mark.parametrize("deferred", [False, True])
def test_a_session_that_listens_no_more_keeps_what_the_model_was_not_given(deferred: bool) -> None:
    world = listening()
    world.append(7, pictures=(10,))
    world.accept()
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(auto_response=False)))
    assert world.session.input.start == UNIT
    assert world.session.input.reserved == 2 * FRAME
    if deferred:
        world.append(1)
    events = world.commit()
    assert only(events, ev.InputCommitted).ref == SampleRef("in", UNIT, (2 + deferred) * FRAME)
    assert places(world.respond()) == [(UNIT, UNIT + (2 + deferred) * FRAME, (3 - deferred) * FRAME)]


@rule("L2")
def test_a_session_that_listens_no_more_and_owes_the_model_nothing_begins_anew() -> None:
    world = listening()
    world.append(5)
    world.accept()
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(auto_response=False)))
    assert world.session.input.start == UNIT


# -- the format of what is said ------------------------------------------------------------------------------

ULAW = AudioFormat("g711_ulaw", 8_000)


class TestTheFormatOfSound:
    """What a unit makes is delivered in the format that its stage was told with it, and so labelled (L9, P23)."""

    def told(self, world: World, events: list[ev.AnyEvent]) -> list[AudioFormat]:
        return [effect.format for effect in world.effects(events) if isinstance(effect, fx.FeedStage)]

    def update(self, world: World, wanted: AudioFormat = ULAW) -> None:
        patch = ConfigPatch(output_format=wanted)
        assert "ConfigUpdated" in kinds(world.do(cmd.UpdateSession(attachment=1, patch=patch)))

    def say(self, world: World, operation: int | None = None, size: int = 480) -> list[ev.AnyEvent]:
        said = cmd.StageProduced(request=world.resident, text="word", size=size, operation=operation)
        return world.do(said)

    @rule("L9", "P23")
    def test_an_answer_to_a_unit_from_before_an_update_has_the_format_of_that_time(self) -> None:
        world = listening()
        assert self.told(world, world.append(5)) == [OUT]
        world.accept()
        self.update(world)
        events = self.say(world, 1)
        assert only(events, ev.ResponseCreated).head.output_format == OUT
        assert only(events, ev.AudioDelta).format == OUT
        assert self.told(world, world.append(5)) == [OUT], "an answer keeps its format to its end"
        world.accept()
        world.decide("end_of_turn")
        assert self.told(world, world.append(5)) == [ULAW]
        assert only(self.say(world, 3), ev.ResponseCreated).head.output_format == ULAW

    @rule("L9")
    def test_without_a_word_of_which_unit_it_is_of_the_last_one_that_was_taken(self) -> None:
        world = listening()
        world.append(5)
        world.accept()
        self.update(world)
        world.append(5)
        assert only(self.say(world), ev.ResponseCreated).head.output_format == OUT
        assert kinds(self.say(world)) == ["AudioDelta"]

    @rule("L9", "P20")
    def test_an_answer_that_the_model_goes_on_with_in_another_format_is_two(self) -> None:
        world = listening()
        world.append(5)
        world.accept()
        self.update(world)
        assert self.told(world, world.append(5)) == [ULAW]
        first = only(self.say(world, 1), ev.ResponseCreated).head
        assert self.told(world, world.append(5)) == [ULAW], "the stage is not told to and fro"
        assert kinds(self.say(world, 2, size=0)) == ["UnitsAccepted", "TextDelta"], "words have no format"
        events = self.say(world, 2)
        ended, second = only(events, ev.ResponseEnded), only(events, ev.ResponseCreated).head
        assert (ended.head.id, ended.status) == (first.id, "completed")
        assert (first.output_format, second.output_format) == (OUT, ULAW)
        assert only(events, ev.AudioDelta).format == ULAW
        assert kinds(self.say(world, 3)) == ["UnitsAccepted", "AudioDelta"]

    @rule("L9", "G39")
    def test_sound_from_before_an_answer_was_announced_in_another_format_is_none_of_it(self) -> None:
        world = listening()
        world.append(5)
        world.accept()
        self.update(world)
        world.say("And now?")
        events = world.respond()
        assert self.told(world, events) == [ULAW]
        assert self.say(world, 1) == []
        assert kinds(self.say(world, 1, size=0)) == ["OutputStarted", "TextDelta"], "words have no format"
        assert only(self.say(world, 2), ev.AudioDelta).format == ULAW

    @rule("L9")
    def test_an_answer_in_words_or_behind_its_calls_asks_for_no_format(self) -> None:
        for called in (False, True):
            world = World(
                plugin="echo", auto=True, capabilities=able(), modalities=("audio",) if called else ("text",)
            )
            world.append(5)
            world.accept()
            self.update(world)
            world.append(5)
            self.say(world, 1)
            if called:
                world.call(request=world.resident)
            response = world.session.response
            assert "ResponseEnded" not in kinds(self.say(world, 2))
            assert response is not None
            assert world.session.open_response(response.head.id) is not None

    @rule("G3")
    def test_one_that_the_client_wants_for_one_answer_is_told_with_the_next_unit(self) -> None:
        world = listening()
        world.append(5)
        wanted = cmd.ResponseOptions(output_format=ULAW)
        assert kinds(world.respond(wanted)) == ["OptionsReserved"]
        assert self.told(world, world.append(5)) == [ULAW]
        assert only(self.say(world, 2), ev.ResponseCreated).head.output_format == ULAW
        world.decide("end_of_turn")
        assert self.told(world, world.append(5)) == [OUT]

    @rule("L9")
    def test_a_committed_turn_is_answered_in_the_format_of_its_announcement(self) -> None:
        world = turns()
        for wanted in (OUT, ULAW):
            world.append(7)
            events = world.commit(create_response=True)
            assert self.told(world, events) == [wanted, wanted]
            assert only(events, ev.ResponseCreated).head.output_format == wanted
            world.accept()
            self.update(world, wanted)
            assert only(self.say(world), ev.AudioDelta).format == wanted
            world.decide("end_of_turn")
            self.update(world)

    @rule("L9")
    def test_a_request_that_begins_anew_is_told_the_format_of_now(self) -> None:
        world = listening(supports_reencode_context=True)
        world.append(5)
        self.say(world, 1)
        self.update(world)
        world.barge_in()
        assert self.told(world, world.append(5)) == [ULAW]
        assert only(self.say(world, 2), ev.ResponseCreated).head.output_format == ULAW
