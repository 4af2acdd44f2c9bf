"""The semantic end of a turn: how words end, and how long a pause behind them may be (WIRE 4.4).

Pure rules over text, in the order of `RULES`, first match wins. They know neither grammar nor the language: a
recogniser puts a full stop behind almost everything, so the last word counts for more than the mark, and words
that often end a sentence in some language (in, on, an, mit, aus, un) are in no list. What is judged wrongly costs a
longer wait, or the shorter one of a server without semantics.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from antiphon.events.events import Sentence, SentenceRule

Eagerness = Literal["low", "medium", "high", "auto"]

_WAITS: Mapping[Sentence, Mapping[Eagerness, int]] = {
    "complete": {"low": 900, "medium": 500, "auto": 500, "high": 300},
    "unclear": {"low": 1500, "medium": 900, "auto": 900, "high": 500},
    "unfinished": {"low": 8000, "medium": 4000, "auto": 4000, "high": 2000},
}
"""How long a pause may last, in milliseconds. Of words that nobody knows, or can tell anything from, as long as the
contract has it for a server without semantics; of unfinished ones the longest wait."""


class Judged(Struct, frozen=True):
    """How words end, and the rule that says so."""

    sentence: Sentence
    rule: SentenceRule


class _Words(Struct, frozen=True):
    """A text as the rules look at it: in small letters, without its final marks, cut into words."""

    text: str
    bare: str
    last: str
    before: str


def silence_ms(eagerness: Eagerness, sentence: Sentence) -> int:
    """Return how long a pause behind such words may last."""
    return _WAITS[sentence][eagerness]


@lru_cache(maxsize=1024)
def judge(text: str) -> Judged:
    """Return how a text ends, by the first rule that fits; the last one always does."""
    words = _words(text)
    return next(Judged(sentence, name) for name, sentence, fits in RULES if fits(words))


_END_MARKS = ".!?…。！？．؟।"
_CLOSING = "\"'”’»)]」』）"
_WORD = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")


def _words(text: str) -> _Words:
    text = text.strip().casefold()
    bare = text.rstrip(_END_MARKS + _CLOSING + " ")
    found: list[str] = _WORD.findall(bare)
    return _Words(text, bare, found[-1] if found else "", found[-2] if len(found) > 1 else "")


# -- the words -----------------------------------------------------------------------------------------------


def _all(*lines: str) -> frozenset[str]:
    return frozenset(word for line in lines for word in line.split())


_FILLERS = _all(
    "um umm uh uhh uhm er erm hmm",
    "äh ähm öhm",
    "euh heu",
    "ehm",
)
_LEADING = _all(
    # conjunctions
    "and or but because although unless whether",
    "und oder aber weil sondern dass obwohl",
    "et ou mais parce puisque",
    "y pero porque aunque sino",
    # prepositions
    "of to for with from into at than between during",
    "für von zum zur vom beim ohne zwischen",
    "de du des avec dans pour chez",
    "del al con sin para por desde hasta entre",
    # articles and the like
    "the a my your our their its",
    "der den dem eine einen einem einer eines mein meine dein unser unsere",
    "le les mon ma mes ton votre notre ce cette",
    "el los las unos unas mi sus",
)
"""Words that lead on to another one; rarely does one of them end a sentence, in any of these languages."""
_NUMBERS = _all(
    "zero one two three four five six seven eight nine",
    "null eins zwei drei vier fünf sechs sieben acht neun",
    "zéro deux trois quatre cinq sept huit neuf",
    "cero uno dos tres cuatro cinco seis siete ocho nueve",
)
_PARTICLES = (
    *("えーと", "えっと", "あの", "その", "は", "が", "を", "に", "と", "けど", "ので"),
    *("嗯", "呃", "和", "跟", "或者", "因为", "所以", "但是", "而且", "如果", "然后", "把", "被"),
)
"""Endings of scripts without blanks behind which more is to come."""
_OPEN_MARKS = (",", ";", ":", "-", "–", "—", "、", "，", "；", "：", "・", "(", "«")


# -- the rules -----------------------------------------------------------------------------------------------


def _is_number(word: str) -> bool:
    return word.isdecimal() or word in _NUMBERS


def _hangs(words: _Words) -> bool:
    """Return whether the last word is a number that may go on: one of several, or digits without a mark."""
    if _is_number(words.last) and _is_number(words.before):
        return True
    return words.last.isdecimal() and not words.text.endswith(tuple(_END_MARKS))


RULES: tuple[tuple[SentenceRule, Sentence, Callable[[_Words], bool]], ...] = (
    ("no_words", "unclear", lambda words: not words.last),
    ("trailing_off", "unfinished", lambda words: words.text.endswith(("...", "…", "。。。"))),
    ("open_mark", "unfinished", lambda words: words.text.endswith(_OPEN_MARKS)),
    ("asked", "complete", lambda words: words.text.rstrip(_CLOSING).endswith(("?", "!", "？", "！", "؟"))),
    ("filler", "unfinished", lambda words: words.last in _FILLERS),
    ("number", "unfinished", _hangs),
    ("leading_word", "unfinished", lambda words: words.last in _LEADING),
    ("particle", "unfinished", lambda words: words.bare.endswith(_PARTICLES)),
    ("end_mark", "complete", lambda words: words.text.rstrip(_CLOSING).endswith(tuple(_END_MARKS))),
    ("no_mark", "unclear", lambda words: True),
)
"""Name, what it says, and when it fits.

`no_words`: there are none. `trailing_off`: three dots. `open_mark`: a comma, a dash, a colon. `asked`: a question
or a call. `filler`: um, uh. `number`: digits or numbers that are being given. `leading_word`: a conjunction, a
preposition, an article. `particle`: the same in Chinese and Japanese. `end_mark`: a full stop. `no_mark`:
anything else, also of a recogniser that writes no marks.
"""
