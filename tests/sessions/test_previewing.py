"""The running transcript: the stage is asked at a pause, and its words decide how long that may be (WIRE 4.4)."""

import pytest
from msgspec.structs import replace

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.audio import SampleRef
from antiphon.events.config import ConfigPatch, Dialect, Limits, Transcription, TurnDetection
from antiphon.events.context import ContextTurn
from antiphon.events.items import AudioPart, Message, sound_index
from antiphon.sessions.plugins import CASCADE
from antiphon.sessions.transcript import words_so_far
from antiphon.sessions.view import next_deadline

from tests.rules import rule
from tests.sessions.world import FRAME, FRAME_MS, QUICK_VAD, World, error, kinds, only

SEMANTIC = TurnDetection(type="semantic_vad", eagerness="medium")
PAUSE = 7
"""Frames of silence behind which the words are asked for: the first number of them that lasts 200 ms."""


def frames(ms: int) -> int:
    """How many frames of silence end a turn that may pause so long."""
    return -(-ms // FRAME_MS)


def listening(dialect: Dialect = "duplex", detection: TurnDetection = SEMANTIC, spoken: int = 10) -> World:
    """The user speaks for `spoken` frames."""
    world = World(dialect=dialect, vad=detection, auto=dialect == "duplex")
    world.append(spoken, score=900)
    return world


def asked(world: World) -> str:
    """Return the question that is under way."""
    (name,) = [
        name for name, known in world.session.requests.items() if known.utterance and known.phase != "leaving"
    ]
    return name


def paused(detection: TurnDetection = SEMANTIC, dialect: Dialect = "duplex") -> World:
    """The user has spoken and paused, and the stage is asked."""
    world = listening(dialect, detection)
    assert kinds(world.append(PAUSE, score=0)) == ["AudioReceived", "PreviewRequested"]
    return world


def told(world: World, text: str, request: str | None = None) -> list[ev.AnyEvent]:
    """Let the stage answer the question."""
    name = request or asked(world)
    item_id = world.session.input.item_id or ""
    return world.do(cmd.StageTranscribed(request=name, item_id=item_id, text=text, final=False))


def stopped(world: World, most: int = 300) -> tuple[int, ev.SpeechStopped, list[ev.AnyEvent]]:
    """Be silent until the turn is over; return after how many frames that was."""
    for count in range(1, most + 1):
        events = world.append(1, score=0)
        found = [event for event in events if isinstance(event, ev.SpeechStopped)]
        if found:
            return count, found[0], events
    raise AssertionError("the turn goes on")


# -- asking --------------------------------------------------------------------------------------------------


def test_a_pause_asks_once_for_the_words_so_far() -> None:
    world = listening()
    assert kinds(world.append(PAUSE - 1, score=0)) == ["AudioReceived"]
    events = world.append(1, score=0)
    event = only(events, ev.PreviewRequested)
    assert event.request == "duplex-1.e0.preview1"
    assert event.item_id == world.session.input.item_id
    assert event.ref == SampleRef("in", 0, 17 * FRAME)
    assert kinds(world.append(5, score=0)) == ["AudioReceived"], "the pause goes on"


def test_the_stage_is_given_the_sound_and_the_purpose() -> None:
    world = listening()
    events = world.append(PAUSE, score=0)
    (effect,) = world.effects(events)
    assert isinstance(effect, fx.SubmitToStage)
    payload = effect.payload
    assert (payload.purpose, payload.response_id, payload.speaks) == ("transcribe", None, False)
    (item,) = payload.items
    assert isinstance(item, Message)
    part = item.content[sound_index(item)]
    assert (item.id, part.ref) == (world.session.input.item_id, only(events, ev.PreviewRequested).ref)  # type: ignore[union-attr]


def test_another_pause_asks_anew_and_the_first_question_is_void() -> None:
    world = paused()
    first = asked(world)
    world.append(3, score=900)
    events = world.append(PAUSE, score=0)
    assert kinds(events) == ["AudioReceived", "PreviewDropped", "PreviewRequested"]
    assert [type(effect) for effect in world.effects(events)] == [fx.AbortRequests, fx.SubmitToStage]
    assert asked(world) == "duplex-1.e0.preview2"
    assert told(world, "Too late.", first) == [], "DESIGN 3: its request is not live"
    world.do(cmd.StageReleased(request=first))
    assert list(world.session.requests) == ["duplex-1.e0.preview2"]


def test_of_a_long_utterance_the_end_is_listened_to() -> None:
    world = listening(spoken=700)
    ref = only(world.append(PAUSE, score=0), ev.PreviewRequested).ref
    assert ref.size == 20_000 * 32
    assert ref.end == world.session.input.position


@pytest.mark.parametrize(
    "world",
    [
        World(vad=QUICK_VAD),
        World(vad=SEMANTIC, capabilities=replace(CASCADE.capabilities, transcribes_ahead=False)),
        World(plugin="echo", vad=SEMANTIC),
    ],
    ids=["server_vad", "unable", "resident"],
)
def test_nobody_is_asked_who_cannot_tell_or_need_not(world: World) -> None:
    world.append(10, score=900)
    assert kinds(world.append(PAUSE, score=0)) == ["AudioReceived"]
    assert words_so_far(world.session) is None


# -- the words decide ----------------------------------------------------------------------------------------


@rule("F6")
@pytest.mark.parametrize(
    ("text", "ms", "reason", "by"),
    [
        ("What is the time?", 500, "sentence_complete", "asked"),
        ("I would like to", 4_000, "sentence_unfinished", "leading_word"),
        ("what is the time", 900, "sentence_unclear", "no_mark"),
        ("", 900, "no_transcript", "no_words"),
    ],
)
def test_a_pause_may_last_as_its_words_allow(text: str, ms: int, reason: str, by: str) -> None:
    world = paused()
    event = only(told(world, text), ev.TurnPreviewed)
    assert (event.text, event.rule) == (text, by)
    count, stop, events = stopped(world)
    assert PAUSE + count == frames(ms)
    assert (stop.reason, stop.rule) == (reason, by)
    assert only(events, ev.InputCommitted).reason == reason


@pytest.mark.parametrize(
    ("eagerness", "complete", "unfinished", "nothing"),
    [("low", 900, 8_000, 1_500), ("medium", 500, 4_000, 900), ("auto", 500, 4_000, 900), ("high", 300, 2_000, 500)],
)
def test_wire_4_4_eagerness(eagerness: str, complete: int, unfinished: int, nothing: int) -> None:
    for text, ms in (("Yes, please.", complete), ("Yes, and", unfinished), (None, nothing)):
        world = paused(TurnDetection(type="semantic_vad", eagerness=eagerness))  # type: ignore[arg-type]
        if text is not None:
            told(world, text)
        count, stop, _ = stopped(world)
        assert PAUSE + count == frames(ms)
        assert (stop.reason == "no_transcript") == (text is None)


def test_words_that_come_after_their_limit_end_the_turn_with_the_next_frame() -> None:
    world = paused()
    world.append(12, score=0)
    told(world, "All is said.")
    count, stop, _ = stopped(world)
    assert (count, stop.reason) == (1, "sentence_complete")


def test_words_of_a_pause_say_nothing_of_the_next_one() -> None:
    world = paused()
    told(world, "I would like to")
    world.append(3, score=900)
    assert words_so_far(world.session) == "I would like to"
    world.append(PAUSE, score=0)
    count, stop, _ = stopped(world)
    assert (PAUSE + count, stop.reason) == (frames(900), "no_transcript")


def test_words_that_come_when_the_user_speaks_again_are_known_and_decide_nothing() -> None:
    world = paused()
    world.append(3, score=900)
    assert kinds(told(world, "I would like to")) == ["TurnPreviewed"]
    assert words_so_far(world.session) == "I would like to"
    assert world.session.input.vad.patience is None


def test_the_same_words_again_are_no_news_and_other_ones_are() -> None:
    world = paused()
    told(world, "I would like")
    assert told(world, "I would like") == []
    assert kinds(told(world, "I would like to")) == ["TurnPreviewed"]
    assert words_so_far(world.session) == "I would like to"


def test_what_was_heard_is_the_same_when_the_log_is_folded_without_samples() -> None:
    """The decision is a fold of scores and events: `Watch` folds every step anew."""
    world = paused()
    told(world, "I would like to")
    world.do(cmd.StageFinished(request=asked(world)))
    _, stop, _ = stopped(world)
    assert stop.reason == "sentence_unfinished"


@pytest.mark.parametrize("dialect", ["duplex", "ga", "beta"])
def test_words_so_far_while_the_turn_is_open(dialect: Dialect) -> None:
    world = World(dialect=dialect, vad=SEMANTIC)
    assert words_so_far(world.session) == "", "they can be told"
    world.append(10, score=900)
    world.append(PAUSE, score=0)
    assert words_so_far(world.session) == ""
    told(world, "Well, um")
    assert words_so_far(world.session) == "Well, um"
    world.clear()
    assert words_so_far(world.session) == ""


# -- what a turn with words shares with any other (WIRE 4.4, 6.2, 6.3) -------------------------------------------


@rule("F21", "F22")
@pytest.mark.parametrize("dialect", ["duplex", "ga", "beta"])
def test_speech_that_does_not_interrupt_is_asked_about_and_answered_behind_the_running_answer(
    dialect: Dialect,
) -> None:
    world = World(dialect=dialect, vad=replace(SEMANTIC, interrupt_response=False), auto=dialect == "duplex")
    world.begin()
    running = world.request
    world.produce("It is ", 2_000)
    world.append(20, score=900)
    assert "PreviewRequested" in kinds(world.append(PAUSE, score=0))
    told(world, "No, I mean the other one.")
    count, stop, events = stopped(world)
    assert (PAUSE + count, stop.reason) == (frames(500), "sentence_complete")
    assert "Interrupted" not in kinds(events)
    committed = only(events, ev.InputCommitted)
    assert committed.response_create_deferred
    assert committed.overlap_deferred
    assert only(events, ev.AnswerDeferred).item_id == committed.item_id
    assert world.request == running
    if dialect == "duplex":
        decided = [event for event in world.logged(ev.OverlapDecided) if event.action == "listen"]
        assert {event.reason for event in decided} == {"policy_listen_only"}
        world.ack(2_000)
    events = world.finish(running)
    assert kinds(events)[-2:] == ["ResponseCreated", "RequestSubmitted"]


@pytest.mark.parametrize(("dialect", "auto"), [("ga", False), ("beta", False), ("duplex", False)])
def test_a_turn_that_asks_for_no_answer_gets_none(dialect: Dialect, auto: bool) -> None:
    world = World(dialect=dialect, vad=replace(SEMANTIC, create_response=False), auto=auto)
    world.append(10, score=900)
    world.append(PAUSE, score=0)
    told(world, "What is the time?")
    _, _, events = stopped(world)
    assert only(events, ev.InputCommitted).no_response
    assert "ResponseCreated" not in kinds(events)
    assert "ResponseCreated" in kinds(world.respond())


def test_a_user_who_is_silent_behind_an_answer_is_prompted() -> None:
    world = World(dialect="ga", vad=replace(SEMANTIC, idle_timeout_ms=5_000))
    world.answer(ms=1_000)
    world.release()
    world.wait(6_000)
    events = world.tick()
    assert kinds(events)[:2] == ["InputTimedOut", "InputCommitted"]
    assert only(events, ev.InputCommitted).reason == "idle"
    assert kinds(events)[-1] == "RequestSubmitted", "nobody is asked for words of silence"


# -- the words of the turn ------------------------------------------------------------------------------------


def transcript_of(world: World, events: list[ev.AnyEvent]) -> str | None:
    """Return the words that the item of a turn has when it is answered."""
    item = world.session.conversation.entries[only(events, ev.InputCommitted).item_id].item
    assert isinstance(item, Message)
    part = item.content[sound_index(item)]
    assert isinstance(part, AudioPart)
    return part.transcript


@rule("N13")
@pytest.mark.parametrize("shown", [True, False])
def test_a_turn_whose_words_are_known_is_not_heard_again(shown: bool) -> None:
    world = World(vad=SEMANTIC, auto=True)
    if shown:
        world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(transcription=Transcription())))
    world.append(10, score=900)
    world.append(PAUSE, score=0)
    told(world, "What is the time?")
    _, _, events = stopped(world)
    transcribed = only(events, ev.UserTranscribed)
    assert (transcribed.text, transcribed.count, transcribed.final) == ("What is the time?", int(shown), True)
    assert kinds(events)[-3:] == ["ResponseCreated", "RequestSubmitted", "PreviewDropped"]
    assert transcript_of(world, events) == "What is the time?"
    (submit,) = [effect for effect in world.effects(events) if isinstance(effect, fx.SubmitToStage)]
    (item,) = submit.payload.items
    assert isinstance(item, Message)
    (part,) = item.content
    assert isinstance(part, AudioPart)
    assert (part.transcript, part.ref) == ("What is the time?", None)


