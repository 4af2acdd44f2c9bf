"""Observers: they read all that a session says, to its end, and are no part of it."""

from typing import Any
from urllib.parse import urlencode

import anyio
import pytest
from websockets.exceptions import InvalidStatus

from antiphon.engine.clock import VirtualClock
from antiphon.engine.memory_log import MemoryLog
from antiphon.engine.settings import HubSettings
from antiphon.transport.access import Access
from antiphon.transport.keys import Keys

from .held import HeldStage
from .serving import Serving, Wire, becomes, serving
from tests.rules import rule

pytestmark = pytest.mark.anyio

DUPLEX = "?duplex=1&model=m"
RESUMABLE = "?resumable=1"


def watching(created: dict[str, Any], number: int | str = 0, **fields: str) -> str:
    """Return the query of an observer of a session."""
    known = {
        "observe": created["session"]["id"],
        "observer_token": created["observer_token"],
        "last_received_server_event_seq": str(number),
    }
    return "?" + urlencode(known | fields)


async def say(wire: Wire, text: str = "Hello there.") -> None:
    """Say something in writing, and ask for the answer."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    await wire.send("conversation.item.create", item=item)
    await wire.send("response.create")


async def talk(wire: Wire, text: str = "Hello there.") -> None:
    """Have a turn."""
    await say(wire, text)
    await wire.until("rate_limits.updated")


async def resume(wire: Wire, created: dict[str, Any], last: int = 0) -> dict[str, Any]:
    """Resume the session of another wire; return the first answer."""
    fields = {"session_id": created["session"]["id"], "resume_token": created["resume_token"]}
    await wire.send("session.resume", **fields, last_received_server_event_seq=last)
    return await wire.next()


def numbered(wire: Wire) -> list[dict[str, Any]]:
    return [event for event in wire.seen if "server_event_seq" in event]


@pytest.mark.parametrize("query", [DUPLEX, RESUMABLE])
async def test_an_observer_hears_every_event_as_the_client_did_and_then_what_is_new(query: str) -> None:
    async with serving() as served, Wire.to(served.url + query) as wire:
        created = await wire.next()
        await talk(wire)
        before = len(wire.seen)
        same = {} if query == DUPLEX else {"duplex": "0"}
        async with Wire.to(served.url + watching(created, **same)) as observer:
            shown = await observer.next()
            assert (shown["type"], shown["observer"]) == ("session.created", True)
            assert not {"resume_token", "observer_token", "attachment_generation", "server_event_seq"} & set(shown)
            assert shown["session"] == created["session"] | {
                "turn_id": shown["session"]["turn_id"],
                "turn_state": shown["session"]["turn_state"],
                "playback": shown["session"]["playback"],
                "epoch": shown["session"]["epoch"],
            }
            assert [await observer.next() for _ in wire.seen[1:]] == wire.seen[1:]
            await talk(wire, "And now?")
            assert [await observer.next() for _ in wire.seen[before:]] == wire.seen[before:]
            await wire.send("session.close")
            last = await wire.until("session.closed")
            code, reason = await observer.closed()
            assert (code, reason) == (1000, "session_ended")
            assert observer.seen[-1] == last or query == RESUMABLE


@rule("D12")
async def test_a_session_without_numbers_is_observed_with_numbers() -> None:
    async with serving() as served, Wire.to(served.url + RESUMABLE) as wire:
        created = await wire.next()
        await talk(wire)
        async with Wire.to(served.url + watching(created)) as observer:
            await observer.until("rate_limits.updated")
            assert observer.numbers() == list(range(1, len(observer.seen)))
            assert "response.speak" in observer.kinds()


async def test_an_observer_begins_where_it_says() -> None:
    async with serving() as served, Wire.to(served.url + DUPLEX) as wire:
        created = await wire.next()
        await talk(wire)
        for number in (1, 5, wire.numbers()[-1]):
            async with Wire.to(served.url + watching(created, number)) as observer:
                await observer.next()
                await wire.send("session.heartbeat")
                await wire.until("session.heartbeat_ack")
                due = [event for event in numbered(wire) if event["server_event_seq"] > number]
                assert [await observer.next() for _ in due] == due
        async with Wire.to(served.url + RESUMABLE) as ga:
            mine = await ga.next()
            await talk(ga)
            for event in ga.seen:
                fields = {"duplex": "0", "last_event_id": event["event_id"]}
                async with Wire.to(served.url + watching(mine, **fields)) as observer:
                    await observer.next()
                    rest = ga.seen[ga.seen.index(event) + 1 :]
                    assert [await observer.next() for _ in rest] == rest


WRONG = [
    ({"observer_token": "x" * 43}, "invalid_observer_token"),
    ({"observer_token": ""}, "invalid_observer_token"),
    ({"observer_token": "\N{SNOWMAN}"}, "invalid_observer_token"),
    ({"observe": "duplex-" + "0" * 32}, "invalid_observer_token"),
    ({"observe": ""}, "invalid_observer_token"),
    ({"last_received_server_event_seq": "-1"}, "invalid_session_resume"),
    ({"last_received_server_event_seq": "x"}, "invalid_session_resume"),
    ({"last_received_server_event_seq": "9" * 400}, "invalid_session_resume"),
    ({"last_received_server_event_seq": "10000"}, "session_resume_conflict"),
    ({"duplex": "0", "last_event_id": "item_1"}, "invalid_session_resume"),
    ({"duplex": "0", "last_event_id": "event_" + "0" * 12 + "ffff" + "0" * 16}, "session_resume_conflict"),
]


@pytest.mark.parametrize(("fields", "code"), WRONG)
async def test_who_cannot_observe_is_told_so_and_nobody_notices(fields: dict[str, str], code: str) -> None:
    async with serving() as served, Wire.to(served.url + DUPLEX) as wire:
        created = await wire.next()
        async with Wire.to(served.url + watching(created, **fields)) as observer:
            assert (await observer.error())["code"] == code
            assert await observer.closed() == (1008, code)
        await talk(wire)
        assert "error" not in wire.kinds()


@rule("D22")
async def test_a_wrong_token_and_an_unknown_session_are_answered_alike() -> None:
    async with (
        serving() as served,
        Wire.to(served.url + DUPLEX) as one,
        Wire.to(served.url + DUPLEX) as other,
        Wire.to(served.url) as plain,
    ):
        created, foreign, ended = await one.next(), await other.next(), await plain.next()
        assert "observer_token" not in ended, "a session that ends with its connection is not observed"
        answers: list[dict[str, Any]] = []
        for fields in (
            {"observer_token": created["resume_token"]},
            {"observer_token": foreign["observer_token"]},
            {"observe": "duplex-0"},
            {"observe": ended["session"]["id"]},
        ):
            async with Wire.to(served.url + watching(created, **fields)) as observer:
                answers.append(await observer.error())
        assert all(answer == answers[0] for answer in answers)


async def test_an_observer_has_no_say() -> None:
    async with serving() as served, Wire.to(served.url + DUPLEX) as wire:
        created = await wire.next()
        async with Wire.to(served.url + watching(created)) as observer:
            await observer.next()
            for frame in ('{"type":"session.close"}', "{", b"\x00", "x" * 1_000_000):
                await observer.raw(frame)
                error = await observer.error()
                assert error["code"] == "observer_is_read_only"
                assert "server_event_seq" not in observer.seen[-1]
            for _ in range(1000):
                await observer.send("response.create")
            await (await observer.socket.ping())
            await wire.send("session.heartbeat")
            await observer.until("session.heartbeat_ack")
            assert observer.kinds().count("error") < 20, "who floods is not answered every time"
            assert "error" not in wire.kinds()
            assert wire.kinds() == ["session.created"]
            found = served.hub.session(created["session"]["id"])
            assert found is not None
            assert found.lease.attachment == 1


async def test_what_an_observer_says_at_once_is_refused_behind_the_first_word() -> None:
    async with serving() as served, Wire.to(served.url + DUPLEX) as wire:
        created = await wire.next()
        async with Wire.to(served.url + watching(created)) as observer:
            await observer.send("response.create")
            assert (await observer.next())["type"] == "session.created"
            assert (await observer.error())["code"] == "observer_is_read_only"


async def test_a_session_has_eight_observers_at_most() -> None:
    settings = HubSettings(max_sessions=1)
    async with serving(settings=settings) as served, Wire.to(served.url + DUPLEX) as wire:
        created = await wire.next()
        async with anyio.create_task_group() as group:
            leave, there = anyio.Event(), list[Wire]()

            async def observe() -> None:
                async with Wire.to(served.url + watching(created)) as observer:
                    await observer.next()
                    there.append(observer)
                    await leave.wait()

            for _ in range(8):
                group.start_soon(observe)
            await becomes(lambda: len(there) == 8)
            async with Wire.to(served.url + watching(created)) as ninth:
                error = await ninth.error()
                assert (error["code"], error["retryable"]) == ("resource_exhausted", True)
                assert (await ninth.closed())[0] == 1013
            there[0].socket.transport.abort()
            await becomes(lambda: len(served.server.websockets) == 8)
            async with Wire.to(served.url + watching(created)) as again:
                assert (await again.next())["observer"] is True
            assert served.hub.statistics().admitted == 1
            leave.set()


@rule("D24", "C8")
async def test_an_observer_stays_over_resumes_waits_through_the_grace_and_hears_the_end() -> None:
    clock = VirtualClock()
    async with serving(clock=clock) as served, Wire.to(served.url + DUPLEX) as wire:
        created = await wire.next()
        session = created["session"]["id"]
        async with Wire.to(served.url + watching(created)) as observer:
            await observer.next()
            await talk(wire)
            wire.socket.transport.abort()
            await becomes(lambda: not attached(served, session))
            async with Wire.to(served.url + "?duplex=1") as again:
                resumed = await resume(again, created)
                assert resumed["observer_token"] != created["observer_token"]
                await talk(again, "Again")
                await observer.until("rate_limits.updated")
                await observer.until("rate_limits.updated")
                again.socket.transport.abort()
            await becomes(lambda: not attached(served, session))
            clock.advance(29_000_000)
            await (await observer.socket.ping())
            await observer.raw("x")
            await observer.until("error")
            clock.advance(1_000_000)
            assert (await observer.until("session.expired"))["reason"] == "disconnect_grace_expired"
            assert (await observer.closed())[0] == 1000
            assert observer.numbers() == list(range(1, len(observer.numbers()) + 1))
            assert not {"session.replaced", "session.resumed"} & set(observer.kinds())


def attached(served: Serving, session: str) -> bool:
    found = served.hub.session(session)
    assert found is not None
    return found.lease.attached


@rule("C1")
async def test_an_observer_keeps_no_session_alive() -> None:
    clock = VirtualClock()
    settings = HubSettings(idle_ttl_ms=60_000)
    async with serving(clock=clock, settings=settings) as served, Wire.to(served.url + DUPLEX) as wire:
        created = await wire.next()
        async with Wire.to(served.url + watching(created)) as observer:
            await observer.next()
            for _ in range(60):
                clock.advance(1_000_000)
                for socket in (observer, wire):
                    await (await socket.socket.ping())
            assert (await observer.until("session.expired"))["reason"] == "idle_ttl_expired"


async def test_the_newest_token_and_the_one_before_are_good() -> None:
    async with serving() as served, Wire.to(served.url + DUPLEX) as first:
        created = await first.next()
        tokens = [created["observer_token"]]
        async with Wire.to(served.url + watching(created)) as observer:
            await observer.next()
            for good in ([0, 1], [1, 2]):
                async with Wire.to(served.url + "?duplex=1") as again:
                    created |= {"resume_token": (resumed := await resume(again, created))["resume_token"]}
                    tokens.append(resumed["observer_token"])
                    for at, token in enumerate(tokens):
                        async with Wire.to(served.url + watching(created, observer_token=token)) as other:
                            assert ("observer" in await other.next()) == (at in good)
                    await again.send("session.heartbeat")
                    await observer.until("session.heartbeat_ack")


@rule("E31")
async def test_an_observer_that_does_not_read_is_cut_off_and_nobody_else_is() -> None:
    settings = HubSettings(slow_bytes=2_000_000)
    async with (
        serving(stage=HeldStage(400), settings=settings, clock=VirtualClock()) as served,
        Wire.to(served.url + DUPLEX) as wire,
    ):
        created = await wire.next()
        async with Wire.to(served.url + watching(created)) as observer:
            await observer.next()
            observer.socket.transport.pause_reading()
            for _ in range(14):
                await say(wire)
                for _ in range(400):
                    await wire.until("response.output_audio.delta")
                await wire.send("response.cancel")
                await wire.until("rate_limits.updated")
            observer.socket.transport.resume_reading()
            assert await observer.closed() == (1008, "slow_consumer")
            assert wire.numbers() == list(range(1, len(wire.numbers()) + 1))


@rule("P6")
async def test_observers_hear_that_the_server_stops_and_come_back_to_the_next_one() -> None:
    log = MemoryLog()
    async with serving(log=log) as served, Wire.to(served.url + DUPLEX) as wire:
        created = await wire.next()
        await talk(wire)
        async with Wire.to(served.url + watching(created)) as observer:
            await observer.until("rate_limits.updated")
            served.server.stop()
            assert await observer.closed() == (1001, "shutdown")
    async with serving(log=log) as served, Wire.to(served.url + watching(created)) as observer:
        await observer.until("rate_limits.updated")
        assert observer.seen[1:] == numbered(wire)


async def test_an_observer_needs_a_key_where_clients_do() -> None:
    async with serving(access=Access(keys=Keys.of("good"))) as served:
        headers = {"Authorization": "Bearer good"}
        async with Wire.to(served.url + DUPLEX, additional_headers=headers) as wire:
            created = await wire.next()
            with pytest.raises(InvalidStatus):
                async with Wire.to(served.url + watching(created)):
                    pass
            async with Wire.to(served.url + watching(created), additional_headers=headers) as observer:
                assert (await observer.next())["type"] == "session.created"
