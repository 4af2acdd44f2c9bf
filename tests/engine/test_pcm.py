"""Decoding and resampling of what clients send."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.errors import Refused
from antiphon.engine.pcm import ALAW, ULAW, Resampler, decode, level
from antiphon.events.audio import AudioFormat
from antiphon.stages.g711 import alaw_encode, ulaw_encode

from tests.rules import rule


def pcm(*values: int) -> bytes:
    return np.array(values, dtype="<i2").tobytes()


def test_pcm16_passes_as_it_is() -> None:
    data = pcm(1, -2, 3)
    assert decode(data, AudioFormat("pcm16", 16_000)) is data


def test_floats_are_clipped_and_scaled() -> None:
    data = np.array([0.0, 1.0, -1.0, 7.0, -7.0], dtype="<f4").tobytes()
    assert decode(data, AudioFormat("pcm_f32le", 16_000)) == pcm(0, 32767, -32767, 32767, -32767)


@rule("E1")
def test_known_points_of_g711() -> None:
    # ITU-T G.711: 0xFF and 0x7F are mu-law's two zeros, 0x80 and 0x00 its extremes; 0xD5 is A-law's least step.
    assert (ULAW[0xFF], ULAW[0x7F], ULAW[0x80], ULAW[0x00]) == (0, 0, 32_124, -32_124)
    assert (ALAW[0xD5], ALAW[0x55], ALAW[0xAA], ALAW[0x2A]) == (8, -8, 32_256, -32_256)


@rule("E1")
@pytest.mark.parametrize(("table", "encode"), [(ULAW, ulaw_encode), (ALAW, alaw_encode)])
def test_g711_decodes_what_the_encoder_makes(table: np.ndarray, encode: object) -> None:
    assert callable(encode)
    again = np.frombuffer(encode(table), np.uint8)
    assert (table[again] == table).all()


@rule("E2")
@pytest.mark.parametrize(
    ("data", "sound", "code"),
    [
        (b"\0", AudioFormat("pcm16", 16_000), "bad_audio"),
        (b"\0" * 6, AudioFormat("pcm_f32le", 16_000), "bad_audio"),
        (np.array([np.nan], "<f4").tobytes(), AudioFormat("pcm_f32le", 16_000), "bad_audio"),
        (np.array([np.inf], "<f4").tobytes(), AudioFormat("pcm_f32le", 16_000), "bad_audio"),
        (b"\0\0", AudioFormat("wav", 16_000), "unsupported_audio_format"),
        (b"\0\0", AudioFormat("pcm16", 7_999), "bad_event"),
        (b"\0\0", AudioFormat("pcm16", 192_001), "bad_event"),
    ],
)
def test_what_cannot_be_decoded_is_refused(data: bytes, sound: AudioFormat, code: str) -> None:
    with pytest.raises(Refused) as refused:
        decode(data, sound)
    assert refused.value.code == code


def test_the_level_of_silence_of_a_square_and_of_nothing() -> None:
    assert level(b"") == 0
    assert level(pcm(0, 0)) == 0
    assert level(pcm(16_384, -16_384)) == pytest.approx(0.5)


RATES = st.sampled_from([8_000, 11_025, 16_000, 22_050, 24_000, 44_100, 48_000, 192_000])


@rule("E2", "F4")
@given(rate=RATES, chunks=st.lists(st.integers(0, 3_000), max_size=12))
def test_the_count_of_resampled_samples_is_exact_to_one(rate: int, chunks: list[int]) -> None:
    resampler = Resampler(rate, 16_000)
    out = b"".join(resampler.feed(bytes(2 * chunk)) for chunk in chunks) + resampler.flush()
    assert abs(len(out) / 2 - sum(chunks) * 16_000 / rate) <= 1


def test_chunk_borders_do_not_click() -> None:
    tone = (np.sin(np.arange(24_000) * 2 * np.pi * 440 / 24_000) * 20_000).astype("<i2").tobytes()
    whole, pieces = Resampler(24_000, 16_000), Resampler(24_000, 16_000)
    expected = whole.feed(tone) + whole.flush()
    parts = [tone[at : at + 962] for at in range(0, len(tone), 962)]
    actual = b"".join(map(pieces.feed, parts)) + pieces.flush()
    assert np.abs(np.frombuffer(actual, "<i2") - np.frombuffer(expected, "<i2").astype(int)).max() <= 3


def test_an_unchanged_rate_costs_nothing() -> None:
    data = pcm(1, 2)
    resampler = Resampler(16_000, 16_000)
    assert resampler.feed(data) is data
    assert resampler.flush() == b""
