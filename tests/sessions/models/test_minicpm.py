"""MiniCPM-o 4.5: the recording it needs, the window over its memory, what its prompt fixes."""

import pytest

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events.audio import Recording, SampleRef
from antiphon.events.config import ConfigPatch, SessionConfig
from antiphon.events.items import text_of
from antiphon.sessions.plugins import MINICPM

from tests.rules import rule
from tests.sessions.models.configs import VOICE, Refused, changed, config, hear, opening, options, refused
from tests.sessions.world import World


def spoken(**extras: object) -> SessionConfig:
    return changed(config(**extras), ref_audio=VOICE)


@rule("N34", "L6")
def test_sound_needs_a_recording_and_text_does_not() -> None:
    assert refused(lambda: opening(MINICPM, config())) == ("ref_audio_required", "session.ref_audio")
    opening(MINICPM, spoken())
    opening(MINICPM, changed(config(), output_modalities=("text",)))


@rule("N38")
def test_the_window_has_defaults_and_bounds() -> None:
    window = {key: value for key, value in options(opening(MINICPM, spoken())).items() if "force" not in key}
    assert window == {
        "sliding_window_mode": "off",
        "basic_window_high_tokens": 8000,
        "basic_window_low_tokens": 6000,
        "context_previous_max_tokens": 500,
        "context_max_units": 24,
    }


WRONG: list[tuple[dict[str, object], Refused]] = [
    (
        {"sliding_window_mode": "wide"},
        ("invalid_sliding_window_config", "session.extra_body.sliding_window_mode"),
    ),
    (
        {"basic_window_low_tokens": 8000},
        ("invalid_sliding_window_config", "session.extra_body.basic_window_low_tokens"),
    ),
    (
        {"basic_window_low_tokens": 0},
        ("invalid_sliding_window_config", "session.extra_body.basic_window_low_tokens"),
    ),
    (
        {"basic_window_high_tokens": "many"},
        ("invalid_sliding_window_config", "session.extra_body.basic_window_high_tokens"),
    ),
    (
        {"context_max_units": 0},
        ("invalid_sliding_window_config", "session.extra_body.context_max_units"),
    ),
    (
        {"context_previous_max_tokens": -1},
        ("invalid_sliding_window_config", "session.extra_body.context_max_units"),
    ),
    ({"force_listen_count": -1}, ("invalid_duplex_runtime_config", "session.extra_body.force_listen_count")),
    ({"force_listen_count": "2"}, ("invalid_duplex_runtime_config", "session.extra_body.force_listen_count")),
    ({"duplex_window_plan": 1}, ("invalid_duplex_runtime_config", "session.extra_body.duplex_window_plan")),
]


@pytest.mark.parametrize(("extras", "expected"), WRONG, ids=range(len(WRONG)))
@rule("N38", "N4")
def test_wrong_options_are_refused_by_name(extras: dict[str, object], expected: Refused) -> None:
    assert refused(lambda: opening(MINICPM, spoken(**extras))) == expected


FIXED: list[tuple[dict[str, object], Refused]] = [
    (
        {"ref_audio": Recording(SampleRef("ref", 32_000, 32_000), 8)},
        ("ref_audio_update_unsupported", "session.ref_audio"),
    ),
    ({"echo": {"initial_user_text": '"Hi"'}}, ("bad_event", "session.initial_user_text")),
    (
        {"extras": {"sliding_window_mode": '"basic"'}},
        ("sliding_window_update_unsupported", "session.extra_body.sliding_window_mode"),
    ),
    (
        {"extras": {"context_max_units": "3"}},
        ("sliding_window_update_unsupported", "session.extra_body.context_max_units"),
    ),
]


@pytest.mark.parametrize(("fields", "expected"), FIXED, ids=["voice", "text", "mode", "units"])
@rule("N38", "N6", "L8")
def test_what_is_fixed_with_the_first_input(fields: dict[str, object], expected: Refused) -> None:
    current = opening(MINICPM, spoken())
    candidate = MINICPM.settled(changed(current, **fields))
    MINICPM.check_update(current, candidate, locked=False, started=False)
    MINICPM.check_update(candidate, candidate, locked=True, started=True)
    assert refused(lambda: MINICPM.check_update(current, candidate, locked=False, started=True)) == expected


