"""Writing the embedded store: plain blocking calls on the one connection that writes."""

import sqlite3
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from anyio import Event

from antiphon.events.log import (
    Conflict,
    LogError,
    SampleWrite,
    Settled,
    Snapshot,
    Transaction,
    Unavailable,
    UnknownSession,
    encode,
)

from .log_head import Head, Opened, again, summarise
from .sample_places import pack
from .sample_store import flush
from .sqlite_checkpoint import PAGES, Checkpointer, move
from .sqlite_reader import Place, find
from .sqlite_schema import SCHEMA_VERSION, Durability, checksum, connect_writer, told

STEP = 500
"""Records that one step of `trim` or `forget` removes: about a millisecond, for which appends wait."""


Row = tuple[int, int, int, int, int, bytes, bytes | None]
"""A record: key, seq, at, number, crc, data, sound."""

_INSERT = "INSERT INTO records (key, seq, at, number, crc, data, sound) VALUES"
_ROW = "(?, ?, ?, ?, ?, ?, ?)"


_DATA = itemgetter(5)


class Append:
    """An append on its way: refused already (`error`), or a row to insert and what it does to the index."""

    __slots__ = ("closed", "dirty", "error", "head", "opened", "row", "settled", "term")

    def __init__(self, head: Head | None, term: int, settled: Settled) -> None:
        """Begin without a row."""
        self.head = head
        self.term = term
        self.settled = settled
        self.error: LogError | None = None
        self.row: Row | None = None
        self.opened: Opened | None = None
        self.closed = False
        self.dirty: Sequence[Path] = ()

    def deliver(self) -> None:
        """Tell the one who appended, and remember a failure where the next append is admitted."""
        if self.error is not None and self.head is not None:
            self.head.fail(self.term, self.error)
        self.settled(self.error)


class Call:
    """Any other call on the writer, on its way."""

    __slots__ = ("_done", "_question", "error")

    def __init__(self, question: Callable[["SqliteWriter"], None]) -> None:
        """Ask `question` of the writer, which may raise a `LogError`."""
        self.error: LogError | None = None
        self._question = question
        self._done = Event()

    def perform(self, writer: "SqliteWriter") -> None:
        """Ask; runs where the writer runs."""
        try:
            self._question(writer)
        except LogError as error:
            self.error = error

    def deliver(self) -> None:
        """Wake the one who asked."""
        self._done.set()

    async def wait(self) -> None:
        """Wait for the answer, or raise the `LogError`."""
        await self._done.wait()
        if self.error is not None:
            raise self.error


class Acquired(NamedTuple):
    """A session's term, just taken, and the end of its log."""

    key: int
    term: int
    seq: int
    number: int