def test_a_commit_in_a_pause_whose_words_are_known_has_them() -> None:
    world = paused()
    told(world, "What is the time?")
    assert transcript_of(world, world.commit()) == "What is the time?"


def test_words_that_are_not_all_that_was_said_are_not_those_of_the_turn() -> None:
    more = paused()
    told(more, "What is")
    more.append(1, score=900)
    assert transcript_of(more, more.commit()) is None
    nothing = paused()
    told(nothing, "")
    assert transcript_of(nothing, nothing.commit()) is None
    long = listening(spoken=700)
    long.append(PAUSE, score=0)
    told(long, "and so on.")
    assert transcript_of(long, long.commit()) is None
    mine = paused()
    told(mine, "What is the lime?")
    mine.append(1, score=0, transcript="What is the time?")
    assert transcript_of(mine, mine.commit()) == "What is the time?"


@pytest.mark.parametrize("how", ["fails", "is switched off"])
def test_words_behind_which_nobody_has_listened_are_not_those_of_the_turn(how: str) -> None:
    """The detector cannot tell whether more was said."""
    world = paused()
    told(world, "What is the time?")
    if how == "fails":
        world.do(cmd.AppendAudio(attachment=1, size=FRAME, wire_bytes=FRAME, scored=False))
    else:
        world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(turn_detection=None)))
        world.append(1)
    assert transcript_of(world, world.commit()) is None


