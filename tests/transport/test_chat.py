"""`/v1/chat/completions`, asked by the unmodified openai-python client and by hand (WIRE 11.4, B28, B-L7)."""

import asyncio
import base64
import io
import json
import tracemalloc
import urllib.error
import urllib.request
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import numpy as np
import pytest
from anyio.abc import SocketStream
from msgspec.structs import replace
from openai import APIStatusError, AsyncOpenAI
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from antiphon.engine.clock import VirtualClock
from antiphon.engine.settings import HubSettings
from antiphon.events.audio import AudioFormat
from antiphon.events.commands import StageAccepted, StageCalled, StageCost, StageFinished, Usage
from antiphon.events.events import ResponseEnded
from antiphon.events.items import AudioPart, FunctionCall, FunctionOutput, ImagePart, Message, TextPart
from antiphon.sessions.models.simple import CASCADE
from antiphon.stages.base import AnyMessage, Submit
from antiphon.stages.scripted import Cue, Fail, Finish, Hang, Say, ScriptedStage
from antiphon.transport import chat_in, http_protocol, sound_files
from antiphon.transport.access import Access
from antiphon.transport.http_protocol import HttpProtocol
from antiphon.transport.keys import Keys
from antiphon.transport.wire_errors import WireError

from .held import HeldStage
from .serving import Serving, becomes, serving
from tests.rules import rule

pytestmark = pytest.mark.anyio

SPENT = Usage(input_text=7, output_text=3, output_audio=2)
COSTS = (StageCost(stage="llm", output_tokens=3, total_ms=12.0),)
TWO_WORDS = (Say("Good ", 80), Say("day.", 40), Finish(usage=SPENT, costs=COSTS))
ASKED: list[Any] = [{"role": "user", "content": "Hello?"}]
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@asynccontextmanager
async def asking(stage: ScriptedStage, **options: Any) -> AsyncIterator[tuple[Serving, AsyncOpenAI]]:
    """A server with a scripted model, and a client of it."""
    async with (
        serving(stage=stage, plugin=CASCADE, **options) as served,
        AsyncOpenAI(base_url=f"{served.http}/v1", api_key="any", max_retries=0) as client,
    ):
        yield served, client


def submitted(stage: ScriptedStage) -> Submit:
    """Return the last request that the stage was given."""
    return [message for message in stage.messages if isinstance(message, Submit)][-1]


def post(url: str, body: bytes) -> tuple[int, Any]:
    """Send exactly these bytes."""
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


async def posted(served: Serving, body: bytes | dict[str, Any]) -> tuple[int, Any]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await anyio.to_thread.run_sync(lambda: post(served.http, raw))


# -- answers -------------------------------------------------------------------------------------------------


@rule("B28")
async def test_an_answer_in_words_takes_no_place_of_a_conversation() -> None:
    stage = ScriptedStage(default=TWO_WORDS)
    async with asking(stage, settings=HubSettings(max_sessions=1)) as (served, client):
        async with client.realtime.connect(model="any") as talk:
            assert (await talk.recv()).type == "session.created", "the one place is taken"
            answer = await client.chat.completions.create(model="any", messages=ASKED)
        choice = answer.choices[0]
        assert (choice.message.role, choice.message.content) == ("assistant", "Good day.")
        assert (choice.finish_reason, choice.message.audio, answer.model) == ("stop", None, "any")
        assert answer.id.startswith("chatcmpl-")
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (7, 5, 12)
        assert not submitted(stage).payload.speaks
        await becomes(lambda: served.hub.statistics().live == 0)


