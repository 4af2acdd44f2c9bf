"""What waits for a runner: who may pass whom, what is dropped, and what is counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.inbox import Inbox, Item, Line
from antiphon.events.commands import (
    AnyCommand,
    AppendAudio,
    BargeIn,
    CancelInput,
    CancelResponse,
    ClearOutput,
    CloseSession,
    CommitInput,
    CreateResponse,
    Detach,
    Heartbeat,
    OpenSession,
    ReportRefusal,
    StageAccepted,
    StageProduced,
    Tick,
)
from antiphon.events.config import Capabilities, SessionConfig

from tests.rules import rule

SOUND = AppendAudio(attachment=1, size=2, wire_bytes=10)
REPORT = StageProduced(request="s.e0.turn0")
CLOSE = CloseSession(control_id="c")
OPEN = OpenSession(
    session="s",
    control_id="o",
    dialect="duplex",
    plugin="echo",
    plugin_version="1",
    capabilities=Capabilities(),
    config=SessionConfig(model="echo"),
    wall_us=0,
)


def counted_sound(seq: int) -> AppendAudio:
    return AppendAudio(attachment=1, size=2, wire_bytes=10, client_seq=seq)


def filled(*commands: AnyCommand) -> Inbox:
    inbox = Inbox()
    for command in commands:
        inbox.put(Item(command, size=command.wire_bytes if isinstance(command, AppendAudio) else 0))
    return inbox


def order(*commands: AnyCommand) -> list[AnyCommand]:
    return [item.command for item in filled(*commands).clear()]


URGENT: list[AnyCommand] = [
    CancelResponse(attachment=1),
    ClearOutput(attachment=1),
    CLOSE,
    BargeIn(attachment=1),
    CancelInput(attachment=1),
]
CLEARING = URGENT[3:]


@rule("P58")
@pytest.mark.parametrize("command", URGENT[:3])
def test_a_cancel_passes_sound_and_reports(command: AnyCommand) -> None:
    assert order(SOUND, REPORT, SOUND, command) == [command, SOUND, REPORT, SOUND]


@rule("P58")
@pytest.mark.parametrize("command", CLEARING)
def test_what_clears_the_input_drops_the_sound_that_it_passes(command: AnyCommand) -> None:
    assert order(SOUND, REPORT, SOUND, StageAccepted(request="r"), command) == [
        command,
        REPORT,
        StageAccepted(request="r"),
    ]


@pytest.mark.parametrize("command", URGENT)
@pytest.mark.parametrize(
    "before",
    [
        CreateResponse(attachment=1),
        CommitInput(attachment=1),
        ReportRefusal(attachment=1, code="bad_event", message=""),
        counted_sound(1),
        Tick(),
        Detach(generation=0),
        OPEN,
    ],
    ids=lambda command: type(command).__name__,
)
def test_nothing_passes_what_it_may_be_meant_to_cancel(command: AnyCommand, before: AnyCommand) -> None:
    kept = [] if command in CLEARING else [SOUND]
    assert order(SOUND, before, SOUND, command) == [SOUND, before, command, *kept]


def test_two_cancels_keep_their_order() -> None:
    first, second = CancelResponse(attachment=1, response_id="a"), ClearOutput(attachment=1)
    assert order(SOUND, first, SOUND, second) == [first, second, SOUND, SOUND]


def test_a_counted_cancel_keeps_its_place() -> None:
    cancel = CancelInput(attachment=1, client_seq=3)
    assert order(SOUND, counted_sound(2), SOUND, cancel) == [SOUND, counted_sound(2), SOUND, cancel]


def test_commands_of_clients_and_their_bytes_are_counted_until_they_are_taken_or_dropped() -> None:
    inbox = filled(SOUND, REPORT, Tick(), Heartbeat(attachment=1), SOUND, counted_sound(1), SOUND)
    assert (len(inbox), inbox.clients, inbox.queued_bytes) == (7, 5, 40)
    inbox.put(Item(CancelInput(attachment=1)))
    assert (len(inbox), inbox.clients, inbox.queued_bytes) == (7, 5, 30)
    assert inbox.take().command == SOUND
    assert (len(inbox), inbox.clients, inbox.queued_bytes) == (6, 4, 20)
    inbox.clear()
    assert (len(inbox), inbox.clients, inbox.queued_bytes) == (0, 0, 0)


def test_what_stages_and_timers_say_is_told_from_what_clients_say() -> None:
    inbox = filled(SOUND, REPORT, Tick(), Heartbeat(attachment=1))
    assert inbox.others == 2


class Slowly:
    """The order as it is told: an urgent one goes behind the last that may not be passed."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, int]] = []

    def put(self, kind: str, number: int) -> None:
        at = len(self.waiting)
        if kind in ("urgent", "clearing"):
            while at and self.waiting[at - 1][0] in ("sound", "report"):
                at -= 1
        if kind == "clearing":
            self.waiting[at:] = [one for one in self.waiting[at:] if one[0] != "sound"]
        self.waiting.insert(at, (kind, number))


KINDS = st.sampled_from(["sound", "report", "fixed", "urgent", "clearing", "take"])


@rule("P58")
@given(st.lists(KINDS, max_size=40))
def test_a_line_keeps_the_order_that_is_told(kinds: list[str]) -> None:
    line, told = Line[tuple[str, int]](), Slowly()
    for number, kind in enumerate(kinds):
        if kind == "take":
            assert line.first() == (told.waiting[0] if told.waiting else None)
            if told.waiting:
                assert line.take() == told.waiting.pop(0)
            continue
        told.put(kind, number)
        if kind == "clearing":
            line.drop()
        if kind in ("urgent", "clearing"):
            line.overtake((kind, number))
        elif kind == "fixed":
            line.add((kind, number))
        else:
            line.add_passable((kind, number), droppable=kind == "sound")
        assert len(line) == len(told.waiting)
        assert line.blocked == any(kind not in ("sound", "report") for kind, _ in told.waiting)
    assert line.clear() == told.waiting


@rule("P58")
def test_passing_a_long_line_costs_no_more_than_passing_a_short_one() -> None:
    """Were each cancel to look at all that it passes, this would take hours."""
    many = 100_000
    inbox = filled(*[SOUND, REPORT] * many)
    for _ in range(many):
        inbox.put(Item(CancelResponse(attachment=1)))
    inbox.put(Item(CancelInput(attachment=1)))
    for _ in range(many):
        inbox.put(Item(CancelInput(attachment=1)))
    assert (len(inbox), inbox.clients, inbox.queued_bytes) == (3 * many + 1, 2 * many + 1, 0)
