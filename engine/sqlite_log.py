"""The embedded store: an `EventLog` on SQLite, with its samples beside it."""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from shutil import copyfile
from typing import Literal, TypeVar

import structlog
from anyio import CancelScope, to_thread

from antiphon.events.log import (
    Fenced,
    LogError,
    SampleWrite,
    SessionRow,
    Settled,
    Snapshot,
    Transaction,
    Unavailable,
    encode,
)

from .datadir import DataDirectory, DataPaths
from .log_head import Head, summarise
from .log_queue import InlineQueue, ThreadQueue
from .sample_places import pack
from .sample_store import FileSamples, check_sizes
from .sqlite_reader import SqliteReader
from .sqlite_schema import Durability, checksum, told
from .sqlite_tail import Tail, log_of, tail
from .sqlite_writer import Append, Call, SqliteWriter

_log = structlog.get_logger()

T = TypeVar("T")
Writer = Literal["inline", "thread"]
"""Where rows are inserted and committed: on the loop, in its next round, or in a thread of its own.

Measured by tests/benchmarks/bench_append.py on 2 cores that others used too, 100 sessions at 25 commands a
second, beside other work on the loop; milliseconds from append to settled, CPU of the whole process:

    loop          inline p50    p99    cpu     thread p50    p99    cpu
    else idle           0.06    0.5    11 %          0.09    0.9    14 %
    50 % busy           0.26    4.9    60 %          0.42     96    64 %
    100 % busy          0.27    9.6    67 %          0.33     69    65 %

A commit costs about 20 us; a thread costs as much again to wake, and then waits for a busy loop to let go of
the interpreter, before and after the commit. So "inline" is the default, and "thread" where a commit waits for
the disk (`durability="full"`: milliseconds, which the loop cannot spend).
"""


def _opened(database: Path, durability: Durability) -> SqliteWriter:
    """Open the writer, and tell what its database has dropped of the log's end. Blocks.

    Raises:
        Unavailable: it cannot be opened, or is not ours.
    """
    with told("open the log"):
        found = tail(database)
        writer = SqliteWriter(database, durability)
        try:
            _tell(database, found, writer.frames())
        except BaseException:
            writer.close()
            raise
    return writer


def _tell(database: Path, found: Tail, whole: int | None) -> None:
    """Tell what was at the end of the log and is dropped: `whole` frames of what was `found` are taken."""
    lost = Tail() if whole is None else found.behind(whole)
    if lost.commits:
        kept = log_of(database).with_suffix(f".damaged-{lost.frames[0]}")
        copyfile(log_of(database), kept)
        _log.error(
            "the end of the log is damaged; what was recorded behind that place is lost",
            frame=lost.frames[0],
            commits=len(lost.commits),
            kept=str(kept),
        )
    elif lost.frames:
        _log.info("the end of the log is a commit that was never finished; nobody saw it", frames=len(lost.frames))


_CLOSED_HEADS = 1_000
"""Closed sessions whose end is remembered, for an append that comes late; older ones are fenced."""


