"""The lease and what is asked of it: activity, expiry, grace, repeated controls (BEHAVIOURS B19-B21, C)."""

from collections.abc import Callable

import msgspec
import pytest

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.config import Limits
from antiphon.sessions import core
from antiphon.sessions.state import KEPT_CONTROLS
from antiphon.sessions.view import next_deadline

from tests.rules import rule
from tests.sessions.world import MS, World, error, kinds, only, token

GRACE = 30_000
TTL = 300_000
QUICK = Limits(idle_ttl_ms=1_000, grace_ms=3_000)


def due_in(world: World) -> int | None:
    """Return in how many milliseconds a tick is due."""
    due = next_deadline(world.session)
    return None if due is None else (due - world.now) // MS


def operators(control_id: str = "op-1", generation: int | None = None) -> cmd.Detach:
    return cmd.Detach(generation=generation, reason="operator", control_id=control_id)


# -- controls that are repeated: B19, B20, B21 ---------------------------------------------------------------


def opening(world: World) -> tuple[cmd.AnyCommand, cmd.AnyCommand]:
    config = msgspec.structs.replace(world.opening.config, instructions="Something else.")
    return world.opening, msgspec.structs.replace(world.opening, config=config)


def resuming(world: World) -> tuple[cmd.AnyCommand, cmd.AnyCommand]:
    command = world.resumption(token(1))
    world.do(command)
    return command, msgspec.structs.replace(command, last_number=1)


def detaching(world: World) -> tuple[cmd.AnyCommand, cmd.AnyCommand]:
    world.do(operators("op-1", 0))
    return operators("op-1", 0), operators("op-1")


def closing(world: World) -> tuple[cmd.AnyCommand, cmd.AnyCommand]:
    command = cmd.CloseSession(control_id="close-1", reason="operator")
    world.do(command)
    return command, msgspec.structs.replace(command, reason="another")


CONTROLS: list[Callable[[World], tuple[cmd.AnyCommand, cmd.AnyCommand]]] = [opening, resuming, detaching, closing]


@rule("B19", "P45")
@pytest.mark.parametrize("first", CONTROLS)
def test_a_control_that_is_repeated_changes_nothing(
    first: Callable[[World], tuple[cmd.AnyCommand, cmd.AnyCommand]],
) -> None:
    world = World()
    command, _ = first(world)
    before = core.dump(world.session)
    for _ in range(3):
        world.wait(1_000)
        assert world.do(command) == []
    assert core.dump(world.session) == before, "not the grace, not the activity, not the generation"


@rule("B20", "P32")
@pytest.mark.parametrize("first", CONTROLS)
def test_a_control_id_that_comes_with_another_request_is_refused(
    first: Callable[[World], tuple[cmd.AnyCommand, cmd.AnyCommand]],
) -> None:
    world = World()
    _, another = first(world)
    assert world.refused(another).code == "control_id_reused"


@rule("B20")
def test_a_control_id_stands_for_one_kind_of_request() -> None:
    world = World()
    world.do(operators("same"))
    assert world.refused(cmd.CloseSession(control_id="same")).code == "control_id_reused"
    resume = msgspec.structs.replace(world.resumption(token(1)), control_id="same")
    assert world.refused(resume).code == "control_id_reused"
    assert world.refused(operators("open-1")).code == "control_id_reused"


@rule("B19")
def test_the_outcome_of_a_control_can_be_looked_up() -> None:
    world = World()
    world.do(world.resumption(token(1)))
    world.do(operators())
    controls = world.session.lease.controls
    known = {name: (found.kind, found.attachment, found.generation) for name, found in controls.items()}
    assert known == {"open-1": ("open", 1, 0), "resume-1": ("resume", 2, 1), "op-1": ("detach", 2, 1)}


@rule("B19", "C6")
def test_a_detach_under_a_new_control_id_does_not_restart_the_grace() -> None:
    world = World()
    world.do(operators("op-1"))
    world.wait(20_000)
    assert world.do(operators("op-2")) == []
    assert world.do(operators("op-1")) == []
    assert due_in(world) == GRACE - 20_000


@rule("B19")
def test_a_replayed_detach_leaves_who_came_since_alone() -> None:
    """An operator's detach whose answer was lost: the client is back, and repeating it must not throw it out."""
    world = World()
    world.do(operators())
    world.resume()
    assert world.do(operators()) == []
    assert world.session.lease.attached


