"""Clients without numbers come back by the address alone: the last event that they had says where they were."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import anyio
import pytest

from antiphon.engine.clock import VirtualClock
from antiphon.engine.memory_log import MemoryLog
from antiphon.engine.settings import HubSettings
from antiphon.events import ids
from antiphon.transport.access import Access
from antiphon.transport.keys import Keys

from .held import HeldStage
from .serving import Serving, Wire, becomes, serving
from tests.rules import rule

pytestmark = pytest.mark.anyio

RESUMABLE = "?resumable=1"
BETA = {"additional_headers": {"OpenAI-Beta": "realtime=v1"}}
DIALECTS = pytest.mark.parametrize("options", [{}, BETA], ids=["ga", "beta"])


def back(created: dict[str, Any], last: str = "", **fields: str) -> str:
    """Return the query of a client that comes back."""
    known = {
        "model": "another",
        "resumable": "1",
        "session_id": created["session"]["id"],
        "resume_token": created["resume_token"],
        "last_event_id": last,
    }
    return "?" + urlencode(known | fields)


async def say(wire: Wire, text: str = "Hello there.") -> None:
    """Say something in writing, and ask for the answer."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    await wire.send("conversation.item.create", item=item)
    await wire.send("response.create")


async def frames(wire: Wire, until: str) -> list[bytes]:
    """Return what comes, as it comes, up to an event of a type."""
    read: list[bytes] = []
    with anyio.fail_after(10):
        while not read or json.loads(read[-1])["type"] != until:
            read.append(await wire.socket.recv(decode=False))
    return read


def names(read: list[bytes]) -> list[str]:
    return [json.loads(frame)["event_id"] for frame in read]


@asynccontextmanager
async def talked(served: Serving, **options: Any) -> AsyncIterator[tuple[Wire, dict[str, Any], list[bytes]]]:
    """A connection that has said something: what it was told, from the second event on."""
    async with Wire.to(served.url + RESUMABLE, **options) as wire:
        created = await wire.next()
        await say(wire)
        yield wire, created, await frames(wire, "rate_limits.updated")


@DIALECTS
async def test_who_asks_for_it_is_given_a_token_and_who_does_not_is_not(options: dict[str, Any]) -> None:
    async with serving() as served:
        async with Wire.to(served.url + RESUMABLE, **options) as wire:
            created = await wire.next()
            assert len(created["resume_token"]) == 43
            assert created["attachment_generation"] == 1
            assert created["session"]["capabilities"]["supports_session_resume"] is True
            assert created["session"]["expires_at"] > 0
        for query in ("", "?resumable=0"):
            async with Wire.to(served.url + query, **options) as wire:
                plain = await wire.next()
                assert not {"resume_token", "attachment_generation", "resumed"} & set(plain)
                assert plain["session"]["capabilities"]["supports_session_resume"] is False


@rule("P49", "D23")
@DIALECTS
async def test_every_event_behind_the_last_one_comes_again_byte_for_byte(options: dict[str, Any]) -> None:
    async with serving() as served, talked(served, **options) as (wire, created, said):
        wire.socket.transport.abort()
        for generation, last in enumerate(["", created["event_id"]], 2):
            async with Wire.to(served.url + back(created, last), **options) as again:
                answer = await again.next()
                assert answer["type"] == "session.created"
                assert answer["session"]["id"] == created["session"]["id"]
                assert (answer["resumed"], answer["attachment_generation"]) == (True, generation)
                assert [await again.socket.recv(decode=False) for _ in said] == said
                created |= {"resume_token": answer["resume_token"]}
                if generation == 3:
                    await say(again, "And then?")
                    assert (await again.until("response.done"))["response"]["status"] == "completed"


@rule("P49")
async def test_from_every_event_on_the_rest_comes_again() -> None:
    async with serving() as served, talked(served) as (wire, created, said):
        wire.socket.transport.abort()
        for at, last in enumerate(names(said)):
            async with Wire.to(served.url + back(created, last)) as again:
                created |= {"resume_token": (await again.next())["resume_token"]}
                assert [await again.socket.recv(decode=False) for _ in said[at + 1 :]] == said[at + 1 :]
                with anyio.move_on_after(0.005):
                    assert not await again.socket.recv(), "and nothing else"
                again.socket.transport.abort()


