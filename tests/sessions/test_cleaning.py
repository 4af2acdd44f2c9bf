"""Clean-ups at the stages as state: asked once, asked again, never given up, and never forgotten early."""

import pytest

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.sessions import core
from antiphon.sessions.cleaning import again, joined
from antiphon.sessions.view import next_deadline, outstanding

from tests.rules import rule
from tests.sessions.world import MS, World, error, kinds, only


def interrupted() -> tuple[World, str]:
    """A session whose answer was cancelled, and the request that its stage is to forget."""
    world = World()
    world.begin()
    request = world.request
    world.cancel()
    return world, request


@rule("A18", "Q4.11")
def test_a_request_leaves_the_books_when_its_stage_has_confirmed_and_not_before() -> None:
    world = World()
    world.begin()
    request = world.request
    assert world.effects(world.cancel()) == [fx.AbortRequests(requests=(request,))], "asked in the same decision"
    assert outstanding(world.session) == [request]
    assert kinds(world.release()) == ["RequestReleased"]
    assert outstanding(world.session) == []


@rule("A17", "Q4.10")
@pytest.mark.parametrize("how", ["cancel", "barge_in", "input_cancel"])
def test_an_interruption_aborts_every_request_of_the_epoch_that_is_left(how: str) -> None:
    world = World(plugin="echo", auto=True)
    world.append()
    resident = world.resident
    world.produce("And so I think", 400, resident)
    world.wait(400)
    events = (
        world.cancel()
        if how == "cancel"
        else world.barge_in()
        if how == "barge_in"
        else world.do(cmd.CancelInput(attachment=1))
    )
    assert world.effects(events)[0] == fx.AbortRequests(requests=(resident,))
    assert [known.phase for known in world.session.requests.values()] == ["leaving"]
    world.append()
    assert {known.epoch for known in world.session.requests.values() if known.phase == "submitted"} == {1}


@rule("A17", "Q4.10")
def test_the_resident_request_of_an_older_turn_is_never_without_an_owner() -> None:
    """During mere playback it goes on and belongs to the new epoch; the next interruption of an answer ends it."""
    world = World(plugin="echo", auto=True)
    world.append()
    resident = world.resident
    world.produce("A long answer", 4_000, resident)
    world.cancel()
    world.release()
    world.append()
    second = world.resident
    world.produce("Another", 400, second)
    assert only(world.barge_in(), ev.Interrupted).requests == (second,)
    assert all(known.phase == "leaving" for known in world.session.requests.values())


