"""Effects: every one has a recorded cause, and the clean-up of a request is asked for when it leaves (A18)."""

from msgspec.structs import replace

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.audio import AudioFormat, Recording, SampleRef
from antiphon.events.config import ConfigPatch
from antiphon.events.items import AudioPart, FunctionCall, Item, Message, places
from antiphon.sessions import core
from antiphon.sessions.plugins import REGISTRY

from tests.rules import rule
from tests.sessions.world import FRAME, FRAME_MS, OUT, World


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


def places_of(items: tuple[Item, ...]) -> list[SampleRef]:
    return [ref for item in items for ref in places(item)]


def begins(world: World, events: list[ev.AnyEvent]) -> fx.TurnInput:
    """What a request begins with."""
    (submit,) = [effect for effect in world.effects(events) if isinstance(effect, fx.SubmitToStage)]
    return submit.payload


@rule("K2", "E20", "N66")
def test_a_resident_request_begins_with_the_sound_that_it_will_not_hear_in_units() -> None:
    able = replace(REGISTRY["echo"].capabilities, chunk_period_ms=160)
    world = World(plugin="echo", capabilities=able)
    world.append(7)
    world.commit(create_response=False)
    world.item(FunctionCall(id="", call_id="a", name="f", arguments="{}"))
    events = world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(auto_response=True)))
    assert places_of(begins(world, events).items) == []
    events += world.append(3)
    first, second = [effect.refs for effect in world.effects(events) if isinstance(effect, fx.FeedStage)]
    assert (first, second) == ((SampleRef("in", 0, 5 * FRAME),), (SampleRef("in", 5 * FRAME, 5 * FRAME),))
    world.do(cmd.StageAccepted(request=world.resident, operation=1))
    events = world.lose(world.resident)
    assert places_of(begins(world, events).items) == [*first], "the second one came back and is heard again"
    (feed,) = [effect for effect in world.effects(events) if isinstance(effect, fx.FeedStage)]
    assert feed.refs == second
    world.accept()
    world.lose(world.resident)
    assert places_of(begins(world, world.append(5)).items) == [SampleRef("in", 0, 7 * FRAME)], "all of it was heard"


@rule("K2", "N34")
def test_a_turn_in_units_names_no_place_of_what_the_request_was_given() -> None:
    world = World(plugin="minicpm-o-4.5", ref_audio=Recording(SampleRef("ref", 0, 32_000), 7))
    world.append(32)
    submit, *_, feed = world.effects(world.commit(create_response=True))
    assert isinstance(submit, fx.SubmitToStage)
    assert submit.payload.ref_audio == SampleRef("ref", 0, 32_000)
    assert isinstance(feed, fx.FeedStage)
    assert feed.refs
    for turn in (submit.payload, feed.turn):
        assert turn is not None
        (item,) = turn.items
        assert isinstance(item, Message)
        assert item.content == (AudioPart(None, None, 16_000, 32 * FRAME_MS),)
    assert feed.turn is not None
    assert feed.turn.ref_audio is None


@rule("N9")
def test_words_that_are_known_stand_for_their_sound_unless_the_model_hears_it() -> None:
    for plugin, hears in (("cascade", False), ("qwen3-omni", True)):
        world = World(plugin=plugin)
        world.append(10, transcript="Good morning.")
        world.say("Hello?")
        payload = begins(world, world.commit(create_response=True))
        spoken = payload.items[-1]
        assert isinstance(spoken, Message)
        (part, *_) = spoken.content
        place = SampleRef("in", 0, 10 * FRAME) if hears else None
        assert part == AudioPart("Good morning.", place, 16_000, 10 * FRAME_MS)


def test_nothing_else_has_effects() -> None:
    session = core.new()
    assert core.react(session, ev.AnswerDeferred()) == []
    assert core.react(session, ev.Interrupted(epoch=1, cause="barge_in", requests=())) == []
