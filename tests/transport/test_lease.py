"""Lease, takeover and replay as a client sees them: BEHAVIOURS B22-B25, C15-C17, D2-D24 over real sockets."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from antiphon.engine.clock import VirtualClock
from antiphon.engine.memory_log import MemoryLog
from antiphon.engine.settings import HubSettings
from antiphon.transport.access import Access
from antiphon.transport.client_link import address
from antiphon.transport.server import Listening, Server

from .held import HeldStage
from .serving import Serving, Wire, becomes, served_by, serving
from tests.engine.worlds import MoodyLog
from tests.rules import rule

pytestmark = pytest.mark.anyio

NOW = "?duplex=1&model=m"
LATER = "?duplex=1"


async def resume(wire: Wire, created: dict[str, Any], last: int = 0) -> dict[str, Any]:
    """Resume the session of another wire; return the first answer."""
    await wire.send(
        "session.resume",
        session_id=created["session"]["id"],
        resume_token=created["resume_token"],
        last_received_server_event_seq=last,
    )
    return await wire.next()


async def beat(wire: Wire) -> None:
    """See that the connection serves its session."""
    await wire.send("session.heartbeat")
    await wire.until("session.heartbeat_ack")


def lease(served: Serving, created: dict[str, Any]) -> tuple[int, bool]:
    """The lease generation, and whether anybody serves the session."""
    found = served.hub.session(created["session"]["id"])
    assert found is not None
    return found.lease.generation, found.lease.attached


@asynccontextmanager
async def paused(wire: Wire) -> AsyncIterator[None]:
    """A client that reads nothing, so that its server's sends wait."""
    wire.socket.transport.pause_reading()
    yield
    wire.socket.transport.resume_reading()


