"""The idle prompt as clients see it, over real sockets (WIRE 3.2, 4.4, 6.3)."""

import base64

import anyio
import pytest

from antiphon.engine.clock import VirtualClock

from .serving import Wire, serving

pytestmark = pytest.mark.anyio

SILENCE = base64.b64encode(bytes(2 * 4800)).decode()
"""200 ms at 24 kHz."""
QUERIES = {"ga": "", "beta": "", "duplex": "?duplex=1&model=m"}
HEADERS = {"beta": {"OpenAI-Beta": "realtime=v1"}}
PROMPTED = {
    "ga": ["conversation.item.added", "conversation.item.done"],
    "beta": ["conversation.item.created"],
    "duplex": ["conversation.item.added", "conversation.item.created", "conversation.item.done"],
}


@pytest.mark.parametrize("dialect", ["ga", "beta", "duplex"])
@pytest.mark.parametrize("heard", [True, False], ids=["sound", "muted"])
async def test_a_silent_user_is_prompted_in_every_dialect(dialect: str, heard: bool) -> None:
    clock = VirtualClock()
    options = {"additional_headers": HEADERS.get(dialect)}
    async with serving(clock=clock) as served, Wire.to(served.url + QUERIES[dialect], **options) as wire:
        await wire.next()
        detection = {"type": "server_vad", "idle_timeout_ms": 5_000}
        session = {"output_modalities": ["text"], "turn_detection": detection, "sample_rate_hz": 24_000}
        await wire.send("session.update", session=session)
        shown = (await wire.until("session.updated"))["session"]
        assert shown["audio"]["input"]["turn_detection"]["idle_timeout_ms"] == 5_000
        await wire.send("conversation.item.create", item={"type": "message", "role": "user", "content": "Hello?"})
        await wire.send("response.create")
        await wire.until("response.done")
        await wire.until("rate_limits.updated")
        for _ in range(20 if heard else 0):
            await wire.send("input_audio_buffer.append", audio=SILENCE)
        await wire.send("session.heartbeat")
        await wire.until("session.heartbeat_ack")
        clock.advance(4_999_000)
        await wire.send("session.heartbeat")
        await wire.until("session.heartbeat_ack")
        seen = len(wire.seen)
        clock.advance(1_000)
        await wire.until("response.created")
        kinds = [message["type"] for message in wire.seen[seen:]]
        timeout, committed = "input_audio_buffer.timeout_triggered", "input_audio_buffer.committed"
        assert kinds == [timeout, committed, *PROMPTED[dialect], "response.created"]
        told, sealed, item = wire.seen[seen : seen + 3]
        assert told["item_id"] == sealed["item_id"] == item["item"]["id"]
        assert item["item"]["content"][0]["type"] == "input_audio"
        assert told["audio_end_ms"] - told["audio_start_ms"] in (range(3_900, 4_001) if heard else (0,))
        assert ("event" in sealed) == (dialect == "duplex")
        await wire.until("response.done")
        clock.advance(10_000_000)
        await anyio.wait_all_tasks_blocked()
        await wire.send("session.heartbeat")
        await wire.until("session.heartbeat_ack")
        assert wire.kinds().count(timeout) == 1, "once, until the user does something"
