"""Clocks: the virtual one moves only by hand, the system's is the machine's."""

import anyio
import pytest

from antiphon.engine.clock import SystemClock, VirtualClock

pytestmark = pytest.mark.anyio


def test_timers_fire_in_order_each_at_its_own_time() -> None:
    clock = VirtualClock(start_us=1_000)
    seen: list[tuple[str, int]] = []
    clock.call_at(3_000, lambda: seen.append(("late", clock.monotonic_us())))
    clock.call_at(2_000, lambda: seen.append(("early", clock.monotonic_us())))
    clock.call_at(2_000, lambda: seen.append(("early too", clock.monotonic_us())))
    clock.advance(5_000)
    assert seen == [("early", 2_000), ("early too", 2_000), ("late", 3_000)]
    assert clock.monotonic_us() == 6_000


def test_a_cancelled_timer_does_nothing_and_a_passed_one_fires_at_the_next_move() -> None:
    clock = VirtualClock(start_us=10)
    seen: list[str] = []
    clock.call_at(20, lambda: seen.append("cancelled")).cancel()
    clock.call_at(5, lambda: seen.append("passed"))
    assert clock.next_us == 5
    clock.advance(0)
    assert seen == ["passed"]
    clock.advance(100)
    assert seen == ["passed"]


def test_a_timer_may_set_another_one() -> None:
    clock = VirtualClock()
    seen: list[int] = []

    def again() -> None:
        seen.append(clock.monotonic_us())
        if len(seen) < 3:
            clock.call_at(clock.monotonic_us() + 10, again)

    clock.call_at(10, again)
    clock.advance(25)
    assert seen == [10, 20]


def test_the_wall_moves_with_it_and_can_jump() -> None:
    clock = VirtualClock(wall_us=1_000)
    clock.advance(50)
    assert clock.wall_us() == 1_050
    clock.jump_wall(-500)
    assert (clock.wall_us(), clock.monotonic_us()) == (550, 50)


async def test_the_system_clock_calls_back() -> None:
    clock = SystemClock()
    done = anyio.Event()
    before = clock.monotonic_us()
    clock.call_at(before - 5, done.set)
    await done.wait()
    assert clock.monotonic_us() >= before
    assert clock.wall_us() > 1_600_000_000_000_000


async def test_a_sleeper_wakes_when_the_clock_has_reached_its_time_and_leaves_no_timer() -> None:
    clock = VirtualClock(start_us=10)
    await clock.sleep_until(10)
    assert clock.next_us is None, "a time that has come needs no timer"
    woken: list[int] = []

    async def sleep(us: int) -> None:
        await clock.sleep_until(us)
        woken.append(us)

    async with anyio.create_task_group() as group:
        group.start_soon(sleep, 30)
        group.start_soon(sleep, 50)
        await anyio.wait_all_tasks_blocked()
        clock.advance(25)
        await anyio.wait_all_tasks_blocked()
        assert woken == [30]
        group.cancel_scope.cancel()
    assert clock.next_us is None, "a cancelled sleeper takes its timer with it"
