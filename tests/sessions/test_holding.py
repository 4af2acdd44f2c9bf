"""Commands that wait for units under way: waiting is state, and a failure is told once."""

from collections.abc import Callable

import msgspec
import pytest

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.config import ConfigPatch, Limits
from antiphon.events.items import AudioPart, FunctionCall, FunctionOutput, Message, TextPart
from antiphon.sessions import core
from antiphon.sessions.holding import HELD, HELD_UPDATES

from tests.rules import rule
from tests.sessions.test_units import UNIT, able, listening, places, turns, units
from tests.sessions.world import FRAME, MS, QUICK_VAD, World, error, kinds, only


def commit(event_id: str, wanted: bool | None = None) -> cmd.CommitInput:
    return cmd.CommitInput(attachment=1, event_id=event_id, create_response=wanted)


def update(event_id: str, instructions: str = "Be brief.") -> cmd.UpdateSession:
    return cmd.UpdateSession(attachment=1, event_id=event_id, patch=ConfigPatch(instructions=instructions))


def output(call_id: str = "c") -> cmd.CreateItem:
    return cmd.CreateItem(attachment=1, event_id="o", item=FunctionOutput(id="", call_id=call_id, output="1"))


def called(world: World, call_id: str = "c") -> None:
    world.item(FunctionCall(id="", call_id=call_id, name="f", arguments="{}"))


def written(words: str) -> Message:
    return Message(id="", role="user", content=(TextPart(words),))


def words_that_wait(world: World) -> int:
    """What the held commands weigh beside their sound and pictures."""
    return sum(held.size for held in world.session.input.stream.held)


def told(events: list[ev.AnyEvent]) -> list[tuple[str, str | None]]:
    return [(event.code, event.event_id) for event in events if isinstance(event, ev.ErrorReported)]


@rule("E33", "L1", "E38")
def test_a_commit_waits_for_the_sound_before_it_and_takes_effect_as_a_whole() -> None:
    world = listening()
    world.append(7)
    assert kinds(world.do(commit("a"))) == ["CommandHeld"]
    assert world.session.turn.commits == 0
    assert world.session.input.phase == "speaking", "nothing has happened yet"
    events = world.accept()
    assert kinds(events) == [
        "RequestAccepted",
        "UnitsAccepted",
        "HoldEnded",
        "SpeechStopped",
        "UnitTaken",
        "InputCommitted",
        "ItemCreated",
    ]
    assert world.session.input.stream.held == []


@rule("E33", "E38")
def test_sound_behind_a_commit_that_waits_belongs_to_the_next_turn() -> None:
    world = listening()
    world.append(7)
    world.do(commit("a"))
    events = world.append(6, pictures=(10,))
    assert kinds(events) == ["CommandHeld"]
    held = only(events, ev.CommandHeld)
    assert held.refs == (SampleRef("in", 7 * FRAME, 6 * FRAME), SampleRef("img", 0, 10))
    assert world.session.input.stream.earlier == set(held.refs), "their bytes are there already"
    assert world.session.input.reserved == 13 * FRAME + 10 + words_that_wait(world)
    world.append(1)
    events = world.accept()
    assert places(events) == [(UNIT, 7 * FRAME, 3 * FRAME), (7 * FRAME, 12 * FRAME, 0)]
    assert [unit.final for unit in units(events)] == [True, False]
    assert world.session.input.position == 14 * FRAME
    assert places(world.append(3)) == [(12 * FRAME, 17 * FRAME, 0)]


@rule("E33", "Q4.8", "P32")
def test_a_commit_behind_a_refused_unit_is_aborted_before_it_did_anything() -> None:
    world = listening()
    world.append(7)
    before = world.session.input.item_id
    world.do(commit("a"))
    events = world.refuse()
    assert kinds(events) == ["ErrorReported", "UnitsGivenUp", "HoldEnded", "ErrorReported"]
    assert told(events) == [("runtime_append_failed", None), ("commit_aborted", "a")]
    assert (world.session.input.phase, world.session.input.item_id) == ("speaking", before)
    assert world.session.input.reserved == 2 * FRAME
    assert kinds(world.do(commit("b"))) == ["SpeechStopped", "UnitTaken", "InputCommitted", "ItemCreated"]


