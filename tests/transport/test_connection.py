"""How a connection begins, is resumed, is replaced and ends, over real sockets (WIRE 1.4, 1.9, 8)."""

import base64
from typing import Any

import anyio
import pytest

from antiphon.engine.clock import VirtualClock
from antiphon.engine.settings import HubSettings
from antiphon.sessions.plugins import ECHO

from .serving import Wire, becomes, serving
from tests.rules import rule

pytestmark = pytest.mark.anyio

SOUND = base64.b64encode(b"\x10\x20" * 1280).decode()  # 80 ms at 16 kHz
DUPLEX = "?duplex=1&model=m&autostart=0"


async def opened(wire: Wire, **session: Any) -> dict[str, Any]:
    """Open a duplex session by `session.update`; return `session.created`."""
    await wire.send("session.update", session={"turn_detection": None, **session})
    created = await wire.next()
    assert created["type"] == "session.created", created
    assert (await wire.next())["type"] == "session.updated"
    return created


async def resume(wire: Wire, created: dict[str, Any], last: int, token: str | None = None) -> None:
    await wire.send(
        "session.resume",
        session_id=created["session"]["id"],
        resume_token=token or created["resume_token"],
        last_received_server_event_seq=last,
    )


# -- the opening table ---------------------------------------------------------------------------------------


@rule("D1")
@pytest.mark.parametrize("query", ["", "?duplex=0", "?duplex=", "?duplex=maybe", "?model=m"])
async def test_ga_opens_without_waiting(query: str) -> None:
    async with serving() as served, Wire.to(served.url + query) as wire:
        created = await wire.next()
        assert created["type"] == "session.created"
        assert created["session"]["id"].startswith("sess_")
        assert created["session"]["turn_detection"]["type"] == "server_vad"
        assert "resume_token" not in created
        assert not created["session"]["capabilities"]["supports_session_resume"]


async def test_beta_also_has_a_conversation() -> None:
    async with (
        serving() as served,
        Wire.to(served.url, additional_headers={"OpenAI-Beta": "realtime=v1"}) as wire,
    ):
        assert (await wire.next())["type"] == "session.created"
        assert (await wire.next())["type"] == "conversation.created"


async def test_beta_by_subprotocol_and_only_realtime_is_answered() -> None:
    offered = ["realtime", "openai-insecure-api-key.k", "openai-beta.realtime-v1"]
    async with serving() as served, Wire.to(served.url, subprotocols=offered) as wire:
        assert wire.socket.subprotocol == "realtime"
        await wire.next()
        assert (await wire.next())["type"] == "conversation.created"
    async with serving() as served, Wire.to(served.url, subprotocols=["other"]) as wire:
        assert wire.socket.subprotocol is None


@rule("D1")
@pytest.mark.parametrize("query", ["?duplex=1&model=m", "?duplex=TRUE&model=m"])
async def test_duplex_with_a_model_opens_at_once(query: str) -> None:
    async with serving() as served, Wire.to(served.url + query) as wire:
        created = await wire.next()
        assert created["session"]["id"].startswith("duplex-")
        assert created["attachment_generation"] == 1
        assert len(created["resume_token"]) == 43
        assert "server_event_seq" not in created
        assert created["session"]["turn_detection"] is None


@rule("D1", "D2")
@pytest.mark.parametrize("query", ["?duplex=1", DUPLEX, "?resume=1&model=m"])
async def test_duplex_waits_for_the_first_message(query: str) -> None:
    async with serving() as served, Wire.to(served.url + query) as wire:
        created = await opened(wire, instructions="be kind")
        assert created["session"]["instructions"] == "be kind"
        assert wire.numbers() == [1]


async def test_the_other_path_is_duplex_too() -> None:
    async with serving() as served:
        url = served.url.replace("/v1/realtime", "/v1/duplex") + "?model=m"
        async with Wire.to(url) as wire:
            assert (await wire.next())["session"]["id"].startswith("duplex-")


@rule("D1")
async def test_the_event_itself_may_be_the_session_object() -> None:
    async with serving() as served, Wire.to(served.url + DUPLEX) as wire:
        await wire.send("session.update", instructions="flat")
        assert (await wire.next())["session"]["instructions"] == "flat"


