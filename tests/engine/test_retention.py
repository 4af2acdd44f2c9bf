"""Removing sessions: closed ones only, all or none, and never under a server."""

import sqlite3
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from antiphon.engine.datadir import DataDirectory, DataDirectoryError, DataPaths
from antiphon.engine.retention import NotRemovable, remove
from antiphon.engine.sample_store import FileSamples
from antiphon.engine.sqlite_log import SqliteLog
from antiphon.engine.sqlite_writer import SqliteWriter
from antiphon.events.audio import SampleRef
from antiphon.events.log import SampleWrite, Unavailable

from .records import Outcomes, closed, heard, opened

pytestmark = pytest.mark.anyio


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """A directory with the sessions a and b, which have ended, and c, which goes on; each with sound."""
    with DataDirectory(tmp_path) as directory:
        log = await SqliteLog.open(directory)
        for name in "abc":
            await log.acquire(name)
            outcomes = Outcomes(log)
            outcomes.append(opened(session=name), session=name)
            outcomes.append(heard(2), [SampleWrite(SampleRef("in", 0, 640), bytes(640))], session=name)
            if name != "c":
                outcomes.append(closed(3, session=name), session=name)
            assert all(error is None for _, error in await outcomes.all())
        await log.aclose()
    return tmp_path


async def left(root: Path) -> tuple[list[str], list[str]]:
    """The sessions in the index, and the files of sound."""
    with DataDirectory(root) as directory:
        log = await SqliteLog.open(directory)
        rows = await log.sessions()
        await log.aclose()
        return sorted(row.session for row in rows), sorted(path.name for path in directory.paths.samples.iterdir())


async def test_a_closed_session_goes_with_its_sound_and_the_others_stay(data: Path) -> None:
    await remove(data, ["a", "a"])
    assert await left(data) == (["b", "c"], ["b.in.0", "c.in.0"])
    await remove(data, ["b"])
    assert await left(data) == (["c"], ["c.in.0"])


@pytest.mark.parametrize(("wrong", "words"), [("c", "c has not ended"), ("d", "there is no session d")])
async def test_if_one_may_not_be_removed_none_is(data: Path, wrong: str, words: str) -> None:
    with pytest.raises(NotRemovable, match=words):
        await remove(data, ["a", wrong])
    assert (await left(data))[0] == ["a", "b", "c"]


async def test_nothing_is_removed_under_a_server(data: Path) -> None:
    with DataDirectory(data), pytest.raises(DataDirectoryError, match="is in use by process"):
        await remove(data, ["a"])
    assert (await left(data))[0] == ["a", "b", "c"]


async def test_a_removal_that_was_cut_off_goes_on_at_the_next_start(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it was cut: behind the note, in the middle of the sound, or in the middle of the records."""

    def cut(*_: object) -> None:
        raise Unavailable("the process is gone")

    for place in ((FileSamples, "remove"), (SqliteWriter, "forget")):
        name = "a" if place[1] == "remove" else "b"
        with monkeypatch.context() as patch:
            patch.setattr(*place, cut)
            with pytest.raises(Unavailable):
                await remove(data, [name])
        reader = SqliteLog.open_reader(DataPaths(data))
        assert name not in {row.session for row in await reader.sessions()}, "it is gone for everybody who looks"
        await reader.aclose()
        with capture_logs() as lines:
            rows, files = await left(data)
        assert name not in rows
        assert f"{name}.in.0" not in files
        assert [line["session"] for line in lines] == [name]
    assert await left(data) == (["c"], ["c.in.0"])
    connection = sqlite3.connect(DataPaths(data).database)
    assert connection.execute("SELECT count(DISTINCT key) FROM records").fetchone() == (1,)
    connection.close()


async def test_on_a_full_disk_the_sound_makes_room_for_the_rest(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise Unavailable("the disk is full")

    monkeypatch.setattr(SqliteWriter, "condemn", full)
    await remove(data, ["a"])
    assert await left(data) == (["b", "c"], ["b.in.0", "c.in.0"])


async def test_a_session_whose_log_is_damaged_never_ends_and_may_be_removed(data: Path) -> None:
    connection = sqlite3.connect(DataPaths(data).database, isolation_level=None)
    connection.execute("UPDATE records SET data = X'00' WHERE seq = 2")
    connection.close()
    await remove(data, ["c"])
    assert await left(data) == (["a", "b"], ["a.in.0", "b.in.0"])