@rule("E26", "L5", "Q4.5")
def test_a_failure_is_told_once_to_each_that_waited_for_it() -> None:
    world = listening()
    world.append(5)
    for command in (commit("a"), update("b"), commit("c"), update("d")):
        assert kinds(world.do(command)) == ["CommandHeld"]
    aborted = told(world.refuse())[1:]
    assert aborted == [
        ("commit_aborted", "a"),
        ("session_update_aborted", "b"),
        ("commit_aborted", "c"),
        ("session_update_aborted", "d"),
    ]
    assert kinds(world.do(update("e"))) == ["ConfigUpdated"]
    world.append(5)
    world.do(commit("f"))
    assert told(world.accept()) == []


@rule("L1", "L2", "L4")
def test_an_update_waits_and_is_published_in_its_place() -> None:
    world = listening()
    world.append(5)
    world.do(update("a"))
    world.do(commit("b"))
    assert world.session.config.instructions == ""
    events = world.accept()
    assert kinds(events)[2:] == [
        "HoldEnded",
        "ConfigUpdated",
        "HoldEnded",
        "SpeechStopped",
        "InputCommitted",
        "ItemCreated",
    ]
    assert world.session.config.instructions == "Be brief."


@rule("L1")
def test_what_waited_may_still_be_refused_with_its_own_code() -> None:
    world = listening()
    world.append(5, speech=False)
    patch = ConfigPatch(model="another")
    world.do(cmd.UpdateSession(attachment=1, event_id="u", patch=patch))
    assert told(world.accept()) == [("model_update_unsupported", "u")]


@rule("J11", "Q4.24")
def test_a_function_output_waits_and_is_carried_out_whatever_became_of_the_sound() -> None:
    for refused in (False, True):
        world = turns()
        called(world)
        world.append(5)
        world.commit(create_response=True)
        assert kinds(world.do(output())) == ["CommandHeld"]
        events = world.refuse() if refused else world.accept()
        assert "ItemCreated" in kinds(events)
        assert told(events)[1:] == []


@rule("E38", "P58", "Q4.7")
@pytest.mark.parametrize(
    "command",
    [
        cmd.CancelResponse(attachment=1),
        cmd.BargeIn(attachment=1),
        cmd.CancelInput(attachment=1),
        cmd.CloseSession(control_id="c", attachment=1),
        cmd.ClearOutput(attachment=1),
        cmd.Heartbeat(attachment=1),
    ],
)
def test_nothing_that_cancels_waits_behind_a_command_that_does(
    command: cmd.AnyCommand,
) -> None:
    world = turns()
    world.append(5)
    world.commit(create_response=True)
    world.append(5)
    world.do(commit("a", wanted=True))
    assert world.session.input.stream.held
    events = world.do(command)
    assert events
    assert not isinstance(events[0], ev.CommandHeld)
    assert "CommandHeld" not in kinds(events)


@rule("P58", "E38")
def test_cancelling_the_answer_lets_what_waited_go_on() -> None:
    world = turns()
    world.append(5)
    world.commit(create_response=True)
    world.append(25)
    world.do(commit("a", wanted=True))
    events = world.cancel()
    assert [kind for kind in kinds(events) if kind in TAKEN] == ["InputCommitted", "Interrupted"]
    assert only(events, ev.ResponseEnded).status == "cancelled"
    assert world.session.input.stream.held == []
    assert world.session.response is None, "F23: a cancel drops the turn that waits behind the answer"
    assert world.session.input.reserved == 0


@rule("E29", "E28", "E38")
@pytest.mark.parametrize("how", [cmd.CancelInput, cmd.BargeIn])
def test_calling_the_input_off_does_so_with_all_that_came_before_it(
    how: type[cmd.CancelInput] | type[cmd.BargeIn],
) -> None:
    world = listening()
    world.append(7)
    world.do(commit("a"))
    world.append(4)
    world.do(update("b"))
    events = world.do(how(attachment=1))
    assert told(events) == []
    assert [kind for kind in kinds(events) if kind in TAKEN] == [
        "InputCommitted",
        "AudioReceived",
        "ConfigUpdated",
        "Interrupted",
        "InputCleared",
    ]
    assert world.session.input.reserved == 0
    assert world.session.input.position == 11 * FRAME
    assert places(world.append(5)) == [(11 * FRAME, 16 * FRAME, 0)]