@rule("D1")
async def test_any_other_first_message_is_carried_out_in_a_default_session() -> None:
    async with serving() as served, Wire.to(served.url + DUPLEX) as wire:
        await wire.send("session.heartbeat")
        assert (await wire.next())["type"] == "session.created"
        assert (await wire.next())["type"] == "session.heartbeat_ack"
    async with serving() as served, Wire.to(served.url + DUPLEX) as wire:
        await wire.send("no.such.event")
        assert (await wire.next())["type"] == "session.created"
        assert (await wire.error())["code"] == "unknown_event"


FIRST: list[tuple[str | bytes, str]] = [
    ("{", "invalid_json"),
    ("[]", "bad_event"),
    (b"binary", "bad_event"),
    ('{"type":"session.heartbeat","x":"' + "a" * 15 * 1024 * 1024 + '"}', "event_too_large"),
    ('{"type":"session.update","session":{"speed":9}}', "bad_event"),
    ('{"type":"session.update","session":{"input_audio_format":"mp3"}}', "unsupported_audio_format"),
    ('{"type":"session.update","session":{"overlap_policy":"barge_in_on_speech"}}', "unsupported_turn_detection"),
    ('{"type":"session.resume","session_id":5}', "invalid_session_resume"),
    (
        '{"type":"session.resume","session_id":"x","resume_token":"y","last_received_server_event_seq":-1}',
        "invalid_session_resume",
    ),
    ('{"type":"session.resume","session_id":"duplex-0","resume_token":"y"}', "session_resume_expired"),
]


@rule("D1")
@pytest.mark.parametrize(("frame", "code"), FIRST, ids=[code for _, code in FIRST])
async def test_first_messages_after_which_no_session_opens(frame: str | bytes, code: str) -> None:
    async with serving() as served, Wire.to(served.url + DUPLEX) as wire:
        await wire.raw(frame)
        assert (await wire.error())["code"] == code
        assert await wire.closed() == (1008, code)
        assert served.hub.statistics().admitted == 0


@rule("D1")
async def test_nothing_in_time() -> None:
    clock = VirtualClock()
    async with serving(clock=clock) as served, Wire.to(served.url + DUPLEX) as wire:
        await anyio.wait_all_tasks_blocked()
        clock.advance(9_999_000)
        await anyio.wait_all_tasks_blocked()
        clock.advance(2_000)
        assert (await wire.error())["code"] == "config_timeout"
        assert (await wire.closed())[0] == 1008


@rule("B2", "B22")
async def test_no_slot_is_free() -> None:
    settings = HubSettings(max_sessions=1)
    async with serving(settings=settings) as served, Wire.to(served.url) as first:
        await first.next()
        async with Wire.to(served.url + DUPLEX) as second:
            await second.send("session.update", session={})
            error = await second.error()
            assert (error["code"], error["type"], error["retryable"]) == (
                "resource_exhausted",
                "rate_limit_error",
                True,
            )
            assert (await second.closed())[0] == 1013
        async with Wire.to(served.url) as third:
            assert (await third.error())["code"] == "rate_limit_exceeded"
            assert (await third.closed())[0] == 1013


@rule("M1", "M18")
async def test_a_close_ends_with_the_clients_word_and_a_shutdown_by_word_is_none() -> None:
    async with serving() as served:
        for word, reason in ((None, "client_close"), ("bye", "bye"), ("shutdown", "shutdown")):
            async with Wire.to(served.url + DUPLEX) as wire:
                await wire.send("session.update", session={})
                await wire.until("session.updated")
                await wire.send("session.close", **({} if word is None else {"reason": word}))
                closed = await wire.until("session.closed")
                assert (closed["reason"], closed["event"]["reason"]) == (reason, "client_close")
                assert await wire.closed() == (1000, reason)


@rule("M4")
async def test_one_slot_serves_one_session_after_the_other() -> None:
    async with serving(settings=HubSettings(max_sessions=1)) as served:
        for _ in range(20):
            async with Wire.to(served.url + DUPLEX) as wire:
                await opened(wire)
                await wire.send("session.close")
                assert await wire.closed() == (1000, "client_close")


