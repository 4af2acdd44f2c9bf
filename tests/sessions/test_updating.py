"""session.update: all of it or nothing (BEHAVIOURS L, WIRE 4)."""

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import AudioFormat, Recording, SampleRef
from antiphon.events.config import ConfigPatch, Dialect, SessionConfig, Transcription, TurnDetection
from antiphon.sessions import core
from antiphon.sessions.models.base import TurnModel
from antiphon.sessions.plugins import CASCADE, ECHO, MINICPM, Registry
from antiphon.sessions.refusal import refuse

from tests.events.examples import structs
from tests.rules import rule
from tests.sessions.world import QUICK_VAD, REMEMBERING, World, error, kinds, only


def update(world: World, patch: ConfigPatch) -> list[ev.AnyEvent]:
    return world.do(cmd.UpdateSession(attachment=world.attachment, patch=patch))


class Faulty(TurnModel, frozen=True, kw_only=True):
    """A model whose own check goes wrong, or says no, at certain instructions."""

    def check(self, config: SessionConfig) -> None:
        if config.instructions == "break":
            raise ValueError("a fault of the model")
        if config.instructions == "refuse":
            refuse("persona_update_unsupported", "The persona is fixed.", "session.instructions")
        super().check(config)


FAULTY: Registry = {
    "cascade": Faulty(name="cascade", version="1", capabilities=CASCADE.capabilities),
    "echo": ECHO,
}


def listening() -> World:
    """A session of a resident model that has accepted its first unit."""
    world = World(plugin="echo", auto=True, plugins=REMEMBERING)
    world.append()
    world.accept()
    return world


@rule("L2", "A20")
def test_l2_an_update_is_one_event_with_the_whole_session() -> None:
    world = World()
    updated = only(update(world, ConfigPatch(instructions="Be brief.")), ev.ConfigUpdated)
    assert updated.config.instructions == "Be brief."
    assert updated.view == core.view(world.session)
    assert world.session.config == updated.config
    assert updated.generation == world.session.config_generation == 1
    assert only(update(world, ConfigPatch(speed=1.2)), ev.ConfigUpdated).generation == 2
    world.wait(5)
    before = world.session.lease.last_activity
    update(world, ConfigPatch())
    assert world.session.lease.last_activity == world.now > before


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


@rule("F8", "L2", "L10")
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


# -- all or nothing ------------------------------------------------------------------------------------------


FULL = ConfigPatch(
    instructions="x",
    output_format=AudioFormat("g711_ulaw", 8_000),
    input_format=AudioFormat("pcm16", 8_000),
    turn_detection=QUICK_VAD,
    overlap_short_ack_ms=1,
)
"""A patch of which everything would be taken."""


def but(**changes: object) -> ConfigPatch:
    """Return `FULL` with something that is refused."""
    return msgspec.structs.replace(FULL, **changes)


def spoken() -> World:
    world = World()
    world.answer()
    return world


def silent() -> World:
    """A session of a model that speaks with the voice of a recording, and has none: it answers in writing."""
    return World(plugin=MINICPM.name, modalities=("text",))


CODES = [
    (silent, but(output_modalities=("audio",)), "ref_audio_required"),
    (World, but(turn_detection=TurnDetection(threshold=2)), "unsupported_turn_detection"),
    (World, but(turn_detection=TurnDetection(idle_timeout_ms=1)), "unsupported_turn_detection"),
    (World, but(turn_detection=None, overlap_policy="barge_in_on_speech"), "unsupported_turn_detection"),
    (World, but(input_format=AudioFormat("wav", 24_000)), "unsupported_audio_format"),
    (World, but(output_format=AudioFormat("pcm_f32le", 24_000)), "unsupported_audio_format"),
    (World, but(input_format=AudioFormat("pcm16", 1)), "bad_event"),
    (World, but(input_format=AudioFormat("g711_alaw", 16_000)), "bad_event"),
    (World, but(output_modalities=()), "bad_event"),
    (World, but(speed=9.0), "bad_event"),
    (World, but(max_output_tokens=0), "bad_event"),
    (World, but(temperature=3.0), "bad_event"),
    (World, but(model="other"), "model_update_unsupported"),
    (World, but(extras={"model_path": '"x"'}), "invalid_duplex_runtime_config"),
    (World, but(extras={"top_p": '"x"'}), "invalid_duplex_runtime_config"),
    (spoken, but(voice="joe"), "voice_update_after_audio_unsupported"),
    (World, but(playback_policy="commit_all_on_done"), "playback_policy_update_unsupported"),
    (listening, but(), "instructions_update_unsupported"),
    (listening, but(instructions="", tools='[{"type":"function","name":"f"}]'), "instructions_update_unsupported"),
    (listening, but(instructions="", voice="alloy"), "voice_update_unsupported"),
    (lambda: World(plugins=FAULTY), but(instructions="refuse"), "persona_update_unsupported"),
    (lambda: World(plugins=FAULTY), but(instructions="break"), "runtime_signal_failed"),
    (World, but(voice="nobody"), "bad_event"),
]