TAKEN = {"InputCommitted", "AudioReceived", "ConfigUpdated", "Interrupted", "InputCleared", "CommandHeld"}


@rule("E38", "F17", "Q4.7")
def test_sound_that_cuts_in_is_looked_at_at_once() -> None:
    world = World(plugin="echo", auto=True, capabilities=able(), vad=QUICK_VAD)
    world.append(5, score=0)
    world.accept()
    world.produce("Well, ", 500, world.resident)
    world.append(5, score=0)
    world.do(update("a"))
    assert kinds(world.append(1, score=900)) == ["CommandHeld"], "one frame is no speech yet"
    events = world.append(1, score=900)
    assert [kind for kind in kinds(events) if kind in TAKEN] == [
        "ConfigUpdated",
        "AudioReceived",
        "Interrupted",
        "AudioReceived",
    ]
    assert world.session.input.stream.held == []


@rule("E38", "G30")
def test_what_interrupts_nothing_lets_the_others_wait() -> None:
    world = turns()
    world.append(5)
    world.commit(create_response=True)
    world.append(5)
    world.do(commit("a", wanted=True))
    assert error(world.cancel("resp_none")) == "response_not_active"
    assert world.session.input.stream.held


@rule("E28", "Q4.28")
def test_a_clear_keeps_its_place_behind_a_commit_that_waits() -> None:
    world = listening()
    world.append(7)
    world.do(commit("a"))
    world.append(3)
    assert kinds(world.clear()) == ["CommandHeld"]
    world.append(2)
    events = world.accept()
    order = [kind for kind in kinds(events) if kind in ("InputCommitted", "InputCleared", "AudioReceived")]
    assert order == ["InputCommitted", "AudioReceived", "InputCleared", "AudioReceived"]
    assert world.session.input.stream.waiting == 2 * FRAME


@rule("G6", "E38")
def test_a_wish_for_an_answer_keeps_its_place_behind_the_commit() -> None:
    world = turns()
    world.append(5)
    world.commit(create_response=True)
    world.produce("Yes.")
    world.decide("end_of_turn")
    world.append(5)
    assert kinds(world.do(commit("a", wanted=False))) == ["CommandHeld"]
    assert kinds(world.respond()) == ["CommandHeld"]
    events = world.accept()
    assert [unit.final for unit in units(events)] == [True]
    assert world.session.response is not None


@rule("E14", "P28")
def test_the_number_of_commits_that_wait_is_bounded() -> None:
    world = World(plugin="echo", auto=True, capabilities=able(), limits=Limits(pending_commits=2))
    world.append(5)
    world.do(commit("a"))
    world.do(commit("b"))
    assert error(world.do(commit("c"))) == "input_backpressure"
    world.accept()
    assert world.session.input.stream.held == []


@rule("E12", "P28")
def test_sound_that_waits_counts_against_the_budget() -> None:
    world = World(plugin="echo", auto=True, capabilities=able(), limits=Limits(input_bytes=UNIT + 3 * FRAME - 1))
    world.append(5)
    world.do(commit("a"))
    world.append(2)
    assert error(world.append(1)) == "input_backpressure"


@rule("E38", "E12", "P28")
def test_the_bytes_of_an_item_that_waits_have_their_place_and_count() -> None:
    world = World(plugin="echo", auto=True, capabilities=able(), limits=Limits(input_bytes=UNIT + 300))
    world.append(5)
    world.do(commit("a"))
    spoken = Message(id="", role="user", content=(AudioPart("Hi.", size=80),))
    held = only(world.item(spoken), ev.CommandHeld)
    assert held.refs == (SampleRef("item", 0, 80),)
    assert error(world.item(spoken)) == "input_backpressure"
    events = world.accept()
    created = [event.item for event in events if isinstance(event, ev.ItemCreated)][-1]
    assert isinstance(created, Message)
    assert created.content == (AudioPart("Hi.", SampleRef("item", 0, 80), size=80),)
    assert world.session.conversation.attached == 80