@rule("B19")
def test_a_touch_that_is_repeated_by_its_number_renews_nothing() -> None:
    world = World()
    touch = cmd.Heartbeat(attachment=1, client_seq=1)
    assert kinds(world.do(touch)) == ["SessionTouched", "CommandSequenced"]
    world.wait(1_000)
    assert world.do(touch) == []
    assert world.session.lease.last_activity == 0
    assert kinds(world.do(cmd.Heartbeat(attachment=1))) == ["SessionTouched"], "without one it is another touch"
    assert world.session.lease.last_activity == world.now


@rule("B21")
def test_the_last_outcomes_are_kept_and_the_last_of_each_kind() -> None:
    world = World(limits=Limits(idle_ttl_ms=0))
    first = world.resumption(token(1))
    world.do(first)
    world.do(cmd.Heartbeat(attachment=world.attachment))
    world.do(operators())
    controls = world.session.lease.controls
    for _ in range(KEPT_CONTROLS):
        world.resume()
        assert len(controls) <= KEPT_CONTROLS
    assert {"open-1", "op-1"} <= set(controls), "the last of their kinds"
    assert len(controls) == KEPT_CONTROLS
    assert first.control_id not in controls
    assert world.refused(first).code == "invalid_resume_token", "an older one is new, and fails on its own"
    assert world.do(world.opening) == []


# -- activity and idle time: C1, C2, C3 ----------------------------------------------------------------------


@rule("C1")
@pytest.mark.parametrize(
    "step",
    [
        lambda w: w.append(),
        lambda w: w.say("Hello."),
        lambda w: w.do(cmd.Heartbeat(attachment=w.attachment)),
        lambda w: w.resume(),
        lambda w: w.detach(),
        lambda w: w.do(cmd.StageAccepted(request=w.request)),
        lambda w: w.produce("A word", 100),
        lambda w: w.finish(),
        lambda w: w.cancel(),
    ],
    ids=["append", "item", "heartbeat", "resume", "detach", "accepted", "output", "finish", "cancel"],
)
def test_what_is_asked_and_what_a_model_says_renews_the_lease(step: Callable[[World], list[ev.AnyEvent]]) -> None:
    world = World()
    world.begin()
    world.wait(1_000)
    assert step(world)
    assert world.session.lease.last_activity == world.now


@rule("C1")
def test_a_playback_acknowledgement_renews_the_lease() -> None:
    world = World()
    world.answer()
    world.wait(500)
    assert world.ack(400)
    assert world.session.lease.last_activity == world.now


@rule("C1", "K21")
def test_output_of_a_dead_request_does_not_renew_it() -> None:
    world = World()
    world.begin()
    request = world.request
    world.cancel()
    renewed = world.session.lease.last_activity
    world.wait(1_000)
    world.produce("Late.", 100, request)
    world.finish(request)
    assert world.session.lease.last_activity == renewed


@rule("C2")
def test_idle_time_ends_a_session_at_its_boundary_and_nought_is_never() -> None:
    world = World(limits=QUICK)
    world.wait(999)
    assert world.tick() == []
    world.wait(1)
    assert only(world.tick(), ev.SessionClosed).reason == "idle_ttl_expired"
    for_ever = World(limits=Limits(idle_ttl_ms=0))
    for_ever.wait(10**9)
    assert for_ever.tick() == []


@rule("C3")
def test_a_session_does_not_expire_while_a_stage_is_being_given_its_request() -> None:
    """The trap: a long preparation in the stage was expired in the middle of the submission."""
    world = World(limits=QUICK)
    world.begin()
    assert due_in(world) is None
    world.wait(600_000)
    assert world.tick() == []
    accepted = world.do(cmd.StageAccepted(request=world.request))
    assert kinds(accepted) == ["RequestAccepted"]
    assert world.session.lease.last_activity == world.now, "the end of the operation touches too"
    assert due_in(world) == 1_000
    world.wait(1_000)
    assert kinds(world.tick())[0] == "SessionClosing"


@rule("C3")
@pytest.mark.parametrize("end", [World.fail, World.lose, World.finish])
def test_a_submission_that_fails_ends_the_operation_and_touches(end: Callable[[World], list[ev.AnyEvent]]) -> None:
    world = World(limits=QUICK)
    world.begin()
    world.wait(60_000)
    assert end(world)
    assert world.session.lease.last_activity == world.now
    assert due_in(world) is not None


@rule("C3")
def test_an_operation_cannot_begin_twice_and_one_that_is_unknown_cannot_end() -> None:
    """Impossible by construction: an operation is a request, named by the session, and ended by its name."""
    world = World()
    world.begin()
    request = world.request
    assert request
    world.do(cmd.StageAccepted(request=request))
    assert world.do(cmd.StageAccepted(request=request)) == []
    assert world.do(cmd.StageAccepted(request="nobody.e0")) == []
    world.finish()
    world.release()
    world.begin()
    assert world.request != request