def test_what_is_said_behind_a_detector_that_is_replaced_is_heard() -> None:
    """It takes more than that for the new one to find speech, but nobody has listened to it."""
    world = paused()
    told(world, "What is the time?")
    other = TurnDetection(min_speech_duration_ms=1_000)
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(turn_detection=other)))
    world.append(20, score=900)
    assert transcript_of(world, world.commit()) is None


# -- words that the client tells ------------------------------------------------------------------------------


@rule("E36")
def test_the_words_that_a_client_sends_decide_as_well_and_nobody_else_is_asked() -> None:
    world = World(vad=SEMANTIC, auto=True)
    world.append(10, score=900, transcript="I would like to")
    assert kinds(world.append(PAUSE, score=0)) == ["AudioReceived"]
    assert words_so_far(world.session) == "I would like to"
    count, stop, _ = stopped(world)
    assert PAUSE + count == frames(4_000)
    assert (stop.reason, stop.rule) == ("sentence_unfinished", "leading_word")


def test_words_of_the_client_that_come_in_the_pause_replace_those_of_the_stage() -> None:
    world = paused()
    told(world, "I would like to")
    world.append(1, score=0, transcript="I would like two.")
    assert words_so_far(world.session) == "I would like two."


def test_a_client_can_tell_words_to_a_model_that_cannot() -> None:
    world = World(plugin="echo", vad=SEMANTIC)
    world.append(10, score=900)
    world.append(PAUSE, score=0, transcript="Good morning!")
    count, stop, _ = stopped(world)
    assert (PAUSE + count, stop.reason) == (frames(500), "sentence_complete")


