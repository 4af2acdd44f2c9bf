"""Input: appends, the byte budget, turns found in scores, overlap, commit and clear (BEHAVIOURS E, F)."""

from typing import Any

import msgspec
import pytest

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.audio import SampleRef
from antiphon.events.config import ConfigPatch, Dialect, Limits, TurnDetection
from antiphon.events.items import AudioPart, Message
from antiphon.sessions.plugins import CASCADE, ECHO

from tests.rules import rule
from tests.sessions.world import FRAME, QUICK_VAD, World, capable, error, kinds, only

LISTENS = msgspec.structs.replace(QUICK_VAD, interrupt_response=False)


def spoken(world: World, frames: int = 5) -> list[ev.AnyEvent]:
    """Speak and fall silent until the detector closes the turn; return the events of the last append."""
    world.append(frames, score=900)
    return world.append(10, score=0)


# -- appends and the byte budget -----------------------------------------------------------------------------


@rule("E24")
def test_sound_lies_in_the_stream_where_the_counter_stands() -> None:
    world = World(dialect="ga")
    assert only(world.append(2), ev.AudioReceived).ref == SampleRef("in", 0, 2 * FRAME)
    assert only(world.append(1), ev.AudioReceived).ref == SampleRef("in", 2 * FRAME, FRAME)
    assert world.session.input.reserved == 3 * FRAME


@rule("E6")
def test_e6_a_model_without_audio_input_refuses_it() -> None:
    world = World(capabilities=capable(CASCADE.capabilities, supports_input_append=False))
    assert error(world.append()) == "invalid_input_modality"


@rule("E12")
def test_e12_an_append_over_the_budget_is_refused() -> None:
    world = World(limits=Limits(input_bytes=3 * FRAME))
    world.append(3)
    assert error(world.append()) == "input_backpressure"
    assert world.session.input.position == 3 * FRAME


@rule("E12")
def test_e12_the_budget_counts_what_came_over_the_wire() -> None:
    world = World(limits=Limits(input_bytes=FRAME))
    big = cmd.AppendAudio(attachment=1, size=10, wire_bytes=FRAME + 1)
    assert error(world.do(big)) == "input_backpressure"


@rule("E13", "E39", "P27")
def test_p27_committed_sound_is_held_until_a_request_has_it() -> None:
    world = World(limits=Limits(input_bytes=4 * FRAME))
    world.append(2)
    world.commit()
    assert (world.session.input.reserved, world.session.input.keep_from) == (2 * FRAME, 0)
    world.append(2)
    world.commit()
    assert world.session.input.reserved == 4 * FRAME
    assert error(world.append()) == "input_backpressure"
    world.respond()
    assert (world.session.input.reserved, world.session.input.keep_from) == (0, 4 * FRAME)


@rule("E28")
def test_e28_clear_gives_back_committed_sound_too() -> None:
    world = World()
    world.append(2)
    world.commit()
    world.append()
    assert kinds(world.clear()) == ["InputCleared"]
    assert world.session.input.reserved == 0
    assert world.session.turn.unanswered == 1


@rule("P27")
def test_p27_silence_that_nobody_keeps_is_not_held_behind_a_turn_without_answer() -> None:
    quiet = msgspec.structs.replace(QUICK_VAD, create_response=False)
    world = World(dialect="ga", vad=quiet, limits=Limits(input_bytes=100 * FRAME))
    spoken(world)
    held = world.session.input.reserved
    for _ in range(30):
        assert world.append(10, score=0)
    assert world.session.input.reserved < held + 30 * FRAME


@rule("E13", "P27")
def test_p27_nothing_is_held_behind_the_terminal() -> None:
    world = World()
    world.append(2)
    world.commit()
    world.append(2)
    world.close()
    assert world.session.input.reserved == 0


# -- without server VAD --------------------------------------------------------------------------------------


def test_wire_6_1_a_duplex_append_with_speech_announces_it_once() -> None:
    world = World()
    started = only(world.append(2), ev.SpeechStarted)
    assert (started.audio_start_ms, started.start) == (0, 0)
    assert kinds(world.append()) == ["AudioReceived"]
    assert world.session.turn.state == "user_speaking"
    events = world.commit()
    assert only(events, ev.SpeechStopped).audio_end_ms == 96
    assert only(events, ev.InputCommitted).item_id == started.item_id


def test_wire_6_1_ga_announces_nothing_without_a_detector() -> None:
    world = World(dialect="ga")
    assert kinds(world.append()) == ["AudioReceived"]
    assert kinds(world.append(speech=False)) == ["AudioReceived"]
    assert world.session.input.reserved == 2 * FRAME


@rule("E23")
def test_e23_silence_is_not_buffered_and_told_once() -> None:
    world = World()
    events = world.append(speech=False)
    assert kinds(events) == ["AudioReceived", "ListenDecided"]
    assert only(events, ev.ListenDecided).response_id is None
    assert kinds(world.append(speech=False)) == ["AudioReceived"]
    assert world.session.input.reserved == 0
    assert only(world.append(), ev.SpeechStarted).audio_start_ms == 64


@rule("E23")
def test_e23_silence_inside_an_utterance_is_kept() -> None:
    world = World()
    world.append()
    assert kinds(world.append(speech=False)) == ["AudioReceived"]
    assert world.session.input.reserved == 2 * FRAME


@rule("E23")
def test_e23_silence_during_a_response_is_judged_instead() -> None:
    world = World()
    world.begin()
    assert kinds(world.append(speech=False)) == ["AudioReceived", "OverlapDecided"]


