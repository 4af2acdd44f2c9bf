"""False interruptions: speech over an answer that is none of the user's turns (DESIGN 5.13, F15, F16)."""

from collections.abc import Callable

import msgspec
import pytest

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.audio import SampleRef
from antiphon.events.config import ConfigPatch, Limits, TurnDetection
from antiphon.sessions import core, delivering
from antiphon.sessions.view import next_deadline, view

from tests.rules import rule
from tests.sessions.world import MS, OUT, OVERLAPPING, QUICK_VAD, World, error, kinds, only

CAREFUL = msgspec.structs.replace(QUICK_VAD, silence_duration_ms=640, false_interruption=True)
"""Starts after two frames, stops after twenty; speech must prove itself."""
SHORT = 6
"""Frames of speech that are too short."""
LONG = 17
"""Frames of speech that are not."""
GAP = 7
"""Frames after which speech has ended, for now."""


MUTE = msgspec.structs.replace(core.REGISTRY["cascade"].capabilities, transcribes_ahead=False)
"""A model that tells no words before the turn has ended."""


def answering(*, sent_ms: int = 1_000, vad: TurnDetection = CAREFUL, tells: bool = False) -> World:
    """A session in the middle of an answer of which 400 ms were heard; `tells`: a stage can be asked for words."""
    world = World(vad=vad, capabilities=None if tells else MUTE)
    world.begin()
    if sent_ms:
        world.produce("All is well. ", sent_ms)
        world.wait(400 - 64)
    return world


def start(world: World) -> ev.InterruptionSuspected:
    """Let the user begin to speak."""
    return only(world.append(2, score=950), ev.InterruptionSuspected)


def cough(world: World) -> list[ev.AnyEvent]:
    """Make a sound that is too short, and fall silent."""
    events = world.append(SHORT, score=950)
    return events + world.append(GAP, score=10)


def resumed(events: list[ev.AnyEvent]) -> str:
    return only(events, ev.InterruptionDismissed).reason


def due(world: World) -> list[ev.AnyEvent]:
    """Let the time come at which it is decided."""
    deadline = next_deadline(world.session)
    assert deadline is not None
    world.now = deadline
    return world.tick()


# -- the opt-in ----------------------------------------------------------------------------------------------


def test_5_13_speech_holds_the_answer_and_interrupts_nothing_yet() -> None:
    world = answering()
    before = world.session.epoch
    events = world.append(2, score=950)
    told = ["SpeechStarted", "OverlapDecided", "InterruptionSuspected"]
    assert [kind for kind in kinds(events) if kind in told] == told
    decided = only(events, ev.OverlapDecided)
    assert (decided.action, decided.reason, decided.cancel) == ("listen", "interruption_suspected", None)
    paused = only(events, ev.InterruptionSuspected)
    assert paused.at_ms == 400
    assert world.session.response is not None
    assert paused.response_id == world.session.response.head.id
    assert world.session.epoch == before
    shown = view(world.session).paused
    assert shown is not None
    assert (shown.response_id, shown.at_ms) == (paused.response_id, 400)


def _in_ga() -> World:
    world = World(dialect="ga", vad=CAREFUL)
    world.begin()
    world.produce("All is well.", 1_000)
    return world


def _listening() -> World:
    world = World(vad=CAREFUL, plugin="echo", auto=True)
    world.append()
    world.produce("", 1_000, world.resident, takes=True)
    return world


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(lambda: answering(vad=QUICK_VAD), id="not asked for"),
        pytest.param(_in_ga, id="another dialect"),
        pytest.param(_listening, id="a model that listens all the time"),
    ],
)
def test_5_13_without_the_opt_in_speech_interrupts_at_once(world: Callable[[], World]) -> None:
    events = world().append(2, score=950)
    assert only(events, ev.Interrupted).cause == "turn_detected"
    assert "InterruptionSuspected" not in kinds(events)


def test_5_13_what_is_said_behind_a_turn_that_is_still_buffered_interrupts_at_once() -> None:
    """It would be forgotten with a turn that was one."""
    world = World(vad=CAREFUL, limits=Limits(pending_commits=0))
    world.append(4, score=950)
    assert error(world.append(20, score=10)[2:]) == "input_backpressure"
    assert world.session.input.phase == "stopped"
    world.begin()
    world.produce("All is well.", 1_000)
    assert only(world.append(2, score=950), ev.Interrupted)


# -- what is no interruption ---------------------------------------------------------------------------------


