"""Reading the embedded store: by its owner for catch-up, and by the command line beside a running server."""

import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Literal, NamedTuple, TypeVar

import msgspec
from anyio import to_thread

from antiphon.events.log import (
    Corrupt,
    LaterLayout,
    LaterRecord,
    SessionRow,
    Snapshot,
    Transaction,
    Unavailable,
    UnknownSession,
    decode,
)

from .datadir import DataPaths
from .sample_store import SampleReader
from .sqlite_schema import checksum, connect_reader, told

T = TypeVar("T")

_READ = "SELECT seq, crc, data FROM records WHERE key = ? AND seq > ? ORDER BY seq LIMIT ?"
_NUMBER = "SELECT number FROM records WHERE key = ? AND seq = ?"
_INDEX = """
SELECT s.session, s.kind, s.state, s.dialect, s.model, s.plugin, s.plugin_version, s.opened_us,
       coalesce(r.at, s.trimmed_at), s.term, coalesce(r.seq, s.trimmed)
FROM sessions AS s LEFT JOIN records AS r
     ON r.key = s.key AND r.seq = (SELECT max(seq) FROM records WHERE key = s.key)
WHERE {which} ORDER BY s.opened_us DESC, s.key DESC
"""
_WHICH = {None: "s.state IS NOT NULL", "open": "s.state = 'open'", "closed": "s.state = 'closed'"}


class Place(NamedTuple):
    """Where a session stands in the database: its records are `trimmed + 1 … head`."""

    key: int
    trimmed: int
    head: int


def find(connection: sqlite3.Connection, session: str) -> Place | None:
    """Return where the session stands; None if it is not known."""
    found: tuple[int, int, int] | None = connection.execute(
        "SELECT key, trimmed, coalesce((SELECT max(seq) FROM records WHERE key = s.key), trimmed)"
        " FROM sessions AS s WHERE session = ?",
        (session,),
    ).fetchone()
    return Place(*found) if found is not None else None


class SqliteReader:
    """The reading half of an `EventLog`, and its samples.

    Each call is one short transaction on a read-only connection in a worker thread, so a reader never holds
    the writer up, nor for long the checkpoint that would empty the write-ahead log.
    """

    def __init__(self, paths: DataPaths) -> None:
        """Read the log in `paths`; connections are opened when they are needed."""
        self.samples = SampleReader(paths.samples)
        self._path = paths.database
        self._idle: list[sqlite3.Connection] = []
        self._closed = False

    async def read(self, session: str, after: int, limit: int = 1000) -> list[Transaction]:
        """Return transactions (see `EventLog.read`)."""
        return await self._ask(partial(_read, session=session, after=after, limit=limit))

    async def locate(self, session: str, number: int) -> int:
        """Find a message number (see `EventLog.locate`)."""
        return await self._ask(partial(_locate, session=session, number=number))

    async def sessions(self, state: Literal["open", "closed"] | None = None) -> list[SessionRow]:
        """Return the index, newest first."""
        return await self._ask(partial(_sessions, state=state))

    async def load_snapshot(self, session: str) -> Snapshot | None:
        """Return the latest snapshot; None if there is none that can be trusted."""
        return await self._ask(partial(_load_snapshot, session=session))

    async def aclose(self) -> None:
        """Close all connections."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    async def _ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        return await to_thread.run_sync(self._answer, question)

    def _answer(self, question: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise Unavailable("the log is closed")
        with told("read the log"), self._connection() as connection:
            connection.execute("BEGIN")
            try:
                return question(connection)
            finally:
                connection.execute("ROLLBACK")

    @contextmanager
    def _connection(self) -> Generator[sqlite3.Connection, None, None]:
        """Lend a connection; one that failed is not used again."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = connect_reader(self._path)
        try:
            yield connection
        except sqlite3.Error:
            connection.close()
            raise
        except BaseException:
            self._give_back(connection)
            raise
        self._give_back(connection)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)


def _known(connection: sqlite3.Connection, session: str) -> Place:
    place = find(connection, session)
    if place is None or not place.head:
        raise UnknownSession(f"nothing was recorded for {session}")
    return place


def _read(connection: sqlite3.Connection, session: str, after: int, limit: int) -> list[Transaction]:
    place = _known(connection, session)
    expected = max(after, place.trimmed) + 1
    found: list[Transaction] = []
    try:
        for seq, crc, data in connection.execute(_READ, (place.key, expected - 1, limit)):
            found.append(_trusted(expected, seq, crc, data))
            expected += 1
    except Corrupt:
        if not found:
            raise
    except sqlite3.DatabaseError as error:
        if type(error) is not sqlite3.DatabaseError:  # a subclass has another cause: locked, input/output
            raise
        if not found:
            raise Corrupt(expected, str(error)) from error
    return found


def _trusted(expected: int, seq: int, crc: int, data: bytes) -> Transaction:
    """Decode a record, or raise `Corrupt`."""
    if seq != expected:
        raise Corrupt(expected, f"it is missing; the next one is {seq}")
    if checksum(data, seq) != crc:
        raise Corrupt(seq, "its checksum does not match")
    try:
        transaction = decode(data)
    except LaterLayout as error:
        raise LaterRecord(seq, str(error)) from error
    except msgspec.DecodeError as error:
        raise Corrupt(seq, f"it cannot be decoded: {error}") from error
    if transaction.seq != seq:
        raise Corrupt(seq, f"it says that it is {transaction.seq}")
    return transaction


def _locate(connection: sqlite3.Connection, session: str, number: int) -> int:
    place = _known(connection, session)
    low, high = place.trimmed, place.head
    # Invariant: records up to `low` end at or below `number`, those from `high + 1` on lie above it.
    while low < high:
        middle = (low + high + 1) // 2
        found: tuple[int] | None = connection.execute(_NUMBER, (place.key, middle)).fetchone()
        if found is None:
            raise Corrupt(middle, "it is missing")
        if found[0] <= number:
            low = middle
        else:
            high = middle - 1
    return low


def _sessions(connection: sqlite3.Connection, state: Literal["open", "closed"] | None) -> list[SessionRow]:
    rows = connection.execute(_INDEX.format(which=_WHICH[state]))
    return [SessionRow(**dict(zip(SessionRow.__struct_fields__, row, strict=True))) for row in rows]


def _load_snapshot(connection: sqlite3.Connection, session: str) -> Snapshot | None:
    place = find(connection, session)
    if place is None:
        return None
    found: tuple[int, int, int, bytes] | None = connection.execute(
        "SELECT seq, version, crc, state FROM snapshots WHERE key = ?", (place.key,)
    ).fetchone()
    if found is None:
        return None
    seq, version, crc, state = found
    # A snapshot only shortens recovery: one that is damaged, or ahead of a log that lost its end, is no loss.
    if checksum(state, seq) != crc or seq > place.head:
        return None
    return Snapshot(seq=seq, version=version, state=state)