@rule("P49", "D25")
async def test_who_had_nothing_but_the_answer_is_where_it_was() -> None:
    """The answer's id stands for what was seen before it: an application keeps the id of the last event, whatever
    that is."""
    async with serving() as served, talked(served) as (wire, created, said):
        wire.socket.transport.abort()
        last, seen = names(said)[3], set[str]()
        for _ in range(3):
            async with Wire.to(served.url + back(created, last)) as again:
                answer = await again.next()
                last = answer["event_id"]
                assert [await again.socket.recv(decode=False) for _ in said[4:]] == said[4:]
                created |= {"resume_token": answer["resume_token"]}
                seen.add(last)
                again.socket.transport.abort()
        assert len(seen) == 3, "each has an id of its own"


@rule("D24", "P52")
async def test_who_was_refused_for_now_is_where_it_was() -> None:
    """An application keeps the id of the last event, whatever it was: also that of `going_away`."""
    async with serving() as served:
        async with talked(served) as (_, created, first):
            pass
        last = names(first)[2]
        async with Wire.to(served.url + back(created, last, resume_token="x" * 43)) as refused:
            error = await refused.next()
            assert error["type"] == "error"
        assert ids.last_seen(error["event_id"]) == ids.parse_event_id(last)
        async with Wire.to(served.url + back(created, error["event_id"])) as again:
            assert (await again.next())["resumed"] is True
            assert await frames(again, "rate_limits.updated") == first[3:]


async def test_the_connection_before_is_closed_for_good_without_a_word() -> None:
    async with serving() as served, Wire.to(served.url + RESUMABLE) as first:
        created = await first.next()
        async with Wire.to(served.url + back(created)) as second:
            await second.next()
            assert await first.closed() == (1000, "session_replaced")
            assert first.kinds() == ["session.created"]
            await say(second)
            await second.until("response.done")


@rule("D21")
async def test_a_lost_socket_begins_the_grace_and_its_end_is_told() -> None:
    clock = VirtualClock()
    async with serving(clock=clock) as served, Wire.to(served.url + RESUMABLE) as wire:
        created = await wire.next()
        wire.socket.transport.abort()
        session = created["session"]["id"]
        await becomes(lambda: not _attached(served, session))
        clock.advance(29_000_000)
        async with Wire.to(served.url + back(created)) as again:
            created |= {"resume_token": (await again.next())["resume_token"]}
            again.socket.transport.abort()
        await becomes(lambda: not _attached(served, session))
        clock.advance(30_000_000)
        await becomes(lambda: served.hub.session(session) is None)
        async with Wire.to(served.url + back(created)) as late:
            assert (await late.error())["code"] == "session_resume_expired"
            assert (await late.closed())[0] == 1008


def _attached(served: Serving, session: str) -> bool:
    found = served.hub.session(session)
    assert found is not None
    return found.lease.attached


WRONG = [
    ({"session_id": ""}, "invalid_session_resume"),
    ({"resume_token": ""}, "invalid_session_resume"),
    ({"last_event_id": "event_x"}, "invalid_session_resume"),
    ({"last_event_id": "item_1"}, "invalid_session_resume"),
    ({"last_event_id": ids.event_id(0, 0, 1)}, "invalid_session_resume"),
    ({"last_event_id": ids.event_id(10_000, 0, 0)}, "session_resume_conflict"),
    ({"last_event_id": ids.event_id(2**40 - 1, 2**32 - 1, 2**32 - 1)}, "session_resume_conflict"),
    ({"session_id": "sess_" + "0" * 32}, "session_resume_expired"),
    ({"session_id": "x" * 5000}, "session_resume_expired"),
    ({"resume_token": "x" * 43}, "invalid_resume_token"),
    ({"resume_token": "\N{SNOWMAN}"}, "invalid_resume_token"),
]