async def test_an_unknown_model() -> None:
    settings = HubSettings(wildcard=False)
    async with serving(settings=settings) as served, Wire.to(served.url + "?model=../../x") as wire:
        error = await wire.error()
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        assert (await wire.closed())[0] == 1008


@rule("A1")
async def test_an_id_that_a_client_sends_along_names_nothing() -> None:
    async with serving() as served, Wire.to(served.url + DUPLEX) as first, Wire.to(served.url + DUPLEX) as second:
        mine = (await opened(first, id="duplex-mine", session_id="duplex-mine"))["session"]["id"]
        assert mine != "duplex-mine"
        other = (await opened(second, id=mine))["session"]["id"]
        assert other != mine
        await first.send("session.update", session={"id": other, "instructions": "x"})
        assert (await first.until("session.updated"))["session"]["id"] == mine


# -- the end -------------------------------------------------------------------------------------------------


@rule("D9", "M3")
async def test_closing_tells_why_and_ends_a_running_answer() -> None:
    async with serving() as served, Wire.to(served.url + DUPLEX) as wire:
        await opened(wire)
        await wire.send("input_audio_buffer.append", audio=SOUND)
        await wire.send("input_audio_buffer.commit", create_response=True)
        await wire.send("session.close", reason="enough")
        assert await wire.closed() == (1000, "enough")
        kinds = wire.kinds()
        assert kinds[-1] == "session.closed"
        assert kinds.count("response.created") == kinds.count("response.done")


@rule("D8")
async def test_a_lost_ga_socket_ends_its_session() -> None:
    async with serving() as served:
        async with Wire.to(served.url) as wire:
            await wire.next()
            assert served.hub.statistics().admitted == 1
            wire.socket.transport.abort()
        await becomes(lambda: not served.hub.statistics().admitted)


@rule("C17")
async def test_an_idle_socket_is_dropped_and_its_session_kept() -> None:
    clock = VirtualClock()
    async with serving(clock=clock) as served:
        async with Wire.to(served.url + DUPLEX) as wire:
            created = await opened(wire, idle_timeout_s=30)
            await wire.send("session.heartbeat")
            await wire.until("session.heartbeat_ack")
            clock.advance(25_000_000)
            await (await wire.socket.ping())  # the server's own ping is answered before time goes on
            clock.advance(10_000_000)
            assert (await wire.closed()) == (1000, "idle_timeout")
        async with Wire.to(served.url + DUPLEX) as wire:
            await resume(wire, created, wire.numbers()[-1] if wire.numbers() else 0)
            assert (await wire.next())["type"] == "session.resumed"


@rule("C17")
async def test_a_socket_that_answers_no_ping_is_dropped() -> None:
    clock = VirtualClock()
    async with serving(clock=clock) as served, Wire.to(served.url) as wire:
        await wire.next()
        wire.socket.transport.pause_reading()  # the client hears nothing, so it answers nothing
        clock.advance(20_000_000)
        clock.advance(20_000_000)
        await becomes(lambda: not served.hub.statistics().admitted)
        wire.socket.transport.abort()


@rule("M15")
async def test_a_server_that_stops_keeps_what_can_be_resumed() -> None:
    async with serving() as served, Wire.to(served.url + DUPLEX) as duplex, Wire.to(served.url) as ga:
        await opened(duplex)
        await ga.next()
        served.server.stop()
        going = await duplex.next()
        assert going["type"] == "session.going_away"
        assert going["resume_within_s"] >= 120
        assert await duplex.closed() == (1001, "shutdown")
        assert await ga.closed() == (1001, "shutdown")


# -- resume --------------------------------------------------------------------------------------------------


async def spoken(wire: Wire) -> None:
    """Say something and ask for the answer."""
    for _ in range(5):
        await wire.send("input_audio_buffer.append", audio=SOUND)
    await wire.send("input_audio_buffer.commit", create_response=True)


