"""uvicorn's reader of requests, with an end to what a client may keep it waiting for."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from antiphon.engine.clock import Clock, Timer

REQUEST_S = 10.0
"""How long a connection may take to say what it wants; it holds a file of the process meanwhile."""

TAKING_US = 30_000_000
"""How often it is looked whether a client takes its answer, while it has not taken all of it."""

SLOWEST = 16 * 1024
"""Bytes that it must have taken between two looks: with less it does not read."""


class HttpProtocol(H11Protocol):
    """One connection. Who never becomes a request is cut off, and so is who never takes the answer.

    Whoever makes the answer hears of that as of any client that has gone away.
    """

    def __init__(self, clock: Clock, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._clock = clock
        self._left = 0
        self._look: Timer | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to read, for a bounded time."""
        super().connection_made(transport)
        self._waiting = self.loop.call_later(REQUEST_S, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """There is nobody to wait for."""
        self._stop_looking()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """The next request may take as long; one that is not begun is waited for by uvicorn, which is shorter."""
        super().on_response_complete()
        self._waiting.cancel()
        self._waiting = self.loop.call_later(REQUEST_S, self._give_up)

    def send_400_response(self, msg: str) -> None:
        """Say that this is no request. It is the last answer: one that is being made for a request before it is not
        given any more, as if the client had gone, and one that was begun ends here."""
        if self.conn.our_state is not h11.IDLE:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _give_up(self) -> None:
        idle = self.conn.their_state is h11.IDLE and self.transport.get_protocol() is self
        if idle and not self.transport.is_closing():
            self.transport.close()

    # -- who does not read -----------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """More waits for the client than is handed to its socket: from now on it is looked whether it reads."""
        super().pause_writing()
        self._left = self._unread()
        self._look_later()

    def resume_writing(self) -> None:
        """The client has taken what waited."""
        super().resume_writing()
        self._stop_looking()

    def _taken(self) -> None:
        left = self._unread()
        if self._left - left < SLOWEST:
            self._look = None
            self.transport.abort()
        else:
            self._left = left
            self._look_later()

    def _unread(self) -> int:
        return self.transport.get_write_buffer_size()

    def _look_later(self) -> None:
        self._look = self._clock.call_at(self._clock.monotonic_us() + TAKING_US, self._taken)

    def _stop_looking(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None
