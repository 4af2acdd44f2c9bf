"""What the client has sent and the server may not have applied yet: exactly-once over any number of sockets."""

from collections import deque
from collections.abc import Iterator

import anyio
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .wire_client import ClientEvent, HeartbeatIn

LARGEST = 64 * 1024 * 1024
"""Bytes that may wait for the server; a client that sends on is not being heard."""

WINDOW, WINDOW_BYTES = 512, 4 * 1024 * 1024
"""Commands, and bytes, that are under way at most: sent on this socket and not known to be applied. The server
bounds what waits there, so whoever comes back with a long queue has to hand it over piece by piece."""

ASK_EVERY, ASK_EVERY_BYTES = WINDOW // 4, WINDOW_BYTES // 4
"""After so much a heartbeat is sent along, whose answer says what was applied."""


class Overfull(Exception):
    """More is waiting for the server than the client may hold."""


class _Sent(Struct, frozen=True):
    seq: int
    data: bytes


class Outbox:
    """Numbers the commands of a session 1, 2, 3 … and keeps each one until it is known to be applied.

    What is known: `session.resumed` says the last one, and the answer to a heartbeat means that everything up
    to that heartbeat was applied, since counted commands are carried out in order.
    """

    def __init__(self) -> None:
        self.last = 0
        """The number of the last command."""
        self.size = 0
        """Bytes that are kept."""
        self._kept: deque[_Sent] = deque()
        self._heartbeats: deque[int] = deque()
        self._unsent = 0
        self._under_way = 0
        self._unasked = self._unasked_bytes = 0
        self._news = anyio.Event()
        self._emptied = anyio.Event()

    def put(self, event: ClientEvent) -> int:
        """Take a command; return its number.

        Raises:
            Overfull: nothing was taken.
        """
        if self.size > LARGEST:
            raise Overfull(f"more than {LARGEST} bytes wait for the server")
        number = self._put(event)
        if self._unasked >= ASK_EVERY or self._unasked_bytes >= ASK_EVERY_BYTES:
            self._put(HeartbeatIn())
        return number

    def _put(self, event: ClientEvent) -> int:
        self.last += 1
        data = _encode(replace(event, client_seq=self.last))
        self._kept.append(_Sent(self.last, data))
        self.size += len(data)
        self._unasked += 1
        self._unasked_bytes += len(data)
        if isinstance(event, HeartbeatIn):
            self._heartbeats.append(self.last)
            self._unasked = self._unasked_bytes = 0
        self._unsent += 1
        self._news.set()
        return self.last

    def take(self) -> Iterator[bytes]:
        """Give what was not sent on this socket yet, in order, as far as the window is open."""
        while self._unsent and self._open:
            sent = self._kept[len(self._kept) - self._unsent]
            self._unsent -= 1
            self._under_way += len(sent.data)
            yield sent.data
        if not self._unsent:
            self._emptied.set()
            self._emptied = anyio.Event()

    @property
    def _open(self) -> bool:
        return len(self._kept) - self._unsent < WINDOW and self._under_way < WINDOW_BYTES

    async def wait_news(self) -> None:
        """Wait until there is something to send, and room for it on the way."""
        while not (self._unsent and self._open):
            self._news = anyio.Event()
            await self._news.wait()

    async def wait_taken(self) -> None:
        """Wait until everything was handed to a socket."""
        while self._unsent:
            await self._emptied.wait()

    def heartbeat_answered(self) -> None:
        """Forget what the oldest unanswered heartbeat proves to be applied."""
        if self._heartbeats:
            self._forget(self._heartbeats.popleft())
            self._news.set()

    def restart(self, last_applied: int) -> None:
        """A new socket serves the session: forget what was applied, and send the rest again."""
        self._forget(last_applied)
        # A heartbeat that was applied may still be answered in the replay.
        self._unsent = len(self._kept)
        self._under_way = 0
        self._news.set()

    def _forget(self, through: int) -> None:
        while self._kept and self._kept[0].seq <= through:
            size = len(self._kept[0].data)
            if self._unsent == len(self._kept):
                self._unsent -= 1
            else:
                self._under_way -= size
            self._kept.popleft()
            self.size -= size


_encode = msgspec.json.Encoder().encode
