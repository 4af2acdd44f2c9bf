"""The sample files: places, limits, names."""

import os
from pathlib import Path

import pytest

from antiphon.engine import sample_store
from antiphon.engine.sample_store import FileSamples, SampleReader, flush
from antiphon.events.audio import SampleRef
from antiphon.events.log import SampleWrite, SoundGone, Unavailable, UnknownSession

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


class TestSegments:
    async def test_a_stream_is_a_row_of_files_and_reads_as_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sample_store, "SEGMENT", 10)
        samples = FileSamples(tmp_path)
        data = bytes(range(64))
        put(samples, "s", 0, data[:7])
        put(samples, "s", 7, data[7:10])
        put(samples, "s", 10, data[10:12])
        put(samples, "s", 12, data[12:45])
        put(samples, "s", 45, data[45:])
        assert sorted(os.listdir(tmp_path)) == [f"s.in.{n}" for n in range(7)]
        for start in range(0, 64, 3):
            for size in (1, 7, 10, 64 - start):
                if start + size <= 64:
                    assert await samples.read("s", SampleRef("in", start, size)) == data[start : start + size]
        with pytest.raises(SoundGone, match="from 60 to 65 of s was never written, or is lost"):
            await samples.read("s", SampleRef("in", 60, 5))
        samples.close()

    async def test_a_stream_from_before_there_were_segments_goes_on_as_one_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sample_store, "SEGMENT", 10)
        (tmp_path / "s.in").write_bytes(b"0123456789ab")
        samples = FileSamples(tmp_path)
        put(samples, "s", 12, b"cdefghijkl")
        put(samples, "s", 0, b"x", "out")
        assert await samples.read("s", SampleRef("in", 8, 14)) == b"89abcdefghijkl"
        assert sorted(os.listdir(tmp_path)) == ["s.in", "s.out.0"]
        samples.release("s")
        samples.remove("s")
        assert os.listdir(tmp_path) == []

    async def test_what_is_past_its_retention_says_so_and_what_is_lost_does_not(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sample_store, "SEGMENT", 10)
        samples = FileSamples(tmp_path)
        put(samples, "s", 0, bytes(range(35)))
        assert samples.retire_segment("s", "in", 1) == 10
        assert await samples.read("s", SampleRef("in", 0, 10)) == bytes(range(10))
        assert await samples.read("s", SampleRef("in", 20, 15)) == bytes(range(20, 35))
        for ref in (SampleRef("in", 9, 2), SampleRef("in", 19, 2), SampleRef("in", 12, 3), SampleRef("in", 0, 35)):
            with pytest.raises(SoundGone, match="is past its retention"):
                await samples.read("s", ref)
        samples.path("s", "in", 2).unlink()
        with pytest.raises(SoundGone, match="lost"):
            await samples.read("s", SampleRef("in", 20, 5))
        samples.release("s")
        assert samples.retire("s") == 15
        assert samples.retire("s") == 0
        for ref in (SampleRef("in", 0, 1), SampleRef("out", 0, 1)):
            with pytest.raises(SoundGone, match="is past its retention"):
                await SampleReader(tmp_path).read("s", ref)
        assert os.listdir(tmp_path) == ["s.gone"]
        assert samples.retire("never heard") == 0
        samples.remove("s")
        with pytest.raises(UnknownSession):
            await samples.read("s", SampleRef("in", 0, 1))

    def test_the_files_of_each_session_are_known_by_their_names(self, tmp_path: Path) -> None:
        samples = FileSamples(tmp_path)
        for name in ("s", "s.in", "a.b/c", "x.gone"):
            put(samples, name, 0, b"1")
        put(samples, "s", 0, b"1", "out")
        samples.close()
        samples.retire("x.gone")
        (tmp_path / "old.out").touch()
        for other in (".probe", "README", "notes.txt", ".gone"):
            (tmp_path / other).touch()
        found = {session: [path.name for path in paths] for session, paths in samples.files().items()}
        assert found == {
            "s": ["s.in.0", "s.out.0"],
            "s.in": ["s%2Ein.in.0"],
            "a.b/c": ["a%2Eb%2Fc.in.0"],
            "x.gone": ["x%2Egone.gone"],
            "old": ["old.out"],
        }
