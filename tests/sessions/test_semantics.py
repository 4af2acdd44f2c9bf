"""How words end: the rules of semantic turn detection, and what a pause behind them may last (WIRE 4.4)."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.events.events import Sentence, SentenceRule
from antiphon.sessions.semantics import RULES, Eagerness, judge, silence_ms


@pytest.mark.parametrize(
    ("text", "sentence", "rule"),
    [
        ("", "unclear", "no_words"),
        (" ... ", "unclear", "no_words"),
        ("I would like to...", "unfinished", "trailing_off"),
        ("Well…", "unfinished", "trailing_off"),
        ("First of all,", "unfinished", "open_mark"),
        ("My name is -", "unfinished", "open_mark"),
        ("There are three things:", "unfinished", "open_mark"),
        ("我想说、", "unfinished", "open_mark"),
        ("What is the capital of France?", "complete", "asked"),
        ("Where are you from?", "complete", "asked"),
        ('He said "stop!"', "complete", "asked"),
        ("你好吗？", "complete", "asked"),
        ("I was thinking, um.", "unfinished", "filler"),
        ("Ich möchte, äh", "unfinished", "filler"),
        ("My number is 0 1 7.", "unfinished", "number"),
        ("It begins with four two", "unfinished", "number"),
        ("The code is 44", "unfinished", "number"),
        ("It was in 1990.", "complete", "end_mark"),
        ("I want that one", "unclear", "no_mark"),
        ("Give me the.", "unfinished", "leading_word"),
        ("I like tea and", "unfinished", "leading_word"),
        ("I am going to.", "unfinished", "leading_word"),
        ("Ich will nach Hause, weil", "unfinished", "leading_word"),
        ("Das ist für", "unfinished", "leading_word"),
        ("Je voudrais parler avec", "unfinished", "leading_word"),
        ("Quiero hablar de", "unfinished", "leading_word"),
        ("Mach das Licht an.", "complete", "end_mark"),
        ("Komm bitte mit.", "complete", "end_mark"),
        ("Come in.", "complete", "end_mark"),
        ("昨日は", "unfinished", "particle"),
        ("我想去但是", "unfinished", "particle"),
        ("我很好。", "complete", "end_mark"),
        ("Turn on the light.", "complete", "end_mark"),
        ("He said (quietly.)", "complete", "end_mark"),
        ("turn on the light", "unclear", "no_mark"),
    ],
)
def test_how_words_end(text: str, sentence: Sentence, rule: SentenceRule) -> None:
    judged = judge(text)
    assert (judged.sentence, judged.rule) == (sentence, rule)


def test_every_rule_has_its_row_and_the_last_one_always_fits() -> None:
    assert [name for name, _, _ in RULES] == list(get_args(SentenceRule))


@given(text=st.text(max_size=40))
def test_any_text_is_judged(text: str) -> None:
    assert judge(text).sentence in get_args(Sentence)


@pytest.mark.parametrize(
    ("eagerness", "complete", "unclear", "unfinished"),
    [("low", 900, 1500, 8000), ("medium", 500, 900, 4000), ("auto", 500, 900, 4000), ("high", 300, 500, 2000)],
)
def test_wire_4_4_how_long_a_pause_may_last(
    eagerness: Eagerness, complete: int, unclear: int, unfinished: int
) -> None:
    assert silence_ms(eagerness, "complete") == complete
    assert silence_ms(eagerness, "unclear") == unclear
    assert silence_ms(eagerness, "unfinished") == unfinished