@rule("E23")
def test_an_auto_session_hears_every_piece_at_once() -> None:
    world = World(plugin="echo", auto=True)
    events = world.append()
    assert kinds(events) == ["SpeechStarted", "AudioReceived", "RequestSubmitted", "UnitTaken"]
    feed = [effect for effect in world.effects(events) if isinstance(effect, fx.FeedStage)]
    assert [(fed.request, fed.refs, fed.seq) for fed in feed] == [("duplex-1.e0", (SampleRef("in", 0, FRAME),), 1)]
    quiet = world.append(speech=False)
    assert only(quiet, ev.UnitTaken).request == "duplex-1.e0"
    assert world.session.input.reserved == 2 * FRAME
    world.accept()
    assert world.session.input.reserved == 0
    assert kinds(world.append(speech=False)) == ["AudioReceived", "UnitTaken"]


def test_an_auto_session_does_not_say_that_it_listens() -> None:
    world = World(plugin="echo", auto=True)
    assert kinds(world.append(speech=False)) == ["AudioReceived", "RequestSubmitted", "UnitTaken"]


# -- server VAD ----------------------------------------------------------------------------------------------


@rule("F5")
def test_f5_speech_starts_after_enough_frames_with_its_padding() -> None:
    world = World(dialect="ga", vad=QUICK_VAD)
    world.append(20, score=0)
    assert kinds(world.append(1, score=900)) == ["AudioReceived"]
    started = only(world.append(1, score=900), ev.SpeechStarted)
    assert started.audio_start_ms == 20 * 32 - 300
    assert started.start == (20 * 512 - 4800) * 2
    assert world.session.input.start == started.start


def test_wire_6_1_sound_before_the_padding_is_forgotten() -> None:
    world = World(dialect="ga", vad=QUICK_VAD)
    for _ in range(40):
        world.append(10, score=0)
    assert world.session.input.reserved <= (4800 + 512) * 2
    before = world.session.input.start
    started = only(world.append(2, score=900), ev.SpeechStarted)
    assert started.start >= before


@rule("F11", "E36")
def test_f11_a_stop_commits_and_answers() -> None:
    world = World(dialect="ga", vad=QUICK_VAD)
    started = only(world.append(5, score=900), ev.SpeechStarted)
    events = world.append(10, score=0)
    assert kinds(events) == [
        "AudioReceived",
        "SpeechStopped",
        "InputCommitted",
        "ItemCreated",
        "ResponseCreated",
        "RequestSubmitted",
    ]
    committed = only(events, ev.InputCommitted)
    assert only(events, ev.SpeechStopped).audio_end_ms == 480
    assert committed.item_id == started.item_id == only(events, ev.SpeechStopped).item_id
    assert committed.ref == SampleRef("in", 0, 15 * FRAME)
    assert not committed.no_response
    item = only(events, ev.ItemCreated).item
    assert item == Message(id=started.item_id, role="user", content=(AudioPart(None, committed.ref, 16_000, 480),))
    (submit,) = world.effects(events)
    assert isinstance(submit, fx.SubmitToStage)
    assert submit.payload.items == (item,)


@rule("F11")
def test_wire_6_2_a_stop_without_create_response_only_commits() -> None:
    world = World(dialect="ga", vad=msgspec.structs.replace(QUICK_VAD, create_response=False))
    events = spoken(world)
    assert kinds(events)[-2:] == ["InputCommitted", "ItemCreated"]
    assert only(events, ev.InputCommitted).no_response


@rule("F7")
def test_f7_start_and_stop_in_one_append() -> None:
    world = World(dialect="ga", vad=QUICK_VAD)
    events = world.append(scores=(900, 900) + (0,) * 10)
    assert kinds(events)[:4] == ["AudioReceived", "SpeechStarted", "SpeechStopped", "InputCommitted"]


@rule("F7", "P10")
def test_f7_an_utterance_that_ends_where_another_begins_is_committed() -> None:
    """As if its sound had come in two appends (WIRE 6.1)."""
    detection = msgspec.structs.replace(QUICK_VAD, prefix_padding_ms=0, create_response=False)
    world, twin = (World(dialect="ga", vad=detection) for _ in range(2))
    first = only(world.append(4, score=900), ev.SpeechStarted)
    events = world.append(14, scores=(0,) * 10 + (0, 0, 900, 900))
    committed = only(events, ev.InputCommitted)
    assert committed.item_id == first.item_id
    assert committed.ref == SampleRef("in", 0, 14 * FRAME)
    started = only(events, ev.SpeechStarted)
    assert kinds(events).index("SpeechStopped") < kinds(events).index("InputCommitted") < events.index(started)
    assert (started.item_id != first.item_id, started.start) == (True, 16 * FRAME)
    assert "InputCommitted" in kinds(world.append(10, score=0))
    twin.append(4, score=900)
    twin.append(10, score=0)
    twin.append(scores=(0, 0, 900, 900), frames=4)
    twin.append(10, score=0)
    assert world.session.conversation == twin.session.conversation
    assert world.session.input.vad == twin.session.input.vad


@rule("F7", "F17")
def test_an_utterance_that_begins_in_the_append_that_ended_another_interrupts_its_answer() -> None:
    world = World(vad=msgspec.structs.replace(QUICK_VAD, prefix_padding_ms=0))
    world.append(4, score=900)
    events = world.append(14, scores=(0,) * 10 + (0, 0, 900, 900), transcript="Hello.")
    answered = only(events, ev.ResponseCreated)
    assert only(events, ev.ResponseEnded).head.id == answered.head.id
    assert only(events, ev.OverlapDecided).action == "barge_in"
    texts = [event.transcript for event in events if isinstance(event, ev.AudioReceived)]
    assert texts == ["Hello.", None]


