"""Short acknowledgements in some languages, however they are written (F15 row 13)."""

import pytest

from antiphon.sessions.acknowledging import PHRASES, acknowledges

from tests.rules import rule


@rule("F15")
@pytest.mark.parametrize(
    "text",
    [
        *("yes", "Yeah!", " OK. ", "okay", "Right…", "Go on.", "keep   going", "Please, continue", "Mm-hmm"),
        *("Mhm.", "Uh-huh", "Aha!", "Hm…", "mhm, mhm", "Yeah, okay. I see.", "Hı-hı", "Ajá", "ach so, ja"),
        *("d'accord", "嗯", "对。", "好的！", "继续", "はい、", "네", "Да, ", "SÍ", "Genau."),
    ],
)
def test_words_that_tell_a_speaker_to_go_on(text: str) -> None:
    assert acknowledges(text)


@rule("F15")
@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        " ",
        "?",
        "no",
        "stop",
        "yes but",
        "ok what time is it",
        "goon",
        "不对",
        "yes yes yes yes yes",
        "mhm but",
    ],
)
def test_words_that_do_not(text: str | None) -> None:
    assert not acknowledges(text)


def test_no_phrase_is_empty_and_each_is_one() -> None:
    assert "" not in PHRASES
    assert all(acknowledges(phrase) for phrase in PHRASES)
