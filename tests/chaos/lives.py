"""The lives of a server, one after the other on the same data directory and port, and how each of them ends."""

import random
import sys
from collections import Counter
from pathlib import Path

import anyio
import anyio.to_thread

from tests.acceptance.servers import ServerProcess
from tests.chaos.disks import Disk
from tests.chaos.moments import RECOVERING, RUNNING
from tests.chaos.server import FAULT, SETTING

CLI = (sys.executable, "-m", "tests.chaos.server")

OUTSIDE, STARTING, STOPPING = "at any moment", "while it starts", "while it stops"
"""Kills from outside, that no place in the product decides."""

FULL, FULL_AGAIN, SPACE = "while the disk is full", "started on a full disk", "behind a full disk"
OTHERS = (OUTSIDE, STARTING, STOPPING, FULL, FULL_AGAIN, SPACE)

PATIENCE_S = 4.0
"""A server that has not come to its moment by then is killed from outside."""

KILLED = -9
LEFT = (0, 4096, 65_536, 300_000)
"""Bytes that are left on a full disk."""


class Lives:
    """Begins, watches and ends them. What a life does wrong is an `AssertionError`."""

    def __init__(self, data: Path, pipeline: str, seed: int, disk: Disk | None, fault: str = "") -> None:
        self.server = ServerProcess(data, pipeline=pipeline, cli=CLI)
        self.kills: Counter[str] = Counter()
        self._seed = seed
        self._disk = disk
        self._fault = fault
        self.told = anyio.Event()
        """Set by whoever hears that nothing can be recorded."""
        self._full = False
        self._rng = random.Random(f"kills {seed}")

    async def end_all(self, kills: int) -> None:
        """Let so many servers live and die, and begin the one that is left to its clients."""
        again = False
        for number in range(kills):
            # What died while it recovered often dies there again: the second time with half of it done.
            recovering = number > 0 and (again or self._rng.random() < 0.25)
            again = recovering and self._rng.random() < 0.4
            self.kills[await self._life(self._moment(number, recovering), f"{self._seed}.{number}")] += 1
            if self._disk is not None:
                self._disk.serve(0)
        if self._disk is not None:
            self._disk.free()
        assert await self._begin(f"{self._seed}.end"), self._last_words()

    def _moment(self, number: int, recovering: bool) -> str:
        if self._full:
            return FULL_AGAIN
        if self._disk is not None and (number < 2 or self._rng.random() < 0.6):
            return (SPACE, FULL)[number % 2]
        if recovering:
            return self._rng.choice((*RECOVERING, STARTING))
        return self._rng.choice((*RUNNING, *RUNNING, OUTSIDE, OUTSIDE, OUTSIDE, STOPPING))

    async def _begin(self, setting: str) -> bool:
        listens = await anyio.to_thread.run_sync(
            lambda: self.server.launch(**{SETTING: setting, FAULT: self._fault})
        )
        if self._disk is not None and listens:
            self._disk.serve(self.server.pid)
        return listens

    async def _kill(self) -> None:
        await anyio.to_thread.run_sync(self.server.kill)

    async def _pause(self, shortest_s: float, longest_s: float) -> None:
        await anyio.sleep(self._rng.uniform(shortest_s, longest_s))

    async def _life(self, moment: str, seed: str) -> str:
        """Let a server live until it is dead; return when that was."""
        if moment in OTHERS:
            listens = await self._begin(seed)
            await (
                self._on_a_full_disk(moment, seed, listens)
                if moment in (FULL, FULL_AGAIN, SPACE)
                else self._from_outside(moment, listens)
            )
            return moment
        await self._begin(f"{seed} {moment}")
        code = await anyio.to_thread.run_sync(self.server.wait, PATIENCE_S)
        if code is None:
            await self._kill()
            return OUTSIDE
        assert code == KILLED, f"it ended by itself with {code}: {self._last_words()}"
        return moment

    async def _from_outside(self, moment: str, listens: bool) -> None:
        assert listens, f"it did not start: {self._last_words()}"
        await self._pause(*((0.0, 0.1) if moment == STARTING else (0.1, 1.2)))
        if moment == STOPPING:
            self.server.ask_to_stop()
            await self._pause(0.0, 0.05)
        await self._kill()

    async def _on_a_full_disk(self, moment: str, seed: str, listens: bool) -> None:
        """Let the disk be full in a life that begins before or behind that, and maybe end."""
        disk = self._disk
        assert disk is not None
        if moment != FULL_AGAIN:
            assert listens, f"it did not start: {self._last_words()}"
            await self._pause(0.4, 1.2)
            disk.fill(0 if moment == SPACE else self._rng.choice(LEFT))
            self._full = True
        if moment == SPACE:
            await self._until_told()
        await self._pause(0.3, 1.5)
        if moment == FULL:
            await self._kill()
            return
        disk.free()
        self._full = False
        if not listens:  # it said so, and ended: an operator makes room, and begins again
            assert await anyio.to_thread.run_sync(self.server.wait), "it ends well on a full disk"
            assert await self._begin(seed), f"it did not start: {self._last_words()}"
        await self._pause(0.5, 1.5)
        await self._kill()

    async def _until_told(self) -> None:
        self.told = anyio.Event()
        with anyio.move_on_after(PATIENCE_S * 5):
            await self.told.wait()
        assert self.told.is_set(), "the disk is full, and nobody is told"

    def _last_words(self) -> str:
        return self.server.messages()[-2000:]
