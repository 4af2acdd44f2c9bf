"""How much of what a client writes is taken: each bound with its refusal, and nothing changed (WIRE 1.8, 12.15)."""

import base64
import json
from typing import Any

import msgspec
import pytest

from antiphon.engine.settings import HubSettings
from antiphon.events.config import Dialect, SessionConfig
from antiphon.events.items import MOST_WORDS
from antiphon.transport.wire_errors import WireError
from antiphon.transport.wire_in import decode
from antiphon.transport.wire_limits import MOST_INPUT, MOST_OPTIONS, MOST_SHOWN
from antiphon.transport.wire_read import Reading, Undecided

from .configs import initial
from .serving import Wire, serving
from tests.rules import rule

pytestmark = pytest.mark.anyio

SOUND = base64.b64encode(b"\x10\x20" * 1280).decode()
KIB = 1024
AFTER = "previous_item_id"
LARGE = "x" * (1024 * KIB + 1)


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "event_id": "mine", **fields}


def update(**session: Any) -> dict[str, Any]:
    return event("session.update", session=session)


def response(**options: Any) -> dict[str, Any]:
    return event("response.create", response=options)


def item(**fields: Any) -> dict[str, Any]:
    return event("conversation.item.create", item={"type": "message", "role": "user", **fields})


def append(**fields: Any) -> dict[str, Any]:
    return event("input_audio_buffer.append", audio=SOUND, **fields)


def tool(description: str) -> dict[str, Any]:
    return {"type": "function", "name": "f", "description": description}


def text(words: str) -> dict[str, Any]:
    return {"type": "input_text", "text": words}


MANY = [{"type": "message", "role": "user", "content": "x" * (MOST_WORDS - 100)} for _ in range(9)]

