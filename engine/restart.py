"""A start with sessions of a former process in the log: they are brought back, a few at a time."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Literal

import anyio
from msgspec import Struct

AT_A_TIME = 4
"""While one is folded, others wait for the disk: its commits are shared where each has to reach it."""


Outcome = Literal["back", "ended", "left alone"]
"""What became of one: it can be resumed; it was taken over only to be closed; neither."""


class Restart(Struct):
    """How far it is: of the sessions that were `left`, how many are `done`.

    Of these, how many are `back`, and how many have `ended` with the process that they were in; the others are
    damaged, or cannot be read now, and the log of the server says which.
    """

    left: int = 0
    done: int = 0
    back: int = 0
    ended: int = 0


async def bring_back(
    names: Iterable[str], one: Callable[[str], Awaitable[Outcome]], restart: Restart, stopping: anyio.Event
) -> None:
    """Bring back all of them in their order; once the server stops, the rest is left to the next one.

    `one` says what became of a session, and raises nothing: what is wrong with one is nothing to the others.
    """
    waiting = iter(names)

    async def work() -> None:
        for name in waiting:
            if stopping.is_set():
                return
            outcome = await one(name)
            restart.back += outcome == "back"
            restart.ended += outcome == "ended"
            restart.done += 1

    async with anyio.create_task_group() as group:
        for _ in range(AT_A_TIME):
            group.start_soon(work)
