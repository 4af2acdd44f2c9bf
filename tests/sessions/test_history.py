"""What becomes history, where it stands, and until when that can change (BEHAVIOURS I)."""

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import TextMark
from antiphon.events.config import ConfigPatch, PlaybackPolicy
from antiphon.events.items import AudioPart, Message, TextPart
from antiphon.sessions.plugins import CASCADE
from antiphon.sessions.state import KEPT_PLAYOUTS
from antiphon.sessions.view import prompt, view

from tests.rules import rule
from tests.sessions.world import World, capable, error, kinds, only

TEXT = "one two three four five six seven eight nine ten"
"""Ten words of about 100 ms each in a second of sound."""
HALF = "one two three four five"
APART = capable(CASCADE.capabilities, text_requires_complete_audio=True)
"""A model whose text and sound are streams of their own."""


def listening() -> World:
    """Return a session with a resident model, which answers on its own; the user has said something."""
    world = World(plugin="echo", auto=True)
    world.append()
    world.accept()
    world.commit()
    return world


def speaks(world: World, text: str = TEXT, ms: int = 1_000) -> str:
    """Let the resident model say something; return the response, which stays open."""
    return only(world.produce(text, ms, world.resident), ev.ResponseCreated).head.id


def order(world: World) -> list[str]:
    return list(world.session.conversation.order)


# -- policies ------------------------------------------------------------------------------------------------


@rule("I1")
def test_under_ack_only_history_is_what_was_acknowledged() -> None:
    world = World()
    world.answer(TEXT, 1_000)
    world.wait(5_000)
    assert world.heard() == []
    world.ack(500)
    assert world.heard() == [HALF]


@rule("I1")
@pytest.mark.parametrize("when", ["before the end", "behind the end"])
def test_under_commit_all_an_acknowledgement_inside_the_sound_limits_history(when: str) -> None:
    world = World(dialect="ga")
    world.begin()
    world.produce(TEXT, 1_000)
    if when == "before the end":
        world.ack(500)
        assert only(world.finish(), ev.ResponseEnded).committed
    else:
        world.finish()
        assert world.heard() == [TEXT]
        assert only(world.ack(500), ev.PlaybackAcknowledged).history == HALF
    assert world.heard() == [HALF]
    world.ack(1_000)
    assert world.heard() == [TEXT]


@rule("I1")
@pytest.mark.parametrize("ms", [None, 0, 1_000])
def test_under_commit_all_a_client_that_never_or_fully_acknowledges_has_all_in_history(ms: int | None) -> None:
    world = World(dialect="ga")
    world.begin()
    world.produce(TEXT, 1_000)
    if ms is not None:
        world.ack(ms)
    assert only(world.finish(), ev.ResponseEnded).committed
    assert world.heard() == [TEXT]


@rule("I1", "Q4.17")
def test_the_policy_is_fixed_at_opening() -> None:
    world = World()
    other = ConfigPatch(playback_policy="commit_all_on_done")
    assert error(world.do(cmd.UpdateSession(attachment=1, patch=other))) == "playback_policy_update_unsupported"
    same = ConfigPatch(playback_policy="ack_only")
    assert kinds(world.do(cmd.UpdateSession(attachment=1, patch=same))) == ["ConfigUpdated"]
    assert world.session.config.playback_policy == "ack_only"


@rule("I2")
@pytest.mark.parametrize("policy", ["ack_only", "commit_all_on_done"])
def test_text_without_sound_is_history_as_a_whole(policy: PlaybackPolicy) -> None:
    world = World(policy=policy, modalities=("text",))
    world.begin()
    world.produce(TEXT)
    assert world.heard() == []
    assert only(world.finish(), ev.ResponseEnded).committed
    assert world.heard() == [TEXT]


# -- text that is not aligned with its sound -----------------------------------------------------------------


@rule("I4")
def test_an_unaligned_text_waits_for_the_last_of_its_sound() -> None:
    world = World(capabilities=APART)
    world.begin()
    world.produce(TEXT, 400)
    assert only(world.ack(400), ev.PlaybackAcknowledged).history == "", "more sound may come"
    world.produce("", 600)
    ended = only(world.finish(), ev.ResponseEnded)
    assert not ended.committed
    assert only(world.ack(999), ev.PlaybackAcknowledged).history == ""
    assert world.heard() == []
    assert only(world.ack(1_000), ev.PlaybackAcknowledged).history == TEXT
    assert world.heard() == [TEXT]