def test_5_13_a_short_sound_is_forgotten_and_the_answer_goes_on_where_it_stopped() -> None:
    world = answering()
    paused = start(world)
    assert kinds(world.produce("And ", 500)) == ["OutputHeld"]
    assert kinds(world.produce("you?")) == ["OutputHeld"]
    world.append(SHORT - 2, score=950)
    epoch, events = world.session.epoch, world.append(GAP, score=10)
    assert resumed(events) == "too_short"
    assert only(events, ev.InterruptionDismissed).at_ms == paused.at_ms == 400
    told = kinds(events)[kinds(events).index("SpeechStopped") :]
    assert told == ["SpeechStopped", "InputDiscarded", "InterruptionDismissed", "AudioDelta", "TextDelta"]
    delta = only(events, ev.AudioDelta)
    assert (delta.text, delta.audio_ms) == ("And ", 1_500)
    assert world.session.epoch == epoch
    ended = only(world.finish(), ev.ResponseEnded)
    assert (ended.status, ended.text) == ("completed", "All is well. And you?")
    world.ack(1_500)
    assert world.heard() == ["All is well. And you?"], "in history once"
    assert world.session.input.reserved == 0
    assert len(world.session.conversation.order) == 2, "the sound is no item"


def test_5_13_what_was_held_lies_where_it_was_stored() -> None:
    world = answering(sent_ms=100)
    start(world)
    held = only(world.produce("And ", 500), ev.OutputHeld)
    assert held.ref == SampleRef("out", OUT.bytes_for(100), OUT.bytes_for(500))
    events = world.append(GAP, score=10)
    assert only(events, ev.AudioDelta).ref == held.ref
    assert only(world.produce("you?", 10), ev.AudioDelta).ref.start == held.ref.end


def test_5_13_the_playout_model_stands_still() -> None:
    world = answering()
    start(world)
    world.wait(1_200)
    world.append(GAP, score=10)
    world.wait(100)
    cut = only(world.barge_in(), ev.HistoryCut)
    assert (cut.ms, cut.basis) == (500, "playout")


def test_5_13_acknowledgements_count_meanwhile() -> None:
    world = answering()
    world.ack(300)
    start(world)
    world.ack(450)
    world.wait(5_000)
    assert only(world.barge_in(), ev.HistoryCut).ms == 450, "it did not play on while it was held"


def test_5_13_a_client_that_stopped_to_acknowledge_has_its_time_behind_the_pause() -> None:
    world = answering()
    world.finish()
    world.ack(500)
    start(world)
    world.wait(1_900)
    due(world)
    world.append(GAP, score=10)
    assert world.session.suspicion is None
    world.wait(500)
    assert only(world.barge_in(), ev.OutputCleared)


@rule("F15", "F16")
def test_5_13_a_hint_that_only_acknowledges_is_no_interruption() -> None:
    world = answering()
    start(world)
    events = world.append(2, score=950, transcript="mhm")
    assert resumed(events) == "backchannel"
    assert only(events, ev.OverlapDecided).reason == "short_ack_transcript"


@pytest.mark.parametrize("overlap", ["continue", "drop"])
def test_5_13_a_client_says_that_it_is_none(overlap: cmd.OverlapAction) -> None:
    world = answering()
    start(world)
    world.wait(32)
    events = world.do(cmd.AppendAudio(attachment=1, size=1024, wire_bytes=1024, scores=(950,), overlap=overlap))
    assert resumed(events) == "client_overlap_action"
    assert world.session.input.phase == "silent"


def test_5_13_a_hint_is_judged_when_the_user_pauses() -> None:
    """No single append is an acknowledgement, so it is not decided when they come."""
    world = answering()
    start(world)
    world.append(2, score=950, transcript="Go ")
    world.append(2, score=950, transcript="on.")
    assert world.session.suspicion is not None
    assert resumed(world.append(GAP, score=10)) == "backchannel"


def test_5_13_nothing_that_was_said_is_words() -> None:
    world = answering()
    start(world)
    world.append(LONG, score=950, transcript=" ")
    assert world.session.suspicion is not None
    events = due(world)
    assert only(events, ev.InterruptionDoubted).reason == "no_words"


def test_5_13_a_clear_of_the_input_is_a_dismissal() -> None:
    world = answering()
    start(world)
    assert resumed(world.clear()) == "input_cleared"


def test_5_13_a_commit_of_no_speech_is_a_dismissal() -> None:
    world = answering()
    start(world)
    assert resumed(world.commit(is_speech=False)) == "input_cleared"


def test_5_13_the_utterance_that_ends_within_an_append_is_judged_in_it() -> None:
    world = answering(vad=msgspec.structs.replace(CAREFUL, silence_duration_ms=64))
    events = world.append(scores=(950,) * 4 + (10,) * 4)
    assert resumed(events) == "too_short"
    assert "InputCommitted" not in kinds(events)


def test_5_13_two_coughs_in_one_append_are_two() -> None:
    world = answering(vad=msgspec.structs.replace(CAREFUL, silence_duration_ms=64))
    events = world.append(scores=((950,) * 4 + (10,) * 8) * 2)
    assert kinds(events).count("InterruptionSuspected") == kinds(events).count("InterruptionDismissed") == 2


# -- what is one ---------------------------------------------------------------------------------------------


