"""Hostile inputs (WIRE 12): every one has its answer, and the next valid event works."""

import base64
import json
from contextlib import suppress
from typing import Any

import anyio
import pytest
from websockets.exceptions import ConnectionClosed

from antiphon.engine.settings import HubSettings

from .serving import Wire, serving
from tests.rules import rule

pytestmark = pytest.mark.anyio

DUPLEX = "?duplex=1&model=m"
GOOD = base64.b64encode(b"\x10\x20" * 1280).decode()


def append(**fields: Any) -> str:
    return json.dumps({"type": "input_audio_buffer.append", "audio": GOOD, **fields})


def update(**session: Any) -> str:
    return json.dumps({"type": "session.update", "session": session})


def event(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, **fields})


Row = tuple[str | bytes, str | None, str | None, str | None]
ROWS: list[Row] = [
    # frame, D code, G/B code, param
    ('{"type":"session.hea', "invalid_json", "invalid_json", None),
    ("[1,2]", "bad_event", "invalid_event", None),
    ('"x"', "bad_event", "invalid_event", None),
    ("null", "bad_event", "invalid_event", None),
    ("12", "bad_event", "invalid_event", None),
    ("{}", "bad_event", "invalid_event", None),
    ('{"type":5}', "bad_event", "invalid_type", "type"),
    (event("session.destroy"), "unknown_event", "invalid_value", "type"),
    (event("__proto__"), "unknown_event", "invalid_value", "type"),
    (event("x" * 1_000_000), "unknown_event", "invalid_value", "type"),
    (event("session.heartbeat", x="a" * 15 * 1024 * 1024), "event_too_large", "event_too_large", None),
    ("[" * 100_000 + "]" * 100_000, "invalid_json", "invalid_json", None),
    ("1" * 1_000_000, "invalid_json", "invalid_json", None),
    (b"\x00\x01", "bad_event", "invalid_event", None),
    (append(audio="@@@"), "bad_audio", "invalid_value", "audio"),
    (append(audio="data:audio/wav;base64," + GOOD), "bad_audio", "invalid_value", "audio"),
    (append(audio=base64.b64encode(b"abc").decode()), "bad_audio", "invalid_value", "audio"),
    (
        append(audio=base64.b64encode(b"\x00\x00\xc0\x7f").decode(), format="pcm_f32le"),
        "bad_audio",
        "invalid_value",
        "audio",
    ),
    (append(audio=5), "bad_event", "invalid_type", "audio"),
    (append(sample_rate_hz=0), "bad_event", "invalid_value", "sample_rate_hz"),
    (append(sample_rate_hz=-1), "bad_event", "invalid_value", "sample_rate_hz"),
    (append(sample_rate_hz=1e308), "bad_event", "invalid_type", "sample_rate_hz"),
    (append(sample_rate_hz=True), "bad_event", "invalid_type", "sample_rate_hz"),
    (append(sample_rate_hz=float("nan")), "bad_event", "invalid_type", "sample_rate_hz"),
    (append(sample_rate_hz="16000"), "bad_event", "invalid_type", "sample_rate_hz"),
    (append(format="mp3"), "unsupported_audio_format", "invalid_value", "format"),
    (append(format={"type": ["pcm"]}), "bad_event", "invalid_type", "format"),
    (update(turn_detection=5), "unsupported_turn_detection", "invalid_value", "session.turn_detection"),
    (
        update(turn_detection={"type": "magic"}),
        "unsupported_turn_detection",
        "invalid_value",
        "session.turn_detection.type",
    ),
    (
        update(turn_detection={"type": "server_vad", "threshold": 2}),
        "unsupported_turn_detection",
        "invalid_value",
        "session.turn_detection.threshold",
    ),
    (
        update(turn_detection={"type": "server_vad", "treshold": 0.5}),
        "unsupported_turn_detection",
        "invalid_value",
        "session.turn_detection.treshold",
    ),
    (
        event("input_audio_buffer.commit"),
        "input_audio_buffer_empty",
        "input_audio_buffer_commit_empty",
        None,
    ),
    *(
        (frame, "invalid_duplex_runtime_config", "invalid_duplex_runtime_config", param)
        for key in ("top_k", "seed")
        for frame, param in (
            (update(extra_body={key: 2**70}), f"session.extra_body.{key}"),
            (update(extra_body={key: -(2**63) - 1}), f"session.extra_body.{key}"),
            (event("response.create", response={"extra_body": {key: 2**63}}), f"response.extra_body.{key}"),
        )
    ),
    (
        event("response.create", response={"voice": "x"}),
        "bad_event",
        "invalid_value",
        "response.audio.output.voice",
    ),
    (event("response.cancel"), "response_not_active", "response_cancel_not_active", None),
    (
        event("response.cancel", response_id="resp_" + "0" * 32),
        "response_not_active",
        "response_cancel_not_active",
        None,
    ),
    (
        event("conversation.item.truncate", item_id="item_x", audio_end_ms=5),
        "item_not_found",
        "item_truncate_invalid_item_id",
        None,
    ),
    (
        event("conversation.item.truncate", item_id="item_x", audio_end_ms=-1),
        "bad_event",
        "invalid_value",
        "audio_end_ms",
    ),
    (event("conversation.item.delete", item_id="x"), "item_not_found", "item_delete_invalid_item_id", None),
    (
        event("conversation.item.retrieve", item_id="x"),
        "item_not_found",
        "item_retrieve_invalid_item_id",
        None,
    ),
    (event("conversation.item.delete"), "missing_item_id", "missing_required_parameter", "item_id"),
    (event("playback.ack", played_ms=-5), "bad_event", "invalid_value", "played_ms"),
    (
        event(
            "conversation.item.create",
            item={"type": "function_call_output", "call_id": "nobody", "output": "1"},
        ),
        "invalid_function_call_output",
        "invalid_function_call_output",
        "item.call_id",
    ),
    (
        event("conversation.item.create", item={"type": "function_call_output", "call_id": "c", "output": {}}),
        "invalid_function_call_output",
        "invalid_function_call_output",
        "item.output",
    ),
    (
        append(video_frames=[base64.b64encode(b"GIF89a" + bytes(20)).decode()]),
        "invalid_video_frames",
        "invalid_video_frames",
        "video_frames[0]",
    ),
    (
        append(video_frames=["file:///etc/passwd"]),
        "invalid_video_frames",
        "invalid_video_frames",
        "video_frames[0]",
    ),
    (
        update(extra_body={"request_id": "x"}),
        "invalid_duplex_runtime_config",
        "invalid_duplex_runtime_config",
        "session.extra_body.request_id",
    ),
    (
        update(ref_audio="http://169.254.169.254/"),
        "unsupported_ref_audio_path",
        "unsupported_ref_audio_path",
        "session.ref_audio",
    ),
    (
        event(
            "conversation.item.create",
            item={"type": "message", "role": "user", "id": "a" * 10_000, "content": []},
        ),
        "bad_event",
        "invalid_value",
        "item.id",
    ),
    (
        event(
            "conversation.item.create",
            item={"type": "message", "role": "user", "content": []},
            previous_item_id="nobody",
        ),
        "item_not_found",
        "invalid_value",
        "previous_item_id",
    ),
    (
        event("response.create", response={"metadata": {"a": {"b": 1}}}),
        "bad_event",
        "invalid_type",
        "response.metadata",
    ),
    (event("input.text.append"), "bad_event", "missing_required_parameter", "text"),
    (event("push_text", text=5), "bad_event", "invalid_type", "text"),
    (event("input_text.append", text=""), "bad_event", "invalid_value", "text"),
    (event("turn.signal"), "bad_event", "missing_required_parameter", "event"),
    (event("turn.signal", event=5), "bad_event", "invalid_type", "event"),
    (event("signal_turn", event=None), "bad_event", "invalid_type", "event"),
    (event("turn.signal", event="applause"), "bad_event", "invalid_value", "event"),
    (event("turn.signal", event="session.close"), "bad_event", "invalid_value", "event"),
    (event("turn.signal", event="session.update"), "bad_event", "missing_required_parameter", "payload"),
    (event("turn.signal", event="session.update", payload=5), "bad_event", "invalid_type", "payload"),
    (event("turn.signal", event="response.cancel", payload=[]), "bad_event", "invalid_type", "payload"),
    (event("turn.signal", event="playback_ack"), "bad_event", "missing_required_parameter", "payload.played_ms"),
    (
        event("turn.signal", event="session.update", payload={"turn_detection": 5}),
        "unsupported_turn_detection",
        "invalid_value",
        "session.turn_detection",
    ),
    (
        event("turn.signal", event="response.cancel"),
        "response_not_active",
        "response_cancel_not_active",
        None,
    ),
]


