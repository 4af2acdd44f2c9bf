"""A session that is carried to another machine: bundles, and what is said of files that are none."""

import json
import zipfile
from pathlib import Path

import anyio
import pytest

from antiphon.engine.datadir import DataDirectory, DataPaths
from antiphon.engine.sample_store import SampleReader
from antiphon.engine.sqlite_reader import SqliteReader
from antiphon.engine.sqlite_schema import connect_reader
from antiphon.events.audio import SampleRef
from antiphon.events.log import LogError, Transaction, Unavailable
from antiphon.transport import cli_export, cli_logs

from tests.sessions.world import World
from tests.talks import Run, in_process, keep, talk


def noise(ref: SampleRef) -> bytes:
    """Return sound that is another at every place."""
    return bytes((len(ref.stream) + at * 7) % 251 for at in range(ref.start, ref.end))


@pytest.fixture(scope="module")
def world() -> World:
    return talk("All is well [here].")


@pytest.fixture(scope="module")
def data(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    anyio.run(keep, root, world.log, noise)
    return root


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Run the command line in this process."""

    def read() -> tuple[str, str]:
        out = capfdbinary.readouterr()
        return out.out.decode(errors="surrogateescape"), out.err.decode()

    return in_process(monkeypatch, read)


@pytest.fixture
def packed(run: Run, data: Path, tmp_path: Path) -> Path:
    """The session in a bundle."""
    path = tmp_path / "talk.antiphon"
    assert run("log", "export", "latest", "--data", data, "--with-samples", "--out", path)[0] == 0
    return path


def records(data: Path, session: str) -> list[tuple[int, ...]]:
    """Return what the store holds of a session, byte by byte."""
    connection = connect_reader(DataPaths(data).database)
    try:
        return connection.execute(
            "SELECT seq, at, number, crc, data, sound FROM records JOIN sessions USING (key)"
            " WHERE session = ? ORDER BY seq",
            (session,),
        ).fetchall()
    finally:
        connection.close()


def sound(data: Path, session: str) -> dict[str, bytes]:
    """Return the files of a session's samples."""
    files = DataPaths(data).samples.glob(f"{session}.*")
    return {path.name.removeprefix(session): path.read_bytes() for path in files}


def test_a_session_is_carried_from_one_directory_to_another_byte_by_byte(
    run: Run, data: Path, world: World, packed: Path, tmp_path: Path
) -> None:
    code, out, err = run("log", "import", packed, "--data", tmp_path / "there")
    assert (code, err) == (0, "")
    assert "imported duplex-1" in out
    assert records(tmp_path / "there", "duplex-1") == records(data, "duplex-1")
    assert sound(tmp_path / "there", "duplex-1") == sound(data, "duplex-1")
    again = tmp_path / "again.antiphon"
    run("log", "export", "latest", "--data", tmp_path / "there", "--with-samples", "--out", again)
    assert again.read_bytes() == packed.read_bytes()
    (row,) = json.loads(run("log", "ls", "--data", tmp_path / "there", "--json")[1])
    assert (row["session"], row["state"], row["head"]) == ("duplex-1", "closed", len(world.log))
    assert run("replay", "latest", "--data", tmp_path / "there")[0] == 0
    assert run("log", "check", "--data", tmp_path / "there")[0] == 0
    assert run("log", "rm", "latest", "--data", tmp_path / "there", "--yes")[0] == 0
    assert sound(tmp_path / "there", "duplex-1") == {}


def test_what_was_written_is_told(run: Run, data: Path, world: World, tmp_path: Path) -> None:
    path = tmp_path / "x"
    code, out, _ = run("log", "export", "latest", "--data", data, "--with-samples", "--out", path, "--json")
    assert code == 0
    size = sum(map(len, sound(data, "duplex-1").values()))
    assert json.loads(out) == {
        "file": str(path),
        "session": "duplex-1",
        "transactions": len(world.log),
        "sample_bytes": size,
        "missing_bytes": 0,
        "damage": "",
    }
    code, out, _ = run("log", "import", path, "--data", tmp_path / "there", "--json")
    assert json.loads(out) == {"session": "duplex-1", "transactions": len(world.log), "sample_bytes": size}


def test_every_reader_takes_a_bundle_where_it_takes_a_session(
    run: Run, data: Path, packed: Path, tmp_path: Path
) -> None:
    for command in (["log", "show"], ["log", "show", "--json"], ["log", "export", "--out", "-"]):
        assert run(*command, packed) == run(*command, "latest", "--data", data)
    for target in (packed, "latest"):
        assert run("replay", target, "--data", data, "--until", "9")[1].startswith("identical: 9 commands")
    bare = tmp_path / "session.jsonl"
    assert run("log", "export", packed, "--out", bare)[0] == 0
    assert run("replay", bare)[0] == 0


def test_a_picture_of_a_bundle_has_its_sound(run: Run, data: Path, packed: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pictures = [tmp_path / name for name in ("here.png", "there.png")]
    assert run("log", "draw", "latest", "--data", data, "--out", pictures[0])[0] == 0
    assert run("log", "draw", packed, "--data", tmp_path / "nowhere", "--out", pictures[1])[0] == 0
    assert pictures[0].read_bytes() == pictures[1].read_bytes()


def test_all_that_is_loaded_has_one_way_to_its_sound(
    run: Run, data: Path, world: World, packed: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "session.jsonl"
    run("log", "export", "latest", "--data", data, "--out", bare)
    run("log", "import", packed, "--data", tmp_path / "there", "--as", "the-bug")
    ref = SampleRef("in", 100, 50)
    for target, place in ((bare, data), (packed, tmp_path), ("latest", data), ("the-bug", tmp_path / "there")):
        log = cli_logs.load(str(target), place)
        assert log.transactions == world.log
        assert log.header.session == "duplex-1"
        assert anyio.run(log.read, ref) == noise(ref)
    with pytest.raises(LogError):
        anyio.run(cli_logs.load(str(bare), tmp_path / "nowhere").read, ref)
    with pytest.raises(LogError):
        anyio.run(cli_logs.read_export(bare).read, ref)


def test_a_name_that_is_taken_is_refused_unless_another_is_given(
    run: Run, data: Path, packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    assert run("log", "import", packed, "--data", there)[0] == 0
    code, out, err = run("log", "import", packed, "--data", there)
    assert (code, out) == (2, "")
    assert "nothing was imported: there is a session duplex-1 already" in err
    assert "--as" in err
    code, out, _ = run("log", "import", packed, "--data", there, "--as", "the-bug")
    assert (code, out.split(":")[0]) == (0, "imported the-bug")
    code, _, err = run("log", "import", packed, "--data", there, "--as", "the-bug")
    assert code == 2
    assert "there is a session the-bug already" in err
    assert records(there, "the-bug") == records(data, "duplex-1")
    assert sound(there, "the-bug") == sound(data, "duplex-1")
    assert run("replay", "the-bug", "--data", there)[0] == 0
    monkeypatch.chdir(tmp_path)
    assert run("log", "export", "the-bug", "--with-samples", "--data", there)[0] == 0
    assert (tmp_path / "the-bug.antiphon").read_bytes() == packed.read_bytes()
    for name in ("../evil", "", "a b", "-x", "x" * 101):
        code, out, err = run("log", "import", packed, "--data", there, "--as", name)
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1
    with DataDirectory(there):
        code, _, err = run("log", "import", packed, "--data", there, "--as", "another")
    assert code == 2
    assert "is in use by process" in err


def test_a_log_without_sound_can_be_imported_too(run: Run, data: Path, tmp_path: Path) -> None:
    bare = tmp_path / "session.jsonl"
    run("log", "export", "latest", "--data", data, "--out", bare)
    code, out, _ = run("log", "import", bare, "--data", tmp_path / "there")
    assert (code, "sound" in out) == (0, False)
    assert run("log", "show", "latest", "--data", tmp_path / "there") == run(
        "log", "show", "latest", "--data", data
    )
    assert sound(tmp_path / "there", "duplex-1") == {}


def test_a_bundle_goes_to_standard_output_too(run: Run, data: Path, packed: Path) -> None:
    code, out, err = run("log", "export", "latest", "--data", data, "--with-samples", "--out", "-")
    assert (code, err) == (0, "")
    with zipfile.ZipFile(packed) as file:
        names = file.namelist()
    assert all(name in out for name in names)


def test_sound_that_is_gone_is_counted(run: Run, data: Path, world: World, tmp_path: Path) -> None:
    async def elsewhere() -> None:
        await keep(tmp_path / "mine", world.log, noise)

    anyio.run(elsewhere)
    for path in DataPaths(tmp_path / "mine").samples.glob("duplex-1.out*"):
        path.unlink()
    path = tmp_path / "x"
    code, out, _ = run("log", "export", "latest", "--data", tmp_path / "mine", "--with-samples", "--out", path)
    assert code == 0
    assert "0.0 MB more were not there any more" in out
    code, out, _ = run("log", "import", path, "--data", tmp_path / "there")
    assert [name.split(".")[1] for name in sound(tmp_path / "there", "duplex-1")] == ["in"]


def changed(path: Path, packed: Path, **entries: bytes | None) -> Path:
    """A copy of a bundle with other entries."""
    with zipfile.ZipFile(packed) as old, zipfile.ZipFile(path, "w") as new:
        for entry in old.infolist():
            data = entries.get(entry.filename.split(".")[0], old.read(entry))
            if data is not None:
                new.writestr(entry, data)
    return path


def test_what_is_damaged_is_told_in_one_sentence_and_changes_nothing(
    run: Run, packed: Path, tmp_path: Path
) -> None:
    data = bytearray(packed.read_bytes())
    data[data.index(b"samples/in") + 200] ^= 1
    loud = tmp_path / "loud.antiphon"
    loud.write_bytes(data)
    cut = tmp_path / "cut.antiphon"
    cut.write_bytes(data[:-7])
    other = changed(tmp_path / "other.antiphon", packed, log=b'{"antiphon_log":1}\n')
    missing = tmp_path / "missing.antiphon"
    for path, words in ((cut, "it is cut off"), (other, "not as long as it says"), (missing, "there is no file")):
        for command in (["replay", path], ["log", "show", path], ["log", "import", path, "--data", tmp_path / "d"]):
            code, out, err = run(*command)
            assert (code, out) == (2, ""), command
            assert words in err
            assert str(path) in err
            assert len(err.splitlines()) == 1
    code, _, err = run("log", "import", loud, "--data", tmp_path / "d")
    assert code == 2
    assert "'in' is damaged" in err
    assert not (tmp_path / "d").exists()


def test_a_log_of_another_session_than_it_says_is_not_imported(run: Run, data: Path, tmp_path: Path) -> None:
    bare = tmp_path / "session.jsonl"
    run("log", "export", "latest", "--data", data, "--out", bare)
    lines = bare.read_text()
    for theirs, words in (("duplex-2", "is not that of duplex-2"), ("../evil", "is not that of ../evil")):
        bare.write_text(lines.replace('"session":"duplex-1"', f'"session":"{theirs}"', 1))
        code, _, err = run("log", "import", bare, "--data", tmp_path / "there")
        assert code == 2
        assert words in err
    bare.write_text(lines.replace('"session":"duplex-1"', '"session":"../evil"'))
    code, _, err = run("log", "import", bare, "--data", tmp_path / "there")
    assert code == 2
    assert "give another with --as" in err
    assert run("log", "import", bare, "--data", tmp_path / "there", "--as", "good")[0] == 0
    bare.write_text(lines.splitlines()[0].replace(r'"transactions":\d+', '"transactions":0') + "\n")
    assert run("log", "import", bare, "--data", tmp_path / "there")[0] == 2


def test_an_export_that_fails_leaves_what_was_there(
    run: Run, data: Path, packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = packed.read_bytes()

    async def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cli_export.bundle, "write", fail)
    code, out, err = run("log", "export", "latest", "--data", data, "--with-samples", "--out", packed)
    assert (code, out) == (2, "")
    assert f"cannot write {packed}: No space left on device" in err
    assert packed.read_bytes() == before
    assert [path.name for path in packed.parent.iterdir()] == [packed.name]


def test_an_export_whose_sound_cannot_be_read_is_none(
    run: Run, data: Path, packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> bytes:
        raise Unavailable("cannot read the stream `in`: Input/output error")

    bare = packed.with_suffix(".jsonl")
    run("log", "export", packed, "--out", bare)
    monkeypatch.setattr(SampleReader, "read", fail)
    for target in ("latest", bare):
        path = packed.with_name("new.antiphon")
        code, out, err = run("log", "export", target, "--data", data, "--with-samples", "--out", path)
        assert (code, out) == (2, "")
        assert "Input/output error" in err
        assert len(err.splitlines()) == 1
        assert not path.exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_device_is_written_in_place(run: Run, data: Path) -> None:
    code, _, err = run("log", "export", "latest", "--data", data, "--with-samples", "--out", "/dev/full")
    assert code == 2
    assert "No space left" in err
    assert Path("/dev/full").exists()


def test_a_long_log_is_exported_a_page_at_a_time(
    run: Run, data: Path, packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: list[int] = []
    read = SqliteReader.read

    async def counted(self: SqliteReader, session: str, after: int, limit: int = 1000) -> list[Transaction]:
        pages.append(limit)
        return await read(self, session, after, limit)

    monkeypatch.setattr(SqliteReader, "read", counted)
    monkeypatch.setattr(cli_logs, "BATCH", 8)
    path = tmp_path / "x"
    assert run("log", "export", "latest", "--data", data, "--with-samples", "--out", path)[0] == 0
    assert path.read_bytes() == packed.read_bytes()
    assert max(pages) == 8
