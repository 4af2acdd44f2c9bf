"""Reading the embedded store: by its owner for catch-up, and by the command line beside a running server."""

import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Literal, NamedTuple, TypeVar

import msgspec
from anyio import to_thread

from antiphon.events.log import (
    Corrupt,
    LaterLayout,
    LaterRecord,
    PastRetention,
    SessionRow,
    Snapshot,
    Transaction,
    Unavailable,
    UnknownSession,
    decode,
)

from .datadir import DataPaths
from .sample_places import unpack
from .sample_store import SampleReader
from .sqlite_schema import checksum, connect_reader, is_malformed, told

T = TypeVar("T")

_READ = "SELECT seq, crc, data, sound FROM records WHERE key = ? AND seq > ? ORDER BY seq LIMIT ?"
_SCAN = "SELECT seq, crc, data, sound FROM records NOT INDEXED WHERE key = ? AND seq > ? ORDER BY n LIMIT ?"
_BEGIN = "SELECT key, trimmed FROM sessions WHERE session = ?"
_ANY = "SELECT EXISTS (SELECT 1 FROM records WHERE key = ?)"
_NUMBER = "SELECT number FROM records WHERE key = ? AND seq = ?"
_INDEX = """
SELECT s.session, s.kind, s.state, s.dialect, s.model, s.plugin, s.plugin_version, s.opened_us,
       coalesce(r.at, s.trimmed_at), s.term, coalesce(r.seq, s.trimmed), s.imported
FROM sessions AS s LEFT JOIN records AS r
     ON r.key = s.key AND r.seq = (SELECT max(seq) FROM records WHERE key = s.key)
WHERE {which} ORDER BY s.opened_us DESC, s.key DESC
"""
_NAMES = """
SELECT s.key, s.trimmed, s.trimmed_at, s.term, s.imported,
       s.session, s.kind, s.state, s.dialect, s.model, s.plugin, s.plugin_version, s.opened_us
FROM sessions AS s WHERE {which} ORDER BY s.opened_us DESC, s.key DESC
"""
_SOUNDS = "SELECT seq, sound FROM records WHERE key = ? AND seq > ? AND sound IS NOT NULL ORDER BY seq DESC LIMIT ?"
LAST_RECORDS, LAST_SOUNDS = 128, 16
"""How far back it is looked for sound that a loss of power has taken."""
_ALL = "SELECT key, seq, at FROM records NOT INDEXED ORDER BY n"
_WALK = "SELECT key, seq, 0 FROM records INDEXED BY records_by_session ORDER BY key, seq"
_WHICH = {None: "s.state IN ('open', 'closed')", "open": "s.state = 'open'", "closed": "s.state = 'closed'"}


_IndexRow = tuple[object, ...]
"""The fields of a `SessionRow`, as the database has them."""


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

    def __init__(self, paths: DataPaths, *, strict: bool = False) -> None:
        """Read the log in `paths`; connections are opened when they are needed.

        `strict`: of a damaged database there is no index, not even what can still be read of it.
        """
        self._strict = strict
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
        return await self._ask(partial(index, state=state, strict=self._strict))

    async def load_snapshot(self, session: str) -> Snapshot | None:
        """Return the latest snapshot; None if there is none that can be trusted."""
        return await self._ask(partial(_load_snapshot, session=session))

    async def readable(self, session: str) -> tuple[int, str]:
        """Return up to which record the log can be read, and what is wrong with the next one, if there is one.

        Only checksums and places are looked at, so that it costs little of what reading costs.
        """
        return await self._ask(partial(_readable, session=session))

    async def faults_at_end(self, session: str) -> list[tuple[int, str]]:
        """Return which of the last records have lost their sound, and what is wrong: a loss of power does that."""
        return await self._ask(partial(_faults_at_end, session=session, samples=self.samples))

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
    # The end of the log is not asked for: it may be what is damaged, and the beginning can still be read.
    known: tuple[int, int] | None = connection.execute(_BEGIN, (session,)).fetchone()
    if known is None:
        raise UnknownSession(f"nothing was recorded for {session}")
    key, trimmed = known
    first = max(after, trimmed) + 1
    try:
        found = _in_order(connection, _READ, key, first, limit)
    except _Broken:
        # Only the index may be damaged; the table has the records of a session in the same order.
        try:
            found = _in_order(connection, _SCAN, key, first, limit)
        except _Broken as broken:
            raise Corrupt(first, str(broken)) from broken
    if not found and not trimmed and not connection.execute(_ANY, (key,)).fetchone()[0]:
        raise UnknownSession(f"nothing was recorded for {session}")
    return found


