"""Turns that overlap at the model: the gate, answers that drain, and what the model remembers (BEHAVIOURS H)."""

import msgspec
import pytest

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.context import ContextTurn
from antiphon.events.items import Message
from antiphon.sessions import core
from antiphon.sessions.plugins import Registry
from antiphon.sessions.state import KEPT_PLAYOUTS
from antiphon.sessions.view import next_deadline

from tests.rules import rule
from tests.sessions.world import BESIDE, OVERLAPPING, World, capable, error, kinds, only

ONE_AT_A_TIME = core.REGISTRY["cascade"].capabilities


def open_gate(world: World, request: str | None = None) -> list[ev.AnyEvent]:
    return world.end_inner(1, request)


def turn(world: World, frames: int = 30) -> list[ev.AnyEvent]:
    """The user says something and wants it answered."""
    world.append(frames)
    return world.commit(create_response=True)


def overlapping(policy: bool = True) -> tuple[World, str, str, str, str]:
    """Two answers at once: the first drains, the second is active. Returns their ids and requests."""
    world = World(plugins=OVERLAPPING)
    first = only(turn(world), ev.ResponseCreated)
    world.produce("One, ", 500)
    open_gate(world)
    second = only(turn(world), ev.ResponseCreated)
    return world, first.head.id, first.request, second.head.id, second.request


# -- the gate ------------------------------------------------------------------------------------------------


@rule("H1", "H3")
def test_a_gate_of_a_model_that_takes_one_turn_at_a_time_means_nothing() -> None:
    world = World(plugins=OVERLAPPING, capabilities=ONE_AT_A_TIME)
    turn(world)
    assert open_gate(world) == []
    committed = only(turn(world), ev.InputCommitted)
    assert committed.response_create_deferred


@rule("H1", "H2", "H3")
def test_an_open_gate_lets_the_next_turn_begin_and_cancels_nothing() -> None:
    world = World(plugins=OVERLAPPING)
    turn(world)
    world.produce("One, ", 500)
    assert kinds(open_gate(world)) == ["GateOpened"]
    assert open_gate(world) == []
    events = turn(world)
    assert not only(events, ev.InputCommitted).response_create_deferred
    assert "Interrupted" not in kinds(events)
    assert not [event for event in events if isinstance(event, ev.ResponseEnded)]


@rule("H2", "N16")
def test_only_the_stage_that_the_plugin_names_opens_the_gate() -> None:
    world = World(plugins=OVERLAPPING)
    turn(world)
    assert world.end_inner(0) == []
    assert world.end_inner(2) == []
    assert only(turn(world), ev.InputCommitted).response_create_deferred
    assert kinds(world.end_inner(1))[0] == "GateOpened"


@rule("H2", "H4", "N17")
def test_where_no_stage_outlives_its_turn_an_answer_is_complete_when_the_next_one_begins() -> None:
    alone: Registry = {"cascade": msgspec.structs.replace(BESIDE, draining=frozenset())}
    world = World(plugins=alone)
    first = only(turn(world), ev.ResponseCreated)
    world.produce("One.", 500)
    assert kinds(open_gate(world)) == ["GateOpened"]
    assert world.session.response is not None, "until then it may say more"
    events = turn(world)
    assert kinds(events)[-4:] == ["RequestFinished", "ResponseEnded", "ResponseCreated", "RequestSubmitted"]
    ended = only(events, ev.ResponseEnded)
    assert (ended.head.id, ended.status, ended.text) == (first.head.id, "completed", "One.")
    assert world.effects(events)[0] == fx.ReleaseRequests(requests=(first.request,)), "it is not aborted"
    assert world.produce("late", 100, first.request) == []


@rule("H4", "A6", "P7")
def test_the_next_turn_opens_in_order() -> None:
    world = World(plugins=OVERLAPPING)
    first = only(turn(world), ev.ResponseCreated)
    world.produce("One, ", 500)
    open_gate(world)
    events = turn(world)
    assert kinds(events)[-3:] == ["ResponseDrains", "ResponseCreated", "RequestSubmitted"]
    second = only(events, ev.ResponseCreated)
    assert (first.head.turn, second.head.turn) == (0, 1)
    assert second.request == ids.turn_request("duplex-1", 0, 1)
    assert world.session.turn.turn == 1
    assert first.request in world.session.requests  # nothing of it is aborted
    assert world.effects(events)[0] == world.effects([events[-1]])[0]
    assert not any(isinstance(effect, fx.AbortRequests) for effect in world.effects(events))


