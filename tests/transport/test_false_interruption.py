"""False interruptions as clients see them, over real sockets (DESIGN 5.13)."""

from typing import Any

import pytest

from antiphon.sessions.plugins import CASCADE
from antiphon.stages.scripted import Cue, Finish, Say, Script, ScriptedStage, Transcribe

from .serving import Wire, serving
from .test_semantic import QUERIES, beat, sound

pytestmark = pytest.mark.anyio

ANSWER: Script = (Say("It is ", 400), Cue("more"), Say("three.", 200), Finish())


def heard(text: str) -> Script:
    return (Transcribe(text, final=False), Finish())


async def asked(wire: Wire, kind: str) -> dict[str, Any]:
    """Open a session that asks for it, and hear the beginning of an answer."""
    await wire.next()
    detection = {"type": kind, "false_interruption": True}
    await wire.send("session.update", session={"turn_detection": detection, "sample_rate_hz": 24_000})
    shown: dict[str, Any] = (await wire.until("session.updated"))["session"]
    await wire.send("conversation.item.create", item={"type": "message", "role": "user", "content": "What time?"})
    await wire.send("response.create")
    await wire.until("response.output_audio.delta")
    return shown


async def say(wire: Wire, ms: int, silence_ms: int = 0) -> None:
    for value, count in ((8_000, ms // 40), (0, silence_ms // 40)):
        for _ in range(count):
            await wire.send("input_audio_buffer.append", audio=sound(value, 40))
            await beat(wire)


def named(wire: Wire, kind: str) -> list[dict[str, Any]]:
    return [message for message in wire.seen if message["type"] == kind]


@pytest.mark.parametrize("kind", ["server_vad", "semantic_vad"])
async def test_5_13_a_cough_pauses_the_answer_and_it_goes_on(kind: str) -> None:
    stage = ScriptedStage(scripts={0: ANSWER})
    async with serving(stage=stage, plugin=CASCADE) as served, Wire.to(served.url + QUERIES["duplex"]) as wire:
        shown = await asked(wire, kind)
        assert shown["turn_detection"]["false_interruption"] is True
        assert shown["output_audio_paused"] is None
        await say(wire, 240)
        stage.cue("more")
        await beat(wire)
        kinds = wire.kinds()
        reasons = [message.get("reason") for message in wire.seen]
        decided = reasons.index("interruption_suspected")
        assert kinds[decided - 1 : decided + 2] == [
            "input_audio_buffer.speech_started",
            "overlap.decision",
            "output_audio_buffer.paused",
        ]
        assert kinds.count("response.output_audio.delta") == 1, "the rest is held"
        await say(wire, 0, 400)
        if "response.done" not in wire.kinds():
            await wire.until("response.done")
        kinds = wire.kinds()
        assert kinds.index("output_audio_buffer.resumed") < kinds.index("response.done")
        assert kinds.count("response.output_audio.delta") == 2
        (paused,), (resumed,) = (named(wire, f"output_audio_buffer.{name}") for name in ("paused", "resumed"))
        assert (paused["response_id"], paused["at_ms"]) == (resumed["response_id"], resumed["at_ms"])
        assert (paused["reason"], resumed["reason"]) == ("interruption_suspected", "too_short")
        (done,) = named(wire, "response.done")
        assert done["response"]["status"] == "completed"
        assert "input_audio_buffer.committed" not in kinds
        numbers = [message["server_event_seq"] for message in wire.seen if message.get("server_event_seq")]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


async def test_5_13_a_backchannel_is_heard_by_the_recogniser_and_interrupts_nothing() -> None:
    stage = ScriptedStage(scripts={0: ANSWER}, previews={0: heard("Mhm, mhm."), 1: heard("Mhm, mhm.")})
    async with serving(stage=stage, plugin=CASCADE) as served, Wire.to(served.url + QUERIES["duplex"]) as wire:
        await asked(wire, "server_vad")
        await say(wire, 640, 440)
        (resumed,) = named(wire, "output_audio_buffer.resumed")
        assert resumed["reason"] == "backchannel"
        assert "response.done" not in wire.kinds()


async def test_5_13_words_interrupt_the_answer_and_are_answered() -> None:
    stage = ScriptedStage(scripts={0: ANSWER}, previews={0: heard("What about")})
    async with serving(stage=stage, plugin=CASCADE) as served, Wire.to(served.url + QUERIES["duplex"]) as wire:
        await asked(wire, "server_vad")
        await say(wire, 720)
        reasons = [
            message["reason"] for message in named(wire, "overlap.decision") if message["action"] == "barge_in"
        ]
        assert reasons == ["overlap_words"]
        (done,) = named(wire, "response.done")
        assert done["response"]["status_details"]["reason"] == "turn_detected"
        assert "output_audio_buffer.resumed" not in wire.kinds()
        await say(wire, 0, 640)
        assert "input_audio_buffer.committed" in wire.kinds()
