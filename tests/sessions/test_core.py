"""The face of the core: its tables are the unions, and its functions are pure."""

from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.context import ContextTurn
from antiphon.sessions import core
from antiphon.sessions.core import CONTROLS, REQUESTS
from antiphon.sessions.draft import Draft
from antiphon.sessions.refusal import refuse

from tests.events.examples import structs
from tests.rules import rule
from tests.sessions.world import World, kinds, only

COMMANDS: tuple[type[cmd.Command], ...] = get_args(cmd.AnyCommand)


def test_the_dispatch_tables_are_the_union_of_commands() -> None:
    assert set(CONTROLS) | set(REQUESTS) == set(COMMANDS)
    assert not set(CONTROLS) & set(REQUESTS)


def test_the_commands_of_clients_are_in_their_table() -> None:
    assert set(REQUESTS) == {kind for kind in COMMANDS if issubclass(kind, cmd.ClientCommand)}


@pytest.mark.parametrize("kind", [kind for kind in COMMANDS if not issubclass(kind, cmd.ClientCommand)])
def test_a_session_that_does_not_exist_decides_nothing(kind: type[cmd.Command]) -> None:
    examples: list[cmd.AnyCommand] = [
        cmd.ConfirmAttachment(attachment=1),
        cmd.CloseSession(control_id="c"),
        cmd.Tick(),
        cmd.StartRunner(term=1, wall_us=0),
        cmd.ReportRefusal(attachment=0, code="c", message="m"),
        cmd.ReportFault(attachment=0, event_id="e"),
        cmd.StageAccepted(request="r"),
        cmd.StageTranscribed(request="r", item_id="i", text="t"),
        cmd.StageProduced(request="r", text="t"),
        cmd.StageOwned(request="r", generation=1),
        cmd.StageCalled(request="r", name="look"),
        cmd.StageFinished(request="r"),
        cmd.StageFailed(request="r", code="c", message="m"),
        cmd.StageReleased(request="r"),
        cmd.StageAbortFailed(request="r"),
        cmd.StageLost(request="r"),
        cmd.StageRefused(request="r", operation=1, message="m"),
        cmd.StageSegmentFinished(request="r", decision="listen"),
        cmd.StageMeasured(request="r"),
        cmd.StageInnerFinished(request="r", stage=1),
        cmd.StageContext(request="r", turn=ContextTurn()),
    ]
    for command in examples:
        if type(command) is kind:
            assert core.decide(core.new(), command, 0) == []
            break
    else:
        assert kind in (cmd.OpenSession, cmd.ResumeSession, cmd.Detach)
    assert core.decide(core.new(), cmd.Heartbeat(attachment=0), 0) == []
    unknown = cmd.ResumeSession(control_id="c", presented="p", next_digest="n")
    with pytest.raises(core.Refusal, match="has ended"):
        core.decide(core.new(), unknown, 0)
    with pytest.raises(core.Refusal, match="no such session"):
        core.decide(core.new(), cmd.Detach(generation=0), 0)


@rule("D24", "P52")
def test_d24_a_command_of_another_attachment_is_not_executed() -> None:
    world = World()
    assert world.do(cmd.Heartbeat(attachment=2)) == []
    world.resume()
    assert world.do(cmd.Heartbeat(attachment=1)) == []


def test_decide_never_goes_back_in_time() -> None:
    world = World()
    world.wait(1_000)
    world.say("Now.")
    ahead = core.decide(world.session, cmd.CreateResponse(attachment=1), world.now)
    behind = core.decide(world.session, cmd.CreateResponse(attachment=1), 0)
    assert ahead == behind


@rule("A22")
def test_a_refusal_carries_the_clients_event_id() -> None:
    world = World()
    (told,) = world.do(cmd.CancelResponse(attachment=1, event_id="mine"))
    assert isinstance(told, ev.ErrorReported)
    assert (told.event_id, told.number, told.count) == ("mine", 1, 1)


@rule("A22", "B23", "C13")
@pytest.mark.parametrize("kind", list(REQUESTS))
@settings(max_examples=5)
@given(data=st.data())
def test_a22_every_refused_command_of_a_client_is_named(kind: type[cmd.ClientCommand], data: st.DataObject) -> None:
    command = data.draw(structs(kind))
    world = World()
    world.begin()
    world.close()
    mine = msgspec.structs.replace(command, attachment=world.attachment, event_id="mine", client_seq=None)
    refused = only(core.decide(world.session, mine, world.now), ev.ErrorReported)  # type: ignore[arg-type]
    code = "runtime_touch_failed" if kind is cmd.Heartbeat else "session_closed"
    assert (refused.code, refused.event_id) == (code, "mine")


@rule("A22")
def test_a22_only_errors_are_told_by_the_id_of_what_caused_them() -> None:
    naming = {kind for kind in get_args(ev.AnyEvent) if "event_id" in kind.__struct_fields__}
    assert naming == {ev.ErrorReported}


@rule("P32")
def test_p32_a_refusal_behind_the_first_event_is_a_fault_of_ours() -> None:
    world = World()

    def broken(draft: Draft, _command: cmd.Heartbeat) -> None:
        draft.emit(ev.SessionTouched(number=draft.number, count=1, session="s"))
        refuse("late", "Too late.")

    table = dict(REQUESTS)
    table[cmd.Heartbeat] = broken
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core, "REQUESTS", table)
        with pytest.raises(AssertionError, match="before the first event"):
            core.decide(world.session, cmd.Heartbeat(attachment=1), 0)


@rule("P1")
def test_p1_a_snapshot_and_the_rest_are_the_whole() -> None:
    world = World()
    world.answer()
    world.append(3)
    for cut in range(len(world.log) + 1):
        part = core.load(core.dump(core.fold(world.log[:cut])))
        assert core.dump(core.fold(world.log[cut:], part)) == core.dump(world.session)


def test_the_versions_stand_in_the_state() -> None:
    world = World()
    assert (world.session.plugin, world.session.plugin_version) == ("cascade", "1")
    assert core.STATE_VERSION >= 1
    assert kinds(world.opened) == ["SessionOpened"]
