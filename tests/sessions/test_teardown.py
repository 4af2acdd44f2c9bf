"""The end of a session: who decides it, what the client is told, and what is left behind."""

from collections.abc import Callable
from itertools import product

import pytest

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.config import Limits
from antiphon.sessions import core
from antiphon.sessions.view import next_deadline, outstanding

from tests.rules import rule
from tests.sessions.world import FRAME, MS, World, capable, error, kinds, only

LIMITS = Limits(grace_ms=5_000, idle_ttl_ms=20_000, max_session_ms=30_000)


def forgetful(*, resumable: bool = False) -> World:
    """A session whose resident model listens, and cannot render its memory again."""
    able = capable(core.REGISTRY["echo"].capabilities, supports_reencode_context=False)
    world = World(plugin="echo", auto=True, capabilities=able, resumable=resumable, limits=LIMITS)
    world.append()
    world.accept()
    return world


# -- racing closers ------------------------------------------------------------------------------------------


def wire(world: World) -> list[ev.AnyEvent]:
    return world.do(cmd.CloseSession(control_id="wire", attachment=world.attachment))


def control(world: World) -> list[ev.AnyEvent]:
    return world.do(cmd.CloseSession(control_id="control", words="enough"))


def connection(world: World) -> list[ev.AnyEvent]:
    gone = cmd.Detach(generation=world.session.lease.generation, reason="transport_error")
    if world.session.phase == "open":
        return world.do(gone)
    assert world.refused(gone).code == "session_closed", "nothing for a connection to report (M7)"
    return []


def idle(world: World) -> list[ev.AnyEvent]:
    world.now = max(world.now, 20_100 * MS)
    return world.tick()


def grace(world: World) -> list[ev.AnyEvent]:
    connection(world)
    world.wait(5_000)
    return world.tick()


def too_long(world: World) -> list[ev.AnyEvent]:
    world.now = max(world.now, 15_000 * MS)
    world.do(cmd.Heartbeat(attachment=world.attachment))
    world.now = max(world.now, 30_000 * MS)
    return world.tick()


def stage(world: World) -> list[ev.AnyEvent]:
    return world.do(cmd.StageLost(request="duplex-1.e0"))


def shutdown(world: World) -> list[ev.AnyEvent]:
    return world.do(cmd.CloseSession(control_id="duplex-1:shutdown", reason="shutdown"))


def fault(world: World) -> list[ev.AnyEvent]:
    return world.do(cmd.ReportFault(attachment=world.attachment, append=True))


def restart(world: World) -> list[ev.AnyEvent]:
    return world.restart()


Closer = Callable[[World], list[ev.AnyEvent]]

ENDS: dict[Closer, tuple[str, bool]] = {
    wire: ("client_close", False),
    control: ("client_close", False),
    connection: ("transport_error", False),
    idle: ("idle_ttl_expired", True),
    grace: ("disconnect_grace_expired", True),
    too_long: ("max_duration", True),
    stage: ("request_cleanup", True),
    shutdown: ("shutdown", False),
    fault: ("runtime_append_task_failed", False),
    restart: ("request_cleanup", True),
}
PAIRS = [
    (first, second)
    for first, second in product(ENDS, ENDS)
    # A session in whose grace somebody waits is not one that ends with its connection.
    if not (first is connection and second is grace) and not (first is grace and second is connection)
]


@rule("M7", "M2", "P54", "C12")
@pytest.mark.parametrize(("first", "second"), PAIRS, ids=lambda closer: closer.__name__)
def test_the_first_closer_decides_and_every_later_one_changes_nothing(first: Closer, second: Closer) -> None:
    world = forgetful(resumable=first is grace)
    decided = only(first(world), ev.SessionClosing)
    generation = world.session.lease.generation
    second(world)
    world.wait(2_000)
    world.tick()
    world.release()
    story = [event for entry in world.log for event in entry.events]
    assert sum(isinstance(event, ev.SessionClosing) for event in story) == 1
    closed = only(story, ev.SessionClosed)
    assert (decided.reason, decided.expired) == (closed.reason, closed.expired) == ENDS[first]
    assert closed is [event for event in story if isinstance(event, ev.PublicEvent)][-1], "nothing follows it"
    assert world.session.lease.generation == generation
    assert next_deadline(world.session) is None


@rule("M1")
@pytest.mark.parametrize("closer", [wire, control, connection])
def test_every_close_has_one_effect_and_its_own_reason(closer: Closer) -> None:
    world = forgetful()
    world.produce("And", 100, world.resident)
    assert kinds(closer(world)) == ["ResponseEnded", "SessionClosing"]
    assert kinds(world.release()) == ["RequestReleased", "SessionClosed"]