async def test_the_conversation_so_far_reaches_the_model() -> None:
    stage = ScriptedStage(default=TWO_WORDS)
    messages: list[Any] = [
        {"role": "system", "content": "Be kind."},
        {"role": "developer", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]},
        {"role": "user", "content": "What is the weather?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "sky", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "blue"},
        {"role": "assistant", "content": "Fine."},
        {"role": "system", "content": "It has changed."},
        {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
    ]
    async with asking(stage) as (_, client):
        await client.chat.completions.create(
            model="any", messages=messages, max_completion_tokens=9, temperature=0.5
        )
    payload = submitted(stage).payload
    assert payload.instructions == "Be kind.\n\nBe brief."
    assert (payload.max_output_tokens, payload.temperature) == (9, 0.5)
    shown: list[object] = []
    for item in payload.items:
        match item:
            case Message(role=role, content=(TextPart(text=text),)):
                shown.append((role, text))
            case FunctionCall():
                shown.append((item.call_id, item.name, item.arguments))
            case FunctionOutput():
                shown.append((item.call_id, item.output))
            case _:
                shown.append(item)
    assert shown == [
        ("user", "What is the weather?"),
        ("c1", "sky", "{}"),
        ("c1", "blue"),
        ("assistant", "Fine."),
        ("system", "It has changed."),
        ("user", "And now?"),
    ]


async def test_an_answer_in_sound_is_a_file_beside_its_words() -> None:
    stage = ScriptedStage(default=TWO_WORDS)
    async with asking(stage) as (served, client):
        answer = await client.chat.completions.create(
            model="any", messages=ASKED, modalities=["text", "audio"], audio={"format": "wav", "voice": "joe"}
        )
        message = answer.choices[0].message
        assert message.content == "Good day."
        assert message.audio is not None
        assert message.audio.transcript == "Good day."
        assert message.audio.expires_at - answer.created == 24 * 3600
        with wave.open(io.BytesIO(base64.b64decode(message.audio.data))) as file:
            assert (file.getframerate(), file.getnchannels(), file.getnframes()) == (24_000, 1, 2_880)
        body = {"messages": ASKED, "modalities": ["audio"], "audio": {"format": "pcm16"}}
        status, raw = await posted(served, body)
        assert status == 200
        assert len(base64.b64decode(raw["choices"][0]["message"]["audio"]["data"])) == 2_880 * 2
        metadata = {"format": "pcm", "sample_rate_hz": 24_000, "frame_count": 2_880, "channels": 1}
        assert raw["choices"][0]["audio_metadata"] == metadata
        assert raw["metrics"]["stage_metrics"]["0"]["num_tokens_out"] == 3
    assert [message.payload.voice for message in stage.messages if isinstance(message, Submit)] == [
        "joe",
        "default",
    ]


@pytest.mark.parametrize(("kind", "magic"), [("flac", b"fLaC"), ("opus", b"OggS"), ("mp3", b"\xff")])
async def test_sound_in_packed_files_goes_both_ways(kind: str, magic: bytes) -> None:
    pytest.importorskip("soundfile")
    stage = ScriptedStage(default=(Say("Long.", 1_000), Finish()))
    async with asking(stage) as (served, _):
        body = {"messages": ASKED, "modalities": ["audio"], "audio": {"format": kind}}
        _, raw = await posted(served, body)
        data = raw["choices"][0]["message"]["audio"]["data"]
        assert base64.b64decode(data).startswith(magic)
        part = {"type": "input_audio", "input_audio": {"data": data, "format": kind}}
        status, _ = await posted(served, {"messages": [{"role": "user", "content": [part]}]})
        assert status == 200
    (said,) = submitted(stage).payload.items
    assert isinstance(said, Message)
    assert isinstance(said.content[0], AudioPart)
    assert abs(said.content[0].ms - 1_000) <= 100


# -- streams -------------------------------------------------------------------------------------------------


async def test_a_stream_of_words() -> None:
    stage = ScriptedStage(default=(Say("Good "), Cue("on"), Say("day."), Finish(usage=SPENT)))
    async with asking(stage) as (_, client):
        stream = await client.chat.completions.create(
            model="any", messages=ASKED, stream=True, stream_options={"include_usage": True}
        )
        words: list[str] = []
        reasons: list[str | None] = []
        usage = None
        async for chunk in stream:
            if chunk.usage is not None:
                usage = chunk.usage
                assert not chunk.choices
                continue
            words.append(chunk.choices[0].delta.content or "")
            reasons.append(chunk.choices[0].finish_reason)
            if words[-1] == "Good ":
                stage.cue("on")  # the second half is made only when the first one has arrived
        assert "".join(words) == "Good day."
        assert reasons[:-1] == [None] * (len(reasons) - 1)
        assert reasons[-1] == "stop"
        assert usage is not None
        assert usage.total_tokens == 12


async def test_a_stream_of_sound_is_one_file_and_its_words_are_apart() -> None:
    stage = ScriptedStage(default=TWO_WORDS)
    async with asking(stage) as (served, _):
        asked = {"messages": ASKED, "stream": True, "modalities": ["text", "audio"], "audio": {"format": "wav"}}
        chunks, done = await streamed(served, asked)
    assert done
    sound = [chunk for chunk in chunks if chunk["modality"] == "audio"]
    file = b"".join(base64.b64decode(chunk["choices"][0]["delta"]["content"]) for chunk in sound)
    assert file[:4] == b"RIFF"
    assert len(file) == 44 + 2 * 2_880
    assert [chunk["choices"][0]["audio_metadata"]["frame_count"] for chunk in sound] == [1_920, 960]
    words = [chunk["choices"][0] for chunk in chunks if chunk["modality"] == "text"]
    assert "".join(choice["delta"].get("content", "") for choice in words) == "Good day."
    assert chunks[-1]["modality"] == "text"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert {chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]} == {None}