def _readable(connection: sqlite3.Connection, session: str) -> tuple[int, str]:
    known: tuple[int, int] | None = connection.execute(_BEGIN, (session,)).fetchone()
    if known is None:
        raise UnknownSession(f"nothing was recorded for {session}")
    key, last = known
    damage: Corrupt | None = None
    for query in (_READ, _SCAN):  # as `_read` goes on where only the index is damaged
        last, damage, malformed = _walk(connection, query, key, last)
        if not malformed:
            break
    return last, "" if damage is None else f"{damage}; what stands before it is whole"


def _walk(connection: sqlite3.Connection, query: str, key: int, last: int) -> tuple[int, Corrupt | None, bool]:
    """Return the last whole record behind `last`, what is wrong with the next one, and whether the file is."""
    try:
        for seq, crc, data, sound in connection.execute(query, (key, last, -1)):
            if seq != last + 1 or checksum(data, seq, sound) != crc:
                trusted(last + 1, seq, crc, data, sound)
            last = seq
    except Corrupt as error:
        return last, error, False
    except sqlite3.DatabaseError as error:
        if not is_malformed(error):
            raise
        return last, Corrupt(last + 1, str(error)), True
    return last, None, False


class _Broken(Exception):
    """The database is damaged where the first record should stand."""


def _in_order(connection: sqlite3.Connection, query: str, key: int, first: int, limit: int) -> list[Transaction]:
    """Return the records from `first` on, up to a damaged one; if that comes first: `Corrupt` or `_Broken`."""
    found: list[Transaction] = []
    try:
        for seq, crc, data, sound in connection.execute(query, (key, first - 1, limit)):
            found.append(trusted(first + len(found), seq, crc, data, sound))
    except Corrupt:
        if not found:
            raise
    except sqlite3.DatabaseError as error:
        if not is_malformed(error):
            raise
        if not found:
            raise _Broken(str(error)) from error
    return found


def trusted(expected: int, seq: int, crc: int, data: bytes, sound: bytes | None) -> Transaction:
    """Decode a record, or raise `Corrupt`."""
    if seq != expected:
        raise Corrupt(expected, f"it is missing; the next one is {seq}")
    if checksum(data, seq, sound) != crc:
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


def _faults_at_end(connection: sqlite3.Connection, session: str, samples: SampleReader) -> list[tuple[int, str]]:
    place = _known(connection, session)
    faults: list[tuple[int, str]] = []
    sane: set[str] = set()
    for seq, sound in connection.execute(_SOUNDS, (place.key, place.head - LAST_RECORDS, LAST_SOUNDS)).fetchall():
        with suppress(PastRetention, ValueError):
            for known in unpack(sound):
                # The end of a file goes first: where the last piece of a stream is whole, those before it are.
                if known.ref.stream in sane:
                    continue
                fault = samples.fault(session, known)
                if fault is None:
                    sane.add(known.ref.stream)
                else:
                    faults.append((seq, fault))
    return faults


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


def index(
    connection: sqlite3.Connection, state: Literal["open", "closed"] | None, *, strict: bool = False
) -> list[SessionRow]:
    """Return the index, newest first; unless `strict`, as much as a damaged database still gives."""
    try:
        rows: list[_IndexRow] = connection.execute(_INDEX.format(which=_WHICH[state])).fetchall()
    except sqlite3.DatabaseError as error:
        if strict or not is_malformed(error):
            raise
        rows = _one_by_one(connection, state)
    return [
        msgspec.convert(dict(zip(SessionRow.__struct_fields__, (*row, bool(imported)), strict=True)), SessionRow)
        for *row, imported in rows
    ]


def _one_by_one(connection: sqlite3.Connection, state: Literal["open", "closed"] | None) -> list[_IndexRow]:
    """Return the index of a damaged database: a session ends where its records cannot be read any further.

    What the table does not give any more, its index may, and the other way round.
    """
    ends: dict[int, tuple[int, int]] = {}
    for query in (_ALL, _WALK):
        try:
            for key, seq, at in connection.execute(query):
                if seq > ends.get(key, (0, 0))[0]:
                    ends[key] = seq, at
        except sqlite3.DatabaseError as error:
            if not is_malformed(error):
                raise
    rows: list[_IndexRow] = []
    for key, trimmed, trimmed_at, term, imported, *named in connection.execute(_NAMES.format(which=_WHICH[state])):
        head, at = ends.get(key, (trimmed, trimmed_at))
        rows.append((*named, at, term, head, imported))
    return rows


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
