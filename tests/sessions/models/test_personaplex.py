"""PersonaPlex: bundled voices, a persona, one mode, and an answer that never ends by itself."""

import pytest

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.sessions.models.personaplex import DEFAULT_PERSONA, first_frames
from antiphon.sessions.plugins import PERSONAPLEX

from tests.rules import rule
from tests.sessions.models.configs import Refused, changed, config, hear, opening, refused
from tests.sessions.world import World, error, kinds


@rule("N61")
def test_voice_and_persona_have_defaults() -> None:
    settled = opening(PERSONAPLEX, config())
    assert (settled.voice, settled.instructions) == ("NATF2", DEFAULT_PERSONA)
    assert opening(PERSONAPLEX, changed(config(), voice="alloy")).voice == "NATF2"


@rule("N61", "N65")
def test_voice_and_persona_by_either_name() -> None:
    settled = opening(PERSONAPLEX, config(voice="VARM4", persona="You sell tea."))
    assert (settled.voice, settled.instructions) == ("VARM4", "You sell tea.")
    assert opening(PERSONAPLEX, changed(config(), voice="NATM1", instructions="You sell tea.")) == changed(
        settled, voice="NATM1", extras={}
    )


@pytest.mark.parametrize("voice", ["nobody", "/etc/NATF2.pt", "voices/NATF2"])
@rule("N61")
def test_a_voice_is_a_bundled_name_and_no_path(voice: str) -> None:
    assert refused(lambda: opening(PERSONAPLEX, config(voice=voice)))[0] == "bad_event"


FIXED: list[tuple[dict[str, object], Refused]] = [
    ({"voice": "NATM0"}, ("voice_update_unsupported", "session.extra_body.voice")),
    ({"extras": {"voice": '"NATM0"'}}, ("voice_update_unsupported", "session.extra_body.voice")),
    ({"instructions": "You sell tea."}, ("persona_update_unsupported", "session.extra_body.persona")),
    ({"extras": {"persona": '"You sell tea."'}}, ("persona_update_unsupported", "session.extra_body.persona")),
]


@pytest.mark.parametrize(("fields", "expected"), FIXED, ids=range(len(FIXED)))
@rule("N61", "N6", "L8")
def test_both_are_fixed_with_the_first_input(fields: dict[str, object], expected: Refused) -> None:
    current = opening(PERSONAPLEX, config())
    candidate = PERSONAPLEX.settled(changed(current, **fields))
    PERSONAPLEX.check_update(current, candidate, locked=False, started=False)
    assert refused(lambda: PERSONAPLEX.check_update(current, candidate, locked=False, started=True)) == expected


@rule("N60")
def test_units_of_1920_samples_at_24_khz() -> None:
    assert (PERSONAPLEX.unit, PERSONAPLEX.capabilities.input_format.rate) == (1_920, 24_000)
    assert PERSONAPLEX.continuation_samples == 1_920


@rule("N61")
def test_the_first_append_reserves_what_is_prefilled() -> None:
    assert first_frames(voice_rows=51, persona_tokens=20) == 51 + 12 + 20 + 1


def personaplex() -> World:
    return World(plugin="personaplex", resumable=False)


@rule("N30", "N60")
def test_its_turns_are_nobodys_business() -> None:
    here = personaplex()
    assert here.session.auto, "there is no other mode"
    hear(here)
    assert error(here.commit()) == "unsupported"
    assert error(here.barge_in()) == "barge_in_unsupported"
    assert not here.session.resumable


@rule("N63", "N64")
def test_an_answer_without_an_end_ends_with_its_session() -> None:
    here = personaplex()
    hear(here)
    for _ in range(40):
        hear(here)
        here.produce("word ", 80, here.resident)
    assert here.session.response is not None
    events = here.close()
    ended = [event for event in events if isinstance(event, ev.ResponseEnded)]
    assert len(ended) == 1
    assert kinds(events).index("ResponseEnded") < kinds(events).index("SessionClosing")


@rule("N62", "A5")
def test_an_interruption_makes_another_request_whose_numbers_begin_anew() -> None:
    here = personaplex()
    fed: list[fx.AnyEffect] = []
    for _ in range(3):
        fed += here.effects(hear(here))
    before = here.resident
    here.produce("word", 80, before)
    here.cancel()
    fed += here.effects(hear(here))
    assert here.resident != before
    assert [(feed.request, feed.seq) for feed in fed if isinstance(feed, fx.FeedStage)] == [
        (before, 1),
        (before, 2),
        (before, 3),
        (here.resident, 1),
    ]


def test_commands_of_clients_are_the_same_for_every_model() -> None:
    here = personaplex()
    assert error(here.do(cmd.UpdateSession(attachment=1, patch=cmd.ConfigPatch(voice="nobody")))) == "bad_event"