@rule("M2", "C13", "P55")
def test_from_the_decision_on_nothing_is_taken_or_begun() -> None:
    world = forgetful()
    known = world.session.lease.token or "none"
    wire(world)
    assert world.session.phase == "closing"
    for refused in (
        world.append(),
        world.say("Wait!"),
        world.do(cmd.CreateResponse(attachment=1)),
        world.clear(),
    ):
        assert error(refused) == "session_closed"
    assert error(world.do(cmd.Heartbeat(attachment=1))) == "runtime_touch_failed"
    assert world.refused(world.resumption(known)).code == "session_resume_expired"
    assert world.do(cmd.StageProduced(request="duplex-1.e0", text="late")) == []


@rule("M3", "G37")
def test_the_teardown_ends_the_answers_then_cleans_up_then_says_so() -> None:
    world = World()
    world.begin()
    request = world.request
    world.produce("Well", 200)
    events = wire(world)
    assert kinds(events) == ["ResponseEnded", "SessionClosing"]
    assert world.effects(events) == [fx.AbortRequests(requests=(request,))]
    assert kinds(world.do(cmd.StageReleased(request=request))) == ["RequestReleased", "SessionClosed"]


@rule("M4")
@pytest.mark.parametrize("answer", ["released", "failed", "silent"])
def test_the_terminal_comes_once_behind_the_first_attempt_however_that_ends(answer: str) -> None:
    world = World()
    world.begin()
    request = world.request
    assert ev.SessionClosed not in map(type, wire(world))
    if answer == "released":
        events = world.release()
    elif answer == "failed":
        events = world.jam()
    else:
        world.wait(1_999)
        assert world.tick() == []
        world.wait(1)
        events = world.tick()
    assert sum(isinstance(event, ev.SessionClosed) for event in events) == 1
    assert outstanding(world.session) == ([] if answer == "released" else [request])
    world.wait(60_000)
    later = world.tick() + world.release() + wire(world)
    assert not [event for event in later if isinstance(event, ev.PublicEvent)]


@rule("M5", "K15", "M13")
@pytest.mark.parametrize("how", ["lost", "failed"])
def test_a_resident_model_that_fails_is_announced_before_the_clean_up(how: str) -> None:
    world = forgetful()
    resident = world.resident
    world.produce("Half a", 100, resident)
    events = world.lose(resident) if how == "lost" else world.fail(resident)
    told = [kind for kind in kinds(events) if not kind.startswith("Request")]
    assert told == ["ErrorReported", "ResponseEnded", "SessionClosing", "SessionClosed"]
    closed = only(events, ev.SessionClosed)
    assert (closed.reason, closed.expired) == ("request_cleanup", True)
    if how == "failed":
        assert world.effects(events) == [fx.ReleaseRequests(requests=(resident,))]
        assert outstanding(world.session) == [resident], "and it is released once, when the stage says so"
        assert kinds(world.release()) == ["RequestReleased"]


@rule("M8")
def test_closing_what_is_closing_or_closed_is_ok() -> None:
    world = World()
    world.begin()
    wire(world)
    assert world.do(cmd.CloseSession(control_id="again")) == [], "although the clean-up is pending"
    world.release()
    assert world.do(cmd.CloseSession(control_id="once more")) == []


@rule("M9", "P27", "M19")
def test_a_close_gives_back_what_was_held_for_the_user() -> None:
    world = World()
    world.append(20)
    world.commit(create_response=False)
    world.append(5)
    assert world.session.input.reserved == 25 * FRAME
    world.begin()
    world.say("A turn that waits.")
    wire(world)
    assert world.session.input.reserved == 0
    assert world.session.input.stream.held == []
    assert world.session.input.position == 25 * FRAME, "the log keeps its places"
    world.release()
    assert world.session.playouts == {}


@rule("M9", "P27")
def test_a_command_that_waits_for_the_model_is_discarded_with_its_bytes() -> None:
    session = World().session
    commit = cmd.CommitInput(attachment=1)
    core.evolve(session, ev.CommandHeld(command=commit), 0)
    assert len(session.input.stream.held) == 1
    closing = ev.SessionClosing(control_id=None, reason="client_close", expired=False, deadline_us=1, requests=())
    core.evolve(session, closing, 0)
    assert session.input.stream.held == []


