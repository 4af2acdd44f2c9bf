"""What the stage halves of the models must know of them: tokens of a unit, ids, and silence (BEHAVIOURS N)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.stages.aura_sound import QUIET, audible
from antiphon.stages.minicpm_talker import (
    CHUNK_FRAMES,
    CONTEXT_FRAMES,
    HELD_FRAMES,
    LAST_LIMIT,
    UNIT_LIMIT,
    Chunk,
    chunks,
    limits,
    may_end,
)
from antiphon.stages.nemotron_tokens import NAMES, EngineTokens, TokenIds, read

from tests.rules import rule

VOCABULARY = {text: number for number, text in enumerate(NAMES.values())}


@rule("N39")
def test_a_unit_of_the_talker_has_a_second_and_its_end_and_the_last_one_what_is_left() -> None:
    assert limits(ends_turn=False).most == UNIT_LIMIT == 26
    assert limits(ends_turn=True).most == LAST_LIMIT == 104
    assert limits(ends_turn=False).least == limits(ends_turn=True).least == 0


@rule("N39")
def test_in_the_last_unit_no_second_ends_in_the_middle_of_a_word() -> None:
    closed = [step for step in range(LAST_LIMIT) if not may_end(step, ends_turn=True)]
    assert closed == [*range(25, 30), *range(50, 55), *range(75, 80), *range(100, 104)]
    assert all(may_end(step, ends_turn=False) for step in range(UNIT_LIMIT))


@rule("N39")
@pytest.mark.parametrize(
    ("rendered", "frames", "final", "found"),
    [
        (0, 24, False, []),
        (0, 25, False, [Chunk(0, 25, 0)]),
        (25, 49, False, []),
        (25, 50, False, [Chunk(22, 50, 3)]),
        (50, 54, True, []),
        (50, 55, True, [Chunk(47, 55, 3)]),
        (0, 27, True, [Chunk(0, 27, 0)]),
        (0, 4, True, []),
    ],
)
def test_the_vocoder_gets_whole_chunks_with_what_was_before_them(
    rendered: int, frames: int, final: bool, found: list[Chunk]
) -> None:
    assert chunks(rendered, frames, final=final) == found


@rule("N39", "N23")
@given(st.lists(st.integers(0, 60), max_size=8))
def test_every_frame_is_rendered_once_but_for_a_rest_that_is_too_short(steps: list[int]) -> None:
    frames = rendered = 0
    for step in steps:
        frames += step
        for chunk in chunks(rendered, frames, final=False):
            assert chunk.start + chunk.context == rendered
            assert chunk.end - rendered == CHUNK_FRAMES
            assert chunk.context == min(rendered, CONTEXT_FRAMES)
            rendered = chunk.end
    for chunk in chunks(rendered, frames, final=True):
        assert chunk.start + chunk.context == rendered
        rendered = chunk.end
    assert frames - rendered < HELD_FRAMES


@rule("N50")
def test_token_ids_are_the_checkpoints() -> None:
    assert read(VOCABULARY) == TokenIds(begin=0, end=1, padding=2, call_begin=3, call_end=4)
    other = {**VOCABULARY, "<silence>": 77}
    assert read(other, {**NAMES, "padding": "<silence>"}).padding == 77
    with pytest.raises(ValueError, match="no token <pad>"):
        read({text: number for text, number in VOCABULARY.items() if text != "<pad>"})
    with pytest.raises(ValueError, match="one id"):
        read({**VOCABULARY, "<pad>": 0})


@rule("N50")
def test_all_sessions_of_an_engine_have_the_same_token_ids() -> None:
    engine = EngineTokens()
    ids = read(VOCABULARY)
    assert engine.configure(ids) == engine.configure(read(dict(VOCABULARY))) == ids
    with pytest.raises(ValueError, match="share one tokenizer"):
        engine.configure(read({**VOCABULARY, "<pad>": 9}))
    assert engine.configure(ids) == ids


def tone(level: float, size: int = 4_800) -> bytes:
    return (np.sin(np.arange(size) / 5) * level * 2**0.5).astype("<f4").tobytes()


@rule("N53")
@pytest.mark.parametrize(
    ("samples", "speech", "kept", "heard"),
    [
        (tone(0.1), True, True, True),
        (tone(QUIET / 10), True, True, True),
        (tone(0.1), False, True, False),
        (tone(QUIET / 10), False, False, False),
        (bytes(4 * 4_800), True, False, False),
        (b"", False, False, False),
    ],
)
def test_silence_is_replaced_by_something_that_is_not_zero_and_its_words_are_nobodys(
    samples: bytes, speech: bool, kept: bool, heard: bool
) -> None:
    hearing = audible(samples, 16_000, speech=speech)
    assert hearing.heard == heard
    assert (hearing.samples == samples) == kept
    if not kept:
        ramp = np.frombuffer(hearing.samples, dtype="<f4")
        assert ramp.size == 1_600
        assert np.all(ramp != 0)
        assert float(np.abs(ramp).max()) < QUIET


@rule("N53")
def test_the_ramp_lasts_a_tenth_of_a_second_where_that_is_more() -> None:
    assert len(audible(b"", 48_000, speech=False).samples) == 4 * 4_800