@rule("I4")
def test_an_unaligned_text_is_history_at_completion_under_commit_all() -> None:
    world = World(dialect="ga", capabilities=APART)
    world.begin()
    world.produce(TEXT, 1_000)
    world.ack(300)
    assert only(world.finish(), ev.ResponseEnded).committed
    assert world.heard() == [TEXT]


@rule("I4", "I17")
@pytest.mark.parametrize("ends", [True, False])
def test_an_unaligned_answer_that_is_cut_leaves_no_words_and_its_place(ends: bool) -> None:
    world = World(dialect="ga", capabilities=APART)
    response_id = world.begin()
    world.produce(TEXT, 1_000)
    if ends:
        world.finish()
    world.wait(900)
    assert only(world.barge_in(), ev.HistoryCut).text == ""
    assert world.heard() == []
    assert f"item_{response_id}" in order(world)
    assert world.shown(f"item_{response_id}") == ""


@rule("I4", "I16")
def test_an_unaligned_answer_truncated_at_its_very_end_keeps_its_words() -> None:
    world = World(dialect="ga", capabilities=APART)
    response_id = world.begin()
    world.produce(TEXT, 1_000)
    assert only(world.truncate(f"item_{response_id}", 1_000), ev.ItemTruncated).text == "", "not complete yet"
    ended = only(world.finish(), ev.ResponseEnded)
    assert isinstance(ended.item, Message)
    assert ended.item.content == (AudioPart(TEXT, None, 24_000, 1_000),)
    assert world.heard() == [TEXT]


@rule("I4")
def test_a_failed_unaligned_answer_was_never_complete() -> None:
    world = World(dialect="ga", capabilities=APART)
    world.begin()
    world.produce(TEXT, 1_000)
    assert not only(world.fail(), ev.ResponseEnded).committed
    assert world.heard() == []


# -- a place in history --------------------------------------------------------------------------------------


@rule("I5", "I22")
def test_an_answer_nobody_heard_stays_between_two_turns_and_is_not_shown_to_a_model() -> None:
    world = World(dialect="ga")
    world.say("First.", "first")
    response_id = only(world.respond(), ev.ResponseCreated).head.id
    world.produce(TEXT, 1_000)
    world.barge_in()
    world.say("Second.", "second")
    assert order(world) == ["first", f"item_{response_id}", "second"]
    shown = world.session.conversation.entries[f"item_{response_id}"].item
    assert isinstance(shown, Message)
    assert (shown.status, shown.content) == ("incomplete", (AudioPart("", None, 24_000, 0),))
    assert [item.id for item in prompt(world.session)] == ["first", "second"], "two turns, and no placeholder"


@rule("I9", "P41")
@pytest.mark.parametrize("ms", [0, 400])
def test_an_acknowledgement_never_moves_an_answer_behind_newer_input(ms: int) -> None:
    world = World()
    response_id = world.answer(TEXT, 1_000)
    world.ack(ms)
    world.say("Later.", "later")
    before = order(world)
    world.ack(1_000)
    assert order(world) == before
    assert before[-2:] == [f"item_{response_id}", "later"]
    assert world.heard() == [TEXT]


@rule("I10", "P41")
def test_an_announced_answer_keeps_its_place_before_its_first_sound() -> None:
    """The next utterance may be committed before the model has said a word of the answer to the last one."""
    world = World()
    world.say("First.", "first")
    response_id = only(world.respond(), ev.ResponseCreated).head.id
    world.append(40)
    committed = only(world.commit(), ev.InputCommitted)
    assert committed.previous_item_id == "first"
    world.say("In between.", "between", previous_item_id="first")
    started = only(world.produce(TEXT, 1_000), ev.OutputStarted)
    assert started.previous_item_id == "first"
    assert order(world) == ["first", f"item_{response_id}", "between", committed.item_id]
    world.finish()
    world.ack(1_000)
    assert order(world)[1] == f"item_{response_id}"