def test_words_without_a_letter_are_none() -> None:
    world = World(plugin="echo", vad=SEMANTIC)
    world.append(10, score=900, transcript="...")
    _, stop, _ = stopped(world)
    assert (stop.reason, stop.rule) == ("no_transcript", "no_words")


# -- why else a turn ends -------------------------------------------------------------------------------------


def test_the_reasons_of_other_ends() -> None:
    silent = World(vad=QUICK_VAD)
    silent.append(5, score=900)
    _, stop, events = stopped(silent)
    assert (stop.reason, stop.rule, only(events, ev.InputCommitted).reason) == ("silence", None, "silence")
    world = paused()
    events = world.commit()
    assert only(events, ev.SpeechStopped).reason == only(events, ev.InputCommitted).reason == "client"


@rule("F16")
def test_what_is_no_turn_says_so() -> None:
    world = World(vad=replace(SEMANTIC, interrupt_response=False))
    world.begin()
    world.append(10, score=900)
    events = world.do(cmd.AppendAudio(attachment=1, size=FRAME, scores=(900,), overlap="drop"))
    assert only(events, ev.SpeechStopped).reason == "overlap"


# -- the life of a question -----------------------------------------------------------------------------------


@rule("P12", "P13")
def test_a_question_ends_with_its_answer() -> None:
    world = paused()
    name = asked(world)
    world.take(name)
    told(world, "Yes.")
    events = world.do(cmd.StageFinished(request=name, costs=(cmd.StageCost(stage="asr", outputs=1),)))
    assert kinds(events) == ["CostsNoted", "RequestFinished"]
    assert world.effects(events) == [fx.ReleaseRequests(requests=(name,))]
    world.release()
    assert world.session.requests == {}
    assert world.session.costs[0].outputs == 1, "K25: it is spent for the answer to come"


