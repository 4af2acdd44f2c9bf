"""What waits for a runner: who may pass whom, what is dropped, and what is counted."""

import pytest

from antiphon.engine.inbox import Inbox, Item
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