async def streamed(served: Serving, body: dict[str, Any]) -> tuple[list[Any], bool]:
    """Return the bodies of a stream, and whether it said that it was done."""

    def read() -> list[bytes]:
        request = urllib.request.Request(f"{served.http}/v1/chat/completions", json.dumps(body).encode())
        with urllib.request.urlopen(request) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            return [line for line in answer.read().split(b"\n\n") if line]

    lines = await anyio.to_thread.run_sync(read)
    assert all(line.startswith(b"data: ") for line in lines)
    bodies = [json.loads(line[6:]) for line in lines if line != b"data: [DONE]"]
    return bodies, lines[-1] == b"data: [DONE]"


class CallingStage(ScriptedStage):
    """Asks for two calls, in pieces."""

    def handle(self, message: AnyMessage) -> None:
        if not isinstance(message, Submit):
            super().handle(message)
            return
        self.messages.append(message)
        name = message.request
        for report in (
            StageAccepted(request=name),
            StageCalled(request=name, index=0, name="sky", call_id="c1", arguments='{"at":', final=False),
            StageCalled(request=name, index=0, arguments='"noon"}'),
            StageCalled(request=name, index=1, name="sea", call_id="c2", arguments="{}"),
            StageFinished(request=name),
        ):
            self._say(report)


TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "sky", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "sea"}},
]


async def test_calls_are_asked_for_whole_and_in_pieces() -> None:
    async with asking(CallingStage()) as (_, client):
        choice: Any = {"type": "function", "function": {"name": "sky"}}
        answer = await client.chat.completions.create(model="any", messages=ASKED, tools=TOOLS, tool_choice=choice)
        calls: Any = answer.choices[0].message.tool_calls
        assert [(call.id, call.function.name, call.function.arguments) for call in calls] == [
            ("c1", "sky", '{"at":"noon"}'),
            ("c2", "sea", "{}"),
        ]
        assert (answer.choices[0].finish_reason, answer.choices[0].message.content) == ("tool_calls", None)
        async with client.chat.completions.stream(model="any", messages=ASKED, tools=TOOLS) as stream:
            final = await stream.get_final_completion()
        streamed_calls: Any = final.choices[0].message.tool_calls
        assert [(call.id, call.function.arguments) for call in streamed_calls] == [
            ("c1", '{"at":"noon"}'),
            ("c2", "{}"),
        ]


# -- what a client says otherwise ----------------------------------------------------------------------------


