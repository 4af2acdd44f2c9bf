"""The socket client: a session that survives its sockets, with typed events and commands applied exactly once."""

import ssl
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator
from types import TracebackType
from typing import Self, TypeVar

import anyio
from anyio.abc import TaskGroup

from antiphon.engine.clock import Clock, SystemClock

from . import wire_client as say
from . import wire_server as out
from .client_commands import Commands
from .client_events import Received
from .client_line import Line, Retrying, SessionLost
from .client_link import SessionOptions
from .wire_client import ClientEvent
from .wire_view import SessionOut

HEARTBEAT_S = 10.0
CLOSING_S = 20.0

E = TypeVar("E", bound=out.ServerEvent)


class RealtimeClient(Commands):
    """A session in the duplex dialect. Opens it when it is entered and closes it when it is left.

    Commands are plain calls that never wait; each is applied exactly once, whatever happens to the socket.
    `events` gives everything the session says, once and in order. One task reads. `tls` says whom it trusts at a
    wss:// address; None: whom this machine trusts.
    """

    def __init__(
        self,
        url: str,
        options: SessionOptions | None = None,
        *,
        api_key: str | None = None,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
        retrying: Retrying | None = None,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._clock = clock or SystemClock()
        self._line = Line(
            url,
            options or SessionOptions(),
            api_key=api_key,
            tls=tls,
            clock=self._clock,
            retrying=retrying or Retrying(),
            heartbeat_s=heartbeat_s,
        )
        self._group: TaskGroup = anyio.create_task_group()
        self._kept_back: deque[Received] = deque()

    # -- what is known ---------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """The name of the session."""
        return self._line.session_id

    @property
    def session(self) -> SessionOut | None:
        """The session as the server last showed it."""
        return self._line.session

    @property
    def last_number(self) -> int:
        """The last numbered event that arrived."""
        return self._line.last_number

    @property
    def generation(self) -> int:
        """How many sockets the session has had."""
        return self._line.generation

    # -- life ------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Connect and open the session.

        Raises:
            SessionLost: it could not be opened.
        """
        try:
            await self._line.open()
        except BaseException:
            self._line.shut()
            raise
        await self._group.__aenter__()
        self._group.start_soon(self._line.live)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        elif self._line.connected and not self._line.ended.is_set():
            # Said on the way out: a dropped socket would hold the session's slot for its whole grace (D36).
            with anyio.CancelScope(shield=True), anyio.move_on_after(1.0):
                self._send(say.SessionClose(reason="client_error"))
                await self._line.outbox.wait_taken()
        self._group.cancel_scope.cancel()
        try:
            # Without the error of the block: it is to come out as it is, not in a group of errors.
            await self._group.__aexit__(None, None, None)
        finally:
            self._line.shut()

    async def close(self, reason: str = "client_close") -> None:
        """End the session and wait for its last word, at most 20 s. Events stay readable."""
        if not self._line.ended.is_set():
            self._line.closing = True
            self._send(say.SessionClose(reason=reason))
            with anyio.move_on_after(CLOSING_S):
                await self._line.ended.wait()

    def drop_socket(self) -> None:
        """Lose the socket, as a bad network does; the session is resumed on a new one."""
        self._line.cut()

    def _send(self, event: ClientEvent) -> None:
        self._line.send(event)

    async def stream_pcm(
        self, sound: bytes | AsyncIterable[bytes], *, rate: int, piece_ms: int = 80, width: int = 2
    ) -> None:
        """Send sound as fast as it would be spoken: each piece when its end has been reached on the clock.

        `sound` is pcm16 of `rate` Hz (`width` bytes a sample), whole or in pieces of any size.
        """
        size = rate * piece_ms // 1000 * width
        begin_us, sent = self._clock.monotonic_us(), 0
        async for piece in _pieces(sound, size):
            self.append_audio(piece, rate=rate)
            sent += len(piece)
            await self._clock.sleep_until(begin_us + sent * 1_000_000 // (rate * width))
            await self._line.outbox.wait_taken()

    # -- events ----------------------------------------------------------------------------------------------

    async def events(self) -> AsyncIterator[Received]:
        """Give every event once, in order, until the session is over.

        Raises:
            SessionLost: the session cannot be reached any more.
        """
        while True:
            event = self._kept_back.popleft() if self._kept_back else await self._line.receive()
            if event is None:
                return
            yield event

    async def wait_for(self, kind: type[E], *, timeout_s: float = 30.0) -> E:
        """Return the next event of a kind. What comes before it is kept for `events`.

        Raises:
            TimeoutError: it did not come in time.
            SessionLost: it will not come.
        """
        for event in self._kept_back:
            if isinstance(event, kind):
                self._kept_back.remove(event)
                return event
        with anyio.fail_after(timeout_s):
            while (came := await self._line.receive()) is not None:
                if isinstance(came, kind):
                    return came
                self._kept_back.append(came)
        raise SessionLost("session_closed", f"no {kind.__name__} came before the end")


def connect(
    url: str,
    options: SessionOptions | None = None,
    *,
    api_key: str | None = None,
    tls: ssl.SSLContext | None = None,
) -> RealtimeClient:
    """Return a client for `async with`."""
    return RealtimeClient(url, options, api_key=api_key, tls=tls)


async def _pieces(sound: bytes | AsyncIterable[bytes], size: int) -> AsyncIterator[bytes]:
    """Cut sound into pieces of `size` bytes; the last may be shorter."""
    if isinstance(sound, bytes):
        for start in range(0, len(sound), size):
            yield sound[start : start + size]
        return
    rest = b""
    async for more in sound:
        rest += more
        while len(rest) >= size:
            yield rest[:size]
            rest = rest[size:]
    if rest:
        yield rest


__all__ = ["RealtimeClient", "Retrying", "SessionLost", "SessionOptions", "connect"]