@rule("H4", "P41", "I10")
def test_the_place_of_an_answer_in_the_conversation_is_that_of_its_announcement() -> None:
    world = World(plugins=OVERLAPPING)
    first = only(turn(world), ev.ResponseCreated)
    open_gate(world)  # before it has said anything
    second = only(turn(world), ev.ResponseCreated)
    world.produce("Two.", 100)
    world.produce("One.", 100, first.request)
    users = [i for i in world.session.conversation.order if not i.startswith("item_resp")]
    assert world.session.conversation.order == [users[0], first.head.item_id, users[1], second.head.item_id]


@rule("H3")
def test_the_gate_closes_with_the_next_turn() -> None:
    world, *_ = overlapping()
    assert world.session.turn.gate is None
    assert only(turn(world), ev.InputCommitted).response_create_deferred
    assert world.session.turn.deferred == 1


@rule("H3", "G36")
def test_an_interruption_closes_the_gate() -> None:
    world = World(plugins=OVERLAPPING)
    turn(world)
    open_gate(world)
    world.cancel()
    assert world.session.turn.gate is None


@rule("H3")
def test_a_gate_of_a_request_that_is_not_the_active_one_s_is_history() -> None:
    world, _, old, *_ = overlapping()
    assert open_gate(world, old) == []
    assert world.session.turn.gate is None


@rule("H3", "F22")
def test_a_turn_that_waits_begins_when_the_gate_opens() -> None:
    world = World(plugins=OVERLAPPING)
    turn(world)
    turn(world)
    assert world.session.turn.deferred == 1
    events = open_gate(world)
    assert kinds(events) == ["GateOpened", "ResponseDrains", "ResponseCreated", "RequestSubmitted"]
    assert world.session.turn.deferred == 0


@rule("H3", "G6")
def test_a_client_s_own_request_for_an_answer_is_still_refused_meanwhile() -> None:
    world = World(plugins=OVERLAPPING)
    turn(world)
    open_gate(world)
    assert error(world.respond()) == "response_already_active"


@rule("H3", "I19")
def test_an_open_gate_is_not_shut_by_sound_that_is_still_played() -> None:
    world = World(plugins=OVERLAPPING)
    turn(world)
    world.produce("One.", 60_000)
    open_gate(world)
    world.finish()
    events = turn(world)
    assert "ResponseCreated" in kinds(events)
    assert "ResponseDrains" not in kinds(events)


@rule("H6", "P12")
def test_with_the_gate_closed_the_next_turn_waits_until_the_last_chain_is_gone() -> None:
    world = World(plugins=OVERLAPPING)
    turn(world)
    turn(world)
    first = world.request
    events = world.finish()
    assert kinds(events) == ["RequestFinished", "ResponseEnded", "ResponseCreated", "RequestSubmitted"]
    release, submit = world.effects(events)
    assert release == fx.ReleaseRequests(requests=(first,))
    assert isinstance(submit, fx.SubmitToStage)


# -- answers that drain --------------------------------------------------------------------------------------


@rule("H5", "H7", "G39", "P19")
def test_what_a_draining_request_makes_belongs_to_its_answer() -> None:
    world, one, old, two, new = overlapping()
    assert only(world.produce("Two, ", 200), ev.AudioDelta).response_id == two
    delta = only(world.produce("three.", 300, old), ev.AudioDelta)
    assert (delta.response_id, delta.audio_ms) == (one, 800)
    delta = only(world.produce("four.", 100, new), ev.AudioDelta)
    assert (delta.response_id, delta.audio_ms) == (two, 300)
    assert only(world.finish(old), ev.ResponseEnded).text == "One, three."
    assert only(world.finish(new), ev.ResponseEnded).text == "Two, four."


@rule("H8", "H9", "A19", "G44")
def test_the_end_of_a_drain_completes_its_answer_and_nothing_else() -> None:
    world, one, old, two, _ = overlapping()
    events = world.finish(old)
    assert kinds(events) == ["RequestFinished", "ResponseEnded"]
    ended = only(events, ev.ResponseEnded)
    assert (ended.head.id, ended.status) == (one, "completed")
    assert world.effects(events) == [fx.ReleaseRequests(requests=(old,))]
    assert world.session.response is not None
    assert world.session.response.head.id == two
    assert not world.session.others
    assert world.produce("late", 100, old) == []