@rule("L1", "L4", "L6", "L12", "N4", "A22", "O1", "P32")
@pytest.mark.parametrize(("begin", "patch", "code"), CODES, ids=[f"{n}-{row[2]}" for n, row in enumerate(CODES)])
def test_l6_every_refusal_names_the_event_and_changes_nothing(
    begin: type[World], patch: ConfigPatch, code: str
) -> None:
    world = begin()
    before = world.session.config
    refused = only(
        world.do(cmd.UpdateSession(attachment=world.attachment, event_id="mine", patch=patch)), ev.ErrorReported
    )
    assert (refused.code, refused.event_id) == (code, "mine")
    assert world.session.config == before
    assert world.session.config_generation == 0
    assert world.session.phase == "open"
    assert kinds(update(world, ConfigPatch(speed=0.5)))[-1] == "ConfigUpdated"


@rule("L6", "L1")
def test_l6_reference_audio_is_fixed_with_the_first_input() -> None:
    world = silent()
    first, second = (Recording(SampleRef("ref", 0, 32_000), crc) for crc in (1, 2))
    assert kinds(update(world, ConfigPatch(ref_audio=first, output_modalities=("audio",)))) == ["ConfigUpdated"]
    assert kinds(update(world, ConfigPatch(ref_audio=second))) == ["ConfigUpdated"]
    world.append()
    before = world.session.config
    assert error(update(world, ConfigPatch(ref_audio=first, speed=1.5))) == "ref_audio_update_unsupported"
    assert world.session.config == before
    assert kinds(update(world, ConfigPatch(ref_audio=second))) == ["ConfigUpdated"]


@rule("L1", "B10")
def test_l1_the_first_fault_in_the_contracts_order_is_told() -> None:
    faults: list[tuple[str, dict[str, object]]] = [
        ("unsupported_audio_format", {"input_format": AudioFormat("wav", 24_000)}),
        ("unsupported_turn_detection", {"turn_detection": TurnDetection(silence_duration_ms=-1)}),
        ("model_update_unsupported", {"model": "other"}),
        ("invalid_duplex_runtime_config", {"extras": {"kv_handle": "1"}}),
        ("instructions_update_unsupported", {"instructions": "other"}),
        ("voice_update_unsupported", {"voice": "alloy"}),
    ]
    world = listening()
    for at, (code, _) in enumerate(faults):
        every: dict[str, object] = {}
        for _, fault in faults[at:]:
            every |= fault
        assert error(update(world, ConfigPatch(**every))) == code  # type: ignore[arg-type]
    assert error(update(spoken(), ConfigPatch(voice="nobody"))) == "voice_update_after_audio_unsupported"


@rule("B10")
@pytest.mark.parametrize("dialect", ["ga", "beta", "duplex"])
def test_b10_one_validator_at_the_opening_and_at_an_update(dialect: str) -> None:
    world = World(dialect="ga")
    wrong = msgspec.structs.replace(
        world.session.config,
        input_format=AudioFormat("wav", 24_000),
        turn_detection=TurnDetection(threshold=-1),
    )
    opening = msgspec.structs.replace(world.opening, config=wrong, dialect=dialect)
    with pytest.raises(core.Refusal) as refused:
        core.decide(core.new(), opening, 0)
    assert refused.value.code == "unsupported_audio_format"
    patch = ConfigPatch(input_format=wrong.input_format, turn_detection=wrong.turn_detection)
    assert error(update(world, patch)) == "unsupported_audio_format"


@rule("B10")
@pytest.mark.parametrize("encoding", ["pcm16", "wav"])
def test_only_the_duplex_dialect_has_sound_of_any_rate_and_files(encoding: str) -> None:
    patch = ConfigPatch(output_format=AudioFormat("pcm16" if encoding == "pcm16" else "wav", 16_000))
    assert kinds(update(World(), patch)) == ["ConfigUpdated"]
    expected = "bad_event" if encoding == "pcm16" else "unsupported_audio_format"
    assert error(update(World(dialect="ga"), patch)) == expected


