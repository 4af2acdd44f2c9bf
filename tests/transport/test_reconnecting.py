"""How our client comes back: how often, how fast, after what no more, and what it keeps (BEHAVIOURS D20, D35)."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.protocol import State

from antiphon.engine.clock import VirtualClock
from antiphon.transport import wire_server as out
from antiphon.transport.client import RealtimeClient, Retrying, SessionLost
from antiphon.transport.client_events import Received, number_of
from antiphon.transport.client_line import Line
from antiphon.transport.client_link import Cut, Link, SessionOptions, WebsocketLink
from antiphon.transport.codes import FATAL_RESUME

from .serving import PATIENCE_S, Wire, serving
from tests.rules import rule

pytestmark = pytest.mark.anyio

FAST = Retrying(shortest_s=0, longest_s=0)
FATAL = [
    "invalid_session_resume",
    "session_resume_expired",
    "unsupported_session_resume",
    "invalid_resume_token",
    "session_resume_conflict",
]

Script = Callable[["Counterpart", dict[str, Any]], Awaitable[None]]


class Counterpart:
    """A server that says what a test wrote down; `asked` is the first message of each connection."""

    def __init__(self, created: dict[str, Any], resuming: list[Script]) -> None:
        self.created = created
        self.resuming = resuming
        self.asked: list[dict[str, Any]] = []
        self.acknowledged: list[int] = []
        self.socket: ServerConnection

    async def handle(self, socket: ServerConnection) -> None:
        self.socket = socket
        asked: dict[str, Any] = json.loads(await socket.recv())
        self.asked.append(asked)
        if asked["type"] == "session.update":
            await self.say(self.created)
            await self.beat(1)
        else:
            await self.resuming[len(self.asked) - 2](self, asked)
        socket.transport.abort()

    async def say(self, event: dict[str, Any]) -> None:
        await self.socket.send(json.dumps(event))

    async def beat(self, number: int) -> None:
        """Say something that has a number, and wait until it is acknowledged."""
        name = self.created["session"]["id"]
        await self.say(
            {"type": "session.heartbeat_ack", "event_id": "e", "server_event_seq": number, "session_id": name}
        )

    async def acknowledge(self) -> int:
        while (said := json.loads(await self.socket.recv()))["type"] != "session.event_ack":
            pass
        return int(said["server_event_seq"])

    async def resumed(self) -> None:
        await self.say(
            {
                "type": "session.resumed",
                "event_id": "e",
                "session_id": self.created["session"]["id"],
                "session": self.created["session"],
                "attachment_generation": 2,
                "resume_token": "n" * 43,
                "last_client_seq": 0,
            }
        )


def refusing(code: str) -> Script:
    async def refuse(server: Counterpart, _: dict[str, Any]) -> None:
        body = {"type": "server_error", "code": code, "message": "No.", "param": None, "event_id": None}
        await server.say({"type": "error", "event_id": "e", "error": body})

    return refuse


async def vanish(_server: Counterpart, _asked: dict[str, Any]) -> None:
    """Take the question and be gone."""


async def gap(server: Counterpart, _: dict[str, Any]) -> None:
    name = server.created["session"]["id"]
    await server.say(
        {"type": "session.resync_required", "event_id": "e", "session_id": name, "reason": "journal_gap"}
    )


@asynccontextmanager
async def counterpart(*resuming: Script) -> AsyncIterator[tuple[str, Counterpart]]:
    async with serving() as served, Wire.to(served.url + "?duplex=1&model=m") as wire:
        created = await wire.next()
    server = Counterpart(created, list(resuming))
    async with serve(server.handle, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        yield f"ws://127.0.0.1:{port}/v1/realtime", server


async def listen(client: RealtimeClient, told: list[Received] | None = None) -> str:
    """Listen until the session is lost; return why."""
    heard = told if told is not None else []
    try:
        async for event in client.events():
            heard += [event]
    except SessionLost as gone:
        return gone.code
    raise AssertionError("the session has ended in order")


async def lost(url: str, told: list[Received] | None = None) -> str:
    """Open a session and listen until it is lost; return why."""
    with anyio.fail_after(PATIENCE_S):
        async with RealtimeClient(url, retrying=FAST) as client:
            return await listen(client, told)


@rule("D35")
async def test_it_tries_five_times_and_no_more() -> None:
    assert Retrying() == Retrying(attempts=5, shortest_s=0.25, longest_s=4.0)
    async with counterpart(*[vanish] * 9) as (url, server):
        assert await lost(url) == "disconnected"
        assert [asked["type"] for asked in server.asked] == ["session.update"] + ["session.resume"] * 5


@rule("D35")
@pytest.mark.parametrize("code", FATAL)
async def test_an_answer_that_will_not_change_is_final(code: str) -> None:
    assert set(FATAL) == FATAL_RESUME
    async with counterpart(refusing(code)) as (url, server):
        assert await lost(url) == code
        assert len(server.asked) == 2


@rule("D35", "D20")
async def test_a_gap_is_final() -> None:
    async with counterpart(gap) as (url, server):
        assert await lost(url) == "session_resync_required"
        assert len(server.asked) == 2


@rule("D35")
@pytest.mark.parametrize("code", ["runtime_resume_failed", "going_away", "storage_unavailable", "of_the_future"])
async def test_any_other_refusal_is_tried_again(code: str) -> None:
    async with counterpart(refusing(code), vanish, refusing("session_resume_expired")) as (url, server):
        assert await lost(url) == "session_resume_expired"
        assert len(server.asked) == 4
        assert {asked["last_received_server_event_seq"] for asked in server.asked[1:]} == {1}


@rule("D35", "D20")
async def test_what_comes_before_the_answer_is_kept_and_delivered_behind_it() -> None:
    async def early(server: Counterpart, _: dict[str, Any]) -> None:
        await server.beat(1)
        await server.beat(2)
        await server.resumed()
        await server.beat(3)
        server.acknowledged.append(await server.acknowledge())
        await server.acknowledge()

    async with counterpart(early, refusing("session_resume_expired")) as (url, server):
        told: list[Received] = []
        assert await lost(url, told=told) == "session_resume_expired"
        assert [(type(event).__name__, number_of(event)) for event in told] == [
            ("SessionCreated", 0),
            ("HeartbeatAck", 1),
            ("SessionResumed", 0),
            ("HeartbeatAck", 2),
            ("HeartbeatAck", 3),
        ], "what was seen is dropped, the rest comes behind the answer"
        assert server.acknowledged == [2]


async def nobody() -> Link:
    raise Cut("nobody is there")


@rule("D35")
async def test_each_pause_is_drawn_between_a_quarter_second_and_twice_the_last_up_to_four() -> None:
    line = Line(nobody, SessionOptions(), clock=VirtualClock(), retrying=Retrying(), heartbeat_s=1)
    for attempt, longest in enumerate([0.25, 0.5, 1.0, 2.0, 4.0, 4.0]):
        drawn = [line._pause_us(attempt) for _ in range(200)]  # pyright: ignore[reportPrivateUsage]
        assert 250_000 <= min(drawn) <= max(drawn) <= longest * 1e6
        assert attempt == 0 or len(set(drawn)) > 1, "jittered, so that a crowd does not come back at once"


async def test_what_is_unread_when_the_server_closes_is_read_to_its_end_without_waiting() -> None:
    """Whoever acknowledges while the connection closes does not stand still until it is given up."""
    unread = 100  # the library stops reading at 16

    async def say_it_all(socket: ServerConnection) -> None:
        for number in range(unread):
            await socket.send(json.dumps({"type": "session.heartbeat_ack", "server_event_seq": number + 1}))

    async with serve(say_it_all, "127.0.0.1", 0, close_timeout=60) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        link = await WebsocketLink.dial(f"ws://127.0.0.1:{port}", None)
        with anyio.fail_after(PATIENCE_S / 2):
            while link._socket.state is State.OPEN:
                await link.frame()
                unread -= 1
            with pytest.raises(Cut):
                await link.send(b"{}")
            for _ in range(unread):
                await link.frame()
            with pytest.raises(Cut):
                await link.frame()


@rule("D35")
async def test_it_waits_before_it_tries() -> None:
    clock = VirtualClock()
    async with (
        counterpart(vanish, refusing("session_resume_expired")) as (url, server),
        RealtimeClient(url, clock=clock, heartbeat_s=10_000) as client,
        anyio.create_task_group() as group,
    ):
        await client.wait_for(out.HeartbeatAck)
        group.start_soon(_let_time_pass, clock, server)
        assert await listen(client) == "session_resume_expired"
        assert len(server.asked) == 3


async def _let_time_pass(clock: VirtualClock, server: Counterpart) -> None:
    """Move the clock just short of each pause's least, see that nothing happened, and then over its most."""
    for attempt, longest_us in enumerate((250_000, 500_000)):
        await anyio.wait_all_tasks_blocked()
        clock.advance(249_999)
        await anyio.wait_all_tasks_blocked()
        assert len(server.asked) == attempt + 1
        clock.advance(longest_us)
        with anyio.fail_after(PATIENCE_S):
            while len(server.asked) == attempt + 1:  # noqa: ASYNC110 - it happens beyond a socket
                await anyio.sleep(0.001)
