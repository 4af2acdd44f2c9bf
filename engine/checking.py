"""Whether a data directory is whole: every record and its sound, the order of the records, and the snapshots."""

import sqlite3
from collections.abc import Callable, Collection, Iterator

from msgspec import DecodeError, Struct, field

from antiphon.events.events import AudioDelta, AudioReceived, SessionClosed, SessionOpened
from antiphon.events.log import (
    Corrupt,
    LaterRecord,
    PastRetention,
    SessionRow,
    Snapshot,
    Transaction,
    highest_number,
)
from antiphon.sessions import core

from .datadir import DataPaths
from .faults import FAULTS
from .sample_places import Place, unpack
from .sample_store import SampleReader
from .sqlite_reader import index, trusted
from .sqlite_schema import checksum, connect_reader, cut_off, is_malformed, told

BATCH = 500
"""Records that are read in one short transaction: a server that writes meanwhile is not held up."""

MOST = 20
"""The most that is told of one session."""

Progress = Callable[[int, int], None]
"""Told how many records were looked at, of how many."""

_RECORDS = "SELECT seq, at, number, crc, data, sound FROM records WHERE key = ? AND seq > ? ORDER BY seq LIMIT ?"
_SESSION = "SELECT key, trimmed, trimmed_at, trimmed_number, imported FROM sessions WHERE session = ?"
_SNAPSHOT = "SELECT seq, version, crc, state FROM snapshots WHERE key = ?"
_KNOWN = "SELECT session FROM sessions"

_Record = tuple[int, int, int, int, bytes, bytes | None]


class Damage(Struct, frozen=True):
    """Something that is not as it was written. `session` empty: the store itself; `seq` 0: no record of its own."""

    session: str
    seq: int
    what: str


class Findings(Struct):
    """What was looked at, and what is wrong with it. `retired` pieces of sound are past their retention;
    `later` records were written by a later version, and not looked into.

    `stray` are files of sound that belong to no session of the log.
    """

    sessions: int = 0
    records: int = 0
    sound_bytes: int = 0
    retired: int = 0
    later: int = 0
    damage: list[Damage] = field(default_factory=list[Damage])
    stray: list[str] = field(default_factory=list[str])


def check(paths: DataPaths, wanted: Collection[str] | None, progress: Progress) -> Findings:
    """Look at all sessions, or only at those that are `wanted`. Blocks; a server may be writing meanwhile.

    Raises:
        Unavailable: there is no log, it cannot be read, or it is none of this layout.
    """
    found = Findings()
    with told("read the log"):
        connection = connect_reader(paths.database)
        try:
            samples = SampleReader(paths.samples)
            rows = [row for row in index(connection, None) if wanted is None or row.session in wanted]
            if wanted is None:
                _check_store(connection, paths, samples, found)
            total = sum(row.head for row in rows)
            for row in reversed(rows):
                _Check(connection, samples, row, found).run(lambda: progress(found.records, total))
        finally:
            connection.close()
    return found


def _check_store(connection: sqlite3.Connection, paths: DataPaths, samples: SampleReader, found: Findings) -> None:
    """Look at the file itself, and for sound that nobody refers to."""
    missing = cut_off(paths.database)
    if missing is not None:
        found.damage.append(Damage("", 0, missing))
    try:
        said = [str(line) for (line,) in connection.execute(f"PRAGMA quick_check({MOST})")]
    except sqlite3.DatabaseError as error:
        if not is_malformed(error):
            raise
        said = [str(error)]
    found.damage += [Damage("", 0, f"the database: {line}") for line in said if line != "ok"]
    known = {session for (session,) in connection.execute(_KNOWN)}
    if paths.samples.is_dir():
        files = samples.files()
        found.stray = sorted(path.name for session in files.keys() - known for path in files[session])