@rule("I10", "P41")
def test_the_place_survives_that_the_item_before_it_is_deleted() -> None:
    world = World()
    world.say("Zero.", "zero")
    world.say("First.", "first")
    response_id = only(world.respond(), ev.ResponseCreated).head.id
    world.say("Second.", "second")
    world.do(cmd.DeleteItem(attachment=1, item_id="first"))
    assert only(world.produce(TEXT, 100), ev.OutputStarted).previous_item_id == "zero"
    assert order(world) == ["zero", f"item_{response_id}", "second"]


@rule("I9", "I11")
def test_an_answer_that_has_said_nothing_yet_may_be_acknowledged() -> None:
    world = World()
    response_id = world.begin()
    for named in (response_id, None):
        told = only(world.ack(0, response_id=named), ev.PlaybackAcknowledged)
        assert (told.response_id, told.playback, told.history_committed) == (
            response_id,
            ev.PlaybackCursor(),
            False,
        )
    assert error(world.ack(0, response_id=response_id, truncate=True)) == "playback_item_not_found"
    world.produce(TEXT, 1_000)
    assert world.session.playouts[response_id].committed_ms == 0


@rule("I9", "I17")
def test_who_acknowledged_nothing_before_the_first_sound_has_heard_what_it_says_later() -> None:
    """Else the time that passes would count as heard, of an answer whose client does tell what it plays."""
    world = World()
    response_id = world.begin()
    world.ack(0, response_id=response_id)
    world.wait(60_000)
    world.produce(TEXT, 1_000)
    world.wait(500)
    assert only(world.cancel(), ev.HistoryCut).basis == "ack"
    assert world.heard() == [], "nothing of it"
    other = World()
    response_id = other.begin()
    other.ack(0, response_id=response_id)
    other.wait(60_000)
    other.produce(TEXT, 1_000)
    other.finish()
    other.wait(1_900)
    assert error(other.respond()) == "response_already_active", "it may be played for twice its length (DESIGN 5.3)"


@rule("I11")
def test_active_and_completed_answers_may_be_acknowledged() -> None:
    world = World()
    first = world.answer(TEXT, 1_000)
    world.wait(1_000)
    second = world.begin()
    world.produce(TEXT, 1_000)
    assert only(world.ack(500, response_id=second), ev.PlaybackAcknowledged).history == HALF
    assert only(world.ack(500, response_id=first), ev.PlaybackAcknowledged).history == HALF


@rule("I9")
def test_what_was_heard_of_a_running_answer_is_history_at_once() -> None:
    world = World()
    world.begin()
    world.produce(TEXT, 1_000)
    world.ack(500)
    assert world.heard() == [HALF]
    other = World(dialect="ga")
    other.begin()
    other.produce(TEXT, 1_000)
    other.ack(500)
    assert other.heard() == [], "under commit_all_on_done only at its end"


# -- too late ------------------------------------------------------------------------------------------------


@rule("I12")
def test_an_answer_without_a_place_cannot_be_acknowledged_behind_the_next_turn() -> None:
    world = listening()
    speaks(world)
    world.finish()
    world.append(2)
    world.accept()
    world.commit()
    refused = world.ack(500)
    assert error(refused) == "playback_ack_too_late"
    assert world.heard() == []


@rule("I12", "I9")
def test_the_first_acknowledgement_takes_a_place_that_later_ones_keep() -> None:
    world = listening()
    speaks(world)
    world.ack(0)
    world.finish()
    world.append(2)
    world.accept()
    world.commit()
    assert only(world.ack(1_000), ev.PlaybackAcknowledged).history == TEXT


@rule("I12")
def test_an_answer_that_began_while_the_user_spoke_belongs_to_the_next_commit() -> None:
    world = listening()
    world.append(2)
    world.accept()
    speaks(world)
    world.commit()
    assert only(world.ack(500), ev.PlaybackAcknowledged).history == HALF
    other = listening()
    other.append(2)
    other.accept()
    speaks(other)
    other.commit()
    other.finish()
    other.append(2)
    other.accept()
    other.commit()
    assert error(other.ack(500)) == "playback_ack_too_late"


@rule("I12", "I10")
def test_an_answer_to_a_turn_has_its_place_from_its_announcement() -> None:
    world = World()
    world.answer(TEXT, 1_000)
    world.append(40)
    world.commit(create_response=False)
    assert only(world.ack(500), ev.PlaybackAcknowledged).history == HALF