@rule("M14")
def test_an_expiry_says_nothing_of_the_answer() -> None:
    world = forgetful()
    world.produce("And so on", 100, world.resident)
    world.now = 30_000 * MS
    events = world.tick() + world.release()
    assert [kind for kind in kinds(events) if not kind.startswith("Request")] == ["SessionClosing", "SessionClosed"]
    assert only(events, ev.SessionClosed).expired


@rule("M18")
def test_reasons_come_from_one_list_and_words_stand_beside_them() -> None:
    for command, told in (
        (cmd.CloseSession(control_id="c"), ("client_close", None)),
        (cmd.CloseSession(control_id="c", words="I am tired."), ("client_close", "I am tired.")),
        (cmd.CloseSession(control_id="c", reason="I am tired."), ("client_close", "I am tired.")),
        (cmd.CloseSession(control_id="c", words="shutdown"), ("client_close", "shutdown")),
        (cmd.CloseSession(control_id="c", reason="open_abandoned"), ("open_abandoned", None)),
    ):
        closed = only(World().do(command), ev.SessionClosed)
        assert (closed.reason, closed.words) == told
    assert {reason for reason, _ in ENDS.values()} <= set(cmd.CLOSE_REASONS)
    assert {"open_abandoned", "disconnect", "timeout"} <= set(cmd.CLOSE_REASONS)


@rule("M20", "P56", "Q4.16")
@pytest.mark.parametrize("answer", ["released", "failed", "silent"])
def test_a_closing_session_is_never_left_alone(answer: str) -> None:
    """A clean-up is on its way, or its repetition is due: time alone brings it to its end."""
    world = World()
    world.begin()
    wire(world)
    for _ in range(3):
        due = next_deadline(world.session)
        assert (due is not None) == (world.session.phase == "closing" or bool(outstanding(world.session)))
        if answer == "failed":
            world.jam()
        if due is not None:
            world.now = max(world.now, due)
            world.tick()
        if answer == "released":
            world.release()
    assert world.session.phase == "closed"
    world.release()
    assert next_deadline(world.session) is None
    assert outstanding(world.session) == []


# -- faults of ours ------------------------------------------------------------------------------------------


@rule("M10", "G22", "P21")
@pytest.mark.parametrize("answering", [True, False])
def test_a_fault_in_an_append_fails_the_answer_then_tells_then_closes(answering: bool) -> None:
    world = World()
    if answering:
        world.begin()
    events = world.do(cmd.ReportFault(attachment=1, event_id="e1", append=True))
    told = kinds(events)[: -1 if answering else -2]
    assert told == (["ResponseEnded", "ErrorReported"] if answering else ["ErrorReported"])
    problem = only(events, ev.ErrorReported)
    assert (problem.code, problem.event_id) == ("runtime_append_task_failed", "e1")
    assert only(events, ev.SessionClosing).reason == "runtime_append_task_failed"
    if answering:
        ended = only(events, ev.ResponseEnded)
        assert ended.status == "failed"
        assert ended.failure is not None
        assert ended.failure.code == "runtime_append_task_failed"


@rule("M10")
def test_a_fault_in_another_command_is_told_with_its_event_id_and_the_session_lives() -> None:
    world = World()
    world.begin()
    events = world.do(cmd.ReportFault(attachment=1, event_id="e7", client_seq=1))
    assert kinds(events) == ["ErrorReported", "CommandSequenced"], "a counted one is no gap"
    told = only(events, ev.ErrorReported)
    assert (told.code, told.event_id) == ("internal_error", "e7")
    assert kinds(world.do(cmd.ReportFault(attachment=1, client_seq=9))) == ["ErrorReported"]
    assert world.session.response is not None
    assert world.produce("I go on", 100)


@rule("M10")
def test_a_fault_in_a_report_fails_what_the_report_was_about() -> None:
    world = World()
    world.begin()
    request = world.request
    events = world.do(cmd.ReportFault(request=request))
    assert kinds(events) == ["ErrorReported", "ResponseEnded", "RequestFinished"]
    assert only(events, ev.ErrorReported).code == "internal_error"
    assert world.do(cmd.ReportFault(request=request)) == []
    assert world.answer()


@rule("M10", "D24")
def test_a_fault_in_a_command_of_a_connection_that_is_gone_is_told_to_nobody() -> None:
    world = World()
    world.resume()
    assert world.do(cmd.ReportFault(attachment=1, append=True)) == []
    world.detach()
    assert world.do(cmd.ReportFault(attachment=2)) == []
    world.close()
    assert world.do(cmd.ReportFault(attachment=2)) == []