TOO_MUCH: list[tuple[dict[str, Any], str]] = [
    (append(transcript="x" * (64 * KIB + 1)), "transcript"),
    (append(text="x" * (64 * KIB + 1)), "text"),
    (event("input.text.append", text="x" * (MOST_WORDS + 1)), "text"),
    (event("push_text", text="x" * (MOST_WORDS + 1)), "text"),
    (item(content="x" * MOST_WORDS), "item"),
    (item(content=[text("é" * (MOST_WORDS // 4)), text("é" * (MOST_WORDS // 4))]), "item"),
    (item(content=[text("")] * (MOST_WORDS // 64 + 1)), "item"),
    (item(content=[{"type": "input_audio", "transcript": "x" * MOST_WORDS}]), "item"),
    (item(type="function_call", name="f", arguments="x" * MOST_WORDS), "item"),
    (item(type="function_call_output", call_id="c", output="x" * MOST_WORDS), "item"),
    (
        event("conversation.item.create", item={"type": "message", "role": "user"}, previous_item_id="x" * 513),
        AFTER,
    ),
    (item(type="function_call", name="f", call_id="x" * 513, arguments="{}"), "item.call_id"),
    (item(type="function_call", name="x" * 513, arguments="{}"), "item.name"),
    (event("conversation.item.delete", item_id="x" * 513), "item_id"),
    (event("conversation.item.retrieve", item_id="x" * 513), "item_id"),
    (event("conversation.item.truncate", item_id="x" * 513, audio_end_ms=1), "item_id"),
    (event("response.cancel", response_id="x" * 513), "response_id"),
    (event("output_audio_buffer.clear", response_id="x" * 513), "response_id"),
    (event("playback.ack", played_ms=1, item_id="x" * 513), "item_id"),
    (update(instructions=LARGE), "session.instructions"),
    (update(model="x" * 257), "session.model"),
    (update(voice="x" * 257), "session.voice"),
    (update(voice={"id": "x" * 257}), "session.voice.id"),
    (update(tools=[tool(LARGE)]), "session.tools"),
    (update(extra_body={"realtime_tools": [tool(LARGE)]}), "session.extra_body.realtime_tools"),
    (update(prompt={"id": "x" * MOST_SHOWN}), "session.prompt"),
    (update(tracing={"id": "é" * (MOST_SHOWN // 2)}), "session.tracing"),
    (update(include=["x" * MOST_SHOWN]), "session.include"),
    (update(audio={"input": {"transcription": {"prompt": "x" * MOST_SHOWN}}}), "session.audio.input.transcription"),
    (update(input_audio_transcription={"keywords": ["x" * MOST_SHOWN]}), "session.input_audio_transcription"),
    (update(initial_user_text="x" * (MOST_WORDS + 1)), "session.initial_user_text"),
    (update(metadata={"k": "x" * 513}), "session.metadata"),
    (update(extra_body={"x": "x" * MOST_OPTIONS}), "session.extra_body"),
    (update(extra_body={"x" * MOST_OPTIONS: 1}), "session.extra_body"),
    (response(instructions=LARGE), "response.instructions"),
    (response(voice="x" * 257), "response.voice"),
    (response(tools=[tool(LARGE)]), "response.tools"),
    (response(extra_body={"x": "x" * MOST_OPTIONS}), "response.extra_body"),
    (response(input=MANY), "response.input"),
    (response(input=[MANY[0], {**MANY[0], "content": "x" * MOST_WORDS}]), "response.input[1]"),
]


def understood(message: dict[str, Any], config: SessionConfig, dialect: Dialect = "duplex") -> object:
    decoded = decode(json.dumps(message), Reading(dialect=dialect, attachment=1))
    return decoded.under(config) if isinstance(decoded, Undecided) else decoded


@rule("P32")
@pytest.mark.parametrize(("message", "param"), TOO_MUCH)
def test_what_is_too_much_is_refused_by_the_field_that_is(message: dict[str, Any], param: str) -> None:
    with pytest.raises(WireError) as caught:
        understood(message, initial("duplex"))
    error = caught.value
    assert (error.code, error.detail, error.param) == ("bad_event", "value", param)


def test_what_is_just_not_too_much_is_taken() -> None:
    config = initial("duplex")
    for message in (
        append(transcript="é" * 64 * KIB),
        event("input.text.append", text="x" * MOST_WORDS),
        item(content="x" * (MOST_WORDS - 64)),
        update(instructions=LARGE[1:], tools=[tool(LARGE[100:])], voice="x" * 256, model="x" * 256),
        update(prompt={"id": "x" * (MOST_SHOWN - 9)}, extra_body={"x": "x" * (MOST_OPTIONS - 3)}),
        response(instructions=LARGE[1:], input=MANY[:8]),
    ):
        understood(message, config)
    assert MOST_INPUT > 7 * MOST_WORDS


def test_options_are_bounded_with_those_that_there_are() -> None:
    """`extra_body` is merged key by key (WIRE 4.6): many small updates are one large one."""
    half = {"a": f'"{"x" * (MOST_OPTIONS // 2)}"'}
    config = msgspec.structs.replace(initial("duplex"), extras=half)
    more = update(extra_body={"b": "x" * (MOST_OPTIONS // 2)})
    with pytest.raises(WireError):
        understood(more, config)
    understood(update(extra_body={"a": "y", "b": "x" * (MOST_OPTIONS // 2)}), config)
    understood(update(extra_body={"a": None, "b": "x" * (MOST_OPTIONS // 2)}), config)


@rule("P32", "A22")
async def test_each_refusal_names_its_event_and_changes_nothing() -> None:
    async with serving() as served, Wire.to(served.url + "?duplex=1&model=m") as wire:
        await wire.next()
        before = await _shown(wire)
        for message, _ in TOO_MUCH:
            await wire.raw(json.dumps(message))
            error = await wire.error()
            assert (error["code"], error["event_id"], len(error["message"]) < 300) == ("bad_event", "mine", True)
        assert await _shown(wire) == before
        await wire.send("input_audio_buffer.commit")
        assert (await wire.error())["code"] == "input_audio_buffer_empty"


async def _shown(wire: Wire) -> Any:
    await wire.send("session.update", session={})
    return (await wire.until("session.updated"))["session"]


@rule("O2")
@pytest.mark.parametrize(
    ("query", "code"), [("?duplex=1&model=m", "input_backpressure"), ("", "rate_limit_exceeded")]
)
async def test_a_full_conversation_takes_items_again_when_some_are_deleted(query: str, code: str) -> None:
    settings = HubSettings(item_bytes=100 * KIB)
    async with serving(settings=settings) as served, Wire.to(served.url + query) as wire:
        await wire.next()
        await wire.raw(json.dumps(item(id="first", content="x" * 60 * KIB)))
        await wire.raw(json.dumps(item(id="second", content="x" * 60 * KIB)))
        error = (await wire.until("error"))["error"]
        assert (error["code"], error["event_id"], error["retryable"]) == (code, "mine", True)
        assert error["param"] == ("item" if query else None)
        await wire.send("conversation.item.delete", item_id="first")
        await wire.until("conversation.item.deleted")
        await wire.raw(json.dumps(item(id="second", content="x" * 60 * KIB)))
        assert (await wire.until("conversation.item.done"))["item"]["id"] == "second"


@pytest.mark.parametrize("character", ["x", '"', "\x01", "é", "😀"])
async def test_messages_about_the_largest_item_stay_below_a_mebibyte(character: str) -> None:
    """WIRE 1.3: server frames stay below 1 MiB. Words are measured with their escapes."""
    largest = character * ((MOST_WORDS - 64) // (len(json.dumps(character, ensure_ascii=False).encode()) - 2))
    async with serving() as served, Wire.to(served.url + "?duplex=1&model=m") as wire:
        await wire.next()
        await wire.raw(json.dumps(item(content=largest)))
        shown = await wire.next()
        assert shown["item"]["content"][0]["text"] == largest
        assert len(json.dumps(shown, ensure_ascii=False).encode()) < 1024 * KIB
        await wire.raw(json.dumps(item(content=largest + character)))
        assert (await wire.until("error"))["error"]["param"] == "item"
