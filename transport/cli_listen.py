"""A session for the ear: as WAV files, or played by the loudspeaker of this machine."""

import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import msgspec
import numpy as np
from msgspec import Struct
from rich.console import Console
from rich.markup import escape

from . import cli_logs
from .cli_check import tell as tell_damage
from .cli_errors import UNUSABLE, Stop
from .cli_files import writable
from .devices import INSTALL, Library, library
from .listening import HEAD, Missing, Written, write_generated, write_heard
from .timeline import Story, tell

SIGHTED_S = 0.05
"""Missing sound that is shorter than this is not worth a word."""


class Files(Struct, frozen=True):
    """The two files that a session became."""

    heard: Written
    generated: Written
    damage: str = ""
    """What is wrong with the log behind what is heard here; empty: nothing."""

    @property
    def report(self) -> "Report":
        """What `antiphon log export --wav --json` prints."""
        return Report(
            file=str(self.heard.path),
            generated=str(self.generated.path),
            seconds=round(self.heard.seconds, 3),
            rate=self.heard.rate,
            missing_user_s=round(self.heard.missing.user, 3),
            missing_assistant_s=round(self.generated.missing.assistant, 3),
        )


class Report(Struct, frozen=True, kw_only=True):
    """What was written, for programs; seconds are missing that are past their retention."""

    file: str
    generated: str
    seconds: float
    rate: int
    missing_user_s: float
    missing_assistant_s: float


def generated_path(path: Path) -> Path:
    """Return the name of the second file: `talk.wav` has `talk-generated.wav` beside it."""
    return path.with_name(f"{path.stem}-generated{path.suffix}")


def export(target: str, data: Path, path: Path) -> Files:
    """Write a session of `data` (or an exported one, with the sound in `data`) as two WAV files.

    Raises:
        Stop: the log cannot be read, it holds no sound, or a file cannot be written.
        WavError: as `write_heard`.
    """
    if path.suffix.lower() != ".wav":
        raise Stop(f"{path} must end with .wav", UNUSABLE)
    for name in (path, generated_path(path)):
        writable(name)
    log, story = _told(target, data)
    files = anyio.run(_export, log, story, path)
    return msgspec.structs.replace(files, damage=log.damage)


async def _export(log: cli_logs.LoadedLog, story: Story, path: Path) -> Files:
    return Files(
        await write_heard(path, story, log.read),
        await write_generated(generated_path(path), story, log.read),
    )


def _told(target: str, data: Path) -> tuple[cli_logs.LoadedLog, Story]:
    log = cli_logs.load(target, data, damaged=True)
    story = tell(log.transactions)
    if not story.pieces and not any(answer.deltas for answer in story.answers):
        raise Stop(f"nobody spoke in {story.session}: there is nothing to listen to", UNUSABLE)
    return log, story


def say_written(console: Console, files: Files) -> None:
    """Tell what was written, and what is silent in it."""
    for file, what in (
        (files.heard, "left the user, right what was heard"),
        (files.generated, "all that was made"),
    ):
        console.print(f"{escape(str(file.path))}: {file.seconds:,.1f} s at {file.rate:,} Hz, {what}")
    say_missing(console, files.heard.missing)


def say_missing(console: Console, missing: Missing) -> None:
    """Tell what is silent because its sound is not there any more."""
    for who, seconds in (("the user", missing.user), ("the assistant", missing.assistant)):
        if seconds >= SIGHTED_S:
            console.print(
                f"[yellow]{seconds:,.1f} s of {who} are silent: "
                "the sound is past its retention, or was never here[/]"
            )


# -- playing -------------------------------------------------------------------------------------------------


def play(target: str, data: Path, console: Console, *, generated: bool = False, start_s: float = 0.0) -> None:
    """Play a session as it was heard, or all that was made, from `start_s` to its end or Ctrl-C.

    Raises:
        Stop: the log cannot be read, it holds no sound, or there is nothing to play with.
    """
    sounddevice = library()
    if sounddevice is None:
        raise Stop(f"there is nothing to play with: {INSTALL}; or write a file with `antiphon log export --wav`")
    log, story = _told(target, data)
    with TemporaryDirectory(prefix="antiphon-") as folder:
        file = anyio.run(_rendered, log, story, Path(folder) / "session.wav", generated)
        say_missing(console, file.missing)
        if start_s >= file.seconds:
            raise Stop(f"the session lasts {file.seconds:.1f} s: nothing is left from {start_s:g} s on", UNUSABLE)
        console.print(f"[dim]{file.seconds - start_s:,.1f} s; Ctrl-C ends it[/]")
        channels = 1 if generated else 2
        sound = np.memmap(file.path, "<i2", "r", HEAD).reshape(-1, channels)[round(start_s * file.rate) :]
        _sound(sounddevice, sound, file.rate)
    tell_damage(log.damage)


async def _rendered(log: cli_logs.LoadedLog, story: Story, path: Path, generated: bool) -> Written:
    write = write_generated if generated else write_heard
    return await write(path, story, log.read)


def _sound(sounddevice: Library, sound: np.ndarray[tuple[int, int], np.dtype[np.int16]], rate: int) -> None:
    """Play samples (frames × channels) to their end."""
    channels = sound.shape[1]
    done = threading.Event()
    at = 0

    def fill(out: memoryview, frames: int, _time: object, _status: object) -> None:
        nonlocal at
        data = sound[at : at + frames].tobytes()
        at += frames
        out[: len(data)] = data
        out[len(data) :] = bytes(len(out) - len(data))
        if not data:  # the last of it went out with the block before
            done.set()

    try:
        stream = sounddevice.RawOutputStream(
            samplerate=rate, channels=channels, dtype="int16", device=None, callback=fill
        )
        stream.start()
    except (sounddevice.PortAudioError, ValueError) as error:
        raise Stop(f"the loudspeaker cannot be opened: {error}") from error
    try:
        done.wait()
    finally:
        stream.close()
