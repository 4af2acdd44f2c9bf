"""The tables of the embedded store, its connections, and how a record is guarded."""

import sqlite3
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from antiphon.events.log import Unavailable

Durability = Literal["normal", "full"]

APPLICATION_ID = 0x41_4E_54_50  # "ANTP", which `file` shows
SCHEMA_VERSION = 2

# Records of all sessions stand in one table in the order of their writing, so that a commit of 64 sessions
# dirties few pages; the index finds those of one session. Clustering by session instead cost 2 to 3 times as
# much a row, because each session then dirties a page of its own in every commit.
#
# `records.number` is the highest message number of the session up to and with this record: it never decreases,
# so a number is found by bisection. What the index of sessions shows of the last record is read from there;
# `trimmed*` keep it when that record is gone. AUTOINCREMENT: the key of a deleted session is never used again.
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
    trimmed_number INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX open_sessions ON sessions (opened_us) WHERE state = 'open';
CREATE TABLE records (
    n INTEGER PRIMARY KEY,
    key INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    number INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    data BLOB NOT NULL
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


def checksum(data: bytes, seq: int) -> int:
    """Return the crc32 of a record or snapshot, seeded with its place so that a misplaced one is found too."""
    return zlib.crc32(data, seq & 0xFFFF_FFFF)


@contextmanager
def told(doing: str) -> Generator[None, None, None]:
    """Turn what the database or the file system says into `Unavailable("cannot <doing>: …")`."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise Unavailable(f"cannot {doing}: {error}") from error


def connect_writer(path: Path, durability: Durability, *, known: bool = False) -> sqlite3.Connection:
    """Open the database to write it, and lay out the tables in a new one. Every statement commits by itself.

    `known`: it was there before, and a new one in its place would be an empty log.

    Raises:
        sqlite3.Error: it cannot be opened.
        Unavailable: it belongs to another program or to a later version of this one.
    """
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
    connection = sqlite3.connect(
        _address(path, "ro"), uri=True, timeout=2.0, isolation_level=None, check_same_thread=False
    )
    try:
        _check_layout(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _address(path: Path, mode: Literal["ro", "rw", "rwc"]) -> str:
    return f"file:{quote(str(path))}?mode={mode}"


def _lay_out(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
        connection.executescript(
            f"BEGIN IMMEDIATE; {_TABLES} PRAGMA application_id = {APPLICATION_ID};"
            f"PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
        )
    _check_layout(connection, path)


def _check_layout(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise Unavailable(f"{path} is not a log of this program")
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise Unavailable(
            f"{path} has layout {version}, and this version reads {SCHEMA_VERSION}; "
            "give another directory with --data"
        )
