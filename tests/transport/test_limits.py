"""What each key may do: how much is sent, how many sessions are open."""

from typing import Any

import pytest

from antiphon.engine.clock import VirtualClock
from antiphon.engine.memory_log import MemoryLog
from antiphon.transport.access import Access
from antiphon.transport.keys import ApiKey, Keys, digest
from antiphon.transport.limits import Budget, Limits

from .serving import Serving, Wire, becomes, serving

SILENCE = "AAAA" * 8
DUPLEX = "?duplex=1&model=m"


def key(name: str = "k", **bounds: int) -> ApiKey:
    return ApiKey(id=f"key_{name}", name=name, sha256=digest(name), **bounds)


def budget(clock: VirtualClock, **bounds: int) -> Budget:
    made = Limits(clock).budget(key(**bounds))
    assert made is not None
    return made


def test_two_seconds_at_once_and_the_rate_from_then_on() -> None:
    clock = VirtualClock()
    bounded = budget(clock, events_per_s=10)
    assert [bounded.spend(1) for _ in range(20)] == [None] * 20
    assert bounded.spend(1) == "The limit of 10 events/s of this key is used up; try again in 100 ms."
    clock.advance(99_000)
    assert bounded.spend(1) == "The limit of 10 events/s of this key is used up; try again in 1 ms."
    clock.advance(1_000)
    assert bounded.spend(1) is None
    assert bounded.spend(1) is not None
    clock.advance(3_600_000_000)
    assert [bounded.spend(1) for _ in range(21)].count(None) == 20


def test_what_is_refused_takes_nothing() -> None:
    clock = VirtualClock()
    bounded = budget(clock, events_per_s=10, bytes_per_s=100)
    assert bounded.spend(150) is None
    assert "100 bytes/s" in (bounded.spend(51) or "")
    assert bounded.spend(50) is None
    clock.advance(10_000)
    assert bounded.spend(1) is None


def test_one_message_may_be_larger_than_the_bucket_and_is_paid_for() -> None:
    clock = VirtualClock()
    bounded = budget(clock, bytes_per_s=100)
    assert bounded.spend(1_000) is None
    assert "try again in 8,010 ms" in (bounded.spend(1) or "")
    clock.advance(8_010_000)
    assert bounded.spend(1) is None


def test_what_stops_something_may_overdraw_within_a_bound() -> None:
    bounded = budget(VirtualClock(), events_per_s=5)
    assert [bounded.spend(1) for _ in range(11)].count(None) == 10
    assert [bounded.spend(1, urgent=True) for _ in range(11)].count(None) == 10


def test_all_connections_of_a_key_share_its_budget_until_its_bounds_change() -> None:
    limits = Limits(VirtualClock())
    one = key(events_per_s=5)
    assert limits.budget(one) is limits.budget(one)
    assert limits.budget(key(events_per_s=6)) is not limits.budget(key("other", events_per_s=6))
    assert limits.budget(key()) is None


def at(served: Serving, query: str = "", name: str = "k") -> Any:
    return Wire.to(served.url + query, additional_headers={"api-key": name})


@pytest.mark.parametrize(("query", "code"), [("", "rate_limit_exceeded"), (DUPLEX, "input_backpressure")])
async def test_a_message_too_many_is_refused_by_the_name_of_its_limit(query: str, code: str) -> None:
    clock = VirtualClock()
    async with (
        serving(access=Access(keys=Keys([key(events_per_s=2)])), clock=clock) as served,
        at(served, query) as wire,
    ):
        await wire.next()
        for number in range(6):
            await wire.send("input_audio_buffer.append", audio=SILENCE, event_id=f"mine_{number}")
        for number in (4, 5):
            error = (await wire.until("error"))["error"]
            assert (error["code"], error["type"], error["event_id"]) == (code, "rate_limit_error", f"mine_{number}")
            assert error["retryable"] is True
            assert error["message"] == "The limit of 2 events/s of this key is used up; try again in 500 ms."
        clock.advance(500_000)
        await wire.send("input_audio_buffer.clear")
        await wire.until("input_audio_buffer.cleared")
        assert "error" not in wire.kinds()[wire.kinds().index("error") + 2 :]
        await wire.send("session.close" if query else "response.cancel")
        error_or_end = await wire.next()
        assert error_or_end["type"] == ("session.closed" if query else "error")
        if not query:
            assert error_or_end["error"]["code"] == "response_cancel_not_active"


async def test_a_counted_message_that_is_refused_leaves_no_gap() -> None:
    clock = VirtualClock()
    async with (
        serving(access=Access(keys=Keys([key(events_per_s=1)])), clock=clock) as served,
        at(served, DUPLEX) as wire,
    ):
        created = await wire.next()
        for number in range(1, 5):
            await wire.send("input_audio_buffer.append", audio=SILENCE, client_seq=number)
        for _ in range(2):
            assert (await wire.until("error"))["error"]["code"] == "input_backpressure"
        clock.advance(1_000_000)
        await wire.send("input_audio_buffer.clear", client_seq=5)
        await wire.until("input_audio_buffer.cleared")
        session = served.hub.session(created["session"]["id"])
        assert session is not None
        assert session.lease.client_seq == 5


async def test_a_large_message_is_weighed_unread_and_junk_too() -> None:
    async with (
        serving(access=Access(keys=Keys([key(bytes_per_s=100)])), clock=VirtualClock()) as served,
        at(served) as wire,
    ):
        await wire.next()
        await wire.send("input_audio_buffer.append", audio="AAAA" * 1000)  # a full bucket lets it pass
        await wire.send("input_audio_buffer.append", audio="@@@", event_id="unread")
        error = await wire.error()
        assert (error["code"], error["event_id"]) == ("rate_limit_exceeded", "unread")
        await wire.raw("{")
        assert (await wire.error())["code"] == "invalid_json"
        await wire.raw(b"")
        assert (await wire.error())["code"] == "rate_limit_exceeded"


async def test_keys_are_bounded_apart_also_while_their_sessions_wait() -> None:
    keys = Keys([key("a", sessions=1), key("b", sessions=1)])
    clock = VirtualClock()
    async with serving(access=Access(keys=keys), clock=clock) as served:
        async with at(served, DUPLEX, "a") as wire:
            first = await wire.next()
            assert served.hub.session(first["session"]["id"]).owner == "key_a"  # type: ignore[union-attr]
            async with at(served, DUPLEX, "a") as second:
                error = await second.error()
                assert error["code"] == "resource_exhausted"
                assert error["message"] == "The limit of 1 open sessions of this key is reached; end one first."
                assert (await second.closed())[0] == 1013
            async with at(served, "", "b") as other:
                await other.next()
            await becomes(lambda: served.hub.statistics().attached == 1)
        await becomes(lambda: served.hub.statistics().attached == 0)
        async with at(served, "", "a") as again:  # it is in its grace
            assert (await again.error())["code"] == "rate_limit_exceeded"
        clock.advance(31_000_000)
        await becomes(lambda: served.hub.statistics().live == 0)
        async with at(served, "", "a") as again:
            assert (await again.next())["type"] == "session.created"


async def test_sessions_count_for_their_key_after_a_restart() -> None:
    keys, log, clock = Keys([key(sessions=1)]), MemoryLog(), VirtualClock()
    async with serving(access=Access(keys=keys), log=log, clock=clock) as served, at(served, DUPLEX) as wire:
        await wire.next()
    async with serving(access=Access(keys=keys), log=log, clock=clock) as served:
        await served.hub.recovered.wait()
        async with at(served, DUPLEX) as wire:
            assert (await wire.error())["code"] == "resource_exhausted"
