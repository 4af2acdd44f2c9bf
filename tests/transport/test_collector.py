"""What a collector makes of a session: times, gaps, interruptions, and a picture."""

from pathlib import Path

import anyio
import numpy as np
import pybase64
import pytest

from antiphon.engine.clock import VirtualClock
from antiphon.events.commands import StageCost
from antiphon.stages.scripted import Cue, Finish, Say, ScriptedStage, Sleep
from antiphon.transport import wire_server as out
from antiphon.transport.client import SessionOptions
from antiphon.transport.client_events import Missed
from antiphon.transport.collector import Collector, Gap, in_words
from antiphon.transport.inline import InlineClient

from .serving import serving
from .test_talk_dialogue import delta, done, response, started, words

pytestmark = pytest.mark.anyio

QUIET = SessionOptions(modalities=["audio", "text"], turn_detection=None)
TICK_US = 20_000


async def pass_(clock: VirtualClock, ms: int) -> None:
    """Let time pass in small steps."""
    for _ in range(ms * 1000 // TICK_US):
        clock.advance(TICK_US)
        await anyio.wait_all_tasks_blocked()


async def test_the_times_of_an_answer_and_the_silence_in_it(tmp_path: Path) -> None:
    clock = VirtualClock()
    costs = (StageCost(stage="llm", first_output_ms=120.0), StageCost(stage="tts", first_output_ms=80.0))
    script = (Sleep(200), Say("One ", 100), Sleep(400), Say("two.", 100), Finish(costs=costs))
    async with serving(clock=clock, stage=ScriptedStage(clock, default=script)) as served:
        client = InlineClient(served.hub, QUIET, heartbeat_s=10_000)
        collector = Collector(client)
        async with client:
            client.append_audio(b"\0\x10" * 16_000)
            await anyio.wait_all_tasks_blocked()
            client.commit(create_response=True)
            await anyio.wait_all_tasks_blocked()
            await pass_(clock, 1_000)
            client.drop_socket()
            await pass_(clock, 6_000)
            client.cancel_response()
            await client.wait_for(out.ErrorOut)
        told = collector.summary()
        assert told.session == client.session_id
        (answer,) = told.answers
        assert (answer.status, answer.words, answer.audio_ms) == ("completed", "One two.", 200)
        assert answer.first_sound_ms == answer.first_words_ms == told.first_sound_ms
        assert answer.first_sound_ms == pytest.approx(200, abs=20)
        assert answer.real_time_factor == pytest.approx(2.0, abs=0.1), "400 ms for 200 ms of sound"
        (gap,) = answer.gaps
        assert gap == Gap(100, pytest.approx(300, abs=20))
        assert [cost.stage for cost in answer.stages] == ["llm", "tts"]
        assert (told.resumes, told.interruptions, told.missed) == (1, 0, 0)
        assert told.errors == ("response_not_active",)
        head, row, *rest = collector.text().splitlines()
        assert head == "answer  first words  first sound  sound  real time  gaps    ended"
        first, real = f"{answer.first_sound_ms:.0f} ms", f"x {answer.real_time_factor:.2f}"
        assert row == f"1       {first}       {first}       0.2 s  {real}     {gap.ms} ms  completed"
        assert rest[0] == "first output for 1: llm 120 ms · tts 80 ms"
        assert rest[1].endswith("interruptions: 0; resumes: 1; errors: response_not_active")
        picture = tmp_path / "session.png"
        collector.plot(picture)
        assert picture.read_bytes().startswith(b"\x89PNG")


async def test_an_interruption_and_what_was_heard(tmp_path: Path) -> None:
    async with serving(stage=ScriptedStage(default=(Say("Hello.", 500), Cue("never")))) as served:
        client = InlineClient(served.hub, QUIET)
        collector = Collector(client)
        async with client:
            client.send_text("Hello.")
            client.create_response()
            sound = await client.wait_for(out.AudioDeltaOut)
            client.ack_playback(sound.response_id, 120)
            await client.wait_for(out.PlaybackAcknowledgedOut)
            client.cancel_response()
            await client.wait_for(out.ResponseDone)
            client.truncate(sound.item_id, 100)
            await client.wait_for(out.ItemTruncatedOut)
            collector.stop()
            client.heartbeat()
            await client.wait_for(out.HeartbeatAck)
        told = collector.summary()
        (answer,) = told.answers
        assert (answer.status, answer.reason, answer.heard_ms) == ("cancelled", "client_cancelled", 100)
        assert told.interruptions == 1
        assert "cancelled (client cancelled), 0.1 s heard" in in_words(told)
        collector.plot(tmp_path / "session.svg")


class Silent:
    """A client that says what a test makes it say."""

    session_id = "duplex-1"

    def __init__(self) -> None:
        self.clock = VirtualClock()

    def listen(self, listener: object) -> object:
        self.hear = listener
        return lambda: None


def test_turns_pauses_and_what_nobody_read() -> None:
    client = Silent()
    collector = Collector(client)  # type: ignore[arg-type]
    for event in (
        started(),
        out.SpeechStoppedOut(audio_end_ms=900, item_id="item_u"),
        out.BufferCommitted(item_id="item_u", previous_item_id=None),
        out.TranscriptionCompleted(
            item_id="item_u", content_index=0, transcript=" Hi. ", usage=out.DurationUsage(seconds=1.0)
        ),
        out.ResponseCreatedOut(response_id="resp_1", response=response()),
        words(""),
        delta(""),
        delta(),
        words("Hi."),
        out.OutputPaused(response_id="resp_1", at_ms=0, reason="interruption_suspected"),
        out.OutputClearedOut(response_id="resp_1"),
        done(),
        Missed(count=3, last_number=9),
        out.BufferCommitted(item_id="item_v", previous_item_id=None),
        out.SessionClosedOut(
            session_id="duplex-1", reason="bye", event=out.EndInfo(session_id="duplex-1", reason="x")
        ),
    ):
        client.hear(event)  # type: ignore[operator]
    told = collector.summary()
    assert (told.suspicions, told.interruptions, told.missed) == (1, 1, 3)
    assert [(turn.item_id, turn.text) for turn in collector.story.turns] == [("item_u", "Hi."), ("item_v", "")]
    assert collector.story.closed == "bye"
    assert "not read in time: 3" in collector.text()


def test_of_answers_that_began_before_nothing_is_told() -> None:
    client = Silent()
    collector = Collector(client)  # type: ignore[arg-type]
    for event in (delta(), words("Hi."), done()):
        client.hear(event)  # type: ignore[operator]
    assert collector.text().startswith("no answer")
    assert collector.summary().first_sound_ms is None


@pytest.mark.parametrize("samples", [0, 1, 2, 3, 100])
def test_the_length_of_sound_is_known_without_decoding_it(samples: int) -> None:
    client = Silent()
    collector = Collector(client)  # type: ignore[arg-type]
    data = np.zeros(samples * 24, "<i2").tobytes()
    client.hear(out.ResponseCreatedOut(response_id="resp_1", response=response()))  # type: ignore[operator]
    client.hear(delta(pybase64.b64encode_as_string(data)))  # type: ignore[operator]
    assert collector.summary().answers[0].audio_ms == samples
