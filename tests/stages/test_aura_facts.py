"""AURA's text: cut into what is spoken in one go, or silent (BEHAVIOURS N11, N14, N54, N56)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.stages.aura_sentences import SentenceCutter, content
from antiphon.stages.aura_silence import Silence

from tests.rules import rule

SILENCE = Silence(151_669, "<|silent|>")


def cut(text: str, least: int, size: int = 1_000) -> list[str]:
    """Every piece of a text that comes `size` characters at a time, the rest last."""
    cutter = SentenceCutter(least)
    pieces = [piece for at in range(0, len(text), size) for piece in cutter.push(text[at : at + size])]
    return [*pieces, cutter.flush()]


@rule("N56")
@pytest.mark.parametrize("mark", [".", "!", "?", ";", "。", "！", "？", "；", "\n"])
def test_a_sentence_ends_a_piece(mark: str) -> None:
    assert cut(f"One two{mark}three", 6) == [f"One two{mark}", "three"]
    assert cut(f"One two{mark}three", 7) == [f"One two{mark}three"], "too short to be spoken alone"


@rule("N56")
@pytest.mark.parametrize("comma", [",", "，"])
def test_a_comma_ends_a_piece_behind_ten_characters(comma: str) -> None:
    assert cut(f"abcdefghij{comma}k", 5) == [f"abcdefghij{comma}", "k"]
    assert cut(f"abcdefghi{comma}k", 5) == [f"abcdefghi{comma}k"]
    assert cut(f"abcdefg.hijk{comma}l", 11) == [f"abcdefg.hijk{comma}l"], "counted from the last mark"


@rule("N56")
def test_a_piece_has_thirty_characters_of_content_unless_it_is_chosen() -> None:
    short, long_ = "x" * 29 + ".", "x" * 30 + "."
    assert SentenceCutter().push(short + " ... !!") == []
    assert SentenceCutter().push(long_) == [long_]
    assert content("Ja, 你好! 12 …") == 6


@rule("N56", "K14")
def test_what_is_left_at_the_end_is_spoken_however_short_and_the_next_text_begins_anew() -> None:
    cutter = SentenceCutter(10)
    assert cutter.push("One two three. And") == ["One two three."]
    assert cutter.flush() == " And"
    assert cutter.flush() == ""
    assert cutter.push("Four five six.") == ["Four five six."]


TEXTS = st.text(alphabet=st.sampled_from(list("abc你 .!?;,，。\n")), max_size=200)


@rule("N56", "N24")
@given(TEXTS, st.integers(1, 200), st.integers(1, 30))
def test_the_pieces_joined_are_the_text_and_none_is_too_short(text: str, least: int, size: int) -> None:
    *pieces, rest = cut(text, least, size)
    assert "".join(pieces) + rest == text
    assert all(content(piece) >= least for piece in pieces)


@rule("N14")
def test_each_request_has_its_own_text() -> None:
    one, other = SentenceCutter(5), SentenceCutter(5)
    one.push("One two")
    assert other.push(" three.") == [" three."]
    assert one.push(" three.") == ["One two three."]


@rule("N11", "N54", "K12")
@pytest.mark.parametrize(
    ("tokens", "text", "silent"),
    [
        ([5, 151_669, 6], "Hello.", True),
        ([5], "Hello. <|silent|>", True),
        ([], "", True),
        ([5], " \n", True),
        ([5], "Hello.", False),
    ],
)
def test_a_finished_text_may_say_that_nothing_is_said(tokens: list[int], text: str, silent: bool) -> None:
    for _ in range(2):
        assert SILENCE.decided(1, finished=True, tokens=tokens, text=text) == silent, "the same when asked again"
    assert not SILENCE.decided(1, finished=False, tokens=tokens, text=text), "the text may go on"
    for stage in (0, 2, 3):
        assert not SILENCE.decided(stage, finished=True, tokens=tokens, text=text), "others do not decide"
