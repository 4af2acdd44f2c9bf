"""Signals of the turn and words for it (BEHAVIOURS L14, L15, E9; WIRE 2.15, 2.17)."""

import pytest

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.config import Capabilities, Dialect, Limits
from antiphon.events.items import AudioPart, Message, TextPart
from antiphon.sessions.plugins import CASCADE, ECHO, REGISTRY

from tests.rules import rule
from tests.sessions.world import World, capable, error, kinds, only

NATIVE = Capabilities(implementation_level="model_native_duplex", voices=("default",))


def signal(
    world: World, word: cmd.Signal, playback: cmd.AckPlayback | None = None, event_id: str | None = None
) -> list[ev.AnyEvent]:
    return world.do(cmd.SignalTurn(attachment=world.attachment, signal=word, playback=playback, event_id=event_id))


def write(world: World, text: str, event_id: str | None = None) -> list[ev.AnyEvent]:
    return world.do(cmd.AppendText(attachment=world.attachment, text=text, event_id=event_id))


# -- signals -------------------------------------------------------------------------------------------------

STATES: list[tuple[cmd.Signal, ev.TurnState]] = [
    ("user_started", "user_speaking"),
    ("user_committed", "user_committed"),
    ("assistant_started", "assistant_generating"),
    ("assistant_done", "idle"),
]


@rule("L14", "N30")
@pytest.mark.parametrize(("word", "state"), STATES)
def test_l14_a_signal_moves_the_state_of_the_turn_and_nothing_else(word: cmd.Signal, state: ev.TurnState) -> None:
    world = World()
    world.wait(5)
    events = signal(world, word)
    told = only(events, ev.TurnSignalled)
    assert kinds(events) == ["TurnSignalled"]
    assert (told.session, told.epoch, told.signal, told.turn_state) == ("duplex-1", 0, word, state)
    assert world.session.turn.state == state
    assert world.session.lease.last_activity == world.now
    assert world.session.phase == "open"
    assert world.session.response is None
    assert kinds(world.append())[0] == "AudioReceived"


@rule("L14")
def test_l14_playback_ack_acts_on_the_current_cursor() -> None:
    world = World()
    response_id = world.answer(ms=1_000)
    events = signal(world, "playback_ack", cmd.AckPlayback(attachment=1, played_ms=400))
    assert kinds(events) == ["PlaybackAcknowledged", "TurnSignalled"]
    assert only(events, ev.TurnSignalled).turn_state == "assistant_playing"
    assert world.session.playouts[response_id].committed_ms == 400


@rule("L14", "A22")
def test_l14_a_playback_ack_of_nothing_is_refused_like_the_typed_one() -> None:
    world = World()
    refused = only(
        signal(world, "playback_ack", cmd.AckPlayback(attachment=1, played_ms=400), event_id="e"), ev.ErrorReported
    )
    assert (refused.code, refused.event_id) == ("playback_item_not_found", "e")


@rule("L14", "Q4.16", "M1")
@pytest.mark.parametrize(("word", "reason"), [("close", "client_close"), ("timeout", "timeout")])
def test_l14_close_and_timeout_are_real_ends(word: cmd.Signal, reason: str) -> None:
    world = World()
    world.begin()
    events = signal(world, word)
    assert kinds(events) == ["TurnSignalled", "ResponseEnded", "SessionClosing"]
    ended = only(world.release(), ev.SessionClosed)
    assert ended.reason == reason
    assert world.session.phase == "closed"
    assert world.session.requests == {}
    assert kinds(signal(World(), word)) == ["TurnSignalled", "SessionClosing", "SessionClosed"]


@rule("L15", "N30")
@pytest.mark.parametrize("word", ["user_started", "playback_ack", "close"])
def test_l15_a_model_without_signals_refuses_them(word: cmd.Signal) -> None:
    world = World(capabilities=capable(CASCADE.capabilities, supports_external_turn_signal=False))
    assert error(signal(world, word)) == "unsupported"
    assert world.session.phase == "open"


@rule("N30")
def test_what_is_shipped_takes_signals() -> None:
    assert ECHO.capabilities.supports_external_turn_signal
    assert CASCADE.capabilities.supports_external_turn_signal


