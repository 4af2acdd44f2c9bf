"""The OpenAI Agents SDK's realtime session (`openai-agents`), as it comes: only its address is ours."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agents import function_tool, set_tracing_disabled
from agents.realtime import RealtimeAgent, RealtimeRunner, RealtimeSession
from agents.realtime.model_inputs import RealtimeModelSendRawMessage
from scenarios import RATE, becomes, main, silence, spoken, tone

SERVER_VAD = {"type": "server_vad", "silence_duration_ms": 300, "interrupt_response": True, "create_response": True}


@function_tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"sunny in {city}"


class Talk:
    """A session, and everything that it has told."""

    def __init__(self, session: RealtimeSession) -> None:
        self.session = session
        self.events: list[Any] = []
        self.raw: list[dict[str, Any]] = []

    async def listen(self) -> None:
        """Hear what the session tells."""
        async for event in self.session:
            self.events.append(event)
            if event.type == "raw_model_event" and event.data.type == "raw_server_event":
                self.raw.append(event.data.data)

    def kinds(self) -> set[str]:
        """Return the types of the session's events."""
        return {event.type for event in self.events}

    def served(self, kind: str) -> list[dict[str, Any]]:
        """Return the server's messages of a type."""
        return [message for message in self.raw if message["type"] == kind]

    def faults(self) -> list[str]:
        """Return what went wrong, as the client sees it."""
        told = [str(event.error) for event in self.events if event.type == "error"]
        inner = [
            str(event.data)
            for event in self.events
            if event.type == "raw_model_event" and event.data.type in ("error", "exception")
        ]
        return told + inner

    def words(self) -> str:
        """Return what the assistant has said, as the client's history has it."""
        told = [event for event in self.events if event.type == "history_updated"]
        items = told[-1].history if told else []
        parts = [part for item in items if getattr(item, "role", "") == "assistant" for part in item.content]
        return " ".join(getattr(part, "transcript", None) or getattr(part, "text", None) or "" for part in parts)

    async def hear(self, sound: bytes) -> None:
        """Send sound as a microphone would, ten pieces a second, faster."""
        for at in range(0, len(sound), RATE // 10 * 2):
            await self.session.send_audio(sound[at : at + RATE // 10 * 2])
            await asyncio.sleep(0.01)

    async def turns(self, count: int) -> None:
        """Wait until so many answers are over."""
        await becomes(lambda: len(self.served("response.done")) >= count, f"{count} answers; {self.faults()}")
        await asyncio.sleep(0.1)


@asynccontextmanager
async def talking(address: str, instructions: str = "", **settings: Any) -> AsyncIterator[Talk]:
    """Open a session with the SDK's own defaults, and `settings` over them."""
    agent = RealtimeAgent(name="assistant", instructions=instructions, tools=[weather])
    runner = RealtimeRunner(agent, config={"tracing_disabled": True})
    session = await runner.run(
        model_config={
            "api_key": "none",
            "url": f"ws://{address}/v1/realtime?model=gpt-realtime",
            "initial_model_settings": {"model_name": "gpt-realtime", **settings},
        }
    )
    async with session:
        talk = Talk(session)
        listening = asyncio.create_task(talk.listen())
        try:
            await becomes(lambda: talk.served("session.updated"), "session.updated")
            yield talk
            assert not talk.faults(), talk.faults()
        finally:
            listening.cancel()


async def opens(address: str) -> None:
    async with talking(address) as talk:
        assert talk.served("session.created")
        session = talk.served("session.updated")[-1]["session"]
        assert session["audio"]["input"]["turn_detection"]["type"] == "semantic_vad"
        assert session["tools"][0]["name"] == "weather"


async def text_turn(address: str) -> None:
    async with talking(address) as talk:
        await talk.session.send_message("hello there")
        await talk.turns(1)
        assert "You said hello there" in talk.words(), talk.words()
        assert {"agent_start", "audio", "audio_end", "agent_end"} <= talk.kinds(), talk.kinds()


async def server_vad(address: str) -> None:
    async with talking(address, turn_detection=SERVER_VAD) as talk:
        await talk.hear(spoken())
        await talk.turns(1)
        assert "You said something spoken" in talk.words(), talk.words()
        heard = [event for event in talk.events if event.type == "audio"]
        assert sum(len(event.audio.data) for event in heard) == 5 * 80 * RATE // 1000 * 2
        assert talk.served("conversation.item.input_audio_transcription.completed")


async def push_to_talk(address: str) -> None:
    async with talking(address, turn_detection=None) as talk:
        await talk.hear(tone(500))
        await talk.session.send_audio(silence(100), commit=True)
        await becomes(lambda: talk.served("input_audio_buffer.committed"), "committed")
        await talk.session.model.send_event(RealtimeModelSendRawMessage(message={"type": "response.create"}))
        await talk.turns(1)
        assert not talk.served("input_audio_buffer.speech_started")
        assert "You said something spoken" in talk.words(), talk.words()


async def tool_call(address: str) -> None:
    async with talking(address, "[call]") as talk:
        await talk.session.send_message("what is the weather?")
        await talk.turns(2)
        ended = [event for event in talk.events if event.type == "tool_end"]
        assert ended[0].output == "sunny in Bonn", ended
        assert "It says sunny in Bonn" in talk.words(), talk.words()


async def barge_in(address: str) -> None:
    async with talking(address, "[long]", turn_detection=SERVER_VAD) as talk:
        await talk.session.send_message("tell me everything")
        await becomes(lambda: "audio" in talk.kinds(), "sound")
        await talk.hear(tone(500))
        await talk.turns(1)
        assert "audio_interrupted" in talk.kinds(), talk.kinds()
        response = talk.served("response.done")[0]["response"]
        assert (response["status"], response["status_details"]["reason"]) == ("cancelled", "turn_detected")
        await talk.hear(tone(400) + silence(700))
        await becomes(lambda: len(talk.served("response.created")) >= 2, "the next answer")


async def truncate(address: str) -> None:
    async with talking(address, "[long]", turn_detection=SERVER_VAD) as talk:
        await talk.session.send_message("tell me everything")
        await becomes(lambda: len([event for event in talk.events if event.type == "audio"]) > 5, "sound")
        await talk.session.interrupt()
        await becomes(lambda: talk.served("conversation.item.truncated"), "truncated")
        await talk.turns(1)
        cut = talk.served("conversation.item.truncated")[0]
        assert 0 < cut["audio_end_ms"] < 8000, cut
        await becomes(lambda: talk.served("conversation.item.retrieved"), "the cut item")


async def close(address: str) -> None:
    async with talking(address) as talk:
        await talk.session.close()
        assert not talk.faults(), talk.faults()


async def reconnect(address: str) -> None:
    """The SDK does not dial again by itself: it tells the application, which runs a new session."""
    async with talking(address) as talk:
        await talk.session.send_message("first")
        await talk.turns(1)
        talk.session.model._websocket.transport.abort()
        await becomes(talk.faults, "the loss is told")
        assert all("ConnectionClosed" in told for told in talk.faults()), talk.faults()
        talk.events.clear()
    await text_turn(address)


if __name__ == "__main__":
    set_tracing_disabled(True)
    main(opens, text_turn, server_vad, push_to_talk, tool_call, barge_in, truncate, close, reconnect)
