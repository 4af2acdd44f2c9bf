"""The two clients of the chaos test: ours, and one that speaks the GA dialect and comes back by its address."""

import random
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self
from urllib.parse import urlencode

import anyio
import msgspec
from msgspec import Struct
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from antiphon.transport import wire_client as say
from antiphon.transport.client import RealtimeClient, Retrying, SessionLost
from antiphon.transport.client_commands import Commands, InputFormat
from antiphon.transport.client_events import number_of
from antiphon.transport.client_link import Link, SessionOptions
from antiphon.transport.client_outbox import Outbox
from antiphon.transport.codes import FATAL_RESUME
from antiphon.transport.wire_client import ClientEvent

from tests.chaos.journal import Contact, Journal
from tests.simulation.peer import Shown

SHORTEST_S, LONGEST_S = 0.02, 0.2
PATIENT = Retrying(attempts=100_000, shortest_s=SHORTEST_S, longest_s=LONGEST_S)
HEARTBEAT_S = 0.7
AGAIN = 4
"""Commands that a client sends again although they are said to be applied: they must not count twice."""

GONE = "session_resume_expired"

Hear = Callable[[Shown], None]
read: Callable[[bytes], Shown] = msgspec.json.Decoder(Shown).decode


class _Counted(Struct):
    client_seq: int = 0
    last_received_server_event_seq: int = 0


_count = msgspec.json.Decoder(_Counted).decode


class Client(Protocol):
    """What a talk needs: the commands, and the ways a connection or a session ends."""

    @property
    def commands(self) -> Commands:
        """Where commands go."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def drop(self) -> None:
        """Lose the connection."""
        ...

    async def finish(self) -> None:
        """Ask for the end of the session, and wait until it has come."""
        ...


class Tap(Link):
    """A connection of our client, of which every frame is noted."""

    def __init__(self, inner: Link, journal: Journal, hear: Hear) -> None:
        self._inner = inner
        self._journal = journal
        self._hear = hear
        self._contact = Contact()
        journal.contacts.append(self._contact)

    async def send(self, frame: bytes) -> None:
        """See `Link`."""
        said = _count(frame)
        self._contact.behind = self._contact.behind or said.last_received_server_event_seq
        if said.client_seq:
            self._journal.said(said.client_seq, frame)
        await self._inner.send(frame)

    async def frame(self) -> bytes:
        """See `Link`."""
        frame = await self._inner.frame()
        self._contact.frames.append(frame)
        self._hear(read(frame))
        return frame

    async def close(self) -> None:
        """See `Link`."""
        await self._inner.close()

    def cut(self) -> None:
        """See `Link`."""
        self._inner.cut()


class DuplexClient(RealtimeClient):
    """Our client; what it is told and says goes into a journal."""

    def __init__(self, url: str, options: SessionOptions, journal: Journal, hear: Hear) -> None:
        super().__init__(url, options, retrying=PATIENT, heartbeat_s=HEARTBEAT_S)
        self._journal = journal
        self._hear = hear
        self._reading = anyio.Event()

    async def _dial(self) -> Link:
        return Tap(await super()._dial(), self._journal, self._hear)

    @property
    def commands(self) -> Commands:
        """Itself."""
        return self

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._journal.session = self.session_id
        self._group.start_soon(self._read)
        return self

    async def _read(self) -> None:
        try:
            async for event in self.events():
                number = number_of(event)
                if number:
                    self._journal.given.append(number)
        except SessionLost as lost:
            self._journal.lost = f"{lost.code}: {lost}"
        self._reading.set()

    def drop(self) -> None:
        """See `Client`."""
        self.drop_socket()

    async def finish(self) -> None:
        """See `Client`."""
        await self.close()
        await self._reading.wait()
        if not self._journal.lost:
            types = [read(frame).type for contact in self._journal.contacts[-1:] for frame in contact.frames[-1:]]
            self._journal.ending = "heard" if types == ["session.closed"] else "unheard"


class PlainClient(Commands):
    """A GA client with `resumable=1` that counts its commands, and comes back by the address (docs/wire.md)."""

    def __init__(self, url: str, patch: dict[str, object], journal: Journal, hear: Hear) -> None:
        self._url = f"{url.replace('http', 'ws', 1)}/v1/realtime"
        self._patch = patch
        self._journal = journal
        self._hear = hear
        self._outbox = Outbox()
        self._query = {"resumable": "1"}
        self._socket: ClientConnection | None = None
        self._random = random.SystemRandom()
        self._opened = anyio.Event()
        self._over = anyio.Event()
        self._group = anyio.create_task_group()
        self._closing = False

    @property
    def commands(self) -> Commands:
        """Itself."""
        return self

    @property
    def input_format(self) -> InputFormat:
        """What it says with every append."""
        return InputFormat("pcm16", 24_000)

    def _send(self, event: ClientEvent) -> None:
        self._outbox.put(event)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._group.start_soon(self._live)
        try:
            await self._opened.wait()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        if self._patch:
            self._send(say.SessionUpdate(session=msgspec.Raw(msgspec.json.encode(self._patch))))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._group.cancel_scope.cancel()
        await self._group.__aexit__(None, None, None)

    def drop(self) -> None:
        """See `Client`."""
        if self._socket is not None:
            self._socket.transport.abort()

    async def finish(self) -> None:
        """See `Client`."""
        self._closing = True
        self._send(say.SessionClose(reason="done"))
        await self._over.wait()

    async def _live(self) -> None:
        while not self._over.is_set():
            try:
                async with connect(
                    f"{self._url}?{urlencode(self._query)}", max_size=None, compression=None, close_timeout=0.2
                ) as socket:
                    self._socket = socket
                    await self._serve(socket)
            except (OSError, TimeoutError, EOFError, InvalidHandshake, ConnectionClosed):
                pass
            self._socket = None
            await anyio.sleep(self._random.uniform(SHORTEST_S, LONGEST_S))

    async def _serve(self, socket: ClientConnection) -> None:
        contact = Contact(asked=self._query.get("last_event_id", ""))
        self._journal.contacts.append(contact)
        async with anyio.create_task_group() as group:
            try:
                while True:
                    frame = await socket.recv(decode=False)
                    contact.frames.append(frame)
                    shown = read(frame)
                    self._take(shown)
                    self._hear(shown)
                    if shown.type == "session.created":
                        self._outbox.restart(max(shown.last_client_seq - AGAIN, 0))
                        group.start_soon(self._write, socket)
            except ConnectionClosed:
                pass
            group.cancel_scope.cancel()

    async def _write(self, socket: ClientConnection) -> None:
        try:
            while True:
                for frame in self._outbox.take():
                    self._journal.said(_count(frame).client_seq, frame)
                    await socket.send(frame, text=True)
                await self._outbox.wait_news()
        except ConnectionClosed:
            return

    def _take(self, shown: Shown) -> None:
        """Do as docs/wire.md says that an application does, and no more."""
        code = str(shown.error.get("code")) if shown.error is not None else ""
        if shown.type == "session.created" and shown.session is not None:
            self._journal.session = str(shown.session["id"])
            self._query |= {"session_id": self._journal.session, "resume_token": shown.resume_token or ""}
            self._opened.set()
        elif shown.type == "session.heartbeat_ack":
            self._outbox.heartbeat_answered()
        elif shown.type == "session.closed":
            self._journal.ending = "heard"
            self._over.set()
        elif code == GONE and self._closing:
            self._journal.ending = "unheard"
            self._over.set()
        elif code in FATAL_RESUME:
            self._journal.lost = code
            self._over.set()
        if "session_id" in self._query:
            self._query["last_event_id"] = shown.event_id
