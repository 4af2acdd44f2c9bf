"""The clients' common half, and the one over websockets: a session that survives its connections."""

import ssl
from abc import abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import aclosing
from types import TracebackType
from typing import Self, TypeVar

import anyio
from anyio.abc import TaskGroup

from antiphon.engine.clock import Clock, SystemClock

from . import wire_client as say
from . import wire_server as out
from .client_commands import Commands, InputFormat
from .client_errors import SessionLost, SoundDropped
from .client_events import Received
from .client_inbox import Listener, Reading
from .client_line import Line, Retrying
from .client_link import Link, SessionOptions, WebsocketLink, address
from .client_response import FunctionCall, Response, Sound
from .devices import Device, microphone
from .wire_client import ClientEvent
from .wire_view import SessionOut

HEARTBEAT_S = 10.0
CLOSING_S = 20.0
PIECE_MS = 80

E = TypeVar("E", bound=out.ServerEvent)


class SessionClient(Commands):
    """A session in the duplex dialect. Opens it when it is entered and closes it when it is left.

    Commands are plain calls that never wait; each is applied exactly once, whatever happens to the connection.
    `events` gives everything the session says, once and in order; `responses` its answers, one by one; both may be
    used at the same time, and `listen` beside them. One task reads, whether or not anybody takes what it reads:
    whoever has begun to take holds it up once 1,024 events wait; for whoever is not there 8,192 are kept, and
    `events` says `Missed` if there were more.
    """

    def __init__(
        self, options: SessionOptions | None, *, clock: Clock, retrying: Retrying | None, heartbeat_s: float
    ) -> None:
        self._clock = clock
        self._line = Line(
            self._dial,
            options or SessionOptions(),
            clock=clock,
            retrying=retrying or Retrying(),
            heartbeat_s=heartbeat_s,
        )
        self._group: TaskGroup = anyio.create_task_group()

    @abstractmethod
    async def _dial(self) -> Link:
        """Make a connection; raises `Cut` or `Refused`."""

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
    def input_format(self) -> InputFormat:
        """The format of what `append_audio` is given, unless it is told another: what the server last confirmed."""
        shown = self._line.session
        if shown is None:
            return InputFormat("pcm16", 16_000)
        return InputFormat(shown.input_audio_format, shown.audio.input.sample_rate_hz)

    @property
    def last_number(self) -> int:
        """The last numbered event that arrived."""
        return self._line.last_number

    @property
    def generation(self) -> int:
        """How many connections the session has had."""
        return self._line.generation

    @property
    def clock(self) -> Clock:
        """The time that the client lives in."""
        return self._clock

    # -- life ------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Connect and open the session.

        Raises:
            SessionLost: it could not be opened.
        """
        await self._group.__aenter__()
        try:
            await self._line.open()
        except BaseException:
            await self._leave()
            raise
        self._group.start_soon(self._line.live)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        elif self._line.connected and not self._line.ended.is_set():
            # Said on the way out: a dropped connection would hold the session's slot for its whole grace (D36).
            with anyio.CancelScope(shield=True), anyio.move_on_after(1.0):
                self._send(say.SessionClose(reason="client_error"))
                await self._line.outbox.wait_taken()
        await self._leave()

    async def _leave(self) -> None:
        self._group.cancel_scope.cancel()
        try:
            # Without the error of the block: it is to come out as it is, not in a group of errors.
            await self._group.__aexit__(None, None, None)
        finally:
            self._line.inbox.end(self._line.lost)

    async def close(self, reason: str = "client_close") -> None:
        """End the session and wait for its last word, at most 20 s. Events stay readable."""
        if not self._line.ended.is_set():
            self._line.closing = True
            self._send(say.SessionClose(reason=reason))
            with anyio.move_on_after(CLOSING_S):
                await self._line.ended.wait()

    def drop_socket(self) -> None:
        """Lose the connection, as a bad network does; the session is resumed on a new one."""
        self._line.cut()

    def _send(self, event: ClientEvent) -> None:
        self._line.send(event)

    async def stream_pcm(
        self,
        sound: bytes | AsyncIterable[bytes],
        *,
        rate: int | None = None,
        piece_ms: int | None = None,
        width: int | None = None,
    ) -> None:
        """Send sound as fast as it would be spoken: each piece when its end has been reached on the clock.

        `sound` is whole or in pieces of any size, in the session's input format; `rate` (Hz) and `width` (bytes of
        a sample) may say otherwise. It is sent in the pieces that the model takes, of 80 ms if it does not care.
        """
        here = self.input_format
        shown = self.session
        piece_ms = piece_ms or (None if shown is None else shown.capabilities.chunk_period_ms) or PIECE_MS
        rate, width = rate or here.rate, width or here.width
        size = rate * piece_ms // 1000 * width
        begin_us, sent = self._clock.monotonic_us(), 0
        async for piece in _pieces(sound, size):
            self.append_audio(piece, rate=rate)
            sent += len(piece)
            await self._clock.sleep_until(begin_us + sent * 1_000_000 // (rate * width))
            await self._line.outbox.wait_taken()

    async def stream_microphone(self, device: Device = None) -> None:
        """Send what this machine's microphone hears, at the rate of the session's input, until it is cancelled.

        Raises:
            NoDevice: there is none, or it has ended; the message says what to install.
        """
        rate = self.input_format.rate
        async with aclosing(microphone(rate, device)) as pieces:
            async for piece in pieces:
                self.append_audio(piece, encoding="pcm16", rate=rate)

    # -- events ----------------------------------------------------------------------------------------------

    def events(self) -> AsyncIterator[Received]:
        """Give every event once, in order, until the session is over; raises `SessionLost` if it was lost.

        May be left and taken up again. Two loops at the same time share the events.
        """
        return Reading(self._line.inbox, lambda: self._line.lost)

    async def responses(self) -> AsyncIterator[Response]:
        """Give every answer once, when it begins, until the session is over.

        May be left and taken up again; of those that nobody took meanwhile the last 8 are kept.

        Raises:
            SessionLost: the session cannot be reached any more.
        """
        while (response := await self._line.inbox.responses.next()) is not None:
            yield response

    async def wait_for(
        self, kind: type[E], where: Callable[[E], bool] = lambda _: True, *, timeout_s: float = 30.0
    ) -> E:
        """Return the next event of a kind for which `where` is so. What comes before it is kept for `events`.

        It is not given by `events` as well, unless a loop over those is running.

        Raises:
            TimeoutError: it did not come in time.
            SessionLost: it will not come.
        """
        with anyio.fail_after(timeout_s):
            event = await self._line.inbox.wait(kind, where)
        if event is None:
            raise self._line.lost or SessionLost("session_closed", f"no {kind.__name__} came before the end")
        return event

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event from now on, as it arrives; return what stops that.

        It must not wait, and an error of its own ends the client.
        """
        return self._line.inbox.listen(listener)


class RealtimeClient(SessionClient):
    """A session over websockets, as many as it takes.

    `tls` says whom it trusts at a wss:// address; None: whom this machine trusts.
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
        super().__init__(options, clock=clock or SystemClock(), retrying=retrying, heartbeat_s=heartbeat_s)
        self._url = url
        self._model = None if options is None else options.model
        self._api_key = api_key
        self._tls = tls

    async def _dial(self) -> Link:
        return await WebsocketLink.dial(address(self._url, self._model), self._api_key, self._tls)


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


__all__ = [
    "FunctionCall",
    "RealtimeClient",
    "Response",
    "Retrying",
    "SessionClient",
    "SessionLost",
    "SessionOptions",
    "Sound",
    "SoundDropped",
    "connect",
]
