"""Loudspeaker and microphone: by a library, by programs, and what is said when there is neither."""

import stat
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import anyio
import pytest

from antiphon.transport import devices
from antiphon.transport.client import SessionOptions
from antiphon.transport.devices import LibraryLoudspeaker, NoDevice, ProgramLoudspeaker, loudspeaker, microphone
from antiphon.transport.inline import InlineClient

from .serving import becomes, serving

pytestmark = pytest.mark.anyio


class PortAudioError(Exception):
    """Something is wrong with a device."""


class Stream:
    """A stream of a machine that is not there: the test calls its callback."""

    latency = 0.03
    opened: ClassVar[list["Stream"]] = []

    def __init__(
        self, *, samplerate: int, channels: int, dtype: str, device: object, callback: object, **_: object
    ):
        if device == "broken":
            raise PortAudioError("no such device")
        assert (channels, dtype) == (1, "int16")
        self.rate = samplerate
        self.callback: Callable[[memoryview, int, object, object], None] = callback  # type: ignore[assignment]
        self.state = "new"
        Stream.opened.append(self)

    def start(self) -> None:
        self.state = "started"

    def close(self) -> None:
        self.state = "closed"


@pytest.fixture
def sounddevice(monkeypatch: pytest.MonkeyPatch) -> type[Stream]:
    """A `sounddevice` that is installed."""
    module = ModuleType("sounddevice")
    module.RawOutputStream = module.RawInputStream = Stream  # type: ignore[attr-defined]
    module.PortAudioError = PortAudioError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    monkeypatch.setattr(Stream, "opened", [])
    return Stream


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without `sounddevice`, whose programs are in a folder."""
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def program(folder: Path, name: str, script: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


@pytest.mark.usefixtures("path")
async def test_a_machine_without_anything_says_what_to_install() -> None:
    for attempt in (play, record):
        with pytest.raises(NoDevice, match=r"sounddevice.*alsa-utils"):
            await attempt()


async def play() -> None:
    """Play for as long as it goes."""
    with closing(loudspeaker("sink")) as speaker:
        while True:
            speaker.write(bytes(960), 24_000)
            await anyio.sleep(0.01)


async def record(pieces: list[bytes] | None = None) -> None:
    """Record for as long as it goes."""
    async for piece in microphone(8_000, "mic"):
        (pieces if pieces is not None else []).append(piece)


async def test_the_library_takes_what_waits_and_is_silent_otherwise(sounddevice: type[Stream]) -> None:
    speaker = loudspeaker()
    assert isinstance(speaker, LibraryLoudspeaker)
    assert speaker.latency_us == 0
    speaker.write(b"\1\2\3\4", 24_000)
    (stream,) = sounddevice.opened
    assert (stream.state, stream.rate, speaker.latency_us) == ("started", 24_000, 30_000)
    taken = bytearray(6)
    stream.callback(memoryview(taken), 3, None, None)
    assert taken == b"\1\2\3\4\0\0"
    speaker.write(b"\5\6", 24_000)
    speaker.flush()
    stream.callback(memoryview(taken), 3, None, None)
    assert taken == bytes(6)
    speaker.write(b"\7\7", 16_000)
    assert [(stream.state, stream.rate) for stream in sounddevice.opened] == [
        ("closed", 24_000),
        ("started", 16_000),
    ]
    speaker.close()
    assert sounddevice.opened[-1].state == "closed"
    with pytest.raises(NoDevice, match="no such device"):
        loudspeaker("broken").write(b"\0\0", 24_000)


async def test_a_program_plays_until_it_is_interrupted(path: Path) -> None:
    program(path, "aplay", f'echo "$@" >> {path}/calls; while read -r line; do echo "$line" >> {path}/heard; done')
    speaker = loudspeaker("hw:1")
    assert isinstance(speaker, ProgramLoudspeaker)
    speaker.write(b"one\n", 24_000)
    await becomes(lambda: (path / "heard").exists() and (path / "heard").read_text() == "one\n")
    speaker.flush()
    speaker.write(b"two\n", 24_000)
    speaker.write(b"three\n", 16_000)
    await becomes(lambda: "three" in (path / "heard").read_text())
    calls = (path / "calls").read_text().splitlines()
    assert calls[0] == "-q -t raw -f S16_LE -r 24000 -c 1 -B 100000 -D hw:1"
    assert "-r 16000" in calls[-1]
    speaker.close()
    speaker.close()


async def test_a_program_that_ends_is_no_device(path: Path) -> None:
    program(path, "paplay", "exit 1")
    with pytest.raises(NoDevice, match="paplay does not play"), anyio.fail_after(5):
        await play()


@pytest.mark.parametrize("name", ["parec", "arecord"])
async def test_a_program_records_in_even_pieces_until_it_ends(path: Path, name: str) -> None:
    program(path, name, "printf '%0800d' 7; exit 3")
    pieces: list[bytes] = []
    with pytest.raises(NoDevice, match=f"{name} has stopped recording"):
        await record(pieces)
    assert [len(piece) for piece in pieces] == [320, 320], "what is left is no whole piece"


async def test_the_library_records(sounddevice: type[Stream]) -> None:
    pieces: list[bytes] = []
    async with anyio.create_task_group() as group:
        group.start_soon(record, pieces)
        await becomes(lambda: bool(sounddevice.opened))
        for value in (b"\1\1", b"\2\2"):
            sounddevice.opened[0].callback(memoryview(value), 1, None, None)
        await becomes(lambda: pieces == [b"\1\1", b"\2\2"])
        group.cancel_scope.cancel()
    await becomes(lambda: sounddevice.opened[0].state == "closed")
    with pytest.raises(NoDevice, match="cannot be opened"):
        await anext(microphone(16_000, "broken"))


async def test_a_client_streams_its_microphone(sounddevice: type[Stream]) -> None:
    async with (
        serving() as served,
        InlineClient(served.hub, SessionOptions(turn_detection=None, input_audio_format="pcm_f32le")) as client,
        anyio.create_task_group() as group,
    ):
        group.start_soon(client.stream_microphone)
        await becomes(lambda: bool(sounddevice.opened))
        assert sounddevice.opened[0].rate == client.input_format.rate
        sounddevice.opened[0].callback(memoryview(bytes(6_400)), 3_200, None, None)

        def received() -> int:
            session = served.hub.session(client.session_id)
            return 0 if session is None else session.input.position

        await becomes(lambda: received() > 0)
        group.cancel_scope.cancel()


def test_the_library_may_be_there_and_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_name: str) -> ModuleType:
        raise OSError("PortAudio library not found")

    monkeypatch.setattr(devices, "import_module", broken)
    assert devices.library() is None
