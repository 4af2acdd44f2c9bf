"""The unmodified openai-python Realtime client (WIRE 10.1): every event parses into the class of its name."""

import base64
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from struct import pack
from typing import Any, get_args

import anyio
import pytest
from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection
from openai.types.realtime import RealtimeServerEvent
from openai.types.websocket_reconnection import ReconnectingEvent, ReconnectingOverrides
from pydantic import BaseModel
from websockets.exceptions import ConnectionClosedError

from antiphon.sessions.plugins import CASCADE

from .speaker import Speaker
from tests.rules import rule
from tests.transport.held import HeldStage
from tests.transport.serving import Serving, becomes, serving

pytestmark = pytest.mark.anyio

RATE = 24_000
PIECE = RATE // 10  # 100 ms


def tone(ms: int) -> bytes:
    """Return a loud 440 Hz tone."""
    samples = RATE * ms // 1000
    values = (int(12_000 * math.sin(2 * math.pi * 440 * index / RATE)) for index in range(samples))
    return b"".join(pack("<h", value) for value in values)


def silence(ms: int) -> bytes:
    """Return digital silence."""
    return bytes(RATE * ms // 1000 * 2)


def _by_type() -> dict[str, type[BaseModel]]:
    """Return the library's class for each event type that it knows."""
    union = get_args(get_args(RealtimeServerEvent)[0])
    return {get_args(kind.model_fields["type"].annotation)[0]: kind for kind in union}


CLASSES = _by_type()


class Talk:
    """A connection, and everything that was heard on it."""

    def __init__(self, connection: AsyncRealtimeConnection) -> None:
        self.say = connection
        self.heard: list[RealtimeServerEvent] = []

    async def next(self) -> RealtimeServerEvent:
        """Return the next event; it must be valid for the class that the library has for it."""
        with anyio.fail_after(10):
            frame = await self.say.recv_bytes()
        event = self.say.parse_event(frame)
        expected = CLASSES[event.type]
        assert type(event) is expected
        expected.model_validate_json(frame)
        self.heard.append(event)
        return event

    async def until(self, kind: str) -> Any:
        while (event := await self.next()).type != kind:
            assert event.type != "error", event
        return event

    async def append(self, sound: bytes) -> None:
        for start in range(0, len(sound), PIECE * 2):
            piece = base64.b64encode(sound[start : start + PIECE * 2]).decode()
            await self.say.input_audio_buffer.append(audio=piece)

    def kinds(self) -> list[str]:
        return [event.type for event in self.heard]


@asynccontextmanager
async def talking(served: Serving) -> AsyncIterator[Talk]:
    async with (
        AsyncOpenAI(api_key="none", base_url=served.http + "/v1") as client,
        client.realtime.connect(model="antiphon") as connection,
    ):
        talk = Talk(connection)
        await talk.until("session.created")
        yield talk


RESPONSE = [
    "response.created",
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
]


@rule("G9")
async def test_a_text_turn() -> None:
    async with serving() as served, talking(served) as talk:
        await talk.say.session.update(session={"type": "realtime", "output_modalities": ["text"]})
        updated = await talk.until("session.updated")
        assert updated.session.output_modalities == ["text"]
        await talk.say.conversation.item.create(
            item={
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "hello there"}],
            }
        )
        await talk.until("conversation.item.done")
        await talk.say.response.create()
        done = (await talk.until("response.done")).response
        await talk.until("rate_limits.updated")
        assert done.status == "completed"
        assert done.output[0].content[0].type == "output_text"
        assert "hello there" in done.output[0].content[0].text
        assert done.usage is not None
        begin = talk.kinds().index("response.created")
        kinds = [kind for kind in talk.kinds()[begin:] if kind != "response.output_text.delta"]
        assert kinds == [
            *RESPONSE,
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "conversation.item.done",
            "response.done",
            "rate_limits.updated",
        ]
        words = "".join(event.delta for event in talk.heard if event.type == "response.output_text.delta")
        assert words == done.output[0].content[0].text


@rule("F11")
async def test_a_voice_turn_with_server_vad() -> None:
    async with serving() as served, talking(served) as talk:
        await talk.append(silence(300) + tone(800) + silence(800))
        started = await talk.until("input_audio_buffer.speech_started")
        stopped = await talk.until("input_audio_buffer.speech_stopped")
        committed = await talk.until("input_audio_buffer.committed")
        added = await talk.until("conversation.item.added")
        finished = await talk.until("conversation.item.done")
        assert started.item_id == stopped.item_id == committed.item_id == added.item.id == finished.item.id
        assert 0 <= started.audio_start_ms <= 300
        assert stopped.audio_end_ms >= 1500
        done = (await talk.until("response.done")).response
        assert done.status == "completed"
        assert done.output[0].content[0].type == "output_audio"
        sound = b"".join(
            base64.b64decode(event.delta) for event in talk.heard if event.type == "response.output_audio.delta"
        )
        assert len(sound) / 2 / RATE == pytest.approx(1.6, abs=0.4)


