"""What clients write is bounded: the words of a turn, the items of a conversation (WIRE 1.3, 1.8, 12.15)."""

import pytest

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.config import Limits
from antiphon.events.items import (
    MOST_WORDS,
    AudioPart,
    FunctionCall,
    FunctionOutput,
    Item,
    Message,
    TextPart,
    weight,
)

from tests.rules import rule
from tests.sessions.world import FRAME, World, error, kinds

EMPTY = weight(Message(id="", role="user"))


def said(words: str) -> Message:
    return Message(id="", role="user", content=(TextPart(words),))


def written(world: World, words: str) -> list[ev.AnyEvent]:
    return world.do(cmd.AppendText(attachment=1, text=words))


def hinted(world: World, words: str) -> list[ev.AnyEvent]:
    return world.do(cmd.AppendAudio(attachment=1, size=FRAME, wire_bytes=FRAME, transcript=words))


def told(events: list[ev.AnyEvent]) -> tuple[str, str | None]:
    (refused,) = events
    assert isinstance(refused, ev.ErrorReported)
    return refused.code, refused.param


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (Message(id="i", role="user"), 0),
        (said("abc"), 64 + 3),
        (said("é"), 64 + 2),
        (Message(id="i", role="user", content=(AudioPart("hi", size=7), AudioPart())), 64 + 2 + 7 + 64),
        (FunctionCall(id="i", call_id="c", name="nn", arguments="aaa"), 6),
        (FunctionOutput(id="i", call_id="c", output="oo"), 3),
    ],
)
def test_an_item_weighs_its_words_and_what_came_with_it(item: Item, words: int) -> None:
    assert weight(item) == EMPTY + words


@rule("P32")
def test_a_conversation_is_bounded_by_what_clients_wrote() -> None:
    world = World(limits=Limits(item_bytes=2 * EMPTY + 300))
    world.item(said("x" * 100))
    before = world.session.conversation.weight
    assert told(world.item(said("x" * 200))) == ("input_backpressure", "item")
    assert world.session.conversation.weight == before
    assert kinds(world.item(said("x" * 50))) == ["ItemCreated"]
    first = world.session.conversation.order[0]
    world.do(cmd.DeleteItem(attachment=1, item_id=first))
    assert kinds(world.item(said("x" * 100))) == ["ItemCreated"], "what is deleted gives its bytes back"


def test_sound_of_items_counts_and_sound_of_turns_does_not() -> None:
    """The sound of a turn is kept as long as its samples are; that of an item until the client deletes it."""
    world = World(limits=Limits(item_bytes=2 * (EMPTY + 64) + FRAME))
    world.append(20)
    world.commit()
    assert world.session.conversation.weight == EMPTY + 64
    sound = Message(id="", role="user", content=(AudioPart(size=FRAME + 1),))
    assert told(world.item(sound)) == ("input_backpressure", "item")
    smaller = Message(id="", role="user", content=(AudioPart(size=FRAME),))
    assert kinds(world.item(smaller)) == ["ItemCreated"]


@rule("E12", "P27", "P28")
def test_written_words_are_bounded_for_each_turn_and_count_as_input() -> None:
    world = World(limits=Limits(input_bytes=2 * MOST_WORDS))
    written(world, "é" * (MOST_WORDS // 2 - 5))
    assert world.session.input.reserved == MOST_WORDS - 10
    assert told(written(world, "é" * 6)) == ("input_backpressure", "text")
    assert told(written(world, "x" * (MOST_WORDS + 1))) == ("bad_event", "text")
    assert kinds(written(world, "é" * 5)) == ["TextReceived"]
    assert error(hinted(world, "x")) == "input_backpressure"
    world.commit()
    assert world.session.input.reserved == 0
    assert kinds(written(world, "More.")) == ["TextReceived"]


@rule("E12", "E28", "P27")
def test_hints_count_like_written_words() -> None:
    world = World(limits=Limits(input_bytes=3 * FRAME))
    hinted(world, "é" * 100)
    assert world.session.input.reserved == FRAME + 200
    assert told(hinted(world, "x" * (FRAME - 199))) == ("input_backpressure", None)
    assert error(written(world, "x" * (2 * FRAME - 199))) == "input_backpressure"
    world.clear()
    assert world.session.input.reserved == 0


def test_the_words_of_a_turn_must_fit_the_conversation() -> None:
    world = World(limits=Limits(item_bytes=EMPTY + 64 + 100))
    written(world, "x" * 90)
    assert told(hinted(world, "x" * 500)) == ("input_backpressure", "transcript")
    world.commit()
    world.item(said(""))
    assert told(written(world, "x" * 200)) == ("input_backpressure", "text")