@rule("F7", "F17", "P8")
def test_the_answers_to_all_but_the_last_utterance_of_an_append_are_interrupted_one_by_one() -> None:
    world = World(dialect="ga", vad=msgspec.structs.replace(QUICK_VAD, prefix_padding_ms=0))
    events = world.append(36, scores=((900,) * 2 + (0,) * 10) * 3)
    ended = [event.head.id for event in events if isinstance(event, ev.ResponseEnded)]
    created = [event.head.id for event in events if isinstance(event, ev.ResponseCreated)]
    assert ended == created[:2]
    assert [event.epoch for event in events if isinstance(event, ev.Interrupted)] == [1, 2]
    assert (world.session.epoch, len(created)) == (2, 3)


@rule("F7", "F15", "P8")
@pytest.mark.parametrize("hint", [{"force_barge_in": True}, {"overlap": "barge_in"}])
def test_what_a_client_wants_to_interrupt_is_not_the_answer_to_the_same_append(hint: dict[str, Any]) -> None:
    detection = msgspec.structs.replace(QUICK_VAD, prefix_padding_ms=0, interrupt_response=False)
    world = World(vad=detection)
    world.append(4, score=900)
    size = 14 * FRAME
    scores = (0,) * 10 + (0, 0, 900, 900)
    events = world.do(cmd.AppendAudio(attachment=1, size=size, wire_bytes=size, scores=scores, **hint))
    answered = only(events, ev.ResponseCreated)
    assert world.session.response is not None
    assert world.session.response.head.id == answered.head.id


@rule("F7")
def test_three_utterances_in_one_append_are_three_turns() -> None:
    world = World(dialect="ga", vad=msgspec.structs.replace(QUICK_VAD, create_response=False))
    events = world.append(36, scores=((900,) * 2 + (0,) * 10) * 3)
    assert kinds(events).count("InputCommitted") == 3
    assert kinds(events).count("SpeechStarted") == 3
    assert world.session.input.position == 36 * FRAME


@rule("E30", "P10")
def test_sound_that_the_resampler_keeps_whole_is_no_content() -> None:
    world = World()
    swallowed = cmd.AppendAudio(attachment=1, size=0, wire_bytes=2, speech=True)
    assert kinds(world.do(swallowed)) == ["AudioReceived"]
    assert error(world.commit()) == "input_audio_buffer_empty"
    world = World(plugin="echo", auto=True)
    world.do(swallowed)
    assert error(world.commit()) == "input_audio_buffer_empty"
    world = World()
    world.do(msgspec.structs.replace(swallowed, speech=False))
    world.append(2)
    assert only(world.commit(), ev.InputCommitted).ref == SampleRef("in", 0, 2 * FRAME)


@rule("F8")
def test_f8_nothing_before_the_last_commit_belongs_to_the_next_utterance() -> None:
    world = World(dialect="ga", vad=QUICK_VAD)
    spoken(world)
    started = only(world.append(2, score=900), ev.SpeechStarted)
    assert started.audio_start_ms == 15 * 32


@rule("F4")
def test_the_first_frame_of_an_append_may_have_begun_before_it() -> None:
    world = World(dialect="ga", vad=msgspec.structs.replace(QUICK_VAD, prefix_padding_ms=0))
    world.do(cmd.AppendAudio(attachment=1, size=400))
    world.do(cmd.AppendAudio(attachment=1, size=FRAME * 2 - 400, scores=(0, 900), lead=200))
    started = only(world.do(cmd.AppendAudio(attachment=1, size=FRAME, scores=(900,), lead=0)), ev.SpeechStarted)
    assert started.audio_start_ms == 32


def test_a_session_with_a_detector_ignores_appends_without_scores() -> None:
    world = World(vad=QUICK_VAD)
    assert kinds(world.append()) == ["AudioReceived"]


def unscored(world: World, frames: int = 4, *, speech: bool = True) -> list[ev.AnyEvent]:
    """Send sound that the detector of the session cannot tell anything about."""
    size = frames * FRAME
    return world.do(cmd.AppendAudio(attachment=1, size=size, wire_bytes=size, speech=speech, scored=False))


@rule("F10")
def test_f10_a_session_whose_detector_cannot_tell_goes_on_without_it() -> None:
    world = World(vad=QUICK_VAD)
    assert kinds(unscored(world)) == ["AudioReceived", "SpeechStarted"]
    for _ in range(10):
        unscored(world)
    assert only(world.commit(), ev.InputCommitted).ref == SampleRef("in", 0, 44 * FRAME)
    world = World(dialect="ga", vad=QUICK_VAD)
    for _ in range(10):
        assert kinds(unscored(world)) == ["AudioReceived"]
    assert only(world.commit(), ev.InputCommitted).ref == SampleRef("in", 0, 40 * FRAME)


@rule("F10", "F15")
def test_f15_row_18_speech_interrupts_also_if_no_detector_can_tell() -> None:
    world = overlapping(vad=QUICK_VAD)
    assert only(unscored(world, speech=False), ev.OverlapDecided).reason == "silence_or_noise"
    events = unscored(world)
    decided, ended = only(events, ev.OverlapDecided), only(events, ev.ResponseEnded)
    assert (decided.action, decided.reason) == ("barge_in", "policy_barge_in_on_speech")
    assert (ended.reason, ended.cause) == ("turn_detected", "barge_in")


