"""A connection of a world: a real `WebSocket` of the server on a made-up transport, and the client's end of it."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from antiphon.transport.websocket import WebSocket

from .loop import SimLoop

KEY = "x3JJHMbDL1EzLkh9GBhXDw=="
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
WINDOW = 64 * 1024
"""Bytes that are on their way at once: what is more waits in the transport, as in a socket's buffer."""


class Reader(Protocol):
    """Whoever holds the client's end."""

    def on_message(self, line: "Line", data: bytes) -> None:
        """A text message has arrived."""
        ...

    def on_closed(self, line: "Line", code: int | None) -> None:
        """The connection is over, as the client sees it; None: without a close frame."""
        ...


class Pipe(asyncio.Transport):
    """The server's transport: what it writes arrives at the client a little later, in order."""

    def __init__(self, line: "Line") -> None:
        super().__init__()
        self._line = line
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._high, self._low = 64 * 1024, 16 * 1024
        self._full = False
        self._flying = 0
        self._closing = False
        self.dead = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See `asyncio`."""
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """See `asyncio`."""
        return self._size

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `asyncio`."""
        if self.dead or self._closing:
            return
        self._waiting.append(bytes(data))
        self._size += len(data)
        self._move()
        if self._size > self._high and not self._full:
            self._full = True
            self._line.socket.pause_writing()

    def _move(self) -> None:
        line = self._line
        while self._waiting and self._flying < WINDOW and line.reads and not line.silent:
            data = self._waiting.popleft()
            self._flying += len(data)
            line.later(lambda data=data: self._arrive(data))

    def _arrive(self, data: bytes) -> None:
        self._flying -= len(data)
        self._size -= len(data)
        self._line.arrive(data)
        self.read_on()

    def read_on(self) -> None:
        """The client reads again."""
        if self.dead:
            return
        self._move()
        if self._full and self._size <= self._low:
            self._full = False
            self._line.socket.resume_writing()
        if self._closing and not self._waiting and not self._flying:
            self._end()

    def is_closing(self) -> bool:
        """See `asyncio`."""
        return self._closing or self.dead

    def close(self) -> None:
        """See `asyncio`: what was written still leaves."""
        if not self._closing:
            self._closing = True
            if not self._waiting and not self._flying:
                self._end()

    def abort(self) -> None:
        """See `asyncio`."""
        self._closing = True
        self._end()

    def pause_reading(self) -> None:
        """See `asyncio`."""
        self._line.held = True

    def resume_reading(self) -> None:
        """See `asyncio`."""
        self._line.release()

    def _end(self) -> None:
        if not self.dead:
            self.dead = True
            self._waiting.clear()
            loop = self._line.loop
            loop.call_soon(self._line.socket.connection_lost, None)
            self._line.later(self._line.over)


