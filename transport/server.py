"""One port for websockets and HTTP: uvicorn reads the requests, upgrades come to us."""

import asyncio
import socket as sockets
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import anyio
import uvicorn
from anyio.abc import TaskGroup
from msgspec import Struct, field
from uvicorn.server import ServerState
from websockets.http11 import Request as UpgradeRequest
from websockets.http11 import Response

from antiphon.engine.hub import Hub

from .access import Access, Denied, Request, invitation
from .administration import is_local
from .connection import Connection
from .gate import Gate
from .handshake import Invitation, Watching
from .http_api import application
from .http_protocol import REQUEST_S, HttpProtocol
from .metrics import Metrics
from .observing import Watch
from .websocket import Handler, WebSocket, refused

BACKLOG = 1024
LEAVING_S = 5.0
"""How long connections may take to say goodbye when the server stops."""

KEYS_US = 1_000_000
"""How often it is looked whether the file of keys has changed."""

SEND_BUFFER = 128 * 1024
"""Bytes that the kernel keeps for a socket (it takes twice as much for its own accounts). Left to itself it keeps
megabytes for a slow reader: half a minute of sound that an interruption could not call back (DESIGN 5.11)."""


class Insecure(Exception):
    """The server would be open to strangers; the message says what to do."""


class Listening(Struct, frozen=True, kw_only=True):
    """Where and for whom the server listens. Port 0 asks for any free one.

    Another address than this machine's own needs a key, unless `insecure` says that this is meant.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    access: Access = field(default_factory=Access)
    insecure: bool = False
    tls: ssl.SSLContext | None = None
    """With it the port speaks TLS, and nothing else."""
    data: Path | None = None
    """The hub's data directory, which an administrator's pages are made from; None: its log is in memory."""


class Server:
    """Serves one hub. `serve` runs until it is cancelled or `stop` is called."""

    def __init__(self, hub: Hub, listening: Listening) -> None:
        """Check what is asked for.

        Raises:
            Insecure: the address is not this machine's own and there is no key.
        """
        if not (listening.access.keys.needed or listening.insecure or is_local(listening.host)):
            raise Insecure(f"{listening.host} can be reached from other machines: set an API key, or say insecure.")
        self._hub = hub
        self._listening = listening
        self._gate = Gate(listening.access, hub.clock)
        self._metrics = Metrics(hub)
        hub.measure(self._metrics.take)
        self._stopped = anyio.Event()
        self.websockets: set[WebSocket] = set()
        """The open ones."""
        self._idle = anyio.Event()
        self._group: TaskGroup | None = None
        self.port = listening.port

    def stop(self) -> None:
        """Let `serve` end in order: sessions are told, kept or closed (DESIGN 5.7)."""
        self._stopped.set()

    async def serve(self, started: Callable[[str], None] | None = None) -> None:
        """Listen, and serve until the end. `started` is told the server's address when it listens.

        Raises:
            OSError: the address cannot be bound.
        """
        listener = _bind(self._listening.host, self._listening.port)
        self.port = int(listener.getsockname()[1])
        state = ServerState()
        config = uvicorn.Config(
            application(self._hub, self._gate, self._metrics.text, self._listening.data),
            lifespan="off",
            # A factory takes the place of a class: uvicorn only calls it.
            ws=cast("type[asyncio.Protocol]", self._upgraded),
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
        )
        config.load()
        tls = self._listening.tls
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: HttpProtocol(self._hub.clock, config=config, server_state=state, app_state={}, _loop=loop),
            sock=listener,
            backlog=BACKLOG,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else REQUEST_S,
        )
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                try:
                    if self._listening.access.keys.watched:
                        group.start_soon(self._watch_keys)
                    if started is not None:
                        scheme = "http" if tls is None else "https"
                        started(f"{scheme}://{_shown(self._listening.host)}:{self.port}")
                    await self._stopped.wait()
                    server.close()
                    await self._leave()
                finally:
                    self._group = None  # a group that is being left takes no connection any more
                group.cancel_scope.cancel()
        finally:
            server.close()
            for http in list(state.connections):
                http.shutdown()

    async def _leave(self) -> None:
        """End what is connected: the hub tells the sessions, the connections say so and close."""
        with anyio.move_on_after(LEAVING_S):
            await self._hub.shutdown()
            while self.websockets:
                self._idle = anyio.Event()
                await self._idle.wait()

    async def _watch_keys(self) -> None:
        """Look whether the file of keys has changed; a timer sees what no signal tells, as of a mounted secret."""
        clock = self._hub.clock
        while True:
            await clock.sleep_until(clock.monotonic_us() + KEYS_US)
            self._listening.access.keys.refresh()

    # -- connections -----------------------------------------------------------------------------------------

    def _upgraded(self, **_uvicorns: Any) -> WebSocket:
        return WebSocket(self._accept, self._hub.clock)

    def _accept(self, websocket: WebSocket, request: UpgradeRequest) -> Handler | Response:
        group = self._group
        if group is None or self._stopped.is_set():
            return refused(503, "Service Unavailable", b'{"error":{"code":"going_away"}}')
        try:
            described = _described(request)
            asked = invitation(described, self._hub.settings.default_dialect)
            returning = isinstance(asked, Invitation) and (asked.back is not None or not asked.at_once)
            grant = self._gate.admit(described, returning=returning)
        except Denied as denied:
            return refused(denied.status, denied.reason, denied.body)
        if isinstance(asked, Watching):
            connection: Connection | Watch = Watch(self._hub, websocket, asked)
        else:
            connection = Connection(self._hub, websocket, asked, grant)
        self.websockets.add(websocket)
        group.start_soon(self._serve_connection, connection, websocket)
        return connection

    async def _serve_connection(self, connection: Connection | Watch, websocket: WebSocket) -> None:
        try:
            await connection.run()
        finally:
            self.websockets.discard(websocket)
            self._idle.set()


def _bind(host: str, port: int) -> sockets.socket:
    family = sockets.AF_INET6 if ":" in host else sockets.AF_INET
    listener = sockets.socket(family, sockets.SOCK_STREAM)
    try:
        listener.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
        # Accepted sockets inherit these. Not every event loop turns Nagle's delay off: 40 ms between two deltas.
        listener.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, SEND_BUFFER)
        listener.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _described(request: UpgradeRequest) -> Request:
    """Return what a request says of itself.

    Raises:
        Denied: its target is none.
    """
    try:
        parts = urlsplit(request.path)
    except ValueError:
        raise Denied(400, "Bad Request", "invalid_request", "This address cannot be read.") from None
    headers = {name.lower(): value for name, value in request.headers.raw_items()}
    protocols = ",".join(request.headers.get_all("Sec-WebSocket-Protocol"))
    return Request(
        path=parts.path,
        query=dict(parse_qsl(parts.query, keep_blank_values=True)),
        headers=headers,
        protocols=tuple(name.strip() for name in protocols.split(",") if name.strip()),
    )