@rule("F11")
def test_f11_in_an_auto_session_a_stop_does_not_commit() -> None:
    world = World(plugin="echo", auto=True, vad=QUICK_VAD)
    world.append(4, score=900)
    assert kinds(world.append(10, score=0)) == ["SpeechStopped", "AudioReceived", "UnitTaken"]
    assert only(world.append(2, score=900), ev.SpeechStarted).audio_start_ms == 14 * 32 - 300


@rule("L2")
def test_l4_a_detector_replaced_in_mid_utterance_does_not_announce_it_twice() -> None:
    world = World(vad=QUICK_VAD)
    started = only(world.append(5, score=900), ev.SpeechStarted)
    slower = msgspec.structs.replace(QUICK_VAD, silence_duration_ms=640)
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(turn_detection=slower)))
    assert kinds(world.append(5, score=900)) == ["AudioReceived"]
    events = world.append(20, score=0)
    assert only(events, ev.SpeechStopped).item_id == started.item_id
    assert only(events, ev.InputCommitted).ref == SampleRef("in", 0, 30 * FRAME)


# -- overlap -------------------------------------------------------------------------------------------------


@rule("F15", "F17")
def test_f15_row_17_speech_interrupts_the_answer_in_the_same_decision() -> None:
    world = World(vad=QUICK_VAD)
    spoken(world)
    world.produce("One two three", 900)
    world.wait(236)
    events = world.append(2, score=900)
    assert kinds(events) == [
        "AudioReceived",
        "SpeechStarted",
        "OverlapDecided",
        "Interrupted",
        "HistoryCut",
        "ResponseEnded",
    ]
    decided = only(events, ev.OverlapDecided)
    assert (decided.action, decided.reason) == ("barge_in", "server_vad_speech_started")
    assert only(events, ev.HistoryCut).ms == 300
    ended = only(events, ev.ResponseEnded)
    assert (ended.status, ended.reason) == ("cancelled", "turn_detected")
    assert world.session.epoch == 1
    assert world.effects(events) == [fx.AbortRequests(requests=("duplex-1.e0.turn0",))]
    assert world.session.turn.state == "user_speaking"


@rule("F15")
def test_f15_row_17_speech_voids_sound_that_is_still_played() -> None:
    world = World(dialect="ga", vad=QUICK_VAD)
    response_id = world.answer("One two three", 900)
    world.wait(236)
    events = world.append(2, score=900)
    assert kinds(events)[2:] == ["OverlapDecided", "Interrupted", "HistoryCut", "OutputCleared"]
    cleared = only(events, ev.OutputCleared)
    assert (cleared.response_id, cleared.asked) == (response_id, False)


@rule("F15")
def test_f15_row_14_a_session_that_does_not_interrupt_listens() -> None:
    world = World(vad=LISTENS)
    spoken(world)
    world.produce("One", 300)
    decided = only(world.append(2, score=900), ev.OverlapDecided)
    assert (decided.action, decided.reason, decided.policy) == ("listen", "policy_listen_only", "listen_only")
    assert world.session.epoch == 0


@rule("F15", "G33")
def test_f15_row_15_a_model_that_cannot_be_interrupted_listens() -> None:
    world = World(vad=QUICK_VAD, capabilities=capable(CASCADE.capabilities, supports_barge_in=False))
    spoken(world)
    decided = only(world.append(2, score=900), ev.OverlapDecided)
    assert (decided.action, decided.reason) == ("listen", "barge_in_unsupported")
    assert error(world.barge_in()) == "barge_in_unsupported"


@rule("F17")
def test_f17_in_an_auto_session_the_sound_that_cut_in_is_heard_by_the_new_epoch() -> None:
    world = World(plugin="echo", auto=True, vad=QUICK_VAD)
    world.append(4, score=0)
    world.produce("echo", 500, request=world.resident)
    events = world.append(2, score=900)
    assert kinds(events) == [
        "SpeechStarted",
        "OverlapDecided",
        "Interrupted",
        "HistoryCut",
        "ResponseEnded",
        "AudioReceived",
        "RequestSubmitted",
        "UnitTaken",
    ]
    assert only(events, ev.UnitTaken).request == "duplex-1.e1"
    assert world.effects(events)[0] == fx.AbortRequests(requests=("duplex-1.e0",))
    fed = world.effects(events)[-1]
    assert isinstance(fed, fx.FeedStage)
    assert (fed.request, fed.refs, fed.seq) == ("duplex-1.e1", (SampleRef("in", 4 * FRAME, 2 * FRAME),), 1)


@rule("F21", "F22")
def test_wire_6_2_a_turn_that_ends_during_an_answer_is_answered_behind_it() -> None:
    world = World(vad=LISTENS)
    spoken(world)
    world.produce("One", 300)
    world.append(20, score=900)
    assert kinds(world.append(10, score=0))[-1] == "AnswerDeferred"
    assert world.session.turn.deferred
    events = world.finish()
    assert kinds(events) == ["RequestFinished", "ResponseEnded", "ResponseCreated", "RequestSubmitted"]
    assert not world.session.turn.deferred


@rule("I10", "P41")
def test_p41_an_answer_stays_before_what_was_said_after_its_announcement() -> None:
    world = World(vad=LISTENS)
    first = only(spoken(world), ev.ItemCreated).item.id
    world.append(20, score=900)
    second = only(world.append(10, score=0), ev.ItemCreated).item.id
    started = only(world.produce("One", 300), ev.OutputStarted)
    assert started.previous_item_id == first
    assert world.session.conversation.order == [first, started.item.id, second]


