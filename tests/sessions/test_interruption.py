"""The matrix of interruptions: every state, every command that ends something, every kind of session (G30-G37)."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import pytest

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.sessions import core
from antiphon.sessions.phases import LIVE

from tests.rules import rule
from tests.sessions.world import OVERLAPPING, World, error

CASCADE = core.REGISTRY["cascade"].capabilities

Give = Callable[[World], list[ev.AnyEvent]]

COMMANDS: dict[str, Give] = {
    "cancel": lambda world: world.cancel(),
    "barge_in": lambda world: world.barge_in(),
    "input_cancel": lambda world: world.do(cmd.CancelInput(attachment=1)),
    "clear_output": lambda world: world.do(cmd.ClearOutput(attachment=1)),
}


def _resident(world: World) -> str | None:
    """The request of a model that keeps its memory, if there is one."""
    working = world.session.requests.items()
    return next((name for name, known in working if known.response_id is None and known.phase in LIVE), None)


# -- the kinds of sessions, and the states that they come into -----------------------------------------------


def of_turns() -> World:
    """An ephemeral model: a request for each turn."""
    return World(capabilities=CASCADE)


def listening() -> World:
    """A resident model that decides by itself; it has heard something and answered nothing."""
    world = World(plugin="echo", auto=True)
    world.append()
    world.accept()
    return world


def ask(world: World, frames: int = 30) -> list[ev.AnyEvent]:
    world.append(frames)
    return world.commit(create_response=True)


def idle(world: World) -> None:
    """Nothing was said."""


def buffered(world: World) -> None:
    world.append(4)


def precreated(world: World) -> None:
    """The turn is at the stage, which has not taken it yet."""
    ask(world)


def working(world: World) -> None:
    """The stage works on the answer that was announced."""
    ask(world)
    world.do(cmd.StageAccepted(request=world.request))


def _speak(world: World, ms: int) -> None:
    if world.session.auto:
        world.produce("All is well. And you?", ms, world.resident)
    else:
        ask(world)
        if _resident(world):
            world.accept()
        world.produce("All is well. And you?", ms)


def active(world: World) -> None:
    _speak(world, 1_000)


def partly_played(world: World) -> None:
    _speak(world, 1_000)
    world.ack(500)


def _finish(world: World) -> None:
    if _resident(world):
        world.do(cmd.StageSegmentFinished(request=world.resident, decision="end_of_turn"))
    else:
        world.finish()


def still_played(world: World) -> None:
    _speak(world, 1_000)
    _finish(world)
    world.ack(500)


def all_played(world: World) -> None:
    _speak(world, 1_000)
    _finish(world)
    world.ack(1_000)


def deferred(world: World) -> None:
    _speak(world, 1_000)
    ask(world)


def draining(world: World) -> None:
    """Two answers are made beside each other."""
    _speak(world, 1_000)
    world.end_inner()
    ask(world)
    world.produce("More.", 500)


class Outcome(NamedTuple):
    """What a client is told, in order; how far the epoch moves; whether the stage is told to stop.

    `history`: the words of the assistant that are left. `dropped`: input that waited is gone.
    """

    told: tuple[str, ...]
    bumped: int = 0
    aborts: bool = False
    history: str | None = None
    left: int | None = None


REFUSED = Outcome(("error response_not_active",))
CLEARED = Outcome(("cleared",), left=0)
OUTPUT_CLEARED = Outcome(("output cleared",))


def ended(
    cause: str,
    *more: str,
    count: int = 1,
    before: tuple[str, ...] = (),
    history: str | None = None,
    left: int | None = None,
) -> Outcome:
    told = (*before, *(f"done cancelled {cause}" for _ in range(count)), *more)
    return Outcome(told, bumped=1, aborts=True, history=history, left=left)


PLAYED = "All is"
"""What a user has heard of the answer after half of it."""
C, B, I, O = "cancel", "barge_in", "input_cancel", "clear_output"  # noqa: E741

ROWS: list[tuple[Callable[[World], None], dict[str, Outcome]]] = [
    (idle, {C: REFUSED, B: CLEARED, I: CLEARED, O: OUTPUT_CLEARED}),
    (
        buffered,
        {
            C: REFUSED,
            B: Outcome(("cleared",), bumped=1, left=0),
            I: Outcome(("cleared",), bumped=1, left=0),
            O: OUTPUT_CLEARED,
        },
    ),
    (
        precreated,
        {
            C: ended("client_cancelled"),
            B: ended("barge_in"),
            I: ended("input_cancel", "cleared"),
            O: ended("output_audio_buffer_clear", before=("output cleared",)),
        },
    ),
    (
        working,
        {
            C: ended("client_cancelled"),
            B: ended("barge_in"),
            I: ended("input_cancel", "cleared"),
            O: ended("output_audio_buffer_clear", before=("output cleared",)),
        },
    ),
    (
        active,
        {
            C: ended("client_cancelled", history=""),
            B: ended("barge_in", history=""),
            I: ended("input_cancel", "cleared", history=""),
            O: ended("output_audio_buffer_clear", before=("output cleared",), history=""),
        },
    ),
    (
        partly_played,
        {
            C: ended("client_cancelled", history=PLAYED),
            B: ended("barge_in", history=PLAYED),
            I: ended("input_cancel", "cleared", history=PLAYED),
            O: ended("output_audio_buffer_clear", before=("output cleared",), history=PLAYED),
        },
    ),
    (
        still_played,
        {
            C: REFUSED,
            B: Outcome(("output cleared",), bumped=1, history=PLAYED),
            I: Outcome(("output cleared", "cleared"), bumped=1, history=PLAYED),
            O: Outcome(("output cleared",), bumped=1, history=PLAYED),
        },
    ),
    (all_played, {C: REFUSED, B: CLEARED, I: CLEARED, O: OUTPUT_CLEARED}),
]
"""The rows of both kinds of sessions. (`O` of sound that is still played is an interruption of it: WIRE 2.5.)"""

OF_TURNS_ONLY = [
    (
        deferred,
        {
            C: ended("client_cancelled", left=0),
            B: ended("barge_in", left=0),
            I: ended("input_cancel", "cleared", left=0),
            O: ended("output_audio_buffer_clear", "created", before=("output cleared",)),
        },
    ),
    (
        draining,
        {
            C: ended("client_cancelled", count=2),
            B: ended("barge_in", count=2),
            I: ended("input_cancel", "cleared", count=2),
            O: ended("output_audio_buffer_clear", count=2, before=("output cleared",)),
        },
    ),
]


def told(events: list[ev.AnyEvent]) -> tuple[str, ...]:
    """What the client is told, in words."""
    words: list[str] = []
    for event in events:
        match event:
            case ev.ErrorReported(code=code):
                words.append(f"error {code}")
            case ev.InputCleared():
                words.append("cleared")
            case ev.OutputCleared():
                words.append("output cleared")
            case ev.ResponseEnded(status=status, cause=cause):
                words.append(f"done {status} {cause}")
            case ev.ResponseCreated():
                words.append("created")
            case _:
                pass
    return tuple(words)


def check(world: World, state: Callable[[World], None], command: str, want: Outcome) -> None:
    state(world)
    epoch = world.session.epoch
    requests = set(world.session.requests)
    resident = _resident(world)
    events = COMMANDS[command](world)
    assert told(events) == want.told
    assert world.session.epoch - epoch == want.bumped
    effects = world.effects(events)
    aborted = {name for effect in effects if isinstance(effect, fx.AbortRequests) for name in effect.requests}
    assert bool(aborted) == want.aborts
    assert not aborted or aborted == requests, "A17: all of the epoch that is left"
    if want.history is not None:
        assert "".join(world.heard()) == want.history
    if want.left is not None:
        assert world.session.input.reserved == want.left
    if resident and not want.aborts:
        assert _resident(world) == resident  # its memory is not thrown away (Q4.9)
    if want.told != REFUSED.told and "created" not in want.told:
        again = COMMANDS["cancel"](world)
        assert error(again) == "response_not_active"  # nothing ends twice (G20)


CASES = [
    pytest.param(state, command, want, id=f"{state.__name__}-{command}")
    for state, row in ROWS
    for command, want in row.items()
]


@rule("G30", "G37", "A4", "A17", "P8")
@pytest.mark.parametrize(("state", "command", "want"), CASES)
def test_sessions_of_turns(state: Callable[[World], None], command: str, want: Outcome) -> None:
    check(of_turns(), state, command, want)


@rule("G30", "H13", "F23")
@pytest.mark.parametrize(
    ("state", "command", "want"),
    [
        pytest.param(state, command, want, id=f"{state.__name__}-{command}")
        for state, row in OF_TURNS_ONLY
        for command, want in row.items()
    ],
)
def test_turns_that_wait_or_overlap(state: Callable[[World], None], command: str, want: Outcome) -> None:
    check(World(plugins=OVERLAPPING), state, command, want)


# -- resident models -----------------------------------------------------------------------------------------

UNITS = msgspec.structs.replace(core.REGISTRY["echo"].capabilities, chunk_period_ms=1_000)
UNIT = 32
"""Frames of a little more than one unit."""


def in_units(*, auto: bool) -> World:
    """A resident model that takes a second at a time."""
    return World(plugin="echo", auto=auto, capabilities=UNITS)


def heard(world: World) -> None:
    """The model has heard a unit and listens on; nothing waits."""
    world.append(125)  # four units, to the last sample
    world.accept()
    world.do(cmd.StageSegmentFinished(request=world.resident, decision="listen"))


def half_a_unit(world: World) -> None:
    heard(world)
    world.append(4)


def under_way(world: World) -> None:
    """A unit is at the stage, which has not taken it yet."""
    heard(world)
    world.append(UNIT)


def about_to_speak(world: World) -> None:
    """The model has decided to speak, and has said nothing yet."""
    heard(world)
    world.do(cmd.StageSegmentFinished(request=world.resident, decision="speak"))


VOID = Outcome(("cleared",), bumped=1, left=0)
ABORTED = Outcome(("cleared",), bumped=1, aborts=True, left=0)

RESIDENT_ROWS: list[tuple[Callable[[World], None], dict[str, Outcome]]] = [
    (idle, {C: REFUSED, B: CLEARED, I: CLEARED, O: OUTPUT_CLEARED}),
    (heard, {C: REFUSED, B: CLEARED, I: CLEARED, O: OUTPUT_CLEARED}),
    (half_a_unit, {C: REFUSED, B: VOID, I: VOID, O: OUTPUT_CLEARED}),
    (under_way, {C: REFUSED, B: ABORTED, I: ABORTED, O: OUTPUT_CLEARED}),
    (about_to_speak, {C: REFUSED, B: ABORTED, I: ABORTED, O: OUTPUT_CLEARED}),
]


@rule("G30", "E29", "Q4.9", "Q4.10")
@pytest.mark.parametrize(
    ("state", "command", "want"),
    [
        pytest.param(state, command, want, id=f"{state.__name__}-{command}")
        for state, row in RESIDENT_ROWS
        for command, want in row.items()
    ],
)
def test_a_model_that_listens_has_not_answered_yet(
    state: Callable[[World], None], command: str, want: Outcome
) -> None:
    check(in_units(auto=True), state, command, want)


ANSWERING = {"active", "partly_played", "still_played", "all_played"}


@rule("G30", "Q4.9", "Q4.10")
@pytest.mark.parametrize(
    ("state", "command", "want"),
    [case for case in CASES if str(case.id).rpartition("-")[0] in ANSWERING],
)
def test_a_model_that_listens_all_the_time(state: Callable[[World], None], command: str, want: Outcome) -> None:
    check(listening(), state, command, want)


@rule("G30", "Q4.9")
@pytest.mark.parametrize(("state", "command", "want"), CASES)
def test_a_resident_model_in_a_session_of_turns(
    state: Callable[[World], None], command: str, want: Outcome
) -> None:
    check(in_units(auto=False), state, command, want)