@rule("D22", "D34")
@pytest.mark.parametrize(("fields", "code"), WRONG)
async def test_a_wrong_return_is_refused_by_name_and_nobody_else_notices(fields: dict[str, str], code: str) -> None:
    async with serving() as served, Wire.to(served.url + RESUMABLE) as wire:
        created = await wire.next()
        async with Wire.to(served.url + back(created, **fields)) as stranger:
            assert (await stranger.error())["code"] == code
            assert (await stranger.closed())[0] == 1008
        await say(wire)
        await wire.until("response.done")
        assert "error" not in wire.kinds()
        assert len(await served.log.sessions()) == 1, "nothing else was opened"


@rule("D22")
async def test_sessions_that_are_not_taken_over_this_way() -> None:
    async with serving() as served:
        async with Wire.to(served.url + "?duplex=1&model=m") as duplex, Wire.to(served.url + RESUMABLE) as other:
            numbered, mine = await duplex.next(), await other.next()
            async with Wire.to(served.url + back(numbered)) as wire:
                assert (await wire.error())["code"] == "session_resume_expired"
            async with Wire.to(served.url + back(numbered | {"session": mine["session"]})) as wire:
                assert (await wire.error())["code"] == "invalid_resume_token"
            async with Wire.to(served.url + "?duplex=1") as wire:
                fields = {"session_id": mine["session"]["id"], "resume_token": mine["resume_token"]}
                await wire.send("session.resume", **fields)
                assert (await wire.error())["code"] == "session_resume_expired"
        async with Wire.to(served.url) as wire:
            plain = await wire.next()
            async with Wire.to(served.url + back(plain | {"resume_token": "t" * 43})) as again:
                assert (await again.error())["code"] == "unsupported_session_resume"


@rule("D21", "D25")
async def test_a_token_is_good_until_the_next_one_was_heard() -> None:
    async with serving() as served, Wire.to(served.url + RESUMABLE) as wire:
        created = await wire.next()
        session = created["session"]["id"]
        async with Wire.to(served.url + back(created)) as second:
            await second.next()
            await becomes(lambda: _heard(served, session))
            async with Wire.to(served.url + back(created)) as third:
                assert (await third.error())["code"] == "invalid_resume_token"


def _heard(served: Serving, session: str) -> bool:
    found = served.hub.session(session)
    return found is not None and found.lease.phase == "serving"


async def test_counted_commands_are_carried_out_once_over_all_connections() -> None:
    async with serving() as served, Wire.to(served.url + RESUMABLE) as wire:
        created = await wire.next()
        for seq in (1, 2):
            await wire.send("input_audio_buffer.clear", client_seq=seq)
            await wire.next()
        last = wire.seen[-1]["event_id"]
        async with Wire.to(served.url + back(created, last)) as again:
            answer = await again.next()
            assert answer["last_client_seq"] == 2
            for seq in (1, 2, 3):
                await again.send("input_audio_buffer.clear", client_seq=seq, event_id=f"c{seq}")
            assert (await again.next())["type"] == "input_audio_buffer.cleared"
            await again.send("response.cancel")
            assert (await again.error())["code"] == "response_cancel_not_active", "one of the three was new"


@rule("D17")
async def test_what_is_too_far_back_is_refused_by_name() -> None:
    settings = HubSettings(replay_bytes=192 * 1024)
    async with (
        serving(stage=HeldStage(200), settings=settings) as served,
        Wire.to(served.url + RESUMABLE) as wire,
    ):
        created = await wire.next()
        await say(wire)
        deltas = [await wire.until("response.output_audio.delta") for _ in range(200)]
        wire.socket.transport.abort()
        for last in (created["event_id"], deltas[10]["event_id"]):
            async with Wire.to(served.url + back(created, last)) as again:
                error = await again.error()
                assert error["code"] == "session_resume_conflict"
                assert "not kept" in error["message"]
                assert (await again.closed())[0] == 1008
        async with Wire.to(served.url + back(created, deltas[180]["event_id"])) as again:
            await again.next()
            replayed = [await again.until("response.output_audio.delta") for _ in range(19)]
            assert [event["event_id"] for event in replayed] == [event["event_id"] for event in deltas[181:]]


