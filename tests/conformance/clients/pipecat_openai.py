"""Pipecat's OpenAI realtime service (`pipecat-ai[openai]`), as it comes: only its base address is ours."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMMessagesAppendFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.realtime import events
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from scenarios import RATE, becomes, main, silence, spoken, tone

VAD = events.TurnDetection(silence_duration_ms=300)
TOOL = {
    "type": "function",
    "name": "weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


class Ear(FrameProcessor):
    """Keeps what passes, and passes it on."""

    def __init__(self, heard: list[Frame]) -> None:
        super().__init__()
        self._heard = heard

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Keep a frame."""
        await super().process_frame(frame, direction)
        self._heard.append(frame)
        await self.push_frame(frame, direction)


class Talk:
    """A pipeline with the service in it, and everything that has come out."""

    def __init__(self, service: OpenAIRealtimeLLMService) -> None:
        self.service = service
        self.frames: list[Frame] = []
        self.items: list[Any] = []
        pair = LLMContextAggregatorPair(LLMContext(), realtime_service_mode=True)
        self.task = PipelineTask(
            Pipeline([pair.user(), Ear(self.frames), service, Ear(self.frames), pair.assistant()]),
            params=PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=RATE),
            cancel_on_idle_timeout=False,
        )

        @service.event_handler("on_conversation_item_updated")
        async def updated(_service: object, _id: str, item: Any) -> None:
            self.items.append(item)

    def count(self, kind: type[Frame]) -> int:
        """Return how many frames of a kind have come."""
        return sum(isinstance(frame, kind) for frame in self.frames)

    def faults(self) -> list[str]:
        """Return what went wrong, as the client sees it."""
        return [frame.error for frame in self.frames if isinstance(frame, ErrorFrame)]

    def words(self) -> str:
        """Return what the assistant has said."""
        return "".join(frame.text for frame in self.frames if isinstance(frame, LLMTextFrame))

    def was_cut(self) -> bool:
        """Return whether an item is known to be incomplete."""
        return any(getattr(item, "status", "") == "incomplete" for item in self.items)

    async def write(self, text: str) -> None:
        """Give the service the conversation with one more message of the user."""
        await self.task.queue_frame(LLMMessagesAppendFrame([{"role": "user", "content": text}], run_llm=True))

    async def hear(self, sound: bytes) -> None:
        """Push sound as a microphone would, faster."""
        size = RATE // 50 * 2
        for at in range(0, len(sound), size):
            await self.task.queue_frame(InputAudioRawFrame(sound[at : at + size], RATE, 1))
            await asyncio.sleep(0.002)

    async def answers(self, count: int) -> None:
        """Wait until so many answers are over."""
        await becomes(lambda: self.count(LLMFullResponseEndFrame) >= count, f"{count} answers; {self.faults()}")


@asynccontextmanager
async def talking(
    address: str, instructions: str = "Talk.", *, detection: object = None, tools: list[Any] | None = None
) -> AsyncIterator[Talk]:
    """Run a pipeline with the service's own defaults, but for the turn detection."""
    sound = (
        None if detection is None else events.AudioConfiguration(input=events.AudioInput(turn_detection=detection))
    )
    service = OpenAIRealtimeLLMService(
        api_key="none",
        base_url=f"ws://{address}/v1/realtime",
        settings=OpenAIRealtimeLLMService.Settings(
            model="gpt-realtime",
            system_instruction=instructions,
            session_properties=events.SessionProperties(audio=sound, tools=tools),
        ),
    )
    talk = Talk(service)
    running = asyncio.create_task(PipelineRunner(handle_sigint=False).run(talk.task))
    try:
        await becomes(lambda: service._api_session_ready, f"the settings; {talk.faults()}")
        yield talk
        assert not talk.faults(), talk.faults()
    finally:
        await talk.task.queue_frame(EndFrame())
        await asyncio.wait_for(running, 5)


async def opens(address: str) -> None:
    async with talking(address):
        pass


async def text_turn(address: str) -> None:
    async with talking(address) as talk:
        await talk.write("hello there")
        await talk.answers(1)
        assert talk.words() == "You said hello there", talk.words()
        heard = [frame for frame in talk.frames if isinstance(frame, TTSAudioRawFrame)]
        assert sum(len(frame.audio) for frame in heard) == 400 * RATE // 1000 * 2


async def server_vad(address: str) -> None:
    async with talking(address, detection=VAD) as talk:
        await talk.hear(spoken())
        await talk.answers(1)
        assert talk.words() == "You said something spoken", talk.words()
        assert talk.count(UserStartedSpeakingFrame)
        assert talk.count(UserStoppedSpeakingFrame)


async def push_to_talk(address: str) -> None:
    """The service's way of it: whoever knows that the user has spoken says so by a frame."""
    async with talking(address, detection=False) as talk:
        await talk.hear(tone(500))
        await talk.task.queue_frame(UserStoppedSpeakingFrame())
        await talk.answers(1)
        assert talk.words() == "You said something spoken", talk.words()


async def tool_call(address: str) -> None:
    async with talking(address, "[call]", tools=[TOOL]) as talk:

        async def weather(asked: FunctionCallParams) -> None:
            await asked.result_callback(f"sunny in {asked.arguments['city']}")

        talk.service.register_function("weather", weather)
        await talk.write("what is the weather?")
        await becomes(lambda: "It says" in talk.words(), f"the second answer; {talk.faults()}")
        assert "sunny in Bonn" in talk.words(), talk.words()


async def barge_in(address: str) -> None:
    async with talking(address, "[long]", detection=VAD) as talk:
        await talk.write("tell me everything")
        await becomes(lambda: talk.count(TTSAudioRawFrame) > 3, "sound")
        await talk.hear(tone(500))
        await becomes(lambda: talk.count(InterruptionFrame), "the interruption")
        await becomes(
            lambda: any(getattr(item, "status", "") == "incomplete" for item in talk.items), "the cut item"
        )
        before = talk.count(TTSAudioRawFrame)
        assert before < 100
        await talk.hear(silence(1000))
        await becomes(lambda: talk.count(TTSAudioRawFrame) > before, "the next answer")


async def truncate(address: str) -> None:
    """The service truncates by itself when it is interrupted, and can ask for what is left."""
    async with talking(address, "[long]", detection=False) as talk:
        await talk.write("tell me everything")
        await becomes(lambda: talk.count(TTSAudioRawFrame) > 10, "sound")
        item = talk.service._current_audio_response.item_id
        await talk.task.queue_frame(InterruptionFrame())
        await becomes(
            lambda: any(getattr(item, "status", "") == "incomplete" for item in talk.items), "the cut item"
        )
        left = await talk.service.retrieve_conversation_item(item)
        assert left.id == item


async def close(address: str) -> None:
    async with talking(address) as talk:
        await talk.task.queue_frame(EndFrame())
        await becomes(lambda: talk.service._websocket is None, "the end")


async def reconnect(address: str) -> None:
    """The service does not dial again by itself; asked to, it writes the conversation anew."""
    async with talking(address) as talk:
        await talk.write("first")
        await talk.answers(1)
        await talk.service.reset_conversation()
        await becomes(lambda: talk.service._api_session_ready, f"the second session; {talk.faults()}")
        await talk.service._create_response()
        await talk.answers(2)
        assert talk.words().count("You said first") == 2, talk.words()


if __name__ == "__main__":
    main(opens, text_turn, server_vad, push_to_talk, tool_call, barge_in, truncate, close, reconnect)
