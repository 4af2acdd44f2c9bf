"""vLLM-Omni's `DuplexClient` (`vllm-omni`), as it comes: only its address is ours.

Its module needs neither torch nor vllm, but its package does: that is put in place without being carried out.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from scenarios import becomes, main, silence, spoken, tone

package = ModuleType("vllm_omni")
package.__path__ = list(find_spec("vllm_omni").submodule_search_locations)
sys.modules["vllm_omni"] = package

from vllm_omni.clients.duplex import (  # noqa: E402
    DuplexClient,
    DuplexEvent,
    ResponseHandle,
    SessionConfig,
)

VAD = {"type": "server_vad", "silence_duration_ms": 300}
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}


class Talk:
    """A client, and everything that it has told."""

    def __init__(self, client: DuplexClient) -> None:
        self.client = client
        self.events: list[DuplexEvent] = []

    async def listen(self) -> None:
        """Hear what the client tells."""
        async for event in self.client.events():
            self.events.append(event)

    def served(self, kind: str) -> list[dict[str, Any]]:
        """Return the server's messages of a type."""
        return [event.raw for event in self.events if event.type == kind]

    async def write(self, text: str) -> None:
        """Add a message of the user."""
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        await self.client.send({"type": "conversation.item.create", "item": item})

    async def answer(self) -> ResponseHandle:
        """Return the next answer."""
        async with asyncio.timeout(10):
            return await anext(aiter(self.client.responses()))


async def heard(handle: ResponseHandle) -> int:
    """Read an answer to its end; return how many milliseconds it has."""
    async with asyncio.timeout(10):
        async for _ in handle.audio():
            pass
        await handle.wait()
    return round(handle.played_ms)


@asynccontextmanager
async def talking(address: str, instructions: str = "Talk.", **config: Any) -> AsyncIterator[Talk]:
    """Open a session with the client's own defaults, and `config` over them."""
    client = DuplexClient(
        f"ws://{address}", model="speaker", config=SessionConfig(instructions=instructions, **config)
    )
    async with client:
        talk = Talk(client)
        listening = asyncio.create_task(talk.listen())
        await asyncio.sleep(0.05)
        yield talk
        assert not talk.served("error"), talk.served("error")
    await listening


async def opens(address: str) -> None:
    async with talking(address) as talk:
        assert talk.client.session_id.startswith("duplex-")
        assert talk.client.resume_token
        assert "chunk_period_ms" in talk.client.session_info["capabilities"]


async def text_turn(address: str) -> None:
    async with talking(address, auto_response=False) as talk:
        await talk.write("hello there")
        await talk.client.send({"type": "response.create", "response": {"output_modalities": ["text"]}})
        answer = await talk.answer()
        await answer.wait(10)
        assert answer.text == "You said hello there", answer.text


async def server_vad(address: str) -> None:
    async with talking(address, turn_detection=VAD) as talk:
        await talk.client.stream_pcm(spoken(16_000), chunk_ms=100, realtime=False)
        answer = await talk.answer()
        assert await heard(answer) == 400, answer.played_ms
        assert answer.transcript == "You said something spoken", answer.transcript
        assert answer.decision == "speak"


async def push_to_talk(address: str) -> None:
    async with talking(address) as talk:
        await talk.client.stream_pcm(tone(500, 16_000), chunk_ms=100, realtime=False, is_speech=True)
        await talk.client.commit()
        answer = await talk.answer()
        assert await heard(answer) == 400
        await talk.client.ack_playback(
            answer.played_ms, response_id=answer.response_id, item_id=f"item_{answer.response_id}"
        )
        await becomes(lambda: talk.served("playback.acknowledged"), "the acknowledgement")


async def tool_call(address: str) -> None:
    async with talking(address, "[call]", auto_response=True, extra_body={"realtime_tools": [TOOL]}) as talk:
        await talk.write("what is the weather?")
        await talk.client.send({"type": "response.create"})
        await becomes(lambda: talk.served("response.function_call_arguments.done"), "the call")
        call = talk.served("response.function_call_arguments.done")[0]
        assert (call["name"], call["arguments"]) == ("weather", '{"city": "Bonn"}')
        item = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny in Bonn"}
        await talk.client.send({"type": "conversation.item.create", "item": item})
        await becomes(lambda: len(talk.served("response.done")) == 2, "the second answer")
        spoken_words = "".join(part["delta"] for part in talk.served("response.output_audio_transcript.delta"))
        assert spoken_words == "It says sunny in Bonn", spoken_words


async def barge_in(address: str) -> None:
    async with talking(address, "[long]", turn_detection=VAD) as talk:
        await talk.client.stream_pcm(spoken(16_000), chunk_ms=100, realtime=False)
        answer = await talk.answer()
        await becomes(lambda: len(talk.served("response.output_audio.delta")) > 3, "sound")
        await talk.client.stream_pcm(tone(500, 16_000), chunk_ms=100, realtime=False)
        assert 0 < await heard(answer) < 8000
        response = talk.served("response.done")[0]["response"]
        assert (response["status"], response["status_details"]["reason"]) == ("cancelled", "turn_detected")
        await talk.client.stream_pcm(silence(800, 16_000), chunk_ms=100, realtime=False)
        await talk.answer()


async def truncate(address: str) -> None:
    async with talking(address, "[long]", auto_response=False) as talk:
        await talk.write("tell me everything")
        await talk.client.send({"type": "response.create"})
        answer = await talk.answer()
        await becomes(lambda: len(talk.served("response.output_audio.delta")) > 5, "sound")
        await talk.client.cancel_response(answer.response_id)
        await answer.wait(10)
        await talk.client.send(
            {
                "type": "conversation.item.truncate",
                "item_id": f"item_{answer.response_id}",
                "content_index": 0,
                "audio_end_ms": 80,
            }
        )
        await becomes(lambda: talk.served("conversation.item.truncated"), "truncated")
        assert talk.served("conversation.item.truncated")[0]["audio_end_ms"] == 80


async def close(address: str) -> None:
    async with talking(address) as talk:
        await talk.client.close()
        assert talk.served("session.closed")[0]["reason"] == "client_close"


async def reconnect(address: str) -> None:
    """The socket is cut in the middle of an answer: the client resumes, and no byte is missing."""
    async with talking(address, "[long]", auto_response=False) as talk:
        await talk.write("tell me everything")
        await talk.client.send({"type": "response.create"})
        answer = await talk.answer()
        await becomes(lambda: len(talk.served("response.output_audio.delta")) > 5, "sound")
        token = talk.client.resume_token
        talk.client._ws.transport.abort()
        assert await heard(answer) == 8000, answer.played_ms
        assert talk.client.resume_token != token
        numbers = [event.server_event_seq for event in talk.events if event.server_event_seq]
        assert numbers == sorted(set(numbers)), "a message came twice"


if __name__ == "__main__":
    main(opens, text_turn, server_vad, push_to_talk, tool_call, barge_in, truncate, close, reconnect)
