"""The end of a turn during an answer: acknowledgements, and turns that wait (BEHAVIOURS F19-F21, WIRE 6.5)."""

from itertools import product

import msgspec
import pytest

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.config import ConfigPatch, Dialect, Limits, Transcription
from antiphon.events.items import AudioPart, Message, TextPart
from antiphon.sessions.committing import SCHEDULE, Moment, scheduled

from tests.rules import rule
from tests.sessions.world import QUICK_VAD, World, error, kinds, only

LISTENS = msgspec.structs.replace(QUICK_VAD, interrupt_response=False)
LONG, SHORT = 25, 20
"""Frames of 32 ms: 800 and 640 ms of speech over an answer."""


@rule("F20")
def test_f20_the_table_for_every_moment() -> None:
    plans: dict[tuple[bool, bool, bool, bool], str] = {}
    for spoken, busy, overlapping in product((False, True), repeat=3):
        plans[True, spoken, busy, overlapping] = "answer" if spoken else "commit"
        plans[False, spoken, busy, overlapping] = "defer" if busy and overlapping else "commit"
    assert plans == {key: scheduled(Moment(*key)) for key in product((False, True), repeat=4)}


@rule("F20")
def test_f20_every_row_is_used_and_no_moment_has_two() -> None:
    used: set[int] = set()
    for moment in map(Moment._make, product((False, True), repeat=4)):
        fits = [
            n
            for n, (when, _) in enumerate(SCHEDULE)
            if all(want in (None, have) for want, have in zip(when, moment, strict=True))
        ]
        assert len(fits) == 1
        used.update(fits)
    assert used == set(range(len(SCHEDULE)))


@rule("F19")
def test_f19_a_short_overlap_is_an_acknowledgement_and_the_answer_goes_on() -> None:
    world = World()
    world.begin()
    world.produce("One", 300)
    started = only(world.append(SHORT), ev.SpeechStarted)
    events = world.commit()
    assert kinds(events) == ["SpeechStopped", "InputCommitted"]
    committed = only(events, ev.InputCommitted)
    assert committed.item_id == started.item_id
    assert (committed.empty, committed.overlap_ack, committed.no_response) == (True, True, True)
    assert committed.ref is None
    assert not committed.overlap_deferred
    assert world.session.input.reserved == world.session.input.overlap_ms == 0
    assert world.session.turn.commits == 0
    assert world.session.response is not None
    assert world.session.turn.state == "assistant_generating"


@rule("F19")
def test_f19_the_limit_is_still_short() -> None:
    for ms, acknowledged in ((700, True), (701, False)):
        world = World()
        world.begin()
        world.do(cmd.AppendAudio(attachment=1, size=ms * 32))
        assert only(world.commit(), ev.InputCommitted).overlap_ack == acknowledged


@rule("F19")
def test_f19_the_limit_is_the_sessions() -> None:
    world = World()
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(overlap_short_ack_ms=100)))
    world.begin()
    world.append(4)
    assert not only(world.commit(), ev.InputCommitted).overlap_ack


@rule("F19")
def test_f19_the_end_of_a_long_utterance_is_no_acknowledgement_of_the_answer_that_began_in_it() -> None:
    world = World()
    world.append(60)
    world.begin()
    world.append(5)
    committed = only(world.commit(), ev.InputCommitted)
    assert (committed.overlap_ack, committed.overlap_deferred) == (False, True)


@rule("F19")
def test_f19_nor_if_the_turn_before_it_is_answered_while_the_user_goes_on() -> None:
    world = World()
    world.begin()
    world.append(LONG)
    world.commit(create_response=True)
    world.append(60)
    world.finish()
    assert world.session.response is not None
    world.append(5)
    assert not only(world.commit(), ev.InputCommitted).overlap_ack


@rule("F19")
def test_f19_an_acknowledgement_behind_the_last_word_still_counts_while_it_is_played() -> None:
    world = World()
    world.answer(ms=5_000)
    world.append(SHORT)
    assert only(world.commit(), ev.InputCommitted).overlap_ack


@rule("F19", "F21")
def test_wire_6_5_a_client_that_asks_for_an_answer_gets_one() -> None:
    world = World()
    world.begin()
    world.append(SHORT)
    events = world.commit(create_response=True)
    committed = only(events, ev.InputCommitted)
    assert (committed.overlap_deferred, committed.response_create_deferred) == (True, True)
    assert kinds(events)[-1] == "AnswerDeferred"


