"""A server in a made-up loop, one hostile connection to it, and what must be so behind that."""

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import anyio
import uvicorn
from anyio import to_thread
from uvicorn.server import ServerState

from antiphon.engine.hosts import InlineHost
from antiphon.engine.hub import Hub
from antiphon.engine.memory_log import MemoryLog
from antiphon.engine.settings import HubSettings
from antiphon.sessions import core
from antiphon.transport.access import Access
from antiphon.transport.codes import CLOSE_CODES, INVALID_DATA, NORMAL, PROTOCOL, TOO_BIG
from antiphon.transport.http_api import application
from antiphon.transport.http_protocol import HttpProtocol
from antiphon.transport.keys import Keys
from antiphon.transport.server import Listening, Server

from . import frames
from .judge import Judge
from .oracle import CLOSE, CONT, Fate, read
from .plan import HTTP, Plan
from .requests import request
from .socket import Reader, Socket
from tests.simulation.loop import SimClock, SimLoop
from tests.simulation.seeded import seeded
from tests.simulation.stage import SimScoring, SimStage
from tests.simulation.world import MODELS
from tests.transport.grammar import check

SECRET = b"s" * 32
SETTINGS = HubSettings(max_sessions=4, grace_ms=2_000, activation_ms=1_000, idle_ttl_ms=60_000, shutdown_ms=1_000)
LOOK_MS = 20
PATIENCE_MS = 5_000
"""How long a heartbeat or a close may take: WIRE 12 says a second, where a stage is not slow."""

ANSWER_MS = 40_000
"""How long a request may take: it may wait for the rest of its body, and for a model."""

GONE_MS = 60_000
FAULTS = frozenset({PROTOCOL, INVALID_DATA, TOO_BIG})
"""Codes that are only right where the second reader sees the fault too."""

STATUSES = frozenset({101, 200, 307, 400, 401, 403, 404, 405, 408, 413, 414, 429, 500, 503, 426, 431, 501, 505})
"""How a request may be answered; with 500 only what a model has failed at: errors of ours are logged, and found."""


class Broken(AssertionError):
    """Something was not as it is documented; the message says what."""


class Client:
    """One connection from outside."""

    def __init__(self, place: "Place", protocol: asyncio.Protocol, judge: Judge) -> None:
        self.place = place
        self.judge = judge
        self.named: dict[bytes, bytes] = {}
        self.acks = 0
        self.codes: list[str | None] = []
        self.messages: list[dict[str, Any]] = []
        self.reader = Reader(place.fault, self._heard)
        self.socket = Socket(place.loop, protocol, self.reader)
        self.sent = bytearray()
        """All that was sent behind the request."""

    def send(self, data: bytes) -> None:
        """Send bytes of frames."""
        self.sent += data
        self.socket.send(data)

    def say(self, text: bytes) -> None:
        """Send a message, with the names in it that the server has given."""
        for name, value in (*self.named.items(), *self.place.abused.items()):
            text = text.replace(name, value)
        self.send(frames.frame(text))

    def _heard(self, message: dict[str, Any]) -> None:
        self.place.trace.update(json.dumps(message).encode())
        if (fault := self.judge.fault(message)) is not None:
            self.place.fault(fault)
        self.messages.append(message)
        kind = message["type"]
        if kind == "session.heartbeat_ack":
            self.acks += 1
        elif kind == "error":
            self.codes.append(message["error"]["code"])
        self._name(message)

    def _name(self, message: dict[str, Any]) -> None:
        session, item = message.get("session"), message.get("item")
        names = {
            b'"$session"': session.get("id") if isinstance(session, dict) else None,
            b'"$item"': item.get("id") if isinstance(item, dict) else message.get("item_id"),
            b'"$response"': message.get("response_id"),
            b'"$call"': item.get("call_id") if isinstance(item, dict) else None,
            b'"$number"': message.get("server_event_seq"),
        }
        self.named.update((name, json.dumps(value).encode()) for name, value in names.items() if value is not None)