class Line:
    """A connection from a client to a process. The client writes whole messages, and is told whole messages.

    `reads` False: the client takes nothing from the network. `silent`: nothing arrives any more, in either
    direction, and nobody is told (half-open).
    """

    def __init__(
        self,
        loop: SimLoop,
        make: Callable[[], WebSocket],
        reader: Reader,
        path: str,
        headers: str,
        latency: Callable[[], int],
    ) -> None:
        self.loop = loop
        self.reads = True
        self.silent = False
        self.held = False
        self.open = False
        self.ended = False
        self.code: int | None = None
        self.replaced = False
        self._reader = reader
        self._latency = latency
        self._last_us = 0
        self._last_back_us = 0
        self._buffer = b""
        self._unsent: list[bytes] = []
        self._arrived: deque[bytes] = deque()
        self.socket = make()
        self._write = self.socket._write
        self.socket._write = self._leaving  # type: ignore[method-assign]
        self.leaves: Callable[[bytes], None] | None = None
        """Told of each message that the server hands to the socket."""
        self.pipe = Pipe(self)
        loop.call_soon(self.socket.connection_made, self.pipe)
        request = (
            f"GET {path} HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n{headers}\r\n"
        )
        self._to_server(request.encode())

    # -- the client's end ------------------------------------------------------------------------------------

    def send(self, payload: bytes, opcode: int = TEXT) -> None:
        """Send a message; before the connection stands it waits."""
        frame = _frame(payload, opcode)
        if self.open:
            self._to_server(frame)
        elif not self.ended:
            self._unsent.append(frame)

    def drop(self) -> None:
        """Lose the connection: both ends notice, each in its time."""
        if not self.ended:
            self.later_back(self._cut)
            self.later(self.over)

    def vanish(self) -> None:
        """Let nothing arrive any more, and tell nobody."""
        self.silent = True

    def stop_reading(self, stop: bool) -> None:
        """Let the client take nothing from the network, or go on."""
        self.reads = not stop
        if not stop:
            self.pipe.read_on()

    def over(self) -> None:
        """The client notices that it is over."""
        if not self.ended and not self.silent:
            self.end()

    def end(self) -> None:
        """The client holds it to be over."""
        self.ended, self.open = True, False
        self._reader.on_closed(self, self.code)

    def arrive(self, data: bytes) -> None:
        """Bytes reach the client."""
        if self.silent or self.ended:
            return
        self._buffer += data
        if not self.open:
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            self._buffer = rest
            if not head.startswith(b"HTTP/1.1 101"):
                return
            self.open = True
            unsent, self._unsent = self._unsent, []
            for frame in unsent:
                self._to_server(frame)
        self._read()

    def _read(self) -> None:
        while len(self._buffer) >= 2 and not self.ended:
            opcode, size, at = self._buffer[0] & 15, self._buffer[1] & 127, 2
            if size == 126:
                size, at = int.from_bytes(self._buffer[2:4], "big"), 4
            elif size == 127:
                size, at = int.from_bytes(self._buffer[2:10], "big"), 10
            if len(self._buffer) < at + size:
                return
            payload, self._buffer = self._buffer[at : at + size], self._buffer[at + size :]
            if opcode == TEXT:
                self._reader.on_message(self, payload)
            elif opcode == PING:
                self.send(payload, PONG)
            elif opcode == CLOSE:
                self.code = int.from_bytes(payload[:2], "big") if payload else None
                self.send(payload[:2], CLOSE)

    def _leaving(self, framed: Sequence[bytes]) -> None:
        if self.leaves is not None:
            for message in framed[1::2]:  # a frame is its head and its message
                self.leaves(message)
        self._write(framed)

    # -- the way ---------------------------------------------------------------------------------------------

    def later(self, arrive: Callable[[], None]) -> None:
        """Call in the client's direction, behind what is on its way."""
        self._last_us = max(self._last_us, self.loop.now_us + self._latency())
        self.loop.call_at(self._last_us / 1e6, arrive)

    def later_back(self, arrive: Callable[[], None]) -> None:
        """Call in the server's direction, behind what is on its way."""
        self._last_back_us = max(self._last_back_us, self.loop.now_us + self._latency())
        self.loop.call_at(self._last_back_us / 1e6, arrive)

    def _to_server(self, data: bytes) -> None:
        def arrive() -> None:
            self._arrived.append(data)
            self.release(self.held)

        self.later_back(arrive)

    def release(self, held: bool = False) -> None:
        """The server reads (again)."""
        self.held = held
        while self._arrived and not self.held and not self.silent and not self.pipe.dead:
            self.socket.data_received(self._arrived.popleft())

    def _cut(self) -> None:
        if not self.pipe.dead and not self.silent:
            self.pipe.abort()


def _frame(payload: bytes, opcode: int) -> bytes:
    """Return a client's frame; its mask is zero, so that the payload stands as it is (RFC 6455, 5.3)."""
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | opcode, 0x80 | size))
    elif size < 65536:
        head = bytes((0x80 | opcode, 0xFE)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 0xFF)) + size.to_bytes(8, "big")
    return head + b"\0\0\0\0" + payload
