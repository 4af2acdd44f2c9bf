"""Semantic turn detection as clients see it, over real sockets (WIRE 4.4, 6.2)."""

import base64
from typing import Any

import pytest

from antiphon.sessions.plugins import CASCADE
from antiphon.stages.base import Submit
from antiphon.stages.scripted import Cue, Finish, Say, Script, ScriptedStage, Transcribe

from .serving import Wire, serving

pytestmark = pytest.mark.anyio

QUERIES = {"ga": "", "beta": "", "duplex": "?duplex=1&model=m"}
HEADERS = {"beta": {"OpenAI-Beta": "realtime=v1"}}
DIALECTS = pytest.mark.parametrize("dialect", ["ga", "beta", "duplex"])
RATE = 24_000


def sound(value: int, ms: int) -> str:
    return base64.b64encode(value.to_bytes(2, "little", signed=True) * (RATE * ms // 1000)).decode()


def heard(text: str) -> Script:
    return (Transcribe(text, final=False), Finish())


async def opened(wire: Wire, **detection: Any) -> dict[str, Any]:
    await wire.next()
    asked = {"type": "semantic_vad", **detection}
    session = {"output_modalities": ["audio"], "turn_detection": asked, "sample_rate_hz": RATE}
    await wire.send("session.update", session=session)
    shown: dict[str, Any] = (await wire.until("session.updated"))["session"]["audio"]["input"]["turn_detection"]
    return shown


async def speak(wire: Wire, ms: int, silence_ms: int) -> None:
    """Speak, and be silent, in pieces of 40 ms, each sent when the one before it is taken: as a microphone does."""
    for value, count in ((8_000, ms // 40), (0, silence_ms // 40)):
        for _ in range(count):
            await wire.send("input_audio_buffer.append", audio=sound(value, 40))
            await beat(wire)


async def beat(wire: Wire) -> None:
    await wire.send("session.heartbeat")
    await wire.until("session.heartbeat_ack")


@DIALECTS
async def test_the_words_say_when_a_turn_is_over(dialect: str) -> None:
    stage = ScriptedStage(previews={0: heard("I would like to"), 1: heard("I would like to go.")})
    options = {"additional_headers": HEADERS.get(dialect)}
    async with (
        serving(stage=stage, plugin=CASCADE) as served,
        Wire.to(served.url + QUERIES[dialect], **options) as wire,
    ):
        shown = await opened(wire, eagerness="medium")
        assert shown == {
            "type": "semantic_vad",
            "eagerness": "medium",
            "create_response": True,
            "interrupt_response": True,
        }
        await speak(wire, 400, 2_000)
        assert "input_audio_buffer.speech_started" in wire.kinds()
        assert "input_audio_buffer.speech_stopped" not in wire.kinds()
        await speak(wire, 400, 640)
        kinds = wire.kinds()
        if "response.done" not in kinds:
            await wire.until("response.done")
            kinds = wire.kinds()
        told = [kinds.index(f"input_audio_buffer.{name}") for name in ("speech_stopped", "committed")]
        assert told == sorted(told) < [kinds.index("response.created")]
        assert not [kind for kind in kinds if "transcription" in kind], "nobody asked for transcription"


async def test_the_words_of_the_turn_are_its_transcription_and_are_told_once() -> None:
    stage = ScriptedStage(previews={0: heard("Good morning.")})
    async with serving(stage=stage, plugin=CASCADE) as served, Wire.to(served.url) as wire:
        await opened(wire)
        transcription = {"input": {"transcription": {"model": "whisper-1"}}}
        await wire.send("session.update", session={"type": "realtime", "audio": transcription})
        await wire.until("session.updated")
        await speak(wire, 400, 640)
        await wire.send("session.heartbeat")
        await wire.until("session.heartbeat_ack")
        completed = "conversation.item.input_audio_transcription.completed"
        assert [m["transcript"] for m in wire.seen if m["type"] == completed] == ["Good morning."]
        (answer,) = [m for m in stage.messages if isinstance(m, Submit) and m.payload.purpose == "answer"]
        assert answer.sound == ()


@DIALECTS
async def test_what_is_said_over_an_answer_that_it_does_not_interrupt_is_answered_behind_it(dialect: str) -> None:
    stage = ScriptedStage(
        scripts={0: (Say("It is ", 200), Cue("go on"), Finish())}, previews={0: heard("Stop it!")}
    )
    options = {"additional_headers": HEADERS.get(dialect)}
    async with (
        serving(stage=stage, plugin=CASCADE) as served,
        Wire.to(served.url + QUERIES[dialect], **options) as wire,
    ):
        shown = await opened(wire, eagerness="high", interrupt_response=False, create_response=True)
        assert shown["interrupt_response"] is False
        await wire.send("conversation.item.create", item={"type": "message", "role": "user", "content": "Hello?"})
        await wire.send("response.create")
        running = (await wire.until("response.created"))["response"]["id"]
        await speak(wire, 800, 480)
        kinds = wire.kinds()
        assert "input_audio_buffer.committed" in kinds
        assert kinds.count("response.created") == 1
        assert "response.done" not in kinds
        stage.cue("go on")
        done = await wire.until("response.done")
        assert (done["response"]["id"], done["response"]["status"]) == (running, "completed")
        if dialect == "duplex":
            await wire.send("playback.ack", response_id=running, played_ms=200, committed_ms=200)
        await wire.until("response.created")


@DIALECTS
async def test_a_turn_that_shall_not_be_answered_is_not(dialect: str) -> None:
    stage = ScriptedStage(previews={0: heard("Good morning.")})
    options = {"additional_headers": HEADERS.get(dialect)}
    async with (
        serving(stage=stage, plugin=CASCADE) as served,
        Wire.to(served.url + QUERIES[dialect], **options) as wire,
    ):
        await opened(wire, create_response=False)
        await speak(wire, 400, 640)
        assert "input_audio_buffer.committed" in wire.kinds()
        await beat(wire)
        assert "response.created" not in wire.kinds()
        await wire.send("response.create")
        await wire.until("response.created")


@DIALECTS
async def test_keys_of_the_other_detector_are_refused(dialect: str) -> None:
    """`idle_timeout_ms` is a key of `server_vad` (WIRE 4.4)."""
    options = {"additional_headers": HEADERS.get(dialect)}
    async with serving() as served, Wire.to(served.url + QUERIES[dialect], **options) as wire:
        await wire.next()
        for key in ("idle_timeout_ms", "silence_duration_ms"):
            detection = {"type": "semantic_vad", key: 5_000}
            await wire.send("session.update", session={"turn_detection": detection})
            error = (await wire.until("error"))["error"]
            spelled = "unsupported_turn_detection" if dialect == "duplex" else "invalid_value"
            assert (error["code"], error["param"]) == (spelled, "session.turn_detection.type")