def test_5_13_speech_that_lasts_interrupts_where_nothing_tells_its_words() -> None:
    world = answering()
    start(world)
    world.produce("And you?", 500)
    assert world.append(13, score=950)
    events = world.append(1, score=950)
    decided = [event for event in events if isinstance(event, ev.OverlapDecided)]
    assert [event.reason for event in decided] == ["server_vad_utterance_active", "long_overlap_speech"]
    assert (decided[1].action, decided[1].cancel, decided[1].duration_ms) == ("barge_in", "turn_detected", 512)
    interrupted = only(events, ev.Interrupted)
    assert interrupted.cause == "turn_detected"
    ended = only(events, ev.ResponseEnded)
    assert (ended.status, ended.reason, ended.text) == ("cancelled", "turn_detected", "All is well. ")
    assert only(events, ev.HistoryCut).ms == 400
    assert world.effects(events) == [fx.AbortRequests(requests=interrupted.requests)]
    assert view(world.session).paused is None
    world.release()
    committed = only(world.append(20, score=10), ev.InputCommitted)
    assert committed.ref is not None, "what was said is the turn, from its beginning"
    assert world.session.response is not None


def test_5_13_speech_in_one_append_is_judged_as_a_whole() -> None:
    events = answering().append(LONG, score=950)
    assert [kind for kind in kinds(events) if "nterrupt" in kind] == ["InterruptionSuspected", "Interrupted"]


def test_5_13_words_make_it_one() -> None:
    world = answering()
    start(world)
    world.append(4, score=950, transcript="No, wait")
    assert world.session.suspicion is not None, "half a second is needed all the same"
    events = world.append(LONG, score=950)
    assert only([e for e in events if isinstance(e, ev.OverlapDecided)][1:], ev.OverlapDecided).reason == (
        "overlap_words"
    )
    assert only(events, ev.Interrupted)


def test_5_13_a_short_word_that_says_more_is_one_when_it_ends() -> None:
    world = answering()
    start(world)
    world.append(4, score=950, transcript="Stop.")
    events = world.append(GAP, score=10)
    assert only(events, ev.Interrupted)
    assert only(world.append(20, score=10), ev.InputCommitted).transcript == "Stop."


CLIENTS: dict[str, Callable[[World], list[ev.AnyEvent]]] = {
    "barge_in": lambda world: world.barge_in(),
    "cancel": lambda world: world.cancel(),
    "input_cancel": lambda world: world.do(cmd.CancelInput(attachment=1)),
    "output_audio_buffer_clear": lambda world: world.do(cmd.ClearOutput(attachment=1)),
    "client_commit": lambda world: world.commit(),
    "overlap_action": lambda world: _wish(world, overlap="barge_in"),
    "force_barge_in": lambda world: _wish(world, overlap=None),
}


def _wish(world: World, overlap: cmd.OverlapAction | None) -> list[ev.AnyEvent]:
    return world.do(
        cmd.AppendAudio(
            attachment=1, size=1024, wire_bytes=1024, scores=(950,), overlap=overlap, force_barge_in=overlap is None
        )
    )


@pytest.mark.parametrize("action", CLIENTS)
def test_5_13_an_action_of_the_client_is_at_once(action: str) -> None:
    world = answering()
    start(world)
    world.produce("And you?", 500)
    events = CLIENTS[action](world)
    interrupted = only(events, ev.Interrupted)
    known = {"cancel": "client_cancelled", "overlap_action": "barge_in", "force_barge_in": "barge_in"}
    assert interrupted.cause == known.get(action, action)
    assert only(events, ev.ResponseEnded).text == "All is well. "
    assert only(events, ev.HistoryCut).ms == 400
    assert "InterruptionDismissed" not in kinds(events)
    assert world.session.suspicion is None


def test_5_13_a_stop_in_the_append_that_interrupts_ends_the_turn() -> None:
    world = answering(vad=msgspec.structs.replace(CAREFUL, silence_duration_ms=32))
    start(world)
    world.wait(64)
    events = world.do(
        cmd.AppendAudio(attachment=1, size=2048, wire_bytes=2048, scores=(950, 10), force_barge_in=True)
    )
    assert only(events, ev.Interrupted)
    assert only(events, ev.InputCommitted)


def test_5_13_words_that_come_when_it_has_ended_make_it_a_turn() -> None:
    world = answering(vad=msgspec.structs.replace(CAREFUL, silence_duration_ms=64))
    start(world)
    world.append(LONG, score=950, transcript=" ")
    world.append(2, score=10)
    assert world.session.input.phase == "stopped"
    events = world.append(1, score=10, transcript="What about tea?")
    assert only(events, ev.Interrupted)
    assert only(events, ev.InputCommitted).transcript == " What about tea?"


# -- what is only played -------------------------------------------------------------------------------------


