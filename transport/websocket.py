"""A websocket on the server's side: the frames of `websockets`' sans-I/O core on an asyncio transport.

Inbound messages are handed on in the moment they are complete, by a plain call: nothing queues between the
socket and the session, and reading never waits for anything. Whole texts do not pass through the core, but through
`text_frames`; for that the socket keeps count of where frames begin.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, cast

import anyio
from websockets.datastructures import Headers
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from antiphon.engine.clock import Clock, Timer

from . import text_frames
from .codes import INTERNAL, INVALID_DATA, MAX_FRAME

PING_US = 20_000_000
"""Between two pings, and how long the pong to one may take."""

CLOSING_US = 5_000_000
"""How long the other side may take to answer a close, or to read what was still to be sent."""

HANDED = 256 * 1024
"""Bytes that may wait in the transport, beyond what the socket has accepted (DESIGN 5.11)."""

ROOM = 64 * 1024
"""More is written only when no more than this waits."""

STEP_US = 2_000
"""How long what has arrived is read in one go, before others get their turn."""

SLICE = 4096
"""Bytes that are read between two looks at the clock: hundreds of the smallest frames, a piece of a large one."""

HEAD = 10
"""Bytes of the longest head of a frame that we send."""


class Handler(Protocol):
    """Whoever a websocket serves."""

    def on_text(self, data: bytes) -> None:
        """A text message arrived, complete and valid UTF-8."""
        ...

    def on_binary(self) -> None:
        """A binary message arrived; its bytes are not kept."""
        ...

    def on_sign_of_life(self) -> None:
        """A control frame arrived."""
        ...

    def on_lost(self) -> None:
        """The connection is over; called once, also when it was closed from here."""
        ...


class Socket(Protocol):
    """What a connection needs of its socket; `WebSocket` says what each of these promises."""

    def send(self, messages: Iterable[bytes]) -> None:
        """Write text messages."""
        ...

    def fill(self, messages: Iterable[bytes]) -> int:
        """Write as many as fit, at least one; return how many."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether `room` returns at once."""
        ...

    async def room(self) -> None:
        """Wait until there is room."""
        ...

    def ping(self, answered: Callable[[], None]) -> None:
        """Ask whether the other side has read everything until here."""
        ...

    def close(self, code: int, reason: str = "") -> None:
        """Begin to close."""
        ...

    def cut_off(self) -> None:
        """End it without another word."""
        ...

    async def wait_lost(self) -> None:
        """Wait until it is over."""
        ...

    def pause(self) -> None:
        """Read no more for now."""
        ...

    def resume(self) -> None:
        """Read on."""
        ...


_REQUEST_END = b"\r\n\r\n"


ASCII = ("connection", "sec-websocket-", "upgrade")
"""How the names of the headers begin that an upgrade is about; their values are ASCII."""

_NOT_ASCII = (
    b'{"error":{"message":"The headers of an upgrade are ASCII.","type":"invalid_request_error",'
    b'"param":null,"code":null}}'
)
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

Accept = Callable[["WebSocket", Request], Handler | Response]
"""Decides about an upgrade: the handler of the connection, or the refusal."""


