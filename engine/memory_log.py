"""The log in memory: for tests, and for a server whose sessions need not outlive it."""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Literal

from antiphon.events.log import (
    Conflict,
    Fenced,
    LogError,
    SampleWrite,
    SessionRow,
    Settled,
    Snapshot,
    Transaction,
    Unavailable,
    UnknownSession,
)

from .log_head import Head, Opened, summarise
from .log_queue import Answer, Outcomes
from .sample_store import MemorySamples, check_sizes

KEPT_CLOSED = 100
"""Sessions that have ended, and are kept to be looked at."""


class _Kept:
    """What is kept of one session; `numbers` holds the highest message number up to each transaction."""

    def __init__(self) -> None:
        self.head = Head()
        self.transactions: list[Transaction] = []
        self.numbers: list[int] = []
        self.trimmed = 0
        self.last_at = 0
        self.opened: Opened | None = None
        self.closed = False
        self.snapshot: Snapshot | None = None


class MemoryLog:
    """An `EventLog` that dies with the process; a record is there when `append` returns, and settled soon after.

    Of the sessions that have ended, the last `kept_closed` are remembered, with their sound.
    """

    def __init__(self, samples: MemorySamples | None = None, *, kept_closed: int = KEPT_CLOSED) -> None:
        """Start empty; must be made on the loop that will use it."""
        self.samples = samples if samples is not None else MemorySamples()
        self._sessions: dict[str, _Kept] = {}
        self._outcomes = Outcomes()
        self._closed = False
        self._kept_closed = kept_closed
        self._ended: deque[str] = deque()

    async def acquire(self, session: str) -> int:
        """Return a new term (see `EventLog.acquire`)."""
        if self._closed:
            raise Unavailable("the log is closed")
        head = self._sessions.setdefault(session, _Kept()).head
        head.term += 1
        head.failed = None
        return head.term

    def append(
        self, session: str, transaction: Transaction, samples: Sequence[SampleWrite], settled: Settled
    ) -> None:
        """Record `transaction` (see `EventLog.append`)."""
        check_sizes(samples)
        kept = self._sessions.get(session)
        answer = Answer(settled, self._refuses(kept, transaction))
        if kept is not None and answer.error is None:
            self.samples.write(session, samples)
            self._record(session, kept, transaction)
        elif kept is not None and answer.error is not None:
            kept.head.fail(transaction.term, answer.error)
        self._outcomes.soon([answer])

    def _refuses(self, kept: _Kept | None, transaction: Transaction) -> LogError | None:
        if self._closed:
            return Unavailable("the log is closed")
        if kept is None:
            return Fenced("nobody acquired the session")
        return kept.head.refuses(transaction)

    def _record(self, session: str, kept: _Kept, transaction: Transaction) -> None:
        summary = summarise(transaction)
        kept.head.advance(transaction, summary.number)
        kept.transactions.append(transaction)
        kept.numbers.append(kept.head.number)
        kept.last_at = transaction.at
        kept.opened = summary.opened or kept.opened
        if summary.closed and not kept.closed:
            kept.closed = True
            self._ended.append(session)
            if len(self._ended) > self._kept_closed:
                self._forget(self._ended.popleft())

    async def read(self, session: str, after: int, limit: int = 1000) -> list[Transaction]:
        """Return transactions (see `EventLog.read`)."""
        kept = self._known(session)
        start = max(after - kept.trimmed, 0)
        return kept.transactions[start : start + limit]

    async def locate(self, session: str, number: int) -> int:
        """Find a message number (see `EventLog.locate`)."""
        kept = self._known(session)
        return kept.trimmed + bisect_right(kept.numbers, number)

    async def sessions(self, state: Literal["open", "closed"] | None = None) -> list[SessionRow]:
        """Return the index, newest first."""
        rows = [
            _row(session, kept, kept.opened)
            for session, kept in reversed(self._sessions.items())
            if kept.opened is not None and state in (None, "closed" if kept.closed else "open")
        ]
        return sorted(rows, key=lambda row: row.opened_us, reverse=True)

    async def save_snapshot(self, session: str, snapshot: Snapshot) -> None:
        """Keep a snapshot (see `EventLog.save_snapshot`)."""
        self._known(session).snapshot = snapshot

    async def load_snapshot(self, session: str) -> Snapshot | None:
        """Return the latest snapshot, if there is one."""
        kept = self._sessions.get(session)
        return kept.snapshot if kept is not None else None

    async def trim(self, session: str, through: int) -> None:
        """Forget the beginning (see `EventLog.trim`)."""
        kept = self._known(session)
        if not kept.closed:
            raise Conflict(f"{session} is open: only a closed session is trimmed")
        count = min(through, kept.head.seq) - kept.trimmed
        if count > 0:
            del kept.transactions[:count], kept.numbers[:count]
            kept.trimmed += count

    async def delete(self, session: str) -> None:
        """Forget the session, its snapshot and its samples."""
        if session in self._ended:
            self._ended.remove(session)
        self._forget(session)

    def _forget(self, session: str) -> None:
        self._sessions.pop(session, None)
        self.samples.forget(session)

    async def probe(self) -> None:
        """Raise `Unavailable` once it is closed."""
        if self._closed:
            raise Unavailable("the log is closed")

    async def aclose(self) -> None:
        """Settle what was appended and close."""
        self._closed = True
        self._outcomes.deliver()

    def _known(self, session: str) -> _Kept:
        kept = self._sessions.get(session)
        if kept is None or not kept.head.seq:
            raise UnknownSession(f"nothing was recorded for {session}")
        return kept


def _row(session: str, kept: _Kept, opened: Opened) -> SessionRow:
    return SessionRow(
        session=session,
        kind="voice",
        state="closed" if kept.closed else "open",
        dialect=opened.dialect,
        model=opened.model,
        plugin=opened.plugin,
        plugin_version=opened.plugin_version,
        opened_us=opened.opened_us,
        at=kept.last_at,
        term=kept.head.term,
        head=kept.head.seq,
    )
