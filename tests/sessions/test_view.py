"""Readings of a session: what clients see, what time must do, what a model is shown."""

from antiphon.events import commands as cmd
from antiphon.events.config import ConfigPatch, Limits
from antiphon.events.items import Message, TextPart, text_of
from antiphon.sessions.view import next_deadline, outstanding, prompt, view

from tests.rules import rule
from tests.sessions.world import MS, WALL, World


@rule("L13")
def test_l13_the_view_is_built_from_the_state() -> None:
    world = World(limits=Limits(max_session_ms=60_000))
    response_id = world.begin()
    shown = view(world.session)
    assert (shown.id, shown.dialect, shown.state, shown.turn_state) == (
        "duplex-1",
        "duplex",
        "open",
        "assistant_generating",
    )
    assert (shown.active_response, shown.active_request, shown.active_response_turn) == (
        response_id,
        world.request,
        0,
    )
    assert shown.expires_at == WALL // 1_000_000 + 60
    world.produce("one", 100)
    world.cancel()
    idle = view(world.session)
    assert (idle.active_response, idle.epoch, idle.turn, idle.turn_state) == (None, 1, 1, "barge_in")
    assert idle.playback.sent_ms == 100


def test_the_view_may_show_a_configuration_that_is_about_to_hold() -> None:
    world = World()
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(instructions="x")))
    other = World().session
    assert view(other, config=world.session.config).config.instructions == "x"


def test_the_state_of_a_turn_is_told() -> None:
    world = World()
    assert view(world.session).turn_state == "idle"
    world.append()
    assert view(world.session).turn_state == "user_speaking"
    world.commit()
    assert view(world.session).turn_state == "user_committed"
    world.respond()
    world.produce("one", 100)
    world.finish()
    assert view(world.session).turn_state == "assistant_playing"


def test_the_nearest_deadline_counts() -> None:
    world = World(limits=Limits(grace_ms=5_000, idle_ttl_ms=3_000, activation_ms=1_000, max_session_ms=9_000))
    assert next_deadline(world.session) == 3_000 * MS
    world.wait(2_000)
    world.resume()
    assert next_deadline(world.session) == 3_000 * MS
    world.detach()
    assert next_deadline(world.session) == 5_000 * MS


def test_outstanding_are_the_requests_that_no_stage_has_forgotten() -> None:
    world = World()
    world.begin()
    request = world.request
    assert outstanding(world.session) == [request]
    world.cancel()
    assert outstanding(world.session) == [request]
    world.release()
    assert outstanding(world.session) == []


@rule("I22")
def test_i22_a_model_is_shown_what_was_heard() -> None:
    world = World()
    world.item(Message(id="s", role="system", content=(TextPart("Be kind."),)))
    world.answer("one two three four", 1_000)
    assert [text_of(item) for item in prompt(world.session)] == ["Be kind.", "How are you?"]
    world.ack(500)
    assert [text_of(item) for item in prompt(world.session)][-1] == "one two"
    world.wait(2_000)
    world.begin("And now?")
    world.produce("Running.", 100)
    assert [text_of(item) for item in prompt(world.session)][-1] == "And now?"