def test_5_13_an_answer_that_is_only_played_is_held_and_goes_on() -> None:
    world = answering()
    world.finish()
    assert start(world).at_ms == 400
    events = world.append(SHORT - 2, score=950) + world.append(GAP, score=10)
    assert resumed(events) == "too_short"
    world.wait(700)
    assert world.session.turn.state == "assistant_playing"
    assert "OutputCleared" not in kinds(world.barge_in()), "it has been heard to its end by now"


def test_5_13_an_answer_that_is_only_played_is_cut() -> None:
    world = answering()
    world.finish()
    start(world)
    events = world.append(LONG, score=950)
    assert only(events, ev.HistoryCut).ms == 400
    assert only(events, ev.OutputCleared).asked is False
    assert "ResponseEnded" not in kinds(events)


def test_5_13_the_one_that_is_heard_is_named_while_the_next_is_made() -> None:
    world = World(vad=CAREFUL, policy="commit_all_on_done")
    first = world.answer(ms=3_000)
    world.begin()
    assert start(world).response_id == first


def test_5_13_an_answer_that_has_said_nothing_yet_is_held() -> None:
    world = answering(sent_ms=0)
    assert start(world).at_ms == 0
    assert kinds(world.produce("All is well.", 1_000)) == ["OutputHeld"]
    assert kinds(world.finish()) == ["OutputHeld"]
    events = world.append(GAP, score=10)
    told = kinds(events)[kinds(events).index("InterruptionDismissed") :]
    assert told == ["InterruptionDismissed", "OutputStarted", "AudioDelta", "RequestFinished", "ResponseEnded"]


def test_5_13_words_without_sound_are_held_like_sound() -> None:
    world = answering(sent_ms=0)
    world.produce("All is ")
    start(world)
    assert kinds(world.produce("well.")) == ["OutputHeld"]
    assert only(world.append(GAP, score=10), ev.TextDelta).text == "well."


def test_5_13_what_was_heard_before_is_not_concerned() -> None:
    world = World(vad=CAREFUL)
    first = world.answer()
    world.ack(1_000)
    world.begin()
    assert start(world).response_id != first
    world.append(GAP, score=10)
    assert world.session.playouts[first].committed_ms == 1_000


def test_5_13_a_turn_that_waits_for_playback_waits_while_that_stands_still() -> None:
    world = answering()
    world.finish()
    world.do(cmd.AppendText(attachment=1, text="And tea?"))
    world.commit(create_response=True)
    assert world.session.turn.deferred == 1
    start(world)
    assert world.session.suspicion is not None
    assert next_deadline(world.session) == world.session.suspicion.due
    world.append(GAP, score=10)
    deadline = next_deadline(world.session)
    assert deadline is not None
    assert deadline - world.now == 600 * MS, "what was left to be played"
    assert only(due(world), ev.ResponseCreated)


# -- what ends meanwhile -------------------------------------------------------------------------------------


def test_5_13_an_answer_that_ends_while_it_is_held_ends_behind_what_was_held() -> None:
    world = answering()
    start(world)
    world.produce("And you?", 500)
    assert kinds(world.finish()) == ["OutputHeld"]
    assert world.session.response is not None
    events = world.append(GAP, score=10)
    assert only(events, ev.ResponseEnded).text == "All is well. And you?"
    assert kinds(events)[-3:] == ["AudioDelta", "RequestFinished", "ResponseEnded"]


@rule("P5")
def test_5_13_what_comes_behind_the_end_says_nothing() -> None:
    world = answering()
    start(world)
    world.finish()
    assert not world.finish()
    assert not world.produce("And you?", 500)
    assert only(world.append(GAP, score=10), ev.ResponseEnded).text == "All is well. "


def test_5_13_calls_are_held_in_their_place() -> None:
    world = answering()
    start(world)
    world.produce("Let me look.", 200)
    assert kinds(world.call("look", call_id="call_a")) == ["OutputHeld"]
    world.finish()
    events = world.append(GAP, score=10)
    ended = only(events, ev.ResponseEnded)
    assert [call.call_id for call in ended.calls] == ["call_a"]
    assert ended.text == "All is well. Let me look."


def test_5_13_a_gate_opens_when_delivery_goes_on() -> None:
    world = World(vad=CAREFUL, plugins=OVERLAPPING)
    world.begin()
    world.produce("All is well.", 1_000)
    start(world)
    assert kinds(world.end_inner()) == ["OutputHeld"]
    assert only(world.append(GAP, score=10), ev.GateOpened)


@rule("P21", "P22")
@pytest.mark.parametrize("fate", ["fail", "lose", "fault", "release"])
def test_5_13_a_failure_is_told_at_once_behind_what_was_held(fate: str) -> None:
    world = answering()
    start(world)
    world.produce("And you?", 500)
    request = world.request
    fates: dict[str, cmd.AnyCommand] = {
        "fail": cmd.StageFailed(request=request, code="engine_error", message="It broke."),
        "lose": cmd.StageLost(request=request),
        "fault": cmd.ReportFault(request=request),
        "release": cmd.StageReleased(request=request),
    }
    events = world.do(fates[fate])
    assert kinds(events)[:4] == ["InterruptionDoubted", "AudioDelta", "ErrorReported", "ResponseEnded"]
    assert only(events, ev.InterruptionDoubted).reason == "answer_failed"
    ended = only(events, ev.ResponseEnded)
    assert (ended.status, ended.text) == ("failed", "All is well. And you?")
    events = world.append(LONG, score=950)
    assert only(events, ev.Interrupted), "what is left of it can still be interrupted"
    assert only(events, ev.OutputCleared)


