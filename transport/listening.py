"""A session as WAV files: the user left, the assistant as it was heard right; and all that was made in another."""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from antiphon.engine.pcm import Resampler, decode
from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.log import Unavailable, UnknownSession

from .placing import Placed, of_generated, of_heard, of_user
from .timeline import Story
from .wav import Pcm, WavError, wav_head

Read = Callable[[SampleRef], Awaitable[bytes]]
"""Returns the bytes of a span; raises as `Samples.read` says."""

STEP = 1 << 20
"""Bytes of sound that are read at one time."""

FINEST = 2_048
"""Bytes of sound whose absence is not looked at any closer."""

LARGEST = 0xFFFF_FFFF - 36
"""Bytes of sound that a WAV file can hold."""

HEAD = len(wav_head(0, 16_000))


class Missing(Struct):
    """Seconds of sound that the log tells of and that are not there any more, of each voice."""

    user: float = 0.0
    assistant: float = 0.0


class Written(Struct, frozen=True):
    """What a file became: how long it is, and what is silent in it because it is past its retention."""

    path: Path
    seconds: float
    rate: int
    missing: Missing


async def write_heard(path: Path, story: Story, read: Read) -> Written:
    """Write both voices as they were heard, on the session's clock: silence where nothing was played.

    Raises:
        WavError: the file cannot be written, or the session is longer than one can hold.
    """
    user, heard = of_user(story), of_heard(story.answers)
    missing = Missing()
    with _Canvas(path, _rate([*user, *heard]), 2, _end_of(story, [*user, *heard])) as canvas:
        missing.user = await _paint(canvas, 0, user, read)
        missing.assistant = await _paint(canvas, 1, heard, read)
        return Written(path, canvas.seconds, canvas.rate, missing)


async def write_generated(path: Path, story: Story, read: Read) -> Written:
    """Write all sound of the answers, uncut: each begins when it was made, or behind the one before it.

    Raises: as `write_heard`.
    """
    made = of_generated(story.answers)
    missing = Missing()
    with _Canvas(path, _rate(made), 1, _end_of(story, made)) as canvas:
        missing.assistant = await _paint(canvas, 0, made, read)
        return Written(path, canvas.seconds, canvas.rate, missing)


def _rate(placed: list[Placed]) -> int:
    """Return the highest rate that there is: the others are resampled to it."""
    return max((one.format.rate for one in placed), default=16_000)


def _end_of(story: Story, placed: list[Placed]) -> float:
    return max([story.end_s, *(one.end_s for one in placed)])


class _Canvas:
    """A WAV file of silence that is painted on. It stands at its place only when it is whole."""

    def __init__(self, path: Path, rate: int, channels: int, seconds: float) -> None:
        self.rate = rate
        frames = max(1, round(seconds * rate))
        size = frames * channels * 2
        self.seconds = frames / rate
        if size > LARGEST:
            raise WavError(f"{path} would hold {seconds / 3600:.1f} hours, which is more than a WAV file can")
        self._path, self._draft = path, path.with_name(f".{path.name}.new")
        try:
            with open(self._draft, "wb") as file:
                file.write(wav_head(size, rate, channels))
                file.flush()
                # All of the room is taken now: a disk that is full would end a process that paints on it.
                os.posix_fallocate(file.fileno(), 0, HEAD + size)
            self._frames: np.memmap[tuple[int, int], np.dtype[np.int16]] = np.memmap(
                self._draft, "<i2", "r+", HEAD, (frames, channels)
            )
        except OSError as error:
            self._draft.unlink(missing_ok=True)
            raise WavError(f"cannot write {path}: {error.strerror}") from error

    def __enter__(self) -> "_Canvas":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        self._frames.flush()
        if kind is None:
            self._draft.replace(self._path)
        else:
            self._draft.unlink(missing_ok=True)

    def paint(self, channel: int, at: int, sound: Pcm) -> int:
        """Put samples there, as far as the file goes; return where they end."""
        end = min(at + len(sound), len(self._frames))
        if end > at:
            self._frames[at:end, channel] = sound[: end - at]
        return at + len(sound)


async def _paint(canvas: _Canvas, channel: int, placed: list[Placed], read: Read) -> float:
    """Paint one voice; return the seconds of it that could not be read."""
    missing = 0.0
    for one in placed:
        resampler = Resampler(one.format.rate, canvas.rate)
        at = round(one.start * canvas.rate / one.format.rate)
        for ref in _steps(one):
            async for part, sound in _read(read, ref, one.format):
                missing += 0.0 if sound is not None else part.size / one.format.width / one.format.rate
                silence = bytes(part.size // one.format.width * 2)
                at = canvas.paint(channel, at, _pcm(resampler.feed(silence if sound is None else sound)))
        canvas.paint(channel, at, _pcm(resampler.flush()))
    return missing


def _steps(one: Placed) -> Iterator[SampleRef]:
    step = STEP // one.format.width * one.format.width
    for ref in one.refs:
        for start in range(ref.start, ref.end, step):
            yield SampleRef(ref.stream, start, min(step, ref.end - start))


async def _read(read: Read, ref: SampleRef, form: AudioFormat) -> AsyncGenerator[tuple[SampleRef, bytes | None]]:
    """Yield samples of 16 bits, part by part; None where there are none any more."""
    # As `wav` each piece goes out with a head of its own; what is kept are bare samples.
    plain = AudioFormat("pcm16", form.rate) if form.encoding == "wav" else form
    parts = [ref]
    while parts:
        part = parts.pop()
        try:
            data = await read(part)
        except (Unavailable, UnknownSession):
            half = part.size // 2 // form.width * form.width
            if part.size <= FINEST or not half:
                yield part, None
            else:
                parts.append(SampleRef(part.stream, part.start + half, part.size - half))
                parts.append(SampleRef(part.stream, part.start, half))
        else:
            yield part, decode(data, plain)


def _pcm(data: bytes) -> NDArray[np.int16]:
    return np.frombuffer(data, "<i2").astype(np.int16, copy=False)
