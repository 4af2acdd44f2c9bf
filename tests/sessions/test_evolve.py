"""State as a fold: the table is the union, and a fold touches nothing but the state that it is given."""

from typing import get_args

import pytest

from antiphon.events import events as ev
from antiphon.events.items import AudioPart, Message, TextPart
from antiphon.sessions import core
from antiphon.sessions.evolve import ACTIVITY, HANDLERS, NO_CHANGE, evolve
from antiphon.sessions.fold_talk import shortened

from tests.rules import rule
from tests.sessions.world import World

EVENTS: tuple[type[ev.Event], ...] = get_args(ev.AnyEvent)


def test_the_tables_are_the_union_of_events() -> None:
    assert set(HANDLERS) | NO_CHANGE == set(EVENTS)
    assert not set(HANDLERS) & NO_CHANGE
    assert set(EVENTS) >= ACTIVITY


@pytest.mark.parametrize("kind", [kind for kind in EVENTS if kind in NO_CHANGE])
def test_events_that_only_tell_move_nothing_but_time_and_number(kind: type[ev.PublicEvent]) -> None:
    examples: list[ev.AnyEvent] = [
        ev.SessionTouched(number=1, count=1, session="s"),
        ev.ErrorReported(number=1, count=1, code="c", message="m"),
        ev.ListenDecided(number=1, count=1, session="s", epoch=0, reason="r"),
        ev.ItemRetrieved(number=1, count=1, item=Message(id="i", role="user")),
        ev.OutputCleared(number=1, count=1, response_id=None, asked=True),
        ev.ActivityNoted(),
    ]
    (event,) = [event for event in examples if type(event) is kind]
    world = World()
    evolve(world.session, event, 5)
    fresh = World().session
    fresh.now, fresh.next_number = 5, 2 if isinstance(event, ev.PublicEvent) else 1
    if kind in ACTIVITY:
        fresh.lease.last_activity = 5
    assert core.dump(world.session) == core.dump(fresh)


@rule("C1")
def test_c16_an_error_is_no_activity() -> None:
    assert ev.ErrorReported not in ACTIVITY


def test_an_unnumbered_event_moves_no_number() -> None:
    world = World()
    evolve(world.session, ev.ErrorReported(number=0, count=1, code="c", message="m"), 0)
    assert world.session.next_number == 1


def test_a_cut_shortens_words_and_sound() -> None:
    item = Message(id="i", role="assistant", content=(AudioPart("one two", None, 24_000, 900), TextPart("x")))
    assert shortened(item, "one", 400).content == (AudioPart("one", None, 24_000, 400), TextPart("one"))