class SqliteLog:
    """An `EventLog` in a data directory; `samples` are its `Samples`. Made by `SqliteLog.open`.

    An append is encoded, and its samples are written, on the loop; its row waits for the writer, which takes
    what is there (at most 64 rows) and commits. There is no timer: an idle store commits a row at once, and a
    busy one commits more rows at a time.
    """

    def __init__(self, data: DataDirectory, writer: SqliteWriter, where: Writer, durability: Durability) -> None:
        """Wrap an open writer; must be made on the loop that will use it."""
        self.samples = FileSamples(data.paths.samples)
        self._writer = writer
        self._reader = SqliteReader(data.paths, strict=True)
        self._full = durability == "full"
        self._heads: dict[str, Head] = {}
        self._finished: deque[str] = deque()
        self._closed = False
        self._queue: InlineQueue[Append | Call] | ThreadQueue[Append | Call] = (
            InlineQueue(writer.perform) if where == "inline" else ThreadQueue(writer.perform, "antiphon-log")
        )

    @classmethod
    async def open(
        cls, data: DataDirectory, *, writer: Writer | None = None, durability: Durability = "normal"
    ) -> "SqliteLog":
        """Open the log of a data directory that this process owns.

        `durability` "normal" keeps what was settled when the process is killed; "full" also when the power
        fails, at the price of waiting for the disk in every commit. `writer` None: the one that measured best.

        Raises:
            Unavailable: it cannot be opened, or is not ours.
        """
        opened = await to_thread.run_sync(_opened, data.paths.database, durability)
        where = writer or ("thread" if durability == "full" else "inline")
        log = cls(data, opened, where, durability)
        try:
            for session in await log._ask(SqliteWriter.condemned):
                _log.warning("the removal of a session goes on", session=session)
                await log.delete(session)
        except BaseException:
            await log.aclose()
            raise
        return log

    @staticmethod
    def open_reader(paths: DataPaths) -> SqliteReader:
        """Return the reading half of the log in `paths`, also while a server writes it."""
        return SqliteReader(paths)

    async def acquire(self, session: str) -> int:
        """Return a new term (see `EventLog.acquire`)."""
        head = self._heads.setdefault(session, Head())
        # From here on the old term is refused, so that the end of the log which comes back is the end.
        head.acquiring += 1
        first = not head.term
        try:
            acquired = await self._ask(lambda writer: writer.acquire(session))
        finally:
            head.acquiring -= 1
        head.key, head.term, head.seq, head.number = acquired
        head.failed = None
        if first and head.seq:
            await self._look_at_the_end(session)
        return head.term

    async def _look_at_the_end(self, session: str) -> None:
        """Tell of sound that the last records of a former process have lost; nothing is cut for it."""
        try:
            faults = await self._reader.faults_at_end(session)
        except LogError:
            return  # whoever reads the session is told
        if faults:
            seq, why = faults[-1]
            _log.error("sound of a session is lost", session=session, seq=seq, why=why, records=len(faults))

    def append(
        self, session: str, transaction: Transaction, samples: Sequence[SampleWrite], settled: Settled
    ) -> None:
        """Record `transaction` (see `EventLog.append`)."""
        if samples:
            check_sizes(samples)
        head = self._heads.get(session)
        append = Append(head, transaction.term, settled)
        if head is None:
            append.error = Fenced("nobody acquired the session")
        else:
            append.error = head.refuses(transaction)
            if append.error is None:
                self._prepare(append, head, session, transaction, samples)
            if append.error is not None:
                head.fail(transaction.term, append.error)
        self._queue.put(append)

    def _prepare(
        self,
        append: Append,
        head: Head,
        session: str,
        transaction: Transaction,
        samples: Sequence[SampleWrite],
    ) -> None:
        """Write the samples and make the row; sets `append.error` if the samples cannot be written."""
        data = encode(transaction)
        if samples:
            try:
                dirty = self.samples.write(session, samples)
            except OSError as error:
                append.error = Unavailable(f"cannot write the samples: {error.strerror}")
                return
            if self._full:
                append.dirty = dirty
        summary = summarise(transaction)
        head.advance(transaction, summary.number)
        sound = pack(samples)
        crc = checksum(data, transaction.seq, sound)
        append.row = (head.key, transaction.seq, transaction.at, head.number, crc, data, sound)
        append.opened = summary.opened
        if summary.closed:
            append.closed = True
            append.settled = partial(self._finish, session, append.settled)

    def _finish(self, session: str, settled: Settled, error: LogError | None) -> None:
        """The session has ended: keep little of it."""
        if error is None:
            self.samples.release(session)
            self._finished.append(session)
            if len(self._finished) > _CLOSED_HEADS:
                self._heads.pop(self._finished.popleft(), None)
        settled(error)

    async def read(self, session: str, after: int, limit: int = 1000) -> list[Transaction]:
        """Return transactions (see `EventLog.read`)."""
        return await self._reader.read(session, after, limit)

    async def locate(self, session: str, number: int) -> int:
        """Find a message number (see `EventLog.locate`)."""
        return await self._reader.locate(session, number)

    async def sessions(self, state: Literal["open", "closed"] | None = None) -> list[SessionRow]:
        """Return the index, newest first."""
        return await self._reader.sessions(state)

    async def load_snapshot(self, session: str) -> Snapshot | None:
        """Return the latest snapshot; None if there is none that can be trusted."""
        return await self._reader.load_snapshot(session)

    async def save_snapshot(self, session: str, snapshot: Snapshot) -> None:
        """Keep a snapshot (see `EventLog.save_snapshot`)."""
        await self._ask(lambda writer: writer.save_snapshot(session, snapshot))

    async def trim(self, session: str, through: int) -> None:
        """Forget the beginning (see `EventLog.trim`), a little at a time: appends go in between."""
        while not await self._ask(lambda writer: writer.trim(session, through)):
            pass

    async def delete(self, session: str) -> None:
        """Forget the session, its snapshot and its samples; what is cut off there goes on at the next start.

        On a disk that is full not even that can be noted: then the samples make room for it.
        """
        self._heads.pop(session, None)
        self.samples.release(session)
        with suppress(Unavailable):
            await self._ask(lambda writer: writer.condemn(session))
        with told("delete the samples"):
            await to_thread.run_sync(self.samples.remove, session)
        while not await self._ask(lambda writer: writer.forget(session)):
            pass

    async def aclose(self) -> None:
        """Settle what was appended and close."""
        if self._closed:
            return
        self._closed = True
        with CancelScope(shield=True):
            await self._queue.aclose()
            await self._reader.aclose()
            self.samples.close()
            await to_thread.run_sync(self._writer.close)

    async def probe(self) -> None:
        """Write a little and take it back (see `EventLog.probe`)."""
        await self._ask(SqliteWriter.probe)
        with told("write the samples"):
            await to_thread.run_sync(self.samples.probe)

    async def _ask(self, question: Callable[[SqliteWriter], T]) -> T:
        """Ask something of the writer, behind the appends that wait; not cancelled half-way."""
        answers: list[T] = []
        call = Call(lambda writer: answers.append(question(writer)))
        self._queue.put(call)
        with CancelScope(shield=True):
            await call.wait()
        return answers[0]