@rule("E12", "E13", "E38", "P28")
@pytest.mark.parametrize(
    "wordy",
    [
        lambda words: cmd.AppendText(attachment=1, event_id="w", text=words),
        lambda words: cmd.AppendAudio(attachment=1, event_id="w", size=2, transcript=words),
        lambda words: update("w", words),
        lambda words: cmd.CreateItem(attachment=1, event_id="w", item=written(words)),
        lambda words: cmd.CreateResponse(
            attachment=1, event_id="w", options=cmd.ResponseOptions(instructions=words)
        ),
    ],
    ids=["text", "hint", "update", "item", "response"],
)
def test_the_words_of_what_waits_count_like_its_sound(wordy: Callable[[str], cmd.ClientCommand]) -> None:
    world = World(plugin="echo", auto=True, capabilities=able(), limits=Limits(input_bytes=UNIT + 4_000))
    world.append(5)
    world.do(commit("a"))
    before = world.session.input.reserved
    assert kinds(world.do(wordy("é" * 1_000))) == ["CommandHeld"]
    assert before + 2_000 < world.session.input.reserved < before + 2_200
    (refused,) = world.do(wordy("x" * 2_000))
    assert isinstance(refused, ev.ErrorReported)
    assert (refused.code, refused.event_id) == ("input_backpressure", "w")
    assert kinds(world.do(wordy("x"))) == ["CommandHeld"]
    world.accept()
    assert world.session.input.stream.held == []
    assert world.session.input.reserved < 2_010, "what they were is given back, or words of the next turn"


@rule("E14", "E38")
def test_the_number_of_commands_that_wait_is_bounded() -> None:
    world = listening()
    world.append(5)
    world.do(commit("a"))
    for _ in range(HELD - 1):
        world.do(cmd.ClearInput(attachment=1))
    assert len(world.session.input.stream.held) == HELD == 512
    (refused,) = world.do(cmd.ClearInput(attachment=1, event_id="z"))
    assert isinstance(refused, ev.ErrorReported)
    assert (refused.code, refused.event_id) == ("input_backpressure", "z")
    assert kinds(world.do(cmd.Heartbeat(attachment=1))) == ["SessionTouched"], "what need not wait is decided"
    world.accept()
    assert world.session.input.stream.held == []


@rule("E14", "E38", "L1")
def test_the_number_of_updates_that_wait_is_bounded_more_closely() -> None:
    """All that is sent behind them is understood as they ask, so each of them makes everything behind it dearer."""
    world = listening()
    world.append(5)
    for number in range(HELD_UPDATES):
        assert kinds(world.do(update(str(number), f"Be {number}."))) == ["CommandHeld"]
    assert told(world.do(update("one too many"))) == [("input_backpressure", "one too many")]
    assert kinds(world.append(1)) == ["CommandHeld"]
    world.accept()
    assert world.session.config.instructions == f"Be {HELD_UPDATES - 1}."


@rule("E14", "E12", "P58")
def test_sound_for_which_there_is_no_room_does_not_cut_in() -> None:
    world = World(plugin="echo", auto=True, capabilities=able(), vad=QUICK_VAD)
    world.append(5, score=0)
    world.accept()
    response_id = only(world.produce("Well, ", 500, world.resident), ev.ResponseCreated).head.id
    world.append(5, score=0)
    world.do(update("a"))
    for _ in range(HELD - 1):
        world.do(cmd.ClearInput(attachment=1))
    assert error(world.append(5, score=900)) == "input_backpressure"
    assert len(world.session.input.stream.held) == HELD
    events = world.cancel(response_id)
    assert "Interrupted" in kinds(events), "what cancels needs no room"
    assert world.session.input.stream.held == []


