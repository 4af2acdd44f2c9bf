"""Qwen3-Omni: what it refuses, and the window over its conversation."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.events import events as ev
from antiphon.events.audio import SampleRef
from antiphon.events.items import AudioPart, FunctionCall, ImagePart, Item, Message, Part, TextPart, is_user
from antiphon.sessions.models.qwen3_window import CLIP_BYTES, CLIPS, MESSAGES, window
from antiphon.sessions.plugins import QWEN3_OMNI

from tests.rules import rule
from tests.sessions.models.configs import VOICE, Refused, changed, config, opening, refused
from tests.sessions.world import World, error, kinds, only

INVALID = "invalid_duplex_runtime_config"
TOOL = json.dumps([{"type": "function", "name": "f"}])

WRONG: list[tuple[dict[str, object], Refused]] = [
    ({"tools": TOOL}, (INVALID, "session.tools")),
    ({"ref_audio": VOICE}, (INVALID, "session.ref_audio")),
    ({"extras": {"full_duplex": "true"}}, (INVALID, "session.extra_body.full_duplex")),
]


@pytest.mark.parametrize(("fields", "expected"), WRONG, ids=["tools", "voice", "duplex"])
@rule("N41")
def test_refused_at_opening_and_at_updates(fields: dict[str, object], expected: Refused) -> None:
    current = opening(QWEN3_OMNI, config())
    asked = changed(current, **fields)
    assert refused(lambda: opening(QWEN3_OMNI, asked)) == expected
    assert refused(lambda: QWEN3_OMNI.check_update(current, asked, locked=False, started=False)) == expected


@rule("N41")
def test_auto_response_means_an_answer_for_every_turn() -> None:
    opening(QWEN3_OMNI, changed(config(), auto_response=True))
    here = World(plugin="qwen3-omni", auto=True)
    assert not here.session.auto
    here.append(10)
    here.commit()
    assert here.session.response is not None


@rule("N41", "E6")
def test_no_frames_on_appends() -> None:
    can = QWEN3_OMNI.capabilities
    assert "video" not in (*can.required_input_modalities, *can.optional_input_modalities)


@rule("N43", "N12")
def test_the_text_of_the_first_stage_is_shown_while_it_streams_and_is_spoken_all_the_same() -> None:
    here = World(plugin="qwen3-omni")
    here.append(10)
    here.commit(create_response=True)
    assert kinds(here.produce("Good ")) == ["OutputStarted", "TextDelta"]
    assert kinds(here.produce("morning.")) == ["TextDelta"], "not the end of anything"
    assert here.end_inner(0) == [], "the text is complete, the answer is not"
    sound = [only(here.produce("", 400), ev.AudioDelta) for _ in range(2)]
    assert [(delta.text, delta.marks, delta.audio_ms) for delta in sound] == [("", (), 400), ("", (), 800)]
    ended = only(here.finish(), ev.ResponseEnded)
    assert (ended.status, ended.text, ended.playback.sent_ms) == ("completed", "Good morning.", 800)


@rule("N2")
def test_only_the_talker_is_stochastic() -> None:
    thinker, talker, vocoder = QWEN3_OMNI.sampling(config())
    assert (thinker.temperature, vocoder.temperature) == (0.0, 0.0)
    assert (talker.temperature, talker.top_k, talker.max_tokens, talker.seed) == (0.9, 50, 4096, 42)
    assert QWEN3_OMNI.sampling(config(seed=7))[1].seed == 7


@rule("N44")
def test_nothing_to_answer_is_refused() -> None:
    here = World(plugin="qwen3-omni")
    assert error(here.respond()) == "response_create_without_input"
    assert error(here.commit()) == "input_audio_buffer_empty"


# -- the window ----------------------------------------------------------------------------------------------


def said(name: str, *parts: Part) -> Message:
    return Message(id=name, role="user", content=parts or (TextPart(name),))


def answered(name: str, text: str = "Yes.") -> Message:
    return Message(id=name, role="assistant", content=(TextPart(text),))


def clip(start: int = 0, size: int = 3) -> AudioPart:
    return AudioPart(ref=SampleRef("in", start, size))


def ids(items: tuple[Item, ...]) -> list[str]:
    return [item.id for item in items]


@rule("N42")
def test_sixteen_messages_rounded_outward_to_a_turn_of_the_user() -> None:
    items: list[Item] = []
    for number in range(12):
        items += [said(f"q{number}"), answered(f"a{number}")]
    assert ids(window(items)) == ids(tuple(items[-MESSAGES:]))
    items = [*items[:-1], answered("b11"), answered("c11")]  # 16 from the end is now an answer
    assert ids(window(items))[:2] == ["q4", "a4"]
    two = [said("p3"), *items[6:]]
    assert ids(window([answered("lost"), *two])) == ids(window(two))


@rule("N42")
def test_a_turn_in_several_messages_is_not_cut_in_half() -> None:
    items: list[Item] = [said("x"), answered("y"), said("q0"), said("q1")]
    items += [answered(f"a{number}") for number in range(MESSAGES - 1)]
    shown = window(items)
    assert ids(shown)[0] == "q1"
    assert isinstance(shown[0], Message)
    assert [part.text for part in shown[0].content if isinstance(part, TextPart)] == ["q0", "q1"]


@rule("N42")
def test_an_answer_whose_question_fell_out_is_dropped() -> None:
    assert ids(window([answered("a"), FunctionCall(id="f", call_id="c", name="n", arguments="{}"), said("q")])) == [
        "q"
    ]
    system = Message(id="s", role="system", content=(TextPart("Be kind."),))
    assert ids(window([system, answered("a"), said("q")])) == ["s", "q"]
    assert window([]) == ()


@rule("N42")
def test_the_oldest_clips_go_and_their_turns_with_them() -> None:
    items: list[Item] = []
    for number in range(6):
        items += [said(f"q{number}", clip(number)), answered(f"a{number}")]
    items.append(said("now", clip(9)))
    assert ids(window(items)) == ["q3", "a3", "q4", "a4", "q5", "a5", "now"]


@rule("N42")
def test_turns_of_text_outlive_clips_that_are_younger() -> None:
    items: list[Item] = [said("t"), answered("at")]
    for number in range(5):
        items += [said(f"q{number}", clip(number)), answered(f"a{number}")]
    assert ids(window(items))[:4] == ["t", "at", "q1", "a1"]


@rule("N42")
def test_eight_mebibytes_of_base64() -> None:
    half = CLIP_BYTES // 2 // 4 * 3
    items: list[Item] = [said("q0", clip(0, 3)), answered("a0"), said("q1", clip(3, half)), answered("a1")]
    assert ids(window([*items, said("now", clip(9, half))])) == ["q1", "a1", "now"]
    assert ids(window([*items, said("now", clip(9, half + 1))])) == ["now"]


@rule("N42")
def test_a_past_turn_whose_sound_is_gone_is_dropped_as_a_whole() -> None:
    gone = AudioPart()
    words = AudioPart(transcript="Hello.")
    items: list[Item] = [said("q0", gone, TextPart("x")), answered("a0"), said("q1", words), answered("a1")]
    assert ids(window([*items, said("now")])) == ["q1", "a1", "now"]
    assert ids(window([said("now", gone)])) == ["now"], "the current turn stays"


@rule("N42", "E40")
def test_the_current_turn_loses_only_its_oldest_clips() -> None:
    many = [said(f"n{number}", clip(number), TextPart(str(number))) for number in range(CLIPS + 2)]
    (shown,) = window([said("q", clip(90)), answered("a"), *many])[-1:]
    assert isinstance(shown, Message)
    starts = [part.ref.start for part in shown.content if isinstance(part, AudioPart) and part.ref]
    assert starts == [2, 3, 4, 5]
    assert [part.text for part in shown.content if isinstance(part, TextPart)] == list("012345")
    assert len(window([said("q", clip(90)), answered("a"), *many])) == 1
    (huge,) = window([said("n", clip(0, CLIP_BYTES))])
    assert isinstance(huge, Message)
    assert len(huge.content) == 1


@rule("N42")
def test_consecutive_messages_of_the_user_become_one_with_media_first() -> None:
    (shown,) = window([said("q0", TextPart("a"), clip(0)), said("q1", TextPart("b"), clip(3))])
    assert isinstance(shown, Message)
    assert shown.id == "q1"
    assert [type(part).__name__ for part in shown.content] == ["AudioPart", "AudioPart", "TextPart", "TextPart"]


def picture(start: int) -> ImagePart:
    return ImagePart(mime="image/png", size=5, ref=SampleRef("item", start, 5))


@rule("N42")
def test_eight_pictures_and_the_oldest_go_with_their_place() -> None:
    items: list[Item] = []
    for number in range(5):
        parts = (TextPart(f"before {number}"), picture(2 * number), picture(2 * number + 1), TextPart("after"))
        items += [said(f"q{number}", *parts), answered(f"a{number}")]
    shown = window(items)
    assert len(shown) == len(items), "a turn outlives its pictures"
    first, second = shown[0], shown[2]
    assert isinstance(first, Message)
    assert isinstance(second, Message)
    assert [type(part).__name__ for part in first.content] == ["TextPart", "TextPart"]
    assert [type(part).__name__ for part in second.content] == ["ImagePart", "ImagePart", "TextPart", "TextPart"]
    one_more = [*items, said("now", picture(99))]
    starts = [
        part.ref.start
        for item in window(one_more)
        if isinstance(item, Message)
        for part in item.content
        if isinstance(part, ImagePart) and part.ref is not None
    ]
    assert starts == [3, 4, 5, 6, 7, 8, 9, 99]


@rule("N42", "I5")
def test_an_empty_answer_is_a_boundary() -> None:
    items = [said("q0"), answered("a0", ""), said("q1")]
    assert ids(window(items)) == ["q0", "a0", "q1"]


ITEMS = st.lists(
    st.one_of(
        st.builds(lambda n: said("q", clip(n, 3)), st.integers(0, 99)),
        st.just(said("t")),
        st.just(answered("a")),
        st.just(said("g", AudioPart())),
    ),
    max_size=40,
)


@given(ITEMS)
@rule("N42", "N9")
def test_a_window_is_whole_turns_within_bounds_and_the_same_when_taken_again(items: list[Item]) -> None:
    shown = window(items)
    assert window(items) == shown
    assert window(shown) == shown
    assert not shown or is_user(shown[0])
    assert all(not (is_user(one) and is_user(two)) for one, two in pairwise(shown))
    parts = [part for item in shown if isinstance(item, Message) for part in item.content]
    assert sum(isinstance(part, AudioPart) and part.ref is not None for part in parts) <= CLIPS
    if items and is_user(items[-1]):
        assert shown[-1].id == items[-1].id
