"""The log of a world: what outlives a process, and how one process sees it, with all that may go wrong there."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from antiphon.engine.memory_log import MemoryLog
from antiphon.events.audio import SampleRef
from antiphon.events.log import LogError, SampleWrite, SessionRow, Settled, Snapshot, Transaction, Unavailable

from .loop import SimLoop

BATCH = 64
"""Records of one commit, as the real store's."""


class Witness(Protocol):
    """Who is told what is written."""

    def decided(self, process: "ProcessLog", session: str, transaction: Transaction) -> None:
        """A process has decided it; its session's state is the one behind it."""
        ...

    def durable(self, session: str, transaction: Transaction) -> None:
        """It is recorded, and not yet told."""
        ...

    def told(self, session: str, transaction: Transaction) -> None:
        """Its process knows that it is recorded."""
        ...


class Disk:
    """What is recorded, for all processes that follow each other."""

    def __init__(self, loop: SimLoop, witness: Witness, rng: random.Random, commit_us: int) -> None:
        self.loop = loop
        self.witness = witness
        self.rng = rng
        self.commit_us = commit_us
        self.memory = MemoryLog(kept_closed=1_000_000)

    def recorded(self, session: str) -> list[Transaction]:
        """Return what is durable of a session."""
        kept = self.memory._sessions.get(session)
        return [] if kept is None else kept.transactions

    def term(self, session: str) -> int:
        """Return the term that may write."""
        kept = self.memory._sessions.get(session)
        return 0 if kept is None else kept.head.term

    def sound(self, session: str, ref: SampleRef) -> bytes:
        """Return the bytes of a piece of sound."""
        data = self.memory.samples._streams.get(session, {}).get(ref.stream, b"")
        return bytes(data[ref.start : ref.end])

    @property
    def names(self) -> list[str]:
        """All sessions of which something is recorded."""
        return [name for name, kept in self.memory._sessions.items() if kept.head.seq]


class _Row(Struct):
    session: str
    transaction: Transaction
    samples: Sequence[SampleWrite]
    settled: Settled


class ProcessLog:
    """An `EventLog` and `Samples` of one process: appends are committed in batches, a little later."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.alive = True
        self.refusals = 0
        self.crash: Callable[[], None] | None = None
        self.crash_after = 0
        self._queue: deque[_Row] = deque()
        self._scheduled = False
        self._until = 0

    # -- faults ----------------------------------------------------------------------------------------------

    def stall(self, us: int) -> None:
        """Commit nothing, and answer nothing, for so long."""
        self._until = max(self._until, self.disk.loop.now_us + us)

    def die(self, part: int) -> None:
        """Lose the process: of what is not committed, the first few records may still have been."""
        self.alive = False
        if self._queue:
            for row in list(self._queue)[: part % (len(self._queue) + 1)]:
                self._commit(row)
        self._queue.clear()

    def sound(self, session: str, ref: SampleRef) -> bytes:
        """Return the bytes of a piece of sound as this process knows it, durable or not."""
        data = bytearray(self.disk.sound(session, ref).ljust(ref.size, b"\0"))
        for row in self._queue:
            for write in row.samples if row.session == session else ():
                first, last = max(write.ref.start, ref.start), min(write.ref.end, ref.end)
                if write.ref.stream == ref.stream and first < last:
                    data[first - ref.start : last - ref.start] = write.data[
                        first - write.ref.start : last - write.ref.start
                    ]
        return bytes(data)

    # -- EventLog --------------------------------------------------------------------------------------------

    async def acquire(self, session: str) -> int:
        """See `EventLog`."""
        await self._trip()
        return await self.disk.memory.acquire(session)

    def append(
        self, session: str, transaction: Transaction, samples: Sequence[SampleWrite], settled: Settled
    ) -> None:
        """See `EventLog`."""
        if not self.alive:
            self.disk.loop.call_soon(settled, Unavailable("the process is gone"))
            return
        self.disk.witness.decided(self, session, transaction)
        self._queue.append(_Row(session, transaction, samples, settled))
        if self.crash is not None:
            self.crash_after -= 1
            if self.crash_after <= 0:
                crash, self.crash = self.crash, None
                self.disk.loop.call_soon(crash)
        self._soon()

    def _soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            now = self.disk.loop.now_us
            at = max(now + self.disk.rng.randrange(self.disk.commit_us + 1), self._until)
            self.disk.loop.call_at(at / 1e6, self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if not self.alive:
            return
        if self.disk.loop.now_us < self._until:
            self._soon()
            return
        for _ in range(min(BATCH, len(self._queue))):
            self._commit(self._queue.popleft())
        if self._queue:
            self._soon()

    def _commit(self, row: _Row) -> None:
        memory = self.disk.memory
        kept = memory._sessions.get(row.session)
        if self.refusals and kept is not None and self.alive:
            self.refusals -= 1
            kept.head.fail(row.transaction.term, Unavailable("the disk is full"))
        error = memory._refuses(kept, row.transaction)
        if error is None:
            self.disk.witness.durable(row.session, row.transaction)

        def answer(said: LogError | None) -> None:
            assert said is error or type(said) is type(error)
            if self.alive:
                row.settled(said)
                if said is None:
                    self.disk.witness.told(row.session, row.transaction)

        memory.append(row.session, row.transaction, row.samples, answer)

    async def read_log(self, session: str, after: int, limit: int = 1000) -> list[Transaction]:
        await self._trip()
        return await self.disk.memory.read(session, after, limit)

    async def locate(self, session: str, number: int) -> int:
        """See `EventLog`."""
        await self._trip()
        return await self.disk.memory.locate(session, number)

    async def sessions(self, state: Literal["open", "closed"] | None = None) -> list[SessionRow]:
        """See `EventLog`."""
        await self._trip()
        return await self.disk.memory.sessions(state)

    async def save_snapshot(self, session: str, snapshot: Snapshot) -> None:
        """See `EventLog`."""
        await self._trip()
        await self.disk.memory.save_snapshot(session, snapshot)

    async def load_snapshot(self, session: str) -> Snapshot | None:
        """See `EventLog`."""
        await self._trip()
        return await self.disk.memory.load_snapshot(session)

    async def trim(self, session: str, through: int) -> None:
        """See `EventLog`."""
        await self.disk.memory.trim(session, through)

    async def delete(self, session: str) -> None:
        """See `EventLog`."""
        await self.disk.memory.delete(session)

    async def probe(self) -> None:
        """See `EventLog`."""
        await self._trip()
        if self.refusals:
            raise Unavailable("the disk is full")

    async def aclose(self) -> None:
        """Commit what waits."""
        while self._queue and self.alive:
            self._commit(self._queue.popleft())

    read = read_log

    async def _trip(self) -> None:
        """Go to the disk: it takes its time, and may fail."""
        clock = self.disk.loop
        turn = clock.create_future()
        at = max(clock.now_us + self.disk.rng.randrange(self.disk.commit_us + 1), self._until)
        timer = clock.call_at(at / 1e6, lambda: None if turn.done() else turn.set_result(None))
        try:
            await turn
        finally:
            timer.cancel()
        if not self.alive:
            raise Unavailable("the process is gone")


class ProcessSamples:
    """`Samples` as a process sees them."""

    def __init__(self, log: ProcessLog) -> None:
        self._log = log

    async def read(self, session: str, ref: SampleRef) -> bytes:
        """See `Samples`."""
        await self._log._trip()
        return await self._log.disk.memory.samples.read(session, ref)