@rule("F19")
@pytest.mark.parametrize("dialect", ["ga", "beta"])
def test_wire_6_5_only_the_duplex_dialect_knows_acknowledgements(dialect: Dialect) -> None:
    world = World(dialect=dialect)
    world.begin()
    world.append(SHORT)
    committed = only(world.commit(), ev.InputCommitted)
    assert not committed.overlap_ack
    assert not committed.empty


@rule("F19", "F21")
def test_wire_6_5_a_session_that_answers_every_turn_never_discards_one() -> None:
    world = World(auto=True)
    world.begin()
    world.append(1)
    events = world.commit()
    assert only(events, ev.InputCommitted).response_create_deferred
    assert kinds(events)[-1] == "AnswerDeferred"


@rule("F19")
def test_f19_a_detected_turn_may_be_an_acknowledgement_too() -> None:
    world = World(vad=LISTENS)
    world.begin()
    world.append(4, score=900)
    events = world.append(10, score=0)
    assert kinds(events) == ["AudioReceived", "OverlapDecided", "SpeechStopped", "InputCommitted"]
    assert only(events, ev.InputCommitted).overlap_ack


@rule("F20")
def test_f20_speech_before_the_answer_is_no_overlap() -> None:
    world = World()
    world.append(2)
    world.begin()
    committed = only(world.commit(), ev.InputCommitted)
    assert (committed.overlap_ack, committed.overlap_deferred, committed.empty) == (False, False, False)


@rule("F20", "F21")
def test_f20_what_was_asked_for_during_an_answer_waits_even_without_overlap() -> None:
    world = World()
    world.append(2)
    world.begin()
    events = world.commit(create_response=True)
    assert only(events, ev.InputCommitted).response_create_deferred
    assert not only(events, ev.InputCommitted).overlap_deferred
    assert "ResponseCreated" in kinds(world.finish())


@rule("F21")
def test_f21_a_long_overlap_is_committed_at_once_and_waits() -> None:
    world = World()
    world.begin()
    world.append(LONG)
    events = world.commit()
    committed = only(events, ev.InputCommitted)
    assert kinds(events) == ["SpeechStopped", "InputCommitted", "ItemCreated"]
    assert (committed.overlap_deferred, committed.response_create_deferred, committed.no_response) == (
        True,
        False,
        True,
    )
    assert world.session.input.retained == LONG * 1024
    assert world.session.conversation.order[-1] == committed.item_id


@rule("F21")
def test_f21_nothing_buffered_is_not_a_turn() -> None:
    world = World()
    world.begin()
    assert error(world.commit(create_response=True)) == "input_audio_buffer_empty"


@rule("F19")
def test_wire_6_5_speech_in_the_buffer_counts_from_one_commit_to_the_next() -> None:
    world = World()
    world.begin()
    world.append(LONG)
    world.commit()
    world.append(SHORT)
    assert only(world.commit(), ev.InputCommitted).overlap_ack


@rule("E14")
def test_e14_only_turns_whose_answer_waits_are_counted() -> None:
    world = World(limits=Limits(pending_commits=2))
    world.begin()
    for _ in range(4):
        world.append(LONG)
        assert only(world.commit(create_response=False), ev.InputCommitted).overlap_deferred
    for _ in range(2):
        world.append(LONG)
        world.commit(create_response=True)
    assert world.session.turn.deferred == 2
    world.append(LONG)
    assert error(world.commit(create_response=True)) == "input_backpressure"
    assert "InputCommitted" in kinds(world.commit(create_response=False))
    world.append(SHORT)
    assert only(world.commit(), ev.InputCommitted).overlap_ack


@rule("F11")
def test_wire_6_2_a_detector_without_create_response_only_commits() -> None:
    world = World(vad=msgspec.structs.replace(LISTENS, create_response=False))
    world.begin()
    world.append(LONG, score=900)
    events = world.append(10, score=0)
    assert kinds(events)[-2:] == ["InputCommitted", "ItemCreated"]
    assert only(events, ev.InputCommitted).no_response
    assert kinds(world.finish()) == ["RequestFinished", "ResponseEnded"]