def name(row: object) -> str | None:
    return str(row)[:40] if isinstance(row, str | bytes) else None


@rule("D4", "O1", "O2")
@pytest.mark.parametrize(("frame", "code", "_spelled", "param"), ROWS, ids=name)
async def test_in_the_duplex_dialect(
    frame: str | bytes, code: str | None, _spelled: str | None, param: str | None
) -> None:
    async with serving() as served, Wire.to(served.url + DUPLEX) as wire:
        await wire.next()
        await wire.raw(frame)
        error = await wire.error()
        assert error["code"] == code
        assert len(error["message"]) < 300
        if code not in ("bad_audio", "item_not_found"):
            assert error["param"] == param
        assert ("server_event_seq" in wire.seen[-1]) == (code not in ("invalid_json", "event_too_large"))
        await wire.send("session.heartbeat")
        assert (await wire.next())["type"] == "session.heartbeat_ack"


@rule("D4", "O1")
@pytest.mark.parametrize(("frame", "_code", "spelled", "param"), ROWS, ids=name)
async def test_in_the_ga_dialect(
    frame: str | bytes, _code: str | None, spelled: str | None, param: str | None
) -> None:
    async with serving() as served, Wire.to(served.url) as wire:
        await wire.next()
        await wire.raw(frame)
        error = await wire.error()
        assert (error["code"], error["param"]) == (spelled, param)
        await wire.send("session.heartbeat")
        assert (await wire.next())["type"] == "session.heartbeat_ack"