def overlapping(dialect: Dialect = "duplex", vad: TurnDetection | None = None) -> World:
    """Return a session that is answering."""
    world = World(dialect=dialect, vad=vad)
    world.begin()
    world.produce("One two three", 900)
    return world


def hint(
    world: World,
    overlap: cmd.OverlapAction | None = None,
    *,
    frames: int = 1,
    speech: bool = True,
    scores: tuple[int, ...] = (),
    force_listen: bool = False,
    force_barge_in: bool = False,
) -> list[ev.AnyEvent]:
    """Send sound with the client's own word about it."""
    return world.do(
        cmd.AppendAudio(
            attachment=1,
            event_id="mine",
            size=frames * FRAME,
            wire_bytes=frames * FRAME,
            scores=scores,
            speech=speech,
            overlap=overlap,
            force_listen=force_listen,
            force_barge_in=force_barge_in,
        )
    )


@rule("F13")
def test_f13_sound_is_judged_only_during_an_answer() -> None:
    world = World()
    for overlap in ("barge_in", "drop", "listen"):
        assert "OverlapDecided" not in kinds(hint(world, overlap))
    world = overlapping()
    assert only(world.append(), ev.OverlapDecided).reason == "policy_listen_only"
    world.finish()
    assert only(world.append(), ev.OverlapDecided).reason == "policy_listen_only", "it is still played"
    world.ack(900)
    assert "OverlapDecided" not in kinds(world.append())


@rule("F14")
def test_f14_the_decision_stands_before_its_consequences_and_counts() -> None:
    world = overlapping()
    events = world.append(3)
    assert kinds(events) == ["AudioReceived", "OverlapDecided", "SpeechStarted"]
    decided = only(events, ev.OverlapDecided)
    assert (decided.policy, decided.action) == ("listen_only", "listen")
    assert (decided.duration_ms, decided.overlap_ms) == (96, 96)
    assert only(world.append(2), ev.OverlapDecided).overlap_ms == 160
    silent = only(world.append(2, speech=False), ev.OverlapDecided)
    assert (silent.action, silent.reason, silent.overlap_ms) == ("drop", "silence_or_noise", 160)


@rule("F14")
def test_f14_each_append_is_told_of_in_the_duplex_dialect_only() -> None:
    world = overlapping(dialect="ga")
    assert kinds(world.append()) == ["AudioReceived"]
    assert kinds(world.append(speech=False)) == ["AudioReceived"]
    world = overlapping(dialect="ga", vad=LISTENS)
    assert "OverlapDecided" in kinds(world.append(2, score=900)), "speech begins"
    assert kinds(world.append(2, score=900)) == ["AudioReceived"]


@rule("F16")
def test_f16_silence_during_an_answer_is_forgotten() -> None:
    world = overlapping()
    world.append(3, speech=False)
    assert world.session.input.reserved == 0
    assert kinds(world.commit()) == ["InputCommitted", "ListenDecided"]


@rule("F16")
def test_f16_a_pause_inside_overlapping_speech_ends_nothing() -> None:
    world = overlapping()
    started = only(world.append(20), ev.SpeechStarted)
    assert kinds(world.append(2, speech=False)) == ["AudioReceived", "OverlapDecided"]
    assert kinds(world.append(20)) == ["AudioReceived", "OverlapDecided"]
    committed = only(world.commit(), ev.InputCommitted)
    assert committed.item_id == started.item_id
    assert committed.ref == SampleRef("in", 0, 42 * FRAME)
    assert committed.overlap_deferred


@rule("F16")
def test_f16_dropped_sound_takes_with_it_what_was_announced() -> None:
    world = overlapping()
    started = only(world.append(20), ev.SpeechStarted)
    events = hint(world, "drop")
    assert kinds(events) == ["AudioReceived", "OverlapDecided", "SpeechStopped", "InputDiscarded"]
    stopped = only(events, ev.SpeechStopped)
    assert (stopped.item_id, stopped.audio_end_ms) == (started.item_id, 640)
    taken = world.session.input
    assert (taken.reserved, taken.item_id, taken.speech, taken.transcript, taken.overlap_ms) == (
        0,
        None,
        False,
        "",
        0,
    )
    assert world.session.response is not None
    assert world.session.turn.state == "assistant_generating"
    assert error(world.commit()) == "input_audio_buffer_empty"


@rule("F16")
def test_f16_what_is_committed_is_not_forgotten_with_it() -> None:
    world = overlapping()
    world.append(25)
    world.commit(create_response=True)
    hint(world, "drop")
    assert (world.session.turn.deferred, world.session.input.retained) == (1, 25 * FRAME)


@rule("F15", "F16")
@pytest.mark.parametrize("overlap", ["continue", "listen"])
def test_f15_rows_3_and_4_what_the_client_calls_no_turn_is_none(overlap: cmd.OverlapAction) -> None:
    world = overlapping()
    world.append(20)
    events = hint(world, overlap, frames=2)
    assert kinds(events)[-1] == "InputDiscarded"
    assert only(events, ev.OverlapDecided).action == "listen"
    assert world.session.input.reserved == 0


@rule("F15")
def test_f15_row_3_long_speech_is_listened_to() -> None:
    world = overlapping()
    events = hint(world, "listen", frames=25)
    assert kinds(events) == ["AudioReceived", "OverlapDecided", "SpeechStarted"]
    assert only(events, ev.OverlapDecided).overlap_ms == 0
    assert world.session.input.reserved == 25 * FRAME