@rule("I12")
def test_what_was_cut_or_is_text_or_is_committed_at_its_end_is_never_too_late() -> None:
    cut = listening()
    speaks(cut)
    cut.barge_in()
    cut.append(2)
    cut.commit()
    assert kinds(cut.ack(100)) == ["PlaybackAcknowledged"]
    free = World(plugin="echo", auto=True, policy="commit_all_on_done")
    free.append()
    free.commit()
    speaks(free)
    free.finish()
    free.append(2)
    free.commit()
    assert only(free.ack(500), ev.PlaybackAcknowledged).history == HALF


# -- pending, and let go -------------------------------------------------------------------------------------


@rule("I13")
def test_a_completed_answer_waits_with_its_marks_for_its_first_acknowledgement() -> None:
    world = World()
    response_id = world.begin()
    world.produce(TEXT, 1_000, marks=(TextMark(7, 600), TextMark(len(TEXT), 1_000)))
    assert not only(world.finish(), ev.ResponseEnded).committed
    assert world.heard() == []
    assert world.shown(f"item_{response_id}") == TEXT, "its item shows all of it"
    assert not only(world.ack(20), ev.PlaybackAcknowledged).history_committed
    assert only(world.ack(650), ev.PlaybackAcknowledged).history == "one two"


@rule("I6", "I13")
def test_an_acknowledgement_without_a_name_means_the_one_answer_that_waits() -> None:
    world = World(dialect="ga")
    first = world.answer(TEXT, 1_000)
    second = world.begin()
    assert only(world.ack(500), ev.PlaybackAcknowledged).response_id == first, "the one that waits"
    world.produce(TEXT, 1_000)
    assert only(world.ack(1_000), ev.PlaybackAcknowledged).response_id == first
    assert only(world.ack(100), ev.PlaybackAcknowledged).response_id == second, "else the active one"
    world.finish()
    third = world.begin()
    world.produce(TEXT, 1_000)
    world.finish()
    assert only(world.ack(100), ev.PlaybackAcknowledged).response_id == third, "else the last one"


@rule("I14")
def test_a_fully_acknowledged_answer_is_let_go_when_the_next_one_speaks() -> None:
    world = World()
    first = world.answer(TEXT, 1_000)
    world.ack(1_000)
    second = world.begin()
    assert first in world.session.playouts
    world.produce("More.", 100)
    assert list(world.session.playouts) == [second]
    told = only(world.ack(300, response_id=first), ev.PlaybackAcknowledged)
    assert told.playback == ev.PlaybackCursor(1_000, 1_000, 1_000, 1_000), "a repeated one changes nothing"
    assert (told.history, told.history_committed) == (TEXT, True)
    assert world.heard() == [TEXT]


@rule("I14", "I15", "I16")
def test_an_answer_that_was_let_go_may_still_be_truncated() -> None:
    world = World()
    first = world.answer(TEXT, 1_000)
    world.ack(1_000)
    world.begin()
    world.produce("More.", 100)
    assert error(world.truncate(f"item_{first}", 1_001)) == "bad_event"
    assert only(world.truncate(f"item_{first}", 500), ev.ItemTruncated).text == HALF
    item = world.session.conversation.entries[f"item_{first}"].item
    assert isinstance(item, Message)
    assert item.content == (AudioPart(HALF, None, 24_000, 500),)
    assert world.heard() == [HALF]
    assert only(world.ack(1_000, response_id=first), ev.PlaybackAcknowledged).history == HALF
    told = only(world.ack(250, response_id=first, truncate=True), ev.PlaybackAcknowledged)
    assert (told.playback.committed_ms, world.heard()) == (250, [told.history])
    assert HALF.startswith(told.history)


@rule("I14")
def test_a_cut_answer_is_let_go_when_its_estimate_cannot_be_corrected_any_more() -> None:
    world = World(dialect="ga")
    first = world.answer(TEXT, 1_000)
    world.wait(300)
    world.barge_in()
    world.begin()
    world.produce(TEXT, 1_000)
    assert first in world.session.playouts, "it may still be corrected"
    world.barge_in()
    world.wait(5_001)
    world.begin()
    world.produce(TEXT, 1_000)
    assert first not in world.session.playouts


