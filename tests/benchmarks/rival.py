"""The rival: a bare echo on the same library. Run by the benchmarks as a process of its own.

Every text message is sent back, except `backlog N`: then N copies of the last message are sent.
"""

import asyncio
import sys

import uvloop
from websockets.asyncio.server import ServerConnection, serve


async def echo(socket: ServerConnection) -> None:
    """Serve one connection."""
    last: str | bytes = ""
    async for message in socket:
        if len(message) < 32 and isinstance(message, str) and message.startswith("backlog "):
            for _ in range(int(message.split()[1])):
                await socket.send(last)
        else:
            last = message
            await socket.send(message)


async def main() -> None:
    """Serve until killed."""
    async with serve(echo, "127.0.0.1", 0, compression=None, max_size=None, backlog=1024) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        sys.stdout.write(f"listening on http://127.0.0.1:{port}\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    uvloop.run(main())