@rule("F15")
def test_f15_row_10_the_client_wants_it_to_be_heard_only() -> None:
    world = overlapping(vad=QUICK_VAD)
    decided = only(hint(world, scores=(900,) * 2, frames=2, force_listen=True), ev.OverlapDecided)
    assert (decided.action, decided.reason) == ("listen", "client_force_listen")
    assert world.session.epoch == 0


@rule("F15", "F16")
def test_f15_row_13_an_acknowledgement_in_words_is_forgotten() -> None:
    world = overlapping()
    events = world.append(4, transcript="Mm-hm.")
    assert kinds(events) == ["AudioReceived", "OverlapDecided", "InputDiscarded"]
    assert only(events, ev.OverlapDecided).reason == "short_ack_transcript"
    assert world.session.response is not None


@rule("F15")
def test_f15_row_16_an_utterance_that_was_open_before_the_answer_does_not_interrupt_it() -> None:
    world = World(vad=QUICK_VAD)
    world.append(20, score=900)
    world.begin()
    events = world.append(4, score=900)
    decided = only(events, ev.OverlapDecided)
    assert (decided.action, decided.reason) == ("listen", "server_vad_utterance_active")
    assert kinds(events) == ["AudioReceived", "OverlapDecided"]
    assert kinds(world.append(10, score=0))[-1] == "AnswerDeferred"


def test_f12_silence_keeps_the_padding_of_the_next_utterance() -> None:
    world = overlapping(vad=QUICK_VAD)
    decided = only(world.append(20, score=0), ev.OverlapDecided)
    assert (decided.action, decided.reason) == ("drop", "silence_or_noise")
    started = only(world.append(2, score=900), ev.SpeechStarted)
    assert started.audio_start_ms == 20 * 32 - 300
    assert world.session.input.start == started.start


@rule("F17")
@pytest.mark.parametrize("forced", [False, True])
def test_f17_a_client_may_interrupt_with_its_sound(forced: bool) -> None:
    world = overlapping()
    world.append(10)
    events = hint(world, None if forced else "barge_in", force_barge_in=forced)
    assert kinds(events) == ["AudioReceived", "OverlapDecided", "Interrupted", "HistoryCut", "ResponseEnded"]
    decided, ended = only(events, ev.OverlapDecided), only(events, ev.ResponseEnded)
    assert decided.reason == ("client_force_barge_in" if forced else "client_overlap_action")
    assert (ended.reason, ended.cause) == ("turn_detected", "barge_in")
    assert (world.session.epoch, world.session.input.overlap_ms) == (1, 0)
    assert world.session.input.reserved == 11 * FRAME, "the new turn begins with what was said"
    assert world.session.turn.state == "user_speaking"


@rule("F17")
def test_f17_the_first_sound_of_a_turn_may_interrupt_too() -> None:
    world = overlapping()
    events = hint(world, "barge_in")
    assert kinds(events)[-1] == "SpeechStarted"
    assert world.session.turn.state == "user_speaking"


@rule("F17")
def test_f17_in_an_auto_session_the_clients_interruption_begins_a_new_epoch() -> None:
    world = World(plugin="echo", auto=True)
    world.append(4)
    world.produce("echo", 500, request=world.resident)
    events = hint(world, "barge_in")
    assert kinds(events)[:2] == ["OverlapDecided", "Interrupted"]
    assert kinds(events)[-3:] == ["AudioReceived", "RequestSubmitted", "UnitTaken"]
    assert only(events, ev.UnitTaken).request == "duplex-1.e1"


@rule("F12")
def test_f12_a_detector_that_hears_speech_asks_no_turn_based_model_merely_to_listen() -> None:
    world = overlapping(vad=QUICK_VAD)
    decided = only(world.append(2, score=900), ev.OverlapDecided)
    assert (decided.action, decided.force_listen) == ("barge_in", False)
    world = overlapping(vad=QUICK_VAD)
    asked = only(hint(world, scores=(900,) * 2, frames=2, force_listen=True), ev.OverlapDecided)
    assert (asked.action, asked.force_listen) == ("listen", True), "the client itself may ask"


@rule("F25")
def test_f25_a_short_question_is_answered() -> None:
    world = World()
    world.append(6)
    events = world.commit(create_response=True)
    assert kinds(events)[-2:] == ["ResponseCreated", "RequestSubmitted"]
    assert world.session.input.reserved == 0


@rule("F18")
def test_f18_the_counter_starts_again_with_the_end_of_an_answer() -> None:
    world = overlapping()
    world.append(10)
    assert world.session.input.overlap_ms == 320
    world.finish()
    assert world.session.input.overlap_ms == 0


@rule("E10")
@pytest.mark.parametrize("in_progress", [False, True])
@pytest.mark.parametrize("overlap", [None, "barge_in"])
def test_e10_an_impossible_interruption_is_an_error_and_the_sound_is_taken(
    in_progress: bool, overlap: cmd.OverlapAction | None
) -> None:
    world = World(capabilities=capable(CASCADE.capabilities, supports_barge_in=False))
    if in_progress:
        world.begin()
    events = hint(world, overlap, force_barge_in=True)
    refused = only(events, ev.ErrorReported)
    assert (refused.code, refused.event_id) == ("barge_in_unsupported", "mine")
    assert events[0] == refused
    assert world.session.input.reserved == FRAME
    assert world.session.epoch == 0
    if in_progress:
        decided = only(events, ev.OverlapDecided)
        assert (decided.action, decided.reason) == ("listen", "barge_in_unsupported")


