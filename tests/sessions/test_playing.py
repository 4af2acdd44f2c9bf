"""What was heard: acknowledgements, truncation, clearing the output (BEHAVIOURS I, DESIGN 5.10, WIRE 6.7)."""

from random import Random
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import TextMark
from antiphon.events.items import AudioPart, Message

from tests.rules import rule
from tests.sessions.world import World, error, kinds, only

TEXT = "one two three four five six seven eight nine ten"
"""Ten words of about 100 ms each in a second of sound."""


def clear_output(world: World, response_id: str | None = None) -> list[ev.AnyEvent]:
    return world.do(cmd.ClearOutput(attachment=world.attachment, response_id=response_id))


# -- acknowledgements ----------------------------------------------------------------------------------------


@rule("I13", "I1")
def test_i13_unheard_text_waits_for_its_first_acknowledgement() -> None:
    world = World()
    world.answer(TEXT, 1_000)
    assert world.heard() == []
    told = only(world.ack(500), ev.PlaybackAcknowledged)
    assert (told.playback.played_ms, told.playback.committed_ms) == (500, 500)
    assert told.history_committed
    assert world.heard() == [told.history] == ["one two three four five"]
    world.ack(1_000)
    assert world.heard() == [TEXT]


@rule("I7", "Q4.13", "I8")
def test_i7_cursors_only_grow_and_are_clamped_to_what_was_sent() -> None:
    world = World()
    response_id = world.answer(TEXT, 1_000)
    world.ack(99_999)
    assert world.session.playouts[response_id].committed_ms == 1_000
    told = only(world.ack(200), ev.PlaybackAcknowledged)
    assert (told.played_ms, told.committed_ms) == (200, 200)
    assert told.playback.committed_ms == 1_000
    assert world.heard() == [TEXT]


@rule("I7", "Q4.13")
def test_i7_an_early_oversized_acknowledgement_does_not_cover_later_sound() -> None:
    world = World()
    response_id = world.begin()
    world.produce("one two", 200)
    world.ack(99_999)
    world.produce(" three four", 200)
    world.finish()
    assert world.session.playouts[response_id].committed_ms == 200
    assert world.heard() == ["one two"]


@rule("I6", "I7")
def test_i6_less_may_be_committed_than_was_played() -> None:
    world = World()
    response_id = world.answer(TEXT, 1_000)
    told = only(world.ack(800, committed_ms=300), ev.PlaybackAcknowledged)
    assert (told.playback.played_ms, told.playback.committed_ms) == (800, 300)
    told = only(world.ack(100, committed_ms=900), ev.PlaybackAcknowledged)
    assert (told.playback.played_ms, told.playback.committed_ms) == (900, 900)
    assert world.session.playouts[response_id].played_ms == 900


@rule("I6")
def test_i6_the_target_is_named_by_response_or_item() -> None:
    world = World()
    first = world.answer(TEXT, 1_000)
    world.wait(1_000)
    second = world.answer("More.", 100)
    assert only(world.ack(10), ev.PlaybackAcknowledged).response_id == second
    assert only(world.ack(10, response_id=first), ev.PlaybackAcknowledged).response_id == first
    by_item = only(world.ack(10, item_id=f"item_{first}"), ev.PlaybackAcknowledged)
    assert (by_item.response_id, by_item.item_id) == (first, f"item_{first}")
    assert error(world.ack(10, response_id=first, item_id=f"item_{second}")) == "playback_item_mismatch"
    assert error(world.ack(10, response_id="resp_none")) == "playback_item_not_found"
    assert error(World().ack(10)) == "playback_item_not_found"


@rule("I1")
def test_wire_6_7_the_other_policy_remembers_all_at_the_end() -> None:
    world = World(dialect="ga")
    world.begin()
    world.produce(TEXT, 1_000)
    assert not only(world.ack(0), ev.PlaybackAcknowledged).history_committed
    ended = only(world.finish(), ev.ResponseEnded)
    assert ended.committed
    assert world.heard() == [TEXT]


