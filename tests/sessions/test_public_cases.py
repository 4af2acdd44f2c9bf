"""What was seen in the field with other engines: each docstring is the symptom, each test what holds here."""

import pytest

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import AudioFormat
from antiphon.events.config import ConfigPatch, Dialect, Limits, TurnDetection
from antiphon.events.items import AudioPart, FunctionCall, FunctionOutput, Item, Message, TextPart
from antiphon.sessions.view import prompt

from tests.rules import rule
from tests.sessions.world import FRAME, QUICK_VAD, World, error, kinds, only

STORY = "one two six ten now and for you all yes"
"""Ten words of equal length."""


def normal_answer(world: World) -> None:
    """Ask again, and hear a whole answer."""
    world.wait(10_000)
    response_id = world.begin("And now?")
    sound = only(world.produce("As always.", 300), ev.AudioDelta)
    assert (sound.response_id, sound.audio_ms, sound.text) == (response_id, 300, "As always.")
    ended = only(world.finish(), ev.ResponseEnded)
    assert (ended.status, ended.text) == ("completed", "As always.")
    world.ack(300, response_id=response_id)
    assert world.heard()[-1] == "As always."


# -- truncation ----------------------------------------------------------------------------------------------


@rule("I15", "P32")
@pytest.mark.parametrize("dialect", ["ga", "beta", "duplex"])
@pytest.mark.parametrize("running", [True, False])
def test_a_truncation_beyond_the_sound(dialect: Dialect, running: bool) -> None:
    """A truncation longer than the audio: an error is shown, and the assistant never speaks again."""
    world = World(dialect=dialect)
    response_id = world.begin()
    world.produce(STORY, 1_200)
    if not running:
        world.finish()
    assert error(world.truncate(f"item_{response_id}", 1_300)) == "bad_event"
    assert world.shown(f"item_{response_id}") == ("" if running else STORY)
    if running:
        assert only(world.produce(" and more", 300), ev.AudioDelta).audio_ms == 1_500
        assert only(world.finish(), ev.ResponseEnded).text == f"{STORY} and more"
    normal_answer(world)


@rule("I16", "G38")
@pytest.mark.parametrize("words_first", [True, False])
def test_a_truncation_to_nothing_before_the_first_sound(words_first: bool) -> None:
    """The user cuts in before the first delta, the client truncates to 0 ms: the item is stuck, or talks on."""
    world = World(dialect="ga")
    response_id = world.begin()
    item_id = f"item_{response_id}"
    if not words_first:
        assert error(world.truncate(item_id, 0)) == "item_not_found", "nobody was told of it yet"
        world.produce(STORY, 1_200)
        assert only(world.truncate(item_id, 0), ev.ItemTruncated).text == ""
    else:
        world.produce("one ")
        assert error(world.truncate(item_id, 1)) == "bad_event"
        assert only(world.truncate(item_id, 0), ev.ItemTruncated).text == ""
        world.produce("two", 500)
    ended = only(world.finish(), ev.ResponseEnded)
    assert ended.item is not None
    assert ended.item.content == (AudioPart("", None, 24_000, 0),)
    assert not ended.committed
    assert world.heard() == []
    normal_answer(world)


@rule("I16")
def test_a_truncation_of_an_answer_that_never_had_sound() -> None:
    """Truncated to 0 ms, then cancelled before any audio: the whole text comes back in the next prompt."""
    world = World(dialect="ga")
    response_id = world.begin()
    world.produce(STORY)
    world.truncate(f"item_{response_id}", 0)
    ended = only(world.cancel(), ev.ResponseEnded)
    assert ended.item is not None
    assert ended.item.content == (AudioPart("", None, 24_000, 0),)
    assert world.heard() == []