@rule("E38", "P58", "G31")
@pytest.mark.parametrize(
    ("waits", "ends"),
    [
        (cmd.ClearInput(attachment=1), False),
        (cmd.CreateItem(attachment=1, item=written("Hello?")), False),
        (cmd.AppendAudio(attachment=1, size=FRAME, wire_bytes=FRAME, speech=True), False),
        (cmd.CreateResponse(attachment=1), True),
    ],
)
def test_a_cancel_looks_behind_what_waits_if_an_answer_may_open_there(waits: cmd.ClientCommand, ends: bool) -> None:
    """To see what waits carried out takes time for all of it, and a client can ask for that again and again."""
    world = World(plugin="echo", auto=True, capabilities=able())
    world.append(5, speech=False)
    world.say("How are you?")
    world.do(update("a"))
    assert kinds(world.do(waits)) == ["CommandHeld"]
    events = world.cancel()
    assert ("Interrupted" in kinds(events)) == ends
    assert (kinds(events) == ["ErrorReported"]) != ends


@rule("E38", "P58", "G31")
@pytest.mark.parametrize("kind", [cmd.CancelResponse, cmd.ClearOutput])
def test_a_cancel_that_names_an_answer_means_one_that_was_announced(
    kind: type[cmd.CancelResponse] | type[cmd.ClearOutput],
) -> None:
    world = World(plugin="echo", auto=True, capabilities=able())
    world.append(5, speech=False)
    world.say("How are you?")
    world.do(update("a"))
    assert kinds(world.respond()) == ["CommandHeld"]
    events = world.do(kind(attachment=1, response_id="resp_of_nobody"))
    assert len(events) == 1
    assert isinstance(events[0], ev.ErrorReported | ev.OutputCleared)
    assert len(world.session.input.stream.held) == 2


@rule("E38", "F14")
def test_a_model_that_cannot_be_interrupted_is_not_asked_what_an_interruption_would_do() -> None:
    deaf = msgspec.structs.replace(able(), supports_barge_in=False)
    world = World(plugin="echo", auto=True, capabilities=deaf)
    world.append(5)
    world.do(commit("a"))
    assert error(world.barge_in()) == "barge_in_unsupported"
    assert len(world.session.input.stream.held) == 1


@rule("E15", "M9", "P55")
def test_what_waits_ends_with_the_session() -> None:
    world = listening()
    world.append(5)
    world.do(commit("a"))
    world.append(1)
    world.close()
    assert world.session.input.stream.held == []
    assert world.session.input.stream.waiting == 0


@rule("E33")
def test_a_held_command_counts_as_carried_out() -> None:
    world = listening()
    world.append(5, client_seq=1)
    command = cmd.CommitInput(attachment=1, client_seq=2)
    assert kinds(world.do(command)) == ["CommandHeld", "CommandSequenced"]
    assert world.do(command) == []
    assert world.session.lease.client_seq == 2


@rule("E38", "C1")
def test_what_waits_outlives_the_connection() -> None:
    world = listening()
    world.append(7)
    world.do(commit("a"))
    world.detach()
    assert "InputCommitted" in kinds(world.accept())


@rule("E38", "K15")
def test_the_loss_of_the_stage_ends_the_waiting() -> None:
    world = listening(supports_reencode_context=True)
    world.append(3)
    world.append(5)
    world.do(commit("a"))
    events = world.lose(world.resident)
    assert "UnitsReturned" in kinds(events)
    assert world.session.input.stream.held, "the units are under way again"
    world.now += MS
    assert "InputCommitted" in kinds(world.accept())


@rule("E38", "C11")
def test_the_first_word_of_a_new_connection_may_cut_in() -> None:
    world = turns()
    world.append(5)
    world.commit(create_response=True)
    world.do(cmd.CommitInput(attachment=1, is_speech=False))
    world.detach()
    world.resume()
    events = world.cancel()
    assert [kind for kind in kinds(events) if kind in TAKEN | {"AttachmentConfirmed"}] == [
        "AttachmentConfirmed",
        "InputCommitted",
        "Interrupted",
    ]


@rule("E38", "L1")
def test_what_comes_behind_updates_that_wait_is_meant_as_they_say() -> None:
    world = listening()
    world.append(7)
    assert core.upcoming(world.session, world.plugins) == world.session.config
    world.do(update("a", "Be brief."))
    world.do(commit("b"))
    faster = ConfigPatch(speed=1.25)
    world.do(cmd.UpdateSession(attachment=1, event_id="c", patch=faster))
    nobody = ConfigPatch(input_format=AudioFormat("wav", 24_000))
    world.do(cmd.UpdateSession(attachment=1, event_id="d", patch=nobody))
    coming = core.upcoming(world.session, world.plugins)
    assert (coming.instructions, coming.speed) == ("Be brief.", 1.25)
    assert coming.input_format == world.session.config.input_format, "one that no session can have is passed over"
    assert world.session.config.instructions == ""


