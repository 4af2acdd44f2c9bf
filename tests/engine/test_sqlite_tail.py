"""What a former process has left at the end of the write-ahead log: torn or damaged, and what was visible."""

import os
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from antiphon.engine.datadir import DataDirectory, DataPaths
from antiphon.engine.sqlite_log import SqliteLog
from antiphon.engine.sqlite_tail import log_of, tail
from antiphon.engine.sqlite_writer import SqliteWriter

from .test_sqlite_log import run_and_kill

pytestmark = pytest.mark.anyio

FRAME = 24 + 4096


@pytest.fixture
def left(tmp_path: Path) -> tuple[Path, int]:
    """A data directory whose server was killed, and what it had said to be settled."""
    return tmp_path, run_and_kill(tmp_path, "thread", 60)


async def start(root: Path) -> tuple[int, list[dict[str, object]]]:
    """Open the log; return how many records there are, and what is told."""
    with capture_logs() as lines, DataDirectory(root) as data:
        log = await SqliteLog.open(data)
        records = await log.read("s", 0, 10**6)
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        await log.aclose()
    return len(records), [dict(line) for line in lines]


async def open_and_close(root: Path) -> None:
    with DataDirectory(root) as data:
        await (await SqliteLog.open(data)).aclose()


async def test_where_it_cannot_be_told_what_was_dropped_nothing_is(
    left: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may be full: then the log is not moved, and is as good as before."""
    root, settled = left
    monkeypatch.setattr(SqliteWriter, "frames", lambda _: None)
    records, lines = await start(root)
    assert (records >= settled, lines) == (True, [])


async def test_a_log_that_a_killed_process_leaves_whole_says_nothing(left: tuple[Path, int]) -> None:
    root, settled = left
    found = tail(DataPaths(root).database)
    assert found.commits
    assert found.frames == tuple(range(1, len(found.frames) + 1))
    records, lines = await start(root)
    assert records >= settled
    assert [line for line in lines if line["log_level"] == "error"] == []
    assert tail(DataPaths(root).database).frames == ()


async def test_a_commit_that_was_never_finished_is_dropped_and_nobody_has_seen_it(left: tuple[Path, int]) -> None:
    root, settled = left
    wal = log_of(DataPaths(root).database)
    found = tail(DataPaths(root).database)
    head = wal.read_bytes()[:32]
    whole = 32 + FRAME * found.commits[-1]
    torn = b"\0\0\0\2" + bytes(4) + head[16:24] + bytes(8) + bytes(4096)
    wal.write_bytes(wal.read_bytes()[:whole] + torn + torn[: FRAME // 2])
    records, lines = await start(root)
    assert records >= settled, "nothing that was visible is lost"
    assert [(line["log_level"], line["frames"]) for line in lines] == [("info", 2)]


@pytest.mark.parametrize("place", ["frame", "salt", "head"])
def test_commits_behind_a_damaged_place_were_visible_and_are_told(left: tuple[Path, int], place: str) -> None:
    root, settled = left
    wal = log_of(DataPaths(root).database)
    found = tail(DataPaths(root).database)
    middle = found.frames[len(found.frames) // 2]
    at = {"frame": 32 + FRAME * (middle - 1) + 1000, "salt": 32 + FRAME * (middle - 1) + 9, "head": 17}[place]
    damaged = bytearray(wal.read_bytes())
    damaged[at] ^= 0xFF
    wal.write_bytes(damaged)
    with capture_logs() as lines:
        anyio.run(open_and_close, root)
    (line,) = lines
    assert line["log_level"] == "error"
    assert "what was recorded behind that place is lost" in line["event"]
    assert 0 < line["commits"] <= len(found.commits)
    assert Path(line["kept"]).read_bytes() == bytes(damaged), "what is lost can still be looked at"
    assert settled


def test_without_a_log_there_is_nothing(tmp_path: Path) -> None:
    database = DataPaths(tmp_path).database
    assert tail(database).frames == ()
    log_of(database).write_bytes(b"short")
    assert tail(database).frames == ()
    log_of(database).write_bytes(os.urandom(32))
    assert tail(database).frames == ()
