"""Effects: every one has a recorded cause, and the clean-up of a request is asked for when it leaves (A18)."""

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.audio import AudioFormat
from antiphon.events.config import ConfigPatch
from antiphon.sessions import core

from tests.rules import rule
from tests.sessions.world import OUT, World


@rule("K2")
def test_a_submission_carries_what_the_response_was_opened_with() -> None:
    world = World()
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(instructions="Be brief.", temperature=0.2)))
    world.say("Hello?")
    events = world.respond(cmd.ResponseOptions(speed=1.5))
    (submit,) = world.effects(events)
    assert isinstance(submit, fx.SubmitToStage)
    payload = submit.payload
    assert submit.request == "duplex-1.e0.turn0"
    assert (payload.instructions, payload.speed, payload.temperature) == ("Be brief.", 1.5, 0.2)
    assert (payload.speaks, payload.format, payload.voice) == (True, OUT, "default")
    assert [item.id for item in payload.items] == world.session.conversation.order
    assert not submit.hold


def test_a_resident_submission_carries_the_sessions_configuration() -> None:
    world = World(plugin="echo", auto=True)
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(output_format=AudioFormat("g711_ulaw", 8_000))))
    world.say("Before.")
    submit, feed = world.effects(world.append())
    assert isinstance(submit, fx.SubmitToStage)
    assert submit.payload.response_id is None
    assert submit.payload.format == AudioFormat("g711_ulaw", 8_000)
    assert isinstance(feed, fx.FeedStage)


@rule("A8")
def test_pieces_are_counted_within_their_request() -> None:
    world = World(plugin="echo", auto=True)
    seqs = [
        effect.seq for _ in range(3) for effect in world.effects(world.append()) if isinstance(effect, fx.FeedStage)
    ]
    assert seqs == [1, 2, 3]


def test_seeds_differ_between_turns_and_epochs() -> None:
    world = World(dialect="ga")
    seeds: list[int] = []
    for how in (world.finish, world.cancel, world.finish):
        for effect in world.effects(world.respond()):
            assert isinstance(effect, fx.SubmitToStage)
            seeds.append(effect.payload.seed)
        how()
    assert len(set(seeds)) == 3


@rule("A18", "Q4.11")
def test_whatever_leaves_is_cleaned_up() -> None:
    world = World()
    world.begin()
    request = world.request
    assert world.effects(world.finish()) == [fx.ReleaseRequests(requests=(request,))]
    world.begin()
    second = world.request
    assert world.effects(world.cancel()) == [fx.AbortRequests(requests=(second,))]
    world.begin()
    third = world.request
    # The others are being cleaned up already: a request has one clean-up at a time (K20).
    assert world.effects(world.close()) == [fx.AbortRequests(requests=(third,))]


def test_nothing_else_has_effects() -> None:
    session = core.new()
    assert core.react(session, ev.AnswerDeferred()) == []
    assert core.react(session, ev.Interrupted(epoch=1, cause="c", requests=())) == []
