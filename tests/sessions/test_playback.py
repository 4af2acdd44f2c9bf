"""The text that belongs to a position, and what was heard (BEHAVIOURS I3, DESIGN 5.10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.events import commands as cmd
from antiphon.events.audio import AudioFormat, TextMark
from antiphon.events.events import PlaybackCursor
from antiphon.sessions.playback import cursor, heard, history_of, plays, prefix_of, spoken_prefix
from antiphon.sessions.state import Playout

from tests.rules import rule
from tests.sessions.world import World

FORMAT = AudioFormat("pcm16", 24_000)
TEXT = "one two three four"


def playout(sent_ms: int = 1_000, **fields: object) -> Playout:
    made = Playout("resp_1", "item_resp_1", FORMAT, 0, 0, sent=FORMAT.bytes_for(sent_ms), text=TEXT)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@rule("I3")
@pytest.mark.parametrize(
    ("ms", "words"),
    [(-5, ""), (0, ""), (100, ""), (250, "one"), (500, "one two"), (999, "one two three"), (1_000, TEXT)],
)
def test_i3_without_marks_text_is_proportional_to_sound(ms: int, words: str) -> None:
    assert spoken_prefix(TEXT, (), ms, 1_000) == words


@rule("I2")
def test_i2_without_sound_a_text_is_heard_as_a_whole() -> None:
    assert spoken_prefix(TEXT, (), 0, 0) == TEXT


@rule("I3")
@pytest.mark.parametrize(
    ("ms", "words"), [(100, ""), (300, "one"), (400, "one"), (600, "one two"), (800, "one two three")]
)
def test_i3_marks_are_interpolated(ms: int, words: str) -> None:
    marks = (TextMark(3, 300), TextMark(7, 600), TextMark(13, 700))
    assert spoken_prefix(TEXT, marks, ms, 1_000) == words


@rule("I3")
def test_i3_marks_in_any_order_and_beyond_the_text_do_no_harm() -> None:
    marks = (TextMark(99, 900), TextMark(7, 500), TextMark(3, 500), TextMark(2, 600))
    assert spoken_prefix(TEXT, marks, 500, 1_000) == "one two"
    assert spoken_prefix(TEXT, marks, 950, 1_000) == TEXT


@rule("I3")
def test_a_mark_may_lie_ahead_of_the_sound() -> None:
    assert spoken_prefix(TEXT, (TextMark(18, 4_000),), 500, 1_000) == ""


@rule("I3")
def test_a_word_is_never_cut() -> None:
    assert spoken_prefix("wonderful", (), 500, 1_000) == ""


@rule("P39")
@given(
    text=st.text(alphabet="ab ü\n", max_size=30),
    marks=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 1_200)), max_size=5),
    early=st.integers(-10, 1_200),
    later=st.integers(0, 1_200),
)
def test_p39_a_prefix_grows_with_the_position(
    text: str, marks: list[tuple[int, int]], early: int, later: int
) -> None:
    placed = tuple(TextMark(chars, ms) for chars, ms in marks)
    first = spoken_prefix(text, placed, early, 1_000)
    second = spoken_prefix(text, placed, early + later, 1_000)
    assert text.startswith(first)
    assert second.startswith(first)


@rule("I19")
def test_design_5_10_what_is_known_first_is_believed() -> None:
    assert heard(playout(), 5_000_000) == (0, "playout")
    assert heard(playout(started=1_000_000), 1_400_000) == (400, "playout")
    assert heard(playout(started=1_000_000), 9_000_000) == (1_000, "playout")
    assert heard(playout(started=2_000_000), 1_000_000) == (0, "playout")
    assert heard(playout(started=0, acked_at=0, committed_ms=200), 900_000) == (200, "ack")
    assert heard(playout(cap_ms=300, cap_basis="truncate", acked_at=0, committed_ms=200), 0) == (300, "truncate")


@rule("I19")
def test_design_5_3_playback_ends_by_the_model_or_twice_the_rest() -> None:
    assert plays(playout(started=0), 999_000)
    assert not plays(playout(started=0), 1_000_000)
    assert not plays(playout(cap_ms=0), 0)
    assert plays(playout(acked_at=0, committed_ms=900), 199_999)
    assert not plays(playout(acked_at=0, committed_ms=900), 200_000)
    assert not plays(playout(0), 0)


def test_a_response_without_playout_shows_an_empty_cursor() -> None:
    assert cursor(None) == PlaybackCursor()
    assert cursor(playout(played_ms=5, committed_ms=4)) == PlaybackCursor(1_000, 1_000, 5, 4)


@rule("I1", "I2")
@pytest.mark.parametrize(
    ("made", "policy", "words"),
    [
        (playout(ended=True), "commit_all_on_done", TEXT),
        (playout(), "commit_all_on_done", ""),
        (playout(ended=True), "ack_only", ""),
        (playout(ended=True, acked_at=0, committed_ms=500), "ack_only", "one two"),
        (playout(ended=True, cap_ms=250), "commit_all_on_done", "one"),
        (playout(0, ended=True), "ack_only", TEXT),
        (playout(0), "ack_only", ""),
    ],
)
def test_wire_6_7_what_is_history(made: Playout, policy: str, words: str) -> None:
    assert history_of(made, policy) == words


@rule("I3")
def test_hearing_all_the_sound_of_half_a_clause_is_not_hearing_its_words_i3() -> None:
    playout = Playout(response_id="r", item_id="i", format=AudioFormat("pcm16", 24_000), turn=0, commits=0)
    playout.text, playout.sent = "one two three four", AudioFormat("pcm16", 24_000).bytes_for(500)
    playout.marks = (TextMark(0, 0), TextMark(18, 2000))
    assert prefix_of(playout, 500) == "one"
    playout.sent = AudioFormat("pcm16", 24_000).bytes_for(1000)
    assert prefix_of(playout, 1000) == "one two"
    playout.sent = AudioFormat("pcm16", 24_000).bytes_for(1980)
    assert prefix_of(playout, 1980) == "one two three four"


@rule("I19")
def test_while_nobody_is_connected_no_more_is_heard_than_had_been_sent_5_10() -> None:
    world = World(policy="commit_all_on_done")
    world.say("Tell me a story.")
    world.respond()
    world.produce("one two three four five", 1000)
    world.wait(500)
    world.do(cmd.Detach(generation=0))
    world.produce(" six seven eight nine ten", 1000)
    world.wait(20_000)
    world.resume()
    assert heard(next(iter(world.session.playouts.values())), world.now) == (1000, "playout")
    world.wait(500)
    assert heard(next(iter(world.session.playouts.values())), world.now) == (1500, "playout")
    world.cancel()
    (said,) = world.heard()
    assert said.startswith("one two three")
    assert "ten" not in said