async def fill(served: Serving, wire: Wire, created: dict[str, Any]) -> None:
    """Let the session say more than a socket takes unread."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}
    await wire.send("conversation.item.create", item=item)
    await wire.send("response.create")
    name = created["session"]["id"]
    await becomes(lambda: (found := served.hub.session(name)) is not None and found.output.position >= 2000 * 3840)


# -- opening: D1, D2, D18 ------------------------------------------------------------------------------------


@rule("D1")
@pytest.mark.parametrize(("frame", "code"), [("{", "invalid_json"), ("[]", "bad_event"), (None, "config_timeout")])
async def test_three_faults_of_a_first_message_make_no_session(frame: str | None, code: str) -> None:
    clock, log = VirtualClock(), MemoryLog()
    async with serving(clock=clock, log=log) as served, Wire.to(served.url + LATER) as wire:
        if frame is None:
            await becomes(lambda: clock.next_us is not None and len(served.server.websockets) == 1)
            await anyio.wait_all_tasks_blocked()
            clock.advance(10_000_000)
        else:
            await wire.raw(frame)
        assert (await wire.error())["code"] == code
        assert (await wire.closed())[0] == 1008
        assert await log.sessions() == []


@rule("D2")
async def test_a_session_that_was_opened_by_itself_still_takes_the_clients_own_object() -> None:
    """The trap: the bare default session dropped what the first message asked for, without a word."""
    async with serving() as served, Wire.to(served.url + NOW) as wire:
        await wire.send("session.update", session={"instructions": "Be brief."})
        assert (await wire.next())["session"]["instructions"] == ""
        assert (await wire.until("session.updated"))["session"]["instructions"] == "Be brief."


@rule("D2")
def test_our_client_never_lets_a_session_be_opened_before_it_said_what_it_wants() -> None:
    assert "autostart=0" in address("ws://host/v1/realtime?model=m&autostart=1", None)


@rule("D18")
async def test_what_only_one_connection_is_told_has_no_number_and_is_not_replayed() -> None:
    async with serving() as served, Wire.to(served.url + NOW) as first:
        created = await first.next()
        await first.raw("{")
        await first.next()
        await beat(first)
        async with Wire.to(served.url + LATER) as second:
            resumed = await resume(second, created)
            replaced = await first.next()
            await second.until("session.heartbeat_ack")
            told = [created, resumed, replaced, first.seen[1]]
            assert [event["type"] for event in told] == [
                "session.created",
                "session.resumed",
                "session.replaced",
                "error",
            ]
            assert not any("server_event_seq" in event for event in told)
            assert [event["type"] for event in second.seen] == ["session.resumed", "session.heartbeat_ack"]


# -- formats belong to the session: D5 -----------------------------------------------------------------------


@rule("D5")
async def test_a_new_connection_decodes_by_the_format_that_the_session_agreed_on() -> None:
    """The trap: a fresh connection took its first append without a format for pcm16 at 16 kHz."""
    sound = base64.b64encode(b"\x10\x10\x90\x90" * 2000).decode()  # 1 s of mu-law, 32,000 bytes for the model
    async with serving() as served:
        async with Wire.to(served.url + LATER) as first:
            await first.send("session.update", session={"input_audio_format": "g711_ulaw", "turn_detection": None})
            created = await first.next()
            await first.send("input_audio_buffer.append", audio=sound)
            await beat(first)
            found = served.hub.session(created["session"]["id"])
            assert found is not None
            assert 24_000 < found.input.position <= 32_000, "it was understood as mu-law"
            first.socket.transport.abort()
        async with Wire.to(served.url + LATER) as second:
            resumed = await resume(second, created, first.numbers()[-1])
            assert resumed["session"]["input_audio_format"] == created["session"]["input_audio_format"]
            await second.send("input_audio_buffer.append", audio=sound)
            await beat(second)
            assert 56_000 < found.input.position <= 64_000


# -- heartbeats and acknowledgements: C15, C16, C17 ----------------------------------------------------------


@rule("C15", "C16", "C1")
@pytest.mark.parametrize(("said", "lives"), [("session.heartbeat", True), ("session.event_ack", False)])
async def test_a_heartbeat_renews_the_lease_and_an_acknowledgement_does_not(said: str, lives: bool) -> None:
    clock = VirtualClock()
    settings = HubSettings(idle_ttl_ms=200_000)
    async with serving(clock=clock, settings=settings) as served, Wire.to(served.url + NOW) as wire:
        created = await wire.next()
        await beat(wire)
        clock.advance(15_000_000)
        await wire.send(said, server_event_seq=1)
        await wire.send("no.such.event")
        await wire.until("error")
        for _ in range(185):  # the websocket's own pings are answered on the way
            clock.advance(1_000_000)
            await (await wire.socket.ping())
        found = served.hub.session(created["session"]["id"])
        if lives:
            assert found is not None
            assert found.phase == "open"
            clock.advance(15_000_000)
        expired = await wire.until("session.expired")
        assert expired["reason"] == "idle_ttl_expired"
        assert (await wire.closed())[0] == 1000


@rule("C17", "D33.14", "P47")
async def test_a_silent_socket_is_a_disconnect_and_the_lease_decides_about_the_session() -> None:
    clock = VirtualClock()
    async with serving(clock=clock) as served, Wire.to(served.url + LATER) as wire:
        await wire.send("session.update", session={"idle_timeout_s": 10})
        created = await wire.next()
        await wire.until("session.updated")
        clock.advance(10_000_000)
        assert await wire.closed() == (1000, "idle_timeout")
        await becomes(lambda: not lease(served, created)[1])
        clock.advance(30_000_000)
        await becomes(lambda: not served.hub.statistics().admitted)
        async with Wire.to(served.url + LATER) as again:
            assert (await resume(again, created))["error"]["code"] == "session_resume_expired"


# -- the last words: D9 --------------------------------------------------------------------------------------


@rule("D9")
@pytest.mark.parametrize("query", ["", NOW])
async def test_a_client_that_does_not_read_the_end_is_cut_off_after_5_s(query: str) -> None:
    clock = VirtualClock()
    async with (
        serving(clock=clock, stage=HeldStage(2000)) as served,
        Wire.to(served.url + query) as wire,
    ):
        created = await wire.next()
        async with paused(wire):
            await fill(served, wire, created)
            name = created["session"]["id"]
            await served.hub.close(name, "c")
            await becomes(lambda: served.hub.session(name) is None)
            await anyio.wait_all_tasks_blocked()
            clock.advance(4_999_000)
            assert len(served.server.websockets) == 1
            clock.advance(1_000)
            await becomes(lambda: not served.server.websockets)


# -- whose disconnect it is: D14, D24, D33 -------------------------------------------------------------------


@rule("D14", "D33.5", "D31")
async def test_a_failing_send_is_the_disconnect_of_that_connection_and_of_no_other() -> None:
    async with serving(stage=HeldStage(2000)) as served, Wire.to(served.url + NOW) as first:
        created = await first.next()
        first.socket.transport.pause_reading()
        await fill(served, first, created)
        async with Wire.to(served.url + LATER) as second:
            assert (await resume(second, created))["type"] == "session.resumed"
            first.socket.transport.abort()
            await becomes(lambda: len(served.server.websockets) == 1)
            assert lease(served, created) == (1, True), "never in its grace"
            await second.send("response.cancel")
            await second.until("response.done")
        await becomes(lambda: lease(served, created) == (1, False))


@rule("D24", "D33.13", "P52")
async def test_nothing_that_a_replaced_connection_sends_is_carried_out() -> None:
    async with serving() as served, Wire.to(served.url + NOW) as first:
        created = await first.next()
        first.socket.transport.pause_reading()
        async with Wire.to(served.url + LATER) as second:
            assert (await resume(second, created))["type"] == "session.resumed"
            for _ in range(5):
                await first.send("session.update", session={"instructions": "from the replaced one"})
            await beat(second)
            first.socket.transport.resume_reading()
            assert (await first.next())["type"] == "session.replaced"
            assert await first.closed() == (1000, "session_replaced")
            await beat(second)
            found = served.hub.session(created["session"]["id"])
            assert found is not None
            assert found.config.instructions == ""


# -- the order of the checks: D22, WIRE 8.3 ------------------------------------------------------------------

CHECKS: list[tuple[dict[str, Any], str, int]] = [
    ({"session_id": ""}, "invalid_session_resume", 1008),
    ({"session_id": "duplex-nobody"}, "session_resume_expired", 1008),
    ({"session_id": "GA"}, "session_resume_expired", 1008),  # WIRE 12.16: as unknown as any
    ({"resume_token": "A" * 43}, "invalid_resume_token", 1008),
    ({"last_received_server_event_seq": 1}, "journal_gap", 1000),
    ({"last_received_server_event_seq": 9}, "session_resume_conflict", 1008),
]


@rule("D22", "D27")
@pytest.mark.parametrize("first", range(len(CHECKS)), ids=[code for _, code, _ in CHECKS])
async def test_the_first_check_that_fails_answers(first: int) -> None:
    """Each row breaks its own check and all that come after it, and nothing of the session moves."""
    async with serving() as served, Wire.to(served.url + NOW) as attached, Wire.to(served.url) as ga:
        created = await attached.next()
        other = (await ga.next())["session"]["id"]
        for _ in range(4):
            await beat(attached)
        await attached.send("session.event_ack", server_event_seq=3)
        await beat(attached)
        before = lease(served, created)
        asked: dict[str, Any] = {
            "session_id": created["session"]["id"],
            "resume_token": created["resume_token"],
            "last_received_server_event_seq": 4,
        }
        for change, _, _ in reversed(CHECKS[first:]):
            asked |= change
        if asked["session_id"] == "GA":
            asked["session_id"] = other
        async with Wire.to(served.url + LATER) as late:
            await late.send("session.resume", **asked)
            answer = await late.next()
            _, code, close = CHECKS[first]
            assert answer.get("reason", answer.get("error", {}).get("code")) == code
            assert "server_event_seq" not in answer
            assert (await late.closed())[0] == close
        assert lease(served, created) == before
        await beat(attached)


@rule("B22", "D22")
@pytest.mark.parametrize(("asks", "code"), [("resume", "runtime_resume_failed"), ("open", "timeout")])
async def test_a_control_that_takes_too_long_is_refused_and_may_be_tried_again(asks: str, code: str) -> None:
    clock, log = VirtualClock(), MoodyLog()
    async with serving(clock=clock, log=log) as served, Wire.to(served.url + NOW) as first:
        created = await first.next()
        first.socket.transport.abort()
        await becomes(lambda: not lease(served, created)[1])
        log.holding = True
        async with Wire.to(served.url + LATER) as late:
            if asks == "resume":
                await late.send(
                    "session.resume",
                    session_id=created["session"]["id"],
                    resume_token=created["resume_token"],
                )
            else:
                await late.send("session.update", session={})
            appended = len(log.appended)
            await becomes(lambda: len(log.appended) > appended - 1 and len(served.server.websockets) == 1)
            await becomes(lambda: log.appended[-1].command.__class__.__name__ in ("ResumeSession", "OpenSession"))
            await anyio.wait_all_tasks_blocked()
            clock.advance(10_000_000)
            error = await late.error()
            assert error["code"] == code
            assert (await late.closed())[0] == 1013
        log.release()
        async with Wire.to(served.url + LATER) as again:
            assert (await resume(again, created))["type"] == "session.resumed"


# -- any front end: B25 --------------------------------------------------------------------------------------


@rule("B25")
async def test_a_session_that_was_opened_at_one_front_end_is_resumed_at_another() -> None:
    async with serving() as served, served_by(Server(served.hub, Listening(port=0, access=Access()))) as other:
        async with Wire.to(served.url + NOW) as first:
            created = await first.next()
            first.socket.transport.abort()
        async with Wire.to(other.replace("http", "ws") + "/v1/realtime" + LATER) as second:
            assert (await resume(second, created))["type"] == "session.resumed"
            await beat(second)