def sounds(events: list[dict[str, Any]]) -> bytes:
    """Return the sound of all deltas, ordered by their numbers."""
    deltas = {
        event["server_event_seq"]: base64.b64decode(event["delta"])
        for event in events
        if event["type"] == "response.output_audio.delta"
    }
    return b"".join(deltas[number] for number in sorted(deltas))


@rule("D10", "D12", "D34", "P49")
async def test_a_cut_socket_misses_nothing_and_hears_nothing_twice() -> None:
    async with serving() as served:
        async with Wire.to(served.url + DUPLEX) as whole:
            await opened(whole)
            await spoken(whole)
            await whole.until("rate_limits.updated")
        async with Wire.to(served.url + DUPLEX) as first:
            created = await opened(first)
            await spoken(first)
            await first.until("response.output_audio.delta")
            first.socket.transport.abort()
        async with Wire.to(served.url + DUPLEX) as second:
            await resume(second, created, first.numbers()[-1])
            resumed = await second.next()
            assert resumed["type"] == "session.resumed"
            assert resumed["attachment_generation"] == 2
            assert resumed["session"]["capabilities"]["supports_session_resume"]
            assert resumed["resume_token"] != created["resume_token"]
            assert "server_event_seq" not in resumed
            await second.until("rate_limits.updated")
        numbers = first.numbers() + second.numbers()
        assert numbers == list(range(1, len(numbers) + 1))
        assert sounds(first.seen + second.seen) == sounds(whole.seen)


@rule("D19", "D23")
async def test_a_replay_is_what_was_sent() -> None:
    async with serving() as served:
        async with Wire.to(served.url + DUPLEX) as first:
            created = await opened(first)
            await spoken(first)
            await first.until("rate_limits.updated")
            first.socket.transport.abort()
        async with Wire.to(served.url + DUPLEX) as second:
            await resume(second, created, 0)
            await second.next()
            await second.until("rate_limits.updated")
        numbered = [event for event in first.seen if "server_event_seq" in event]
        assert second.seen[1:] == numbered


@rule("D5")
async def test_the_formats_of_a_session_hold_for_its_next_connection() -> None:
    async with serving() as served:
        async with Wire.to(served.url + DUPLEX) as first:
            created = await opened(first, input_audio_format="g711_ulaw", output_audio_format="g711_ulaw")
            first.socket.transport.abort()
        async with Wire.to(served.url + DUPLEX) as second:
            await resume(second, created, 1)
            assert (await second.next())["session"]["input_audio_format"] == "g711_ulaw"
            odd = base64.b64encode(b"\x80" * 801).decode()  # whole samples of G.711, not of pcm16
            await second.send("input_audio_buffer.append", audio=odd)
            await second.send("input_audio_buffer.commit", create_response=True)
            delta = await second.until("response.output_audio.delta")
            assert (delta["format"], delta["sample_rate_hz"]) == ("g711_ulaw", 8_000)
            assert "error" not in second.kinds()


@rule("D18", "D24", "P43")
async def test_a_newer_connection_replaces_the_older() -> None:
    async with serving() as served, Wire.to(served.url + DUPLEX) as first:
        created = await opened(first)
        async with Wire.to(served.url + DUPLEX) as second:
            await resume(second, created, 1)
            assert (await second.next())["type"] == "session.resumed"
            replaced = await first.next()
            assert replaced["type"] == "session.replaced"
            assert replaced["attachment_generation"] == 2
            assert "server_event_seq" not in replaced
            assert await first.closed() == (1000, "session_replaced")
            await second.send("session.heartbeat")
            assert (await second.next())["type"] == "session.heartbeat_ack"


@rule("D33.9")
async def test_a_token_is_good_once() -> None:
    async with serving() as served:
        async with Wire.to(served.url + DUPLEX) as first:
            created = await opened(first)
            first.socket.transport.abort()
        async with Wire.to(served.url + DUPLEX) as second:
            await resume(second, created, 1)
            resumed = await second.next()
            await second.send("session.heartbeat")
            await second.until("session.heartbeat_ack")
            async with Wire.to(served.url + DUPLEX) as third:
                await resume(third, created, 1)
                assert (await third.error())["code"] == "invalid_resume_token"
                assert (await third.closed())[0] == 1008
            await second.send("session.heartbeat")
            await second.until("session.heartbeat_ack")
        async with Wire.to(served.url + DUPLEX) as fourth:
            await resume(fourth, created, 1, resumed["resume_token"])
            assert (await fourth.next())["attachment_generation"] == 3