@rule("P48")
def test_with_activity_within_the_idle_time_an_attached_session_lives_on() -> None:
    world = World(limits=QUICK)
    for _ in range(100):
        world.wait(999)
        assert world.tick() == []
        world.do(cmd.Heartbeat(attachment=1))
    assert world.session.phase == "open"


# -- detach and grace: C4 to C8 ------------------------------------------------------------------------------


@rule("C4", "D31", "P46")
def test_the_detach_of_a_lost_generation_is_refused_and_touches_nothing() -> None:
    world = World()
    world.resume()
    world.wait(1_000)
    before = core.dump(world.session)
    assert world.refused(cmd.Detach(generation=0)).code == "session_resume_conflict"
    assert world.refused(cmd.Detach(generation=7)).code == "session_resume_conflict"
    assert core.dump(world.session) == before


@rule("C5")
def test_only_an_operator_may_detach_whoever_serves() -> None:
    world = World()
    world.resume()
    assert world.refused(cmd.Detach()).code == "invalid_argument"
    detached = only(world.do(operators()), ev.SessionDetached)
    assert (detached.generation, detached.reason, detached.control_id) == (1, "operator", "op-1")
    assert only(world.resume(), ev.SessionResumed).attachment == 3


@rule("C5")
def test_an_operators_detach_may_be_fenced_and_a_session_without_resume_is_to_be_closed() -> None:
    world = World()
    world.resume()
    assert world.refused(operators(generation=0)).code == "session_resume_conflict"
    assert world.do(operators(generation=1))
    ga = World(dialect="ga")
    assert ga.refused(operators()).code == "unsupported_session_resume"
    assert ga.session.lease.attached


@rule("C6", "P47", "Q4.14", "D28")
def test_a_disconnect_that_is_told_again_and_again_does_not_keep_a_dead_session_alive() -> None:
    world = World()
    world.detach()
    for _ in range(29):
        world.wait(1_000)
        assert world.detach() == []
        assert world.tick() == []
    world.wait(1_000)
    assert only(world.tick(), ev.SessionClosed).reason == "disconnect_grace_expired"


@rule("C7", "P47")
def test_the_grace_is_not_stopped_by_work_nor_by_output() -> None:
    world = World(limits=Limits(grace_ms=3_000, idle_ttl_ms=1_000))
    world.begin()
    world.detach()
    for _ in range(30):
        assert world.tick() == [], "a request that is being submitted counts against idleness only"
        world.wait(100)
    closing = only(world.tick(), ev.SessionClosing)
    assert (closing.reason, closing.expired) == ("disconnect_grace_expired", True)
    world = World(limits=Limits(grace_ms=3_000, idle_ttl_ms=60_000))
    world.begin()
    world.detach()
    for _ in range(30):
        world.wait(100)
        world.produce("On and on. ", 100)
    assert only(world.tick(), ev.SessionClosing).reason == "disconnect_grace_expired"


@rule("C8")
def test_when_both_have_passed_the_grace_is_the_reason() -> None:
    world = World(limits=Limits(grace_ms=3_000, idle_ttl_ms=1_000))
    world.detach()
    world.wait(3_000)
    assert only(world.tick(), ev.SessionClosed).reason == "disconnect_grace_expired"


@rule("D22")
def test_only_the_duplex_dialect_knows_of_resuming() -> None:
    """WIRE 8.3: a session that has no part in it is as unknown as any; one that only cannot is told so."""
    foreign = World(dialect="ga")
    assert foreign.refused(foreign.resumption(token(1))).code == "session_resume_expired"
    unable = World(resumable=False)
    assert unable.refused(unable.resumption(token(1))).code == "unsupported_session_resume"


# -- resume: C9 to C11 ---------------------------------------------------------------------------------------


@rule("C9", "P45")
def test_a_resume_raises_the_generation_once_ends_the_grace_and_shows_the_session() -> None:
    world = World()
    world.detach()
    world.wait(10_000)
    resumed = only(world.resume(), ev.SessionResumed)
    lease = world.session.lease
    assert (resumed.generation, lease.generation, lease.expires_at) == (1, 1, None)
    assert lease.last_activity == world.now
    assert resumed.view == core.view(world.session)
    assert resumed.view.capabilities == world.session.capabilities


@rule("C9", "D33.8")
def test_a_resume_for_another_generation_changes_nothing() -> None:
    world = World()
    world.detach()
    due = next_deadline(world.session)
    late = msgspec.structs.replace(world.resumption(token(1)), expected_generation=3)
    assert world.refused(late).code == "runtime_resume_failed"
    assert next_deadline(world.session) == due
    assert world.do(world.resumption(token(1))), "the token is what it was"


