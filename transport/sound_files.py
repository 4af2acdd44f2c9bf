"""Sound in files, as HTTP carries it: WAV and bare samples are read and written here, the rest by libsndfile."""

from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from .wav import Pcm, WavError, open_wav, to_pcm16, wav_head

FileFormat = Literal["wav", "pcm", "flac", "mp3", "opus"]

LONGEST_S = 900
"""Seconds of one file: what the input of a session may last. A small file may claim to be long."""

HIGHEST_HZ = 192_000
MOST_CHANNELS = 64
STEP = 65_536
"""Values that are unpacked at one time: silence of many channels at a high rate is small only in its file."""

_PACKED: dict[str, tuple[str, str]] = {"flac": ("FLAC", "PCM_16"), "mp3": ("MP3", ""), "opus": ("OGG", "OPUS")}
"""libsndfile's names of a container and of what is in it."""

_READ = ("wav", "flac", "mp3", "ogg", "opus")


class SoundFileError(Exception):
    """A file cannot be read or written; the message is one sentence."""


class Sound(Struct, frozen=True):
    """Mono samples of 16 bits; `rate` in Hz."""

    samples: Pcm
    rate: int


def read_sound(data: bytes, kind: str, bare_rate: int) -> Sound:
    """Return what is in a file of a client; `kind` is its format, `bare_rate` the rate of one without a head.

    Raises:
        SoundFileError: it is no such file, it is longer than 15 minutes, or nothing here reads it.
    """
    if kind in ("pcm", "pcm16"):
        if not data or len(data) % 2:
            raise SoundFileError("bare samples are two bytes each, and there must be some")
        return Sound(np.frombuffer(data, "<i2").astype(np.int16), bare_rate)
    if kind == "wav":
        try:
            wav = open_wav(Path("sound"), data)
        except WavError as error:
            raise SoundFileError(str(error)) from None
        if wav.seconds > LONGEST_S:
            raise SoundFileError(f"a file lasts at most {LONGEST_S} s")
        return Sound(wav.samples(wav.rate), wav.rate)
    if kind not in _READ:
        raise SoundFileError(f"sound is {', '.join(_READ)} or pcm16, not {kind[:32]!r}")
    return _unpacked(data)


def write_sound(sound: Sound, kind: FileFormat) -> bytes:
    """Return samples as a file.

    Raises:
        SoundFileError: nothing here writes it.
    """
    body = sound.samples.astype("<i2").tobytes()
    if kind == "pcm":
        return body
    if kind == "wav":
        return wav_head(len(body), sound.rate) + body
    container, coding = _PACKED[kind]
    out = BytesIO()
    _libsndfile().write(out, sound.samples, sound.rate, format=container, subtype=coding or None)
    return out.getvalue()


def check_writable(kind: FileFormat) -> None:
    """Accept a format before anything is spoken in it.

    Raises:
        SoundFileError: nothing here writes it.
    """
    if kind in _PACKED:
        _libsndfile()


def _unpacked(data: bytes) -> Sound:
    library = _libsndfile()
    try:
        with library.SoundFile(BytesIO(data)) as file:
            rate, channels = int(file.samplerate), int(file.channels)
            if rate > HIGHEST_HZ or channels > MOST_CHANNELS:
                raise SoundFileError(f"a file has at most {MOST_CHANNELS} channels at {HIGHEST_HZ} Hz")
            pieces: list[Pcm] = []
            left = LONGEST_S * rate
            # The head may lie about the length: no more than is allowed is ever expanded.
            while len(values := file.read(STEP // channels, dtype="float32", always_2d=True)):
                left -= len(values)
                if left < 0:
                    raise SoundFileError(f"a file lasts at most {LONGEST_S} s")
                pieces.append(to_pcm16(np.asarray(values, np.float32), rate, rate))
    except (library.LibsndfileError, RuntimeError, ValueError) as error:
        raise SoundFileError("the file is not one that can be read") from error
    if not pieces:
        raise SoundFileError("the file holds no sound")
    return Sound(np.concatenate(pieces), rate)


def _libsndfile() -> Any:  # the library has no types
    try:
        return import_module("soundfile")
    except (ImportError, OSError):
        raise SoundFileError("FLAC, MP3 and Opus need the package `soundfile`, which is not installed") from None