REFUSED_RESUMES: list[tuple[dict[str, Any], str]] = [
    ({"resume_token": "A" * 43}, "invalid_resume_token"),
    ({"last_received_server_event_seq": 10**18}, "session_resume_conflict"),
    ({"last_received_server_event_seq": "7"}, "invalid_session_resume"),
    ({"session_id": "duplex-nobody"}, "session_resume_expired"),
]


@rule("D22", "D27")
@pytest.mark.parametrize(("change", "code"), REFUSED_RESUMES)
async def test_a_refused_resume_disturbs_nobody(change: dict[str, Any], code: str) -> None:
    async with serving() as served, Wire.to(served.url + DUPLEX) as attached:
        created = await opened(attached)
        async with Wire.to(served.url + DUPLEX) as other:
            asked = {
                "session_id": created["session"]["id"],
                "resume_token": created["resume_token"],
                "last_received_server_event_seq": 1,
                **change,
            }
            await other.send("session.resume", **asked)
            assert (await other.error())["code"] == code
            assert (await other.closed())[0] == 1008
        await attached.send("session.heartbeat")
        assert (await attached.next())["type"] == "session.heartbeat_ack"


@rule("D22")
async def test_a_ga_session_cannot_be_resumed() -> None:
    """WIRE 12.16: the id of a GA session is answered as one that nobody knows, word for word."""
    async with serving() as served, Wire.to(served.url) as ga:
        created = await ga.next()
        async with Wire.to(served.url + DUPLEX) as other:
            await resume(other, {"session": created["session"], "resume_token": "t" * 43}, 0)
            theirs = await other.error()
            assert (await other.closed())[0] == 1008
        async with Wire.to(served.url + DUPLEX) as other:
            await resume(other, {"session": {"id": "sess_nobody"}, "resume_token": "t" * 43}, 0)
            assert theirs == await other.error()
        assert theirs["code"] == "session_resume_expired"
        await ga.send("session.heartbeat")
        assert (await ga.next())["type"] == "session.heartbeat_ack"


@rule("D15", "D16")
async def test_acknowledged_events_are_not_replayed() -> None:
    async with serving() as served:
        async with Wire.to(served.url + DUPLEX) as first:
            created = await opened(first)
            await spoken(first)
            await first.until("rate_limits.updated")
            await first.send("session.event_ack", server_event_seq=5)
            await first.send("session.heartbeat")
            await first.until("session.heartbeat_ack")
            first.socket.transport.abort()
        async with Wire.to(served.url + DUPLEX) as second:
            await resume(second, created, 2)
            resync = await second.next()
            assert (resync["type"], resync["reason"]) == ("session.resync_required", "journal_gap")
            assert (await second.closed())[0] == 1000


async def test_sessions_that_cannot_resume_have_no_numbers() -> None:
    from msgspec.structs import replace

    plugin = replace(ECHO, capabilities=replace(ECHO.capabilities, supports_session_resume=False))
    async with serving(plugin=plugin) as served, Wire.to(served.url + DUPLEX) as wire:
        created = await opened(wire)
        assert "resume_token" not in created
        assert wire.numbers() == []


@rule("D3")
async def test_resume_on_an_open_connection_is_refused() -> None:
    async with serving() as served, Wire.to(served.url + "?duplex=1&model=m") as wire:
        created = await wire.next()
        await resume(wire, created, 0)
        assert (await wire.error())["code"] == "unsupported_session_resume"
        for wrong in ({}, {"session_id": 5, "resume_token": "t"}, {"session_id": "x", "resume_token": ""}):
            await wire.send("session.resume", event_id="late", **wrong)
            error = await wire.error()
            assert (error["code"], error["event_id"]) == ("unsupported_session_resume", "late")
        await wire.send("session.heartbeat")
        assert (await wire.next())["type"] == "session.heartbeat_ack"