@rule("L6")
def test_l6_a_model_may_be_named_where_none_was() -> None:
    world = World()
    world.session.config = msgspec.structs.replace(world.session.config, model="")
    assert core.decide(world.session, cmd.UpdateSession(attachment=1, patch=ConfigPatch(model="m")), 0)[0] == only(
        core.decide(world.session, cmd.UpdateSession(attachment=1, patch=ConfigPatch(model="m")), 0),
        ev.ConfigUpdated,
    )


def test_wire_4_7_tracing_and_opening_words_are_fixed() -> None:
    world = World()
    update(world, ConfigPatch(echo={"tracing": '"auto"', "initial_user_text": '"Hi."'}))
    assert error(update(world, ConfigPatch(echo={"tracing": "null"}))) == "bad_event"
    assert kinds(update(world, ConfigPatch(echo={"tracing": '"auto"'}))) == ["ConfigUpdated"]
    assert kinds(update(world, ConfigPatch(echo={"initial_user_text": '"Ho."'}))) == ["ConfigUpdated"]
    world.append()
    assert error(update(world, ConfigPatch(echo={"initial_user_text": '"Hi."'}))) == "bad_event"
    assert kinds(update(world, ConfigPatch(echo={"initial_user_text": '"Ho."'}))) == ["ConfigUpdated"]


JSON = {"tools", "tool_choice", "echo", "unknown", "extras"}
"""Fields of a patch that are JSON by contract, and not drawn here."""


@rule("L1", "L6", "L7", "B10", "A22")
@given(
    drawn=structs(ConfigPatch),
    names=st.sets(st.sampled_from(sorted(set(ConfigPatch.__struct_fields__) - JSON)), max_size=4),
    dialect=st.sampled_from(get_args(Dialect)),
)
def test_any_patch_is_published_as_a_whole_or_refused_by_name(
    drawn: ConfigPatch, names: set[str], dialect: Dialect
) -> None:
    fields = {name: value for name, value in msgspec.structs.asdict(drawn).items() if name in names}
    patch = ConfigPatch(**fields)
    world = World(dialect=dialect)
    before = world.session.config
    (event,) = world.do(cmd.UpdateSession(attachment=1, event_id="mine", patch=patch))
    if isinstance(event, ev.ErrorReported):
        assert event.event_id == "mine"
        assert event.code in CODES_OF_UPDATES
        assert world.session.config == before
        return
    assert isinstance(event, ev.ConfigUpdated)
    assert only(update(world, patch), ev.ConfigUpdated).config == event.config, "the same again changes nothing"


CODES_OF_UPDATES = {
    "bad_event",
    "unsupported",
    "unsupported_audio_format",
    "unsupported_turn_detection",
    "model_update_unsupported",
    "playback_policy_update_unsupported",
    "invalid_duplex_runtime_config",
}


# -- the detector --------------------------------------------------------------------------------------------


@rule("L4")
def test_l4_a_refused_detector_leaves_the_running_one_in_mid_sentence() -> None:
    world = World(vad=QUICK_VAD)
    world.append(4, score=900)
    candidate = msgspec.structs.replace(QUICK_VAD, silence_duration_ms=96)
    assert error(update(world, ConfigPatch(turn_detection=candidate, model="other"))) == "model_update_unsupported"
    assert "SpeechStopped" not in kinds(world.append(9, score=0)), "it would have stopped after three frames"
    assert "InputCommitted" in kinds(world.append(1, score=0))


@rule("L2", "L4")
def test_wire_4_8_an_utterance_that_is_open_goes_on_under_the_new_detector() -> None:
    world = World(vad=QUICK_VAD)
    (started,) = [event for event in world.append(4, score=900) if isinstance(event, ev.SpeechStarted)]
    patient = msgspec.structs.replace(QUICK_VAD, silence_duration_ms=640)
    assert kinds(update(world, ConfigPatch(turn_detection=patient))) == ["ConfigUpdated"]
    assert world.session.input.phase == "speaking"
    assert "SpeechStarted" not in kinds(world.append(4, score=900)), "it was announced"
    assert "SpeechStopped" not in kinds(world.append(19, score=0))
    committed = only(world.append(1, score=0), ev.InputCommitted)
    assert committed.item_id == started.item_id
    assert committed.ref is not None
    assert committed.ref.start == started.start
    assert committed.ref.size == 28 * 1024 - started.start, "what was said before the update is part of the turn"


