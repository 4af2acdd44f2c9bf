"""Sound that is reported as a whole every time is delivered once (BEHAVIOURS N23)."""

from hypothesis import given
from hypothesis import strategies as st

from antiphon.stages.cumulative import Cumulative

from tests.rules import rule

SOUND = bytes(range(200))


@rule("N23")
@given(st.lists(st.integers(0, 200), max_size=20))
def test_each_byte_comes_once_in_order_however_the_snapshots_come(sizes: list[int]) -> None:
    cursor = Cumulative()
    heard = b"".join(cursor.take(SOUND[:size]) for size in sizes)
    assert heard == SOUND[: max(sizes, default=0)]


@rule("N23")
def test_a_shorter_snapshot_begins_nothing_anew() -> None:
    cursor = Cumulative()
    assert [cursor.take(SOUND[:size]) for size in (100, 40, 60, 120)] == [SOUND[:100], b"", b"", SOUND[100:120]]


@rule("N23")
def test_another_segment_begins_anew_and_loses_nothing() -> None:
    cursor = Cumulative()
    cursor.take(SOUND[:100])
    assert cursor.take(SOUND[:40], segment=1) == SOUND[:40]
    assert cursor.take(SOUND[:50], segment=1) == SOUND[40:50]


@rule("N23")
def test_each_request_has_a_cursor_of_its_own() -> None:
    one, other = Cumulative(), Cumulative()
    one.take(SOUND)
    assert other.take(SOUND) == SOUND
