"""A reader of one session's log: a position, and nothing that grows when it is slow."""

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Protocol, Self

import anyio.lowlevel
import structlog
from msgspec import Struct

from antiphon.events.audio import SampleRef
from antiphon.events.log import Corrupt, EventLog, LogError, Samples, SoundGone, Transaction, UnknownSession

from .clock import Clock
from .errors import Refused
from .log_head import summarise
from .published import Loss, Published, deltas, loss, published

_log = structlog.get_logger()

End = Loss | Literal["slow_consumer", "done"]

YIELD_EVERY = 32
"""Entries handed out in one go before others get their turn (about 2 ms of encoding and sending)."""

BATCH = 64
SPAN_BYTES = 4 * 1024 * 1024


class Patience(Struct, frozen=True):
    """How far a reader may be behind, in bytes and in µs, and who is told when it is further."""

    bytes: int
    us: int
    lost: Callable[[], None]


class Source(Protocol):
    """What a cursor reads: a feed."""

    session: str
    log: EventLog
    samples: Samples
    clock: Clock
    durable: int
    number: int
    total: int
    epoch: int
    closed: bool
    failure: Refused | None

    def tail(self, seq: int) -> Published | None: ...
    def age_us(self, number: int) -> int: ...
    def join(self, cursor: "Cursor") -> None: ...
    def leave(self, cursor: "Cursor") -> None: ...


