"""The clause cutter: nothing lost, the first piece early, nothing cut that belongs together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.stages.clauses import ClauseCutter, boundaries

from tests.rules import rule

WORDS = st.sampled_from(
    [
        "Well",
        "yes",
        "3.5",
        "Dr.",
        "Mr.",
        "Paris",
        "$1,000",
        "10:30",
        "e.g.",
        "No.",
        "a",
        "I",
        "J.",
        "你好。",
        "ok!",
        "wait,",
    ]
)
TEXTS = st.one_of(
    st.lists(WORDS, max_size=40).map(" ".join),
    st.text(alphabet=st.sampled_from(list("ab1 .,!?;:\n\"')…—。，")), max_size=300),
    st.text(max_size=100),
)


def cut(text: str, size: int, **limits: int) -> list[str]:
    """Every piece of `text`, pushed `size` characters at a time; the flushed rest comes last."""
    cutter = ClauseCutter(**limits)
    pieces = [piece for i in range(0, len(text), size) for piece in cutter.push(text[i : i + size])]
    return [*pieces, cutter.flush()]


@given(TEXTS, st.integers(1, 20))
def test_the_pieces_joined_are_the_text(text: str, size: int) -> None:
    assert "".join(cut(text, size)) == text


@given(TEXTS, st.integers(1, 20))
def test_no_piece_is_empty_or_longer_than_the_limit(text: str, size: int) -> None:
    pieces = cut(text, size, longest=40)[:-1]
    assert all(0 < len(piece) <= 40 for piece in pieces)


@given(st.lists(WORDS, max_size=40), st.integers(1, 20))
def test_no_word_is_cut(words: list[str], size: int) -> None:
    pieces = cut(" ".join(words), size)
    whole = [word for word in words if not word.endswith("。")]
    assert [w for piece in pieces for w in piece.split() if not w.endswith("。")] == whole


@given(st.lists(WORDS, max_size=40), st.integers(1, 20))
def test_a_title_stays_with_its_name(words: list[str], size: int) -> None:
    # Room enough that only marks, never a limit, can end a piece.
    pieces = cut(" ".join(words), size, first_words=1_000, longest=10_000)
    assert not [piece for piece in pieces[:-1] if piece.split()[-1:] in (["Dr."], ["Mr."], ["J."], ["e.g."])]


@pytest.mark.parametrize("size", [1, 3, 1_000])
def test_the_first_clause_comes_early_and_then_whole_sentences(size: int) -> None:
    text = "Well, of course, it is warm, and dry. Later, when it rains, it is not. Bye."
    assert cut(text, size) == [
        "Well, of course, ",
        "it is warm, and dry. ",
        "Later, when it rains, it is not. ",
        "Bye.",
    ]


def test_without_a_boundary_the_first_piece_ends_after_some_words() -> None:
    cutter = ClauseCutter(first_words=4)
    assert cutter.push("The capital of") == []
    assert cutter.push(" France is Paris") == ["The capital of France "]


def test_a_short_exclamation_waits_for_company() -> None:
    assert cut("Yes! It is Paris. Good.", 1)[0] == "Yes! It is Paris. "


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("It costs 3.50 euros. Fine", ["It costs 3.50 euros. "]),
        ("At 10:30, not before. Then", ["At 10:30, ", "not before. "]),
        ("Dr. Smith met J. Doe. They", ["Dr. Smith met J. Doe. "]),
        ("No. It is not", ["No. "]),
        ("No. 5 is alive. It", ["No. 5 is alive. "]),
        ("The sun. It sat. We", ["The sun. ", "It sat. "]),
        ("1. Buy milk. 2", ["1. Buy milk. "]),
        ("It was in 1999. Then", ["It was in 1999. "]),
        ('"Stop!" he said. I', ['"Stop!" ', "he said. "]),
        ("Wait... what", ["Wait... "]),
        ("你好。再见", ["你好。"]),
        ("one\ntwo", ["one\n"]),
    ],
)
def test_where_clauses_end(text: str, ends: list[str]) -> None:
    found = [boundary.end for boundary in boundaries(text)]
    assert [text[a:b] for a, b in zip([0, *found[:-1]], found, strict=True)] == ends


def test_an_abbreviation_waits_for_what_follows() -> None:
    cutter = ClauseCutter(first_chars=1)
    assert cutter.push("No. ") == []
    assert cutter.push("I") == ["No. "]


def test_after_a_flush_a_new_text_begins() -> None:
    cutter = ClauseCutter(first_chars=1, first_words=2)
    assert cutter.push("One two, and then three more. Four five six") == ["One two, ", "and then three more. "]
    assert cutter.flush() == "Four five six"
    assert cutter.flush() == ""
    assert cutter.push("nine ten eleven") == ["nine ten "]


def test_limits_are_checked() -> None:
    with pytest.raises(ValueError, match="longest"):
        ClauseCutter(sentence_chars=50, longest=50)


@rule("N14")
def test_the_state_of_a_text_is_its_own_and_dies_with_it() -> None:
    one, other = ClauseCutter(), ClauseCutter()
    one.push("Well, I thi")
    other.push("Well, I thi")
    said = [*one.push("nk so, yes. "), one.flush()]
    assert "think so" in "".join(said)
    assert other.flush().endswith("I thi")  # nothing of the other text came into it
    assert one.flush() == other.flush() == ""
