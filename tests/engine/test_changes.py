"""What differs between two values, place by place."""

from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.changes import Change, Plain, changes, plain
from antiphon.events.audio import AudioFormat

VALUES: st.SearchStrategy[Plain] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)


def test_records_become_dicts_with_everything_in_them() -> None:
    assert plain(AudioFormat("pcm16", 8_000)) == {"encoding": "pcm16", "rate": 8_000}


def test_a_place_is_named_by_fields_and_indexes() -> None:
    before: Plain = {"a": {"b": [1, 2, 3], "gone": 1}, "same": "x"}
    after: Plain = {"a": {"b": [1, 5, 3], "new": None}, "same": "x"}
    assert changes(before, after) == [Change("a.b.1", 2, 5), Change("a.gone", 1), Change("a.new", after=None)]


def test_one_more_in_the_middle_of_a_list_is_one_change() -> None:
    assert changes([1, 2, 4], [1, 2, 3, 4]) == [Change("2", after=3)]
    assert changes({"x": [1, 2, 3]}, {"x": [2, 3]}) == [Change("x.0", 1)]


def test_what_looks_alike_and_is_not_differs() -> None:
    assert changes(1, True) == [Change("", 1, True)]
    assert changes({"a": 1}, [1]) == [Change("", {"a": 1}, [1])]


@given(VALUES, VALUES)
def test_values_differ_if_and_only_if_there_are_changes(one: Plain, other: Plain) -> None:
    assert changes(one, one) == []
    assert bool(changes(one, other)) == (repr(plain(one)) != repr(plain(other)) and _differ(one, other))


def _differ(one: Plain, other: Plain) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() != other.keys() or any(_differ(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) != len(other) or any(map(_differ, one, other))
    return one != other or type(one) is not type(other)