async def test_text_that_is_not_utf8_closes_the_connection() -> None:
    async with serving() as served, Wire.to(served.url) as wire:
        await wire.next()
        await wire.socket.send(b'{"type":"\xff"}', text=True)
        assert (await wire.closed())[0] == 1007


@pytest.mark.parametrize(
    ("target", "key"),
    [
        ("//[/v1/realtime", "x3JJHMbDL1EzLkh9GBhXDw=="),
        ("http://[::1/v1/realtime", "x3JJHMbDL1EzLkh9GBhXDw=="),
        ("/v1/realtime", "x3JJHM\xe2DL1EzLkh9GBhXDw=="),
        ("/v1/realtime", "x3JJHMbDL1EzLkh9GBhXDw==\r\nSec-WebSocket-Protocol: r\xe9altime"),
    ],
)
async def test_an_upgrade_that_cannot_be_read_is_refused(target: str, key: str) -> None:
    request = f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    request += f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    async with serving() as served, await anyio.connect_tcp("127.0.0.1", served.server.port) as stream:
        await stream.send(request.encode("latin-1"))
        assert (await stream.receive()).startswith(b"HTTP/1.1 400 ")


async def test_a_frame_over_the_limit_closes_the_connection() -> None:
    async with serving() as served, Wire.to(served.url) as wire:
        await wire.next()
        with suppress(ConnectionClosed):
            await wire.raw("a" * 17 * 1024 * 1024)
        assert (await wire.closed())[0] == 1009


async def test_a_burst_of_responses() -> None:
    async with serving() as served, Wire.to(served.url + DUPLEX) as wire:
        await wire.next()
        await wire.send("session.update", session={"modalities": ["text"]})
        await wire.send(
            "conversation.item.create",
            item={"type": "message", "role": "user", "content": "word " * 200},
        )
        burst = 300
        for index in range(burst):
            await wire.send("response.create", event_id=f"e{index}")
        answers: list[str] = []
        while len(answers) < burst:
            seen = await wire.next()
            if seen["type"] in ("response.created", "error"):
                answers.append(seen["error"]["event_id"] if seen["type"] == "error" else seen["type"])
        errors = [event["error"] for event in wire.seen if event["type"] == "error"]
        assert {error["code"] for error in errors} <= {
            "response_already_active",
            "response_create_without_input",
        }
        refused = [int(error["event_id"][1:]) for error in errors]
        assert refused == sorted(refused)
        assert len(set(refused)) + wire.kinds().count("response.created") == burst