@rule("I16")
def test_wire_2_14_an_acknowledgement_may_truncate() -> None:
    for dialect in ("ga", "duplex"):
        world = World(dialect="ga" if dialect == "ga" else "duplex")
        response_id = world.answer(TEXT, 1_000)
        world.ack(1_000)
        told = only(world.ack(500, truncate=True), ev.PlaybackAcknowledged)
        assert told.playback.committed_ms == 500
        assert world.heard() == ["one two three four five"]
        assert world.shown(f"item_{response_id}") == "one two three four five"


@rule("I16")
def test_i16_a_truncation_is_a_cap_for_ever() -> None:
    world = World()
    world.answer(TEXT, 1_000)
    world.ack(500, truncate=True)
    told = only(world.ack(900), ev.PlaybackAcknowledged)
    assert (told.playback.played_ms, told.playback.committed_ms) == (900, 500)
    world.ack(800, truncate=True)
    assert world.heard() == ["one two three four five"]
    world.ack(200, truncate=True)
    assert world.heard() == ["one two"]


@rule("I8", "P40", "Q4.13")
@given(
    acks=st.lists(st.integers(-10, 1_500), min_size=2, max_size=4),
    cut=st.sampled_from(["", "barge_in", "truncate"]),
    policy=st.sampled_from(["ack_only", "commit_all_on_done"]),
    order=st.randoms(use_true_random=False),
)
def test_p40_the_order_of_acknowledgements_does_not_matter(
    acks: list[int], cut: str, policy: Literal["ack_only", "commit_all_on_done"], order: Random
) -> None:
    shuffled = [*acks, acks[0]]
    order.shuffle(shuffled)

    def history(sequence: list[int]) -> tuple[list[str], str]:
        world = World(policy=policy)
        response_id = world.answer(TEXT, 1_000)
        world.wait(400)
        if cut == "barge_in":
            world.barge_in()
        elif cut == "truncate":
            world.truncate(f"item_{response_id}", 600)
        for played_ms in sequence:
            world.ack(played_ms)
        return world.heard(), world.shown(f"item_{response_id}")

    assert history(acks) == history(shuffled)


@rule("I8", "P39")
@given(acks=st.lists(st.integers(0, 1_200), min_size=1, max_size=6))
def test_p39_history_grows_with_the_acknowledged_position(acks: list[int]) -> None:
    world = World()
    world.answer(TEXT, 1_000)
    last = ""
    for played_ms in acks:
        world.ack(played_ms)
        said = " ".join(world.heard())
        assert said.startswith(last)
        assert TEXT.startswith(said)
        last = said


# -- truncation ----------------------------------------------------------------------------------------------


@rule("I15")
def test_i15_truncation_shortens_item_and_history() -> None:
    world = World(dialect="ga")
    response_id = world.answer(TEXT, 1_000)
    told = only(world.truncate(f"item_{response_id}", 500), ev.ItemTruncated)
    assert (told.audio_end_ms, told.text) == (500, "one two three four five")
    item = world.session.conversation.entries[f"item_{response_id}"].item
    assert isinstance(item, Message)
    assert item.content == (AudioPart(told.text, None, 24_000, 500),)
    assert world.heard() == [told.text]
    assert world.session.playouts[response_id].committed_ms == 500


@rule("I16")
def test_wire_6_7_a_truncation_only_shortens() -> None:
    world = World(dialect="ga")
    response_id = world.answer(TEXT, 1_000)
    world.truncate(f"item_{response_id}", 300)
    assert only(world.truncate(f"item_{response_id}", 900), ev.ItemTruncated).audio_end_ms == 300
    assert only(world.truncate(f"item_{response_id}", 100), ev.ItemTruncated).audio_end_ms == 100


