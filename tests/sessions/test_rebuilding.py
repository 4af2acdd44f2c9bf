"""A memory that is lost: what the model is given again, and when the session cannot go on without it (N66, K15)."""

from collections.abc import Sequence

import pytest

from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.items import AudioPart, Item, Message, text_of
from antiphon.sessions.models.base import TurnModel
from antiphon.sessions.plugins import REGISTRY

from tests.rules import rule
from tests.sessions.world import World, capable, kinds, only


class Reader(TurnModel, frozen=True, kw_only=True):
    """Can be told again what was written, the last two turns of it; of sound that nobody wrote down, nothing."""

    def rebuild(self, history: Sequence[Item]) -> tuple[Item, ...] | None:
        parts = [part for item in history if isinstance(item, Message) for part in item.content]
        if any(isinstance(part, AudioPart) and part.transcript is None for part in parts):
            return None
        return tuple(history[-2:])


READER = Reader(name="echo", version="1", capabilities=REGISTRY["echo"].capabilities)


def listening(*written: str, transcript: str | None = None) -> World:
    """A session whose model has heard something, and has a unit under way."""
    world = World(plugin="echo", auto=True, plugins={**REGISTRY, "echo": READER})
    for text in written:
        world.say(text)
    world.append(2, transcript=transcript)
    world.accept()
    world.commit()
    world.append()
    return world


HOW = ["lose", "fail", "restart"]


def end(world: World, how: str) -> list[ev.AnyEvent]:
    resident = world.resident
    if how == "restart":
        return world.restart()
    return world.lose(resident) if how == "lose" else world.fail(resident)


@rule("N66", "N9")
@pytest.mark.parametrize("how", HOW)
def test_the_next_request_begins_with_what_the_model_wants_to_be_told(how: str) -> None:
    world = listening("One.", "Two.", "Three.", transcript="Four.")
    events = end(world, how)
    assert "SessionClosing" not in kinds(events)
    if how == "restart":
        world.resume()
    events += world.append()
    (submit,) = [effect for effect in world.effects(events) if isinstance(effect, fx.SubmitToStage)]
    assert submit.request == "duplex-1.e1"
    assert [text_of(item) for item in submit.payload.items if isinstance(item, Message)] == ["Three.", "Four."]


@rule("N66", "K15", "M5")
@pytest.mark.parametrize("how", HOW)
def test_of_a_conversation_that_cannot_be_told_again_the_session_ends(how: str) -> None:
    world = listening("One.")
    events = end(world, how)
    assert "UnitsReturned" not in kinds(events)
    closed = only(events, ev.SessionClosed)
    assert (closed.reason, closed.expired) == ("request_cleanup", True)


@rule("N66")
def test_a_session_has_what_was_promised_at_its_opening() -> None:
    unable = capable(READER.capabilities, supports_reencode_context=False)
    world = World(plugin="echo", auto=True, plugins={**REGISTRY, "echo": READER}, capabilities=unable)
    world.append()
    assert READER.rebuild(()) == ()
    assert only(world.lose(world.resident), ev.SessionClosed).reason == "request_cleanup"
