"""Where the bytes lie that a session still needs."""

from msgspec.structs import replace

from antiphon.events.audio import Recording, SampleRef
from antiphon.sessions import core

from tests.sessions.world import World


def test_an_empty_session_needs_nothing() -> None:
    assert core.places(core.new()) == []


def test_input_that_waits_is_needed_and_so_are_the_items_of_the_conversation() -> None:
    world = World()
    world.append(4)
    (waiting,) = core.places(world.session)
    assert waiting == SampleRef("in", 0, world.session.input.received)
    world.commit()
    assert set(core.places(world.session)) == {waiting}, "it is the sound of an item now"
    world.append(2)
    assert {(ref.stream, ref.end) for ref in core.places(world.session)} == {
        ("in", waiting.end),
        ("in", world.session.input.received),
    }


def test_whatever_field_a_place_stands_in_it_is_found() -> None:
    session = World().session
    session.input.stream.pictures.append((SampleRef("img", 0, 7), SampleRef("img", 7, 3)))
    session.config = replace(session.config, ref_audio=Recording(SampleRef("ref", 0, 9), 1))
    assert set(core.places(session)) == {
        SampleRef("img", 0, 7),
        SampleRef("img", 7, 3),
        SampleRef("ref", 0, 9),
    }