@rule("I14", "I15")
def test_an_answer_in_writing_is_let_go_and_is_still_no_sound() -> None:
    world = World(dialect="ga")
    world.say("In writing, please.")
    written = only(world.respond(cmd.ResponseOptions(output_modalities=("text",))), ev.ResponseCreated).head.id
    world.produce("Fine.")
    assert error(world.truncate(f"item_{written}", 0)) == "bad_event"
    world.finish()
    assert error(world.truncate(f"item_{written}", 0)) == "bad_event"
    world.answer(TEXT, 1_000)
    assert written not in world.session.playouts
    assert error(world.truncate(f"item_{written}", 0)) == "bad_event"
    assert error(world.ack(10, response_id=written)) == "playback_item_not_found"
    assert world.heard()[0] == "Fine."


@rule("I14")
def test_no_answer_is_let_go_while_sound_before_it_still_plays() -> None:
    world = World(dialect="ga")
    first = world.answer(TEXT, 10_000)
    second = world.answer("Short.", 100)
    world.ack(100, response_id=second)
    third = world.answer("Last.", 100)
    assert list(world.session.playouts) == [first, second, third]
    world.wait(20_000)
    fourth = world.answer("End.", 100)
    assert list(world.session.playouts) == [first, third, fourth], "nobody said what was heard of these"


@rule("I14")
def test_of_very_many_answers_that_wait_the_oldest_is_not_followed_and_says_so() -> None:
    world = World()
    first = world.answer(TEXT, 1_000)
    for _ in itertools.repeat(None, KEPT_PLAYOUTS):
        world.wait(1_000)
        world.answer(TEXT, 1_000)
    assert len(world.session.playouts) == KEPT_PLAYOUTS
    assert first not in world.session.playouts
    assert error(world.ack(1_000, response_id=first)) == "playback_ack_too_late"
    assert only(world.truncate(f"item_{first}", 500), ev.ItemTruncated).text == HALF
    assert world.heard() == [HALF]


# -- one cursor for each response ----------------------------------------------------------------------------


@rule("I20")
def test_a_response_that_opens_starts_a_new_cursor_and_the_old_one_stays() -> None:
    world = World()
    first = world.answer(TEXT, 1_000)
    world.ack(600)
    world.wait(800)
    assert view(world.session).playback == ev.PlaybackCursor(1_000, 1_000, 600, 600)
    world.begin()
    assert view(world.session).playback == ev.PlaybackCursor()
    world.produce("More.", 300)
    assert view(world.session).playback == ev.PlaybackCursor(300, 300, 0, 0)
    assert only(world.ack(700, response_id=first), ev.PlaybackAcknowledged).playback.committed_ms == 700


@rule("I20")
def test_clearing_the_output_leaves_an_older_cursor_alone() -> None:
    world = World(dialect="ga")
    first = world.answer(TEXT, 1_000)
    world.wait(1_000)
    second = world.answer(TEXT, 1_000)
    world.wait(500)
    world.do(cmd.ClearOutput(attachment=1))
    assert world.session.playouts[second].cap_ms == 500
    assert world.session.playouts[first].cap_ms is None
    assert world.heard() == [TEXT, HALF]
    assert only(world.ack(500, response_id=first), ev.PlaybackAcknowledged).history == HALF


@rule("I21", "P42")
def test_deleting_one_of_two_equal_answers_spares_the_other() -> None:
    """Two empty assistant messages compare equal; they are still two."""
    world = World(dialect="ga")
    pair = []
    for n in range(2):
        world.say(f"Question {n}.", f"q{n}")
        response_id = only(world.respond(), ev.ResponseCreated).head.id
        world.produce(TEXT, 1_000)
        world.barge_in()
        pair.append(response_id)
    first, second = pair
    before = world.session.conversation.entries[f"item_{second}"]
    world.do(cmd.DeleteItem(attachment=1, item_id=f"item_{first}"))
    assert order(world) == ["q0", "q1", f"item_{second}"]
    assert world.session.conversation.entries[f"item_{second}"] == before
    assert list(world.session.playouts) == [second]
    assert error(world.ack(1_000, response_id=first)) == "playback_item_not_found"
    assert error(world.truncate(f"item_{first}", 0)) == "item_not_found"
    assert only(world.ack(500, response_id=second), ev.PlaybackAcknowledged).history == HALF