def test_5_13_what_is_out_of_band_is_not_held() -> None:
    world = answering()
    start(world)
    options = cmd.ResponseOptions(remember=False, instructions="x")
    made = only(world.respond(options), ev.ResponseCreated)
    held = only(world.produce("And you?", 100), ev.OutputHeld)
    beside = only(world.produce("Beside.", 50, made.request), ev.AudioDelta)
    assert held.ref is not None
    assert beside.ref.start == held.ref.end
    assert only(world.finish(made.request), ev.ResponseEnded)
    delta = only(world.append(GAP, score=10), ev.AudioDelta)
    assert delta.ref == held.ref
    assert world.session.output.position == beside.ref.end
    assert not world.do(cmd.StageProduced(request="nobody.e0", text="x"))


def test_5_13_a_stage_that_takes_its_request_is_heard_at_once() -> None:
    world = answering()
    start(world)
    assert kinds(world.take()) == ["RequestAccepted"]
    measured = cmd.StageMeasured(request=world.request, costs=(cmd.StageCost(stage="llm", outputs=1),))
    assert kinds(world.do(measured)) == ["CostsNoted"]


def test_5_13_a_close_cancels_what_was_held() -> None:
    world = answering()
    start(world)
    world.produce("And you?", 500)
    ended = only(world.close(), ev.ResponseEnded)
    assert (ended.status, ended.text) == ("cancelled", "All is well. ")
    assert world.session.suspicion is None


def test_5_13_a_restart_fails_what_was_held_and_says_that_sound_goes_on() -> None:
    world = answering()
    start(world)
    world.produce("And you?", 500)
    events = world.restart()
    assert only(events, ev.ResponseEnded).text == "All is well. "
    assert resumed(events) == "engine_restarted"
    assert world.session.suspicion is None
    world.wait(3_000)
    world.resume()
    assert only(world.barge_in(), ev.HistoryCut).ms == 400, "nobody was told that it may play on"


def test_5_13_a_restart_forgets_what_was_doubted_and_keeps_what_was_said() -> None:
    world = answering()
    start(world)
    due(world)
    assert "InterruptionDismissed" not in kinds(world.restart())
    assert world.session.suspicion is None
    assert world.session.input.phase == "speaking"


def test_5_13_a_restart_of_what_cannot_be_resumed_ends_it() -> None:
    world = World(vad=CAREFUL, resumable=False)
    world.begin()
    world.produce("All is well.", 1_000)
    start(world)
    assert "InterruptionDismissed" not in kinds(world.restart())
    assert world.session.suspicion is None


def test_5_13_a_connection_that_is_lost_ends_nothing() -> None:
    world = answering()
    start(world)
    world.detach()
    world.produce("And you?", 500)
    resumption = only(world.resume(), ev.SessionResumed)
    assert resumption.view.paused is not None
    assert resumption.view.paused.at_ms == 400
    world.wait(300)
    world.do(cmd.ConfirmAttachment(attachment=2))
    events = world.append(GAP, score=10)
    assert resumed(events) == "too_short"
    world.wait(100)
    assert only(world.barge_in(), ev.HistoryCut).ms == 500


def test_5_13_nobody_hears_what_goes_on_while_nobody_is_connected() -> None:
    world = answering()
    start(world)
    world.detach()
    assert only(due(world), ev.InterruptionDoubted).reason == "too_short"
    world.wait(900)
    world.resume()
    world.wait(100)
    assert only(world.barge_in(), ev.HistoryCut).ms == 500


def test_5_13_an_answer_that_is_acknowledged_to_its_end_is_over() -> None:
    world = answering()
    world.finish()
    start(world)
    assert resumed(world.ack(1_000)) == "answer_over"
    assert world.session.input.phase == "speaking", "what is said is a turn like any other"


def test_5_13_an_answer_that_is_over_leaves_a_turn_that_has_ended() -> None:
    world = answering(vad=msgspec.structs.replace(CAREFUL, silence_duration_ms=64))
    world.finish()
    start(world)
    world.append(LONG, score=950, transcript=" ")
    world.append(2, score=10)
    assert world.session.input.phase == "stopped"
    events = world.ack(1_000)
    assert resumed(events) == "answer_over"
    assert only(events, ev.InputCommitted)


# -- the deadline, and what is doubted -----------------------------------------------------------------------


