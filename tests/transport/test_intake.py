"""Messages that come in one burst behind an update are read as the update leaves things (WIRE 0.1, 4.8)."""

import base64
import json
from typing import Any

import pytest

from antiphon.engine.settings import HubSettings
from antiphon.events.commands import AppendAudio

from .serving import Serving, Wire, serving
from tests.engine.worlds import MoodyLog
from tests.rules import rule

pytestmark = pytest.mark.anyio

DIALECTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ga": ("?model=m", {}),
    "beta": ("?model=m", {"additional_headers": {"OpenAI-Beta": "realtime=v1"}}),
    "duplex": ("?duplex=1&model=m", {}),
}
TOOLS = [{"type": "function", "name": "f", "parameters": {}}]
CHOICE = {"type": "function", "name": "f"}
QUIET = {"type": "server_vad", "interrupt_response": False}


def update(**session: Any) -> dict[str, Any]:
    return {"type": "session.update", "session": session}


def append(sound: bytes = b"\x10\x20" * 800, **fields: Any) -> dict[str, Any]:
    return {"type": "input_audio_buffer.append", "audio": base64.b64encode(sound).decode(), **fields}


async def burst(wire: Wire, *events: dict[str, Any]) -> None:
    """Send events so that they arrive in one go; a heartbeat ends them."""
    frames = [json.dumps(event).encode() for event in (*events, {"type": "session.heartbeat"})]
    protocol = wire.socket.protocol
    for frame in frames:
        protocol.send_text(frame)
    wire.socket.transport.write(b"".join(protocol.data_to_send()))


async def answers(wire: Wire) -> list[dict[str, Any]]:
    """Return what came until the heartbeat was answered."""
    begin = len(wire.seen)
    await wire.until("session.heartbeat_ack")
    return wire.seen[begin:-1]


async def appended(served: Serving) -> list[int]:
    """Return the sizes of the appends of the one session, as the model hears them."""
    (row,) = await served.log.sessions()
    recorded = await served.log.read(row.session, 0, 1000)
    return [entry.command.size for entry in recorded if isinstance(entry.command, AppendAudio)]


BURSTS: list[tuple[list[dict[str, Any]], list[str | None]]] = [
    # what is sent in one go; for each update whether it is granted (None) or by which parameter it is refused
    ([update(tools=TOOLS), update(tool_choice=CHOICE)], [None, None]),
    ([update(tool_choice=CHOICE), update(tools=TOOLS)], ["session.tool_choice.name", None]),
    ([update(tools=TOOLS), update(tools=[]), update(tool_choice=CHOICE)], [None, None, "session.tool_choice.name"]),
    ([update(turn_detection=QUIET), update(overlap_policy="listen_only")], [None, None]),
    ([update(turn_detection=QUIET), update(overlap_policy="barge_in_on_speech")], [None, "session.overlap_policy"]),
    ([update(turn_detection=QUIET), update(turn_detection={"threshold": 0.4})], [None, None]),
    ([update(input_audio_format="g711_ulaw"), update(sample_rate_hz=16_000)], [None, "session.sample_rate_hz"]),
    ([update(tracing="auto"), update(tracing=None)], [None, "session.tracing"]),
    ([update(speed=9), update(speed=1.5)], ["session.speed", None]),
]


@rule("L1", "L2")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("events", "expected"), BURSTS, ids=range(len(BURSTS)))
async def test_updates_are_read_as_the_ones_before_leave_things(
    dialect: str, events: list[dict[str, Any]], expected: list[str | None]
) -> None:
    query, options = DIALECTS[dialect]
    async with serving() as served, Wire.to(served.url + query, **options) as wire:
        await wire.until("session.created" if dialect != "beta" else "conversation.created")
        await burst(wire, *events)
        told = await answers(wire)
        assert [event["error"]["param"] if event["type"] == "error" else None for event in told] == expected


@rule("L2")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_rate_behind_a_format_keeps_the_new_format(dialect: str) -> None:
    query, options = DIALECTS[dialect]
    async with serving() as served, Wire.to(served.url + query, **options) as wire:
        await burst(wire, update(input_audio_format="pcm_f32le"), update(sample_rate_hz=8000))
        shown = [
            event["session"]["audio"]["input"]["format"] for event in await answers(wire) if "session" in event
        ]
        assert shown[-1] == {"type": "audio/pcm_f32le", "rate": 8000}


@rule("L2")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_sound_behind_a_format_is_read_in_it(dialect: str) -> None:
    query, options = DIALECTS[dialect]
    async with serving() as served, Wire.to(served.url + query, **options) as wire:
        sound = bytes(800)  # 100 ms of G.711 are 1600 samples at 16 kHz
        await burst(
            wire,
            update(turn_detection=None, input_audio_format="g711_ulaw"),
            append(sound),
            append(sound, sample_rate_hz=8000),
            append(sound, format="g711_alaw"),
            {"type": "input_audio_buffer.commit"},
        )
        assert "error" not in [event["type"] for event in await answers(wire)]
        assert sum(await appended(served)) == 3 * 3200


@rule("L2", "L9")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_response_behind_an_update_may_use_its_tools(dialect: str) -> None:
    query, options = DIALECTS[dialect]
    async with serving() as served, Wire.to(served.url + query, **options) as wire:
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}
        await burst(
            wire,
            {"type": "conversation.item.create", "item": item},
            update(tools=TOOLS),
            {"type": "response.create", "response": {"tool_choice": CHOICE}},
        )
        assert "error" not in [event["type"] for event in await answers(wire)]


async def test_refusals_keep_the_order_of_what_is_refused() -> None:
    async with serving() as served, Wire.to(served.url + DIALECTS["ga"][0]) as wire:
        await wire.next()
        await burst(
            wire,
            {**update(tools=TOOLS), "event_id": "1"},
            {**append(format="mp3"), "event_id": "2"},
            {"type": "nothing", "event_id": "3"},
            {**update(tool_choice={"type": "function", "name": "g"}), "event_id": "4"},
            {"type": "conversation.item.delete", "item_id": "item_x", "event_id": "5"},
        )
        told = await answers(wire)
        assert [event["error"]["event_id"] if event["type"] == "error" else "1" for event in told] == list("12345")


async def test_what_waits_for_an_update_counts_against_the_credit() -> None:
    log = MoodyLog()
    settings = HubSettings(input_bytes=18_000)
    async with serving(log=log, settings=settings) as served, Wire.to(served.url + DIALECTS["duplex"][0]) as wire:
        await wire.next()
        log.holding = True
        for _ in range(400):  # more than are decided before the store has answered
            await wire.send("session.heartbeat")
        for _ in range(20):
            await wire.raw(json.dumps(update(instructions="x" * 1000)))
        await (await wire.socket.ping())
        log.release()
        await wire.send("conversation.item.delete", item_id="last")
        refused: list[str] = []
        while (event := await wire.next()).get("error", {}).get("code") != "item_not_found":
            refused += [event["error"]["code"]] if event["type"] == "error" else []
        assert refused
        assert set(refused) == {"input_backpressure"}
        assert wire.kinds().count("session.updated") + len(refused) == 20
