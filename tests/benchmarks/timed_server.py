"""The two servers of a benchmark, each of which also tells how long a frame is inside: from being read until its
answer was handed to the socket.

Run by the benchmarks as a process of its own: python timed_server.py antiphon DATA | bare. On SIGUSR1 it prints the
milliseconds of all frames since the last time, as one line.
"""

import asyncio
import json
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from rival import echo
from talkers import DELTA
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_bare

from antiphon.transport import server as serving
from antiphon.transport.serve import ServeSettings, Told, run
from antiphon.transport.websocket import WebSocket

LEAST = 2_000
"""Bytes of a piece from the socket that holds a frame of sound; all else is smaller."""

delays: list[float] = []


class Watched:
    """A transport of which it is noted when it is given an answer."""

    def __init__(self, transport: Any, begun: deque[float], answer: bytes) -> None:
        self._transport = transport
        self._begun = begun
        self._answer = answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Hand it on, and note the time of every answer in it."""
        self._transport.write(data)
        if len(data) >= LEAST:
            now = time.perf_counter()
            answered = min(data.count(self._answer), len(self._begun))
            delays.extend((now - self._begun.popleft()) * 1e3 for _ in range(answered))


def watch(kind: type[Any], answer: bytes) -> type[Any]:
    """Return a protocol like `kind` that notes when frames come and are answered."""

    class Timed(kind):  # type: ignore[misc]  # a class of either library
        def connection_made(self, transport: Any) -> None:
            self.begun: deque[float] = deque()
            super().connection_made(Watched(transport, self.begun, answer))

        def data_received(self, data: bytes) -> None:
            if len(data) >= LEAST:
                self.begun.append(time.perf_counter())
            super().data_received(data)

    return Timed


def say(line: str) -> None:
    """Tell whoever started this."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def tell() -> None:
    """Tell the delays, and forget them."""
    say(json.dumps([round(delay, 3) for delay in delays]))
    delays.clear()


def tell_when_asked() -> None:
    """Listen for the signal."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, tell)


async def bare() -> None:
    """Serve the bare echo until killed."""
    kind = watch(ServerConnection, b"input_audio_buffer.append")
    limits: dict[str, Any] = {"compression": None, "max_size": None, "backlog": 1024}
    async with serve_bare(echo, "127.0.0.1", 0, create_connection=kind, **limits) as server:
        tell_when_asked()
        say(f"listening on http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}")
        await asyncio.get_running_loop().create_future()


def antiphon(data: Path) -> None:
    """Serve the echo pipeline until a signal comes."""
    # The server names the class of its websockets; there is no other way to give it another one.
    serving.WebSocket = watch(WebSocket, DELTA)  # type: ignore[misc]

    def listening(address: str) -> None:
        tell_when_asked()
        say(f"listening on {address}")

    settings = ServeSettings(pipeline="echo", port=0, data=data, max_sessions=4000)
    run(settings, Told(listening=listening, ready=lambda: None, unavailable=sys.exit))


if __name__ == "__main__":
    name, *more = sys.argv[1:]
    serve: Callable[[], object] = partial(uvloop.run, bare()) if name == "bare" else partial(antiphon, Path(*more))
    serve()
