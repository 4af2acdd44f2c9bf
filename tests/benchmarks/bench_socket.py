"""CPU of echoing an 80 ms delta: our websocket, the bare `websockets` server, and Starlette on uvicorn.

Each server runs in a process of its own and tells what CPU time it used; this process is the client.

    python tests/benchmarks/bench_socket.py
"""

import asyncio
import multiprocessing as mp
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from typing import Any

import uvloop
from websockets.asyncio.client import connect
from websockets.http11 import Request

FRAME = b'{"type":"response.output_audio.delta","delta":"' + b"A" * 5120 + b'"}'
MESSAGES = 20_000
WINDOW = 32


async def bare(told: Connection) -> None:
    """Echo with `websockets.asyncio.server`."""
    from websockets.asyncio.server import ServerConnection, serve

    async def echo(socket: ServerConnection) -> None:
        async for message in socket:
            await socket.send(message, text=True)

    async with serve(echo, "127.0.0.1", 0, compression=None, max_size=None) as server:
        told.send(next(iter(server.sockets)).getsockname()[1])
        await asyncio.Event().wait()


async def starlette(told: Connection) -> None:
    """Echo with Starlette on uvicorn's sans-I/O websockets."""
    import socket as sockets

    import uvicorn
    from starlette.applications import Starlette
    from starlette.routing import WebSocketRoute
    from starlette.websockets import WebSocket

    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        while True:
            await socket.send_text(await socket.receive_text())

    listener = sockets.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    told.send(listener.getsockname()[1])
    config = uvicorn.Config(
        Starlette(routes=[WebSocketRoute("/", echo)]),
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        log_level="critical",
        lifespan="off",
    )
    await uvicorn.Server(config).serve(sockets=[listener])


async def ours(told: Connection) -> None:
    """Echo with `transport.websocket`, behind a plain listener."""
    from antiphon.engine.clock import SystemClock
    from antiphon.transport.websocket import WebSocket

    class Echo:
        def __init__(self, socket: WebSocket) -> None:
            self._socket = socket

        def on_text(self, data: bytes) -> None:
            self._socket.send([data])

        def on_binary(self) -> None: ...

        def on_sign_of_life(self) -> None: ...

        def on_lost(self) -> None: ...

    def accept(socket: WebSocket, _request: Request) -> Echo:
        return Echo(socket)

    clock = SystemClock()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: WebSocket(accept, clock), "127.0.0.1", 0)
    told.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


Serve = Callable[[Connection], Awaitable[None]]


def child(serve: Serve, told: Connection) -> None:
    """Serve until asked for the CPU time so far; answer until the other side goes."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        asked = loop.run_in_executor(None, answer, told)
        async with asyncio.TaskGroup() as group:
            serving: asyncio.Task[Any] = group.create_task(_run(serve, told))
            await asked
            serving.cancel()

    uvloop.run(main())


async def _run(serve: Serve, told: Connection) -> None:
    await serve(told)


def answer(told: Connection) -> None:
    """Tell the CPU time whenever it is asked for, until None comes."""
    while told.recv() is not None:
        told.send(time.process_time())


async def load(port: int, messages: int) -> None:
    """Send and receive, with a window of messages on the way."""
    async with connect(f"ws://127.0.0.1:{port}/", compression=None, max_size=None) as socket:
        for _ in range(WINDOW):
            await socket.send(FRAME, text=True)
        for index in range(messages):
            await socket.recv(decode=False)
            if index < messages - WINDOW:
                await socket.send(FRAME, text=True)


def measured(serve: Serve) -> float:
    """Return the server's CPU time for one message, in microseconds."""
    mine, theirs = mp.get_context("spawn").Pipe()
    process = mp.get_context("spawn").Process(target=child, args=(serve, theirs), daemon=True)
    process.start()
    port = mine.recv()
    uvloop.run(load(port, 2_000))
    mine.send(True)
    before = mine.recv()
    uvloop.run(load(port, MESSAGES))
    mine.send(True)
    spent = mine.recv() - before
    mine.send(None)
    process.join(2)
    process.kill()
    return spent / MESSAGES * 1e6


def main() -> None:
    """Measure all three and print them as ratios."""
    results = {serve.__name__: measured(serve) for serve in (bare, starlette, ours)}
    for name, us in results.items():
        print(f"{name:10} {us:6.1f} µs a message   {us / results['bare']:5.2f} of the bare server")


if __name__ == "__main__":
    main()