class _Check:
    """One session, read from its first record to its last."""

    def __init__(
        self, connection: sqlite3.Connection, samples: SampleReader, row: SessionRow, found: Findings
    ) -> None:
        self._connection = connection
        self._samples = samples
        self._row = row
        self._found = found
        self._told = 0
        key, trimmed, at, number, imported = connection.execute(_SESSION, (row.session,)).fetchone()
        self._key: int = key
        self._next: int = trimmed + 1
        self._at: int = at
        self._number: int = number
        self._term = 0
        self._closed: bool = bool(imported)
        self._state: core.Session | None = core.new() if not trimmed else None
        """None: the beginning is not there, or a record is damaged; what follows cannot be folded."""

    def run(self, progress: Callable[[], None]) -> None:
        """Look at all of it."""
        self._found.sessions += 1
        snapshot = self._snapshot()
        try:
            while records := self._read():
                for record in records:
                    self._check(record, snapshot)
                progress()
        except sqlite3.DatabaseError as error:
            if not is_malformed(error):
                raise
            self._damaged(self._next, f"it cannot be read: {error}")
            return
        closed = self._row.state == "closed"
        if self._state is not None and closed and not self._closed:
            self._damaged(0, "the index says that it has ended, and its log does not")

    def _read(self) -> list[_Record]:
        return self._connection.execute(_RECORDS, (self._key, self._next - 1, BATCH)).fetchall()

    def _check(self, record: _Record, snapshot: Snapshot | None) -> None:
        seq, at, number, crc, data, sound = record
        self._found.records += 1
        expected, self._next = self._next, seq + 1
        if seq != expected:
            missing = f"it is missing; the next one is {seq}" if seq == expected + 1 else f"missing up to {seq - 1}"
            self._damaged(expected, missing)
        try:
            transaction = trusted(seq, seq, crc, data, sound)
        except LaterRecord:
            self._found.later += 1
            self._state = None
            return
        except Corrupt as error:
            self._damaged(seq, error.why)
            return
        self._check_order(transaction, at, number)
        self._check_sound(transaction, sound)
        self._fold(transaction)
        if snapshot is not None and snapshot.seq == seq and self._state is not None:
            self._compare(snapshot, self._state)

    def _check_order(self, transaction: Transaction, at: int, number: int) -> None:
        """Terms, times and message numbers only grow, and the columns say what the record says."""
        seq = transaction.seq
        if not self._term <= transaction.term <= self._row.term:
            self._damaged(seq, f"its term {transaction.term} is not between {self._term} and {self._row.term}")
        if transaction.at < self._at or at != transaction.at:
            self._damaged(seq, f"its time {transaction.at} (index: {at}) is before {self._at}")
        highest = max(self._number, highest_number(transaction))
        if number != highest:
            self._damaged(seq, f"the index has message number {number} for it, and it is {highest}")
        opened = any(isinstance(event, SessionOpened) for event in transaction.events)
        if opened != (seq == 1):
            self._damaged(seq, "only the first record opens the session")
        self._term, self._at, self._number = transaction.term, transaction.at, highest
        self._closed = self._closed or any(isinstance(event, SessionClosed) for event in transaction.events)

    def _check_sound(self, transaction: Transaction, sound: bytes | None) -> None:
        try:
            places = list(_places(transaction, sound))
        except ValueError as error:
            self._damaged(transaction.seq, f"where its sound lies cannot be read: {error}")
            return
        for place in places:
            try:
                fault = self._samples.fault(self._row.session, place)
            except PastRetention:
                self._found.retired += 1
                continue
            self._found.sound_bytes += place.ref.size
            if fault is not None:
                self._damaged(transaction.seq, fault, folds=True)

    def _fold(self, transaction: Transaction) -> None:
        if self._state is None:
            return
        try:
            core.fold([transaction], self._state)
        except FAULTS as error:
            self._damaged(transaction.seq, f"it cannot be folded: {error!r}")

    def _snapshot(self) -> Snapshot | None:
        """Return the snapshot if it can be compared: it is whole, and of this version."""
        row = self._connection.execute(_SNAPSHOT, (self._key,)).fetchone()
        if row is None:
            return None
        seq, version, crc, state = row
        if checksum(state, seq) != crc:
            self._damaged(seq, "the snapshot behind it is damaged; a start does without it", folds=True)
            return None
        return Snapshot(seq=seq, version=version, state=state) if version == core.STATE_VERSION else None

    def _compare(self, snapshot: Snapshot, state: core.Session) -> None:
        try:
            same = core.load(snapshot.state) == state
        except DecodeError:
            same = False
        if not same:
            self._damaged(snapshot.seq, "the snapshot behind it is not what the log folds to", folds=True)

    def _damaged(self, seq: int, what: str, *, folds: bool = False) -> None:
        """Note something. Unless the session still `folds`, it is not folded any further."""
        if not folds:
            self._state = None
        self._told += 1
        if self._told < MOST:
            self._found.damage.append(Damage(self._row.session, seq, what))
        elif self._told == MOST:
            self._found.damage.append(Damage(self._row.session, seq, f"{what}; more of this session is not told"))


def _places(transaction: Transaction, sound: bytes | None) -> Iterator[Place]:
    """Give the places of a record's sound."""
    if sound is not None:
        yield from unpack(sound)
        return
    for event in transaction.events:
        if isinstance(event, AudioReceived | AudioDelta) and event.ref.size:
            yield Place(event.ref, None)
