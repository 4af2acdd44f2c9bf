"""Where events wait: each is given once and in order, or it is told how many were not."""

import random

import anyio
import pytest

from antiphon.transport import client_inbox
from antiphon.transport import wire_server as out
from antiphon.transport.client_errors import SessionLost
from antiphon.transport.client_events import Missed, Received, number_of
from antiphon.transport.client_inbox import Inbox, Reading

pytestmark = pytest.mark.anyio


def numbered(number: int, kind: int = 0) -> out.ServerEvent:
    if kind:
        return out.RateLimits(server_event_seq=number)
    return out.HeartbeatAck(server_event_seq=number, session_id="s")


def inbox() -> Inbox:
    return Inbox(lambda _response: None)


@pytest.mark.parametrize("seed", range(40))
async def test_every_event_is_read_once_taken_once_or_told_as_missed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_inbox, "KEPT", 7)
    rng = random.Random(seed)
    here = inbox()
    put: list[int] = []
    heard: list[int] = []
    given: list[Received] = []
    taken: list[Received] = []
    here.listen(lambda event: heard.append(number_of(event)))

    async def wait() -> None:
        event = await here.wait(out.RateLimits)
        if event is not None:
            taken.append(event)

    async with anyio.create_task_group() as group:
        for step in range(200):
            match rng.choice(("put", "put", "put", "read", "wait")):
                case "put":
                    put.append(step + 1)
                    here.put(numbered(step + 1, rng.randrange(2)))  # type: ignore[arg-type]
                case "read":
                    reading = Reading(here, lambda: None)
                    for _ in range(rng.randrange(6)):
                        with anyio.move_on_after(0) as scope:
                            given.append(await anext(reading))
                        if scope.cancelled_caught:
                            break
                    del reading
                case _:
                    group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
        here.end(None)
        given += [event async for event in Reading(here, lambda: None)]
    assert heard == put
    read = [number_of(event) for event in given if not isinstance(event, Missed)]
    missed = sum(event.count for event in given if isinstance(event, Missed))
    waited = {number_of(event) for event in taken}
    assert read == sorted(set(read)), "in order, each once"
    assert not waited & set(read), "nobody was reading while it was waited for"
    assert len(read) + len(waited) + missed == len(put)


async def test_whoever_reads_and_whoever_waits_both_get_it() -> None:
    here = inbox()
    given: list[int] = []
    waited: list[int] = []

    async def read() -> None:
        given.extend([number_of(event) async for event in Reading(here, lambda: None)])

    async def wait() -> None:
        event = await here.wait(out.RateLimits)
        assert event is not None
        waited.append(number_of(event))

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        for number in (1, 2, 3):
            here.put(numbered(number, number - 1))  # type: ignore[arg-type]
        await anyio.wait_all_tasks_blocked()
        here.end(None)
    assert (given, waited) == ([1, 2, 3], [2])


async def test_whoever_waits_in_the_middle_of_reading_is_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_inbox, "HELD", 2)
    monkeypatch.setattr(client_inbox, "KEPT", 4)
    here = inbox()
    reading = Reading(here, lambda: None)
    here.put(numbered(1))  # type: ignore[arg-type]
    assert number_of(await anext(reading)) == 1
    room: list[int] = []

    async def serve() -> None:
        for number in range(2, 10):
            here.put(numbered(number, int(number == 9)))  # type: ignore[arg-type]
            await here.room()
            room.append(number)

    async with anyio.create_task_group() as group:
        group.start_soon(serve)
        await anyio.wait_all_tasks_blocked()
        assert room == [2], "two wait, and nobody takes them"
        found = await here.wait(out.RateLimits)
        assert found is not None
        assert number_of(found) == 9
        here.end(None)
        told = await anext(reading)
        assert told == Missed(count=4, last_number=5)
        assert [number_of(event) async for event in reading] == [6, 7, 8, 9]


async def test_a_session_that_was_lost_is_told_behind_the_last_event() -> None:
    here = inbox()
    here.put(numbered(1))  # type: ignore[arg-type]
    lost = SessionLost("disconnected", "gone")
    here.end(lost)
    reading = Reading(here, lambda: lost)
    assert number_of(await anext(reading)) == 1
    with pytest.raises(SessionLost):
        await anext(reading)
    assert await here.wait(out.RateLimits) is None