class Place:
    """Carries one plan out. `outcome` says how it ended, `codes` which errors were sent."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.loop = SimLoop(most=1_000_000)
        self.clock = SimClock(self.loop)
        self.trace = hashlib.blake2b(digest_size=16)
        self.abused: dict[bytes, bytes] = {}
        self.outcome = ""
        self.codes: list[str | None] = []
        self._tokens = 0

    def token(self, size: int = 16) -> str:
        """Return what is random elsewhere."""
        self._tokens += 1
        return f"{self.plan.seed & 0xFFFFFFFF:08x}{self._tokens:0{2 * size - 8}x}"

    def blame(self, error: BaseException) -> None:
        """End the run."""
        if self.loop.failure is None:
            self.loop.failure = error

    def fault(self, what: str) -> None:
        """End the run: this is not as it is documented."""
        self.blame(Broken(what))

    async def run(self) -> None:
        """Serve, let the connection do its worst, and look at what is left."""
        plan = self.plan
        log = MemoryLog()
        stage = SimStage(self.loop, str(plan.seed), plan.stage_us, lambda _: None, lambda _: None)
        scoring = SimScoring(self.loop, 0)
        model = MODELS[plan.model]
        hub = Hub(log, log.samples, InlineHost(stage), model, SETTINGS, self.clock, SECRET, scoring)
        server = Server(hub, Listening(access=Access(keys=Keys.of("right")) if plan.keys else Access()))
        async with hub, anyio.create_task_group() as group:
            server._group = group  # as `Server.serve` does when its port is bound
            await hub.ready.wait()
            beside = await self._beside(server) if plan.beside else None
            await self._connection(server, hub)
            await self._until(lambda: hub.statistics().live <= (beside is not None), GONE_MS)
            if beside is not None:
                await self._unmoved(beside)
                await self._until(lambda: not hub.statistics().live, GONE_MS)
            statistics = hub.statistics()
            _hold(not statistics.admitted, f"{statistics.admitted} slots are still held")
            _hold(not statistics.live, f"{statistics.live} sessions never end")
            _hold(not stage.live, f"the stage still holds {list(stage.live)}")
            _hold(not statistics.crashed, "a session crashed")
            _hold(not statistics.attached, "a connection is still attached")
            for name, kept in log._sessions.items():
                _ended(name, core.fold(kept.transactions))
            await self._until(lambda: not server.websockets, GONE_MS)
            _hold(not server.websockets, "a websocket is still served")
            server.stop()
            await server._leave()
            group.cancel_scope.cancel()

    # -- the hostile connection ------------------------------------------------------------------------------

    async def _connection(self, server: Server, hub: Hub) -> None:
        plan = self.plan
        protocol = self._http(server, hub) if plan.kind in HTTP else server._upgraded()
        client = Client(self, protocol, Judge(plan.dialect))
        if plan.kind not in HTTP:
            other = self.abused.get(b'"$other_session"', b"").strip(b'"')
            client.socket.send(plan.request.encode("latin-1").replace(b"$other_session", other))
            await self.wait(0)
        for step in plan.steps:
            await self.wait(step.gap_us)
            data = step.data.encode("latin-1")
            if step.message:
                client.say(data)
            elif client.reader.status == 101:
                client.send(data)
            else:
                client.socket.send(data)
            await self.wait(0)
        if plan.kind not in HTTP or client.reader.status == 101:
            await self._judge(client)
        else:
            await self._answered(client)
        await self._end(client)
        self.codes += client.codes
        if plan.dialect == "duplex":
            check(client.messages)

    async def _judge(self, client: Client) -> None:
        """The connection lives and answers, or was closed by the book."""
        reader, fate = client.reader, read(bytes(client.sent))
        if fate.state == "open" and fate.fragments and not reader.over:
            client.send(frames.frame(b"", CONT))
            await self.wait(0)
            fate = read(bytes(client.sent))
        if fate.state == "open" and not reader.over:
            await self._lives(client, fate)
        elif fate.state in ("failed", "closed"):
            await self._until(lambda: reader.over, PATIENCE_MS)
            _hold(reader.over, f"the connection stays open: {fate.state} {fate.codes}")
        if not reader.over:
            self.outcome = fate.state
            return
        self.outcome = f"closed {reader.code}"
        _hold(reader.closed, "the connection ends without a close frame")
        if fate.state == "closed" and reader.code in fate.codes:
            self.outcome = "client closed"
        elif reader.code not in fate.codes:
            _hold(reader.code in CLOSE_CODES, f"closed with {reader.code}, {reader.reason!r}")
            told = f"closed with {reader.code} ({reader.reason}), but {fate.state} {fate.codes}"
            _hold(reader.code not in FAULTS, told)

    async def _lives(self, client: Client, fate: Fate) -> None:
        reader = client.reader
        before = client.acks
        client.send(frames.frame(frames.HEARTBEAT))
        await self._until(lambda: client.acks > before or reader.over, PATIENCE_MS)
        told = f"no heartbeat is answered, and it stays open; {client.codes[-3:]}"
        _hold(client.acks > before or reader.over, told)
        if not reader.over:
            pongs = reader.pongs[: len(fate.pings)]
            _hold(pongs == fate.pings, f"{len(pongs)} pongs to {len(fate.pings)} pings")

    async def _answered(self, client: Client) -> None:
        """A request that was no upgrade is answered by HTTP, or cut off when it is never one."""
        reader = client.reader
        await self._until(lambda: reader.over or reader.status is not None, ANSWER_MS)
        _hold(reader.over or reader.status is not None, "a connection may say nothing for ever")
        self.outcome = f"HTTP {reader.status}" if reader.status is not None else "cut off"
        _hold(reader.status is None or reader.status in STATUSES, f"answered with {reader.status}")
        asked = "".join(step.data for step in self.plan.steps).lstrip()
        told = reader.status is not None and reader.status >= 400 and not asked.startswith("HEAD")
        if told and b"application/json" in reader.head:
            error = json.JSONDecoder().raw_decode(reader.body.decode())[0]["error"]
            _hold(isinstance(error["message"], str) and len(error["message"]) < 400, f"an error like {error}")

    async def _end(self, client: Client) -> None:
        reader, ending = client.reader, self.plan.ending
        whole = reader.status == 101 and not reader.over and read(bytes(client.sent)).state == "open"
        if whole and ending == "session.close":
            client.send(frames.frame(b'{"type":"session.close"}'))
            await self._until(lambda: reader.over, PATIENCE_MS)
            _hold(reader.closed, "session.close is not answered by a close")
            _hold(reader.code in CLOSE_CODES, f"closed with {reader.code}")
        elif whole and ending == "close":
            client.send(frames.frame(NORMAL.to_bytes(2, "big"), CLOSE))
            await self._until(lambda: reader.over, PATIENCE_MS)
            _hold(reader.closed, "a close is not answered")
        elif ending == "eof":
            client.socket.finish()
            await self.wait(1000)
        client.socket.abort()
        await self.wait(0)

    def _http(self, server: Server, hub: Hub) -> asyncio.Protocol:
        """Return what a real port would give a new connection to."""
        config = uvicorn.Config(
            application(hub, server._gate, server._metrics.text),
            lifespan="off",
            ws=cast("type[asyncio.Protocol]", server._upgraded),
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
        )
        config.load()
        return HttpProtocol(hub.clock, config=config, server_state=ServerState(), app_state={}, _loop=self.loop)

    # -- the client beside it --------------------------------------------------------------------------------

    async def _beside(self, server: Server) -> Client:
        client = Client(self, server._upgraded(), Judge("duplex"))
        client.socket.send(request("/v1/realtime?duplex=1&model=m"))
        await self._until(lambda: b'"$session"' in client.named, PATIENCE_MS)
        client.say(b'{"type":"conversation.item.create","item":{"type":"message","role":"user","content":"mine"}}')
        await self._until(lambda: b'"$item"' in client.named, PATIENCE_MS)
        self.abused = {
            b'"$other_session"': client.named[b'"$session"'],
            b'"$other_item"': client.named[b'"$item"'],
            b'"$other_response"': b'"resp_1"',
        }
        return client

    async def _unmoved(self, client: Client) -> None:
        """Whoever has the other session has heard of nothing, and has it still."""
        _hold(not client.reader.over and not client.codes, "the other session was touched")
        abused, self.abused = self.abused, {}
        ids = len(client.judge.ids)
        client.say(b'{"type":"conversation.item.retrieve","item_id":' + abused[b'"$other_item"'] + b"}")
        client.say(b'{"type":"session.heartbeat"}')
        await self._until(lambda: client.acks > 0, PATIENCE_MS)
        _hold(len(client.judge.ids) == ids + 2 and not client.codes, "the other session has changed")
        client.say(b'{"type":"session.close"}')
        await self._until(lambda: client.reader.over, PATIENCE_MS)
        client.socket.abort()

    # -- time ------------------------------------------------------------------------------------------------

    async def wait(self, us: int) -> None:
        """Let time pass, and what is due happen."""
        if us:
            await asyncio.sleep(us / 1e6)
        for _ in range(3):
            await asyncio.sleep(0)

    async def _until(self, condition: Callable[[], bool], ms: int) -> None:
        """Wait until something is so, for a bounded time."""
        await self.wait(0)
        for _ in range(ms // LOOK_MS):
            if condition():
                return
            await asyncio.sleep(LOOK_MS / 1000)


def _hold(condition: object, otherwise: str) -> None:
    if not condition:
        raise Broken(otherwise)


def _ended(name: str, session: core.Session) -> None:
    _hold(session.phase == "closed", f"{name} never ends")
    _hold(not session.input.reserved, f"{name} keeps {session.input.reserved} bytes of credit")
    _hold(not session.lease.attached, f"{name} is still leased")
    _hold(not core.outstanding(session), f"{name} has work that is never cleaned up")


class _Heard(logging.Handler):
    """What libraries log as an error."""

    def __init__(self, place: Place) -> None:
        super().__init__(logging.ERROR)
        self._place = place

    def emit(self, record: logging.LogRecord) -> None:
        """An unhandled error."""
        error = record.exc_info[1] if record.exc_info else None
        self._place.blame(error or Broken(f"logged: {record.getMessage()}"))


@contextmanager
def _listening(place: Place) -> Iterator[None]:
    root, handler, run_sync = logging.getLogger(), _Heard(place), to_thread.run_sync

    async def at_once(call: Callable[..., object], *args: object, limiter: object = None) -> object:
        return call(*args)

    root.addHandler(handler)
    to_thread.run_sync = at_once  # the made-up loop has no threads
    try:
        yield
    finally:
        root.removeHandler(handler)
        to_thread.run_sync = run_sync


def carry_out(plan: Plan) -> Place:
    """Run a plan in a place of its own.

    Raises:
        Broken: something was not as it is documented.
    """
    place = Place(plan)
    try:
        with seeded(place), _listening(place):
            place.loop.run(place.run())
        left = [task.get_name() for task in asyncio.all_tasks(place.loop) if not task.done()]
        _hold(not left, f"tasks are left: {left}")
    except Exception as error:
        raise Broken(f"{plan.kind} {plan.seed}: {_first(error)}") from error
    return place


def _first(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
