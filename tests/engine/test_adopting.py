"""A session that was recorded elsewhere: there to be looked at, and for nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from antiphon.engine.adopting import Adopted, adopt
from antiphon.engine.checking import check
from antiphon.engine.clock import VirtualClock
from antiphon.engine.datadir import DataDirectory, DataDirectoryError, DataPaths
from antiphon.engine.hosts import InlineHost
from antiphon.engine.hub import Hub
from antiphon.engine.ingress import AppendRequest
from antiphon.engine.keeper import Keeper, Needs, Retention
from antiphon.engine.sample_store import FileSamples, SampleReader
from antiphon.engine.settings import HubSettings
from antiphon.engine.sqlite_log import SqliteLog
from antiphon.engine.sqlite_reader import SqliteReader
from antiphon.events.audio import SampleRef
from antiphon.events.log import Conflict, SampleWrite, SessionRow, Transaction, Unavailable, UnknownSession
from antiphon.sessions.plugins import ECHO
from antiphon.stages.echo import EchoStage

from .worlds import SECRET, code_of, opening, resumption, settle, world
from tests.sessions.world import World

pytestmark = pytest.mark.anyio


def talk() -> list[Transaction]:
    here = World()
    here.append(2)
    here.append(1)
    here.say("Hello?")
    return [*here.log[:-1], replace(here.log[-1], term=3)]


def sound(ref: SampleRef) -> bytes:
    return bytes(at % 251 for at in range(ref.start, ref.end))


def silence(_: SampleRef) -> None:
    """There is none."""


HEARD = SampleRef("in", 0, 3 * 1024)


async def kept(root: Path, name: str) -> tuple[SessionRow, list[Transaction]]:
    reader = SqliteReader(DataPaths(root))
    try:
        (row,) = [row for row in await reader.sessions() if row.session == name]
        return row, await reader.read(name, 0)
    finally:
        await reader.aclose()


async def test_a_log_is_taken_with_its_terms_and_its_sound_and_is_closed(tmp_path: Path) -> None:
    log = talk()
    assert adopt(tmp_path, "theirs", iter(log), sound) == Adopted(len(log), HEARD.size)
    row, found = await kept(tmp_path, "theirs")
    assert found == log
    assert (row.state, row.head, row.term, row.plugin, row.at) == ("closed", len(log), 3, "cascade", log[-1].at)
    assert await SampleReader(DataPaths(tmp_path).samples).read("theirs", HEARD) == sound(HEARD)


def broken(log: list[Transaction]) -> Iterator[Transaction]:
    yield log[0]
    raise OSError("the file is gone")


@pytest.mark.parametrize("kind", ["hole", "no opening", "empty", "absurd", "breaks off", "sound breaks off"])
async def test_what_cannot_be_taken_as_a_whole_leaves_nothing(tmp_path: Path, kind: str) -> None:
    log = talk()
    logs = {
        "hole": iter([log[0], *log[2:]]),
        "no opening": iter([replace(log[1], seq=1)]),
        "empty": iter([]),
        "absurd": iter([log[0], replace(log[1], at=1 << 70)]),
        "breaks off": broken(log),
        "sound breaks off": iter(log),
    }

    def some(ref: SampleRef) -> bytes:
        if kind == "sound breaks off" and ref.start:
            raise Conflict("damaged")
        return sound(ref)

    with pytest.raises(Exception, match=r"record 3|opening|is empty|in record 2|is gone|damaged"):
        adopt(tmp_path, "theirs", logs[kind], some)
    assert list(DataPaths(tmp_path).samples.iterdir()) == []
    assert adopt(tmp_path, "theirs", iter(log), silence) == Adopted(len(log), 0)


async def test_no_session_is_written_over_and_no_server_disturbed(tmp_path: Path) -> None:
    log = talk()
    adopt(tmp_path, "theirs", iter(log), sound)
    with pytest.raises(Conflict, match="there is a session theirs already"):
        adopt(tmp_path, "theirs", iter(log[:1]), sound)
    assert (await kept(tmp_path, "theirs"))[1] == log
    assert await SampleReader(DataPaths(tmp_path).samples).read("theirs", HEARD) == sound(HEARD)
    assert check(DataPaths(tmp_path), None, lambda done, total: None).damage == []
    with DataDirectory(tmp_path), pytest.raises(DataDirectoryError, match="in use"):
        adopt(tmp_path, "another", iter(log), silence)


async def test_what_an_attempt_that_was_killed_has_left_is_no_part_of_it(tmp_path: Path) -> None:
    with DataDirectory(tmp_path) as data:
        FileSamples(data.paths.samples).write("theirs", [SampleWrite(SampleRef("out", 0, 4), b"left")])
    adopt(tmp_path, "theirs", iter(talk()), sound)
    reader = SampleReader(DataPaths(tmp_path).samples)
    assert await reader.read("theirs", HEARD) == sound(HEARD)
    with pytest.raises(Unavailable):
        await reader.read("theirs", SampleRef("out", 0, 4))


class Nobody:
    """No session goes on."""

    async def needs(self, session: str) -> Needs | None:
        return None


async def test_its_sound_stays_however_short_that_of_sessions_here_is_kept(tmp_path: Path) -> None:
    adopt(tmp_path, "theirs", iter(talk()), sound)
    with DataDirectory(tmp_path) as data:
        log = await SqliteLog.open(data)
        (row,) = await log.sessions()
        assert (row.imported, row.state) == (True, "closed")
        keeper = Keeper(Retention("window"), log, log.samples, Nobody(), VirtualClock(wall_us=1 << 60))
        assert await keeper.sweep() == 0
        assert await log.samples.read("theirs", HEARD) == sound(HEARD)
        await log.aclose()


async def test_it_opens_nothing_on_a_server_and_can_be_deleted(tmp_path: Path) -> None:
    async with world(EchoStage()) as here:
        attachment = await here.hub.open(opening())
        attachment.append(AppendRequest(data=b"\x00\x20" * 4_000, speech=True))
        await settle()
        name, token = attachment.session, attachment.token
        log = await here.recorded(name)
    assert token is not None
    adopt(tmp_path, name, iter(log), silence)
    with DataDirectory(tmp_path) as data:
        store = await SqliteLog.open(data)
        # Even where the secret is the same.
        hub = Hub(
            *(store, store.samples, InlineHost(EchoStage()), ECHO),
            *(HubSettings(shutdown_ms=200), VirtualClock(), SECRET, None),
        )
        async with hub:
            await hub.recovered.wait()
            assert await code_of(hub.resume(resumption(attachment))) == "session_resume_expired"
            assert hub.statistics().recovered == 0
        assert [row.state for row in await store.sessions()] == ["closed"]
        assert len(await store.read(name, 0)) == len(log)
        await store.delete(name)
        with pytest.raises(UnknownSession):
            await store.read(name, 0)
        await store.aclose()
