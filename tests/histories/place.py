"""Where golden logs are recorded: the real server, its clients, and a time that moves only when everybody waits."""

import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import msgspec
import pybase64
from anyio.abc import TaskGroup, TaskStatus

from antiphon.engine.hosts import InlineHost
from antiphon.engine.hub import Hub
from antiphon.engine.scoring import ScoringService
from antiphon.engine.settings import HubSettings
from antiphon.events.config import Dialect
from antiphon.events.log import Transaction, Unavailable
from antiphon.sessions.models.base import TurnModel
from antiphon.stages.base import Stage
from antiphon.transport import chat
from antiphon.transport.access import Access
from antiphon.transport.gate import Gate
from antiphon.transport.http_api import application
from antiphon.transport.server import Listening, Server

from .puppet import Puppet
from tests.engine.worlds import MoodyLog
from tests.simulation.loop import SimClock, SimLoop
from tests.simulation.net import Line
from tests.simulation.seeded import seeded

T = TypeVar("T")

SECRET = b"s" * 32
LATENCY_US = 1_000
"""How long anything takes from one end of a connection to the other."""
PIECE_MS = 64
PATHS: Mapping[Dialect, tuple[str, str]] = {
    "ga": ("/v1/realtime?model=m", ""),
    "beta": ("/v1/realtime?model=m", "OpenAI-Beta: realtime=v1\r\n"),
    "duplex": ("/v1/realtime?duplex=1&model=m&autostart=0", ""),
}

Shown = dict[str, Any]
"""A message, as a client reads it."""

_encode = msgspec.json.Encoder().encode