def test_5_13_no_words_within_two_seconds_and_silence_is_none() -> None:
    world = answering(vad=msgspec.structs.replace(CAREFUL, silence_duration_ms=64))
    start(world)
    began = world.now
    world.append(LONG, score=950, transcript=" ")
    world.append(2, score=10)
    world.append(2, score=950)  # it goes on in the same utterance
    assert world.session.input.phase == "speaking"
    world.append(2, score=10)
    events = due(world)
    assert world.now == began + 2_000 * MS
    assert resumed(events) == "no_words"
    assert world.session.input.phase == "silent"


def test_5_13_sound_that_is_late_still_interrupts() -> None:
    """A network that stands still is no silence: nothing that was said is lost."""
    world = answering()
    start(world)
    assert only(due(world), ev.InterruptionDoubted).reason == "too_short"
    assert view(world.session).paused is None
    assert only(world.produce("And you?", 500), ev.AudioDelta), "delivery goes on"
    assert next_deadline(world.session) != world.now
    assert only(world.append(LONG, score=950), ev.Interrupted)
    assert only(world.append(20, score=10), ev.InputCommitted)


def test_5_13_what_is_doubted_and_ends_is_forgotten_without_a_word() -> None:
    world = answering()
    start(world)
    due(world)
    events = world.append(GAP, score=10)
    assert kinds(events)[-2:] == ["SpeechStopped", "InputDiscarded"]
    assert world.session.suspicion is None


def test_5_13_what_is_doubted_waits_for_words_for_two_seconds_behind_its_end() -> None:
    world = answering(sent_ms=9_000)
    start(world)
    world.append(LONG, score=950, transcript=" ")
    due(world)
    world.append(20, score=10)
    assert world.session.input.phase == "stopped"
    ended = world.now
    assert kinds(due(world)) == ["InputDiscarded"]
    assert world.now == ended + 2_000 * MS


def test_5_13_what_is_doubted_and_goes_on_behind_its_end_waits_for_its_next_end() -> None:
    """It was doubted once, and is not again: its sound goes on already."""
    world = answering(sent_ms=20_000)
    start(world)
    world.append(LONG, score=950, transcript=" ")
    assert only(due(world), ev.InterruptionDoubted)
    world.append(20, score=10)
    world.append(4, score=950)
    assert world.session.input.phase == "speaking"
    world.wait(2_000)
    assert world.tick() == []
    world.append(20, score=10)
    ended = world.now
    assert kinds(due(world)) == ["InputDiscarded"]
    assert world.now == ended + 2_000 * MS


def test_5_13_a_clear_that_waited_for_units_lets_the_answer_go_on_at_once() -> None:
    world = World(vad=CAREFUL, plugin="echo", policy="commit_all_on_done")
    world.begin()
    world.produce("All is well. ", 1_000)
    start(world)
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(temperature=0.5)))
    assert kinds(world.clear()) == ["CommandHeld"]
    events = world.accept()
    assert kinds(events)[-2:] == ["InputCleared", "InterruptionDismissed"]
    assert resumed(events) == "input_cleared"
    assert world.session.suspicion is None


def test_5_13_a_cancel_behind_a_commit_that_waits_ends_the_turn_that_interrupted() -> None:
    world = World(vad=CAREFUL, plugin="echo", policy="commit_all_on_done")
    world.begin()
    world.produce("All is well. ", 1_000)
    world.append(8, score=950)
    assert kinds(world.commit(create_response=True)) == ["CommandHeld"]
    events = world.do(cmd.CancelInput(attachment=1))
    assert [event.cause for event in events if isinstance(event, ev.Interrupted)] == [
        "client_commit",
        "input_cancel",
    ]


def test_5_13_a_doubt_is_over_with_the_answer() -> None:
    world = answering()
    start(world)
    due(world)
    world.finish()
    events = world.ack(1_000)
    over = only(events, ev.InterruptionDismissed)
    assert (over.reason, over.count) == ("answer_over", 0)
    assert only(world.append(20, score=10), ev.InputCommitted), "a turn like any other"


def test_5_13_a_doubt_is_over_when_all_was_played() -> None:
    world = answering()
    world.finish()
    start(world)
    due(world)
    world.wait(2_000)
    events = world.append(20, score=10)
    assert kinds(events)[:3] == ["AudioReceived", "SpeechStopped", "InterruptionDismissed"]
    assert only(events, ev.InputCommitted)


def test_5_13_a_doubt_is_over_when_the_words_only_acknowledge() -> None:
    world = answering()
    start(world)
    due(world)
    events = world.append(1, score=950, transcript="Okay.")
    assert kinds(events)[-1] == "InputDiscarded"
    assert world.session.suspicion is None


def test_5_13_a_doubt_ends_with_its_utterance() -> None:
    world = answering()
    start(world)
    due(world)
    world.clear()
    assert world.session.suspicion is None