class WebSocket(asyncio.Protocol):
    """One connection, from the request for an upgrade to its end."""

    def __init__(self, accept: Accept, clock: Clock) -> None:
        self._accept = accept
        self._clock = clock
        # permessage-deflate costs more than it saves on sound: it is not negotiated.
        self._protocol = ServerProtocol(max_size=MAX_FRAME, select_subprotocol=_no_secret)
        self._transport: asyncio.Transport | None = None
        self._handler: Handler | None = None
        self._fragments: bytearray | None = None
        """The message that comes in pieces, so far: its bytes, for the pieces may be many and empty."""
        self._binary = False
        self._answered = False
        self._unread = b""
        self._at = 0
        """What has arrived, and up to where it was read."""
        self._behind = False
        """Whether the rest of it is read in a later step."""
        self._aligned = False
        """Whether it is known where frames begin."""
        self._line: bytes | None = b""
        """The last bytes of the request so far; None: it is complete."""
        self._owed = 0
        """Bytes to come of a frame that the core is in the middle of."""
        self._paused = False
        self._room = asyncio.Event()
        self._room.set()
        self._lost = anyio.Event()
        self._deadline: Timer | None = None
        self._ping_timer: Timer | None = None
        self._pings: dict[bytes, Callable[[], None]] = {}
        self._ping_count = 0

    # -- called by the one who is served ---------------------------------------------------------------------

    @property
    def open(self) -> bool:
        """Whether messages can still be sent."""
        return self._transport is not None and self._protocol.state is State.OPEN

    def send(self, messages: Iterable[bytes]) -> None:
        """Write text messages; after the end of the connection they are dropped."""
        framed: list[bytes] = []
        for message in messages:
            framed += (text_frames.head(len(message)), message)
        self._write(framed)

    def fill(self, messages: Iterable[bytes]) -> int:
        """Write as many text messages as fit, behind a wait for `room`, and at least one; return how many.

        Never more than `HANDED` bytes wait; only a single message that is larger is handed on whole.
        """
        framed: list[bytes] = []
        size = 0
        for message in messages:
            if framed and size + len(message) + HEAD > HANDED - ROOM:
                break
            framed += (text_frames.head(len(message)), message)
            size += len(message) + HEAD
        self._write(framed)
        return len(framed) // 2

    def _write(self, framed: Sequence[bytes]) -> None:
        """Write frames behind what the core has to say."""
        transport = self._transport
        if transport is None or self._protocol.state is not State.OPEN:
            return
        self._flush()
        if framed and not transport.is_closing():
            transport.write(b"".join(framed))

    @property
    def buffered(self) -> int:
        """Bytes that were written and that the socket has not accepted."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    @property
    def has_room(self) -> bool:
        """Whether `room` returns at once."""
        return self._room.is_set()

    async def room(self) -> None:
        """Wait until the socket has accepted nearly all that was written; returns at once on a lost one."""
        await self._room.wait()

    def ping(self, answered: Callable[[], None]) -> None:
        """Send a ping; `answered` is called when its pong arrives."""
        if self.open:
            self._ping_count += 1
            payload = b"%d" % self._ping_count
            self._pings[payload] = answered
            self._protocol.send_ping(payload)
            self._flush()

    def close(self, code: int, reason: str = "") -> None:
        """Begin to close. Whoever does not answer, or does not read the rest, is cut off after 5 s."""
        if self.open:
            self._protocol.send_close(code, reason.encode()[:123].decode(errors="ignore"))
            self._flush()
            self.resume()
            self._cut_off_later()

    def cut_off(self) -> None:
        """End the connection without another word."""
        if self._transport is not None:
            self._transport.abort()

    async def wait_lost(self) -> None:
        """Wait until the connection is over."""
        await self._lost.wait()

    def pause(self) -> None:
        """Read no more for now: the session is not open yet and enough is waiting for it."""
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        self._paused = False
        if self._transport is not None and not self._transport.is_closing() and not self._behind:
            self._transport.resume_reading()

    # -- asyncio ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport over; the bytes of the request follow."""
        # uvloop's transports are transports in all but their bases.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=ROOM, low=ROOM // 2)

    def data_received(self, data: bytes) -> None:
        """Take bytes from the socket: in steps, for they may be tens of thousands of frames."""
        self._unread = self._unread[self._at :] + data if self._unread else data
        self._at = 0
        if not self._behind:
            self._read()

    def _read(self) -> None:
        until: int | None = None
        self._behind = True
        while self._read_slice():
            transport = self._transport
            if transport is None or transport.is_closing():
                continue
            now = self._clock.monotonic_us()
            until = until or now + STEP_US  # most of the time there is only one slice, and no need for a clock
            if now >= until:
                transport.pause_reading()
                asyncio.get_running_loop().call_soon(self._read_on)
                return
        self._behind = False

    def _read_on(self) -> None:
        sound = False
        try:
            self._read()
            sound = True
        finally:
            if not sound:
                self.cut_off()  # as the loop does with an error in `data_received`
        if not self._behind and not self._paused:
            self.resume()

    def _read_slice(self) -> bool:
        """Read about `SLICE` bytes; return whether there is more to read."""
        stop = self._at + SLICE
        while self._at < len(self._unread) and self._read_frame():
            if stop <= self._at < len(self._unread):
                return True
        self._unread, self._at = self._unread[self._at :], 0
        return False

    def _read_rest(self) -> None:
        """The connection is over: what has arrived is still carried out."""
        while self._read_slice():
            pass
        self._unread = b""  # a frame whose end will not come

    def _read_frame(self) -> bool:
        """Read a frame, or a piece of one; return False if that has to wait for more of it."""
        data, at = self._unread, self._at
        if self._aligned and not self._owed:
            if self._fragments is None and self._protocol.state is State.OPEN:
                found = text_frames.read_text(data, at)
                if found is not None:
                    text, self._at = found
                    self._text(text)
                    return True
                if text_frames.begins_text(data, at):
                    return False
            self._owed = text_frames.extent(data, at)
            # Where the next one begins is lost with a head that comes in pieces: then the core reads all of them.
            self._aligned = self._owed > 0
        piece = data[at : at + min(SLICE, self._owed or self._request(data, at))]
        self._at += len(piece)
        self._owed = max(self._owed - len(piece), 0)
        self._protocol.receive_data(piece)
        self._handle()
        return True

    def _request(self, data: bytes, at: int) -> int:
        """Return how many bytes the core is given next of what it reads alone: the request, whose end is the first
        empty line; what follows are frames."""
        if self._line is None:
            return SLICE
        seen = self._line + data[at : at + SLICE]
        end = seen.find(_REQUEST_END)
        if end < 0:
            self._line = seen[1 - len(_REQUEST_END) :]
            return SLICE
        size = end + len(_REQUEST_END) - len(self._line)
        self._line, self._aligned = None, True
        return size

    def eof_received(self) -> bool:
        """The other side sends no more: the connection is over."""
        self._read_rest()
        self._protocol.receive_eof()
        self._handle()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        self._read_rest()
        for timer in (self._deadline, self._ping_timer):
            if timer is not None:
                timer.cancel()
        self._transport = None
        self._pings.clear()
        self._room.set()
        self._lost.set()
        if self._handler is not None:
            self._handler.on_lost()

    def pause_writing(self) -> None:
        """The transport holds enough."""
        self._room.clear()

    def resume_writing(self) -> None:
        """The socket has accepted most of it."""
        self._room.set()

    # -- frames ----------------------------------------------------------------------------------------------

    def _handle(self) -> None:
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._upgrade(event)
            elif isinstance(event, Frame):
                self._frame(event)
        if self._protocol.handshake_exc is not None and not self._answered and self._transport is not None:
            self._answered = True
            self._transport.write(_BAD_REQUEST)
        self._flush()
        if self._protocol.close_expected():
            self._cut_off_later()

    def _upgrade(self, request: Request) -> None:
        self._answered = True
        self._protocol.send_response(self._decided(request))
        self._flush()
        if self._handler is not None:
            self._ping_later()

    def _decided(self, request: Request) -> Response:
        """Return the answer to a request for an upgrade; with 101 there is a handler."""
        if not all(
            value.isascii() for name, value in request.headers.raw_items() if name.lower().startswith(ASCII)
        ):
            return refused(400, "Bad Request", _NOT_ASCII)  # `websockets` would fail with an error of its own
        response = self._protocol.accept(request)
        if self._protocol.handshake_exc is not None:
            return response
        decided = self._accept(self, request)
        if isinstance(decided, Response):
            return decided
        self._handler = decided
        return response

    def _frame(self, frame: Frame) -> None:
        handler = self._handler
        if handler is None:
            return
        if frame.opcode is Opcode.TEXT or frame.opcode is Opcode.BINARY or frame.opcode is Opcode.CONT:
            self._data(frame, handler)
        else:
            handler.on_sign_of_life()
            if frame.opcode is Opcode.PONG:
                answered = self._pings.pop(bytes(frame.data), None)
                if answered is not None:
                    answered()

    def _data(self, frame: Frame, handler: Handler) -> None:
        if frame.opcode is not Opcode.CONT:
            self._binary = frame.opcode is Opcode.BINARY
        if not frame.fin or self._fragments is not None:
            if self._fragments is None:
                self._fragments = bytearray()
            if not self._binary:
                self._fragments += frame.data
            if not frame.fin:
                return
            data = bytes(self._fragments)
            self._fragments = None
        else:
            data = bytes(frame.data)
        if self._binary:
            handler.on_binary()
        else:
            self._text(data)

    def _text(self, data: bytes) -> None:
        if not (data.isascii() or _is_utf8(data)):
            self._protocol.fail(INVALID_DATA, "invalid UTF-8")
            self._flush()
        elif self._handler is not None:
            self._handler.on_text(data)

    def _flush(self) -> None:
        transport = self._transport
        chunks = self._protocol.data_to_send()
        if transport is None or transport.is_closing():
            return
        ended = bool(chunks) and chunks[-1] == b""
        data = [chunk for chunk in chunks if chunk]
        if len(data) == 1:
            transport.write(data[0])
        elif data:
            transport.write(b"".join(data))
        if ended:
            transport.close()
            self._cut_off_later()

    # -- time ------------------------------------------------------------------------------------------------

    def _cut_off_later(self) -> None:
        if self._deadline is None and self._transport is not None:
            self._deadline = self._clock.call_at(self._clock.monotonic_us() + CLOSING_US, self.cut_off)

    def _ping_later(self) -> None:
        self._ping_timer = self._clock.call_at(self._clock.monotonic_us() + PING_US, self._keep_alive)

    def _keep_alive(self) -> None:
        """Ping; whoever does not answer within 20 s is gone."""
        self.ping(self._ping_answered)
        self._ping_timer = self._clock.call_at(self._clock.monotonic_us() + PING_US, self._silent)

    def _ping_answered(self) -> None:
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        self._ping_later()

    def _silent(self) -> None:
        if self.open:
            self._protocol.fail(INTERNAL, "keepalive ping timeout")
            self._flush()
        self.cut_off()


def refused(status: int, reason: str, body: bytes) -> Response:
    """Return the HTTP answer to an upgrade that is not granted."""
    headers = Headers()
    headers["Content-Type"] = "application/json"
    headers["Content-Length"] = str(len(body))
    headers["Connection"] = "close"
    return Response(status, reason, headers, body)


_REALTIME = Subprotocol("realtime")


def _no_secret(_protocol: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Choose `realtime` if it is offered, else nothing: a list that holds a key is never echoed (WIRE 1.2)."""
    return _REALTIME if _REALTIME in offered else None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