@rule("I17", "I3", "I5")
@pytest.mark.parametrize(("played_ms", "words"), [(1_200, "one two six ten"), (0, "")])
@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("dialect", ["ga", "duplex"])
def test_history_after_an_interruption_is_what_was_heard(
    played_ms: int, words: str, ended: bool, dialect: Dialect
) -> None:
    """Interrupted after 1.2 of 3 seconds, the model goes on as if it had said everything, or repeats all of it."""
    world = World(dialect=dialect)
    response_id = world.begin()
    world.produce(STORY, 3_000)
    if ended:
        world.finish()
    world.wait(played_ms)
    events = world.barge_in()
    cut = only(events, ev.HistoryCut)
    assert (cut.ms, cut.text) == (played_ms, words)
    assert world.shown(f"item_{response_id}") == words
    assert world.heard() == ([words] if words else [])
    if not ended:
        told = only(events, ev.ResponseEnded)
        assert told.item is not None
        assert (told.item.status, told.committed) == ("incomplete", bool(words))
    world.say("Go on.", "next")
    shown = [item.id for item in prompt(world.session)]
    assert shown[-1] == "next"
    assert (f"item_{response_id}" in shown) == bool(words), "an empty answer is a border, and not shown"
    assert f"item_{response_id}" in world.session.conversation.order


@rule("I15")
@pytest.mark.parametrize("kind", ["text", "call", "user"])
def test_a_restored_item_truncated_as_sound(kind: str) -> None:
    """A client restores a conversation from text and truncates the last answer as audio: the session breaks."""
    world = World(dialect="ga")
    items: dict[str, Item] = {
        "text": Message(id="old", role="assistant", content=(TextPart("I said this."),)),
        "call": FunctionCall(id="old", call_id="c", name="f", arguments="{}"),
        "user": Message(id="old", role="user", content=(TextPart("I asked this."),)),
    }
    world.item(items[kind])
    (refused,) = world.truncate("old", 0)
    assert isinstance(refused, ev.ErrorReported)
    assert (refused.code, refused.param) == ("bad_event", "item_id")
    assert world.session.conversation.entries["old"].item == items[kind]
    normal_answer(world)


# -- starting and stopping -----------------------------------------------------------------------------------


@rule("G30", "G20", "P16")
@pytest.mark.parametrize("spoken", [True, False])
@pytest.mark.parametrize("dialect", ["ga", "duplex"])
def test_cancel_then_create_at_once(spoken: bool, dialect: Dialect) -> None:
    """`response.cancel` and `response.create` in one breath: "already has an active response", or two answers."""
    world = World(dialect=dialect)
    first = world.begin()
    old = world.request
    if spoken:
        world.produce(STORY, 1_000)
    assert only(world.cancel(), ev.ResponseEnded).head.id == first
    world.say("Differently, please.")
    second = only(world.respond(), ev.ResponseCreated).head
    assert second.id != first
    assert world.request != old
    assert world.produce("late", 100, request=old) == [], "the stage has not heard of the end yet"
    assert world.finish(old) == []
    world.release()
    assert only(world.produce("New.", 100), ev.AudioDelta).response_id == second.id
    assert only(world.finish(), ev.ResponseEnded).status == "completed"


@rule("G6", "G2")
@pytest.mark.parametrize("client_first", [True, False])
def test_the_detector_and_the_client_both_ask_for_an_answer(client_first: bool) -> None:
    """Server VAD commits and answers while the client sends `response.create`: two answers speak at once."""
    world = World(dialect="ga", vad=QUICK_VAD)
    world.say("In writing, too.")
    world.append(12, score=990)
    asked = cmd.CreateResponse(attachment=1, event_id="mine")
    if client_first:
        events = world.do(asked)
        assert only(events, ev.ResponseCreated)
        assert not any(isinstance(event, ev.ResponseCreated) for event in world.append(12, score=0))
        assert len(world.watch.responses) == 1
        assert only(world.finish(), ev.ResponseEnded).status == "completed"
        assert len(world.watch.responses) == 2, "what was said meanwhile is answered behind it"
        return
    ended = world.append(12, score=0)
    first = only(ended, ev.ResponseCreated).head.id
    (refused,) = world.do(asked)
    assert isinstance(refused, ev.ErrorReported)
    assert (refused.code, refused.event_id) == ("response_already_active", "mine")
    assert first in refused.message
    assert list(world.watch.responses) == [first]