class Place:
    """One server after the other on one disk. `stage` is given to each; `puppet` is it, where a scene moves it."""

    def __init__(
        self,
        plugin: TurnModel,
        settings: HubSettings,
        stage: Callable[["Place"], Stage],
        scorer: Callable[[], ScoringService] | None = None,
    ) -> None:
        self.loop = SimLoop(callback_us=0)
        self.clock = SimClock(self.loop)
        self.plugin = plugin
        self.settings = settings
        self.log: MoodyLog
        self.hub: Hub
        self.server: Server
        self.stage: Stage
        self._make = stage
        self._scorer = scorer
        self._tokens = 0
        self._lines: list[Line] = []
        self._scope: anyio.CancelScope
        self._over: anyio.Event
        self._group: TaskGroup

    @property
    def puppet(self) -> Puppet:
        """The stage, which does what it is told to."""
        assert isinstance(self.stage, Puppet)
        return self.stage

    # -- what is random elsewhere ----------------------------------------------------------------------------

    def token(self, size: int = 16) -> str:
        """Return what is random elsewhere."""
        self._tokens += 1
        return f"{self._tokens:0{2 * size}x}"

    def blame(self, error: BaseException) -> None:
        """End the recording: nobody may cause an error of ours."""
        self.loop.failure = self.loop.failure or error

    def record(self, scene: Callable[["Place"], Awaitable[None]]) -> dict[str, list[Transaction]]:
        """Play a scene to its end; return the logs of its sessions, in the order of their opening."""

        async def play() -> dict[str, list[Transaction]]:
            self.log = MoodyLog()
            async with anyio.create_task_group() as self._group:
                await self.start()
                await scene(self)
                await self.stop()
            names = [row.session for row in reversed(await self.log.sessions())]
            return {name: await self.log.read(name, 0, 100_000) for name in names}

        known, chat.token_hex = chat.token_hex, self.token
        try:
            with seeded(self):
                return self.loop.run(play())
        finally:
            chat.token_hex = known

    # -- the server ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Let a server begin."""
        await self._group.start(self._run)

    async def stop(self) -> None:
        """Let it end in order."""
        await self.server._leave()
        self._scope.cancel()
        await self._over.wait()

    async def kill(self) -> None:
        """Let it end without a word, in the middle of whatever it does; its disk stays."""
        self.log.broken = Unavailable("the process is gone")
        for line in self._lines:
            line.pipe.dead = True
            line.later(line.over)
        self._scope.cancel()
        await self._over.wait()
        self.log.broken = None

    def fail_storage(self, fails: bool) -> None:
        """Let the disk be full, or have room again."""
        self.log.broken = Unavailable("the disk is full") if fails else None

    async def _run(self, *, task_status: TaskStatus[None]) -> None:
        self._over, self._scope = anyio.Event(), anyio.CancelScope()
        self.stage = self._make(self)
        log, host = self.log, InlineHost(self.stage)
        scorer = None if self._scorer is None else self._scorer()
        try:
            with self._scope:
                async with (
                    Hub(log, log.samples, host, self.plugin, self.settings, self.clock, SECRET, scorer) as self.hub,
                    anyio.create_task_group() as group,
                ):
                    self.server = Server(self.hub, Listening())
                    self.server._group = group  # as `Server.serve` does when its port is bound
                    await self.hub.ready.wait()
                    await self.hub.recovered.wait()
                    task_status.started()
                    await anyio.Event().wait()  # the loop has no timer for ever
        finally:
            self._over.set()

    # -- its clients -----------------------------------------------------------------------------------------

    async def wait(self, ms: float) -> None:
        """Let time pass; whatever can happen in it happens."""
        await self.clock.sleep_until(self.clock.monotonic_us() + int(ms * 1000))

    def dial(self, dialect: Dialect, more: str = "", path: str | None = None) -> "Peer":
        """Connect; `more` is added to the address."""
        usual, headers = PATHS[dialect]
        peer = Peer(self, dialect)
        upgraded = self.server._upgraded
        peer.line = Line(self.loop, upgraded, peer, (path or usual) + more, headers, lambda: LATENCY_US)
        self._lines.append(peer.line)
        return peer

    async def connect(self, dialect: Dialect, more: str = "", **session: object) -> "Peer":
        """Open a session."""
        peer = self.dial(dialect, more)
        if dialect == "duplex":
            await peer.send("session.update", session={"turn_detection": None, **session})
        peer.created = await peer.until("session.created")
        if dialect == "duplex":
            await peer.until("session.updated")
        elif session:
            await peer.update(**session)
        return peer

    async def come_back(self, peer: "Peer", last: int | None = None) -> "Peer":
        """Resume a session of the duplex dialect on a new connection, of which `last` was the last event heard."""
        again = self.dial("duplex")
        again.created = peer.created
        heard = [message["server_event_seq"] for message in peer.seen if "server_event_seq" in message]
        await again.send(
            "session.resume",
            session_id=peer.session,
            resume_token=peer.token,
            last_received_server_event_seq=max([0, *heard]) if last is None else last,
        )
        again.created = await again.until("session.resumed")
        return again

    async def come_back_by_address(self, peer: "Peer") -> "Peer":
        """Resume a session of another dialect."""
        last = peer.seen[-1]["event_id"]
        more = f"&resumable=1&session_id={peer.session}&resume_token={peer.token}&last_event_id={last}"
        again = self.dial(peer.dialect, more)
        again.created = await again.until("session.created")
        return again

    async def post(self, **body: object) -> list[bytes]:
        """Ask for a chat completion; return the pieces of the answer. It is streamed: no thread is in it."""
        app = application(self.hub, Gate(Access(), self.clock), lambda: b"")
        data, pieces, asked = _encode({"model": "m", "stream": True, **body}), list[bytes](), anyio.Event()

        async def receive() -> Shown:
            if asked.is_set():
                await anyio.Event().wait()  # the loop has no timer for ever
            asked.set()
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Shown) -> None:
            pieces.append(message.get("body", b""))

        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data))]
        path = "/v1/chat/completions"
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
        await app({**scope, "headers": headers, "http_version": "1.1", "scheme": "http"}, receive, send)  # type: ignore[arg-type]
        return pieces

    @asynccontextmanager
    async def beside(self, work: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
        """Let something go on beside the block, and wait for its end behind it."""
        async with anyio.create_task_group() as group:

            async def carry_out() -> None:
                await work()

            group.start_soon(carry_out)
            yield


class Peer:
    """A client: what it was told is in `seen`."""

    def __init__(self, here: Place, dialect: Dialect) -> None:
        self.here = here
        self.dialect: Dialect = dialect
        self.line: Line
        self.seen: list[Shown] = []
        self.created: Shown = {}
        self.code: int | None = None
        self.rate = 16_000 if dialect == "duplex" else 24_000
        self.encoding = "pcm16"
        """Of its voice; and `g711_ulaw`, `pcm_f32le`."""
        self._over = False
        self._looked = 0
        self._news = anyio.Event()

    @property
    def session(self) -> str:
        """The id of its session."""
        session: Shown = self.created.get("session") or {"id": self.created["session_id"]}
        return str(session["id"])

    @property
    def token(self) -> str:
        """What it may come back with."""
        return str(self.created["resume_token"])

    # -- what it hears ---------------------------------------------------------------------------------------

    def on_message(self, line: Line, data: bytes) -> None:
        """See `net.Reader`."""
        self.seen.append(msgspec.json.decode(data))
        self._news.set()

    def on_closed(self, line: Line, code: int | None) -> None:
        """See `net.Reader`."""
        self._over, self.code = True, code
        self._news.set()

    async def until(self, kind: str) -> Shown:
        """Return the next message of a kind that was not looked at."""
        while True:
            while self._looked < len(self.seen):
                self._looked += 1
                if self.seen[self._looked - 1]["type"] == kind:
                    return self.seen[self._looked - 1]
            assert not self._over, f"closed with {self.code} before {kind}; the last: {self.seen[-3:]}"
            self._news = anyio.Event()
            with anyio.fail_after(120):
                await self._news.wait()

    async def closed(self) -> int | None:
        """Wait until the connection is over; return its code."""
        while not self._over:
            self._news = anyio.Event()
            await self._news.wait()
        return self.code

    def kinds(self) -> list[str]:
        """Return the types of all messages so far."""
        return [message["type"] for message in self.seen]

    def last(self, kind: str) -> Shown:
        """Return the last message of a kind."""
        return next(message for message in reversed(self.seen) if message["type"] == kind)

    def _sample(self, loud: bool) -> bytes:
        match self.encoding:
            case "g711_ulaw":
                return b"\x9f" if loud else b"\xff"
            case "pcm_f32le":
                return struct.pack("<f", 0.25 if loud else 0.0)
            case _:
                return struct.pack("<h", 8_000 if loud else 0)

    # -- what it says ----------------------------------------------------------------------------------------

    def say(self, kind: str, **fields: object) -> None:
        """Send a message."""
        self.line.send(_encode({"type": kind, **fields}))

    async def send(self, kind: str, **fields: object) -> None:
        """Send a message, and give it time to be carried out."""
        self.say(kind, **fields)
        await self.here.wait(5)

    async def update(self, **session: object) -> Shown:
        """Change the session; return what was said to it."""
        kind = {} if self.dialect == "duplex" else {"type": "realtime"}
        await self.send("session.update", session={**kind, **session})
        return self.seen[-1]

    async def append(self, ms: int, *, loud: bool = True, **more: object) -> None:
        """Send one piece of voice, or of silence, when it has passed."""
        await self.sound(self._sample(loud) * (self.rate * ms // 1000), ms, **more)

    async def sound(self, sound: bytes, piece: int, **more: object) -> None:
        """Send sound of its format in pieces of so many milliseconds, each when it has passed."""
        size = len(self._sample(True)) * self.rate * piece // 1000
        for at in range(0, len(sound), size):
            await self.here.wait(piece)
            data = pybase64.b64encode_as_string(sound[at : at + size])
            self.say("input_audio_buffer.append", audio=data, **more)

    async def speak(self, ms: int, *, loud: bool = True, piece: int = PIECE_MS) -> None:
        """Speak, a piece at a time."""
        for _ in range(ms // piece):
            await self.append(piece, loud=loud)

    async def silence(self, ms: int, piece: int = PIECE_MS) -> None:
        """Be silent before an open microphone."""
        await self.speak(ms, loud=False, piece=piece)

    async def write(self, text: str, item_id: str | None = None) -> None:
        """Say something in writing."""
        item: Shown = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        await self.item(**item, **({"id": item_id} if item_id else {}))

    async def item(self, **item: object) -> None:
        """Add an item."""
        await self.send("conversation.item.create", item=item)

    async def ask(self, text: str) -> None:
        """Say something in writing and ask for the answer."""
        await self.write(text)
        await self.send("response.create")

    async def ack(self, played_ms: int, **more: object) -> None:
        """Say how much was played of the last answer."""
        response = self.last("response.created")["response"]["id"]
        await self.send("playback.ack", response_id=response, played_ms=played_ms, **more)

    async def close(self) -> None:
        """End the session."""
        await self.send("session.close")
        await self.closed()

    async def drop(self) -> None:
        """Lose the connection."""
        self.line.drop()
        await self.here.wait(5)
