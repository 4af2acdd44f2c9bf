"""Removing sessions: closed ones only, all or none, and never under a server."""

from pathlib import Path

import pytest

from antiphon.engine.datadir import DataDirectory, DataDirectoryError
from antiphon.engine.retention import NotRemovable, remove
from antiphon.engine.sqlite_log import SqliteLog
from antiphon.events.audio import SampleRef
from antiphon.events.log import SampleWrite

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
    assert await left(data) == (["b", "c"], ["b.in", "c.in"])
    await remove(data, ["b"])
    assert await left(data) == (["c"], ["c.in"])


@pytest.mark.parametrize(("wrong", "words"), [("c", "c has not ended"), ("d", "there is no session d")])
async def test_if_one_may_not_be_removed_none_is(data: Path, wrong: str, words: str) -> None:
    with pytest.raises(NotRemovable, match=words):
        await remove(data, ["a", wrong])
    assert (await left(data))[0] == ["a", "b", "c"]


async def test_nothing_is_removed_under_a_server(data: Path) -> None:
    with DataDirectory(data), pytest.raises(DataDirectoryError, match="is in use by process"):
        await remove(data, ["a"])
    assert (await left(data))[0] == ["a", "b", "c"]
