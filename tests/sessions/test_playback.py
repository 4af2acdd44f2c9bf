"""What was heard, and what of it is history (BEHAVIOURS I, DESIGN 5.10)."""

import pytest

from antiphon.events import commands as cmd
from antiphon.events.audio import AudioFormat, TextMark
from antiphon.events.events import PlaybackCursor
from antiphon.sessions.playback import cursor, heard, history_of, plays, plays_until, prefix_of
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
        (playout(ended=True, acked_at=0, committed_ms=500), "commit_all_on_done", "one two"),
        (playout(ended=True, acked_at=0, committed_ms=0), "commit_all_on_done", TEXT),
        (playout(ended=True, acked_at=0, committed_ms=1_000), "commit_all_on_done", TEXT),
        (playout(0, ended=True), "ack_only", TEXT),
        (playout(0, ended=True), "commit_all_on_done", TEXT),
        (playout(0), "ack_only", ""),
        (playout(0, ended=True, cap_ms=0), "ack_only", ""),
    ],
)
@rule("I1", "I2")
def test_wire_6_7_what_is_history(made: Playout, policy: str, words: str) -> None:
    assert history_of(made, policy) == words


@rule("I4")
@pytest.mark.parametrize(
    ("made", "policy", "words"),
    [
        (playout(unaligned=True, acked_at=0, committed_ms=1_000), "ack_only", ""),
        (playout(unaligned=True, ended=True, acked_at=0, committed_ms=1_000), "ack_only", ""),
        (playout(unaligned=True, ended=True, complete=True, acked_at=0, committed_ms=999), "ack_only", ""),
        (playout(unaligned=True, ended=True, complete=True, acked_at=0, committed_ms=1_000), "ack_only", TEXT),
        (playout(unaligned=True, ended=True, complete=True, cap_ms=999), "commit_all_on_done", ""),
        (playout(unaligned=True, ended=True, complete=True, cap_ms=1_000), "commit_all_on_done", TEXT),
        (
            playout(unaligned=True, ended=True, complete=True, acked_at=0, committed_ms=500),
            "commit_all_on_done",
            TEXT,
        ),
        (playout(unaligned=True, ended=True), "commit_all_on_done", ""),
        (playout(0, unaligned=True, ended=True), "ack_only", TEXT),
    ],
)
def test_a_text_that_needs_its_sound_is_heard_as_a_whole_or_not_at_all(
    made: Playout, policy: str, words: str
) -> None:
    assert history_of(made, policy) == words


@rule("I3")
def test_hearing_all_the_sound_of_half_a_clause_is_not_hearing_its_words_i3() -> None:
    playout = Playout(response_id="r", item_id="i", format=AudioFormat("pcm16", 24_000), turn=0, commits=0)
    playout.text, playout.sent = "one two three four", AudioFormat("pcm16", 24_000).bytes_for(500)
    playout.marks = [TextMark(0, 0), TextMark(18, 2000)]
    assert prefix_of(playout, 500) == "one"
    playout.sent = AudioFormat("pcm16", 24_000).bytes_for(1000)
    assert prefix_of(playout, 1000) == "one two"
    playout.complete = True  # the stage has said all, and was wrong about the length
    assert prefix_of(playout, 1000) == "one two three four"
    playout.complete, playout.sent = False, AudioFormat("pcm16", 24_000).bytes_for(1980)
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


@rule("I19")
def test_playback_that_nobody_can_hear_has_no_end() -> None:
    assert plays_until(playout()) is None
    assert plays_until(playout(started=0, reached=500)) is None
    assert plays_until(playout(started=500_000)) == 1_500_000
    assert plays_until(playout(started=0, acked_at=100_000, committed_ms=400)) == 1_300_000
