"""What an event costs until a client has it as a typed object: in the same process, and over a socket.

Run it: python tests/benchmarks/run.py clients

One answer of many pieces of 80 ms; the log lies in memory, and everything (engine, server, client) runs in this
process, so that what differs is the way between them. CPU time, divided by the pieces. The direct hold on a
session, which skips the wire altogether, is what the engine alone costs.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from figures import Figure, Say

from antiphon.engine.clock import SystemClock
from antiphon.engine.direct import DirectClient
from antiphon.engine.hosts import InlineHost
from antiphon.engine.hub import Hub
from antiphon.engine.memory_log import MemoryLog
from antiphon.engine.settings import HubSettings
from antiphon.events.events import ResponseEnded
from antiphon.sessions.plugins import ECHO
from antiphon.stages import scripted
from antiphon.transport import wire_server as out
from antiphon.transport.client import RealtimeClient, SessionClient, SessionOptions
from antiphon.transport.inline import InlineClient
from antiphon.transport.server import Listening, Server

PIECES = 3_000
ROUNDS = 3
OPTIONS = SessionOptions(turn_detection=None)


@asynccontextmanager
async def opened() -> AsyncIterator[Hub]:
    """Lend a hub whose answers are long."""
    log = MemoryLog()
    answer = (*[scripted.Say(ms=80)] * PIECES, scripted.Finish())
    host = InlineHost(scripted.ScriptedStage(default=answer))
    async with Hub(log, log.samples, host, ECHO, HubSettings(), SystemClock(), b"secret" * 6) as hub:
        await hub.ready.wait()
        yield hub


async def _answered(client: SessionClient) -> None:
    client.send_text("go")
    client.create_response()
    async for event in client.events():
        if isinstance(event, out.ResponseDone):
            return


async def direct() -> float:
    """Return seconds of CPU that one answer costs without the wire."""
    async with opened() as hub, DirectClient(hub) as client:
        begin = time.process_time()
        client.send_text("go")
        client.create_response()
        async for heard in client.events():
            client.acknowledge()
            if isinstance(heard.event, ResponseEnded):
                break
        return time.process_time() - begin


async def inline() -> float:
    """The same, to the in-process client."""
    async with opened() as hub, InlineClient(hub, OPTIONS) as client:
        begin = time.process_time()
        await _answered(client)
        return time.process_time() - begin


async def socket() -> float:
    """The same, to the socket client; both ends of the socket are counted."""
    async with opened() as hub, anyio.create_task_group() as group:
        server, listening = Server(hub, Listening(port=0)), anyio.Event()
        group.start_soon(server.serve, lambda _address: listening.set())
        await listening.wait()
        async with RealtimeClient(f"ws://127.0.0.1:{server.port}", OPTIONS) as client:
            begin = time.process_time()
            await _answered(client)
            spent = time.process_time() - begin
        server.stop()
        return spent


def measure(say: Say) -> list[Figure]:
    """Return the figures."""
    spent: dict[str, list[float]] = {}
    ways: dict[str, Callable[[], Awaitable[float]]] = {"direct": direct, "inline": inline, "socket": socket}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            say(f"clients: {name}")
            took = anyio.run(way, backend_options={"use_uvloop": True})
            spent.setdefault(name, []).append(took / PIECES * 1e6)
    best = {name: min(times) for name, times in spent.items()}
    return [
        Figure(
            part="clients",
            what="an 80 ms delta, from the stage to the in-process client",
            ours=best["inline"],
            unit="µs",
            beside="the socket client, both ends",
            theirs=best["socket"],
        ),
        Figure(
            part="clients",
            what="the same, of which the engine and its log",
            ours=best["direct"],
            unit="µs",
            beside="the in-process client",
            theirs=best["inline"],
        ),
    ]
