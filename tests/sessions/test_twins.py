"""Sessions that must come to the same: what was cleared was never said, and neighbours do not matter (P33, P57)."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.config import ConfigPatch
from antiphon.events.items import FunctionCall, FunctionOutput, Message, TextPart
from antiphon.sessions.state import Turn

from tests.rules import rule
from tests.sessions.world import QUICK_VAD, World, kinds

Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["speak", "hush", "commit", "ask", "hear", "end", "cancel", "ack"]), st.integers(1, 6)
    ),
    max_size=8,
)


def play(world: World, steps: list[Step]) -> list[str]:
    """Do what the steps say; return what happened, by kind."""
    happened: list[str] = []
    for what, size in steps:
        happened += kinds(DO[what](world, size))
    return happened


def hear(world: World, size: int) -> list[ev.AnyEvent]:
    return [] if world.session.response is None else world.produce("word ", 40 * size)


def end(world: World, _size: int) -> list[ev.AnyEvent]:
    return [] if world.session.response is None else world.finish()


DO: dict[str, Callable[[World, int], list[ev.AnyEvent]]] = {
    "speak": lambda world, size: world.append(size),
    "hush": lambda world, size: world.append(size, speech=False),
    "commit": lambda world, size: world.commit(create_response=size > 2),
    "ask": lambda world, _size: world.say("And?") + world.respond(),
    "hear": hear,
    "end": end,
    "cancel": lambda world, _size: world.cancel(),
    "ack": lambda world, size: world.ack(size * 40),
}


def units(world: World, events: list[ev.AnyEvent]) -> list[fx.FeedStage]:
    """Return what a resident model is given because of events."""
    return [effect for effect in world.effects(events) if isinstance(effect, fx.FeedStage)]


def places(unit: fx.FeedStage) -> list[int]:
    """Return where the sound of a unit begins."""
    return [ref.start for ref in unit.refs]


def turns(world: World) -> Turn:
    """Return what a session knows of its turns, whatever the items are called."""
    turn = world.session.turn
    waiting, due = tuple(map(bool, turn.waiting)), tuple(map(bool, turn.due))
    return msgspec.structs.replace(turn, waiting=waiting, due=due)


@rule("E26", "P33", "Q4.28")
@given(before=st.lists(st.tuples(st.sampled_from(["speak", "hush"]), st.integers(1, 6)), max_size=4), steps=STEPS)
def test_p33_what_was_cleared_was_never_said(before: list[Step], steps: list[Step]) -> None:
    cleared, fresh = World(), World()
    play(cleared, before)
    cleared.clear()
    assert play(cleared, steps) == play(fresh, steps)
    assert cleared.session.input.reserved == fresh.session.input.reserved
    assert turns(cleared) == turns(fresh)
    assert len(cleared.session.conversation.order) == len(fresh.session.conversation.order)
    assert cleared.heard() == fresh.heard()


@rule("E26", "P33", "Q4.5")
@given(steps=STEPS)
def test_p33_behind_a_failed_answer_the_session_goes_on_as_behind_an_empty_one(steps: list[Step]) -> None:
    failed, fine = World(dialect="ga"), World(dialect="ga")
    for world, finish in ((failed, failed.fail), (fine, fine.finish)):
        world.begin()
        finish()
    assert play(failed, steps) == play(fine, steps)
    assert failed.session.input.reserved == fine.session.input.reserved
    assert turns(failed) == turns(fine)
    assert failed.heard() == fine.heard()


@rule("P57", "Q4.27")
@given(one=STEPS, other=STEPS)
def test_p57_what_a_neighbour_does_is_not_noticed(one: list[Step], other: list[Step]) -> None:
    alone = World()
    expected = play(alone, one)
    first, second = World(), World(dialect="ga")
    turns = [("first", step) for step in one]
    at = 0
    for step in other:
        at = (at + 3) % (len(turns) + 1)
        turns.insert(at, ("second", step))
    happened: list[str] = []
    for who, step in turns:
        if who == "first":
            happened += play(first, [step])
        else:
            play(second, [step])
    assert happened == expected
    assert first.log == alone.log


@rule("Q4.27")
def test_q4_27_a_model_is_shown_its_own_sessions_words_only() -> None:
    worlds = [World(), World(dialect="ga")]
    for number, world in enumerate(worlds):
        world.say(f"I am {number}.")
    for number, world in enumerate(worlds):
        (submit,) = world.effects(world.respond())
        assert isinstance(submit, fx.SubmitToStage)
        assert [item.content for item in submit.payload.items if isinstance(item, Message)] == [
            (TextPart(f"I am {number}."),)
        ]


@rule("E28", "P29", "Q4.28")
@pytest.mark.parametrize("vad", [None, QUICK_VAD])
def test_q4_28_what_is_sent_behind_a_clear_is_whole_and_accounted_for(vad: object) -> None:
    world = World(vad=QUICK_VAD if vad else None)
    score = 900 if vad else None
    world.append(5, score=score)
    world.clear()
    assert world.session.input.reserved == 0
    world.append(5, score=score)
    assert world.session.input.reserved == 5 * 1024
    (committed,) = [event for event in world.commit() if isinstance(event, ev.InputCommitted)]
    assert committed.ref is not None
    assert (committed.ref.start, committed.ref.size) == (5 * 1024, 5 * 1024)


@rule("E28", "Q4.28")
def test_q4_28_a_model_that_listens_hears_what_is_sent_behind_a_clear() -> None:
    world = World(plugin="echo", auto=True)
    world.append()
    world.clear()
    assert [(unit.request, unit.seq, places(unit)) for unit in units(world, world.append())] == [
        ("duplex-1.e0", 2, [1024])
    ]


@rule("J11", "Q4.24")
def test_q4_24_a_function_output_behind_a_failure_is_taken() -> None:
    world = World(dialect="ga")
    world.item(FunctionCall(id="", call_id="c", name="weather", arguments="{}"))
    world.begin()
    world.fail()
    assert kinds(world.item(FunctionOutput(id="", call_id="c", output="sunny"))) == ["ItemCreated"]
    assert kinds(world.respond())[0] == "ResponseCreated"


@rule("E38", "Q4.7")
@pytest.mark.parametrize("command", [cmd.BargeIn, cmd.CancelInput, cmd.CancelResponse])
def test_q4_7_a_turn_that_no_stage_has_taken_yet_can_be_interrupted(command: type[cmd.ClientCommand]) -> None:
    world = World()
    world.append(4)
    world.commit(create_response=True)
    assert world.session.requests[world.request].phase == "submitted"
    made: cmd.AnyCommand = command(attachment=1)  # type: ignore[assignment]
    assert "Interrupted" in kinds(world.do(made))
    assert world.session.response is None


@rule("Q4.1", "E31", "P29")
def test_q4_1_a_model_that_listens_hears_each_byte_once_whatever_is_committed() -> None:
    world = World(plugin="echo", auto=True)
    fed: list[int] = []
    for _ in range(3):
        for events in (world.append(3), world.commit()):
            fed += [start for unit in units(world, events) for start in places(unit)]
            world.accept()
    assert fed == [0, 3 * 1024, 6 * 1024]
    assert world.session.input.reserved == 0


@rule("Q4.6")
def test_q4_6_a_long_append_is_heard_as_a_whole_and_leaves_no_lag() -> None:
    world = World(plugin="echo", auto=True)
    heard = 0
    for frames in (90, 3, 60):
        events = world.append(frames)
        heard += sum(ref.size for unit in units(world, events) for ref in unit.refs)
        assert heard == world.session.input.position
        world.accept()
        assert world.session.input.reserved == 0


@rule("E33", "Q4.8")
@pytest.mark.parametrize("vad", [None, QUICK_VAD])
def test_q4_8_a_refused_commit_has_no_effects_and_can_be_repeated(vad: object) -> None:
    world = World(dialect="ga", vad=QUICK_VAD if vad else None)
    world.append(3, score=900 if vad else None)
    before = world.session.input.phase, world.session.input.reserved, world.session.input.item_id
    assert kinds(world.commit()) == ["ErrorReported"]
    assert (world.session.input.phase, world.session.input.reserved, world.session.input.item_id) == before
    world.append(3, score=900 if vad else None)
    assert "InputCommitted" in kinds(world.commit())


@rule("L8", "Q4.23")
def test_q4_23_instructions_of_a_model_that_renders_every_turn_are_never_locked() -> None:
    world = World(dialect="ga")
    world.answer()
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(instructions="Be brief.")))
    world.say("And now?")
    (submit,) = world.effects(world.respond())
    assert isinstance(submit, fx.SubmitToStage)
    assert submit.payload.instructions == "Be brief."