@rule("L2")
def test_an_utterance_that_is_open_and_silent_under_the_new_detector_waits_for_the_client() -> None:
    world = World(vad=QUICK_VAD)
    world.append(4, score=900)
    update(world, ConfigPatch(turn_detection=msgspec.structs.replace(QUICK_VAD, threshold=0.8)))
    assert "InputCommitted" not in kinds(world.append(40, score=0)), "the new detector has heard no speech"
    assert kinds(world.commit())[:2] == ["SpeechStopped", "InputCommitted"]


@rule("L3")
def test_l3_repeating_the_detector_leaves_it_alone() -> None:
    world = World(vad=QUICK_VAD)
    world.append(1, score=900)
    update(world, ConfigPatch(turn_detection=QUICK_VAD))
    assert "SpeechStarted" in kinds(world.append(1, score=900)), "its two frames are counted through"


@rule("L10")
def test_l10_thresholds_and_policy_apply_from_the_next_chunk() -> None:
    world = World(vad=QUICK_VAD)
    assert "SpeechStarted" not in kinds(world.append(4, score=400))
    update(world, ConfigPatch(turn_detection=msgspec.structs.replace(QUICK_VAD, threshold=0.3)))
    assert "SpeechStarted" in kinds(world.append(2, score=400))
    world.clear()
    world.begin()
    update(world, ConfigPatch(turn_detection=msgspec.structs.replace(QUICK_VAD, interrupt_response=False)))
    assert "Interrupted" not in kinds(world.append(4, score=900))
    world.clear()
    update(world, ConfigPatch(turn_detection=QUICK_VAD))
    assert "Interrupted" in kinds(world.append(4, score=900))


@rule("L10")
def test_l10_the_length_of_a_short_acknowledgement_applies_from_the_next_commit() -> None:
    def ends_as_turn(limit_ms: int) -> bool:
        world = World()
        world.begin()
        update(world, ConfigPatch(overlap_short_ack_ms=limit_ms))
        world.append(10)
        return not only(world.commit(), ev.InputCommitted).overlap_ack

    assert not ends_as_turn(700)
    assert ends_as_turn(100)


# -- patches -------------------------------------------------------------------------------------------------


@rule("L7", "Q4.22")
def test_l7_null_clears_what_is_optional_and_an_absent_key_clears_nothing() -> None:
    world = World()
    default = world.session.config
    full = ConfigPatch(
        instructions="x",
        voice="joe",
        tools='[{"type":"function","name":"f"}]',
        tool_choice='"required"',
        metadata={"a": "1"},
        transcription=Transcription(language="en"),
        max_output_tokens=7,
        temperature=0.5,
        echo={"include": "[]", "prompt": "{}", "noise_reduction": '{"type":"near_field"}'},
        unknown={"theme": '"dark"'},
        extras={"top_p": "0.5", "top_k": "3"},
    )
    update(world, full)
    told = world.session.config
    update(world, ConfigPatch(speed=0.5))
    assert world.session.config == msgspec.structs.replace(told, speed=0.5)
    cleared = ConfigPatch(
        instructions="",
        voice=None,
        tools="[]",
        tool_choice='"auto"',
        metadata=None,
        transcription=None,
        max_output_tokens=None,
        temperature=None,
        echo={"noise_reduction": "null"},
        unknown={"more": "1"},
        extras={"top_k": "null"},
    )
    update(world, cleared)
    now = world.session.config
    assert now.echo == {"include": "[]", "prompt": "{}", "noise_reduction": "null"}
    assert now.unknown == {"theme": '"dark"', "more": "1"}
    assert now.extras == {"top_p": "0.5"}
    kept = {"echo": now.echo, "unknown": now.unknown, "extras": now.extras}
    assert now == msgspec.structs.replace(default, speed=0.5, **kept)


@rule("L7")
def test_l7_a_leaf_and_a_list_are_replaced_as_a_whole() -> None:
    world = World()
    update(world, ConfigPatch(transcription=Transcription(language="en", prompt="Names.")))
    update(world, ConfigPatch(transcription=Transcription(model="m"), output_modalities=("audio", "text")))
    update(world, ConfigPatch(output_modalities=("text",)))
    assert world.session.config.transcription == Transcription(model="m")
    assert world.session.config.output_modalities == ("text",)


