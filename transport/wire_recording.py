"""Reference audio as clients send it: a WAV file in base64 or a data URL, never a path (WIRE 4.3)."""

import zlib
from pathlib import Path

import pybase64
from msgspec import Struct

from antiphon.engine.errors import Refused
from antiphon.events.audio import RECORDING, Recording, SampleRef

from .wav import WavError, open_wav
from .wire_errors import WireError

PARAM = "session.ref_audio"
STEP = 1_600
"""A recording is cut to a multiple of so many samples, 100 ms."""

LONGEST_S = 60
_SLOWEST, _FASTEST = 8_000, 192_000

_MP3 = (b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2")
_FLAC = b"fLaC"


class Recorded(Struct, frozen=True):
    """A recording, and its samples: pcm16 at 16 kHz, which travel beside the command."""

    recording: Recording
    sound: bytes


def recorded(text: str, no_recording: Refused | None = None) -> Recorded:
    """Return the recording that a client has sent. Nothing is opened and nothing is fetched.

    `no_recording`: why the model takes none. Nothing is expanded before the head of the file says that it is short.

    Raises:
        WireError: `unsupported_ref_audio_path` for a path or an address, `unsupported_audio_format` for a file that
            cannot be read here, `bad_audio` for what is no file at all, too short or too long; `no_recording`.
    """
    data = _bytes(text)
    if no_recording is not None:
        raise WireError(no_recording.code, no_recording.message, no_recording.param, "value")
    if data.startswith((*_MP3, _FLAC)):
        raise WireError("unsupported_audio_format", "Reference audio is a WAV file; convert it first.", PARAM)
    try:
        wav = open_wav(Path("ref_audio"), data)
    except WavError as error:
        raise WireError("bad_audio", f"{error}.", PARAM) from None
    if not _SLOWEST <= wav.rate <= _FASTEST or wav.seconds > LONGEST_S:
        bounds = f"at most {LONGEST_S} s, at {_SLOWEST} to {_FASTEST} Hz"
        raise WireError("bad_audio", f"Reference audio lasts {bounds}.", PARAM)
    samples = wav.samples(RECORDING.rate)
    whole = len(samples) // STEP * STEP
    if not whole:
        raise WireError("bad_audio", "Reference audio lasts at least 100 ms.", PARAM)
    sound = samples[:whole].astype("<i2").tobytes()
    return Recorded(Recording(SampleRef("ref", 0, len(sound)), zlib.crc32(sound)), sound)


def _bytes(text: str) -> bytes:
    encoded = text
    if text.startswith("data:"):
        head, comma, encoded = text.partition(",")
        if not comma or not head.endswith(";base64"):
            raise WireError("bad_audio", "A data URL of reference audio is in base64.", PARAM)
    try:
        data = pybase64.b64decode(encoded, validate=True)
    except ValueError:
        if encoded is text:
            raise _path() from None
        raise WireError("bad_audio", "Reference audio is not base64.", PARAM) from None
    if encoded is text and text.startswith("/") and not data.startswith(_MP3):
        raise _path()
    return data


def _path() -> WireError:
    return WireError("unsupported_ref_audio_path", "Reference audio is sent as data, not as a path.", PARAM)