# -- words for the turn --------------------------------------------------------------------------------------


@rule("E9")
@pytest.mark.parametrize("auto", [True, False])
def test_e9_a_model_that_hears_the_turn_takes_no_text_but_the_client_was_active(auto: bool) -> None:
    world = World(plugin="echo", auto=True) if auto else World(capabilities=NATIVE)
    world.wait(5)
    events = write(world, "Hello.", event_id="e")
    assert kinds(events) == ["ErrorReported", "ActivityNoted"]
    refused = only(events, ev.ErrorReported)
    assert (refused.code, refused.event_id) == ("native_text_append_unsupported", "e")
    assert world.session.lease.last_activity == world.now
    assert world.session.input.text == ""


def content_of(world: World, item_id: str) -> tuple[object, ...]:
    item = world.session.conversation.entries[item_id].item
    assert isinstance(item, Message)
    return item.content


@pytest.mark.parametrize("dialect", ["ga", "beta", "duplex"])
def test_wire_2_15_text_is_committed_together_with_the_sound(dialect: Dialect) -> None:
    world = World(dialect=dialect)
    assert kinds(write(world, "Look at ")) == ["TextReceived"]
    world.append(10)
    write(world, "this.")
    events = world.commit(create_response=True)
    item_id = only(events, ev.InputCommitted).item_id
    assert only(events, ev.InputCommitted).is_speech
    sound, text = content_of(world, item_id)
    assert isinstance(sound, AudioPart)
    assert sound.ms == 320
    assert text == TextPart("Look at this.")
    assert "ResponseCreated" in kinds(events)
    assert world.session.input.text == ""


@pytest.mark.parametrize("dialect", ["ga", "beta", "duplex"])
def test_wire_2_15_text_alone_is_a_turn_if_the_model_can_do_that(dialect: Dialect) -> None:
    world = World(dialect=dialect)
    write(world, "Hello.")
    events = world.commit(create_response=True)
    committed = only(events, ev.InputCommitted)
    assert content_of(world, committed.item_id) == (TextPart("Hello."),)
    assert not committed.is_speech
    assert committed.ref is None
    assert "ResponseCreated" in kinds(events)
    deaf = World(
        dialect=dialect, capabilities=capable(REGISTRY["cascade"].capabilities, supports_text_only_turn=False)
    )
    write(deaf, "Hello.")
    assert error(deaf.commit()) == "text_only_turn_unsupported"
    assert deaf.session.input.text == "Hello.", "a refused commit keeps what was written (E33)"
    deaf.append(10)
    assert "InputCommitted" in kinds(deaf.commit())


@rule("E35")
def test_silence_beside_written_words_is_no_part_of_the_turn() -> None:
    world = World()
    write(world, "Hello.")
    world.append(10, speech=False)
    committed = only(world.commit(is_speech=False), ev.InputCommitted)
    assert not committed.empty
    assert content_of(world, committed.item_id) == (TextPart("Hello."),)
    assert world.session.input.reserved == 0


@rule("E28")
def test_a_clear_drops_what_was_written() -> None:
    world = World()
    write(world, "Hello.")
    world.clear()
    assert world.session.input.text == ""
    assert error(world.commit()) == "input_audio_buffer_empty"


@rule("F19")
def test_written_words_over_an_answer_are_no_short_acknowledgement() -> None:
    world = World()
    world.begin()
    world.append(5)
    write(world, "No, wait.")
    committed = only(world.commit(), ev.InputCommitted)
    assert not committed.overlap_ack
    assert committed.overlap_deferred


def test_a_pause_over_an_answer_forgets_no_written_words() -> None:
    world = World()
    world.begin()
    write(world, "No, wait.")
    world.do(
        cmd.AppendAudio(attachment=1, size=1024, wire_bytes=1024, speech=True, overlap="drop"),
    )
    assert world.session.input.text == "No, wait."


@rule("E12")
def test_text_counts_against_the_budget_of_the_input() -> None:
    world = World(limits=Limits(input_bytes=10))
    assert kinds(write(world, "12345")) == ["TextReceived"]
    assert error(write(world, "678901")) == "input_backpressure"
    assert kinds(write(world, "67890")) == ["TextReceived"]
    assert error(write(world, "")) == "bad_event"
