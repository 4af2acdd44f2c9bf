"""Whose turn it is for MiniCPM-o: forced listening, pauses, terminators (BEHAVIOURS N36)."""

import pytest

from antiphon.stages.minicpm_floor import Floor, Sampled

from tests.rules import rule

LISTEN, CHUNK, TURN = 11, 12, 13
TOKENS: dict[Sampled, int] = {"listen": LISTEN, "speak": CHUNK, "end_of_turn": TURN}


def unit(floor: Floor, sampled: Sampled, *, speech: bool = False, force: bool = False) -> tuple[bool, Sampled]:
    """Give a unit that ends so; return whether it was forced, and what was decided."""
    forced = floor.begin(speech=speech, force_listen=force).forced
    return forced, floor.end(sampled, TOKENS[sampled])


@rule("N36")
def test_silence_while_the_turn_is_over_is_listened_to() -> None:
    floor = Floor()
    assert unit(floor, "listen") == (True, "listen")
    assert unit(floor, "listen", speech=True) == (False, "listen")
    assert unit(floor, "speak") == (False, "speak"), "speech that nobody answered still waits"
    assert unit(floor, "end_of_turn") == (False, "end_of_turn")
    assert unit(floor, "listen") == (True, "listen")


@rule("N36", "N37")
def test_a_seeded_text_waits_for_its_answer_through_forced_listens() -> None:
    floor = Floor(pending=True)
    for _ in range(2):
        assert unit(floor, "listen", force=True) == (True, "listen")
    assert unit(floor, "speak") == (False, "speak")
    assert unit(floor, "end_of_turn") == (False, "end_of_turn")
    assert unit(floor, "listen") == (True, "listen"), "it was consumed by the first words"


@rule("N36")
def test_a_listen_in_the_middle_of_its_own_turn_is_a_pause_unless_it_was_forced() -> None:
    floor = Floor()
    unit(floor, "speak", speech=True)
    assert unit(floor, "listen") == (False, "speak")
    assert unit(floor, "listen", force=True) == (True, "listen")
    assert unit(floor, "listen") == (True, "listen"), "then its turn is over"


@rule("N36")
@pytest.mark.parametrize("sampled", ["listen", "speak", "end_of_turn"])
def test_what_ended_a_segment_is_put_in_front_of_the_next(sampled: Sampled) -> None:
    floor = Floor()
    assert floor.begin(speech=True, force_listen=False).tokens == ()
    floor.end(sampled, TOKENS[sampled])
    assert floor.begin(speech=False, force_listen=False).tokens == (TOKENS[sampled],)