@rule("M12", "P13")
def test_a_clean_up_is_asked_again_after_5_seconds_doubling_to_a_minute_and_never_given_up() -> None:
    world, request = interrupted()
    waits = []
    for attempt in range(1, 9):
        due = next_deadline(world.session)
        assert due is not None
        waits.append((due - world.now) // 1_000_000)
        world.now = due - 1
        assert world.tick() == []
        world.now = due
        world.do(cmd.Heartbeat(attachment=1))
        events = world.tick()
        assert only(events, ev.CleanupRetried) == ev.CleanupRetried(requests=(request,), attempt=attempt)
        assert world.effects(events) == [fx.AbortRequests(requests=(request,))]
    assert waits == [5, 10, 20, 40, 60, 60, 60, 60]
    world.release()
    assert world.session.cleanup is None


@rule("K20", "Q4.25")
def test_requests_that_are_left_meanwhile_join_the_clean_up_that_runs() -> None:
    world, first = interrupted()
    world.wait(3_000)
    world.begin()
    second = world.request
    assert world.effects(world.cancel()) == [fx.AbortRequests(requests=(second,))], "the first is being asked"
    world.wait(2_000)
    assert only(world.tick(), ev.CleanupRetried).requests == (first, second)
    third = world.begin()
    events = world.close()
    assert only(events, ev.ResponseEnded).head.id == third
    (abort,) = world.effects(events)
    assert isinstance(abort, fx.AbortRequests)
    assert not {first, second} & set(abort.requests)


@rule("K20")
def test_a_request_that_joins_late_is_not_kept_waiting_for_the_others() -> None:
    assert joined(again(7, 0), 1_000_000).due == 6_000_000
    assert joined(again(1, 0), 9_000_000).due == 10_000_000
    assert joined(None, 0).attempt == 0


@rule("K22")
def test_an_abort_that_fails_is_told_and_the_interruption_stands() -> None:
    world, request = interrupted()
    assert error(world.jam()[:1]) == "runtime_abort_failed"
    assert world.session.epoch == 1
    assert world.session.response is None
    assert outstanding(world.session) == [request], "the clean-up stays pending"
    assert world.do(cmd.StageProduced(request=request, text="late")) == []
    world.wait(5_000)
    assert kinds(world.tick()) == ["CleanupRetried"]
    assert world.jam() == [], "told once"
    world.wait(10_000)
    world.do(cmd.Heartbeat(attachment=1))
    assert kinds(world.tick()) == ["CleanupRetried"]
    assert kinds(world.release()) == ["RequestReleased"]
    assert next_deadline(world.session) == world.now + 300_000 * MS


@rule("K22")
def test_a_finished_request_that_cannot_be_forgotten_is_no_news_for_the_client() -> None:
    world = World()
    world.answer()
    assert kinds(world.jam()) == ["CleanupFailed"]
    world.wait(5_000)
    assert kinds(world.tick()) == ["CleanupRetried"]


@rule("K22")
def test_only_what_was_left_can_fail_to_be_forgotten() -> None:
    world = World()
    world.begin()
    assert world.jam(world.request) == []
    assert world.jam("duplex-1.e9") == []


@rule("M4", "M6")
def test_a_clean_up_that_fails_is_an_attempt_and_the_terminal_comes() -> None:
    world = World()
    world.begin()
    request = world.request
    world.close()
    assert kinds(world.jam()) == ["CleanupFailed", "SessionClosed"]
    assert outstanding(world.session) == [request]
    world.wait(5_000)
    assert world.effects(world.tick()) == [fx.AbortRequests(requests=(request,))], "behind the terminal too"
    assert kinds(world.release()) == ["RequestReleased"]
    assert next_deadline(world.session) is None


@rule("M11")
def test_what_falls_due_together_is_done_in_order_clean_ups_first() -> None:
    world, request = interrupted()
    world.detach()
    world.now = 40_000 * MS
    events = world.tick()
    assert kinds(events) == ["CleanupRetried", "SessionClosing"]
    assert world.effects(events) == [fx.AbortRequests(requests=(request,))]


@rule("K19")
def test_a_stage_that_says_twice_that_it_has_forgotten_counts_once() -> None:
    world, request = interrupted()
    released = cmd.StageReleased(request=request)
    assert kinds(world.do(released)) == ["RequestReleased"]
    assert world.do(released) == []
    assert world.do(cmd.StageReleased(request="duplex-1.e7")) == [], "unknown ids are no errors"


@rule("K11", "A18")
def test_what_a_stage_gives_up_unasked_is_lost() -> None:
    world = World()
    world.begin()
    events = world.do(cmd.StageReleased(request=world.request))
    assert kinds(events) == ["ErrorReported", "ResponseEnded", "RequestReleased"]
    assert only(events, ev.ErrorReported).code == "runtime_data_plane_stream_failed"


@rule("P13")
def test_a_restart_asks_again_for_all_that_was_outstanding() -> None:
    world, left = interrupted()
    world.begin()
    running = world.request
    events = world.restart()
    assert world.effects(events) == [fx.AbortRequests(requests=(left, running))]
    assert outstanding(world.session) == [left, running]
    twin = core.load(core.dump(core.fold(world.log)))
    assert twin.cleanup == world.session.cleanup
    world.wait(5_000)
    assert only(world.tick(), ev.CleanupRetried).requests == (left, running)
    world.release()
    assert outstanding(world.session) == []