class Cursor:
    """An asynchronous iterator over the durable transactions behind `after`, oldest first, without gaps.

    With `attachment` and `generation` it belongs to a connection and ends behind the transaction that takes
    the session from it. With `until` it ends behind that sequence. With `patience` it ends when it is too far
    behind: by bytes that became durable since it began, or by the age of the first public event that it has not
    taken, once it has waited for one. It always ends behind `SessionClosed`, and `end` then says why. It is a
    context manager; leaving it forgets it.
    """

    def __init__(
        self,
        feed: Source,
        after: int,
        *,
        until: int | None = None,
        attachment: int | None = None,
        generation: int | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.position: int = after
        self.end: End | None = None
        self._feed = feed
        self._until = until
        self._attachment = attachment
        self._generation = generation
        self._patience = patience
        self._waiter: asyncio.Future[None] | None = None
        self._fetched: deque[Published] = deque()
        self._handed = 0
        self._seen = feed.total
        self._number: int | None = None
        """The last public number that it has taken. None until it has waited once: the past may be old."""
        feed.join(self)

    @property
    def epoch(self) -> int:
        """The latest durable epoch: audio of an older one need not be sent any more (DESIGN 5.11)."""
        return self._feed.epoch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Published:
        """Return the next transaction; wait for it if necessary.

        Raises:
            StopAsyncIteration: nothing more will come; see `end`.
            Refused: `storage_unavailable`: the session's runner was dropped, or the store cannot be read;
                `session_resume_expired`: what would come next is damaged.
        """
        while True:
            entry = self.next_nowait()
            if entry is not None:
                return entry
            if self.end is not None:
                self.close()
                raise StopAsyncIteration
            if self._handed >= YIELD_EVERY:
                self._handed = 0
                await anyio.lowlevel.checkpoint()
            elif self.position < self._feed.durable:
                await self._fetch()
            else:
                await self._wait()

    def next_nowait(self) -> Published | None:
        """Return the next transaction if it is in memory and it is this reader's turn, else None."""
        if self.end is not None or self._handed >= YIELD_EVERY:
            return None
        if self._until is not None and self.position >= self._until:
            self.end = "done"
            return None
        if self._fetched:
            entry: Published | None = self._fetched.popleft()
        elif self.position < self._feed.durable:
            entry = self._feed.tail(self.position + 1)
        else:
            return None
        if entry is None:
            return None
        self.position = entry.transaction.seq
        self._handed += 1
        if entry.end > self._seen:
            self._seen = entry.end
        if self._number is not None and entry.number > self._number:
            self._number = entry.number
        if entry.turning:
            self.end = loss(entry.transaction, self._attachment, self._generation)
        return entry

    def close(self) -> None:
        """Stop being counted as a reader. May be called again."""
        self._feed.leave(self)
        self.wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- called by the feed ----------------------------------------------------------------------------------

    def notify(self) -> None:
        """Something became durable: wake the reader, and see whether it is too far behind."""
        if self._waiter is not None:
            self.wake()
        elif self._patience is not None and self._slow(self._patience):
            patience, self._patience = self._patience, None
            self.end = "slow_consumer"
            patience.lost()

    def wake(self) -> None:
        """Let a waiting reader look again."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _slow(self, patience: Patience) -> bool:
        feed = self._feed
        if feed.total - self._seen > patience.bytes:
            return True
        if self._number is None or feed.number <= self._number:
            return False
        return feed.age_us(self._number + 1) > patience.us

    # -- reading ---------------------------------------------------------------------------------------------

    async def _wait(self) -> None:
        feed = self._feed
        if feed.failure is not None:
            self.close()
            raise feed.failure
        if feed.closed:
            self.end = "closed"
            return
        self._handed = 0
        self._seen = feed.total
        self._number = feed.number
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def _fetch(self) -> None:
        """Read a batch that is no longer in memory, with its sound."""
        feed = self._feed
        last = feed.durable if self._until is None else min(feed.durable, self._until)
        try:
            batch = await feed.log.read(feed.session, self.position, min(BATCH, last - self.position))
            batch = [transaction for transaction in batch if transaction.seq <= last]
            gone: list[SoundGone | UnknownSession] = []
            sound = await _sound(feed.samples, feed.session, batch, gone)
        except Corrupt as error:
            self.close()
            _log.error(
                "a reader needs a record that is damaged", session=feed.session, seq=error.seq, why=error.why
            )
            raise Refused("session_resume_expired", f"The session cannot be read on: {error}.") from error
        except LogError as error:
            self.close()
            raise Refused("storage_unavailable", "The session's log cannot be read now.") from error
        if gone:
            _log.error(
                "sound that a reader needs is gone", session=feed.session, pieces=len(gone), why=str(gone[0])
            )
        for transaction in batch:
            mine = {ref: sound[ref] for ref in deltas(transaction)}
            entry = published(transaction, mine)
            entry.number = summarise(transaction).number
            self._fetched.append(entry)
        if not batch:
            raise Refused("storage_unavailable", "A part of the session's log is missing.")


async def _sound(
    samples: Samples, session: str, batch: list[Transaction], gone: list[SoundGone | UnknownSession]
) -> dict[SampleRef, bytes]:
    """Read the sound of a batch, neighbouring pieces in one go; say in `gone` what could not be."""
    found: dict[SampleRef, bytes] = {}
    span: list[SampleRef] = []
    for ref in [ref for transaction in batch for ref in deltas(transaction)]:
        if span and (ref.start != span[-1].end or ref.end - span[0].start > SPAN_BYTES):
            found.update(await _read_span(samples, session, span, gone))
            span = []
        span.append(ref)
    if span:
        found.update(await _read_span(samples, session, span, gone))
    return found


async def _read_span(
    samples: Samples, session: str, span: list[SampleRef], gone: list[SoundGone | UnknownSession]
) -> dict[SampleRef, bytes]:
    """Read pieces that lie behind one another; one that is gone is empty, as one that an interruption has voided.

    The words and the numbers of an answer are whole all the same: who comes back is better off with them alone.
    """
    start = span[0].start
    try:
        data = await samples.read(session, SampleRef(span[0].stream, start, span[-1].end - start))
    except (SoundGone, UnknownSession) as error:
        if len(span) == 1:
            gone.append(error)
            return {span[0]: b""}
        one_by_one = [await _read_span(samples, session, [ref], gone) for ref in span]
        return {ref: data for found in one_by_one for ref, data in found.items()}
    return {ref: data[ref.start - start : ref.end - start] for ref in span}