@pytest.mark.parametrize(
    ("end", "last"),
    [
        (lambda world: world.commit(), "InputCommitted"),
        (lambda world: world.clear(), "InputCleared"),
        (lambda world: world.do(cmd.CancelInput(attachment=1)), "InputCleared"),
        (lambda world: world.barge_in(), "InputCleared"),
        (lambda world: world.append(40, score=0), "InputCommitted"),
    ],
    ids=["commit", "clear", "cancel", "barge_in", "silence"],
)
@rule("P12", "P58")
def test_a_question_is_void_when_its_utterance_is_over(end: object, last: str) -> None:
    world = paused()
    name = asked(world)
    events = end(world)  # type: ignore[operator]
    assert last in kinds(events)
    assert kinds(events)[-1] == "PreviewDropped"
    aborts = [effect for effect in world.effects(events) if isinstance(effect, fx.AbortRequests)]
    assert aborts == [fx.AbortRequests(requests=(name,))]
    assert told(world, "Late.", name) == []
    assert world.do(cmd.StageFinished(request=name)) == []


def test_an_append_that_ends_one_utterance_and_begins_another_ends_the_question() -> None:
    world = paused()
    name = asked(world)
    events = world.append(40, scores=(0,) * 30 + (900,) * 10)
    assert [kind for kind in kinds(events) if kind.startswith("Speech")] == ["SpeechStopped", "SpeechStarted"]
    assert only(events, ev.PreviewDropped).request == name


def test_an_append_may_end_a_question_and_ask_the_next_one() -> None:
    world = paused()
    name = asked(world)
    events = world.append(48, scores=(0,) * 30 + (900,) * 10 + (0,) * 8)
    assert kinds(events)[-2:] == ["PreviewDropped", "PreviewRequested"]
    assert only(events, ev.PreviewDropped).request == name
    assert only(events, ev.PreviewRequested).item_id == world.session.input.item_id


@rule("F16")
def test_a_pause_in_sound_that_is_dropped_asks_nothing() -> None:
    world = World(vad=replace(SEMANTIC, interrupt_response=False))
    world.begin()
    world.append(10, score=900)
    dropped = cmd.AppendAudio(attachment=1, size=8 * FRAME, scores=(0,) * 8, overlap="drop")
    assert "PreviewRequested" not in kinds(world.do(dropped))
    assert world.session.input.phase == "silent"