@rule("I16")
def test_i16_a_truncation_of_a_running_response_cuts_its_terminal_item() -> None:
    world = World(dialect="ga")
    response_id = world.begin()
    world.produce("one two three", 300)
    world.truncate(f"item_{response_id}", 100)
    world.produce(" four five", 200)
    ended = only(world.finish(), ev.ResponseEnded)
    assert ended.text == "one two three four five"
    assert ended.item is not None
    assert ended.item.content == (AudioPart("one", None, 24_000, 100),)
    assert world.heard() == ["one"]


@rule("I15")
def test_wire_6_7_what_cannot_be_truncated_is_refused() -> None:
    world = World(dialect="ga")
    response_id = world.answer(TEXT, 1_000)
    item_id = f"item_{response_id}"
    asked = world.session.conversation.order[0]
    assert error(world.truncate("", 0)) == "missing_item_id"
    assert error(world.truncate("none", 0)) == "item_not_found"
    for events, param, detail in (
        (world.truncate(asked, 0), "item_id", "not_audio"),
        (world.truncate(item_id, 0, content_index=1), "content_index", "value"),
        (world.truncate(item_id, 1_001), "audio_end_ms", "value"),
        (world.truncate(item_id, -1), "audio_end_ms", "value"),
    ):
        (refused,) = events
        assert isinstance(refused, ev.ErrorReported)
        assert (refused.code, refused.param, refused.detail) == ("bad_event", param, detail)
    world.say("Nothing was said.", "item_resp_x")
    assert error(world.truncate("item_resp_x", 0)) == "bad_event"


# -- interruption --------------------------------------------------------------------------------------------


@rule("I17", "I19")
def test_design_5_10_without_acknowledgement_the_playout_model_says_what_was_heard() -> None:
    world = World(dialect="ga")
    world.begin()
    world.produce(TEXT, 1_000)
    world.wait(450)
    events = world.cancel()
    cut = only(events, ev.HistoryCut)
    assert (cut.ms, cut.basis, cut.text) == (450, "playout", "one two three four")
    ended = only(events, ev.ResponseEnded)
    assert ended.text == TEXT
    assert ended.item is not None
    assert ended.item.content == (AudioPart(cut.text, None, 24_000, 450),)
    assert world.heard() == [cut.text]


@rule("I17")
def test_design_5_10_an_acknowledgement_is_believed_before_the_model() -> None:
    world = World()
    world.begin()
    world.produce(TEXT, 1_000)
    world.wait(900)
    world.ack(200)
    cut = only(world.cancel(), ev.HistoryCut)
    assert (cut.ms, cut.basis, cut.text) == (200, "ack", "one two")


@rule("I16", "I17")
def test_design_5_10_a_truncation_is_believed_first() -> None:
    world = World()
    response_id = world.begin()
    world.produce(TEXT, 1_000)
    world.ack(900)
    world.truncate(f"item_{response_id}", 300)
    events = world.cancel()
    assert "HistoryCut" not in kinds(events)
    assert world.heard() == ["one two three"]


@rule("I17", "G30")
def test_design_5_10_an_interruption_cuts_also_behind_the_terminal() -> None:
    world = World(dialect="ga")
    response_id = world.answer(TEXT, 1_000)
    assert world.heard() == [TEXT]
    world.wait(450)
    events = world.barge_in()
    assert kinds(events) == ["Interrupted", "HistoryCut", "OutputCleared"]
    assert only(events, ev.OutputCleared).asked
    assert world.heard() == ["one two three four"]
    assert world.shown(f"item_{response_id}") == "one two three four"
    assert world.session.epoch == 1


@rule("I17")
def test_design_5_10_when_all_was_heard_nothing_is_cut() -> None:
    world = World(dialect="ga")
    world.answer(TEXT, 1_000)
    world.wait(1_000)
    assert kinds(world.barge_in()) == ["InputCleared"]
    assert world.heard() == [TEXT]