@rule("L7", "F2")
def test_l7_numbers_are_raised_to_their_bounds() -> None:
    world = World()
    low = ConfigPatch(
        overlap_short_ack_ms=-1,
        overlap_barge_in_ms=-5,
        overlap_silence_rms=-0.5,
        idle_timeout_s=-1.0,
        turn_detection=TurnDetection(threshold=0.0, min_speech_duration_ms=0),
    )
    update(world, low)
    now = world.session.config
    assert (now.overlap_short_ack_ms, now.overlap_barge_in_ms, now.overlap_silence_rms) == (0, 0, 0)
    assert now.idle_timeout_s == 0
    assert now.turn_detection == TurnDetection(threshold=0.16, min_speech_duration_ms=32)


# -- the context lock ----------------------------------------------------------------------------------------


@rule("L8", "E27")
def test_l8_the_lock_is_set_on_acceptance_and_survives_interruptions() -> None:
    world = World(plugin="echo", auto=True, plugins=REMEMBERING)
    world.append()
    request = world.resident
    assert not world.session.locked
    assert kinds(update(world, ConfigPatch(instructions="Before."))) == ["CommandHeld"], "it waits for the sound"
    assert kinds(world.accept())[-1] == "ErrorReported", "and comes too late"
    assert world.session.locked
    assert error(update(world, ConfigPatch(instructions="After."))) == "instructions_update_unsupported"
    assert kinds(update(world, ConfigPatch(instructions="", voice="default"))) == ["ConfigUpdated"]
    world.produce("yes", 100, request=request)
    world.barge_in()
    assert world.session.epoch == 1
    assert error(update(world, ConfigPatch(instructions="After."))) == "instructions_update_unsupported"
    update(world, ConfigPatch(auto_response=False))
    assert world.session.locked


@rule("L8")
def test_l8_a_first_append_that_failed_leaves_the_session_unlocked() -> None:
    world = World(plugin="echo", auto=True, plugins=REMEMBERING)
    world.append()
    world.fail(world.resident)
    assert not world.session.locked
    assert kinds(update(world, ConfigPatch(instructions="New."))) == ["ConfigUpdated"]


@rule("L8", "Q4.23")
def test_l8_a_model_that_renders_its_prompt_for_each_turn_is_never_locked() -> None:
    world = World()
    world.begin()
    world.do(cmd.StageAccepted(request=world.request))
    assert not world.session.locked
    assert kinds(update(world, ConfigPatch(instructions="New.", tools="[]"))) == ["ConfigUpdated"]
    world.cancel()
    world.release()
    world.begin()
    response = world.session.response
    assert response is not None
    assert response.head.instructions == "New."


@rule("L9", "G3")
def test_l9_a_response_keeps_the_configuration_that_it_opened_with() -> None:
    world = World()
    world.begin()
    (before,) = [response.head for response in [world.session.response] if response]
    update(world, ConfigPatch(instructions="New.", speed=1.5, output_format=AudioFormat("g711_ulaw", 8_000)))
    (now,) = [response.head for response in [world.session.response] if response]
    assert now == before
    assert only(world.produce("one", 100), ev.AudioDelta).format == before.output_format
    world.finish()
    world.wait(1_000)
    world.ack(100)
    head = only(world.respond(cmd.ResponseOptions(instructions="Go on.")), ev.ResponseCreated).head
    assert (head.speed, head.output_format) == (1.5, AudioFormat("g711_ulaw", 8_000))


# -- what is shown -------------------------------------------------------------------------------------------


@rule("L13", "B7")
def test_l13_opened_updated_and_resumed_show_the_same_session() -> None:
    world = World(by_update=True)
    opened = only(world.opened, ev.SessionOpened).view
    assert only(world.opened, ev.ConfigUpdated).view == opened
    assert kinds(world.opened) == ["SessionOpened", "ConfigUpdated"]
    updated = only(update(world, ConfigPatch(instructions="x", unknown={"theme": "1"})), ev.ConfigUpdated).view
    assert updated == core.view(world.session)
    world.detach()
    assert only(world.resume(), ev.SessionResumed).view == updated
    assert msgspec.structs.replace(updated, config=opened.config) == opened


def test_what_is_done_about_a_turn_may_change_while_it_is_spoken() -> None:
    """Nothing that the detector looks at has changed, so it goes on; the user may say no more."""
    world = World(vad=QUICK_VAD)
    world.append(4, score=900)
    update(world, ConfigPatch(turn_detection=msgspec.structs.replace(QUICK_VAD, false_interruption=True)))
    assert "InputCommitted" in kinds(world.append(40, score=0))