def test_a_question_about_a_turn_that_cannot_be_committed_is_void() -> None:
    world = World(dialect="ga", vad=replace(SEMANTIC, interrupt_response=False), limits=Limits(pending_commits=0))
    world.append(10, score=900)
    world.append(PAUSE, score=0)
    _, _, events = stopped(world)
    assert kinds(events)[-2:] == ["ErrorReported", "PreviewDropped"]


def test_an_update_of_the_detector_leaves_the_question_alone() -> None:
    world = paused()
    events = world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(turn_detection=QUICK_VAD)))
    assert kinds(events) == ["ConfigUpdated"]
    assert kinds(told(world, "I would like to")) == ["TurnPreviewed"]
    assert world.session.input.vad.patience is None
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(turn_detection=None)))
    assert kinds(told(world, "I would like a")) == ["TurnPreviewed"]


@pytest.mark.parametrize("kind", ["fails", "is lost", "is given up", "has a fault", "has no words"])
def test_a_question_that_comes_to_nothing_is_told_to_nobody(kind: str) -> None:
    """The turn ends by the limit of its eagerness."""
    world = paused()
    name = asked(world)
    reports: dict[str, cmd.AnyCommand] = {
        "fails": cmd.StageFailed(request=name, code="engine_error", message="It broke."),
        "is lost": cmd.StageLost(request=name),
        "is given up": cmd.StageReleased(request=name),
        "has a fault": cmd.ReportFault(request=name),
        "has no words": cmd.StageTranscribed(request=name, item_id="", text="", error="too noisy"),
    }
    events = world.do(reports[kind])
    assert not [event for event in events if isinstance(event, ev.PublicEvent)]
    count, stop, _ = stopped(world)
    assert (PAUSE + count, stop.reason) == (frames(900), "no_transcript")


def test_a_stage_that_does_not_let_go_is_asked_again() -> None:
    world = paused()
    name = asked(world)
    world.clear()
    assert kinds(world.do(cmd.StageAbortFailed(request=name))) == ["CleanupFailed"], "nobody is told"
    world.wait(5_000)
    events = world.tick()
    assert only(events, ev.CleanupRetried).requests == (name,)


def test_a_question_produces_no_answer_and_remembers_nothing() -> None:
    world = paused()
    name = asked(world)
    assert world.produce("Hello.", 100, name) == []
    assert world.call(request=name) == []
    assert world.do(cmd.StageContext(request=name, turn=ContextTurn(user="?", assistant="!"))) == []
    assert world.do(cmd.StageSegmentFinished(request=name, decision="listen")) == []
    assert world.end_inner(request=name) == []


def test_an_interruption_of_an_answer_spares_the_question() -> None:
    world = paused()
    world.say("And this?")
    response = only(world.respond(), ev.ResponseCreated)
    events = world.cancel()
    assert only(events, ev.Interrupted).requests == (response.request,)
    assert world.session.requests[asked(world)].epoch == 1, "P11"
    assert kinds(told(world, "Yes.")) == ["TurnPreviewed"]


@rule("P48")
def test_a_question_that_hangs_keeps_no_session_alive() -> None:
    world = paused()
    asked(world)
    assert next_deadline(world.session) == world.session.lease.last_activity + 300_000_000


@rule("P56")
def test_a_restart_and_a_close_end_the_question() -> None:
    world = paused()
    name = asked(world)
    assert only(world.restart(), ev.EngineRestarted).lost == (name,)
    world = paused()
    name = asked(world)
    assert only(world.close(), ev.SessionClosing).requests == (name,)
    assert told(world, "Late.", name) == []


def test_a_refused_append_asks_nothing() -> None:
    world = World(vad=SEMANTIC, limits=Limits(input_bytes=16 * FRAME))
    world.append(10, score=900)
    assert error(world.append(PAUSE, score=0)) == "input_backpressure"