async def test_settings_in_one_burst_are_understood_one_behind_the_other() -> None:
    async with serving() as served, talking(served) as talk:
        await talk.say.session.update(
            session={"type": "realtime", "tools": [{"type": "function", "name": "f", "parameters": {}}]}
        )
        await talk.say.session.update(
            session={"type": "realtime", "tool_choice": {"type": "function", "name": "f"}}
        )
        await talk.say.session.update(
            session={"type": "realtime", "audio": {"input": {"format": {"type": "audio/pcmu"}}}}
        )
        await talk.say.input_audio_buffer.append(audio=base64.b64encode(bytes(801)).decode())
        updated = [await talk.until("session.updated") for _ in range(3)][-1]
        assert updated.session.tool_choice.name == "f"
        assert updated.session.audio.input.format.type == "audio/pcmu"
        await talk.say.input_audio_buffer.clear()
        await talk.until("input_audio_buffer.cleared")  # 801 bytes are whole samples of G.711, not of pcm16


async def test_push_to_talk() -> None:
    async with serving() as served, talking(served) as talk:
        await talk.say.session.update(session={"type": "realtime", "audio": {"input": {"turn_detection": None}}})
        updated = await talk.until("session.updated")
        assert updated.session.audio.input.turn_detection is None
        await talk.append(tone(500))
        await talk.say.input_audio_buffer.commit()
        await talk.until("input_audio_buffer.committed")
        await talk.until("conversation.item.added")
        await talk.until("conversation.item.done")
        await talk.say.response.create()
        done = (await talk.until("response.done")).response
        assert done.status == "completed"
        assert "input_audio_buffer.speech_started" not in talk.kinds()


CALL = [
    "response.output_item.added",
    "conversation.item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
    "conversation.item.done",
    "response.done",
]


async def test_a_tool_call() -> None:
    tool: Any = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
    async with serving(stage=Speaker(), plugin=CASCADE) as served, talking(served) as talk:
        await talk.say.session.update(
            session={"type": "realtime", "instructions": "[call]", "tools": [tool], "tool_choice": "auto"}
        )
        await talk.until("session.updated")
        await talk.say.conversation.item.create(
            item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Well?"}]}
        )
        await talk.say.response.create()
        await talk.until("response.created")
        begin = len(talk.heard)
        call = (await talk.until("response.done")).response.output[0]
        assert talk.kinds()[begin:] == CALL
        assert (call.type, call.name, call.arguments) == ("function_call", "weather", '{"city": "Bonn"}')
        assert len(call.call_id) <= 32
        await talk.say.conversation.item.create(
            item={"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        )
        await talk.until("conversation.item.done")
        await talk.say.response.create()
        done = (await talk.until("response.done")).response
        assert done.output[0].content[0].transcript == "It says sunny"


CUT = [
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "response.output_item.done",
    "conversation.item.done",
    "response.done",
]


async def test_cancelling_a_running_answer() -> None:
    async with serving(stage=HeldStage()) as served, talking(served) as talk:
        await talk.say.conversation.item.create(
            item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}
        )
        await talk.say.response.create()
        await talk.until("response.output_audio.delta")
        await talk.say.response.cancel()
        done = (await talk.until("response.done")).response
        assert done.status == "cancelled"
        assert done.status_details.reason == "client_cancelled"
        assert done.output[0].status == "incomplete"
        assert talk.kinds()[-6:] == CUT


async def test_cancelling_nothing() -> None:
    async with serving() as served, talking(served) as talk:
        await talk.say.response.cancel()
        error = await talk.next()
        assert error.type == "error"
        assert error.error.code == "response_cancel_not_active"
        await talk.append(tone(200))
        await talk.until("input_audio_buffer.speech_started")


async def test_speaking_over_an_answer() -> None:
    async with serving(stage=HeldStage()) as served, talking(served) as talk:
        await talk.append(tone(500) + silence(700))
        first = await talk.until("response.output_audio.delta")
        await talk.append(tone(400))
        await talk.until("input_audio_buffer.speech_started")
        begin = len(talk.heard)
        done = (await talk.until("response.done")).response
        assert done.status == "cancelled"
        assert done.status_details.reason == "turn_detected"
        assert talk.kinds()[begin:] == CUT
        await talk.say.conversation.item.truncate(item_id=first.item_id, content_index=0, audio_end_ms=40)
        assert (await talk.until("conversation.item.truncated")).audio_end_ms == 40


async def test_items() -> None:
    async with serving() as served, talking(served) as talk:
        await talk.say.conversation.item.create(
            item={
                "type": "message",
                "id": "item_mine",
                "role": "user",
                "content": [{"type": "input_text", "text": "x"}],
            }
        )
        await talk.until("conversation.item.done")
        await talk.say.conversation.item.retrieve(item_id="item_mine")
        assert (await talk.until("conversation.item.retrieved")).item.id == "item_mine"
        await talk.say.conversation.item.delete(item_id="item_mine")
        assert (await talk.until("conversation.item.deleted")).item_id == "item_mine"
        await talk.say.conversation.item.delete(item_id="item_mine")
        error = await talk.next()
        assert error.type == "error"
        assert error.error.code == "item_delete_invalid_item_id"


class Returning:
    """All that an application needs to come back: token, last event, and what it said by number."""

    def __init__(self) -> None:
        self.query: dict[str, object] = {"resumable": "1"}
        self.reconnected: list[int] = []
        self._said: list[Any] = []

    async def heard(self, event: Any, connection: AsyncRealtimeConnection) -> None:
        if event.type == "session.created":
            self.query |= {"session_id": event.session.id, "resume_token": event.resume_token}
            for counted in self._said[getattr(event, "last_client_seq", 0) :]:
                await connection.send(counted)
        self.query["last_event_id"] = event.event_id

    def on_reconnecting(self, event: ReconnectingEvent) -> ReconnectingOverrides:
        self.reconnected.append(event.close_code)
        return {"extra_query": self.query}

    async def ask(self, connection: AsyncRealtimeConnection, text: str) -> None:
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text * 20}]}
        for command in ({"type": "conversation.item.create", "item": item}, {"type": "response.create"}):
            self._said.append(command | {"client_seq": len(self._said) + 1})
            await connection.send(self._said[-1])


