"""The sample files: places, limits, names."""

import os
from pathlib import Path

import pytest

from antiphon.engine.sample_store import FileSamples, SampleReader, flush
from antiphon.events.audio import SampleRef
from antiphon.events.log import SampleWrite, Unavailable, UnknownSession

pytestmark = pytest.mark.anyio


def put(samples: FileSamples, session: str, start: int, data: bytes, stream: str = "in") -> list[Path]:
    ref = SampleRef("out" if stream == "out" else "in", start, len(data))
    return samples.write(session, [SampleWrite(ref, data)])


async def test_what_lies_behind_the_end_of_the_log_is_overwritten(tmp_path: Path) -> None:
    samples = FileSamples(tmp_path)
    put(samples, "s", 0, b"kept")
    put(samples, "s", 4, b"written before a crash")
    samples.close()
    after = FileSamples(tmp_path)
    put(after, "s", 4, b"new")
    after.close()
    assert await after.read("s", SampleRef("in", 0, 7)) == b"keptnew"


async def test_more_streams_than_open_files(tmp_path: Path) -> None:
    samples = FileSamples(tmp_path, open_files=3)
    before = len(os.listdir("/proc/self/fd"))
    for turn in range(3):
        for session in range(8):
            put(samples, f"s{session}", turn, str(turn).encode())
            assert len(os.listdir("/proc/self/fd")) <= before + 3
    for session in range(8):
        assert await samples.read(f"s{session}", SampleRef("in", 0, 3)) == b"012"
    samples.close()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_no_name_leads_out_of_the_directory(tmp_path: Path) -> None:
    folder = tmp_path / "samples"
    folder.mkdir()
    samples = FileSamples(folder)
    for name in ("../up", "a/b", "..", "/etc/x", ""):
        put(samples, name, 0, name.encode() or b"-")
        assert await samples.read(name, SampleRef("in", 0, len(name) or 1)) == (name.encode() or b"-")
    samples.close()
    assert os.listdir(tmp_path) == ["samples"]
    assert len(os.listdir(folder)) == 5


async def test_a_name_that_is_too_long_is_unavailable(tmp_path: Path) -> None:
    samples = FileSamples(tmp_path)
    with pytest.raises(OSError, match="too long"):
        put(samples, "n" * 300, 0, b"x")
    with pytest.raises(Unavailable):
        await samples.read("n" * 300, SampleRef("in", 0, 1))


async def test_a_reader_sees_what_the_writer_wrote(tmp_path: Path) -> None:
    samples = FileSamples(tmp_path)
    reader = SampleReader(tmp_path)
    with pytest.raises(UnknownSession):
        await reader.read("s", SampleRef("in", 0, 2))
    put(samples, "s", 0, b"ab")
    assert await reader.read("s", SampleRef("in", 0, 2)) == b"ab"
    samples.close()


async def test_a_write_is_completed_when_the_disk_takes_it_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, start: whole(file, data[:3], start))
    samples = FileSamples(tmp_path)
    put(samples, "s", 2, b"0123456789")
    samples.close()
    assert await samples.read("s", SampleRef("in", 2, 10)) == b"0123456789"


def test_says_what_has_to_be_flushed(tmp_path: Path) -> None:
    samples = FileSamples(tmp_path)
    assert set(put(samples, "s", 0, b"a")) == {samples.path("s", "in"), tmp_path}
    assert set(put(samples, "s", 1, b"b")) == {samples.path("s", "in")}
    flush([samples.path("s", "in"), tmp_path])
    samples.close()


async def test_release_and_remove(tmp_path: Path) -> None:
    samples = FileSamples(tmp_path)
    put(samples, "s", 0, b"a")
    put(samples, "s", 0, b"b", "out")
    samples.release("s")
    assert await samples.read("s", SampleRef("out", 0, 1)) == b"b"
    samples.remove("s")
    samples.remove("s")
    with pytest.raises(UnknownSession):
        await samples.read("s", SampleRef("in", 0, 1))