def test_5_13_a_detector_that_is_replaced_leaves_the_utterance_open() -> None:
    world = answering()
    start(world)
    other = msgspec.structs.replace(CAREFUL, threshold=0.6)
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(turn_detection=other)))
    assert world.append(4, score=10)
    assert world.session.suspicion is not None
    world.append(4, score=950)
    assert only(world.append(10, score=950), ev.Interrupted)


def test_5_13_a_detector_that_fails_leaves_the_decision_to_the_clock() -> None:
    world = answering()
    start(world)
    world.wait(64)
    unscored = cmd.AppendAudio(attachment=1, size=2048, wire_bytes=2048, scored=False)
    assert "InterruptionDoubted" not in kinds(world.do(unscored))


@pytest.mark.parametrize("much", ["pieces", "bytes"])
def test_5_13_what_is_held_is_bounded_and_then_delivered(much: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivering, "HELD_PIECES", 2 if much == "pieces" else 9)
    monkeypatch.setattr(delivering, "HELD_BYTES", 2 * OUT.bytes_for(100) + 4 if much == "bytes" else 10**6)
    world = answering()
    start(world)
    world.produce("a ", 100)
    world.produce("b ", 100)
    events = world.produce("c ", 100)
    assert only(events, ev.InterruptionDoubted).reason == "too_much_held"
    assert [event.text for event in events if isinstance(event, ev.AudioDelta)] == ["a ", "b ", "c "]
    assert only(world.append(LONG, score=950), ev.Interrupted)


# -- words that a stage is asked for --------------------------------------------------------------------------


def question(events: list[ev.AnyEvent]) -> str:
    return only(events, ev.PreviewRequested).request


def told(world: World, request: str, text: str) -> list[ev.AnyEvent]:
    """Let the stage answer what it was asked."""
    item_id = world.session.input.item_id or ""
    events = world.do(cmd.StageTranscribed(request=request, item_id=item_id, text=text, final=False))
    world.finish(request)
    world.release()
    return events


def test_5_13_the_stage_is_asked_for_the_words_of_speech_that_lasts() -> None:
    world = answering(tells=True)
    start(world)
    assert "PreviewRequested" not in kinds(world.append(13, score=950))
    events = world.append(1, score=950)
    asked = question(events)
    assert "Interrupted" not in kinds(events), "its words may come"
    assert "PreviewRequested" not in kinds(world.append(10, score=950)), "one at a time"
    events = told(world, asked, "What about the")
    assert kinds(events)[:3] == ["TurnPreviewed", "OverlapDecided", "Interrupted"]
    decided = only(events, ev.OverlapDecided)
    assert (decided.reason, decided.duration_ms) == ("overlap_words", 26 * 32)
    assert only(world.append(20, score=10), ev.InputCommitted).reason == "silence"


def test_5_13_a_backchannel_is_heard_at_its_end() -> None:
    world = answering(tells=True)
    start(world)
    asked = question(world.append(LONG, score=950))
    assert kinds(told(world, asked, "Mhm.")) == ["TurnPreviewed"], "it may go on"
    assert resumed(world.append(GAP, score=10)) == "backchannel"


def test_5_13_speech_that_goes_on_is_asked_about_again() -> None:
    world = answering(tells=True)
    start(world)
    asked = question(world.append(LONG, score=950))
    told(world, asked, "Okay,")
    again = question(world.append(LONG, score=950))
    assert again != asked
    assert only(told(world, again, "Okay, but what about tea"), ev.Interrupted)


def test_5_13_what_is_said_behind_the_last_question_is_asked_about_in_the_pause() -> None:
    world = answering(tells=True)
    start(world)
    asked = question(world.append(LONG, score=950))
    world.append(4, score=950)
    told(world, asked, "Okay,")
    events = world.append(GAP, score=10)
    assert "InterruptionDismissed" not in kinds(events), "some words are not known"
    assert only(told(world, question(events), "Okay, no."), ev.Interrupted)


def test_5_13_a_noise_without_words_is_none_as_soon_as_that_is_known() -> None:
    world = answering(tells=True)
    start(world)
    asked = question(world.append(LONG, score=950))
    world.append(GAP, score=10)
    events = told(world, asked, "")
    assert resumed(events) == "no_words"
    assert only(events, ev.SpeechStopped).reason == "overlap"


def test_5_13_words_are_waited_for_behind_the_end_of_the_utterance() -> None:
    world = answering(tells=True, vad=msgspec.structs.replace(CAREFUL, silence_duration_ms=64))
    events = world.append(scores=(950,) * LONG + (10,) * 3)
    asked = question(events)
    assert world.session.input.phase == "stopped"
    assert "InputCommitted" not in kinds(events)
    events = told(world, asked, "What about tea?")
    assert kinds(events)[:3] == ["TurnPreviewed", "OverlapDecided", "Interrupted"]
    assert only(events, ev.InputCommitted).reason == "silence"