class SqliteWriter:
    """Owns the connection that writes. Every method is one transaction, and blocks; one thread at a time.

    An append that failed spoils its session for the rest of the term (`Unavailable` or `Conflict`), until it is
    acquired anew: what was appended behind it, perhaps before anyone knew, must not be recorded with a gap.
    """

    def __init__(self, path: Path, durability: Durability) -> None:
        """Open the database.

        Raises:
            Unavailable: it cannot be opened, or is not ours.
        """
        with told("open the log"):
            self.connection = connect_writer(path, durability)
        self._path = path
        self._durability: Durability = durability
        self._broken = False
        self._checkpoints = Checkpointer(path)
        self._behind = False
        self._spoiled: dict[int, LogError] = {}
        self._inserts: dict[int, str] = {}

    def perform(self, batch: Iterable[Append | Call]) -> Callable[[], object] | None:
        """Do all of it, in order; neighbouring appends are one transaction.

        Returns what has to be done before the next call and takes some milliseconds: it waits for the disk.
        """
        if self._broken:
            self._open_again()
        appends: list[Append] = []
        for work in batch:
            if isinstance(work, Append):
                appends.append(work)
            else:
                self.record(appends)
                appends = []
                work.perform(self)
        self.record(appends)
        if not self._behind:
            return None
        self._behind = False
        return partial(move, self.connection)

    def record(self, appends: Sequence[Append]) -> None:
        """Insert the rows of `appends` in one transaction; those that were refused already have none.

        If it cannot be done, none is recorded: each gets `Unavailable` as its `error`, and its session is spoiled.
        """
        good: list[Append] = []
        rows: list[Row] = []
        indexed: list[Append] = []
        dirty: list[Path] = []
        for append in appends:
            row = append.row
            if append.error is not None or row is None:
                continue
            if self._spoiled and row[0] in self._spoiled:
                append.error = again(self._spoiled[row[0]])
                continue
            good.append(append)
            rows.append(row)
            dirty += append.dirty
            if append.closed or append.opened is not None:
                indexed.append(append)
        if not rows:
            return
        try:
            flush(dirty)
            self._insert(rows, indexed)
        except (sqlite3.Error, OSError) as error:
            self._roll_back()
            for append, row in zip(good, rows, strict=True):
                append.error = Unavailable(f"cannot write the log: {error}")
                self._spoiled.setdefault(row[0], append.error)
        else:
            self._wrote(len(rows) + sum(map(len, map(_DATA, rows))) // 1024)

    def acquire(self, session: str) -> Acquired:
        """Raise the session's term by one; a new session begins with 1."""
        with self._transaction("acquire the session"):
            key, term = self.connection.execute(
                "INSERT INTO sessions (session, term) VALUES (?, 1)"
                " ON CONFLICT (session) DO UPDATE SET term = term + 1 RETURNING key, term",
                (session,),
            ).fetchall()[0]
            seq, number = self.connection.execute(
                "SELECT coalesce(r.seq, s.trimmed), coalesce(r.number, s.trimmed_number) FROM sessions AS s"
                " LEFT JOIN records AS r ON r.key = s.key AND r.seq ="
                " (SELECT max(seq) FROM records WHERE key = s.key) WHERE s.key = ?",
                (key,),
            ).fetchone()
        self._spoiled.pop(key, None)
        return Acquired(key, term, seq, number)

    def save_snapshot(self, session: str, snapshot: Snapshot) -> None:
        """Keep a snapshot in place of the last one."""
        with self._transaction("save the snapshot"):
            self.connection.execute(
                "INSERT OR REPLACE INTO snapshots (key, seq, version, crc, state) VALUES (?, ?, ?, ?, ?)",
                (
                    self._find(session).key,
                    snapshot.seq,
                    snapshot.version,
                    checksum(snapshot.state, snapshot.seq),
                    snapshot.state,
                ),
            )
        self._wrote(len(snapshot.state) // 4096 + 2)

    def trim(self, session: str, through: int) -> bool:
        """Remove some of the records up to `through` of a closed session; return whether that was all."""
        with self._transaction("trim the session"):
            place = self._find(session)
            state: str | None = self.connection.execute(
                "SELECT state FROM sessions WHERE key = ?", (place.key,)
            ).fetchone()[0]
            if state != "closed":
                raise Conflict(f"{session} is open: only a closed session is trimmed")
            end = min(through, place.head)
            step = min(end, place.trimmed + STEP)
            if step > place.trimmed:
                self._remove(place, step)
        self._wrote(STEP // 4)
        return step >= end

    def condemn(self, session: str) -> None:
        """Note that the session is being removed: no index shows it, and the next start goes on with it."""
        with self._transaction("delete the session"):
            self.connection.execute("UPDATE sessions SET state = 'removed' WHERE session = ?", (session,))

    def condemned(self) -> list[str]:
        """Return the sessions whose removal has not come to its end."""
        with told("read the log"):
            found = self.connection.execute("SELECT session FROM sessions WHERE state = 'removed'").fetchall()
        return [session for (session,) in found]

    def forget(self, session: str) -> bool:
        """Remove some of the session, the session itself last; return whether that was all."""
        with self._transaction("delete the session"):
            place = find(self.connection, session)
            if place is None:
                return True
            step = min(place.head, place.trimmed + STEP)
            if step > place.trimmed:
                self._remove(place, step)
            if step == place.head:
                self.connection.execute("DELETE FROM snapshots WHERE key = ?", (place.key,))
                self.connection.execute("DELETE FROM sessions WHERE key = ?", (place.key,))
                self._spoiled.pop(place.key, None)
        self._wrote(STEP // 4)
        return step == place.head

    def frames(self) -> int | None:
        """Return how many frames of the write-ahead log are taken for whole, and move them; None: it cannot be."""
        return move(self.connection)

    def probe(self) -> None:
        """Write a page of the database as it is."""
        with self._transaction("write the log"):
            self.connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        self._wrote(1)

    def refuse_known(self, session: str) -> None:
        """Raise `Conflict` if there is a session of this name."""
        with told("read the log"):
            if find(self.connection, session) is not None:
                raise Conflict(f"there is a session {session} already")

    def adopt(self, session: str, entries: Iterable[tuple[Transaction, Sequence[SampleWrite]]]) -> int:
        """Record a whole log that was written elsewhere, as that of a session that has ended; return its length.

        Raises:
            Conflict: there is a session of this name, or the log has a hole, no opening in the beginning, or
                numbers that cannot be kept.
        """
        with self._transaction("import the session"):
            self.refuse_known(session)
            (key,) = self.connection.execute(
                "INSERT INTO sessions (session, term, imported) VALUES (?, 0, 1) RETURNING key", (session,)
            ).fetchall()[0]
            head = Head(key)
            try:
                self.connection.executemany(
                    f"{_INSERT} {_ROW}",
                    (self._adopted(head, transaction, writes) for transaction, writes in entries),
                )
            except OverflowError:
                raise Conflict(f"there is a number in record {head.seq} that no session has") from None
            if not head.seq:
                raise Conflict("the log is empty")
            self.connection.execute(
                "UPDATE sessions SET term = ?, state = 'closed' WHERE key = ?", (head.term, head.key)
            )
        self._wrote(PAGES)
        return head.seq

    def _adopted(self, head: Head, transaction: Transaction, writes: Sequence[SampleWrite]) -> Row:
        """Return the row of a transaction that follows `head`, which moves on to it, and of its sound."""
        summary = summarise(transaction)
        if transaction.seq != head.seq + 1:
            raise Conflict(f"record {transaction.seq} does not follow {head.seq}")
        if head.seq == 0:
            if summary.opened is None:
                raise Conflict("the log does not begin with the opening of a session")
            self._index_opening(head.key, summary.opened)
        head.term = max(head.term, transaction.term)
        head.advance(transaction, summary.number)
        data, sound = encode(transaction), pack(writes)
        return head.key, head.seq, transaction.at, head.number, checksum(data, head.seq, sound), data, sound

    def close(self) -> None:
        """Wait for a checkpoint that runs, and close; the last connection empties the write-ahead log."""
        self._checkpoints.close()
        self.connection.close()

    def _find(self, session: str) -> Place:
        place = find(self.connection, session)
        if place is None or not place.head:
            raise UnknownSession(f"nothing was recorded for {session}")
        return place

    def _remove(self, place: Place, through: int) -> None:
        """Remove records up to `through`; what the index shows of the last one stays in the session's row."""
        at, number = self.connection.execute(
            "SELECT at, number FROM records WHERE key = ? AND seq = ?", (place.key, through)
        ).fetchone() or (0, 0)
        self.connection.execute("DELETE FROM records WHERE key = ? AND seq <= ?", (place.key, through))
        self.connection.execute(
            "UPDATE sessions SET trimmed = ?, trimmed_at = ?, trimmed_number = ? WHERE key = ?",
            (through, at, number, place.key),
        )

    def _insert(self, rows: Sequence[Row], indexed: Sequence[Append]) -> None:
        """Insert `rows` with one statement, and do what `indexed` does to the index in the same transaction.

        One statement is one transaction when nothing else belongs to it, and one place where this thread gives
        up the interpreter and has to wait for a busy loop to give it back; `executemany` is one such place for
        every row.
        """
        values = tuple(chain.from_iterable(rows))
        insert = self._inserts.get(len(rows))
        if insert is None:
            insert = f"{_INSERT} {', '.join([_ROW] * len(rows))}"
            self._inserts[len(rows)] = insert
        if not indexed:
            self.connection.execute(insert, values)
            return
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.execute(insert, values)
        for append in indexed:
            self._index(append)
        self.connection.execute("COMMIT")

    def _index(self, append: Append) -> None:
        if append.row is None:
            return
        key = append.row[0]
        if append.opened is not None:
            self._index_opening(key, append.opened)
        if append.closed:
            self.connection.execute("UPDATE sessions SET state = 'closed' WHERE key = ?", (key,))

    def _index_opening(self, key: int, opened: Opened) -> None:
        self.connection.execute(
            "UPDATE sessions SET kind = 'voice', state = 'open', dialect = ?, model = ?, plugin = ?,"
            " plugin_version = ?, opened_us = ? WHERE key = ?",
            (opened.dialect, opened.model, opened.plugin, opened.plugin_version, opened.opened_us, key),
        )

    @contextmanager
    def _transaction(self, doing: str) -> Generator[None, None, None]:
        with told(doing):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise

    def _roll_back(self) -> None:
        """Undo what was begun; a connection that cannot even do that is not used again."""
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._broken = True

    def _open_again(self) -> None:
        """Take another connection in place of one that has failed; nothing is written until that is possible."""
        self.connection.close()
        try:
            self.connection = connect_writer(self._path, self._durability, known=True)
        except (sqlite3.Error, LogError):
            return
        self._broken = False

    def _wrote(self, pages: int) -> None:
        if self._checkpoints.wrote(pages):
            self._behind = True