async def test_two_commits_in_a_row() -> None:
    async with serving() as served, Wire.to(served.url + DUPLEX) as wire:
        await wire.next()
        await wire.raw(append())
        await wire.send("input_audio_buffer.commit")
        await wire.send("input_audio_buffer.commit")
        await wire.until("conversation.item.done")
        assert (await wire.error())["code"] == "input_audio_buffer_empty"


async def test_a_commit_of_too_little_keeps_the_buffer() -> None:
    async with serving() as served, Wire.to(served.url) as wire:
        await wire.next()
        await wire.send("session.update", session={"turn_detection": None})
        await wire.until("session.updated")
        half = base64.b64encode(b"\x10\x20" * 1200).decode()  # 50 ms at 24 kHz
        await wire.send("input_audio_buffer.append", audio=half)
        await wire.send("input_audio_buffer.commit")
        assert (await wire.error())["code"] == "input_audio_buffer_commit_empty"
        await wire.send("input_audio_buffer.append", audio=half)
        await wire.send("input_audio_buffer.append", audio=half)
        await wire.send("input_audio_buffer.commit")
        assert (await wire.next())["type"] == "input_audio_buffer.committed"


@rule("E12", "E13")
async def test_a_flood_of_sound_is_refused_piece_by_piece() -> None:
    settings = HubSettings(input_bytes=100_000)
    async with serving(settings=settings) as served, Wire.to(served.url + DUPLEX) as wire:
        await wire.next()
        for _ in range(60):
            await wire.raw(append())
        error = (await wire.until("error"))["error"]
        assert (error["code"], error["retryable"]) == ("input_backpressure", True)
        await wire.send("input_audio_buffer.clear")
        await wire.until("input_audio_buffer.cleared")
        await wire.raw(append())
        await wire.send("session.heartbeat")
        await wire.until("session.heartbeat_ack")
        after = wire.seen[wire.kinds().index("input_audio_buffer.cleared") :]
        assert "error" not in [event["type"] for event in after]


@rule("D15")
async def test_event_acknowledgements_that_cannot_be() -> None:
    async with serving() as served, Wire.to(served.url + DUPLEX) as wire:
        await wire.next()
        for number in (99, -1, True):
            await wire.send("session.event_ack", server_event_seq=number)
            assert (await wire.error())["code"] == "invalid_event_ack"
            assert "server_event_seq" not in wire.seen[-1]
        await wire.send("session.event_ack", server_event_seq=0)
        await wire.send("session.heartbeat")
        assert (await wire.next())["type"] == "session.heartbeat_ack"
    async with serving() as served, Wire.to(served.url) as wire:
        await wire.next()
        await wire.send("session.event_ack", server_event_seq=-1)
        await wire.send("session.heartbeat")
        assert (await wire.next())["type"] == "session.heartbeat_ack"


@rule("D6", "L1")
async def test_a_refused_update_changes_nothing() -> None:
    async with serving() as served, Wire.to(served.url + DUPLEX) as wire:
        await wire.next()
        await wire.raw(update(input_audio_format="g711_ulaw", turn_detection={"type": "magic"}))
        assert (await wire.error())["code"] == "unsupported_turn_detection"
        await wire.raw(append())
        await wire.send("session.update", session={})
        session = (await wire.until("session.updated"))["session"]
        assert session["input_audio_format"] == "pcm16"
        assert session["turn_detection"] is None


@rule("P57")
async def test_one_bad_client_does_not_disturb_another() -> None:
    async with serving() as served, Wire.to(served.url + DUPLEX) as good, Wire.to(served.url) as bad:
        await good.next()
        await bad.next()
        async with anyio.create_task_group() as group:

            async def misbehave() -> None:
                for frame in ("{", "[]", b"\x00", "[" * 100_000, "1" * 1_000_000) * 5:
                    await bad.raw(frame)

            group.start_soon(misbehave)
            for _ in range(20):
                await good.send("session.heartbeat")
                assert (await good.next())["type"] == "session.heartbeat_ack"
