"""Scheduler tokens of MiniCPM-o's appends, by the worked examples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.sessions.models import minicpm_budget as budget

from tests.rules import rule

FIRST = [(5, 1, 16), (5, 2, 16), (5, 3, 28), (48, 1, 59), (48, 4, 83)]


@pytest.mark.parametrize(("context", "seconds", "expected"), FIRST)
@rule("N32")
def test_the_first_append(context: int, seconds: int, expected: int) -> None:
    assert budget.tokens(seconds * budget.UNIT, first=context) == expected


@pytest.mark.parametrize(("seconds", "expected"), [(1, 13), (2, 25), (3, 37)])
@rule("N32")
def test_later_appends(seconds: int, expected: int) -> None:
    assert budget.tokens(seconds * budget.UNIT) == expected


INEXACT = [(1, 16), (1_600, 16), (12_800, 16), (12_801, 17), (24_000, 23), (10_000_001, 768), (0, 64)]


@pytest.mark.parametrize(("samples", "expected"), INEXACT)
@rule("N32")
def test_what_is_no_whole_unit_is_over_reserved(samples: int, expected: int) -> None:
    assert budget.tokens(samples) == expected


@rule("N32")
def test_the_context_is_measured_or_assumed() -> None:
    assert budget.context(5) == 5
    assert budget.context(None) == 48
    assert budget.context(None, reference=16_000) == 48 + 10 + 8
    assert budget.context(None, reference=16_001) == 48 + 11 + 8


VISION: list[tuple[list[budget.Size | None], int]] = [
    ([], 0),
    ([(1920, 1080)], 1),
    ([None], 1),
    ([(1920, 1080), (640, 480)], 4),
    ([(448, 448), (640, 480)], 2),
    ([(449, 448), (640, 480)], 4),
    ([None, (640, 480)], 4),
]


@pytest.mark.parametrize(("frames", "blocks"), VISION, ids=range(len(VISION)))
@rule("N33")
def test_images_are_counted_in_blocks_of_66(frames: list[budget.Size | None], blocks: int) -> None:
    assert budget.vision(frames) == 66 * blocks
    assert budget.tokens(budget.UNIT, frames=frames) == 13 + 66 * blocks
    assert budget.tokens(budget.UNIT + 1, frames=frames) == 19 + 66 * blocks


@rule("N31")
def test_the_first_unit_takes_a_little_less_than_a_second() -> None:
    taken, carried = budget.first_unit_samples(budget.UNIT)
    assert (taken, carried) == (15_440, 560)
    assert taken + budget.FIRST_WINDOW == 2 * budget.UNIT
    assert budget.first_unit_samples(100) == (100, 0)
    assert budget.UNIT // budget.EMBEDDING == 10


@given(samples=st.integers(1, 40 * budget.UNIT), first=st.none() | st.integers(5, 500))
@rule("N10", "N32")
def test_never_fewer_tokens_than_embeddings_below_the_ceiling(samples: int, first: int | None) -> None:
    reserved = budget.tokens(samples, first=first)
    assert reserved >= min(samples // budget.EMBEDDING, 768)
