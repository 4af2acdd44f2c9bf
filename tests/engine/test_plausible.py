"""What no session can have recorded is found before anything is made of it."""

import pytest
from msgspec.structs import replace

from antiphon.engine import plausible
from antiphon.engine.plausible import implausible
from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.events import AudioReceived, SessionOpened
from antiphon.events.log import Transaction

from tests.sessions.world import QUICK_VAD, World


def log() -> list[Transaction]:
    world = World(vad=QUICK_VAD)
    for score in [20] * 3 + [900] * 10 + [20] * 12:
        world.append(1, score=score)
    world.produce("All is well [here].", 300)
    world.finish()
    return world.log


def test_what_a_session_recorded_is_possible() -> None:
    assert {implausible(entry) for entry in log()} == {""}


@pytest.mark.parametrize("wrong", [-1, 1 << 62])
def test_times_and_terms_that_no_session_has(wrong: int) -> None:
    entry = log()[3]
    assert implausible(replace(entry, at=wrong)) == "its time is that of no session"
    assert implausible(replace(entry, term=wrong)) == "its term is that of no session"
    opened = log()[0]
    events = [
        replace(event, wall_us=wrong) if isinstance(event, SessionOpened) else event for event in opened.events
    ]
    assert "no clock" in implausible(replace(opened, events=tuple(events)))


@pytest.mark.parametrize(
    ("start", "size"), [(-1, 2), (0, -2), (plausible.FURTHEST + 1, 2), (0, plausible.LARGEST + 1)]
)
def test_sound_that_nobody_can_have_made(start: int, size: int) -> None:
    entry = next(entry for entry in log() for event in entry.events if isinstance(event, AudioReceived))
    events = [
        replace(event, ref=SampleRef("in", start, size)) if isinstance(event, AudioReceived) else event
        for event in entry.events
    ]
    assert implausible(replace(entry, events=tuple(events))) == "its sound lies where none can be"


@pytest.mark.parametrize("rate", [0, -16_000, 1 << 40])
def test_a_rate_that_no_sound_has(rate: int) -> None:
    opened = log()[0]
    event = next(event for event in opened.events if isinstance(event, SessionOpened))
    view = replace(event.view, config=replace(event.view.config, input_format=AudioFormat("pcm16", rate)))
    assert "no sound has a rate" in implausible(replace(opened, events=(replace(event, view=view),)))


def test_more_events_than_a_command_decides() -> None:
    entry = log()[3]
    assert "more events" in implausible(replace(entry, events=entry.events[:1] * plausible.MOST_EVENTS))
