"""The client's own view of a conversation: the fold over events, and what it tells the server."""

import numpy as np
import pybase64
import pytest

from antiphon.transport import wire_server as server
from antiphon.transport.playback import Ack, Truncate
from antiphon.transport.talk_dialogue import Dialogue
from antiphon.transport.wire_formats import FormatOut

MS = 1_000
SOUND = pybase64.b64encode(np.full(2_400, 100, "<i2").tobytes()).decode()
"""100 ms at 24 kHz."""


def response(status: str = "in_progress", reason: str | None = None) -> server.ResponseOut:
    return server.ResponseOut(
        id="resp_1",
        status=status,
        status_details=None if reason is None else server.StatusDetails(type=status, reason=reason),
        output=[],
        conversation_id=None,
        output_modalities=("audio",),
        audio=server.ResponseAudioInfo(
            output=server.ResponseAudioFormat(format=FormatOut(type="audio/pcm", rate=24_000), voice="joe")
        ),
        max_output_tokens="inf",
        metadata=None,
        usage=None,
    )


def started() -> server.SpeechStartedOut:
    return server.SpeechStartedOut(event_id="e", audio_start_ms=0, item_id="item_u")


def delta(sound: str = SOUND) -> server.AudioDeltaOut:
    return server.AudioDeltaOut(
        event_id="e", response_id="resp_1", item_id="item_resp_1", delta=sound, sample_rate_hz=24_000
    )


def words(text: str) -> server.TranscriptDelta:
    return server.TranscriptDelta(event_id="e", response_id="resp_1", item_id="item_resp_1", delta=text)


def done(status: str = "completed", reason: str | None = None) -> server.ResponseDone:
    return server.ResponseDone(event_id="e", response_id="resp_1", response=response(status, reason))


def answered(pieces: int, dialogue: Dialogue) -> None:
    """A turn at 1 s, and its answer from 2 s on."""
    dialogue.handle(started(), 1_000 * MS)
    dialogue.handle(server.SpeechStoppedOut(event_id="e", audio_end_ms=900, item_id="item_u"), 1_900 * MS)
    committed = server.BufferCommitted(event_id="e", item_id="item_u", previous_item_id=None)
    dialogue.handle(committed, 1_900 * MS)
    dialogue.handle(server.ResponseCreatedOut(event_id="e", response_id="resp_1", response=response()), 1_901 * MS)
    for _ in range(pieces):
        dialogue.handle(delta(), 2_000 * MS)
        dialogue.handle(words("word "), 2_000 * MS)


def test_a_turn_and_its_answer_are_settled_when_they_were_played() -> None:
    told: list[tuple[str, str]] = []
    dialogue = Dialogue(lambda kind, text: told.append((kind, text)))
    answered(5, dialogue)
    assert not dialogue.settled(2_600 * MS)  # it is not done
    dialogue.handle(done(), 2_100 * MS)
    assert not dialogue.settled(2_400 * MS)  # it is still played
    assert dialogue.settled(2_501 * MS)
    assert dialogue.reply is not None
    assert dialogue.reply.text == "word " * 5
    assert dialogue.reply.first_us == 2_000 * MS
    assert told[-1] == ("done", "completed")


def test_nothing_said_is_settled_and_a_turn_without_answer_is_not() -> None:
    dialogue = Dialogue()
    assert dialogue.settled(0)
    dialogue.handle(started(), 0)
    assert not dialogue.settled(9_000 * MS)


def test_playback_is_acknowledged_in_steps_and_at_its_end() -> None:
    dialogue = Dialogue()
    answered(3, dialogue)
    assert dialogue.acks(2_050 * MS) == []
    assert dialogue.acks(2_199 * MS) == []
    assert dialogue.acks(2_210 * MS) == [Ack("resp_1", 210)]
    assert dialogue.acks(2_290 * MS) == []
    dialogue.handle(done(), 2_290 * MS)
    assert dialogue.acks(2_400 * MS) == [Ack("resp_1", 300)]
    assert dialogue.acks(3_400 * MS) == []


