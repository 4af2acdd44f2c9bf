"""The tables of the embedded store, its connections, and how a record is guarded."""

import sqlite3
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from antiphon.events.log import Malformed, Unavailable

from .sqlite_layouts import bring_up

Durability = Literal["normal", "full"]

APPLICATION_ID = 0x41_4E_54_50  # "ANTP", which `file` shows
SCHEMA_VERSION = 3  # a change of the tables is a step in sqlite_layouts.py

# Records of all sessions stand in one table in the order of their writing, so that a commit of 64 sessions
# dirties few pages; the index finds those of one session. Clustering by session instead cost 2 to 3 times as
# much a row, because each session then dirties a page of its own in every commit.
#
# `records.number` is the highest message number of the session up to and with this record: it never decreases,
# so a number is found by bisection. What the index of sessions shows of the last record is read from there;
# `trimmed*` keep it when that record is gone. AUTOINCREMENT: the key of a deleted session is never used again.
# `records.sound` says where the bytes lie that were written with the record, and what they were (sample_places.py).
# `sessions.imported`: it was recorded elsewhere, and counts as closed whatever its log says.
# `sessions.state` is NULL until the session is opened, then 'open', 'closed' and, while it is deleted, 'removed'.
_TABLES = """
CREATE TABLE sessions (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL UNIQUE,
    term INTEGER NOT NULL,
    kind TEXT,
    state TEXT,
    dialect TEXT,
    model TEXT,
    plugin TEXT,
    plugin_version TEXT,
    opened_us INTEGER,
    trimmed INTEGER NOT NULL DEFAULT 0,
    trimmed_at INTEGER NOT NULL DEFAULT 0,
    trimmed_number INTEGER NOT NULL DEFAULT 0,
    imported INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX open_sessions ON sessions (opened_us) WHERE state = 'open';
CREATE TABLE records (
    n INTEGER PRIMARY KEY,
    key INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    number INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    data BLOB NOT NULL,
    sound BLOB
);
CREATE UNIQUE INDEX records_by_session ON records (key, seq);
CREATE TABLE snapshots (
    key INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    version INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    state BLOB NOT NULL
);
"""


WHAT_TO_DO = (
    "`antiphon log check` says what can still be read, and `antiphon log export` saves it; then restore the "
    "directory from a backup, or begin anew in another one with --data"
)


def checksum(data: bytes, seq: int, sound: bytes | None = None) -> int:
    """Return the crc32 of a record or snapshot, seeded with its place so that a misplaced one is found too.

    `sound`, if there is any, is what the record says of the bytes that were written with it.
    """
    crc = zlib.crc32(data, seq & 0xFFFF_FFFF)
    return zlib.crc32(sound, crc) if sound else crc


@contextmanager
def told(doing: str) -> Generator[None, None, None]:
    """Turn what the database or the file system says into `Unavailable("cannot <doing>: …")`."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        if is_malformed(error):
            raise Malformed(f"cannot {doing}: {error}; {WHAT_TO_DO}") from error
        raise Unavailable(f"cannot {doing}: {error}") from error


def is_malformed(error: Exception) -> bool:
    """Return whether the file itself is at fault; a subclass has another cause: locked, full, input/output."""
    return type(error) is sqlite3.DatabaseError


def connect_writer(path: Path, durability: Durability, *, known: bool = False) -> sqlite3.Connection:
    """Open the database to write it, and lay out the tables in a new one. Every statement commits by itself.

    `known`: it was there before, and a new one in its place would be an empty log.

    Raises:
        sqlite3.Error: it cannot be opened.
        Malformed: it is cut off.
        Unavailable: it belongs to another program or to a later version of this one, or an older layout cannot be
            brought to the present one.
    """
    missing = cut_off(path)
    if missing is not None:
        raise Malformed(f"{missing}; {WHAT_TO_DO}")
    connection = sqlite3.connect(
        _address(path, "rw" if known else "rwc"),
        uri=True,
        timeout=0.25,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {durability}")
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # see sqlite_checkpoint.py
        connection.execute(f"PRAGMA journal_size_limit = {128 << 20}")
        connection.execute("PRAGMA cache_size = -65536")  # KiB: the ends of the indexes of all live sessions
        connection.execute("PRAGMA temp_store = MEMORY")
        _lay_out(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open the database to read it, beside its writer or after it.

    Raises:
        sqlite3.Error: it cannot be opened.
        Unavailable: it is not there, or is not ours to read.
    """
    if not path.exists():
        raise Unavailable(f"there is no log at {path}")
    try:
        return _opened(path, "ro")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CANTOPEN:
            raise
        if _has_tail(path):
            raise Unavailable(
                f"{path} cannot be read where nothing can be written: the end of the log still stands beside it; "
                "copy the whole directory to a place that can be written"
            ) from error
    return _opened(path, "ro&immutable=1")  # on a medium that cannot be written nobody else writes either


def _opened(path: Path, mode: "_Mode") -> sqlite3.Connection:
    connection = sqlite3.connect(
        _address(path, mode), uri=True, timeout=2.0, isolation_level=None, check_same_thread=False
    )
    try:
        if cut_off(path) is not None:  # without this, SQLite reads nothing of it at all
            connection.execute("PRAGMA writable_schema = 1")
        layout = _layout(connection, path)
        if layout != SCHEMA_VERSION:
            raise Unavailable(
                f"{path} has layout {layout}, and this version reads {SCHEMA_VERSION}: start `antiphon serve` with "
                "this directory once, which brings it up and keeps a copy of what it was"
            )
    except BaseException:
        connection.close()
        raise
    return connection


_Mode = Literal["ro", "ro&immutable=1", "rw", "rwc"]


def _address(path: Path, mode: _Mode) -> str:
    return f"file:{quote(str(path))}?mode={mode}"


def _has_tail(path: Path) -> bool:
    """Return whether a part of the log still stands in the file beside it."""
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


def cut_off(path: Path) -> str | None:
    """Return how much of the file is missing, None if it is as long as it says itself.

    SQLite would find that only where it ends, in the middle of somebody's session.
    """
    if not path.exists() or _has_tail(path):
        return None
    with open(path, "rb") as file:
        head = file.read(100)
    if len(head) < 100 or head[92:96] != head[24:28]:  # the number of pages is good only if these two agree
        return None
    page = int.from_bytes(head[16:18], "big")
    said, there = (65_536 if page == 1 else page) * int.from_bytes(head[28:32], "big"), path.stat().st_size
    return f"{path} is cut off: it has {there:,} of {said:,} bytes" if there < said else None


def _lay_out(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
        connection.executescript(
            f"BEGIN IMMEDIATE; {_TABLES} PRAGMA application_id = {APPLICATION_ID};"
            f"PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
        )
    layout = _layout(connection, path)
    if layout != SCHEMA_VERSION:
        bring_up(connection, path, layout, SCHEMA_VERSION)


def _layout(connection: sqlite3.Connection, path: Path) -> int:
    """Return the layout of a log that this version knows.

    Raises:
        Unavailable: it is no log, or one of a later version.
    """
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise Unavailable(f"{path} is not a log of this program")
    layout: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if not 1 <= layout <= SCHEMA_VERSION:
        raise Unavailable(
            f"{path} has layout {layout}, which a later version of antiphon wrote (this one knows "
            f"{SCHEMA_VERSION}): use that version, or give another directory with --data"
        )
    return layout
