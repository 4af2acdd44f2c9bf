"""The pipe that takes a socket's place in a process, and what becomes of a client whose hub is gone."""

import anyio
import pytest

from antiphon.engine.clock import SystemClock, VirtualClock
from antiphon.engine.hosts import InlineHost
from antiphon.engine.hub import Hub
from antiphon.engine.memory_log import MemoryLog
from antiphon.engine.settings import HubSettings
from antiphon.sessions.plugins import ECHO
from antiphon.stages.echo import EchoStage
from antiphon.stages.scripted import Finish, Say, ScriptedStage
from antiphon.transport import client_inbox
from antiphon.transport import wire_server as out
from antiphon.transport.client import Retrying, SessionLost, SessionOptions
from antiphon.transport.client_events import number_of
from antiphon.transport.client_link import Cut
from antiphon.transport.inline import InlineClient, Pipe
from antiphon.transport.websocket import HANDED, ROOM

from .serving import becomes, serving

pytestmark = pytest.mark.anyio


class Served:
    """The connection's side of a pipe."""

    def __init__(self) -> None:
        self.said: list[bytes] = []
        self.lost = 0

    def on_text(self, data: bytes) -> None:
        self.said.append(data)

    def on_binary(self) -> None:
        raise AssertionError

    def on_sign_of_life(self) -> None:
        raise AssertionError

    def on_lost(self) -> None:
        self.lost += 1


def piped(clock: VirtualClock | None = None) -> tuple[Pipe, Served]:
    pipe, served = Pipe(clock or VirtualClock()), Served()
    pipe.handler = served
    return pipe, served


async def test_no_more_is_handed_over_than_a_socket_takes() -> None:
    pipe, _ = piped()
    message = bytes(ROOM)
    assert pipe.fill([message] * 10) == HANDED // ROOM
    assert pipe.fill([message] * 10) == 1, "at least one, for whoever waited for room"
    waited: list[bool] = []

    async def wait() -> None:
        await pipe.room()
        waited.append(True)

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        for left in range(HANDED // ROOM, -1, -1):
            await anyio.wait_all_tasks_blocked()
            assert not waited
            assert await pipe.take() == message
            assert left >= 0
        await anyio.wait_all_tasks_blocked()
        assert waited


async def test_what_was_said_before_the_close_is_read_and_then_why() -> None:
    pipe, served = piped()
    pipe.send([b"one", b"two"])
    pipe.close(1008, "not_heard")
    pipe.close(1000, "again")
    pipe.send([b"three"])
    with pytest.raises(Cut):
        await pipe.give(b"late")
    assert [await pipe.take(), await pipe.take()] == [b"one", b"two"]
    assert served.lost == 0
    with pytest.raises(Cut, match="1008 not_heard"):
        await pipe.take()
    assert served.lost == 1
    pipe.cut_off()
    pipe.drop()
    assert served.lost == 1
    await pipe.wait_lost()


async def test_whoever_does_not_read_the_rest_is_cut_off() -> None:
    clock = VirtualClock()
    pipe, served = piped(clock)
    pipe.send([bytes(ROOM + 1)])
    pipe.close(1000)
    clock.advance(4_999_999)
    assert served.lost == 0
    clock.advance(1)
    assert served.lost == 1
    await pipe.room()
    await pipe.wait_lost()


async def test_a_ping_is_answered_when_everything_before_it_was_read() -> None:
    pipe, _ = piped()
    answered: list[str] = []
    pipe.send([b"one"])
    pipe.ping(lambda: answered.append("heard"))
    pipe.send([b"two"])
    assert await pipe.take() == b"one"
    assert answered == []
    assert await pipe.take() == b"two"
    assert answered == ["heard"]
    pipe.drop()
    pipe.ping(lambda: answered.append("never"))
    with pytest.raises(Cut):
        await pipe.take()
    assert answered == ["heard"]


async def test_while_it_pauses_messages_wait() -> None:
    pipe, served = piped()
    pipe.pause()
    async with anyio.create_task_group() as group:
        group.start_soon(pipe.give, b"one")
        await anyio.wait_all_tasks_blocked()
        assert served.said == []
        pipe.resume()
    assert served.said == [b"one"]


async def test_a_lost_pipe_loses_what_was_not_read() -> None:
    pipe, served = piped()
    pipe.send([b"one"])
    pipe.drop()
    assert served.lost == 1
    with pytest.raises(Cut):
        await pipe.take()
    with pytest.raises(Cut):
        await pipe.give(b"one")


async def test_a_hub_that_ended_has_lost_its_clients() -> None:
    log = MemoryLog()
    host = InlineHost(EchoStage())
    client: InlineClient
    retrying = Retrying(shortest_s=0.001, longest_s=0.001, attempts=2)
    async with anyio.create_task_group() as group:
        ended = anyio.Event()

        async def run(*, task_status: anyio.abc.TaskStatus[Hub]) -> None:
            async with Hub(log, log.samples, host, ECHO, HubSettings(), SystemClock(), b"secret" * 6) as hub:
                await hub.ready.wait()
                task_status.started(hub)
                await ended.wait()

        hub = await group.start(run)
        async with InlineClient(hub, SessionOptions(turn_detection=None), retrying=retrying) as client:
            ended.set()
            going = await client.wait_for(out.SessionGoingAway)
            assert going.reason == "shutdown"
            with pytest.raises(SessionLost) as lost:
                await client.wait_for(out.SessionResumed)
            assert lost.value.code == "disconnected"


async def test_a_session_of_a_client_that_is_forgotten_is_given_up() -> None:
    async with serving() as served:
        with anyio.CancelScope() as scope:
            async with InlineClient(served.hub):
                scope.cancel()
                await anyio.sleep(1)
        await becomes(lambda: not served.hub.statistics().attached)


async def test_a_reader_who_is_far_too_slow_is_given_up_and_comes_back_to_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_inbox, "HELD", 4)
    clock = VirtualClock()
    stage = ScriptedStage(default=(*[Say(ms=80)] * 200, Finish()))
    retrying = Retrying(shortest_s=0.001, longest_s=0.001, attempts=50)
    options = SessionOptions(turn_detection=None)
    async with (
        serving(clock=clock, stage=stage) as served,
        InlineClient(served.hub, options, clock=SystemClock(), retrying=retrying) as client,
    ):
        events = client.events()
        seen = [await anext(events)]
        client.send_text("Speak for long.")
        client.create_response()
        await becomes(lambda: client.last_number > 0)
        await anyio.wait_all_tasks_blocked()
        clock.advance(31_000_000)
        await becomes(lambda: not served.hub.statistics().attached)
        with anyio.fail_after(10):
            while not isinstance(seen[-1], out.RateLimits):
                seen.append(await anext(events))
        assert client.generation == 2
        numbers = [number_of(event) for event in seen if number_of(event)]
        assert numbers == list(range(1, numbers[-1] + 1))
        assert len(numbers) > 200
