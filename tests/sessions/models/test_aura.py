"""AURA: options of its speech, the gate between its turns, and what it remembers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.audio import SampleRef
from antiphon.events.context import ContextTurn
from antiphon.sessions.models.aura_context import MOST_CLIPS, MOST_TURNS, bounded, remembered
from antiphon.sessions.plugins import AURA

from tests.rules import rule
from tests.sessions.models.configs import VOICE, Refused, changed, config, opening, options, refused
from tests.sessions.world import World, error, kinds, only

CLIP = (SampleRef("in", 0, 2),)


def watching() -> World:
    return World(plugin="aura")


def look(world: World) -> ev.ResponseCreated:
    """Show the model something, ask about it, and return the answer that is announced."""
    world.append(10, pictures=(10,))
    return only(world.commit(create_response=True), ev.ResponseCreated)


@rule("N58")
def test_defaults_of_the_speech() -> None:
    chosen = options(opening(AURA, config()))
    assert chosen["tts_task_type"] == "CustomVoice"
    assert chosen["tts_language"] == "Chinese"
    assert chosen["tts_speaker"] == "Vivian"
    assert chosen["tts_min_chars"] == 30


WRONG: list[tuple[dict[str, object], bool, Refused]] = [
    ({"tts_task_type": "Cloned"}, False, ("invalid_duplex_runtime_config", "session.extra_body.tts_task_type")),
    ({"tts_task_type": "Base"}, False, ("invalid_duplex_runtime_config", "session.ref_audio")),
    (
        {"tts_task_type": "Base", "tts_speaker": "Vivian"},
        True,
        ("invalid_duplex_runtime_config", "session.extra_body.tts_speaker"),
    ),
    ({}, True, ("invalid_duplex_runtime_config", "session.extra_body.tts_task_type")),
    ({"tts_x_vector_only": True}, False, ("invalid_duplex_runtime_config", "session.extra_body.tts_task_type")),
    ({"tts_min_chars": 0}, False, ("invalid_duplex_runtime_config", "session.extra_body.tts_min_chars")),
    ({"tts_min_chars": 201}, False, ("invalid_duplex_runtime_config", "session.extra_body.tts_min_chars")),
]


@pytest.mark.parametrize(("extras", "voice", "expected"), WRONG, ids=range(len(WRONG)))
@rule("N4", "N56", "N58")
def test_pairs_that_no_checkpoint_has(extras: dict[str, object], voice: bool, expected: Refused) -> None:
    asked = changed(config(**extras), ref_audio=VOICE if voice else None)
    assert refused(lambda: opening(AURA, asked)) == expected


@rule("N58")
def test_a_voice_from_a_recording() -> None:
    opening(AURA, changed(config(tts_task_type="Base", tts_x_vector_only=True), ref_audio=VOICE))


@rule("N58", "L8", "Q4.23")
def test_instructions_may_change_at_any_time() -> None:
    current = opening(AURA, config())
    AURA.check_update(current, changed(current, instructions="Be brief."), locked=True, started=True)


@rule("N54", "N2")
def test_the_silent_token_stops_the_text_and_the_speech_has_its_own_end() -> None:
    recogniser, language, talker, vocoder = AURA.sampling(config())
    assert language.stops == (151_669, 151_645)
    assert (talker.stops, talker.max_tokens, talker.min_tokens) == ((2150,), 240, 8)
    assert (recogniser.max_tokens, vocoder.seed) == (256, 42)


@rule("N16", "N17", "N55")
def test_the_gate_opens_when_the_text_is_complete_and_speech_drains() -> None:
    world = watching()
    first = look(world)
    for stage, opens in ((0, False), (2, False), (3, False), (1, True)):
        told = world.do(cmd.StageInnerFinished(request=first.request, stage=stage))
        assert kinds(told) == (["GateOpened"] if opens else [])
    second = look(world)
    assert second.head.turn == first.head.turn + 1
    assert only(world.produce("One.", 100, first.request), ev.AudioDelta).response_id == first.head.id
    assert only(world.produce("Two.", 100, second.request), ev.AudioDelta).response_id == second.head.id


@rule("N54", "N57", "G15", "G16")
def test_a_silent_turn_listens_stops_what_was_warmed_and_is_remembered_as_silent() -> None:
    world = watching()
    request = look(world).request
    world.do(cmd.StageContext(request=request, turn=ContextTurn(user="?", assistant=None)))
    world.end_inner(1, request)
    events = world.do(cmd.StageFinished(request=request, silent=True, abort=True))
    assert kinds(events) == ["RequestFinished", "ListenDecided", "ResponseEnded"]
    assert world.effects(events) == [fx.AbortRequests(requests=(request,))], "the whole of it"
    ended = only(events, ev.ResponseEnded)
    assert (ended.status, ended.item) == ("completed", None)
    assert [turn.silent for turn in world.session.context] == [True]
    look(world)


@rule("E6", "N52")
def test_sound_alone_is_no_input() -> None:
    assert "video" in AURA.capabilities.required_input_modalities
    assert "audio" in AURA.capabilities.optional_input_modalities


FRAMES = [SampleRef("img", at, 10) for at in range(0, 50, 10)]


@rule("N52")
def test_the_last_two_pictures_of_the_newest_append_that_had_any() -> None:
    one, two, three, four, five = FRAMES
    assert AURA.pictures([(one, two), (three, four, five), ()]) == (four, five)
    assert AURA.pictures([(one, two), (three,)]) == (three, three)
    assert AURA.pictures([]) == AURA.pictures([()]) == ()


@rule("N52", "E22")
def test_a_turn_is_given_the_pictures_that_the_model_looks_at_and_keeps_none() -> None:
    world = World(plugin="aura")
    world.append(10, pictures=(10, 20))
    world.append(10, pictures=(30,))
    events = world.commit(create_response=True)
    submitted = only(events, ev.RequestSubmitted)
    assert submitted.frames == (SampleRef("img", 30, 30), SampleRef("img", 30, 30)), "one picture is doubled"
    (effect,) = [effect for effect in world.effects(events) if isinstance(effect, fx.SubmitToStage)]
    assert effect.payload.frames == submitted.frames
    assert world.session.input.reserved == 0


# -- memory --------------------------------------------------------------------------------------------------


def seen(number: int, user: str = "?", assistant: str | None = "!") -> ContextTurn:
    return ContextTurn(user=f"{user}{number}" if user else "", clip=CLIP, assistant=assistant)


@rule("N57")
def test_beyond_45_clips_the_oldest_30_go() -> None:
    turns: tuple[ContextTurn, ...] = ()
    for number in range(MOST_CLIPS):
        turns = remembered(turns, seen(number))
    assert all(turn.clip for turn in turns)
    turns = remembered(turns, seen(MOST_CLIPS))
    assert [bool(turn.clip) for turn in turns] == [False] * 30 + [True] * 16
    assert [turn.user for turn in turns] == [f"?{number}" for number in range(46)]


@rule("N57")
def test_a_turn_of_nothing_is_dropped_as_a_pair_when_its_clip_goes() -> None:
    turns = [seen(0, user="", assistant=None), seen(1, user="", assistant="!"), seen(2, assistant=None)]
    turns += [seen(number) for number in range(3, 46)]
    assert [(turn.user, turn.assistant) for turn in bounded(turns)[:2]] == [("", "!"), ("?2", None)]
    assert bounded([seen(0, user="", assistant=None)]) == (seen(0, user="", assistant=None),)


@rule("N57")
def test_999_turns_are_kept() -> None:
    turns = [ContextTurn(user=str(number), assistant="!") for number in range(MOST_TURNS + 5)]
    assert [turn.user for turn in bounded(turns)][:1] == ["5"]
    assert len(bounded(turns)) == MOST_TURNS


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=120))
@rule("N57")
def test_the_memory_is_bounded_at_every_step_and_forgets_no_words(kinds: list[tuple[bool, bool, bool]]) -> None:
    turns: tuple[ContextTurn, ...] = ()
    for number, (user, clip, silent) in enumerate(kinds):
        turn = ContextTurn(
            user=f"{number}" if user else "", clip=CLIP if clip else (), assistant=None if silent else f"a{number}"
        )
        turns = remembered(turns, turn)
        assert sum(bool(kept.clip) for kept in turns) <= MOST_CLIPS
    assert [turn.user for turn in turns if turn.user] == [str(n) for n, (user, _, _) in enumerate(kinds) if user]
    assert turns == bounded(turns)


@rule("N30")
def test_text_alone_is_answered_by_refusal() -> None:
    here = World(plugin="aura")
    assert not here.session.capabilities.supports_text_only_turn
    assert error(here.commit()) == "input_audio_buffer_empty"