@rule("P49")
@pytest.mark.parametrize("cut_at", [1, 2, 3, 5, 8, 13])
async def test_a_lost_connection_loses_nothing(cut_at: int) -> None:
    """The library's own reconnecting, with nothing but a new query: every event comes once."""
    app, heard = Returning(), list[Any]()
    async with (
        serving() as served,
        AsyncOpenAI(api_key="none", base_url=served.http + "/v1") as client,
        client.realtime.connect(
            model="antiphon",
            extra_query={"resumable": "1"},
            on_reconnecting=app.on_reconnecting,
            initial_delay=0.001,
        ) as connection,
    ):
        with anyio.fail_after(20):
            async for event in connection:
                heard.append(event)
                assert type(event) is CLASSES[event.type]
                await app.heard(event, connection)
                if len(heard) == 1 or event.type == "response.done":
                    if _done(heard) == 2:
                        break
                    await app.ask(connection, "one" if len(heard) == 1 else "two")
                if len(heard) % cut_at == 0 and len(app.reconnected) < 5:
                    next(iter(served.server.websockets)).cut_off()
        session = heard[0].session.id
    created = [event for event in heard if event.type == "session.created"]
    assert {event.session.id for event in created} == {session}
    assert len(created) == 1 + len(app.reconnected)
    assert set(app.reconnected) == {1006}
    said = [event for event in heard if event.type != "session.created"]
    assert [event.event_id for event in said] == sorted({event.event_id for event in said}), "each once, in order"
    for done in [event.response for event in said if event.type == "response.done"]:
        words = "".join(
            event.delta
            for event in said
            if event.type == "response.output_audio_transcript.delta" and event.response_id == done.id
        )
        assert done.status == "completed"
        assert words == done.output[0].content[0].transcript


def _done(heard: list[Any]) -> int:
    return sum(event.type == "response.done" for event in heard)


@rule("D22")
async def test_a_return_that_cannot_be_is_an_error_and_no_new_session() -> None:
    app = Returning()
    async with (
        serving() as served,
        AsyncOpenAI(api_key="none", base_url=served.http + "/v1") as client,
        client.realtime.connect(
            model="antiphon",
            extra_query={"resumable": "1"},
            on_reconnecting=app.on_reconnecting,
            initial_delay=0.001,
        ) as connection,
    ):
        await app.heard(await connection.recv(), connection)
        app.query["resume_token"] = "wrong"
        next(iter(served.server.websockets)).cut_off()
        with anyio.fail_after(10):
            told = await anext(aiter(connection))
            assert told.type == "error"
            assert told.error.code == "invalid_resume_token"
            with pytest.raises(ConnectionClosedError, match="1008"):
                await anext(aiter(connection))
        assert len(await served.log.sessions()) == 1


async def test_clearing_the_buffer_and_closing() -> None:
    async with serving() as served:
        async with talking(served) as talk:
            await talk.append(tone(200))
            await talk.say.input_audio_buffer.clear()
            await talk.until("input_audio_buffer.cleared")
        await becomes(lambda: not served.hub.statistics().admitted)