@rule("F11")
def test_wire_6_2_with_auto_response_the_server_answers_a_detected_turn_all_the_same() -> None:
    world = World(auto=True, vad=msgspec.structs.replace(QUICK_VAD, create_response=False))
    world.append(4, score=900)
    assert "ResponseCreated" in kinds(world.append(10, score=0))


@rule("E3", "E34")
def test_e3_a_detector_that_heard_nothing_makes_a_commit_silent() -> None:
    world = World(vad=QUICK_VAD)
    world.append(4, score=0)
    assert kinds(world.commit()) == ["InputCommitted", "ListenDecided"]


# -- what is told of a turn (E36, WIRE 3.5) ------------------------------------------------------------------


@rule("E36")
@pytest.mark.parametrize(
    ("dialect", "configured", "told"),
    [
        ("duplex", False, True),
        ("duplex", True, True),
        ("ga", True, True),
        ("ga", False, False),
        ("beta", False, False),
    ],
)
def test_the_clients_own_words_are_the_transcription_of_the_item(
    dialect: Dialect, configured: bool, told: bool
) -> None:
    world = World(dialect=dialect)
    if configured:
        world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(transcription=Transcription())))
    world.append(5, transcript="Good ")
    world.append(5, transcript="day.")
    events = world.commit(create_response=True)
    sealed = kinds(events)[kinds(events).index("InputCommitted") :]
    answer = ["ResponseCreated", "RequestSubmitted"]
    assert sealed == ["InputCommitted", "ItemCreated", *(["UserTranscribed"] if told else []), *answer]
    item = only(events, ev.ItemCreated).item
    assert world.shown(item.id) == "Good day."
    if told:
        words = only(events, ev.UserTranscribed)
        assert (words.item_id, words.text, words.final, words.count) == (item.id, "Good day.", True, 1)
        assert (words.seconds, words.content_index) == (0.32, 0)
    late = cmd.StageTranscribed(request=world.request, item_id=item.id, text="Good day?")
    assert world.do(late) == [], "and none but those"


@rule("E36")
def test_sound_without_words_is_not_transcribed_by_its_commit() -> None:
    world = World()
    world.append(5)
    assert "UserTranscribed" not in kinds(world.commit())
    world.do(cmd.AppendText(attachment=1, text="Good day."))
    assert "UserTranscribed" not in kinds(world.commit())


def test_a_commit_tells_what_the_item_is_made_of_and_how_long_the_history_is() -> None:
    world = World()
    world.say("Hello?")
    world.append(5, transcript="Good day.")
    world.do(cmd.AppendText(attachment=1, text="See this."))
    events = world.commit()
    committed, item = only(events, ev.InputCommitted), only(events, ev.ItemCreated).item
    assert isinstance(item, Message)
    assert (committed.content, committed.history_len) == (item.content, 2)
    world.append(3, score=None, speech=False)
    empty = only(world.commit(is_speech=False), ev.InputCommitted)
    assert (empty.empty, empty.content, empty.history_len) == (True, (), 2)


def test_words_stand_where_the_sound_stands_in_its_item() -> None:
    """WIRE 3.2: `content_index` of a transcription is the part that is the sound."""
    world = World()
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(transcription=Transcription())))
    parts = (TextPart("Listen:"), AudioPart("Known."), AudioPart(size=64))
    world.item(Message(id="item_s", role="user", content=parts))
    world.respond()
    heard = cmd.StageTranscribed(request=world.request, item_id="item_s", text="Good day.")
    assert only(world.do(heard), ev.UserTranscribed).content_index == 2
    assert world.shown("item_s") == "Listen: Known. Good day."


@rule("I15")
def test_only_the_part_that_is_the_sound_can_be_truncated() -> None:
    world = World()
    response_id = world.answer()
    for index in (1, 2**53):
        (refused,) = world.truncate(f"item_{response_id}", 100, index)
        assert isinstance(refused, ev.ErrorReported)
        assert (refused.code, refused.param, refused.detail) == ("bad_event", "content_index", "value")
    assert only(world.truncate(f"item_{response_id}", 100, 0), ev.ItemTruncated).content_index == 0


@rule("E34")
def test_the_id_of_a_commit_of_nothing_is_not_given_again() -> None:
    world = World()
    world.append(2, speech=False)
    first = only(world.commit(), ev.InputCommitted)
    world.append(2, speech=False)
    second = only(world.commit(), ev.InputCommitted)
    assert first.empty
    assert first.item_id != second.item_id
