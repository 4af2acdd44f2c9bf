"""The configuration, signals of the turn and words for it, over real sockets (WIRE 2.1, 2.15-2.17, 4, 9)."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from antiphon.sessions.models.base import TurnModel
from antiphon.sessions.plugins import CASCADE, ECHO

from .serving import Wire, serving
from tests.rules import rule
from tests.sessions.world import Remembering

pytestmark = pytest.mark.anyio

DIALECTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ga": ("?model=m", {}),
    "beta": ("?model=m", {"additional_headers": {"OpenAI-Beta": "realtime=v1"}}),
    "duplex": ("?duplex=1&model=m", {}),
}
SOUND = base64.b64encode(b"\x10\x20" * 4800).decode()  # 300 ms at 16 kHz, 200 ms at 24 kHz


REMEMBERING = Remembering(name=ECHO.name, version=ECHO.version, capabilities=ECHO.capabilities)


def able(plugin: TurnModel, **changes: bool) -> TurnModel:
    capabilities = msgspec.structs.replace(plugin.capabilities, **changes)
    return msgspec.structs.replace(plugin, capabilities=capabilities)


@asynccontextmanager
async def talking(dialect: str, plugin: TurnModel = ECHO) -> AsyncIterator[tuple[Wire, dict[str, Any]]]:
    """Open a session; give the wire and `session.created`."""
    query, options = DIALECTS[dialect]
    async with serving(plugin=plugin) as served, Wire.to(served.url + query, **options) as wire:
        created = await wire.next()
        assert created["type"] == "session.created"
        if dialect == "beta":
            assert (await wire.next())["type"] == "conversation.created"
        yield wire, created


# -- session.update ------------------------------------------------------------------------------------------


@rule("L2", "L13")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_update_is_answered_by_the_whole_session(dialect: str) -> None:
    async with talking(dialect) as (wire, created):
        await wire.send("session.update", session={"instructions": "Be brief.", "theme": {"dark": True}})
        updated = await wire.next()
        assert updated["type"] == "session.updated"
        assert updated["session"] == {**created["session"], "instructions": "Be brief.", "theme": {"dark": True}}
        await wire.send("session.update", session=updated["session"])
        assert (await wire.next())["session"] == updated["session"]


@rule("L13", "B7")
async def test_l13_created_updated_and_resumed_are_one_object() -> None:
    async with serving() as served:
        async with Wire.to(served.url + "?duplex=1&autostart=0") as wire:
            await wire.send("session.update", session={"turn_detection": None, "theme": "dark"})
            created = await wire.next()
            updated = await wire.next()
            assert (created["type"], updated["type"]) == ("session.created", "session.updated")
            assert created["session"] == updated["session"]
            assert created["session"]["theme"] == "dark"
        async with Wire.to(served.url + "?duplex=1&autostart=0") as again:
            await again.send(
                "session.resume",
                session_id=created["session"]["id"],
                resume_token=created["resume_token"],
                last_received_server_event_seq=1,
            )
            resumed = await again.next()
            assert resumed["type"] == "session.resumed"
            assert resumed["session"] == created["session"]


CODES: list[tuple[dict[str, Any], str, str, str]] = [
    # patch, D code, G/B code, param
    (
        {"extra_body": {"top_k": "many"}},
        "invalid_duplex_runtime_config",
        "invalid_duplex_runtime_config",
        "session.extra_body.top_k",
    ),
    ({"input_audio_format": "mp3"}, "unsupported_audio_format", "invalid_value", "session.input_audio_format"),
    (
        {"turn_detection": {"type": "x"}},
        "unsupported_turn_detection",
        "invalid_value",
        "session.turn_detection.type",
    ),
    (
        {"turn_detection": None, "overlap_policy": "barge_in_on_speech"},
        "unsupported_turn_detection",
        "invalid_value",
        "session.overlap_policy",
    ),
    ({"model": "other"}, "model_update_unsupported", "invalid_value", "session.model"),
    ({"voice": "nobody"}, "bad_event", "invalid_value", "session.audio.output.voice"),
    ({"speed": "fast"}, "bad_event", "invalid_type", "session.speed"),
    ({"type": "transcription"}, "unsupported", "unsupported", "session.type"),
    (
        {"extra_body": {"request_id": "x", "top_p": 0.5}},
        "invalid_duplex_runtime_config",
        "invalid_duplex_runtime_config",
        "session.extra_body.request_id",
    ),
    (
        {"extra_body": {"ref_audio_path": "/etc/passwd"}},
        "unsupported_ref_audio_path",
        "unsupported_ref_audio_path",
        "session.extra_body.ref_audio_path",
    ),
]


@rule("L1", "L6", "A22", "O1", "Q4.17", "L11")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_refused_update_is_one_error_by_name_and_changes_nothing(dialect: str) -> None:
    async with talking(dialect) as (wire, created):
        other = "commit_all_on_done" if dialect == "duplex" else "ack_only"
        fixed = "playback_policy_update_unsupported"
        at = "session.playback_commit_policy"
        rows = [
            *CODES,
            ({"playback_commit_policy": other}, fixed, fixed, at),
            ({"extra_body": {"playback_commit_policy": other}}, fixed, fixed, at),
        ]
        for number, (patch, code, spelled, param) in enumerate(rows):
            await wire.send("session.update", event_id=f"e{number}", session={"instructions": "x", **patch})
            error = await wire.error()
            assert error["code"] == (code if dialect == "duplex" else spelled)
            assert (error["param"], error["event_id"]) == (param, f"e{number}")
            assert error["type"] == "invalid_request_error"
        await wire.send("session.update", session={})
        assert (await wire.next())["session"] == created["session"]


@rule("L6")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_voice_is_fixed_once_it_was_heard(dialect: str) -> None:
    async with talking(dialect, able(CASCADE)) as (wire, _):
        await wire.send("session.update", session={"turn_detection": None, "voice": "joe"})
        await wire.until("session.updated")
        await wire.send("input_audio_buffer.append", audio=SOUND, is_speech=True)
        await wire.send("input_audio_buffer.commit", create_response=True)
        await wire.until("response.done")
        await wire.until("rate_limits.updated")
        await wire.send("session.update", session={"voice": "default"})
        error = await wire.error()
        expected = "voice_update_after_audio_unsupported" if dialect == "duplex" else "cannot_update_voice"
        assert (error["code"], error["param"]) == (expected, "session.audio.output.voice")
        await wire.send("session.update", session={"voice": "joe"})
        assert (await wire.next())["type"] == "session.updated"


@rule("L8")
async def test_a_model_that_listens_keeps_the_instructions_that_it_has_rendered() -> None:
    async with talking("duplex", REMEMBERING) as (wire, _):
        await wire.send("session.update", session={"extra_body": {"auto_response": True}})
        await wire.until("session.updated")
        await wire.send("input_audio_buffer.append", audio=SOUND, is_speech=True)
        await wire.until("response.output_audio.delta")
        for field, value in (("instructions", "New."), ("tools", [{"type": "function", "name": "f"}])):
            await wire.send("session.update", session={field: value})
            error = (await wire.until("error"))["error"]
            assert (error["code"], error["param"]) == ("instructions_update_unsupported", f"session.{field}")
        await wire.send("session.update", session={"instructions": "", "tools": []})
        await wire.until("session.updated")


@pytest.mark.parametrize("dialect", ["ga", "beta"])
async def test_the_session_object_is_required_outside_the_duplex_dialect(dialect: str) -> None:
    async with talking(dialect) as (wire, _):
        await wire.send("session.update", instructions="x")
        error = await wire.error()
        assert (error["code"], error["param"]) == ("missing_required_parameter", "session")


async def test_in_the_duplex_dialect_the_event_may_be_the_object() -> None:
    async with talking("duplex") as (wire, created):
        await wire.send("session.update", event_id="e", instructions="x", theme="dark")
        expected = {**created["session"], "instructions": "x", "theme": "dark"}
        assert (await wire.next())["session"] == expected


@rule("L10", "E3")
async def test_l10_the_level_of_silence_applies_from_the_next_chunk() -> None:
    async with talking("duplex") as (wire, _):
        for level, silent in ((0.5, True), (0.01, False)):
            await wire.send("session.update", session={"overlap_silence_rms": level})
            await wire.until("session.updated")
            await wire.send("input_audio_buffer.append", audio=SOUND)
            await wire.send("input_audio_buffer.commit")
            assert (await wire.until("input_audio_buffer.committed"))["event"]["empty"] is silent


# -- signals -------------------------------------------------------------------------------------------------


@rule("L14")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_l14_signals_are_answered_with_the_state_of_the_turn(dialect: str) -> None:
    async with talking(dialect) as (wire, created):
        states = {
            "user_started": "user_speaking",
            "user_committed": "user_committed",
            "assistant_started": "assistant_generating",
            "assistant_done": "idle",
        }
        for word, state in states.items():
            await wire.send("turn.signal", event=word, payload={"note": 1})
            answer = await wire.next()
            answer.pop("event_id")
            answer.pop("server_event_seq", None)
            expected = {"session_id": created["session"]["id"], "epoch": 0, "event": word, "turn_state": state}
            assert answer == {"type": "turn.event", **expected}
        await wire.send("turn.signal", event="session.update", payload={"instructions": "x"})
        updated = await wire.next()
        assert (updated["type"], updated["session"]["instructions"]) == ("session.updated", "x")


@rule("L14")
async def test_l14_playback_ack_moves_the_current_cursor() -> None:
    async with talking("duplex") as (wire, _):
        await wire.send("input_audio_buffer.append", audio=SOUND, is_speech=True)
        await wire.send("input_audio_buffer.commit", create_response=True)
        await wire.until("rate_limits.updated")
        await wire.send("turn.signal", event="playback_ack", payload={"played_ms": 120})
        acknowledged = (await wire.until("playback.acknowledged"))["event"]
        assert acknowledged["playback"]["committed_ms"] == 120
        signalled = await wire.next()
        assert (signalled["type"], signalled["turn_state"]) == ("turn.event", "assistant_playing")


@rule("L14", "Q4.16", "M1")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("word", "reason"), [("close", "client_close"), ("timeout", "timeout")])
async def test_l14_close_and_timeout_end_the_session(dialect: str, word: str, reason: str) -> None:
    query, options = DIALECTS[dialect]
    async with serving() as served, Wire.to(served.url + query, **options) as wire:
        await wire.until("session.created")
        await wire.send("turn.signal", event=word)
        assert (await wire.until("turn.event"))["event"] == word
        assert (await wire.until("session.closed"))["reason"] == reason
        assert await wire.closed() == (1000, reason)
        assert served.hub.statistics().admitted == 0


@rule("L15", "N30")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_l15_a_model_that_declares_no_signals_refuses_them_all(dialect: str) -> None:
    async with talking(dialect, able(ECHO, supports_external_turn_signal=False)) as (wire, created):
        assert not created["session"]["capabilities"]["supports_external_turn_signal"]
        for word in ("user_started", "barge_in", "session.update", "close"):
            await wire.send("turn.signal", event=word, event_id="e", payload={})
            error = await wire.error()
            assert (error["code"], error["param"], error["event_id"]) == ("unsupported", "event", "e")
        await wire.send("session.heartbeat")
        assert (await wire.next())["type"] == "session.heartbeat_ack"


@rule("N30")
async def test_what_is_shipped_advertises_signals() -> None:
    async with talking("duplex") as (_, created):
        assert created["session"]["capabilities"]["supports_external_turn_signal"]


# -- words for the turn, barge-in ----------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_wire_2_15_text_alone_is_a_turn(dialect: str) -> None:
    async with talking(dialect) as (wire, _):
        await wire.send("input.text.append", text="Hello ")
        await wire.send("push_text", text="there.")
        await wire.send("input_audio_buffer.commit", create_response=True)
        added = await wire.until("conversation.item.created" if dialect == "beta" else "conversation.item.added")
        assert added["item"]["content"] == [{"type": "input_text", "text": "Hello there."}]
        assert "transcript" not in added["item"]["content"][0]
        await wire.until("response.done")


@rule("E9")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_e9_a_native_model_takes_no_text_into_the_turn(dialect: str) -> None:
    native = msgspec.structs.replace(
        ECHO,
        capabilities=msgspec.structs.replace(ECHO.capabilities, implementation_level="model_native_duplex"),
    )
    async with talking(dialect, native) as (wire, _):
        for name in ("input.text.append", "input_text.append", "push_text"):
            await wire.send(name, text="Hello.", event_id="e")
            error = await wire.error()
            assert (error["code"], error["event_id"]) == ("native_text_append_unsupported", "e")
        await wire.send("session.heartbeat")
        assert (await wire.next())["type"] == "session.heartbeat_ack"


@rule("E10")
@pytest.mark.parametrize("hint", [{"force_barge_in": True}, {"overlap_action": "interrupt"}, {"overlap": "cancel"}])
async def test_e10_an_impossible_barge_in_is_refused_once_and_the_sound_is_taken(hint: dict[str, Any]) -> None:
    async with talking("duplex", able(ECHO, supports_barge_in=False)) as (wire, _):
        await wire.send("input_audio_buffer.append", audio=SOUND, is_speech=True, event_id="e", **hint)
        assert (await wire.error())["code"] == "barge_in_unsupported"
        assert wire.seen[-1]["error"]["event_id"] == "e"
        await wire.send("input_audio_buffer.commit", create_response=True)
        await wire.until("response.done")
        assert wire.kinds().count("error") == 1


@rule("G33", "E10")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_wire_2_16_without_the_capability_a_barge_in_changes_nothing(dialect: str) -> None:
    async with talking(dialect, able(ECHO, supports_barge_in=False)) as (wire, _):
        await wire.send("input.text.append", text="Hello.")
        await wire.send("barge_in", event_id="e")
        assert (await wire.error())["code"] == "barge_in_unsupported"
        await wire.send("input_audio_buffer.commit", create_response=True)
        await wire.until("response.done")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_wire_2_16_a_barge_in_is_always_answered(dialect: str) -> None:
    async with talking(dialect) as (wire, _):
        await wire.send("barge_in")
        assert (await wire.next())["type"] == "input_audio_buffer.cleared"
        await wire.send("turn.signal", event="barge_in")
        assert (await wire.next())["type"] == "input_audio_buffer.cleared"
        await wire.send("input_audio_buffer.append", audio=SOUND, is_speech=True)
        await wire.send("input_audio_buffer.commit", create_response=True)
        await wire.until("rate_limits.updated")
        await wire.send("barge_in")
        assert (await wire.next())["type"] == "output_audio_buffer.cleared"


@rule("O2")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_o2_an_unknown_event_harms_nothing(dialect: str) -> None:
    async with talking(dialect) as (wire, _):
        for name in ("push_chunk", "input.audio.append", "transcription_session.update", "session.destroy"):
            await wire.raw(json.dumps({"type": name, "event_id": "e"}))
            error = await wire.error()
            expected = "unknown_event" if dialect == "duplex" else "invalid_value"
            assert (error["code"], error["param"], error["event_id"]) == (expected, "type", "e")
        await wire.send("session.heartbeat")
        assert (await wire.next())["type"] == "session.heartbeat_ack"
