"""The part of a text that belongs to a part of its sound (BEHAVIOURS I3, WIRE 6.7)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.events.audio import TextMark
from antiphon.sessions.prefix import place, spoken_prefix

from tests.rules import rule

TEXT = "one two three four"


def placed(*marks: TextMark) -> list[TextMark]:
    """Return marks as a playout keeps them."""
    kept: list[TextMark] = []
    for mark in marks:
        place(kept, mark)
    return kept


@rule("I3")
@pytest.mark.parametrize(
    ("ms", "words"),
    [(-5, ""), (0, ""), (100, ""), (250, "one"), (500, "one two"), (999, "one two three"), (1_000, TEXT)],
)
def test_without_marks_text_is_proportional_to_sound(ms: int, words: str) -> None:
    assert spoken_prefix(TEXT, (), ms, 1_000) == words


@rule("I2")
def test_without_sound_a_text_is_heard_as_a_whole() -> None:
    assert spoken_prefix(TEXT, (), 0, 0) == TEXT


@rule("I3")
@pytest.mark.parametrize(
    ("ms", "words"), [(100, ""), (300, "one"), (400, "one"), (600, "one two"), (800, "one two three")]
)
def test_marks_are_interpolated(ms: int, words: str) -> None:
    marks = (TextMark(3, 300), TextMark(7, 600), TextMark(13, 700))
    assert spoken_prefix(TEXT, marks, ms, 1_000) == words


@rule("I3")
def test_marks_in_any_order_and_beyond_the_text_do_no_harm() -> None:
    marks = placed(TextMark(99, 900), TextMark(7, 500), TextMark(3, 500), TextMark(2, 600))
    assert spoken_prefix(TEXT, marks, 500, 1_000) == "one two"
    assert spoken_prefix(TEXT, marks, 950, 1_000) == TEXT


def test_a_mark_may_lie_ahead_of_the_sound() -> None:
    assert spoken_prefix(TEXT, (TextMark(18, 4_000),), 500, 1_000) == ""


@rule("I3")
def test_a_word_is_never_cut_and_no_blank_is_left() -> None:
    assert spoken_prefix("wonderful", (), 500, 1_000) == ""
    assert spoken_prefix("a  b", (), 700, 1_000) == "a"


@rule("I3")
@pytest.mark.parametrize(
    ("text", "half"),
    [
        ("今天天气很好。", "今天天"),
        ("ありがとうございます", "ありがとう"),
        ("我喜欢 jazz 音乐", "我喜欢"),
        ("안녕하세요 여러분", ""),  # Korean puts blanks between its words
        ("กข้าว", "ก"),  # and no mark is torn from its letter
    ],
)
def test_scripts_without_spaces_are_cut_between_characters(text: str, half: str) -> None:
    """A Chinese answer that is interrupted must not lose all of its text because it has no blanks."""
    assert spoken_prefix(text, (), 500, 1_000) == half


@rule("P39", "I3")
@given(
    text=st.text(alphabet="ab ü\n今ิ", max_size=30),
    marks=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 1_200)), max_size=5),
    early=st.integers(-10, 1_200),
    later=st.integers(0, 1_200),
)
def test_a_prefix_grows_with_the_position(text: str, marks: list[tuple[int, int]], early: int, later: int) -> None:
    in_order = placed(*(TextMark(chars, ms) for chars, ms in marks))
    first = spoken_prefix(text, in_order, early, 1_000)
    second = spoken_prefix(text, in_order, early + later, 1_000)
    assert text.startswith(first)
    assert second.startswith(first)


def test_marks_are_kept_in_order_and_never_go_back() -> None:
    marks = placed(TextMark(5, 300), TextMark(7, 500), TextMark(9, 800), TextMark(8, 400), TextMark(6, 900))
    assert marks == [
        TextMark(5, 300),
        TextMark(8, 400),
        TextMark(8, 500),
        TextMark(9, 800),
        TextMark(9, 900),
    ]


@pytest.mark.parametrize("blank", [" ", "\n", "\t", "\x1f"])
def test_every_blank_is_a_border(blank: str) -> None:
    assert spoken_prefix(f"one{blank}wonderful", (), 700, 1_000) == "one"
    assert spoken_prefix(f"one{blank}wunderschön", (), 700, 1_000) == "one"
