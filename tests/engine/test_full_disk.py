"""A disk that is really full, or really read-only: a small file system of its own, where one may be mounted."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from antiphon.engine.checking import check
from antiphon.engine.clock import VirtualClock
from antiphon.engine.datadir import DataDirectory, DataDirectoryError, DataPaths
from antiphon.engine.direct import DirectClient
from antiphon.engine.errors import Refused
from antiphon.engine.hosts import InlineHost
from antiphon.engine.hub import Hub
from antiphon.engine.replay import replay
from antiphon.engine.retention import remove
from antiphon.engine.settings import HubSettings
from antiphon.engine.sqlite_log import SqliteLog
from antiphon.events.audio import SampleRef
from antiphon.events.log import SampleWrite, Unavailable
from antiphon.sessions.plugins import ECHO
from antiphon.stages.echo import EchoStage

from .records import Outcomes, closed, heard, opened
from .worlds import SECRET, breathe, settle

pytestmark = pytest.mark.anyio

SIZE = 4 * 1024 * 1024
PCM = b"\x00\x20" * 16_000
SETTINGS = HubSettings(shutdown_ms=200)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(place)]
    try:
        mounted = subprocess.run(command, check=False, capture_output=True, text=True, timeout=20)
    except FileNotFoundError:
        pytest.skip("there is no `mount` here")
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True, timeout=20)


def remount(place: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(place)], check=True, timeout=20)


def fill(place: Path, leave: int) -> Path:
    """Take all but `leave` bytes of the disk."""
    ballast = place / "ballast"
    free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
    ballast.write_bytes(bytes(free - leave))
    return ballast


async def until_refused(client: DirectClient, clock: VirtualClock) -> tuple[int, str]:
    """Talk until the store is full; return the last number that was heard, and by which code it ended."""
    try:
        for _ in range(200):
            client.append_audio(PCM, speech=True)
            client.clear_input()
            client.heartbeat()
            await settle(4)
            client.create_response()
            with anyio.move_on_after(0.05):
                async for _heard in client.events():
                    pass
    except Refused as refused:
        return client.last_number, refused.code
    raise AssertionError("the disk was never full")


async def test_a_full_disk_is_told_loses_nothing_and_is_found_to_have_room_again(disk: Path) -> None:
    clock = VirtualClock()
    with DataDirectory(disk) as data:
        log = await SqliteLog.open(data, writer="inline")
        async with Hub(log, log.samples, InlineHost(EchoStage()), ECHO, SETTINGS, clock, SECRET) as hub:
            await settle()
            client = DirectClient(hub)
            await client.__aenter__()
            ballast = fill(disk, 600_000)
            number, code = await until_refused(client, clock)
            assert code == "storage_unavailable"
            assert number > 0
            await settle()
            assert "cannot be recorded" in (hub.not_ready or "")
            durable = await log.read(client.session, 0, 10_000)
            fill(disk / "samples", 0)
            for _ in range(3):
                clock.advance(1_000_000)
                await settle()
                await breathe(5)
                assert hub.not_ready is not None, "it is asked, and is still full"
            with pytest.raises(Refused, match="storage_unavailable"):
                async with DirectClient(hub):
                    pass

            ballast.unlink()
            (disk / "samples" / "ballast").unlink()
            with anyio.fail_after(20):
                while hub.not_ready is not None:
                    clock.advance(1_000_000)
                    await breathe()
            async with DirectClient(hub) as other:
                assert other.session
            with anyio.fail_after(20):
                while hub.session(client.session) is None:
                    clock.advance(1_000_000)
                    await breathe()
            await client.resume()
            assert (await log.read(client.session, 0, len(durable))) == durable, "nothing that was durable is lost"
            client.send_text("still there")
            await settle()
            assert replay(await log.read(client.session, 0, 10_000)).identical
            await client.close()
        await log.aclose()
    found = check(DataPaths(disk), None, lambda done, total: None)
    assert found.damage == []
    assert found.sessions >= 2


async def test_every_way_of_writing_fails_whole_and_goes_on_when_there_is_room(disk: Path) -> None:
    """Record, sample, snapshot, acquire, index, probe and checkpoint, each on a disk without a free byte."""
    with DataDirectory(disk) as data:
        log = await SqliteLog.open(data, writer="inline")
        await log.acquire("a")
        outcomes = Outcomes(log)
        outcomes.append(opened(session="a"), session="a")
        assert await outcomes.all() == [(1, None)]
        ballast = fill(disk, 0)
        told: list[type[Exception] | None] = []
        seq = 2
        while None in told[-1:] or not told:
            outcomes.append(heard(seq), session="a")
            told = [kind for _, kind in await outcomes.all()]
            seq += 1
        assert told[-1] is Unavailable
        last = seq - 2
        for ask in (log.acquire("b"), log.probe()):
            with pytest.raises(Unavailable):
                await ask
        log._writer._checkpoints.wrote(10**6)
        assert [record.seq for record in await log.read("a", 0, 10_000)] == list(range(1, last + 1))
        ballast.unlink()
        await log.probe()
        term = await log.acquire("a")
        outcomes = Outcomes(log)
        outcomes.append(closed(last + 1, term, session="a"), session="a")
        assert await outcomes.all() == [(last + 1, None)]
        assert [row.state for row in await log.sessions()] == ["closed"]
        await log.aclose()


async def test_a_session_can_be_removed_from_a_full_disk_to_make_room(disk: Path) -> None:
    with DataDirectory(disk) as data:
        log = await SqliteLog.open(data, writer="inline")
        await log.acquire("a")
        outcomes = Outcomes(log)
        outcomes.append(opened(session="a"), session="a")
        outcomes.append(heard(2), [SampleWrite(SampleRef("in", 0, 1_000_000), bytes(1_000_000))], session="a")
        outcomes.append(closed(3, session="a"), session="a")
        assert [kind for _, kind in await outcomes.all()] == [None] * 3
        await log.aclose()
    fill(disk, 80_000)
    await remove(disk, ["a"])
    assert os.listdir(disk / "samples") == []


async def test_a_directory_that_cannot_be_written_is_read_and_refused_by_name(disk: Path) -> None:
    with DataDirectory(disk) as data:
        log = await SqliteLog.open(data, writer="inline")
        await log.acquire("a")
        outcomes = Outcomes(log)
        outcomes.append(opened(session="a"), session="a")
        await outcomes.all()
        await log.aclose()
    remount(disk, "ro")
    with pytest.raises(DataDirectoryError, match="Read-only file system; give a directory"):
        DataDirectory(disk)
    reader = SqliteLog.open_reader(DataPaths(disk))
    assert await reader.read("a", 0) == [opened(session="a")]
    assert [row.session for row in await reader.sessions()] == ["a"]
    await reader.aclose()
    remount(disk, "rw")
    (disk / "log.sqlite3-wal").write_bytes(b"the end of the log")
    remount(disk, "ro")
    reader = SqliteLog.open_reader(DataPaths(disk))
    with pytest.raises(Unavailable, match="copy the whole directory to a place that can be written"):
        await reader.sessions()
    await reader.aclose()