@pytest.mark.parametrize("fate", ["finish", "fail", "lose"])
def test_5_13_where_the_stage_cannot_tell_the_length_decides(fate: str) -> None:
    world = answering(tells=True)
    start(world)
    asked = question(world.append(LONG, score=950))
    fates: dict[str, Callable[[], list[ev.AnyEvent]]] = {
        "finish": lambda: world.finish(asked),
        "fail": lambda: world.fail(asked),
        "lose": lambda: world.lose(asked),
    }
    events = fates[fate]()
    assert only(events, ev.OverlapDecided).reason == "long_overlap_speech"
    assert only(events, ev.Interrupted)


def test_5_13_a_slow_recogniser_loses_nothing() -> None:
    """Delivery goes on after two seconds, and what was said interrupts it when its words come."""
    world = answering(tells=True, sent_ms=9_000)
    start(world)
    asked = question(world.append(LONG, score=950))
    world.append(20, score=10)
    assert only(due(world), ev.InterruptionDoubted).reason == "no_words"
    world.wait(500)
    events = told(world, asked, "What about tea?")
    assert only(events, ev.Interrupted)
    assert only(events, ev.InputCommitted)


def test_5_13_a_recogniser_that_hangs_is_not_waited_for() -> None:
    world = answering(tells=True, sent_ms=9_000)
    start(world)
    asked = question(world.append(LONG, score=950))
    world.append(20, score=10)
    due(world)
    assert kinds(due(world)) == ["InputDiscarded", "PreviewDropped"]
    assert world.session.requests[asked].phase == "leaving"


def test_5_13_words_of_the_client_come_before_those_of_the_stage() -> None:
    world = answering(tells=True)
    start(world)
    events = world.append(LONG, score=950, transcript="What about tea")
    assert "PreviewRequested" not in kinds(events)
    assert only(events, ev.Interrupted)


def test_5_13_semantic_detection_asks_once_for_both() -> None:
    world = answering(tells=True, vad=TurnDetection(type="semantic_vad", false_interruption=True))
    world.append(LONG, score=950)
    world.append(3, score=950)
    told(world, next(name for name, known in world.session.requests.items() if known.utterance), "Mhm")
    events = world.append(GAP, score=10)
    asked = question(events)
    assert "PreviewDropped" not in kinds(events)
    assert resumed(told(world, asked, "Mhm.")) == "backchannel"


# -- resident models that answer turns ------------------------------------------------------------------------


def _resident() -> World:
    world = World(vad=CAREFUL, plugin="echo")
    world.append(20)
    world.append(4, score=950)
    world.append(20, score=10)
    return world


def test_5_13_a_resident_model_in_a_session_of_turns() -> None:
    world = _resident()
    request = world.request
    start(world)
    assert kinds(world.produce("", 200, takes=True)) == ["UnitsAccepted", "OutputHeld"]
    segment = cmd.StageSegmentFinished(request=request, decision="end_of_turn")
    assert kinds(world.do(segment)) == ["OutputHeld"]
    events = world.append(GAP, score=10)
    told = kinds(events)[kinds(events).index("InterruptionDismissed") :]
    assert told == ["InterruptionDismissed", "OutputStarted", "AudioDelta", "ResponseEnded"]


def test_5_13_units_that_are_refused_fail_the_answer_at_once() -> None:
    world = _resident()
    start(world)
    events = world.refuse()
    assert only(events, ev.InterruptionDoubted).reason == "answer_failed"
    assert only(events, ev.ResponseEnded).status == "failed"


@rule("P58", "E38")
def test_5_13_a_cancel_passes_what_waits_for_a_unit_whose_end_is_held() -> None:
    """What waits lets the end be decided, and begins another answer: it is what the cancel finds."""
    world = _resident()
    request = world.request
    start(world)
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(instructions="Be brief.")))
    world.append(2, score=950, transcript="Mhm.")
    world.say("And tea?")
    assert kinds(world.respond()) == ["CommandHeld"]
    assert kinds(world.finish(request)) == ["OutputHeld"]
    events = world.do(cmd.CancelInput(attachment=1))
    assert resumed(events) == "backchannel"
    assert only(events, ev.ResponseCreated)
    assert [event.status for event in events if isinstance(event, ev.ResponseEnded)] == ["failed", "cancelled"]
    assert world.session.response is None


def test_5_13_a_held_report_of_nobody_is_no_history() -> None:
    with pytest.raises(core.evolve.__globals__["fold_talk"].phases.IllegalTransition, match="no interruption"):
        core.evolve(core.new(), ev.OutputHeld(report=cmd.StageFinished(request="r")), 0)


def test_5_13_what_is_held_is_weighed_in_bytes() -> None:
    world = answering()
    start(world)
    most = delivering.HELD_BYTES // 4
    assert kinds(world.produce("\U0001f600" * most)) == ["OutputHeld"]
    assert only(world.produce("x"), ev.InterruptionDoubted).reason == "too_much_held"
