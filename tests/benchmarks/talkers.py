"""A light load generator: many talking sessions in one process, on raw sockets with prepared frames.

It must cost less than what it measures, so it masks with zeros, builds its frame once, and reads no more of an
answer than its type.
"""

import asyncio
import base64
import json
import os
import time
from collections import deque
from collections.abc import Callable

FRAME_S = 0.08
RATE = 16_000
SOUND = bytes(range(256)) * 10
"""80 ms of pcm16 at 16 kHz."""

DUPLEX = "/v1/realtime?duplex=1&autostart=0"
DELTA = b'{"type":"response.output_audio.delta"'
ACK_EVERY = 16
PING = 0x89


def text_frame(message: bytes) -> bytes:
    """Return a masked text frame whose mask changes nothing."""
    size = len(message)
    if size < 126:
        head = bytes((0x81, 0x80 | size))
    else:
        head = b"\x81\xfe" + size.to_bytes(2, "big") if size < 65536 else b"\x81\xff" + size.to_bytes(8, "big")
    return head + bytes(4) + message


def event(kind: str, **fields: object) -> bytes:
    """Return an event of the wire."""
    return json.dumps({"type": kind, **fields}, separators=(",", ":")).encode()


APPEND = event("input_audio_buffer.append", audio=base64.b64encode(SOUND).decode(), sample_rate_hz=RATE)
OPEN = event(
    "session.update",
    session={
        "input_audio_format": "pcm16",
        "audio": {"output": {"format": {"type": "audio/pcm", "rate": RATE}}},
        "sample_rate_hz": RATE,
        "turn_detection": None,
        "extra_body": {"auto_response": True},
    },
)


class Talker(asyncio.Protocol):
    """One session. `delays` collects seconds from writing a frame to the arrival of its echo."""

    def __init__(self, port: int, *, bare: bool) -> None:
        self._port = port
        self._bare = bare
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._upgraded = False
        self._sent: deque[float] = deque()
        self._frame = text_frame(APPEND)
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._since_ack = 0
        self.opened = asyncio.get_running_loop().create_future()
        self.delays: list[float] = []
        self.echoes = 0
        self.on_message: Callable[[bytes], None] | None = None
        self.lost = False

    async def connect(self) -> None:
        """Connect and open the session."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, "127.0.0.1", self._port)
        await self.opened

    def write(self, message: bytes) -> None:
        """Send a message."""
        assert self._transport is not None
        self._transport.write(text_frame(message))

    def begin(self, offset_s: float) -> None:
        """Talk from then on."""
        self._due = asyncio.get_running_loop().time() + offset_s
        self._timer = asyncio.get_running_loop().call_at(self._due, self._talk)

    @property
    def talking(self) -> bool:
        """Whether it talks."""
        return self._timer is not None

    def halt(self) -> None:
        """Talk no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Drop the socket."""
        self.halt()
        if self._transport is not None:
            self._transport.abort()

    def _talk(self) -> None:
        loop = asyncio.get_running_loop()
        if self._transport is None:
            return
        self._sent.append(time.perf_counter())
        self._transport.write(self._frame)
        self._due += FRAME_S
        self._timer = loop.call_at(self._due, self._talk)

    # -- asyncio ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the upgrade."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        path = "/" if self._bare else DUPLEX
        key = base64.b64encode(os.urandom(16)).decode()
        self._transport.write(  # type: ignore[union-attr]
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Over."""
        self._transport, self.lost = None, True
        if not self.opened.done():
            self.opened.set_exception(ConnectionError("lost before it was opened"))

    def data_received(self, data: bytes) -> None:
        """Take frames apart."""
        data = self._rest + data if self._rest else data
        if not self._upgraded:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._rest = data
                return
            if not data.startswith(b"HTTP/1.1 101"):
                self.opened.set_exception(ConnectionError(data[:80].decode(errors="replace")))
                return
            self._upgraded, data = True, data[end + 4 :]
            if self._bare:
                self.opened.set_result(None)
            else:
                self.write(OPEN)
        at, size = 0, len(data)
        while size - at >= 2:
            length, head = data[at + 1], 2
            if length == 126:
                length, head = int.from_bytes(data[at + 2 : at + 4], "big"), 4
            elif length == 127:
                length, head = int.from_bytes(data[at + 2 : at + 10], "big"), 10
            if size - at < head + length:
                break
            if data[at] == PING:
                self._pong(data[at + head : at + head + length])
            else:
                self._message(data, at + head, length)
            at += head + length
        self._rest = data[at:]

    def _message(self, data: bytes, at: int, length: int) -> None:
        if self.on_message is not None:
            self.on_message(data[at : at + length])
        elif self._bare or data.startswith(DELTA, at):
            self.echoes += 1
            if self._sent:
                self.delays.append(time.perf_counter() - self._sent.popleft())
            self._since_ack += 1
            if not self._bare and self._since_ack >= ACK_EVERY:
                self._acknowledge(data[at : at + length])
        elif not self.opened.done() and data.startswith(b'{"type":"session.created"', at):
            self.opened.set_result(None)

    def _pong(self, payload: bytes) -> None:
        assert self._transport is not None
        self._transport.write(bytes((0x8A, 0x80 | len(payload))) + bytes(4) + payload)

    def _acknowledge(self, message: bytes) -> None:
        self._since_ack = 0
        begin = message.find(b'"server_event_seq":') + 19
        number = int(message[begin : message.find(b",", begin)])
        self.write(event("session.event_ack", server_event_seq=number))


class Crowd:
    """Sessions that talk, and what they measured since they were last asked."""

    def __init__(self, port: int, *, bare: bool) -> None:
        self._port, self._bare = port, bare
        self.talkers: list[Talker] = []

    async def grow(self, count: int, *, talking: bool = True) -> None:
        """Connect until there are so many, each at its own moment of the 80 ms."""
        while len(self.talkers) < count:
            talker = Talker(self._port, bare=self._bare)
            await talker.connect()
            if talking:
                talker.begin(FRAME_S * (len(self.talkers) * 0.618 % 1))
            self.talkers.append(talker)

    async def talk(self, count: int) -> None:
        """Let the first `count` talk and the others be silent."""
        await self.grow(count)
        for index, talker in enumerate(self.talkers):
            if index >= count:
                talker.halt()
            elif not talker.talking:
                talker.begin(FRAME_S * (index * 0.618 % 1))

    def hush(self) -> None:
        """Let nobody talk, and forget those whose connection is gone."""
        for talker in self.talkers:
            talker.halt()
        self.talkers = [talker for talker in self.talkers if not talker.lost]

    def take(self) -> list[float]:
        """Return the delays, and forget them."""
        taken: list[float] = []
        for talker in self.talkers:
            taken += talker.delays
            talker.delays = []
        return taken

    def echoes(self) -> int:
        """Return how many echoes came at all."""
        return sum(talker.echoes for talker in self.talkers)

    def close(self) -> None:
        """Drop all sockets."""
        for talker in self.talkers:
            talker.close()