@rule("E33", "P33")
@pytest.mark.parametrize("how", ["failed", "lost", "finished", "given up"])
def test_a_commit_behind_sound_that_died_with_its_request_is_aborted(how: str) -> None:
    world = listening(supports_reencode_context=how == "failed")
    world.append(7)
    world.do(commit("a"))
    world.do(update("b"))
    request = world.resident
    if how == "failed":
        events = world.fail(request)
    elif how == "finished":
        events = world.finish(request)
    else:
        world.do(cmd.StageReleased(request=request)) if how == "given up" else world.lose(request)
        assert world.session.phase == "closed", "its memory cannot be made again"
        return
    codes = [code for code, _ in told(events)]
    assert codes[-2:] == ["commit_aborted", "session_update_aborted"]
    assert world.session.turn.commits == 0
    assert world.session.input.reserved == 2 * FRAME, "what was not handed over can be committed"


@rule("E20", "E33")
def test_a_commit_behind_sound_that_is_handed_over_again_is_carried_out() -> None:
    world = listening(supports_reencode_context=True)
    world.append(7)
    world.do(commit("a"))
    events = world.lose(world.resident)
    assert "commit_aborted" not in [code for code, _ in told(events)]
    assert places(events) == [(0, UNIT, 0)]
    assert world.session.turn.commits == 0, "it still waits"
    assert places(world.accept()) == [(UNIT, UNIT + 2 * FRAME, 3 * FRAME)]
    assert world.session.turn.commits == 1


@rule("E33", "E20")
def test_a_restart_aborts_a_commit_behind_the_sound_of_an_answer() -> None:
    world = turns(supports_reencode_context=True)
    world.append(5)
    world.commit(create_response=True)
    world.append(5)
    world.do(commit("a"))
    events = world.restart()
    assert ("commit_aborted", "a") in told(events)
    world.resume()
    assert only(world.commit(), ev.InputCommitted).ref == SampleRef("in", UNIT, UNIT)


@rule("E24", "J8")
def test_an_item_that_waits_can_be_deleted_and_seen_behind_it() -> None:
    world = listening()
    world.append(5)
    called(world)
    world.do(output())
    world.do(cmd.CreateItem(attachment=1, item=Message(id="mine", role="user", content=(AudioPart("Hello."),))))
    assert kinds(world.do(cmd.RetrieveItem(attachment=1, item_id="mine"))) == ["CommandHeld"]
    assert kinds(world.do(cmd.DeleteItem(attachment=1, item_id="mine"))) == ["CommandHeld"]
    events = world.accept()
    assert told(events) == []
    assert [kind for kind in kinds(events) if kind.startswith("Item")] == [
        "ItemCreated",
        "ItemCreated",
        "ItemRetrieved",
        "ItemDeleted",
    ]


def played_and_heard() -> World:
    """Return a session in which an answer is still played while a unit and what waits for it are under way."""
    world = listening()
    world.append(5)
    world.accept()
    world.produce("Well.", 5_000, world.resident)
    world.decide("end_of_turn")
    world.append(5, speech=False)
    assert world.session.response is None
    assert kinds(world.do(commit("c1"))) == ["CommandHeld"]
    assert kinds(world.append(5)) == ["CommandHeld"]
    return world


@rule("E24", "E29", "E38", "G30", "P58")
@pytest.mark.parametrize("command", [cmd.CancelInput, cmd.BargeIn])
def test_calling_the_input_off_while_an_answer_is_played_takes_what_came_before_it_along(
    command: type[cmd.ClientCommand],
) -> None:
    world = played_and_heard()
    resident, made = world.resident, command(attachment=1)
    events = world.do(made)  # type: ignore[arg-type]
    assert resident in only(events, ev.Interrupted).requests
    assert kinds(events)[-1] in ("InputCleared", "InputDropped")
    assert world.session.input.reserved == 0
    assert not world.session.input.stream.in_flight
    assert world.do(cmd.StageAccepted(request=resident, operation=9)) == [], "nothing comes behind it"