@rule("I23")
def test_an_acknowledgement_is_activity() -> None:
    world = World()
    world.answer(TEXT, 1_000)
    world.wait(200_000)
    world.ack(1_000)
    assert world.session.lease.last_activity == world.now


# -- the order of acknowledgements ---------------------------------------------------------------------------

ACK = st.tuples(
    st.integers(-10, 1_500),
    st.sampled_from([None, None, 0, 250, 700, 2_000]),
    st.sampled_from([False, False, False, True]),
)


@rule("P40", "I7", "I8", "Q4.13", "I16")
@given(
    acks=st.lists(ACK, min_size=1, max_size=5),
    policy=st.sampled_from(["ack_only", "commit_all_on_done"]),
    cut=st.sampled_from(["", "", "barge_in", "truncate"]),
    unaligned=st.booleans(),
    ends_at=st.integers(0, 6),
    order=st.randoms(use_true_random=False),
)
def test_the_order_and_number_of_acknowledgements_does_not_matter(
    acks: list[tuple[int, int | None, bool]],
    policy: PlaybackPolicy,
    cut: str,
    unaligned: bool,
    ends_at: int,
    order: Random,
) -> None:
    """Late, repeated, oversized and reordered: history is the same, also when the answer ends in between."""
    shuffled = [*acks, *order.sample(acks, order.randint(0, len(acks)))]
    order.shuffle(shuffled)

    def history(sequence: list[tuple[int, int | None, bool]], end: int) -> tuple[list[str], str]:
        world = World(policy=policy, capabilities=APART if unaligned else None)
        response_id = world.begin()
        world.produce(TEXT, 1_000)
        world.wait(400)
        if cut == "barge_in":
            world.barge_in()
        elif cut == "truncate":
            world.truncate(f"item_{response_id}", 600)
        for index, (played, committed, truncate) in enumerate(sequence):
            if index == end and world.session.response is not None:
                world.finish()
            world.ack(played, committed, response_id, truncate=truncate)
        if world.session.response is not None:
            world.finish()
        return world.heard(), world.shown(f"item_{response_id}")

    assert history(acks, 0) == history(shuffled, ends_at)


@rule("P38", "P39", "I7")
@given(acks=st.lists(st.integers(-10, 2_000), max_size=6), later=st.integers(500, 900))
def test_an_oversized_acknowledgement_never_covers_sound_that_comes_later(acks: list[int], later: int) -> None:
    world = World()
    response_id = world.begin()
    world.produce(HALF, 500)
    for played in acks:
        world.ack(played)
    world.produce(TEXT.removeprefix(HALF), later)
    world.finish()
    playout = world.session.playouts[response_id]
    assert playout.committed_ms <= playout.played_ms <= 500
    assert all(HALF.startswith(words) for words in world.heard())


# -- what a client restores ----------------------------------------------------------------------------------


@rule("I15")
@pytest.mark.parametrize("part", [TextPart("I said this."), AudioPart("I said this.")])
def test_a_restored_item_is_no_output_of_ours_and_cannot_be_truncated(part: TextPart | AudioPart) -> None:
    world = World(dialect="ga")
    world.item(Message(id="item_resp_old", role="assistant", content=(part,)))
    refused = world.truncate("item_resp_old", 0)
    assert error(refused) == "bad_event"
    assert world.heard() == ["I said this."]


@rule("I3", "I20")
def test_marks_of_a_long_answer_are_kept_in_place() -> None:
    """Their cost does not grow with what was said before."""
    world = World()
    world.begin()
    world.produce("word ", 100, marks=(TextMark(5, 100),))
    (playout,) = world.session.playouts.values()
    kept = playout.marks
    for number in range(2, 50):
        world.produce("word ", 100, marks=(TextMark(5 * number, 100 * number),))
    assert world.session.playouts[playout.response_id].marks is kept
    assert kept == [TextMark(5 * number, 100 * number) for number in range(1, 50)]
    world.wait(250)
    world.cancel()
    assert world.heard() == ["word word"]
