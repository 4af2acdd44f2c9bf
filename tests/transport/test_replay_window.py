"""The replay window over a socket: an overflow is told once, and ends (BEHAVIOURS D17, D18, D20; WIRE 8.5)."""

from typing import Any

import pytest

from antiphon.engine.published import OVERHEAD
from antiphon.engine.settings import HubSettings
from antiphon.transport import wire_server as out
from antiphon.transport.client import RealtimeClient, SessionLost

from .serving import Wire, becomes, serving
from tests.rules import rule

pytestmark = pytest.mark.anyio

DUPLEX = "?duplex=1&model=m"
SMALL = HubSettings(replay_bytes=8 * OVERHEAD)
"""Room for the opening, which has many words, and for three heartbeats."""


async def beat(wire: Wire, times: int) -> list[dict[str, Any]]:
    """Send heartbeats one by one; return everything that came."""
    heard: list[dict[str, Any]] = []
    for _ in range(times):
        await wire.send("session.heartbeat")
        while (event := await wire.next())["type"] != "session.heartbeat_ack":
            heard.append(event)
        heard.append(event)
    return heard


def told(events: list[dict[str, Any]]) -> list[int | str]:
    """Return the numbers of events; of those without one, the type."""
    return [event.get("server_event_seq", event.get("reason", "-")) for event in events]


@rule("D17", "D18", "P50")
async def test_an_overflow_is_told_once_and_what_follows_has_no_number_until_all_is_acknowledged() -> None:
    async with serving(settings=SMALL) as served, Wire.to(served.url + DUPLEX) as wire:
        created = await wire.next()
        before = await beat(wire, 2)
        assert told(before) == [1, 2]
        over = await beat(wire, 4)
        assert told(over) == [3, "journal_overflow", "-", "-", "-"]
        assert over[1]["type"] == "session.resync_required"
        assert over[1]["session_id"] == created["session"]["id"]
        await wire.send("session.event_ack", server_event_seq=2)
        assert told(await beat(wire, 1)) == ["-"], "not all that has a number"
        await wire.send("session.event_ack", server_event_seq=3)
        assert told(await beat(wire, 2)) == [8, 9], "the numbering goes on"


@rule("D17", "D22")
async def test_while_it_has_overflowed_a_resume_is_told_of_a_gap_and_disturbs_nobody() -> None:
    async with serving(settings=SMALL) as served, Wire.to(served.url + DUPLEX) as wire:
        created = await wire.next()
        await beat(wire, 6)
        async with Wire.to(served.url + "?duplex=1") as other:
            await other.send(
                "session.resume",
                session_id=created["session"]["id"],
                resume_token=created["resume_token"],
                last_received_server_event_seq=3,
            )
            resync = await other.next()
            assert (resync["type"], resync["reason"]) == ("session.resync_required", "journal_gap")
            assert "server_event_seq" not in resync
            assert await other.closed() == (1000, "journal_gap")
        assert told(await beat(wire, 1)) == ["-"]


@rule("D17")
async def test_a_dialect_without_numbers_hears_nothing_of_it() -> None:
    async with serving(settings=SMALL) as served, Wire.to(served.url) as wire:
        await wire.next()
        for _ in range(8):
            await wire.send("input_audio_buffer.clear")
        for _ in range(8):
            assert (await wire.next())["type"] == "input_audio_buffer.cleared"


@rule("D20")
async def test_our_client_goes_on_after_an_overflow_and_does_not_try_another_socket() -> None:
    async with (
        serving(settings=HubSettings(replay_bytes=16 * OVERHEAD)) as served,
        RealtimeClient(served.url) as client,
    ):
        live = served.hub._live[client.session_id]  # pyright: ignore[reportPrivateUsage]
        live.runner.feed.window.bytes = 0
        client.heartbeat()
        resync = await client.wait_for(out.ResyncRequired)
        assert resync.reason == "journal_overflow"
        await client.wait_for(out.HeartbeatAck)
        client.heartbeat()
        await client.wait_for(out.HeartbeatAck)
        client.drop_socket()
        with pytest.raises(SessionLost, match="cannot be resumed"):
            await client.wait_for(out.ResponseDone)


@rule("D20")
async def test_our_client_acknowledges_all_that_has_a_number() -> None:
    async with serving() as served, RealtimeClient(served.url) as client:
        client.send_text("Hello.")
        client.create_response()
        await client.wait_for(out.ResponseDone)
        client.heartbeat()
        await client.wait_for(out.HeartbeatAck)
        live = served.hub._live[client.session_id]  # pyright: ignore[reportPrivateUsage]
        feed = live.runner.feed
        await becomes(lambda: feed.window.acknowledged == feed.number)