@rule("G30")
@pytest.mark.parametrize("command", [cmd.CancelInput, cmd.BargeIn])
def test_a_model_that_only_listens_keeps_its_memory_when_what_is_played_is_stopped(
    command: type[cmd.ClientCommand],
) -> None:
    world = listening()
    world.append(5)
    world.accept()
    world.produce("Well.", 5_000, world.resident)
    world.decide("end_of_turn")
    resident, made = world.resident, command(attachment=1)
    assert only(world.do(made), ev.Interrupted).requests == ()  # type: ignore[arg-type]
    assert world.resident == resident


@rule("G37")
def test_a_barge_in_drops_the_beginning_of_a_unit() -> None:
    world = listening()
    world.append(5)
    world.accept()
    world.produce("Well.", 5_000, world.resident)
    world.commit()
    world.append(1, speech=False)
    assert world.session.input.phase == "silent"
    assert world.session.input.reserved == FRAME
    assert kinds(world.barge_in())[-1] == "InputDropped"
    assert world.session.input.reserved == 0


@rule("E33", "E20")
def test_the_first_commit_of_a_new_connection_waits_for_the_units_that_are_given_again() -> None:
    world = listening()
    world.append(10)
    world.restart()
    world.resume()
    events = world.do(cmd.CommitInput(attachment=world.attachment, event_id="c1"))
    assert kinds(events) == ["AttachmentConfirmed", "RequestSubmitted", "UnitTaken", "UnitTaken", "CommandHeld"]
    assert told(world.refuse()) == [("runtime_append_failed", None), ("commit_aborted", "c1")]


@rule("E12", "B24")
def test_the_sound_of_an_item_that_would_wait_needs_credit() -> None:
    world = World(plugin="echo", auto=True, capabilities=able(), limits=Limits(input_bytes=UNIT + 2_000))
    called(world)
    world.append(5)
    world.do(output())
    spoken = Message(id="", role="user", content=(AudioPart("Hello.", size=1_960),))
    assert error(world.do(cmd.CreateItem(attachment=1, item=spoken))) == "input_backpressure"
    written = Message(id="", role="user", content=(AudioPart("Hello.", size=800),))
    assert kinds(world.do(cmd.CreateItem(attachment=1, item=written))) == ["CommandHeld"]


@rule("E33", "J5")
def test_the_bytes_of_items_that_wait_lie_behind_each_other() -> None:
    world = listening()
    called(world)
    world.append(5)
    world.do(output())
    for size in (800, 600):
        part = AudioPart("Hello.", size=size)
        world.do(cmd.CreateItem(attachment=1, item=Message(id="", role="user", content=(part,))))
    held = [event.refs for event in world.session.input.stream.held]
    assert held == [(), (SampleRef("item", 0, 800),), (SampleRef("item", 800, 600),)]


@rule("B24", "E6", "E12", "E14", "P32")
def test_what_would_wait_is_checked_when_it_comes_and_leaves_nothing_if_it_is_refused() -> None:
    limits = Limits(input_bytes=20 * FRAME, pending_commits=2)
    blind = able(optional_input_modalities=("text",))
    world = World(plugin="echo", auto=True, capabilities=blind, limits=limits)
    world.append(5)
    for name in ("a", "b"):
        assert kinds(world.do(commit(name))) == ["CommandHeld"]
    before = core.dump(world.session)
    size = 16 * FRAME
    refused = (
        (commit("c"), "input_backpressure"),
        (cmd.AppendAudio(attachment=1, size=size, wire_bytes=size), "input_backpressure"),
        (cmd.AppendAudio(attachment=1, size=FRAME, wire_bytes=FRAME, frames=(9,)), "invalid_input_modality"),
    )
    for command, code in refused:
        assert [code for code, _ in told(core.decide(world.session, command, world.now))] == [code]
    assert core.dump(world.session) == before
    assert [held.command.event_id for held in world.session.input.stream.held] == ["a", "b"]