@rule("P15")
async def test_sound_that_was_interrupted_meanwhile_does_not_come_again() -> None:
    async with serving(stage=HeldStage()) as served, Wire.to(served.url + RESUMABLE) as wire:
        created = await wire.next()
        await say(wire)
        await wire.until("response.created")
        last = wire.seen[-1]["event_id"]
        await wire.until("response.output_audio.delta")
        await wire.send("response.cancel")
        await wire.until("rate_limits.updated")
        said = [event for event in wire.seen if event["event_id"] > last]
        async with Wire.to(served.url + back(created, last)) as again:
            await again.next()
            await again.until("rate_limits.updated")
            heard = [event for event in said if event["type"] != "response.output_audio.delta"]
            assert again.seen[1:] == heard


@rule("P6")
async def test_a_server_that_stops_asks_for_another_try_and_the_next_one_goes_on() -> None:
    log = MemoryLog()
    async with serving(log=log) as served, Wire.to(served.url + RESUMABLE) as wire:
        created = await wire.next()
        await say(wire)
        said = await frames(wire, "rate_limits.updated")
        served.server.stop()
        assert (await wire.closed()) == (1001, "shutdown")
        assert wire.kinds() == ["session.created"], "nothing that its dialect does not know"
    async with serving(log=log) as served, Wire.to(served.url + back(created, names(said)[4])) as again:
        answer = await again.next()
        assert answer["resumed"] is True
        assert [await again.socket.recv(decode=False) for _ in said[5:]] == said[5:]
        await say(again, "And now?")
        await again.until("response.done")


@rule("E31")
async def test_who_reads_too_slowly_is_sent_back_to_where_it_was() -> None:
    settings = HubSettings(slow_bytes=2_000_000)
    async with (
        serving(stage=HeldStage(400), settings=settings) as served,
        Wire.to(served.url + RESUMABLE) as wire,
    ):
        created = await wire.next()
        session = created["session"]["id"]
        wire.socket.transport.pause_reading()
        sent = 0
        while _attached(served, session):
            await say(wire)
            sent += 400
            await _made(served, session, sent)
            await wire.send("response.cancel")
        wire.socket.transport.resume_reading()
        assert await wire.closed() == (1013, "slow_consumer"), "which the stock library takes for: come back"
        last = wire.seen[-1]
        async with Wire.to(served.url + back(created, last["event_id"])) as again:
            assert (await again.next())["resumed"] is True
            await again.send("input_audio_buffer.clear")
            await again.until("input_audio_buffer.cleared")
            ids_seen = [event["event_id"] for event in [*wire.seen, *again.seen[1:]]]
            assert ids_seen == sorted(set(ids_seen))


async def _made(served: Serving, session: str, pieces: int) -> None:
    """Wait until a session has made so many pieces of sound, or has lost its client."""
    found = served.hub.session(session)
    assert found is not None
    await becomes(lambda: not found.lease.attached or found.output.position >= pieces * 3840)


@rule("D22")
@pytest.mark.parametrize("query", [RESUMABLE, "?duplex=1&model=m"])
async def test_a_session_is_taken_over_with_the_key_that_opened_it(query: str) -> None:
    keys = Access(keys=Keys.of("mine", "another"))
    mine, other = ({"additional_headers": {"Authorization": f"Bearer {key}"}} for key in ("mine", "another"))
    async with serving(access=keys) as served, Wire.to(served.url + query, **mine) as wire:
        created = await wire.next()
        for options, code in ((other, "invalid_resume_token"), (mine, None)):
            again = back(created) if query == RESUMABLE else "?duplex=1"
            async with Wire.to(served.url + again, **options) as second:
                if query != RESUMABLE:
                    fields = {"session_id": created["session"]["id"], "resume_token": created["resume_token"]}
                    await second.send("session.resume", **fields)
                answer = await second.next()
                assert answer.get("error", {}).get("code") == code
                assert ("resume_token" in answer) == (code is None)
