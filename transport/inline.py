"""The in-process client: a session in one's own program, with the methods and the events of the socket client."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

import anyio.lowlevel

from antiphon.engine.clock import Clock, Timer
from antiphon.engine.hub import Hub

from .client import HEARTBEAT_S, SessionClient
from .client_line import Retrying
from .client_link import Cut, Link, SessionOptions
from .codes import NORMAL
from .connection import Connection
from .handshake import Invitation
from .websocket import CLOSING_US, HANDED, ROOM, Handler


class Pipe:
    """What stands between a client and its `Connection` in one process: whole messages in place of a websocket.

    It takes no more than a websocket does, so that whoever does not read is treated alike.
    """

    def __init__(self, clock: Clock) -> None:
        self.handler: Handler | None = None
        """The connection's side; it is called when a message arrives, and when the pipe is lost."""
        self._clock = clock
        self._messages: deque[bytes | Callable[[], None]] = deque()
        self._size = 0
        self._over: tuple[int, str] | None = None
        self._news = asyncio.Event()
        self._room = _set_event()
        self._reading = _set_event()
        self._lost = asyncio.Event()
        self._deadline: Timer | None = None

    # -- the connection's side, as a websocket has it --------------------------------------------------------

    def send(self, messages: Iterable[bytes]) -> None:
        """Hand messages over; after the end they are dropped."""
        if self._over is not None:
            return
        for message in messages:
            self._messages.append(message)
            self._size += len(message)
        if self._size > ROOM:
            self._room.clear()
        self._news.set()

    def fill(self, messages: Iterable[bytes]) -> int:
        """Hand over as many messages as fit, behind a wait for `room`, and at least one; return how many."""
        count = 0
        for message in messages:
            if count and self._size + len(message) > HANDED:
                break
            self.send([message])
            count += 1
        return count

    @property
    def has_room(self) -> bool:
        """Whether `room` returns at once."""
        return self._room.is_set()

    async def room(self) -> None:
        """Wait until nearly everything was read; returns at once when the pipe is lost."""
        await self._room.wait()

    def ping(self, answered: Callable[[], None]) -> None:
        """Let `answered` be called when everything before it was read."""
        if self._over is None:
            self._messages.append(answered)
            self._news.set()

    def close(self, code: int, reason: str = "") -> None:
        """Begin to close. Whoever does not read the rest is cut off after 5 s."""
        if self._over is None:
            self._over = code, reason
            self._news.set()
            self.resume()
            self._deadline = self._clock.call_at(self._clock.monotonic_us() + CLOSING_US, self.cut_off)

    def cut_off(self) -> None:
        """End it without another word."""
        if self._lost.is_set():
            return
        if self._over is None:
            self._over = NORMAL, "cut off"
        if self._deadline is not None:
            self._deadline.cancel()
        for event in (self._lost, self._room, self._news, self._reading):
            event.set()
        if self.handler is not None:
            self.handler.on_lost()

    async def wait_lost(self) -> None:
        """Wait until it is over."""
        await self._lost.wait()

    def pause(self) -> None:
        """Take no more messages for now."""
        self._reading.clear()

    def resume(self) -> None:
        """Take messages again."""
        self._reading.set()

    # -- the client's side -----------------------------------------------------------------------------------

    async def give(self, message: bytes) -> None:
        """Hand a message to the connection, and give others their turn.

        Raises:
            Cut: the pipe is closed.
        """
        await self._reading.wait()
        if self._over is not None or self.handler is None:
            raise self._cut()
        self.handler.on_text(message)
        await anyio.lowlevel.checkpoint()

    async def take(self) -> bytes:
        """Return the next message.

        Raises:
            Cut: the pipe is closed, and everything was read.
        """
        while True:
            while self._messages:
                message = self._messages.popleft()
                if not isinstance(message, bytes):
                    message()
                    continue
                self._size -= len(message)
                if self._size <= ROOM // 2:
                    self._room.set()
                return message
            if self._over is not None:
                self.cut_off()
                raise self._cut()
            self._news.clear()
            await self._news.wait()

    def drop(self) -> None:
        """Lose it on the client's side: what was not read yet is gone too, as with a socket."""
        self._messages.clear()
        self.cut_off()

    def _cut(self) -> Cut:
        code, reason = self._over or (NORMAL, "")
        return Cut(f"the connection was closed: {code} {reason}")


class InlineLink(Link):
    """The client's end of a pipe."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    async def send(self, frame: bytes) -> None:
        """Hand a message over; raises `Cut`."""
        await self._pipe.give(frame)

    async def frame(self) -> bytes:
        """Return the next message; raises `Cut`."""
        return await self._pipe.take()

    async def close(self) -> None:
        """Nothing has to be said."""

    def cut(self) -> None:
        """Drop the pipe."""
        self._pipe.drop()


class InlineClient(SessionClient):
    """A session of a hub in the same program. It is told and taken what a socket client is, message for message.

    `hub` may be a function that returns it, for a program that opens its hub anew: the session is resumed there.
    """

    def __init__(
        self,
        hub: Hub | Callable[[], Hub],
        options: SessionOptions | None = None,
        *,
        clock: Clock | None = None,
        retrying: Retrying | None = None,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._hub = hub if callable(hub) else lambda: hub
        clock = clock or self._hub().clock
        super().__init__(options, clock=clock, retrying=retrying, heartbeat_s=heartbeat_s)
        self._model = None if options is None else options.model

    async def _dial(self) -> Link:
        hub = self._hub()
        pipe = Pipe(hub.clock)
        connection = Connection(hub, pipe, Invitation("duplex", self._model, at_once=False))
        pipe.handler = connection
        self._group.start_soon(connection.run)
        return InlineLink(pipe)


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


__all__ = ["InlineClient"]
