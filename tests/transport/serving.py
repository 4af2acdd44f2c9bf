"""A server on a real port with a log in memory, and a bare client that says exactly what it is told."""

import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

import anyio
from msgspec import Struct
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from antiphon.engine.clock import Clock, SystemClock
from antiphon.engine.host import PipelineHost
from antiphon.engine.hosts import InlineHost
from antiphon.engine.hub import Hub
from antiphon.engine.memory_log import MemoryLog
from antiphon.engine.settings import HubSettings
from antiphon.sessions.plugins import ECHO, TurnModel
from antiphon.stages.base import Stage
from antiphon.stages.echo import EchoStage
from antiphon.transport.access import Access
from antiphon.transport.server import Listening, Server

OPEN = Access()
DEFAULTS = HubSettings()

PATIENCE_S = 10.0
"""A test fails rather than waits longer for one event."""


class Serving(Struct):
    """A running server."""

    hub: Hub
    server: Server
    log: MemoryLog
    tls: bool = False

    @property
    def url(self) -> str:
        """Where its websockets are."""
        scheme = "wss" if self.tls else "ws"
        return f"{scheme}://127.0.0.1:{self.server.port}/v1/realtime"

    @property
    def http(self) -> str:
        """Where its HTTP endpoints are."""
        scheme = "https" if self.tls else "http"
        return f"{scheme}://127.0.0.1:{self.server.port}"


@asynccontextmanager
async def serving(
    *,
    clock: Clock | None = None,
    access: Access = OPEN,
    plugin: TurnModel = ECHO,
    settings: HubSettings = DEFAULTS,
    log: MemoryLog | None = None,
    stage: Stage | None = None,
    host: PipelineHost | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Serving]:
    """Serve on a free port until the block is left."""
    log = log or MemoryLog()
    host = host or InlineHost(stage or EchoStage())
    hub = Hub(log, log.samples, host, plugin, settings, clock or SystemClock(), b"secret" * 6)
    async with hub:
        server = Server(hub, Listening(port=0, access=access, tls=tls))
        async with served_by(server):
            await hub.ready.wait()
            yield Serving(hub, server, log, tls is not None)


@asynccontextmanager
async def served_by(server: Server) -> AsyncIterator[str]:
    """Let a server listen until the block is left; give the address of its websockets."""
    listening = anyio.Event()
    address = ""

    def started(url: str) -> None:
        nonlocal address
        address = url
        listening.set()

    async with anyio.create_task_group() as group:
        group.start_soon(server.serve, started)
        await listening.wait()
        try:
            yield address
        finally:
            server.stop()


class Wire:
    """One websocket; events are dicts, exactly as they came."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.seen: list[dict[str, Any]] = []

    @classmethod
    @asynccontextmanager
    async def to(cls, url: str, **options: Any) -> AsyncIterator[Self]:
        """Connect."""
        async with connect(url, max_size=None, close_timeout=0.5, **options) as socket:
            yield cls(socket)

    async def send(self, kind: str, **fields: Any) -> None:
        """Send an event."""
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def raw(self, frame: str | bytes) -> None:
        """Send a frame."""
        await self.socket.send(frame)

    async def next(self) -> dict[str, Any]:
        """Return the next event."""
        with anyio.fail_after(PATIENCE_S):
            event: dict[str, Any] = json.loads(await self.socket.recv())
        self.seen.append(event)
        return event

    async def until(self, kind: str) -> dict[str, Any]:
        """Return the next event of a kind."""
        while (event := await self.next())["type"] != kind:
            pass
        return event

    async def error(self) -> dict[str, Any]:
        """Return the body of the next event, which must be an error."""
        event = await self.next()
        assert event["type"] == "error", event
        body: dict[str, Any] = event["error"]
        return body

    async def closed(self) -> tuple[int, str]:
        """Read to the end; return the close code and reason."""
        with anyio.fail_after(PATIENCE_S), suppress(ConnectionClosed):
            while True:
                self.seen.append(json.loads(await self.socket.recv()))
        code, reason = self.socket.close_code, self.socket.close_reason
        assert code is not None
        assert code != 1006, "the socket died without a close frame"
        return code, reason or ""

    def kinds(self) -> list[str]:
        """Return the types of all events so far."""
        return [event["type"] for event in self.seen]

    def numbers(self) -> list[int]:
        """Return the numbers of all numbered events so far."""
        return [event["server_event_seq"] for event in self.seen if "server_event_seq" in event]


async def becomes(condition: Callable[[], bool]) -> None:
    """Wait until something is so; a test fails rather than waits for ever."""
    with anyio.fail_after(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for happens beyond a socket
            await anyio.sleep(0.001)
