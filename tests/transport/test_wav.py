"""WAV files in every width, rate and number of channels; and every way in which one can be broken."""

import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from antiphon.transport.wav import WavError, read_wav, write_wav

TONE = 0.5 * np.sin(2 * np.pi * 440 * np.arange(8_000) / 16_000)


def wav(body: bytes, *, kind: int = 1, channels: int = 1, rate: int = 16_000, width: int = 2) -> bytes:
    """A WAV file with these samples."""
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * channels * width, channels * width, width * 8)
    chunks = b"fmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def encode(tone: NDArray[np.float64], kind: int, width: int) -> bytes:
    if kind == 3:
        return tone.astype(f"<f{width}").tobytes()
    if width == 1:
        return (tone * 127 + 128).astype(np.uint8).tobytes()
    if width == 3:
        return (tone * 2**31).astype("<i4").view(np.uint8).reshape(-1, 4)[:, 1:].tobytes()
    return (tone * (2 ** (width * 8 - 1) - 1)).astype(f"<i{width}").tobytes()


@pytest.mark.parametrize(("kind", "width"), [(1, 1), (1, 2), (1, 3), (1, 4), (3, 4), (3, 8)])
def test_every_width_gives_the_same_tone(tmp_path: Path, kind: int, width: int) -> None:
    path = tmp_path / "tone.wav"
    path.write_bytes(wav(encode(TONE, kind, width), kind=kind, width=width))
    heard = read_wav(path) / 32768
    assert heard.shape == TONE.shape
    assert np.abs(heard - TONE).max() < (0.02 if width == 1 else 1e-3)


def test_channels_are_averaged(tmp_path: Path) -> None:
    path = tmp_path / "two.wav"
    write_wav(path, np.stack([np.full(100, 1_000), np.full(100, 3_000)], axis=1).astype(np.int16), 16_000)
    assert set(read_wav(path)) == {2_000}


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000])
def test_every_rate_lasts_as_long_as_before(tmp_path: Path, rate: int) -> None:
    path = tmp_path / "tone.wav"
    tone = np.sin(2 * np.pi * 440 * np.arange(rate) / rate) * 8_000
    write_wav(path, tone.astype(np.int16), rate)
    heard = read_wav(path)
    assert abs(len(heard) - 16_000) <= 1
    spectrum = np.abs(np.fft.rfft(heard[:16_000].astype(float)))
    assert abs(int(spectrum.argmax()) - 440) <= 1


def test_the_extensible_spelling_is_understood(tmp_path: Path) -> None:
    sub = struct.pack("<HHIIHHHHIH", 0xFFFE, 1, 16_000, 32_000, 2, 16, 22, 16, 4, 1) + bytes(14)
    body = encode(TONE, 1, 2)
    chunks = b"fmt " + struct.pack("<I", len(sub)) + sub + b"LIST" + struct.pack("<I", 3) + b"abc\0"
    chunks += b"data" + struct.pack("<I", len(body)) + body
    path = tmp_path / "tone.wav"
    path.write_bytes(b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks)
    assert len(read_wav(path)) == len(TONE)


def test_a_piped_file_that_does_not_know_its_length_goes_to_its_end(tmp_path: Path) -> None:
    data = wav(encode(TONE, 1, 2)).replace(b"data" + struct.pack("<I", 16_000), b"data" + b"\xff" * 4)
    path = tmp_path / "pipe.wav"
    path.write_bytes(data)
    assert len(read_wav(path)) == len(TONE)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    samples = (TONE * 20_000).astype(np.int16)
    write_wav(tmp_path / "x.wav", samples, 16_000)
    assert np.array_equal(read_wav(tmp_path / "x.wav"), samples)


def test_no_folder_is_made_in_silence(tmp_path: Path) -> None:
    with pytest.raises(WavError, match="cannot write"):
        write_wav(tmp_path / "new" / "x.wav", np.zeros(1, np.int16), 16_000)
    assert not (tmp_path / "new").exists()


BROKEN = {
    "empty": (b"", "is empty"),
    "text": (b"hello, this is a text and no sound", "is not a WAV file"),
    "head only": (wav(b"\0\0" * 100)[:20], "is cut off"),
    "no data chunk": (wav(b"\0\0" * 100)[:36], "is cut off"),
    "cut off": (wav(b"\0\0" * 100)[:-50], "200 bytes of sound are announced, 150 are there"),
    "no sound": (wav(b""), "holds no sound"),
    "compressed": (wav(b"\0" * 100, kind=85), "is compressed"),
    "odd width": (wav(b"\0" * 100, width=5), "convert it to 16 bits"),
    "no channel": (wav(b"\0" * 100).replace(b"\x01\x00\x01\x00", b"\x01\x00\x00\x00", 1), "cannot be"),
    "data first": (b"RIFF\0\0\0\0WAVEdata\x04\0\0\0abcd", "no fmt chunk"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_one_sentence_that_names_it(tmp_path: Path, name: str) -> None:
    data, words = BROKEN[name]
    path = tmp_path / "broken.wav"
    path.write_bytes(data)
    with pytest.raises(WavError, match=r"broken\.wav") as caught:
        read_wav(path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_told_too(tmp_path: Path) -> None:
    with pytest.raises(WavError, match="there is no file"):
        read_wav(tmp_path / "nowhere.wav")
    with pytest.raises(WavError, match="cannot read"):
        read_wav(tmp_path)
    with pytest.raises(WavError, match="cannot write"):
        write_wav(tmp_path, np.zeros(1, np.int16), 16_000)
