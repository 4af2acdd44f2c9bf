"""A decision in the making: numbers, and the state behind the draft."""

from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.items import Message
from antiphon.sessions import core
from antiphon.sessions.draft import Draft
from antiphon.sessions.plugins import REGISTRY

from tests.sessions.world import World


def test_a_draft_numbers_what_is_public() -> None:
    world = World()
    draft = Draft(world.session, 0, REGISTRY)
    item = Message(id="i", role="user")
    draft.emit(ev.ItemCreated(number=draft.number, count=3, item=item, previous_item_id=None))
    assert draft.number == 4
    draft.emit(ev.AnswerDeferred())
    draft.emit(ev.ErrorReported(number=0, count=1, code="c", message="m"))
    assert draft.number == 4


def test_a_draft_that_does_not_look_back_copies_nothing() -> None:
    world = World()
    draft = Draft(world.session, 0, REGISTRY)
    assert draft.session is world.session
    draft.emit(ev.AnswerDeferred())
    before = core.dump(world.session)
    assert draft.session is not world.session
    assert draft.session.turn.deferred
    draft.emit(ev.InputCleared(number=1, count=1))
    assert draft.session.next_number == 2
    assert core.dump(world.session) == before


def test_new_item_ids_follow_the_counter() -> None:
    world = World()
    draft = Draft(world.session, 0, REGISTRY)
    first = draft.new_item_id()
    assert first == ids.item_id("duplex-1", 1)
    item = Message(id=first, role="user")
    draft.emit(ev.ItemCreated(number=1, count=3, item=item, previous_item_id=None))
    assert draft.new_item_id() == ids.item_id("duplex-1", 2)
