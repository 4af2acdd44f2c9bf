"""Ctrl-C as an end among others: what is under way is cancelled, and what there is by then is kept."""

import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct


class Interruptible(Struct):
    """What runs in `group` beside the block goes on as long as that. `interrupted`: Ctrl-C has ended both."""

    group: TaskGroup
    interrupted: bool = False


@asynccontextmanager
async def interruptible() -> AsyncGenerator[Interruptible]:
    """Let a block run until it ends, or until SIGINT cancels it."""
    with anyio.open_signal_receiver(signal.SIGINT) as signals:
        async with anyio.create_task_group() as group:
            running = Interruptible(group)

            async def watch() -> None:
                async for _ in signals:
                    running.interrupted = True
                    group.cancel_scope.cancel()

            group.start_soon(watch)
            yield running
            group.cancel_scope.cancel()