async def test_pictures_and_sound_of_the_user() -> None:
    sound = io.BytesIO()
    with wave.open(sound, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8_000)
        file.writeframes(b"\x10\x20" * 4_000)
    heard = base64.b64encode(sound.getvalue()).decode()
    picture = "data:image/png;base64," + base64.b64encode(PIXEL).decode()
    stage = ScriptedStage(default=TWO_WORDS)
    seeing = replace(CASCADE, capabilities=replace(CASCADE.capabilities, supports_image_input=True))
    async with serving(stage=stage, plugin=seeing) as served:
        parts = [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": picture, "detail": "low"}},
            {"type": "input_audio", "input_audio": {"data": heard, "format": "wav"}},
            {"type": "audio_url", "audio_url": {"url": f"data:audio/x-wav;base64,{heard}"}},
        ]
        assert (await posted(served, {"messages": [{"role": "user", "content": parts}]}))[0] == 200
    (said,) = submitted(stage).payload.items
    assert isinstance(said, Message)
    text, image, first, second = said.content
    assert text == TextPart("What is this?")
    assert isinstance(image, ImagePart)
    assert (image.size, image.detail) == (len(PIXEL), "low")
    for part in (first, second):
        assert isinstance(part, AudioPart)
        assert part.ref is not None
        assert abs(AudioFormat("pcm16", 16_000).ms(part.ref.size) - 500) <= 2


GUARDS = [
    ({"messages": ASKED, "modalities": "text"}, "modalities must be a list of strings", "modalities"),
    ({"messages": ASKED, "modalities": [1]}, "modalities must be a list of strings", "modalities"),
    ({"modalities": {}}, "modalities must be a list of strings", "modalities"),
    ({"messages": ASKED, "logprobs": 1}, "logprobs must be a boolean", "logprobs"),
    ({"logprobs": "true"}, "logprobs must be a boolean", "logprobs"),
    ([1], "The body must be a JSON object.", ""),
]


@pytest.mark.parametrize(("body", "message", "param"), GUARDS)
async def test_raw_fields_are_guarded_before_all_else(body: Any, message: str, param: str) -> None:
    """B-L7."""
    async with asking(ScriptedStage()) as (served, _):
        status, answer = await posted(served, body)
        assert status == 400
        assert "frame" not in answer["error"]["message"]
        assert answer["error"] == {"message": message, "type": "BadRequestError", "param": param, "code": 400}