@rule("I16")
def test_design_5_10_a_truncation_within_five_seconds_corrects_the_estimate_either_way() -> None:
    for ms, words in ((300, "one two three"), (800, "one two three four five six seven eight")):
        world = World(dialect="ga")
        response_id = world.answer(TEXT, 1_000)
        world.wait(500)
        world.barge_in()
        world.wait(5_000)
        told = only(world.truncate(f"item_{response_id}", ms), ev.ItemTruncated)
        assert told.audio_end_ms == ms
        item = world.session.conversation.entries[f"item_{response_id}"].item
        assert isinstance(item, Message)
        assert item.content == (AudioPart(told.text, None, 24_000, ms),)
        assert TEXT.startswith(words[: len(told.text)])
        assert world.heard() == [told.text]


@rule("I16")
def test_design_5_10_a_later_truncation_only_shortens() -> None:
    world = World(dialect="ga")
    response_id = world.answer(TEXT, 1_000)
    world.wait(500)
    world.barge_in()
    world.wait(5_001)
    assert only(world.truncate(f"item_{response_id}", 800), ev.ItemTruncated).audio_end_ms == 500
    assert only(world.truncate(f"item_{response_id}", 200), ev.ItemTruncated).audio_end_ms == 200


def test_design_5_10_an_acknowledgement_corrects_an_estimate_upwards() -> None:
    world = World()
    response_id = world.answer(TEXT, 1_000)
    world.wait(300)
    world.barge_in()
    world.ack(200)
    assert world.heard() == ["one two three"]
    world.ack(700)
    assert world.session.playouts[response_id].cap_ms == 700
    assert world.shown(f"item_{response_id}") == world.heard()[0]
    world.wait(5_001)
    told = only(world.ack(900), ev.PlaybackAcknowledged)
    assert told.playback.committed_ms == 700


def test_design_5_10_sound_that_waits_behind_other_sound_was_not_heard() -> None:
    world = World(dialect="ga")
    first = world.answer(TEXT, 1_000)
    world.wait(100)
    world.begin()
    world.produce("Never heard", 500)
    world.wait(400)
    events = world.cancel()
    cuts = [event for event in events if isinstance(event, ev.HistoryCut)]
    assert [(cut.response_id == first, cut.ms) for cut in cuts] == [(True, 500), (False, 0)]
    assert world.heard() == ["one two three four five"]


def test_a_text_answer_does_not_hide_the_sound_before_it() -> None:
    world = World(dialect="ga")
    first = world.answer(TEXT, 1_000)
    world.say("In writing, please.")
    world.respond(cmd.ResponseOptions(output_modalities=("text",)))
    world.produce("Fine.")
    world.finish()
    world.wait(500)
    events = world.barge_in()
    assert only(events, ev.OutputCleared).response_id == first
    assert world.heard() == ["one two three four five", "Fine."]


def test_sound_that_nobody_could_hear_begins_to_play_at_the_resume() -> None:
    world = World()
    world.begin()
    world.detach()
    world.produce(TEXT, 1_000)
    world.wait(5_000)
    world.resume()
    world.wait(300)
    cut = only(world.cancel(), ev.HistoryCut)
    assert (cut.ms, cut.basis) == (300, "playout")


@rule("I2")
def test_i2_text_without_sound_is_remembered_as_a_whole() -> None:
    world = World(modalities=("text",))
    world.begin()
    world.produce("one two three")
    events = world.cancel()
    assert "HistoryCut" not in kinds(events)
    assert world.heard() == ["one two three"]


@rule("I3")
def test_marks_say_where_the_words_are() -> None:
    world = World(dialect="ga")
    world.begin()
    world.produce(TEXT, 1_000, marks=(TextMark(7, 600), TextMark(len(TEXT), 1_000)))
    world.wait(600)
    assert only(world.cancel(), ev.HistoryCut).text == "one two"


@rule("I19")
def test_i19_a_client_that_stopped_to_acknowledge_is_waited_for_twice_the_rest() -> None:
    world = World()
    world.answer(TEXT, 1_000)
    world.ack(600)
    world.say("More?")
    world.wait(799)
    assert error(world.respond()) == "response_already_active"
    world.wait(1)
    assert kinds(world.respond())[0] == "ResponseCreated"