@rule("N6", "L8", "L6")
def test_instructions_are_fixed_when_a_stage_has_heard_them() -> None:
    current = opening(MINICPM, spoken())
    candidate = changed(current, instructions="Be brief.", temperature=0.1)
    MINICPM.check_update(current, candidate, locked=False, started=True)
    assert refused(lambda: MINICPM.check_update(current, candidate, locked=True, started=True)) == (
        "instructions_update_unsupported",
        "session.instructions",
    )
    MINICPM.check_update(current, changed(current, temperature=0.1), locked=True, started=True)


@rule("N35")
def test_sampling_of_a_unit() -> None:
    thinker, talker, _ = MINICPM.sampling(config())
    assert (thinker.max_tokens, thinker.temperature, thinker.top_p, thinker.top_k) == (20, 0.7, 0.8, 20)
    assert (thinker.repetition_penalty, thinker.repetition_window, thinker.max_chars) == (1.05, 512, 28)
    assert thinker.stops == ("<|chunk_eos|>", "<|chunk_tts_eos|>", "<|listen|>")
    assert (talker.max_tokens, talker.min_tokens) == (8192, 0)


@rule("N35")
def test_a_bound_on_the_answer_is_none_on_a_unit() -> None:
    assert MINICPM.sampling(changed(config(), max_output_tokens=4096))[0].max_tokens == 20


@rule("N40", "N1")
def test_continuations_and_units() -> None:
    assert (MINICPM.continuations(auto=False), MINICPM.continuations(auto=True)) == (8, 64)
    assert (MINICPM.continuation_samples, MINICPM.unit, MINICPM.priming_units) == (16_000, 16_000, 3)


@rule("N32", "N33", "N10")
def test_the_budget_of_a_unit_covers_its_recording_and_its_pictures() -> None:
    assert MINICPM.budget(spoken(), samples=16_000, frames=0, first=True) == 48 + 10 + 8 + 11
    assert MINICPM.budget(config(), samples=16_000, frames=0, first=True) == 48 + 11
    assert MINICPM.budget(spoken(), samples=16_000, frames=1, first=False) == 13 + 66
    assert MINICPM.budget(spoken(), samples=16_000, frames=2, first=False) == 13 + 4 * 66


@rule("N36")
@pytest.mark.parametrize(("count", "forced"), [("0", 0), ("2", 2), ("3", 3)])
def test_the_first_units_of_each_turn_are_heard_in_silence(count: str, forced: int) -> None:
    here = World(plugin="minicpm-o-4.5", auto=True, ref_audio=VOICE, extras={"force_listen_count": count})

    def unit() -> bool:
        (told,) = [effect for effect in here.effects(hear(here)) if isinstance(effect, fx.FeedStage)]
        here.accept()
        return told.force_listen

    expected = [True] * forced + [False] * (5 - forced)
    assert [unit() for _ in range(5)] == expected
    here.produce("Hello.", 80, here.resident)
    here.decide("end_of_turn")
    assert [unit() for _ in range(5)] == expected, "and of the next one"


@rule("N37", "G7")
def test_a_seeded_text_survives_forced_listens_and_is_used_up_by_the_first_words() -> None:
    here = World(plugin="minicpm-o-4.5", auto=True, ref_audio=VOICE, extras={"force_listen_count": "2"})
    patch = ConfigPatch(echo={"initial_user_text": '"Sing."'})
    here.do(cmd.UpdateSession(attachment=here.attachment, patch=patch))
    (told,) = [effect for effect in here.effects(hear(here)) if isinstance(effect, fx.SubmitToStage)]
    assert [text_of(item) for item in told.payload.items] == ["Sing."]
    assert told.payload.extras["force_listen_count"] == "2"
    for _ in range(2):
        here.do(cmd.StageSegmentFinished(request=here.resident, decision="listen"))
        assert here.session.turn.seeded
        hear(here)
    here.produce("La", 80, here.resident)
    assert not here.session.turn.seeded