def user(*parts: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


REFUSED: list[tuple[bytes | dict[str, Any], int, str | None]] = [
    (b"{", 400, None),
    (b"\xff", 400, None),
    (b'{"messages": NaN}', 400, "messages"),
    (b'{"messages":' + b"[" * 100_000, 400, None),
    (b'{"messages":' + b"1" * 1_000_000 + b"}", 400, None),
    ({}, 400, "messages"),
    ({"messages": []}, 400, "messages"),
    ({"messages": [{"role": "king", "content": "x"}]}, 400, "messages[0].role"),
    ({"messages": [{"role": "system", "content": "x"}]}, 400, "messages"),
    ({"messages": [{"role": "user"}]}, 400, "messages[0].content"),
    ({"messages": [*ASKED, {"role": "tool", "content": "x"}]}, 400, "messages[1].tool_call_id"),
    ({"messages": [*ASKED, {"role": "assistant"}]}, 400, "messages[1].content"),
    ({"messages": [{"role": "system", "content": [{"type": "image_url"}]}]}, 400, "messages[0].content[0].type"),
    ({"messages": ASKED, "n": 2}, 400, "n"),
    ({"messages": ASKED, "modalities": []}, 400, "modalities"),
    ({"messages": ASKED, "modalities": ["image"]}, 400, "modalities"),
    ({"messages": ASKED, "modalities": ["audio"], "audio": {"format": "aac"}}, 400, "audio.format"),
    (
        {"messages": ASKED, "modalities": ["audio"], "audio": {"format": "flac"}, "stream": True},
        400,
        "audio.format",
    ),
    ({"messages": ASKED, "max_tokens": 0}, 400, "max_tokens"),
    ({"messages": ASKED, "temperature": True}, 400, "temperature"),
    ({"messages": ASKED, "tools": [{"type": "function"}]}, 400, "tools[0].name"),
    ({"messages": ASKED, "tool_choice": {"type": "function", "function": {"name": "x"}}}, 400, "tool_choice.name"),
    (user({"type": "text"}), 400, "messages[0].content[0].text"),
    (user({"type": "smell"}), 400, "messages[0].content[0].type"),
    (user({"type": "video_url"}), 400, "messages[0].content[0].type"),
    (
        user({"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}),
        400,
        "messages[0].content[0].image_url.url",
    ),
    (
        user({"type": "audio_url", "audio_url": {"url": "file:///etc/passwd"}}),
        400,
        "messages[0].content[0].audio_url",
    ),
    (user({"type": "input_audio"}), 400, "messages[0].content[0].input_audio"),
    (
        user({"type": "input_audio", "input_audio": {"data": "@@@", "format": "wav"}}),
        400,
        "messages[0].content[0].input_audio.data",
    ),
    (
        user({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
        400,
        "messages[0].content[0]",
    ),
    (
        user({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "pcm16"}}),
        400,
        "messages[0].content[0]",
    ),
    (
        user({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "exe"}}),
        400,
        "messages[0].content[0]",
    ),
    ({"messages": [{"role": "user", "content": "x" * 600_000}]}, 400, "messages[0]"),
]


@pytest.mark.parametrize(("body", "status", "param"), REFUSED)
async def test_what_is_wrong_is_named_and_no_session_is_opened(
    body: bytes | dict[str, Any], status: int, param: str | None
) -> None:
    async with asking(ScriptedStage()) as (served, _):
        answered, answer = await posted(served, body)
        assert (answered, answer["error"]["code"], answer["error"]["param"]) == (status, status, param)
        assert served.hub.statistics().opened == 0


async def test_what_a_model_cannot_do_is_refused_by_the_session() -> None:
    picture = "data:image/png;base64," + base64.b64encode(PIXEL).decode()
    async with asking(ScriptedStage()) as (served, _):
        status, answer = await posted(served, user({"type": "image_url", "image_url": picture}))
        assert (status, answer["error"]["type"]) == (400, "BadRequestError")
        assert answer["error"]["param"] == "messages"
        await becomes(lambda: served.hub.statistics().live == 0)


async def test_what_a_session_refuses_is_named_by_the_field_of_the_body() -> None:
    one_voice = replace(CASCADE, capabilities=replace(CASCADE.capabilities, voices=("joe",)))
    asked = {"messages": ASKED, "modalities": ["audio"], "audio": {"voice": "bruce"}}
    async with serving(stage=ScriptedStage(), plugin=one_voice) as served:
        status, answer = await posted(served, asked)
        assert (status, answer["error"]["param"]) == (400, "audio.voice")


async def test_a_model_that_is_not_served_is_not_found() -> None:
    async with asking(ScriptedStage(), settings=HubSettings(wildcard=False)) as (_, client):
        with pytest.raises(APIStatusError) as error:
            await client.chat.completions.create(model="nobody", messages=ASKED)
        assert error.value.status_code == 404


async def test_keys_hold_here_too() -> None:
    async with asking(ScriptedStage(), access=Access(keys=Keys.of("right"))) as (served, client):
        with pytest.raises(APIStatusError) as error:
            await client.chat.completions.create(model="any", messages=ASKED)
        assert error.value.status_code == 401
        knowing = client.with_options(api_key="right")
        assert (await knowing.chat.completions.create(model="any", messages=ASKED)).choices
        assert served.hub.statistics().opened == 1


# -- what goes wrong -----------------------------------------------------------------------------------------


async def test_requests_have_their_own_bound() -> None:
    stage = ScriptedStage(default=(Cue("on"), *TWO_WORDS))
    async with (
        asking(stage, settings=HubSettings(max_requests=1)) as (served, client),
        anyio.create_task_group() as group,
    ):
        answers: list[str | None] = []

        async def ask() -> None:
            answer = await client.chat.completions.create(model="any", messages=ASKED)
            answers.append(answer.choices[0].message.content)

        group.start_soon(ask)
        await becomes(lambda: served.hub.statistics().live == 1)
        with pytest.raises(APIStatusError) as error:
            await client.chat.completions.create(model="any", messages=ASKED)
        assert error.value.status_code == 429
        stage.cue("on")
        await becomes(lambda: bool(answers))
        await becomes(lambda: served.hub.statistics().live == 0)
        await ask()
        assert answers == ["Good day."] * 2


async def test_an_answer_that_fails_is_an_error_before_a_stream_and_in_it() -> None:
    stage = ScriptedStage(default=(Fail("engine_error", "The model is ill."),), scripts={1: (Say("Well"), Fail())})
    async with asking(stage) as (served, _):
        status, answer = await posted(served, {"messages": ASKED})
        assert (status, answer["error"]["type"]) == (500, "InternalServerError")
        chunks, done = await streamed(served, {"messages": ASKED, "stream": True})
        assert done
        assert chunks[-1]["error"]["code"] == 500
        assert chunks[1]["choices"][0]["delta"]["content"] == "Well"
        await becomes(lambda: served.hub.statistics().live == 0)


async def test_who_goes_away_ends_the_answer() -> None:
    stage = ScriptedStage(default=(Say("Well, "), Hang()))
    async with asking(stage) as (served, client):
        async with client.chat.completions.with_streaming_response.create(
            model="any", messages=ASKED, stream=True
        ) as answer:
            async for line in answer.iter_lines():
                if "Well" in line:
                    break
            assert served.hub.statistics().live == 1
        await becomes(lambda: served.hub.statistics().live == 0)
        assert served.hub.statistics().uncleaned == 0


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[HttpProtocol]:
    """The connections that were made."""
    found: list[HttpProtocol] = []
    made = HttpProtocol.connection_made

    def noted(connection: HttpProtocol, transport: asyncio.Transport) -> None:
        found.append(connection)
        made(connection, transport)

    monkeypatch.setattr(HttpProtocol, "connection_made", noted)
    return found


@asynccontextmanager
async def unread(served: Serving, *, stream: bool) -> AsyncIterator[SocketStream]:
    """Ask for an answer in sound, which is not read."""
    body = json.dumps({"messages": ASKED, "stream": stream, "modalities": ["audio"]})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    async with await anyio.connect_tcp("127.0.0.1", served.server.port) as client:
        await client.send((head + body).encode())
        yield client


async def read_on(client: SocketStream) -> None:
    while True:
        await client.receive()


def waiting(connection: HttpProtocol) -> int:
    """Return how many bytes wait for a client, beyond what its socket holds."""
    return connection.transport.get_write_buffer_size()


@pytest.mark.parametrize("stream", [True, False])
async def test_who_never_reads_is_given_up(connections: list[HttpProtocol], *, stream: bool) -> None:
    """Neither a task nor a whole answer is left to TCP, which gives up after a quarter of an hour."""
    clock, stage = VirtualClock(), HeldStage(1_000)
    async with serving(stage=stage, plugin=CASCADE, clock=clock) as served, unread(served, stream=stream) as client:
        await becomes(lambda: bool(stage.running))
        if not stream:
            stage.finish()
        await becomes(lambda: waiting(connections[0]) > HIGH_WATER_LIMIT)
        clock.advance(http_protocol.TAKING_US - 1)
        assert not connections[0].transport.is_closing()
        clock.advance(1)
        await becomes(lambda: served.hub.statistics().live == 0)
        with anyio.fail_after(10), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await read_on(client)
        (row,) = await served.log.sessions()
        events = [event for written in await served.log.read(row.session, 0, 5_000) for event in written.events]
        (ended,) = [event for event in events if isinstance(event, ResponseEnded)]
        assert ended.status == ("cancelled" if stream else "completed")


async def test_who_reads_slowly_is_waited_for(connections: list[HttpProtocol]) -> None:
    clock, stage = VirtualClock(), HeldStage(1_000)
    async with serving(stage=stage, plugin=CASCADE, clock=clock) as served, unread(served, stream=False) as client:
        await becomes(lambda: bool(stage.running))
        stage.finish()
        await becomes(lambda: waiting(connections[0]) > HIGH_WATER_LIMIT)
        answer = b""
        while (left := waiting(connections[0])) > HIGH_WATER_LIMIT:
            while waiting(connections[0]) > max(left - 10 * http_protocol.SLOWEST, 0):
                answer += await client.receive()
            clock.advance(http_protocol.TAKING_US)
        while not answer.endswith(b"0\r\n\r\n"):
            answer += await client.receive()
        assert answer.startswith(b"HTTP/1.1 200")


async def test_an_answer_has_its_time() -> None:
    clock = VirtualClock()
    stage = ScriptedStage(default=(Hang(),))
    async with asking(stage, clock=clock) as (served, _), anyio.create_task_group() as group:
        answers: list[tuple[int, Any]] = []

        async def ask() -> None:
            answers.append(await posted(served, {"messages": ASKED}))

        group.start_soon(ask)
        await becomes(lambda: bool(stage.messages))
        clock.advance(600_000_000)
        await becomes(lambda: bool(answers))
        assert answers[0][0] == 504
        clock.advance(10_000_000)
        await becomes(lambda: served.hub.statistics().live == 0)


async def test_a_server_that_stops_says_so() -> None:
    stage = ScriptedStage(default=(Hang(),))
    async with asking(stage) as (served, _), anyio.create_task_group() as group:
        answers: list[tuple[int, Any]] = []

        async def ask() -> None:
            answers.append(await posted(served, {"messages": ASKED}))

        group.start_soon(ask)
        await becomes(lambda: bool(stage.messages))
        await served.hub.shutdown()
        await becomes(lambda: bool(answers))
        assert answers[0][0] == 503
        assert (await posted(served, {"messages": ASKED}))[0] == 503


async def test_a_body_has_an_end() -> None:
    async with asking(ScriptedStage()) as (served, _):
        status, answer = await posted(served, b'{"messages":[' + b" " * (16 * 1024 * 1024) + b"]}")
        assert (status, answer["error"]["code"]) == (413, 413)


# -- small files that hold a lot -----------------------------------------------------------------------------


def packed(rate: int, channels: int, seconds: int) -> bytes:
    """Return silence as FLAC."""
    soundfile = pytest.importorskip("soundfile")
    out = io.BytesIO()
    with soundfile.SoundFile(out, "w", rate, channels, format="FLAC", subtype="PCM_16") as file:
        for _ in range(seconds):
            file.write(np.zeros((rate, channels), np.int16))
    return out.getvalue()


@pytest.mark.parametrize(("rate", "channels"), [(48_000, 8), (8_000, 1), (44_100, 2)])
async def test_a_file_is_unpacked_in_pieces(rate: int, channels: int) -> None:
    """Only the mono samples that are kept may be in memory whole, whatever the channels are."""
    file = packed(rate, channels, 20)
    tracemalloc.start()
    sound = sound_files.read_sound(file, "flac", 24_000)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(sound.samples), sound.rate) == (20 * rate, rate)
    assert most < 3 * sound.samples.nbytes + 4_000_000


async def test_what_is_longer_or_has_too_many_samples_a_second_is_not_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sound_files, "LONGEST_S", 3)
    assert len(sound_files.read_sound(packed(8_000, 1, 3), "flac", 24_000).samples) == 24_000
    with pytest.raises(sound_files.SoundFileError, match="at most 3 s"):
        sound_files.read_sound(packed(8_000, 1, 4), "flac", 24_000)
    with pytest.raises(sound_files.SoundFileError, match="192000 Hz"):
        sound_files.read_sound(packed(384_000, 1, 1), "flac", 24_000)


async def test_many_files_are_together_no_more_than_a_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_in, "MOST_SOUND", 100_000)
    given = base64.b64encode(packed(8_000, 1, 3)).decode()
    part = {"type": "input_audio", "input_audio": {"data": given, "format": "flac"}}
    said = {"role": "user", "content": [part]}
    asked = chat_in.wanted(json.dumps({"messages": [said, said]}).encode())
    assert sum(len(item.pieces[0].data) for item in asked.items) == 96_000
    with pytest.raises(WireError) as refused:
        chat_in.wanted(json.dumps({"messages": [said, said, said]}).encode())
    assert (refused.value.code, refused.value.param) == ("bad_audio", "messages[2].content[0]")