@rule("H8", "H11")
def test_a_drain_may_end_last() -> None:
    world, one, old, two, new = overlapping()
    world.produce("Two.", 100)
    assert only(world.finish(new), ev.ResponseEnded).head.id == two
    assert world.session.response is None
    delta = only(world.produce("more", 100, old), ev.AudioDelta)
    assert (delta.response_id, delta.audio_ms) == (one, 600)
    assert only(world.finish(old), ev.ResponseEnded).head.id == one


@rule("H9")
def test_the_end_of_the_active_answer_leaves_older_drains_alone() -> None:
    world, one, old, _, new = overlapping()
    world.finish(new)
    assert [response.head.id for response in world.session.open_responses] == [one]
    assert world.session.requests[old].phase in ("submitted", "accepted")


@rule("H10", "I11")
def test_a_drain_that_was_heard_can_be_acknowledged_behind_its_end() -> None:
    world, one, old, _, _ = overlapping()
    world.finish(old)
    acked = only(world.ack(500, response_id=one), ev.PlaybackAcknowledged)
    assert acked.history == "One, "
    assert world.heard() == ["One, "]


@rule("H10")
def test_a_drain_that_said_nothing_leaves_nothing() -> None:
    world = World(plugins=OVERLAPPING)
    first = only(turn(world), ev.ResponseCreated)
    open_gate(world)
    turn(world)
    world.finish(first.request)
    assert first.head.id not in world.session.playouts
    assert first.head.item_id not in world.session.conversation.entries
    assert error(world.ack(0, response_id=first.head.id)) == "playback_item_not_found"


@rule("H12", "G23", "K15")
@pytest.mark.parametrize("how", ["fail", "lose"])
def test_the_failure_of_a_drain_fails_only_its_answer(how: str) -> None:
    world, one, old, two, _ = overlapping()
    events = world.fail(old) if how == "fail" else world.lose(old)
    assert kinds(events)[:2] == ["ErrorReported", "ResponseEnded"]
    ended = only(events, ev.ResponseEnded)
    assert (ended.head.id, ended.status) == (one, "failed")
    assert world.session.response is not None
    assert world.session.response.head.id == two
    assert world.session.phase == "open"


@rule("H13", "A17", "G30", "P11")
@pytest.mark.parametrize("how", ["cancel", "barge_in", "input_cancel", "clear"])
def test_an_interruption_ends_all_of_them_in_one_abort(how: str) -> None:
    world, one, old, two, new = overlapping()
    world.produce("Two.", 100)
    world.ack(200, response_id=one)
    command: cmd.AnyCommand = {
        "cancel": cmd.CancelResponse(attachment=1),
        "barge_in": cmd.BargeIn(attachment=1),
        "input_cancel": cmd.CancelInput(attachment=1),
        "clear": cmd.ClearOutput(attachment=1),
    }[how]
    events = world.do(command)
    ended = {event.head.id: event for event in events if isinstance(event, ev.ResponseEnded)}
    assert set(ended) == {one, two}
    assert {event.status for event in ended.values()} == {"cancelled"}
    assert (ended[one].playback.committed_ms, ended[one].playback.sent_ms) == (200, 500)
    assert ended[two].playback.sent_ms == 100
    (abort,) = [effect for effect in world.effects(events) if isinstance(effect, fx.AbortRequests)]
    assert abort.requests == (old, new)
    assert world.session.epoch == 1
    assert not world.session.open_responses


@rule("H13", "G31")
def test_naming_a_draining_answer_ends_the_epoch_too() -> None:
    world, one, _, two, _ = overlapping()
    ended = [event.head.id for event in world.cancel(one) if isinstance(event, ev.ResponseEnded)]
    assert ended == [one, two]


@rule("H9", "G32")
def test_clearing_the_sound_of_a_draining_answer_stops_only_that_answer() -> None:
    world, one, old, two, new = overlapping()
    world.produce("One, and more of it.", 400, old)
    world.wait(200)
    events = world.do(cmd.ClearOutput(attachment=1, response_id=one))
    assert kinds(events) == ["OutputCleared", "AsideCancelled", "HistoryCut", "ResponseEnded"]
    ended = only(events, ev.ResponseEnded)
    assert (ended.head.id, ended.status, ended.reason) == (one, "cancelled", "client_cancelled")
    assert ended.cause == "output_audio_buffer_clear"
    assert world.effects(events) == [fx.AbortRequests(requests=(old,))]
    assert world.session.epoch == 0
    assert only(world.produce("Two.", 100, new), ev.AudioDelta).response_id == two
    assert only(world.finish(new), ev.ResponseEnded).status == "completed"
    assert kinds(world.do(cmd.ClearOutput(attachment=1, response_id=one))) == ["OutputCleared"]


