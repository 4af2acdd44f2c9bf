"""WAV files: any plain one in, as mono pcm16 at the rate that is asked for; pcm16 out."""

import struct
from pathlib import Path

import numpy as np
import soxr  # pyright: ignore[reportMissingTypeStubs]
from msgspec import Struct
from numpy.typing import NDArray

Samples = NDArray[np.float32]
Pcm = NDArray[np.int16]

_INTEGERS, _FLOATS, _EXTENSIBLE = 1, 3, 0xFFFE
_OPEN_ENDED = (0, 0xFFFF_FFFF, 0x7FFF_FFFF)
"""Sizes that programs write which did not know the length yet (a pipe): the sound goes to the end of the file."""


class WavError(Exception):
    """The file is no WAV file that can be used. The message is one sentence that names the file."""


class _Format(Struct, frozen=True):
    """What the samples of a file are: `kind` 1 integers, 3 floats; `width` in bytes."""

    kind: int
    channels: int
    rate: int
    width: int


def read_wav(path: Path, rate: int = 16_000) -> Pcm:
    """Return the sound of a file as mono samples of 16 bits at `rate` Hz.

    Integers of 8, 16, 24 and 32 bits and floats of 32 and 64 bits are read, at any rate and with any number of
    channels, which are averaged.

    Raises:
        WavError: it is missing, empty, cut off, or not such a file.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise WavError(f"there is no file {path}") from None
    except OSError as error:
        raise WavError(f"cannot read {path}: {error.strerror}") from error
    return open_wav(path, data).samples(rate)


class Wav(Struct, frozen=True):
    """A file whose head was read; `rate` in Hz. Its sound is not expanded yet."""

    form: _Format
    body: bytes

    @property
    def rate(self) -> int:
        """Frames a second, as the file says."""
        return self.form.rate

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return len(self.body) / (self.form.channels * self.form.width * self.form.rate)

    def samples(self, rate: int) -> Pcm:
        """Return the sound as mono samples of 16 bits at `rate` Hz."""
        return to_pcm16(_decode(self.form, self.body).reshape(-1, self.form.channels), self.form.rate, rate)


def open_wav(path: Path, data: bytes) -> Wav:
    """Read the head of a file's bytes; `path` only names it.

    Raises:
        WavError: as `read_wav`.
    """
    return Wav(*_chunks(path, data))


def to_pcm16(samples: Samples, rate: int, wanted: int) -> Pcm:
    """Return `samples` (shape frames × channels, full scale ±1) as mono samples of 16 bits at `wanted` Hz."""
    mono = samples.mean(axis=1, dtype=np.float32)
    if rate != wanted:
        mono = np.asarray(soxr.resample(mono, rate, wanted), np.float32)  # pyright: ignore[reportUnknownMemberType]
    return np.asarray(np.clip(np.rint(mono * 32768.0), -32768, 32767), np.int16)


def write_wav(path: Path, samples: Pcm, rate: int) -> None:
    """Write samples of 16 bits, shape (frames,) or (frames, channels), as a WAV file.

    Raises:
        WavError: the file cannot be written.
    """
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    body = samples.astype("<i2").tobytes()
    head = wav_head(len(body), rate, channels)
    try:
        path.write_bytes(head + body)
    except OSError as error:
        raise WavError(f"cannot write {path}: {error.strerror}") from error


def wav_head(size: int | None, rate: int, channels: int = 1) -> bytes:
    """Return the head of a WAV file of `size` bytes of 16-bit samples; None: it is not known, the sound follows."""
    riff, body = (0xFFFF_FFFF, 0xFFFF_FFFF) if size is None else (36 + size, size)
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        *(b"RIFF", riff, b"WAVE", b"fmt ", 16, _INTEGERS, channels, rate),
        *(rate * channels * 2, channels * 2, 16, b"data", body),
    )


def _chunks(path: Path, data: bytes) -> tuple[_Format, bytes]:
    """Return the format and the bytes of the samples."""
    if not data:
        raise WavError(f"{path} is empty")
    if len(data) < 12 or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise WavError(f"{path} is not a WAV file (it does not begin with RIFF … WAVE)")
    form: _Format | None = None
    at = 12
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        at += 8
        if name == b"data":
            if form is None:
                raise WavError(f"{path} does not say what its samples are: it has no fmt chunk before its data")
            return form, _body(path, form, data[at:], size)
        if name == b"fmt ":
            form = _format(path, data[at : at + size])
        at += size + size % 2
    raise WavError(f"{path} is cut off: its {'data' if form else 'fmt'} chunk is missing")


def _body(path: Path, form: _Format, rest: bytes, size: int) -> bytes:
    if size in _OPEN_ENDED:
        size = len(rest)
    if size > len(rest):
        raise WavError(f"{path} is cut off: {size} bytes of sound are announced, {len(rest)} are there")
    frame = form.channels * form.width
    body = rest[: size // frame * frame]
    if not body:
        raise WavError(f"{path} holds no sound")
    return body


def _format(path: Path, chunk: bytes) -> _Format:
    if len(chunk) < 16:
        raise WavError(f"{path} is cut off inside its fmt chunk")
    kind, channels, rate, _, block, bits = struct.unpack_from("<HHIIHH", chunk)
    if kind == _EXTENSIBLE and len(chunk) >= 26:
        (kind,) = struct.unpack_from("<H", chunk, 24)
    if not 1 <= channels <= 64 or not 1_000 <= rate <= 768_000:
        raise WavError(f"{path} says {channels} channels at {rate} Hz, which cannot be")
    width = block // channels
    widths = {_INTEGERS: (1, 2, 3, 4), _FLOATS: (4, 8)}.get(kind)
    if widths is None:
        raise WavError(f"{path} is compressed (format {kind}); convert it to plain PCM first")
    if width not in widths or block % channels or bits > width * 8:
        raise WavError(f"{path} has samples of {bits} bits, which are not read; convert it to 16 bits first")
    return _Format(kind, channels, rate, width)


def _decode(form: _Format, body: bytes) -> Samples:
    """Return the samples, interleaved, full scale ±1; what is not a number is silence."""
    if form.kind == _FLOATS:
        values = np.frombuffer(body, f"<f{form.width}").astype(np.float32)
        return np.nan_to_num(values, nan=0.0, posinf=1.0, neginf=-1.0)
    if form.width == 1:  # the one width that is unsigned
        return (np.frombuffer(body, np.uint8).astype(np.float32) - 128.0) / 128.0
    if form.width == 3:
        wide = np.zeros((len(body) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(body, np.uint8).reshape(-1, 3)
        return wide.view("<i4")[:, 0].astype(np.float32) / 2.0**31
    return np.frombuffer(body, f"<i{form.width}").astype(np.float32) / 2.0 ** (form.width * 8 - 1)
