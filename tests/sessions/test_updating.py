"""session.update: all of it or nothing (BEHAVIOURS L, WIRE 4)."""

import msgspec

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.config import ConfigPatch
from antiphon.sessions import core

from tests.rules import rule
from tests.sessions.world import QUICK_VAD, World, error, kinds, only


def update(world: World, patch: ConfigPatch) -> list[ev.AnyEvent]:
    return world.do(cmd.UpdateSession(attachment=world.attachment, patch=patch))


@rule("L2")
def test_l2_an_update_is_one_event_with_the_whole_session() -> None:
    world = World()
    updated = only(update(world, ConfigPatch(instructions="Be brief.")), ev.ConfigUpdated)
    assert updated.config.instructions == "Be brief."
    assert updated.view == core.view(world.session)
    assert world.session.config == updated.config


@rule("L7")
def test_l7_absent_fields_keep_their_value_and_echoes_are_merged() -> None:
    world = World()
    update(world, ConfigPatch(instructions="Be brief.", echo={"a": "1", "b": "2"}))
    update(world, ConfigPatch(echo={"b": "3"}))
    assert world.session.config.instructions == "Be brief."
    assert world.session.config.echo == {"a": "1", "b": "3"}
    assert kinds(update(world, ConfigPatch())) == ["ConfigUpdated"]


@rule("L6")
def test_l6_the_model_cannot_be_changed_but_repeated() -> None:
    world = World()
    assert error(update(world, ConfigPatch(model="other", instructions="x"))) == "model_update_unsupported"
    assert world.session.config.instructions == ""
    assert kinds(update(world, ConfigPatch(model="voice-1"))) == ["ConfigUpdated"]


@rule("I1", "L11", "Q4.17")
def test_l11_the_playback_policy_is_fixed() -> None:
    world = World()
    refused = error(update(world, ConfigPatch(playback_policy="commit_all_on_done")))
    assert refused == "playback_policy_update_unsupported"
    assert kinds(update(world, ConfigPatch(playback_policy="ack_only"))) == ["ConfigUpdated"]


@rule("L6")
def test_l6_the_voice_is_fixed_once_it_was_heard() -> None:
    world = World()
    assert kinds(update(world, ConfigPatch(voice="joe"))) == ["ConfigUpdated"]
    world.answer()
    assert error(update(world, ConfigPatch(voice="default"))) == "voice_update_after_audio_unsupported"
    assert kinds(update(world, ConfigPatch(voice="joe"))) == ["ConfigUpdated"]


def test_a_voice_that_the_model_lacks_is_refused() -> None:
    assert error(update(World(), ConfigPatch(voice="nobody"))) == "bad_event"
    assert kinds(update(World(), ConfigPatch(voice="alloy"))) == ["ConfigUpdated"]


@rule("F1", "L10")
def test_f1_turn_detection_decides_the_overlap_policy() -> None:
    world = World()
    update(world, ConfigPatch(turn_detection=QUICK_VAD))
    assert world.session.config.overlap_policy == "barge_in_on_speech"
    update(world, ConfigPatch(instructions="x"))
    assert world.session.config.overlap_policy == "barge_in_on_speech"
    patient = msgspec.structs.replace(QUICK_VAD, interrupt_response=False)
    update(world, ConfigPatch(turn_detection=patient))
    assert world.session.config.overlap_policy == "listen_only"
    update(world, ConfigPatch(turn_detection=QUICK_VAD))
    update(world, ConfigPatch(turn_detection=None))
    assert world.session.config.overlap_policy == "listen_only"


@rule("F3")
def test_f3_an_explicit_overlap_policy_must_agree() -> None:
    world = World()
    refused = update(world, ConfigPatch(overlap_policy="barge_in_on_speech"))
    assert error(refused) == "unsupported_turn_detection"
    assert kinds(update(world, ConfigPatch(overlap_policy="listen_only"))) == ["ConfigUpdated"]
    both = ConfigPatch(turn_detection=QUICK_VAD, overlap_policy="barge_in_on_speech")
    assert kinds(update(world, both)) == ["ConfigUpdated"]


@rule("L3")
def test_l3_an_update_of_something_else_leaves_the_detector_alone() -> None:
    world = World(vad=QUICK_VAD)
    world.append(4, score=900)
    update(world, ConfigPatch(instructions="x", turn_detection=QUICK_VAD))
    assert "InputCommitted" in kinds(world.append(10, score=0))


@rule("F8", "L2")
def test_l2_a_replaced_detector_starts_on_the_sessions_clock() -> None:
    world = World(vad=QUICK_VAD)
    world.append(10, score=0)
    update(world, ConfigPatch(turn_detection=msgspec.structs.replace(QUICK_VAD, threshold=0.8)))
    assert only(world.append(2, score=900), ev.SpeechStarted).audio_start_ms == 320


def test_turn_detection_taken_away_in_mid_utterance_leaves_it_to_the_client() -> None:
    world = World(dialect="ga", vad=QUICK_VAD)
    world.append(4, score=900)
    update(world, ConfigPatch(turn_detection=None))
    assert kinds(world.append(20)) == ["AudioReceived"]
    assert kinds(world.commit())[0] == "SpeechStopped"


@rule("L9", "P23")
def test_l9_an_update_reaches_the_next_response() -> None:
    world = World()
    response_id = world.begin()
    update(world, ConfigPatch(output_modalities=("text",)))
    assert only(world.produce("one", 100), ev.OutputStarted).response_id == response_id
    world.finish()
    world.wait(100)
    world.begin()
    assert kinds(world.produce("two")) == ["OutputStarted", "TextDelta"]