@rule("H13", "G32")
def test_clearing_the_sound_of_the_newest_answer_ends_the_epoch() -> None:
    world, one, _, two, _ = overlapping()
    events = world.do(cmd.ClearOutput(attachment=1, response_id=two))
    assert kinds(events)[0] == "OutputCleared"
    assert [event.head.id for event in events if isinstance(event, ev.ResponseEnded)] == [one, two]
    world, one, _, two, new = overlapping()
    world.produce("Two.", 100)
    world.finish(new)
    events = world.do(cmd.ClearOutput(attachment=1))
    assert only(events, ev.OutputCleared).response_id == one  # the one that still runs
    assert only(events, ev.ResponseEnded).head.id == one
    assert kinds(world.do(cmd.ClearOutput(attachment=1, response_id=two))) == ["OutputCleared"]


@rule("H13", "G31")
def test_with_only_a_drain_left_cancel_means_it() -> None:
    world, one, _, _, new = overlapping()
    world.finish(new)
    assert only(world.cancel(), ev.ResponseEnded).head.id == one


@rule("H14")
def test_a_turn_that_waits_is_not_begun_by_the_end_of_an_older_drain() -> None:
    world, _, old, two, new = overlapping()
    turn(world)
    assert kinds(world.finish(old)) == ["RequestFinished", "ResponseEnded"]
    assert world.session.response is not None
    assert world.session.response.head.id == two
    assert "ResponseCreated" in kinds(world.finish(new))


@rule("H7", "F22", "P37")
def test_what_waits_behind_playback_waits_for_all_that_is_played() -> None:
    world, one, old, _, new = overlapping()
    world.produce("x", 100)
    world.finish(new)
    world.produce("much more", 5_000, old)
    turn(world)
    world.finish(old)
    assert world.session.response is not None  # a turn that waits for an answer is given it with the last end
    world.finish()
    turn(world)
    assert world.session.turn.deferred or world.session.response
    due = next_deadline(world.session)
    assert due is not None
    assert due >= world.now
    assert one in world.session.playouts


# -- what the model remembers --------------------------------------------------------------------------------


def remembers(world: World, said: str | None, request: str | None = None) -> list[ev.AnyEvent]:
    memory = ContextTurn(user="Hello?", assistant=said)
    return world.do(cmd.StageContext(request=request or world.request, turn=memory))


@rule("H15")
def test_the_model_remembers_a_turn_once_and_is_shown_it() -> None:
    world = World(plugins=OVERLAPPING)
    turn(world)
    assert kinds(remembers(world, "All is well.")) == ["ContextCommitted"]
    assert remembers(world, "Again.") == []
    world.finish()
    events = turn(world)
    submit = world.effects(events)[-1]
    assert isinstance(submit, fx.SubmitToStage)
    assert submit.payload.context == (ContextTurn(user="Hello?", assistant="All is well."),)


@rule("H15")
def test_a_silent_turn_is_remembered_too_and_playback_is_another_matter() -> None:
    world = World(plugins=OVERLAPPING)
    turn(world)
    remembers(world, None)
    world.do(cmd.StageFinished(request=world.request, silent=True))
    turn(world)
    world.produce("Yes.", 500)
    remembers(world, "Yes.")
    world.finish()
    assert [memory.assistant for memory in world.session.context] == [None, "Yes."]
    assert world.heard() == []


@rule("H15")
def test_nothing_of_an_interrupted_turn_is_remembered() -> None:
    world = World(plugins=OVERLAPPING)
    turn(world)
    request = world.request
    world.produce("Yes", 100)
    world.cancel()
    assert remembers(world, "Yes, and", request) == []
    assert world.session.context == ()


@rule("H15", "Q4.27")
def test_the_memory_is_the_session_s_own() -> None:
    one, other = World(plugins=OVERLAPPING), World(plugins=OVERLAPPING)
    turn(one)
    remembers(one, "One.")
    assert len(one.session.context) == 1
    assert other.session.context == ()
    assert core.fold(one.log).context == one.session.context


def test_conversation_items_know_nothing_of_it() -> None:
    world = World(plugins=OVERLAPPING)
    turn(world)
    remembers(world, "All is well.")
    entries = world.session.conversation.entries.values()
    assert not [entry for entry in entries if isinstance(entry.item, Message) and entry.item.role == "assistant"]
    assert msgspec.to_builtins(world.session.context[0])["user"] == "Hello?"


