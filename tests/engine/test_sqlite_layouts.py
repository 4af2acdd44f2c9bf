"""Older layouts of the store are brought up, whole or not at all; what it was stays beside it."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.engine import sqlite_layouts
from antiphon.engine.datadir import DataDirectory
from antiphon.engine.sqlite_log import SqliteLog
from antiphon.engine.sqlite_schema import APPLICATION_ID, SCHEMA_VERSION, checksum
from antiphon.events.audio import SampleRef
from antiphon.events.log import Malformed, SampleWrite, Unavailable, UnknownSession, encode

from .records import SESSION, Outcomes, heard, opened

pytestmark = pytest.mark.anyio

TABLES = """
CREATE TABLE sessions (
    key INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL UNIQUE, term INTEGER NOT NULL, kind TEXT,
    state TEXT, dialect TEXT, model TEXT, {plugin} opened_us INTEGER,
    trimmed INTEGER NOT NULL DEFAULT 0, trimmed_at INTEGER NOT NULL DEFAULT 0,
    trimmed_number INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX open_sessions ON sessions (opened_us) WHERE state = 'open';
CREATE TABLE records (
    n INTEGER PRIMARY KEY, key INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL,
    number INTEGER NOT NULL, crc INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE UNIQUE INDEX records_by_session ON records (key, seq);
CREATE TABLE snapshots (
    key INTEGER PRIMARY KEY, seq INTEGER NOT NULL, version INTEGER NOT NULL, crc INTEGER NOT NULL,
    state BLOB NOT NULL
);
"""


@pytest.fixture
def data(tmp_path: Path) -> Iterator[DataDirectory]:
    with DataDirectory(tmp_path) as directory:
        yield directory


def old(path: Path, layout: int) -> None:
    """Write a log of two records as a server of that layout has left it, and a session that was never opened."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    plugin = "plugin TEXT, plugin_version TEXT," if layout > 1 else ""
    connection.executescript(TABLES.format(plugin=plugin))
    connection.execute(
        "INSERT INTO sessions (session, term, kind, state, dialect, model, opened_us)"
        " VALUES (?, 1, 'voice', 'open', 'duplex', 'echo', 5)",
        (SESSION,),
    )
    connection.execute("INSERT INTO sessions (session, term) VALUES ('never opened', 1)")
    if layout > 1:
        connection.execute("UPDATE sessions SET plugin = 'echo', plugin_version = '1' WHERE state = 'open'")
    for record in (opened(), heard(2)):
        blob = encode(record)
        connection.execute(
            "INSERT INTO records (key, seq, at, number, crc, data) VALUES (1, ?, ?, 1, ?, ?)",
            (record.seq, record.at, checksum(blob, record.seq), blob),
        )
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {layout}")
    connection.commit()
    connection.close()


def layout_of(path: Path) -> int:
    connection = sqlite3.connect(path)
    layout: int = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.close()
    return layout


@pytest.mark.parametrize("layout", range(1, SCHEMA_VERSION))
async def test_an_older_log_is_brought_up_and_goes_on(data: DataDirectory, layout: int) -> None:
    old(data.paths.database, layout)
    log = await SqliteLog.open(data)
    assert await log.read(SESSION, 0) == [opened(), heard(2)]
    [row] = await log.sessions("open")
    assert (row.plugin, row.plugin_version, row.head, row.opened_us) == ("echo", "1", 2, 5)
    assert await log.acquire(SESSION) == 2
    outcomes = Outcomes(log)
    outcomes.append(heard(3, term=2), [SampleWrite(SampleRef("in", 0, 4), b"abcd")])
    assert await outcomes.all() == [(3, None)]
    await log.aclose()
    assert layout_of(data.paths.database) == SCHEMA_VERSION
    kept = data.paths.root / f"log.layout{layout}.sqlite3"
    assert layout_of(kept) == layout
    again = await SqliteLog.open(data)
    assert len(await again.read(SESSION, 0)) == 3
    await again.aclose()
    assert sorted(path.name for path in data.paths.root.glob("*log*")) == sorted([kept.name, "log.sqlite3"])


async def test_a_damaged_first_record_does_not_stop_the_others(data: DataDirectory) -> None:
    old(data.paths.database, 1)
    connection = sqlite3.connect(data.paths.database)
    connection.execute("UPDATE records SET data = X'00' WHERE seq = 1")
    connection.commit()
    connection.close()
    log = await SqliteLog.open(data)
    [row] = await log.sessions()
    assert (row.plugin, row.plugin_version) == ("", "")
    await log.aclose()


def fail(*_: object) -> None:
    raise sqlite3.OperationalError("database or disk is full")


@pytest.mark.parametrize("where", ["step", "copy"])
async def test_what_cannot_be_brought_up_is_left_as_it_was(
    data: DataDirectory, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old(data.paths.database, 1)
    with monkeypatch.context() as patch:
        if where == "step":
            patch.setattr(sqlite_layouts, "STEPS", {**sqlite_layouts.STEPS, 2: fail})
        else:
            patch.setattr(Path, "replace", fail)
        with pytest.raises(
            Unavailable, match=r"has layout 1 and cannot be brought to layout .* nothing was changed"
        ):
            await SqliteLog.open(data)
    assert layout_of(data.paths.database) == 1
    assert not list(data.paths.root.glob(".log*"))
    log = await SqliteLog.open(data)
    assert len(await log.read(SESSION, 0)) == 2
    await log.aclose()


async def test_a_reader_says_what_to_do(data: DataDirectory) -> None:
    old(data.paths.database, 1)
    reader = SqliteLog.open_reader(data.paths)
    with pytest.raises(Unavailable, match=r"layout 1, and this version reads .* start `antiphon serve`"):
        await reader.sessions()
    await reader.aclose()
    assert layout_of(data.paths.database) == 1


async def long(data: DataDirectory) -> None:
    """Record a session of many pages."""
    log = await SqliteLog.open(data)
    await log.acquire(SESSION)
    outcomes = Outcomes(log)
    outcomes.append(opened())
    for seq in range(2, 400):
        outcomes.append(heard(seq))
    await outcomes.all()
    await log.aclose()


async def test_a_file_that_was_cut_off_is_refused_before_it_is_written(data: DataDirectory) -> None:
    await long(data)
    whole = data.paths.database.read_bytes()
    data.paths.database.write_bytes(whole[:-8192])
    with pytest.raises(Malformed, match=r"is cut off: it has .* bytes; `antiphon log check` says"):
        await SqliteLog.open(data)
    reader = SqliteLog.open_reader(data.paths)
    assert (await reader.read(SESSION, 0, 5))[0] == opened(), "what is there can still be read"
    await reader.aclose()
    assert data.paths.database.read_bytes() == whole[:-8192]
    data.paths.database.write_bytes(b"no database at all" * 1000)
    with pytest.raises(Malformed, match=r"file is not a database; `antiphon log check` says"):
        await SqliteLog.open(data)


async def test_where_only_an_index_is_damaged_the_table_has_it_all(data: DataDirectory) -> None:
    await long(data)
    connection = sqlite3.connect(data.paths.database)
    (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'records_by_session'").fetchone()
    connection.close()
    whole = bytearray(data.paths.database.read_bytes())
    whole[(page - 1) * 4096 : page * 4096] = b"\xa5" * 4096
    data.paths.database.write_bytes(whole)
    with pytest.raises(Malformed):
        await (broken := await SqliteLog.open(data)).sessions()
    await broken.aclose()
    reader = SqliteLog.open_reader(data.paths)
    assert [record.seq for record in await reader.read(SESSION, 0, 1_000)] == list(range(1, 400))
    assert [record.seq for record in await reader.read(SESSION, 390, 1_000)] == list(range(391, 400))
    assert await reader.readable(SESSION) == (399, "")
    assert [(row.session, row.head) for row in await reader.sessions()] == [(SESSION, 399)]
    with pytest.raises(UnknownSession):
        await reader.readable("nobody")
    await reader.aclose()