# -- output_audio_buffer.clear -------------------------------------------------------------------------------


@rule("G30")
def test_g30_clear_of_an_idle_session_only_answers() -> None:
    world = World()
    events = clear_output(world)
    assert kinds(events) == ["OutputCleared"]
    assert only(events, ev.OutputCleared).response_id is None
    assert world.session.epoch == 0


@rule("G30")
def test_wire_2_5_the_reply_comes_before_the_terminal() -> None:
    world = World()
    response_id = world.begin()
    world.produce(TEXT, 1_000)
    events = clear_output(world)
    assert kinds(events) == ["OutputCleared", "Interrupted", "HistoryCut", "ResponseEnded"]
    assert only(events, ev.OutputCleared).response_id == response_id
    ended = only(events, ev.ResponseEnded)
    assert (ended.reason, ended.cause) == ("client_cancelled", "output_audio_buffer_clear")


@rule("G37")
def test_g37_clear_of_the_output_spares_the_input() -> None:
    world = World()
    world.begin()
    world.append(2)
    clear_output(world)
    assert world.session.input.reserved == 2_048


@rule("G30", "Q4.9")
def test_g30_clear_of_mere_playback_stops_no_stage() -> None:
    world = World(plugin="echo", auto=True)
    world.append()
    world.produce("one two", 1_000, world.resident)
    world.finish()
    world.append()
    resident = world.resident
    events = clear_output(world)
    assert kinds(events) == ["OutputCleared", "Interrupted", "HistoryCut"]
    assert world.effects(events) == []
    assert world.resident == resident
    assert only(world.append(), ev.UnitTaken).request == resident


@rule("G30")
def test_g30_clear_behind_the_playback_moves_no_epoch() -> None:
    world = World()
    world.answer(TEXT, 1_000)
    world.wait(1_000)
    assert kinds(clear_output(world)) == ["OutputCleared"]
    assert world.session.epoch == 0


@rule("G32", "I20")
def test_g32_clear_of_an_older_response_leaves_the_newer_alone() -> None:
    world = World(dialect="ga")
    first = world.answer(TEXT, 1_000)
    second = world.begin()
    world.produce("two", 100)
    world.wait(500)
    events = clear_output(world, first)
    assert kinds(events) == ["OutputCleared", "HistoryCut"]
    assert world.session.response is not None
    assert world.session.response.head.id == second
    assert world.session.epoch == 0
    assert kinds(clear_output(world, first)) == ["OutputCleared"]
    assert kinds(clear_output(world, "resp_none")) == ["OutputCleared"]


@rule("F23")
def test_f23_clear_gives_the_answer_that_waited() -> None:
    world = World()
    world.begin()
    world.append(4)
    world.commit(create_response=True)
    events = clear_output(world)
    assert kinds(events) == [
        "OutputCleared",
        "Interrupted",
        "ResponseEnded",
        "ResponseCreated",
        "RequestSubmitted",
    ]
    assert not world.session.turn.deferred


@rule("I21")
def test_deleting_an_answer_forgets_what_was_heard_of_it() -> None:
    world = World()
    response_id = world.answer(TEXT, 1_000)
    world.do(cmd.DeleteItem(attachment=1, item_id=f"item_{response_id}"))
    assert error(world.ack(10, response_id=response_id)) == "playback_item_not_found"
    assert world.session.playouts == {}


@rule("I2", "I16")
@pytest.mark.parametrize("ended", [False, True])
def test_i2_a_text_is_not_cut_by_a_truncating_acknowledgement(ended: bool) -> None:
    """It has no sound that anybody could have stopped to hear."""
    world = World(modalities=("text",))
    response_id = world.begin()
    world.produce(TEXT)
    if ended:
        world.finish()
    told = only(world.ack(0, response_id=response_id, truncate=True), ev.PlaybackAcknowledged)
    assert not told.truncate
    if not ended:
        world.finish()
    assert world.heard() == [TEXT]
    assert world.shown(f"item_{response_id}") == TEXT
