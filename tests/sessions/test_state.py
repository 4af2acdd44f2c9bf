"""The records of a session: copies share nothing that changes, and names are never used twice."""

import msgspec
import pytest

from antiphon.events import ids
from antiphon.events.config import SessionConfig
from antiphon.sessions import core
from antiphon.sessions.state import copy, next_item_number, next_response_number, opening_body

from tests.rules import rule
from tests.sessions.world import QUICK_VAD, World


def busy() -> World:
    world = World(vad=QUICK_VAD)
    world.answer()
    world.append(5, score=900)
    world.say("Hm?")
    world.wait(2_000)
    world.respond()
    return world


def test_a_copy_is_equal_and_independent() -> None:
    world = busy()
    before = core.dump(world.session)
    twin = copy(world.session)
    assert core.dump(twin) == before
    world.session, original = twin, world.session
    world.watch.twin = core.load(before)
    world.produce("Hello", 100)
    world.append(12, score=0)
    world.ack(50)
    world.resume()
    world.close()
    world.release()
    assert core.dump(original) == before
    assert core.dump(twin) != before


def test_a_dump_can_be_read_again() -> None:
    world = busy()
    assert core.load(core.dump(world.session)) == world.session
    with pytest.raises(msgspec.DecodeError):
        core.load(b"\xc1")


def test_names_that_a_client_took_are_skipped() -> None:
    world = World()
    world.say("x", ids.item_id("duplex-1", 1))
    world.say("x", ids.assistant_item_id(ids.response_id("duplex-1", 1)))
    assert next_item_number(world.session) == 2
    assert next_response_number(world.session) == 2


@rule("B20")
def test_b20_an_opening_is_told_by_what_it_asks_for() -> None:
    config = SessionConfig(model="m", metadata={"a": "1", "b": "2"})
    same = SessionConfig(model="m", metadata={"b": "2", "a": "1"})
    assert opening_body("ga", "echo", config) == opening_body("ga", "echo", same)
    assert opening_body("ga", "echo", config) != opening_body("ga", "cascade", config)
    assert opening_body("ga", "echo", config) != opening_body("beta", "echo", config)


def test_the_readings_of_a_session() -> None:
    world = World(plugin="echo", auto=True)
    assert world.session.auto
    assert not World(auto=True).session.auto
    assert world.session.lease.client_seq == 0