@rule("F5")
@pytest.mark.parametrize("dialect", ["ga", "duplex"])
@pytest.mark.parametrize(
    ("score", "least_ms"), [(400, 96), (990, 300)], ids=["not like speech", "shorter than an utterance"]
)
def test_a_short_noise_during_an_answer(dialect: Dialect, score: int, least_ms: int) -> None:
    """A cough or a door of 200 ms: the assistant stops in the middle of a sentence and nobody asked anything."""
    vad = TurnDetection(min_speech_duration_ms=least_ms)
    world = World(dialect=dialect, vad=vad)
    response_id = world.begin()
    world.produce(STORY, 3_000)
    heard = world.append(6, score=score) + world.append(1, score=score // 2) + world.append(30, score=0)
    told = {type(event) for event in heard}
    assert told <= {ev.AudioReceived, ev.OverlapDecided, ev.InputDiscarded}
    assert all(event.action != "barge_in" for event in heard if isinstance(event, ev.OverlapDecided))
    assert world.session.epoch == 0
    assert only(world.produce(" and more", 300), ev.AudioDelta).response_id == response_id
    assert only(world.finish(), ev.ResponseEnded).status == "completed"
    assert len(world.session.conversation.order) == 2


@rule("F19")
def test_a_short_noise_during_an_answer_without_a_detector() -> None:
    """Push to talk: a noise of 200 ms, committed during an answer, becomes an empty turn of the user."""
    world = World()
    world.begin()
    world.produce(STORY, 3_000)
    world.append(6)
    committed = only(world.commit(), ev.InputCommitted)
    assert (committed.empty, committed.overlap_ack, committed.no_response) == (True, True, True)
    assert len(world.session.conversation.order) == 2
    assert only(world.finish(), ev.ResponseEnded).status == "completed"


@rule("P41", "I10", "P15")
def test_three_fast_interruptions() -> None:
    """The user cuts in three times in a second: the answers stand behind the wrong questions."""
    world = World(dialect="ga", vad=QUICK_VAD)
    turns: list[tuple[str, str]] = []
    for n in range(3):
        world.append(4, score=990)
        ended = world.append(12, score=0)
        created = only(ended, ev.ResponseCreated).head
        turns.append((only(ended, ev.InputCommitted).item_id, created.item_id))
        started = only(world.produce(f"Answer number {n} is this.", 2_000), ev.OutputStarted)
        assert started.previous_item_id == turns[-1][0]
    last = world.append(4, score=990)
    assert only(last, ev.ResponseEnded).head.item_id == turns[-1][1]
    assert world.session.conversation.order == [item_id for turn in turns for item_id in turn]
    assert world.session.epoch == 3
    for _, answer in turns:
        entry = world.session.conversation.entries[answer].item
        assert isinstance(entry, Message)
        assert entry.status == "incomplete"


@rule("G38", "P15", "P17")
@pytest.mark.parametrize("how", ["cancel", "barge_in", "clear", "vad"])
def test_a_stage_that_goes_on_after_a_cancel(how: str) -> None:
    """The generator ignores the cancel: its sound is heard under the next answer, or a second `response.done`."""
    world = World(dialect="ga", vad=QUICK_VAD)
    world.begin()
    old = world.request
    world.produce(STORY, 1_000)
    stop = {
        "cancel": world.cancel,
        "barge_in": world.barge_in,
        "clear": lambda: world.do(cmd.ClearOutput(attachment=1)),
        "vad": lambda: world.append(4, score=990),
    }
    assert only(stop[how](), ev.ResponseEnded).status == "cancelled"
    for _ in range(3):
        assert world.produce("late", 100, request=old) == []
    second = world.begin("Next.")
    assert world.produce("late", 100, request=old) == []
    assert world.finish(old) == []
    assert world.fail(old) == []
    assert only(world.produce("New.", 100), ev.AudioDelta).response_id == second
    assert len(world.log) < 40


@rule("I11", "I16", "G30")
@pytest.mark.parametrize("dialect", ["ga", "duplex"])
def test_clear_after_completion_then_a_late_acknowledgement(dialect: Dialect) -> None:
    """The output is cleared behind `response.done`, the last ack is still under way: an error, or all text back."""
    world = World(dialect=dialect)
    response_id = world.answer(STORY, 3_000)
    world.wait(1_000)
    events = world.do(cmd.ClearOutput(attachment=1))
    assert only(events, ev.OutputCleared).response_id == response_id
    assert only(events, ev.HistoryCut).ms == 1_000
    told = only(world.ack(1_200, response_id=response_id), ev.PlaybackAcknowledged)
    assert told.playback.committed_ms == 1_200, "the client knows better than the estimate"
    assert world.heard() == ["one two six ten"]
    world.wait(5_001)
    told = only(world.ack(3_000, response_id=response_id), ev.PlaybackAcknowledged)
    assert told.playback.committed_ms == 1_200
    assert world.heard() == ["one two six ten"]
    normal_answer(world)


# -- connections and limits ----------------------------------------------------------------------------------


@rule("P52", "D24")
def test_queued_commands_of_a_dead_connection() -> None:
    """The socket dies with commands under way: they are lost, or carried out twice after the reconnect."""
    world = World()

    def say(attachment: int, seq: int) -> list[ev.AnyEvent]:
        item = Message(id=f"said-{seq}", role="user", content=(TextPart(str(seq)),))
        return world.do(cmd.CreateItem(attachment=attachment, item=item, client_seq=seq))

    for seq in (1, 2, 3):
        say(1, seq)
    world.detach()
    assert say(1, 4) == [], "nobody serves it"
    resumed = only(world.resume(), ev.SessionResumed)
    assert resumed.last_client_seq == 3
    assert say(1, 4) == [], "of the connection that was replaced"
    assert [event.code for event in say(2, 6) if isinstance(event, ev.ErrorReported)] == ["client_seq_gap"]
    for seq in (2, 3, 4, 5, 4, 5, 6):
        say(2, seq)
    assert world.session.conversation.order == [f"said-{seq}" for seq in range(1, 7)]


@rule("E12", "P28", "P32")
def test_sound_without_a_commit_up_to_the_limit() -> None:
    """A client appends for hours and never commits: the server's memory grows, or the session dies."""
    world = World(dialect="ga", limits=Limits(input_bytes=100 * FRAME, min_commit_ms=100))
    for _ in range(100):
        assert kinds(world.append()) == ["AudioReceived"]
    for _ in range(5):
        assert error(world.append()) == "input_backpressure"
    assert world.session.input.reserved == 100 * FRAME
    committed = only(world.commit(), ev.InputCommitted)
    assert committed.ref is not None
    assert committed.ref.size == 100 * FRAME
    assert error(world.append()) == "input_backpressure", "it waits for its answer"
    world.respond()
    assert kinds(world.append()) == ["AudioReceived"]
    world.clear()
    assert world.session.input.reserved == 0


def test_the_negotiated_format_survives_a_resume() -> None:
    """After a reconnect the server takes G.711 for 16-bit samples, and hears noise."""
    world = World()
    telephone = ConfigPatch(
        input_format=AudioFormat("g711_ulaw", 8_000), output_format=AudioFormat("g711_ulaw", 8_000)
    )
    world.do(cmd.UpdateSession(attachment=1, patch=telephone))
    world.detach()
    resumed = only(world.resume(), ev.SessionResumed)
    assert resumed.view.config.input_format == AudioFormat("g711_ulaw", 8_000)
    world.say("Hello?")
    assert only(world.respond(), ev.ResponseCreated).head.output_format == AudioFormat("g711_ulaw", 8_000)


@rule("J10")
def test_fifty_rounds_of_a_tool_with_duplicate_outputs() -> None:
    """Tools are called for an hour, outputs are sent twice: a result stands there twice, or the turn is refused."""
    world = World(dialect="ga")
    for n in range(50):
        call = FunctionCall(id="", call_id=f"call-{n}", name="look", arguments='{"at": "it"}')
        output = FunctionOutput(id="", call_id=f"call-{n}", output=str(n))
        assert error(world.item(output)) == "invalid_function_call_output", "it was not called yet"
        assert kinds(world.item(call)) == ["ItemCreated"]
        assert error(world.item(call)) == "bad_event"
        assert kinds(world.item(output)) == ["ItemCreated"]
        assert error(world.item(output)) == "invalid_function_call_output"
        assert only(world.respond(), ev.ResponseCreated)
        assert error(world.item(output)) == "invalid_function_call_output"
        world.produce(f"It is {n}.", 100)
        world.finish()
        world.release()
    shown = prompt(world.session)
    assert len(shown) == 150
    answered = [item.call_id for item in shown if isinstance(item, FunctionOutput)]
    assert answered == [f"call-{n}" for n in range(50)]
    assert world.session.requests == {}