@rule("C10")
def test_an_attached_session_can_be_taken_over() -> None:
    world = World()
    assert world.session.lease.attached
    assert only(world.resume(), ev.SessionResumed).attachment == 2


@rule("C11", "P45")
def test_a_repeated_resume_is_answered_and_leaves_a_grace_that_began_since() -> None:
    world = World()
    first = world.resumption(token(1))
    world.do(first)
    world.detach()
    world.wait(10_000)
    due = next_deadline(world.session)
    assert world.do(first) == []
    assert next_deadline(world.session) == due
    assert world.session.lease.controls[first.control_id].generation == 1
    assert not world.session.lease.attached


@rule("C11")
def test_an_older_resume_that_is_repeated_after_a_newer_one_is_a_conflict() -> None:
    world = World()
    older = world.resumption(token(1))
    world.do(older)
    world.resume()
    assert world.refused(older).code == "session_resume_conflict"
    assert world.session.lease.generation == 2


# -- the end: C12, C13, C18 ----------------------------------------------------------------------------------


@rule("C12", "P45")
def test_the_end_raises_the_generation_and_refuses_all_that_comes_later() -> None:
    world = World()
    world.begin()
    resume = world.resumption(token(1))
    world.close()
    lease = world.session.lease
    assert lease.generation == 1
    assert (lease.token, lease.earlier_tokens, lease.expires_at, lease.confirm_by) == (None, (), None, None)
    assert world.session.closing is not None
    assert world.do(cmd.CloseSession(control_id="close-2", reason="another")) == []
    assert world.session.closing.reason == "client_close", "the first reason wins"
    assert world.refused(resume).code == "session_resume_expired"
    assert world.refused(cmd.Detach(generation=1)).code == "session_closed"
    assert error(world.do(cmd.Heartbeat(attachment=1))) == "runtime_touch_failed"


@rule("C13", "B23", "P55")
def test_from_the_close_decision_on_nothing_is_taken() -> None:
    world = World()
    world.begin()
    world.close()
    assert world.session.phase == "closing", "the teardown goes on"
    for refused in (world.append(), world.say("Wait!"), world.respond(), world.commit()):
        assert error(refused) == "session_closed"


@rule("C15")
def test_a_heartbeat_is_acknowledged_and_refused_by_its_own_name() -> None:
    world = World()
    assert only(world.do(cmd.Heartbeat(attachment=1)), ev.SessionTouched).session == world.session.id
    world.begin()
    world.close()
    told = world.do(cmd.Heartbeat(attachment=1, event_id="beat"))
    assert error(told) == "runtime_touch_failed"
    assert only(told, ev.ErrorReported).event_id == "beat"


def expire(world: World) -> list[ev.AnyEvent]:
    return world.tick()


def close(world: World) -> list[ev.AnyEvent]:
    return world.do(cmd.CloseSession(control_id="close-1"))


def resume(world: World) -> list[ev.AnyEvent]:
    if world.session.phase == "open":
        return world.do(world.resumption(token(1)))
    assert world.refused(world.resumption(token(1))).code == "session_resume_expired"
    return []


@rule("C18", "D33.11", "P54")
@pytest.mark.parametrize(
    ("order", "winner"),
    [
        ((expire, resume, close), "disconnect_grace_expired"),
        ((expire, close, resume), "disconnect_grace_expired"),
        ((close, expire, resume), "client_close"),
        ((close, resume, expire), "client_close"),
        ((resume, expire), "resumed"),
        ((resume, expire, close), "resumed, then client_close"),
    ],
)
def test_the_first_in_the_log_wins(order: tuple[Callable[[World], list[ev.AnyEvent]], ...], winner: str) -> None:
    """All three fall due at the same microsecond; there is never a resurrected session."""
    world = World()
    world.detach()
    world.wait(GRACE)
    events = [event for step in order for event in step(world)]
    resumed = [event for event in events if isinstance(event, ev.SessionResumed)]
    closed = [event for event in events if isinstance(event, ev.SessionClosed)]
    told = ["resumed"] * len(resumed) + [event.reason for event in closed]
    assert ", then ".join(told) == winner


@rule("C1", "C3")
def test_a_session_does_not_expire_while_a_stage_is_being_given_its_units() -> None:
    world = World(plugin="echo", auto=True, limits=QUICK)
    world.append()
    world.accept()
    world.append()
    assert next_deadline(world.session) is None
    world.wait(10_000)
    assert world.tick() == []
    world.accept()
    assert world.session.lease.last_activity == world.now
    world.wait(1_000)
    assert "SessionClosing" in kinds(world.tick())
