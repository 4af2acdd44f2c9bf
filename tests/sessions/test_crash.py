"""A crash at any moment: the log that is left is taken over, and the session goes on by every rule (P6)."""

from collections.abc import Callable

import pytest

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.config import ConfigPatch
from antiphon.events.log import Transaction
from antiphon.sessions import core
from antiphon.sessions.phases import LIVE

from tests.rules import rule
from tests.sessions.world import QUICK_VAD, World, kinds, only

QUIET = ConfigPatch(turn_detection=None, auto_response=False)


def written() -> World:
    """Turns in writing: one answered, one cut off, one that fails, one that is only asked."""
    world = World()
    world.answer("One two three.", 500)
    world.release()
    world.ack(500)
    world.begin()
    world.produce("Half", 300)
    world.cancel()
    world.begin()
    world.fail()
    world.begin()
    return world


def spoken() -> World:
    """Turns that are detected, one of them over an answer."""
    world = World(vad=QUICK_VAD)
    world.append(6, score=900)
    world.append(12, score=0)
    world.produce("Yes, ", 400)
    world.append(6, score=900)
    world.append(12, score=0)
    world.produce("no.", 400)
    world.finish()
    return world


def deferred() -> World:
    """A turn that waits behind an answer."""
    world = World()
    world.append(4)
    world.commit(create_response=True)
    world.produce("A long answer.", 2_000)
    world.append(30)
    world.commit(create_response=True)
    world.finish()
    return world


def listening() -> World:
    """A resident model that hears everything, and is interrupted."""
    world = World(plugin="echo", auto=True)
    world.append(3)
    world.produce("echo", 200, world.resident)
    world.append(3)
    world.barge_in()
    world.append(3)
    return world


STORIES: list[Callable[[], World]] = [written, spoken, deferred, listening]


def up_to(log: list[Transaction], cut: int) -> World:
    """Return a session that has decided the first `cut` commands of a log again."""
    opening = log[0].command
    assert isinstance(opening, cmd.OpenSession)
    world = World(plugin="echo" if opening.plugin == "echo" else "cascade", vad=opening.config.turn_detection)
    world.session, world.log, world.watch = core.new(), [], type(world.watch)()
    for transaction in log[:cut]:
        world.now = transaction.at
        assert tuple(world.do(transaction.command)) == transaction.events, "P2"
    return world


@rule("P2", "P6")
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_p6_wherever_it_crashes_a_session_is_taken_over_and_goes_on(story: Callable[[], World]) -> None:
    log = story().log
    for cut in range(1, len(log) + 1):
        world = up_to(log, cut)
        worked = any(known.phase in LIVE for known in world.session.requests.values())
        epoch = world.session.epoch
        events = world.restart()
        assert kinds(events)[-2:] == ["EngineRestarted", "SessionDetached"]
        assert only(events, ev.EngineRestarted).epoch - epoch in ((1,) if worked else (0, 1))
        assert not any(known.phase in LIVE for known in world.session.requests.values())
        assert world.session.open_responses == ()
        world.resume()
        world.wait(10_000)
        world.do(cmd.UpdateSession(attachment=world.attachment, patch=QUIET))
        world.accept()  # it waits for the units that are handed over again when the client is heard
        world.say("Are you there?")
        world.respond()
        world.produce("I am.", 100)
        assert only(world.finish(), ev.ResponseEnded).status == "completed"
        world.close()
        world.release()
        assert world.session.phase == "closed"
        assert core.outstanding(world.session) == []
