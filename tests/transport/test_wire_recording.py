"""Reference audio on the wire: what is taken, what it becomes, and what is refused without being opened."""

import base64
import zlib
from pathlib import Path

import numpy as np
import pytest

from antiphon.engine.plugins import no_recording
from antiphon.sessions.plugins import ECHO, MINICPM
from antiphon.transport.wav import write_wav
from antiphon.transport.wire_errors import WireError
from antiphon.transport.wire_recording import recorded

from tests.rules import rule


def wav(samples: int, rate: int = 16_000, folder: Path | None = None) -> bytes:
    """Return the bytes of a WAV file of a rising tone."""
    assert folder is not None
    path = folder / "voice.wav"
    write_wav(path, (np.arange(samples) % 400 * 50).astype(np.int16), rate)
    return path.read_bytes()


@rule("N34", "L13")
def test_a_recording_is_cut_to_a_tenth_of_a_second(tmp_path: Path) -> None:
    given = base64.b64encode(wav(5_000, folder=tmp_path)).decode()
    taken = recorded(given)
    assert len(taken.sound) == 2 * 4_800
    assert taken.recording.ref.size == len(taken.sound)
    assert taken.recording.crc == zlib.crc32(taken.sound)
    assert recorded(f"data:audio/wav;base64,{given}") == taken


@rule("N34")
def test_a_recording_becomes_16_khz(tmp_path: Path) -> None:
    taken = recorded(base64.b64encode(wav(24_000, 24_000, tmp_path)).decode())
    assert len(taken.sound) == 2 * 16_000


PATHS = [
    "/etc/passwd",
    "/etc/passwds",
    "voice.wav",
    "file:///etc/passwd",
    "http://169.254.169.254/",
    "~/voice",
    "../x",
]


@pytest.mark.parametrize("path", PATHS)
@rule("N34")
def test_a_path_or_an_address_is_refused(path: str) -> None:
    with pytest.raises(WireError) as refused:
        recorded(path)
    assert (refused.value.code, refused.value.param) == ("unsupported_ref_audio_path", "session.ref_audio")


FILES = [
    (b"ID3 and so on", "unsupported_audio_format"),
    (b"\xff\xfb and so on", "unsupported_audio_format"),
    (b"fLaC and so on", "unsupported_audio_format"),
    (b"RIFF and so on", "bad_audio"),
]


@pytest.mark.parametrize(("data", "code"), FILES, ids=["mp3", "frames", "flac", "cut"])
@rule("N34")
def test_a_file_that_cannot_be_read_is_refused(data: bytes, code: str) -> None:
    with pytest.raises(WireError) as refused:
        recorded(base64.b64encode(data).decode())
    assert refused.value.code == code


@pytest.mark.parametrize("url", ["data:audio/wav", "data:audio/wav,abcd", "data:audio/wav;base64,?"])
@rule("N34")
def test_a_data_url_is_in_base64(url: str) -> None:
    with pytest.raises(WireError) as refused:
        recorded(url)
    assert refused.value.code == "bad_audio"


@rule("N34")
def test_a_recording_lasts_a_tenth_of_a_second(tmp_path: Path) -> None:
    with pytest.raises(WireError) as refused:
        recorded(base64.b64encode(wav(1_599, folder=tmp_path)).decode())
    assert refused.value.code == "bad_audio"


@rule("N34", "E12")
@pytest.mark.parametrize(
    ("samples", "rate"), [(60 * 8_000 + 1, 8_000), (1_000, 1_000), (7_999, 7_999), (192_001, 192_001)]
)
def test_a_recording_that_would_grow_is_refused_by_its_head(samples: int, rate: int, tmp_path: Path) -> None:
    with pytest.raises(WireError) as refused:
        recorded(base64.b64encode(wav(samples, rate, tmp_path)).decode())
    assert (refused.value.code, refused.value.param) == ("bad_audio", "session.ref_audio")


@rule("N34")
def test_the_longest_recording_is_taken(tmp_path: Path) -> None:
    assert len(recorded(base64.b64encode(wav(60 * 8_000, 8_000, tmp_path)).decode()).sound) == 2 * 60 * 16_000


@rule("N34", "N41")
def test_a_model_that_takes_no_recording_reads_none(tmp_path: Path) -> None:
    """Not even its head: a file that is none is refused for the model."""
    reason = no_recording(ECHO)
    for data in (wav(16_000, folder=tmp_path), b"RIFF and so on"):
        with pytest.raises(WireError) as refused:
            recorded(base64.b64encode(data).decode(), reason)
        assert (refused.value.code, refused.value.param) == ("unsupported", "session.ref_audio")
    assert no_recording(MINICPM) is None
