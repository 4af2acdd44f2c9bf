"""Nemotron's frames: their places, when speech is over, and calls of functions (BEHAVIOURS N46-N48)."""

import pytest

from antiphon.stages.nemotron_calls import Call, Unreadable, calls
from antiphon.stages.nemotron_frames import ContextFull, OutOfOrder, Speech, Timeline
from antiphon.stages.nemotron_tokens import TokenIds

from tests.rules import rule

IDS = TokenIds(begin=1, end=2, padding=3, call_begin=4, call_end=5)
WORD = 77


@rule("N46")
def test_the_first_frame_brings_the_prompt_and_each_one_a_token() -> None:
    line = Timeline(IDS, instructions=[10, 11], tools=[20], context=100)
    assert line.frame(1) == [1, 10, 11, 20, 2, 3]
    assert [line.frame(seq) for seq in (2, 3)] == [[3], [3]]
    assert Timeline(IDS, [], [], 100).frame(1) == [1, 2, 3]


@rule("N46")
@pytest.mark.parametrize("wrong", [0, 1, 3])
def test_a_frame_stands_where_its_number_says(wrong: int) -> None:
    line = Timeline(IDS, [], [], 100)
    line.frame(1)
    with pytest.raises(OutOfOrder, match=f"frame {wrong} is not the next one: that is 2"):
        line.frame(wrong)
    assert line.frame(2) == [3], "a wrong one moves nothing"


@rule("N46", "K17")
def test_the_last_frame_leaves_room_for_the_token_that_is_sampled() -> None:
    line = Timeline(IDS, instructions=[10], tools=[], context=7)
    for seq in (1, 2, 3):  # a prompt of 3, and 3 + 3 + 1 places
        line.frame(seq)
    with pytest.raises(ContextFull):
        line.frame(4)


def beats(*frames: tuple[int, int]) -> list[str]:
    speech = Speech(IDS)
    return [speech.frame(token, sounds) for token, sounds in frames]


@rule("N47", "G17")
def test_padding_is_listening_until_there_is_text() -> None:
    assert beats((3, 0), (3, 0), (2, 0), (3, 0)) == ["listen"] * 4, "an end of nothing ends nothing"


@rule("N47")
def test_speech_ends_when_its_sound_covers_its_text() -> None:
    frames = [(WORD, 0), (WORD, 0), (WORD, 1), (2, 0), (3, 1), (3, 1), (3, 0)]
    assert beats(*frames) == ["speak"] * 5 + ["end", "listen"], "not at the end token"


@rule("N47")
def test_speech_does_not_end_before_its_text_does() -> None:
    frames = [(WORD, 1), (3, 1), (3, 1), (WORD, 0), (2, 0), (WORD, 1), (2, 0)]
    assert beats(*frames) == ["speak"] * 4 + ["end", "speak", "end"]


@rule("N48")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"name": "look", "arguments": {"at": [1, 2]}}', [Call("look", '{"at": [1, 2]}')]),
        ('{"name": "look", "arguments": "{\\"at\\": 1}"}', [Call("look", '{"at": 1}')]),
        ('{"name": "look", "why": "?"}', [Call("look", "{}")]),
        ('[{"name": "a"}, {"name": "b", "arguments": {}}]', [Call("a", "{}"), Call("b", "{}")]),
    ],
)
def test_what_stands_between_the_markers_is_one_call_or_several(text: str, found: list[Call]) -> None:
    assert calls(text) == found


@rule("N48")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "look",
        "[]",
        "7",
        '{"arguments": {}}',
        '{"name": ""}',
        '{"name": 7}',
        '{"name": "look", "arguments": [1]}',
        '{"name": "look", "arguments": "[1]"}',
        '{"name": "look", "arguments": "at"}',
        '{"name": "look", "arguments": 7}',
        '[{"name": "a"}, {"name": ""}]',
        '{"name": "look"} and more',
        '{"name": "\ud800"}',
    ],
)
def test_anything_else_is_no_call_at_all(text: str) -> None:
    with pytest.raises(Unreadable):
        calls(text)