@rule("H3", "G6")
def test_a_client_may_ask_for_an_answer_to_a_turn_beside_one_that_leaves_room() -> None:
    world = World(plugins=OVERLAPPING)
    turn(world)
    world.say("And this?")
    assert error(world.respond()) == "response_already_active"  # the gate is shut
    open_gate(world)
    assert kinds(world.respond()) == ["ResponseDrains", "ResponseCreated", "RequestSubmitted"]


@rule("H11", "J10")
@pytest.mark.parametrize("older_first", [True, False])
def test_calls_of_a_drain_and_of_the_newer_answer_are_awaited_together(older_first: bool) -> None:
    world = World(plugins=OVERLAPPING, auto=True)
    first = only(turn(world), ev.ResponseCreated).request
    world.call(call_id="forgotten", request=first)
    world.finish(first)
    first = only(turn(world), ev.ResponseCreated).request
    open_gate(world)
    second = only(turn(world), ev.ResponseCreated).request
    world.call(call_id="one", request=first)
    world.call(call_id="two", request=second)
    for request in (first, second) if older_first else (second, first):
        world.finish(request)
    assert sorted(world.session.turn.awaited) == ["one", "two"]
    assert kinds(world.give_output("two")) == ["ItemCreated"]
    assert "ResponseCreated" in kinds(world.give_output("one"))


@rule("I14")
def test_an_answer_that_drains_is_followed_however_many_come_after_it() -> None:
    world = World(plugins=OVERLAPPING, policy="commit_all_on_done")
    first = only(turn(world), ev.ResponseCreated)
    world.produce("One, ", 100_000)
    open_gate(world)
    for _ in range(KEPT_PLAYOUTS + 2):
        world.say("Next.")
        newer = only(world.respond(), ev.ResponseCreated)
        world.produce("x", 20, newer.request)
        world.finish(newer.request)
        world.release()
    assert len(world.session.playouts) == KEPT_PLAYOUTS
    assert only(world.produce("two.", 100, first.request), ev.AudioDelta).response_id == first.head.id
    assert only(world.finish(first.request), ev.ResponseEnded).text == "One, two."


@rule("I14")
def test_no_answer_that_is_open_is_let_go_even_if_all_are() -> None:
    world = World(plugins=OVERLAPPING)
    requests: list[str] = []
    for number in range(KEPT_PLAYOUTS + 2):
        requests.append(only(turn(world, 3), ev.ResponseCreated).request)
        world.produce("x", 20)
        open_gate(world)
        assert len(world.session.playouts) == number + 1
    for request in requests:
        world.produce("y", 20, request)
        world.finish(request)


@rule("P6", "G23")
def test_a_restart_says_of_every_answer_that_it_failed() -> None:
    world, one, _, two, _ = overlapping()
    events = world.restart()
    told = [event for event in events if isinstance(event, ev.ErrorReported | ev.ResponseEnded)]
    assert [type(event).__name__ for event in told] == ["ErrorReported", "ResponseEnded"] * 2
    assert [event.head.id for event in told if isinstance(event, ev.ResponseEnded)] == [one, two]


@rule("H1", "H5")
def test_a_request_that_listens_leaves_no_room_for_another_answer() -> None:
    able = capable(core.REGISTRY["echo"].capabilities, supports_concurrent_turn_requests=True)
    world = World(plugin="echo", capabilities=able, plugins=OVERLAPPING)
    turn(world)
    world.accept()
    assert open_gate(world, world.resident) == []
    assert kinds(turn(world))[-1] == "AnswerDeferred"


@rule("G20", "H7", "J9")
def test_an_answer_that_calls_functions_keeps_what_it_said_beside_a_newer_one() -> None:
    world = World(plugins=OVERLAPPING, modalities=("text",))
    world.say("Hello?")
    first = only(world.respond(), ev.ResponseCreated)
    world.produce("Let me see.")
    world.call(final=True, request=first.request)
    open_gate(world)
    world.say("And now?")
    second = only(world.respond(), ev.ResponseCreated)
    world.produce("Well.", request=second.request)
    ended = only(world.finish(first.request), ev.ResponseEnded)
    assert ended.item is not None
    assert ended.text == "Let me see."


@rule("H3", "A5")
def test_a_restart_closes_the_gate() -> None:
    world = World(plugins=OVERLAPPING)
    turn(world)
    world.produce("One.", 5_000)
    open_gate(world)
    world.restart()
    assert world.session.turn.gate is None
    world.resume()
    turn(world)
    assert world.session.turn.deferred == 1, "the sound of the last answer blocks it"
