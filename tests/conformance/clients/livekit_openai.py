"""LiveKit's OpenAI realtime plugin (`livekit-plugins-openai`), as it comes: only its base address is ours."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from livekit import rtc
from livekit.agents import llm
from livekit.agents.llm import function_tool
from livekit.plugins.openai import realtime
from openai.types.realtime.realtime_audio_input_turn_detection import ServerVad
from scenarios import RATE, becomes, main, silence, spoken, tone

VAD = ServerVad(type="server_vad", silence_duration_ms=300, create_response=True, interrupt_response=True)
PIECE = RATE // 50


@function_tool
async def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"sunny in {city}"


class Talk:
    """A session, and everything that it has told."""

    def __init__(self, model: realtime.RealtimeModel) -> None:
        self.model = model
        self.session = model.session()
        self.raw: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []
        self.told: list[str] = []
        self.faults: list[str] = []
        self.answers: list[llm.GenerationCreatedEvent] = []
        session = self.session
        session.on("openai_server_event_received", self._received)
        session.on("openai_client_event_queued", self.sent.append)
        session.on("generation_created", self.answers.append)
        session.on("error", lambda error: self.faults.append(str(error)))
        for name in ("input_speech_started", "input_speech_stopped", "session_reconnected"):
            session.on(name, lambda *_, name=name: self.told.append(name))
        session.on("input_audio_transcription_completed", lambda event: self.told.append(event.transcript))

    def _received(self, message: dict[str, Any]) -> None:
        self.raw.append(message)
        if message["type"] == "error":
            self.faults.append(json.dumps(message["error"]))

    def served(self, kind: str) -> list[dict[str, Any]]:
        """Return the server's messages of a type."""
        return [message for message in self.raw if message["type"] == kind]

    async def hear(self, sound: bytes) -> None:
        """Push sound as a microphone would, faster."""
        for at in range(0, len(sound), PIECE * 2):
            piece = sound[at : at + PIECE * 2]
            self.session.push_audio(rtc.AudioFrame(piece, RATE, 1, len(piece) // 2))
            await asyncio.sleep(0.002)

    async def write(self, text: str) -> None:
        """Add a message of the user."""
        context = self.session.chat_ctx.copy()
        context.add_message(role="user", content=text)
        await self.session.update_chat_ctx(context)

    async def answered(self, answer: llm.GenerationCreatedEvent) -> tuple[str, int]:
        """Read an answer to its end: its words, and the milliseconds of its sound."""
        words, ms = "", 0
        async for message in answer.message_stream:
            async for piece in message.text_stream:
                words += str(piece)
            async for frame in message.audio_stream:
                ms += frame.samples_per_channel * 1000 // frame.sample_rate
        return words, ms


@asynccontextmanager
async def talking(address: str, instructions: str = "Talk.", **options: Any) -> AsyncIterator[Talk]:
    """Open a session with the plugin's own defaults, and `options` over them."""
    async with aiohttp.ClientSession() as http:
        model = realtime.RealtimeModel(
            model="gpt-realtime", base_url=f"http://{address}/v1", api_key="none", http_session=http, **options
        )
        talk = Talk(model)
        try:
            await talk.session.update_instructions(instructions)
            await becomes(lambda: len(talk.served("session.updated")) >= 2, f"the settings; {talk.faults}")
            yield talk
            assert not talk.faults, talk.faults
        finally:
            await talk.session.aclose()


async def opens(address: str) -> None:
    async with talking(address) as talk:
        assert talk.served("session.created")


async def text_turn(address: str) -> None:
    async with talking(address) as talk:
        await talk.write("hello there")
        words, ms = await talk.answered(await talk.session.generate_reply())
        assert words == "You said hello there", words
        assert ms == 400, ms
        context = talk.session.chat_ctx.items
        assert [item.role for item in context] == ["user", "assistant"], context


async def server_vad(address: str) -> None:
    async with talking(address, turn_detection=VAD) as talk:
        await talk.hear(spoken())
        await becomes(lambda: talk.answers, "an answer")
        words, ms = await talk.answered(talk.answers[0])
        assert (words, ms) == ("You said something spoken", 400), (words, ms)
        assert talk.told == ["input_speech_started", "input_speech_stopped", "something spoken"], talk.told


async def push_to_talk(address: str) -> None:
    async with talking(address, turn_detection=None) as talk:
        await talk.hear(tone(500))
        talk.session.commit_audio()
        words, _ = await talk.answered(await talk.session.generate_reply())
        assert words == "You said something spoken", words
        assert "input_speech_started" not in talk.told


async def tool_call(address: str) -> None:
    async with talking(address, "[call]") as talk:
        await talk.session.update_tools([weather])
        await talk.write("what is the weather?")
        answer = await talk.session.generate_reply()
        calls = [call async for call in answer.function_stream]
        assert (calls[0].name, json.loads(calls[0].arguments)) == ("weather", {"city": "Bonn"}), calls
        context = talk.session.chat_ctx.copy()
        context.items.append(
            llm.FunctionCallOutput(call_id=calls[0].call_id, name="weather", output="sunny in Bonn", is_error=False)
        )
        await talk.session.update_chat_ctx(context)
        words, _ = await talk.answered(await talk.session.generate_reply())
        assert words == "It says sunny in Bonn", words


async def barge_in(address: str) -> None:
    async with talking(address, "[long]", turn_detection=VAD) as talk:
        await talk.write("tell me everything")
        answer = await talk.session.generate_reply()
        await becomes(lambda: len(talk.served("response.output_audio.delta")) > 3, "sound")
        await talk.hear(tone(500))
        _, ms = await talk.answered(answer)
        assert 0 < ms < 8000, ms
        response = talk.served("response.done")[0]["response"]
        assert (response["status"], response["status_details"]["reason"]) == ("cancelled", "turn_detected")
        await talk.hear(silence(1000))
        await becomes(lambda: len(talk.answers) >= 2, "the next answer")


async def truncate(address: str) -> None:
    async with talking(address, "[long]") as talk:
        await talk.write("tell me everything")
        answer = await talk.session.generate_reply()
        await becomes(lambda: len(talk.served("response.output_audio.delta")) > 5, "sound")
        talk.session.interrupt()
        message = await anext(aiter(answer.message_stream))
        talk.session.truncate(message_id=message.message_id, modalities=["audio"], audio_end_ms=160)
        await becomes(lambda: talk.served("conversation.item.truncated"), f"truncated; {talk.faults}")
        assert talk.served("conversation.item.truncated")[0]["audio_end_ms"] == 160
        await becomes(lambda: talk.served("response.done"), "the end")


async def close(address: str) -> None:
    async with talking(address) as talk:
        await talk.session.aclose()


async def reconnect(address: str) -> None:
    """The plugin dials again by itself when a connection has lasted long enough, and writes what was said anew."""
    async with talking(address, max_session_duration=1.5) as talk:
        await talk.write("first")
        await talk.answered(await talk.session.generate_reply())
        await becomes(lambda: "session_reconnected" in talk.told, "a new session")
        await becomes(lambda: len(talk.served("session.created")) == 2, "a second session")
        words, _ = await talk.answered(await talk.session.generate_reply())
        assert words.startswith("You said"), words


if __name__ == "__main__":
    main(opens, text_turn, server_vad, push_to_talk, tool_call, barge_in, truncate, close, reconnect)