@rule("E10")
def test_e10_an_interruption_that_is_possible_is_no_error() -> None:
    assert kinds(hint(World(), "barge_in")) == ["AudioReceived", "SpeechStarted"]


@rule("F14")
def test_wire_6_4_row_6_is_told_only_if_something_is_decided() -> None:
    for vad, told in ((None, False), (LISTENS, False), (QUICK_VAD, True)):
        world = World(plugin="echo", auto=True, vad=vad)
        world.append(4, score=0 if vad else None)
        world.produce("echo", 500, request=world.resident)
        events = world.append(1, score=0 if vad else None)
        assert ("OverlapDecided" in kinds(events)) == told
        assert only(events, ev.UnitTaken).request == "duplex-1.e0"
        if told:
            assert only(events, ev.OverlapDecided).reason == "auto_response_continuous"


@rule("P36")
def test_p36_an_auto_session_drops_only_what_the_client_drops() -> None:
    world = World(plugin="echo", auto=True)
    world.append(4)
    world.produce("echo", 500, request=world.resident)
    events = hint(world, "drop")
    assert kinds(events) == ["AudioReceived", "OverlapDecided", "SpeechStopped", "InputDiscarded"]
    assert "UnitTaken" not in kinds(events)
    world.accept()
    assert world.session.input.reserved == 0
    assert only(world.append(), ev.UnitTaken).request == "duplex-1.e0"


# -- commit --------------------------------------------------------------------------------------------------


@rule("E30")
def test_e30_a_commit_of_nothing_is_refused() -> None:
    assert error(World().commit()) == "input_audio_buffer_empty"
    assert error(World(dialect="ga").commit()) == "input_audio_buffer_empty"


def test_wire_2_3_ga_commits_at_least_100_ms() -> None:
    world = World(dialect="ga")
    world.append(3)
    refused = world.commit()[0]
    assert isinstance(refused, ev.ErrorReported)
    assert "at least 100ms of audio, but buffer only has 96.00ms" in refused.message
    assert world.session.input.reserved == 3 * FRAME
    world.append(1)
    assert kinds(world.commit()) == ["InputCommitted", "ItemCreated"]


def test_duplex_commits_anything_that_was_said() -> None:
    world = World()
    world.do(cmd.AppendAudio(attachment=1, size=2))
    assert "InputCommitted" in kinds(world.commit())


@rule("N30", "Q4.26")
def test_a_model_that_decides_on_turns_takes_no_commit() -> None:
    world = World(capabilities=capable(CASCADE.capabilities, supports_client_commit=False))
    world.append()
    assert error(world.commit()) == "unsupported"


@rule("E37")
def test_e37_a_commit_answers_only_if_it_is_asked_to() -> None:
    for dialect, wanted, answered in (
        ("duplex", None, False),
        ("duplex", True, True),
        ("ga", None, False),
        ("ga", True, True),
        ("ga", False, False),
    ):
        world = World(dialect="ga" if dialect == "ga" else "duplex")
        world.append(4)
        events = world.commit(wanted)
        assert ("ResponseCreated" in kinds(events)) == answered
        assert only(events, ev.InputCommitted).no_response != answered


@rule("E37")
def test_wire_2_3_an_auto_response_session_answers_every_commit() -> None:
    for wanted in (None, False):
        world = World(auto=True)
        world.append(4)
        assert "ResponseCreated" in kinds(world.commit(wanted))


@rule("E41")
def test_e41_a_commit_that_is_not_the_last_of_its_turn_is_one_like_any_other() -> None:
    worlds = World(), World()
    for world, final in zip(worlds, (True, False), strict=True):
        world.append(4)
        made = cmd.CommitInput(attachment=1, create_response=True, final=final)
        assert kinds(world.do(made))[-2:] == ["ResponseCreated", "RequestSubmitted"]
    assert worlds[0].log[-1].events == worlds[1].log[-1].events


@rule("E31")
def test_e31_a_commit_of_an_auto_session_makes_an_item_and_no_request() -> None:
    world = World(plugin="echo", auto=True)
    world.append(4)
    world.accept()
    events = world.commit()
    assert kinds(events) == ["SpeechStopped", "InputCommitted", "ItemCreated"]
    assert only(events, ev.InputCommitted).ref is None
    assert world.session.input.reserved == 0


@rule("E30")
def test_e30_the_hints_of_all_appends_are_the_transcript() -> None:
    world = World()
    world.append(transcript="Good ")
    world.append(transcript="morning")
    events = world.commit()
    assert only(events, ev.InputCommitted).transcript == "Good morning"
    assert world.shown(only(events, ev.InputCommitted).item_id) == "Good morning"


@rule("E34")
def test_e34_a_commit_of_silence_makes_no_turn() -> None:
    world = World()
    world.append(speech=False)
    events = world.commit(create_response=True)
    assert kinds(events) == ["InputCommitted", "ListenDecided"]
    committed = only(events, ev.InputCommitted)
    assert (committed.empty, committed.is_speech, committed.no_response) == (True, False, True)
    assert world.session.turn.commits == 0
    assert world.session.conversation.order == []


@rule("E34")
def test_e34_the_clients_own_verdict_makes_a_commit_silent() -> None:
    world = World()
    world.append()
    assert kinds(world.commit(is_speech=False)) == ["SpeechStopped", "InputCommitted", "ListenDecided"]
    assert world.session.input.reserved == 0
    assert kinds(world.commit(is_speech=False)) == ["InputCommitted", "ListenDecided"]