def test_cutting_in_stops_the_speaker_tells_what_was_heard_and_counts_what_comes_too_late() -> None:
    dialogue = Dialogue()
    answered(10, dialogue)
    assert dialogue.handle(started(), 2_250 * MS) == [Truncate("item_resp_1", 250)]
    assert dialogue.speaker.playing(2_251 * MS) is None
    dialogue.handle(delta(""), 2_260 * MS)  # a number that belongs to the dead answer, without its sound
    assert dialogue.handle(done("cancelled", "turn_detected"), 2_260 * MS) == []
    reply = dialogue.reply
    assert reply is not None
    assert (reply.heard_ms, reply.late, reply.status, reply.reason) == (250, 0, "cancelled", "turn_detected")
    assert dialogue.acks(2_400 * MS) == []
    dialogue.handle(delta(), 2_300 * MS)
    assert reply.late == 1


def test_an_answer_that_is_cancelled_otherwise_falls_silent_too() -> None:
    dialogue = Dialogue()
    answered(10, dialogue)
    assert dialogue.handle(done("cancelled", "client_cancelled"), 2_400 * MS) == [Truncate("item_resp_1", 400)]


def test_numbers_show_what_is_missing_and_what_came_twice() -> None:
    dialogue = Dialogue()
    for number in (1, 2, 5, 4, 6):
        ack = server.HeartbeatAck(event_id="e", session_id="s", server_event_seq=number)
        dialogue.handle(ack, 0)
    assert dialogue.numbers.missing == [3, 4]
    assert dialogue.numbers.doubled == [4]
    assert not dialogue.numbers.whole
    assert (dialogue.numbers.count, dialogue.numbers.last) == (5, 6)


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        ("completed", None, "completed"),
        ("cancelled", "turn_detected", "stopped, because you spoke"),
        ("cancelled", "client_cancelled", "stopped, as it was asked to"),
        ("incomplete", "max_output_tokens", "cut short: it reached the length that was allowed"),
        ("incomplete", "content_filter", "incomplete: content filter"),
    ],
)
def test_how_an_answer_ended_is_told_in_plain_words(status: str, reason: str | None, words: str) -> None:
    told: list[tuple[str, str]] = []
    dialogue = Dialogue(lambda kind, text: told.append((kind, text)))
    answered(1, dialogue)
    dialogue.handle(done(status, reason), 2_500 * MS)
    assert told[-1] == ("done", words)


def paused() -> server.OutputPaused:
    return server.OutputPaused(event_id="e", response_id="resp_1", at_ms=100, reason="interruption_suspected")


def resumed(reason: str = "too_short") -> server.OutputResumed:
    return server.OutputResumed(event_id="e", response_id="resp_1", at_ms=100, reason=reason)


def test_5_13_a_careful_speaker_stands_still_and_plays_on() -> None:
    dialogue = Dialogue(careful=True)
    answered(5, dialogue)
    assert dialogue.handle(started(), 2_100 * MS) == []
    dialogue.handle(paused(), 2_100 * MS)
    assert dialogue.speaker.played_ms("resp_1", 2_900 * MS) == 100
    dialogue.handle(server.SpeechStoppedOut(event_id="e", audio_end_ms=1_200, item_id="item_x"), 2_400 * MS)
    dialogue.handle(resumed(), 2_400 * MS)
    assert dialogue.speaker.played_ms("resp_1", 2_600 * MS) == 300
    dialogue.handle(done(), 2_600 * MS)
    assert dialogue.settled(2_801 * MS), "what was heard was no turn"


def test_5_13_a_careful_speaker_plays_on_while_the_user_may_still_interrupt() -> None:
    dialogue = Dialogue(careful=True)
    answered(5, dialogue)
    dialogue.handle(started(), 2_100 * MS)
    dialogue.handle(paused(), 2_100 * MS)
    dialogue.handle(resumed("no_words"), 4_100 * MS)
    assert len(dialogue.asks) == 2
    told = dialogue.handle(done("cancelled", "turn_detected"), 4_200 * MS)
    assert told == [Truncate("item_resp_1", 200)]
