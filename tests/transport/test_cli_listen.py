"""`antiphon log export --wav` and `antiphon log play`: what they write and say, and what they refuse."""

import errno
import io
import json
import threading
from pathlib import Path

import anyio
import pytest
from rich.console import Console

from antiphon.engine.datadir import DataPaths
from antiphon.transport import cli_listen, listening
from antiphon.transport.cli_errors import UNUSABLE, Stop
from antiphon.transport.wav import WavError

from tests.sessions.world import World
from tests.talks import Run, keep, talk
from tests.transport.test_cli import run

__all__ = ["run"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spoken turn and its answer, in a data directory."""
    root = tmp_path_factory.mktemp("data")
    anyio.run(keep, root, talk("All is well.").log)
    return root


def console() -> Console:
    return Console(file=io.StringIO(), width=1000)


def said(screen: Console) -> str:
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_two_files_are_written_and_named(data: Path, tmp_path: Path) -> None:
    files = cli_listen.export("latest", data, tmp_path / "talk.wav")
    assert files.generated.path == tmp_path / "talk-generated.wav"
    for file, channels in ((files.heard, 2), (files.generated, 1)):
        assert file.path.stat().st_size == 44 + round(file.seconds * file.rate) * channels * 2
    screen = console()
    cli_listen.say_written(screen, files)
    assert "talk.wav: 1.1 s at 24,000 Hz, left the user, right what was heard" in said(screen)
    assert "silent" not in said(screen)


def test_what_is_past_its_retention_is_said(data: Path, tmp_path: Path) -> None:
    samples = DataPaths(data).samples / "duplex-1.out.0"
    kept = samples.read_bytes()
    samples.unlink()
    try:
        screen = console()
        cli_listen.say_written(screen, cli_listen.export("latest", data, tmp_path / "talk.wav"))
    finally:
        samples.write_bytes(kept)
    assert "0.3 s of the assistant are silent: the sound is past its retention" in said(screen)


def test_what_cannot_be_written_is_said_before_anything_is_read(data: Path, tmp_path: Path) -> None:
    with pytest.raises(Stop, match=r"must end with \.wav") as ended:
        cli_listen.export("latest", data, tmp_path / "talk.mp3")
    assert ended.value.code == UNUSABLE
    with pytest.raises(Stop, match="there is no folder"):
        cli_listen.export("latest", data, tmp_path / "missing" / "talk.wav")


def test_a_session_of_words_cannot_be_listened_to(tmp_path: Path) -> None:
    world = World(modalities=("text",))
    world.begin()
    anyio.run(keep, tmp_path / "data", world.log)
    with pytest.raises(Stop, match="nobody spoke in duplex-1"):
        cli_listen.export("latest", tmp_path / "data", tmp_path / "a.wav")
    assert not (tmp_path / "a.wav").exists()


def test_the_command_takes_no_other_file_and_speaks_to_programs(run: Run, data: Path, tmp_path: Path) -> None:
    wav = tmp_path / "talk.wav"
    for other in (("--out", tmp_path / "a"), ("--with-samples",)):
        code, _, told = run("log", "export", "latest", "--data", data, "--wav", wav, *other)
        assert (code, "leave --out and --with-samples out" in told) == (2, True)
    code, out, _ = run("log", "export", "latest", "--data", data, "--wav", wav, "--json")
    report = json.loads(out)
    assert (code, report["file"], report["rate"], report["missing_user_s"]) == (0, str(wav), 24_000, 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["talk-generated.wav", "talk.wav"]


def test_a_full_disk_is_told_and_leaves_what_was_there(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wav = tmp_path / "talk.wav"
    wav.write_bytes(b"kept")

    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(listening.os, "posix_fallocate", full)
    with pytest.raises(WavError, match="No space left"):
        cli_listen.export("latest", data, wav)
    assert [path.name for path in tmp_path.iterdir()] == ["talk.wav"]
    assert wav.read_bytes() == b"kept"


class Loudspeaker:
    """As much of the library as is needed: a thread takes blocks until it is closed."""

    PortAudioError = RuntimeError
    played = bytearray()
    opened: tuple[int, int] = (0, 0)
    latency = 0.0

    def __init__(self, *, samplerate: int, channels: int, dtype: str, device: object, callback: object) -> None:
        assert (dtype, device) == ("int16", None)
        type(self).played, type(self).opened = bytearray(), (samplerate, channels)
        self._channels, self._callback, self._closed = channels, callback, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.is_set():
            block = memoryview(bytearray(1_024 * self._channels * 2))
            self._callback(block, 1_024, None, None)  # type: ignore[operator]
            self.played.extend(block)


class Library:
    PortAudioError = RuntimeError
    RawOutputStream = Loudspeaker


def test_a_session_is_played_from_any_moment_to_its_end(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_listen, "library", lambda: Library)
    cli_listen.play("latest", data, console(), start_s=0.5)
    assert Loudspeaker.opened == (24_000, 2)
    assert len(Loudspeaker.played) >= 0.6 * 24_000 * 4
    cli_listen.play("latest", data, console(), generated=True)
    assert Loudspeaker.opened == (24_000, 1)
    with pytest.raises(Stop, match=r"the session lasts 1\.1 s: nothing is left from 9 s on"):
        cli_listen.play("latest", data, console(), start_s=9)


def test_without_a_loudspeaker_it_says_what_to_do(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_listen, "library", lambda: None)
    with pytest.raises(Stop, match=r"there is nothing to play with: install .* `antiphon log export --wav`"):
        cli_listen.play("latest", data, console())

    def broken(**_options: object) -> None:
        raise RuntimeError("no such device")

    monkeypatch.setattr(Library, "RawOutputStream", broken)
    monkeypatch.setattr(cli_listen, "library", lambda: Library)
    with pytest.raises(Stop, match="the loudspeaker cannot be opened: no such device"):
        cli_listen.play("latest", data, console())
