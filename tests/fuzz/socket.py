"""A connection of the fuzzer: the server's transport, and a client that reads strictly and says anything."""

import asyncio
import json
from collections import deque
from collections.abc import Callable
from typing import Any

from .oracle import CLOSE, PING, PONG, TEXT

Blame = Callable[[str], None]


class Socket(asyncio.Transport):
    """What the server's protocol is given: it writes to `reader`, and hears what is delivered."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol, reader: "Reader") -> None:
        super().__init__()
        self._loop = loop
        self._protocol: asyncio.BaseProtocol = protocol
        self._reader = reader
        self._closing = False
        self._paused = False
        self._waiting: deque[bytes] = deque()
        loop.call_soon(protocol.connection_made, self)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """See `asyncio`."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """See `asyncio`."""
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See `asyncio`: there is no socket here."""
        del name
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See `asyncio`: everything is accepted at once."""

    def get_write_buffer_size(self) -> int:
        """See `asyncio`."""
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `asyncio`."""
        if not self._closing:
            self._reader.feed(bytes(data))

    def is_closing(self) -> bool:
        """See `asyncio`."""
        return self._closing

    def close(self) -> None:
        """See `asyncio`."""
        self._end()

    def abort(self) -> None:
        """See `asyncio`."""
        self._end()

    def pause_reading(self) -> None:
        """See `asyncio`."""
        self._paused = True

    def resume_reading(self) -> None:
        """See `asyncio`."""
        self._paused = False
        self._loop.call_soon(self._deliver)

    def _end(self) -> None:
        if not self._closing:
            self._closing = True
            self._reader.ended = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    # -- the client's side -----------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Let bytes arrive at the server."""
        if not data:
            return  # no socket gives an empty piece
        self._waiting.append(data)
        self._loop.call_soon(self._deliver)

    def finish(self) -> None:
        """The client sends no more."""
        self._loop.call_soon(self._eof)

    def _deliver(self) -> None:
        while self._waiting and not self._paused and not self._closing:
            protocol = self._protocol
            assert isinstance(protocol, asyncio.Protocol)
            protocol.data_received(self._waiting.popleft())

    def _eof(self) -> None:
        protocol = self._protocol
        assert isinstance(protocol, asyncio.Protocol)
        if not self._closing and not protocol.eof_received():
            self._end()


class Reader:
    """Reads what a server sends, and blames it for everything that is not by the book."""

    def __init__(self, blame: Blame, heard: Callable[[dict[str, Any]], None]) -> None:
        self.status: int | None = None
        self.head = b""
        self.closed = False
        self.code: int | None = None
        self.reason = ""
        self.ended = False
        self.pongs: list[bytes] = []
        self.bytes = 0
        self._blame = blame
        self._heard = heard
        self._buffer = b""

    @property
    def over(self) -> bool:
        """Whether the server has closed, or said that it does."""
        return self.closed or self.ended

    @property
    def body(self) -> bytes:
        """What came behind the head of an answer that is no upgrade."""
        return self._buffer

    def feed(self, data: bytes) -> None:
        """Take bytes."""
        self.bytes += len(data)
        self._buffer += data
        if self.status is None:
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            words = head.split(b" ", 2)
            if words[0] != b"HTTP/1.1" or not words[1].isdigit():
                self._blame(f"no answer to a request: {head[:80]!r}")
                return
            self.status, self.head, self._buffer = int(words[1]), head, rest
        if self.status == 101:
            self._frames()

    def _frames(self) -> None:
        while len(self._buffer) >= 2:
            head, size, at = self._buffer[0], self._buffer[1], 2
            if size == 126:
                size, at = int.from_bytes(self._buffer[2:4], "big"), 4
            elif size == 127:
                size, at = int.from_bytes(self._buffer[2:10], "big"), 10
            if len(self._buffer) < at + size:
                return
            payload, self._buffer = self._buffer[at : at + size], self._buffer[at + size :]
            allowed = (PING, PONG) if self.closed else (TEXT, CLOSE, PING, PONG)
            if head not in (0x80 | opcode for opcode in allowed):
                self._blame(f"a frame that may not be sent: {head:#x}, {payload[:40]!r}")
            self._frame(head & 15, payload)

    def _frame(self, opcode: int, payload: bytes) -> None:
        if opcode == PONG:
            self.pongs.append(payload)
        elif opcode == CLOSE:
            self.closed = True
            self.code = int.from_bytes(payload[:2], "big") if payload else None
            self.reason = payload[2:].decode()
        elif opcode == TEXT:
            self._heard(json.loads(payload.decode()))
