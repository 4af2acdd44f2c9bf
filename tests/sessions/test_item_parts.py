"""Sound and pictures as parts of items (BEHAVIOURS J2-J5, WIRE 7.2)."""

import msgspec
import pytest

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.audio import SampleRef
from antiphon.events.config import Limits
from antiphon.events.items import AudioPart, ImagePart, Message, Part, TextPart, pieces, text_of
from antiphon.sessions import core
from antiphon.sessions.plugins import CASCADE

from tests.rules import rule
from tests.sessions.world import World, capable, error, kinds, only

SEES = capable(CASCADE.capabilities, supports_image_input=True)


def image(size: int = 100) -> ImagePart:
    return ImagePart(mime="image/png", size=size)


def user(*content: Part, item_id: str = "") -> Message:
    return Message(id=item_id, role="user", content=content)


@rule("J2")
def test_sound_of_an_item_is_its_own_and_needs_no_commit() -> None:
    world = World()
    events = world.item(user(AudioPart(ms=100, size=3_200), item_id="mine"))
    assert kinds(events) == ["ItemCreated"]
    item = only(events, ev.ItemCreated).item
    assert [part.ref for part in pieces(item)] == [SampleRef("item", 0, 3_200)]
    assert world.session.turn.unanswered == 1
    assert world.session.input.reserved == 0, "it is no input that waits for a commit"
    (effect,) = [e for e in world.effects(world.respond()) if isinstance(e, fx.SubmitToStage)]
    assert effect.payload.items == (item,)
    assert kinds(world.do(_transcribed(world, "mine"))) == ["UserTranscribed"]
    assert world.shown("mine") == "What is it?"


def _transcribed(world: World, item_id: str) -> cmd.StageTranscribed:
    return cmd.StageTranscribed(request=world.request, item_id=item_id, text="What is it?")


@rule("J3", "J4")
def test_a_picture_beside_sound_or_alone_is_content_of_its_item_and_stays() -> None:
    """The trap: the picture was overwritten by the sound under the same id, or dropped when it had no words."""
    world = World(capabilities=SEES)
    world.item(user(image(10), AudioPart(size=320), TextPart("This?"), item_id="both"))
    world.item(user(image(20), item_id="alone"))
    assert world.session.turn.unanswered == 2
    (effect,) = [e for e in world.effects(world.respond()) if isinstance(e, fx.SubmitToStage)]
    refs = [part.ref for item in effect.payload.items for part in pieces(item)]
    assert refs == [SampleRef("item", 0, 10), SampleRef("item", 10, 320), SampleRef("item", 330, 20)]


@rule("J5")
def test_a_model_without_eyes_takes_no_picture() -> None:
    world = World()
    assert error(world.item(user(image()))) == "unsupported"


@rule("J5")
@pytest.mark.parametrize("role", ["assistant", "system"])
def test_only_users_show_pictures(role: str) -> None:
    world = World(capabilities=SEES)
    item = msgspec.convert({"type": "message", "id": "", "role": role}, Message)
    assert error(world.item(msgspec.structs.replace(item, content=(image(),)))) == "unsupported"


@rule("J5")
def test_there_is_room_for_so_many_pictures_and_so_many_bytes() -> None:
    world = World(capabilities=SEES, limits=Limits(images=2, image_bytes=100))
    world.item(user(image(60), item_id="first"))
    before = core.dump(world.session)
    assert error(world.item(user(image(41)))) == "input_backpressure"
    assert world.session.conversation == core.load(before).conversation
    world.item(user(image(40)))
    assert error(world.item(user(image(1)))) == "input_backpressure"
    world.do(cmd.DeleteItem(attachment=world.attachment, item_id="first"))
    assert kinds(world.item(user(image(1)))) == ["ItemCreated"]


@rule("J2")
def test_an_item_has_a_part_without_bytes_if_nothing_was_heard_in_it() -> None:
    world = World()
    item = only(world.item(user(AudioPart(transcript="", ms=100))), ev.ItemCreated).item
    assert pieces(item) == []


def test_a_picture_has_no_words() -> None:
    assert text_of(user(TextPart("This"), image(), AudioPart(size=2), AudioPart("one?"))) == "This one?"