def test_wire_2_3_ga_commits_silence_like_anything_else() -> None:
    world = World(dialect="ga")
    world.append(4, speech=False)
    assert kinds(world.commit(is_speech=False)) == ["InputCommitted", "ItemCreated"]


@rule("E14")
def test_e14_not_too_many_turns_wait_for_an_answer() -> None:
    world = World(limits=Limits(pending_commits=2))
    world.begin()
    for _ in range(2):
        world.append()
        assert kinds(world.commit(create_response=True))[-1] == "AnswerDeferred"
    world.append()
    assert error(world.commit(create_response=True)) == "input_backpressure"
    world.finish()
    assert "InputCommitted" in kinds(world.commit(create_response=True))


# -- clear and cancel ----------------------------------------------------------------------------------------


@rule("E28")
def test_wire_2_4_clear_answers_also_when_there_was_nothing() -> None:
    assert kinds(World().clear()) == ["InputCleared"]


@rule("E28", "G37")
def test_g37_clear_ends_the_utterance_and_spares_the_answer() -> None:
    world = World()
    world.begin()
    world.append()
    assert kinds(world.clear()) == ["InputCleared"]
    assert world.session.response is not None
    assert world.session.turn.state == "idle"
    assert world.session.input.item_id is None


@rule("E29", "G30")
def test_e29_input_cancel_interrupts_and_clears_last() -> None:
    world = World()
    world.begin()
    world.append()
    events = world.do(cmd.CancelInput(attachment=1))
    assert kinds(events) == ["Interrupted", "ResponseEnded", "InputCleared"]
    assert only(events, ev.ResponseEnded).reason == "client_cancelled"
    assert kinds(world.do(cmd.CancelInput(attachment=1))) == ["InputCleared"]
    assert world.session.epoch == 1


@rule("G30", "E30")
def test_an_interruption_forgets_also_that_there_was_silence() -> None:
    world = World()
    world.begin()
    world.append(speech=False)
    assert kinds(world.barge_in())[-1] == "InputDropped"
    assert error(world.commit()) == "input_audio_buffer_empty"


@rule("G30")
def test_wire_2_16_barge_in_drops_what_was_not_committed() -> None:
    world = World()
    world.begin()
    world.append()
    events = world.barge_in()
    assert kinds(events) == ["Interrupted", "ResponseEnded", "InputDropped"]
    assert (only(events, ev.ResponseEnded).reason, only(events, ev.ResponseEnded).cause) == (
        "turn_detected",
        "barge_in",
    )
    assert world.session.input.reserved == 0


@rule("G30")
def test_wire_2_16_barge_in_without_input_drops_nothing() -> None:
    world = World()
    world.begin()
    assert kinds(world.barge_in()) == ["Interrupted", "ResponseEnded"]
    assert world.session.turn.state == "barge_in"


@rule("G30", "P8")
def test_design_5_1_barge_in_of_an_idle_session_keeps_the_epoch() -> None:
    world = World()
    assert kinds(world.barge_in()) == ["InputCleared"]
    assert world.session.epoch == 0


@rule("G30")
def test_g30_barge_in_of_a_listening_resident_keeps_its_memory() -> None:
    world = World(plugin="echo", auto=True)
    world.append()
    world.accept()
    assert kinds(world.barge_in()) == ["InputCleared"]
    assert world.resident == "duplex-1.e0"


def test_a_semantic_detector_without_words_waits_as_its_eagerness_says() -> None:
    able = capable(CASCADE.capabilities, transcribes_ahead=False)
    world = World(dialect="ga", vad=TurnDetection(type="semantic_vad", eagerness="high"), capabilities=able)
    world.append(5, score=900)
    assert kinds(world.append(15, score=0)) == ["AudioReceived"]
    assert "SpeechStopped" in kinds(world.append(1, score=0))


@rule("E10", "F13", "P30")
@pytest.mark.parametrize("wish", [{"force_barge_in": True}, {"overlap": "barge_in"}])
def test_e10_a_model_that_listens_and_cannot_be_interrupted_hears_the_sound_at_once(wish: dict[str, Any]) -> None:
    able = capable(ECHO.capabilities, supports_barge_in=False)
    world = World(plugin="echo", auto=True, capabilities=able)
    world.append()
    world.accept()
    world.produce("One, two, three.", 5_000, world.resident)
    events = world.do(
        cmd.AppendAudio(attachment=1, size=FRAME, wire_bytes=FRAME, speech=True, event_id="mine", **wish)
    )
    refused = only(events, ev.ErrorReported)
    assert (refused.code, refused.event_id) == ("barge_in_unsupported", "mine")
    assert only(events, ev.UnitTaken).refs == (only(events, ev.AudioReceived).ref,)
    assert world.session.input.stream.waiting == 0


@rule("F7", "E37")
@pytest.mark.parametrize(("dialect", "answered"), [("duplex", True), ("ga", False)])
def test_whether_a_detected_turn_is_answered_without_the_detectors_wish(dialect: Dialect, answered: bool) -> None:
    quiet = msgspec.structs.replace(QUICK_VAD, create_response=False)
    world = World(dialect=dialect, vad=quiet, auto=True)
    events = world.append(scores=(900,) * 4 + (0,) * 10, frames=14)
    assert "InputCommitted" in kinds(events)
    assert ("ResponseCreated" in kinds(events)) == answered
