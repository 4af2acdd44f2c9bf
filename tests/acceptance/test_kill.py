"""A killed server loses nothing that a client saw: SIGKILL in the middle, restart, resume, replay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from openai import AsyncOpenAI
from openai.types.websocket_reconnection import ReconnectingOverrides
from websockets.exceptions import ConnectionClosed

from antiphon.transport import wire_server as out
from antiphon.transport.client import RealtimeClient, Retrying
from antiphon.transport.client_events import Received, number_of
from antiphon.transport.client_link import SessionOptions

from .servers import ServerProcess, antiphon
from tests.rules import rule

PATIENT = Retrying(attempts=60, shortest_s=0.05, longest_s=0.2)
PIECE = bytes(range(256)) * 10
TALKING = SessionOptions(sample_rate_hz=16_000, extra_body={"auto_response": True})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    one = ServerProcess(tmp_path / "data")
    one.start()
    yield one
    one.close()


class Seen:
    """What one client was given, from its first event to its last."""

    def __init__(self) -> None:
        self.events: list[Received] = []
        self.changed = anyio.Event()

    async def read(self, client: RealtimeClient) -> None:
        async for event in client.events():
            self.events.append(event)
            changed, self.changed = self.changed, anyio.Event()
            changed.set()

    async def until(self, count: int, kind: type[out.ServerEvent]) -> None:
        while len(self.of(kind)) < count:
            await self.changed.wait()

    def of(self, kind: type[out.ServerEvent]) -> list[out.ServerEvent]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def numbers(self) -> list[int]:
        return [number for event in self.events if (number := number_of(event))]


async def restart(server: ServerProcess) -> None:
    await anyio.to_thread.run_sync(server.kill)
    await anyio.to_thread.run_sync(server.start)


@rule("P1", "P6")
@pytest.mark.timeout(180)
async def test_killed_while_talking_every_event_comes_once_and_the_log_replays(
    server: ServerProcess, tmp_path: Path
) -> None:
    seen = Seen()
    with anyio.fail_after(120):
        async with (
            RealtimeClient(server.url, TALKING, retrying=PATIENT) as client,
            anyio.create_task_group() as group,
        ):
            group.start_soon(seen.read, client)
            for kill in range(1, 4):
                for _ in range(20):
                    client.append_audio(PIECE, rate=16_000)
                await seen.until(kill * 10, out.AudioDeltaOut)
                await restart(server)
                for _ in range(5):
                    client.append_audio(PIECE, rate=16_000)
                client.heartbeat()
                await seen.until(kill, out.HeartbeatAck)
            assert client.generation == 4
            await client.close()
        session = client.session_id
    assert seen.numbers == list(range(1, len(seen.numbers) + 1)), "a number is missing or came twice"
    assert isinstance(seen.events[-1], out.SessionClosedOut)
    server.stop()
    done = antiphon("replay", session, "--data", str(tmp_path / "data"), "--json")
    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["identical"], verdict["first_difference"]) == (0, True, None)


@pytest.mark.timeout(180)
async def test_commands_around_a_kill_are_applied_exactly_once(server: ServerProcess) -> None:
    seen = Seen()
    with anyio.fail_after(120):
        async with (
            RealtimeClient(server.url, SessionOptions(), retrying=PATIENT) as client,
            anyio.create_task_group() as group,
        ):
            group.start_soon(seen.read, client)
            for n in range(40):
                client.send_text(f"line {n}")
                if n == 20:
                    await restart(server)
            client.heartbeat()
            await seen.until(40, out.ItemDone)
            await client.close()
    texts = [event.item.content[0].text for event in seen.events if isinstance(event, out.ItemDone)]
    assert texts == [f"line {n}" for n in range(40)]


@rule("P1", "P6", "P49")
@pytest.mark.timeout(180)
async def test_the_stock_library_comes_back_to_a_killed_server(server: ServerProcess, tmp_path: Path) -> None:
    query: dict[str, object] = {"resumable": "1"}
    heard: list[Any] = []
    asked = 0

    def on_reconnecting(_: object) -> ReconnectingOverrides:
        return {"extra_query": query}

    async with (
        AsyncOpenAI(api_key="none", base_url=f"{server.url}/v1") as openai,
        openai.realtime.connect(
            model="antiphon",
            extra_query={"resumable": "1"},
            on_reconnecting=on_reconnecting,
            max_retries=100,
            initial_delay=0.05,
            max_delay=0.2,
        ) as connection,
    ):
        with anyio.fail_after(120):
            async for event in connection:
                heard.append(event)
                query["last_event_id"] = event.event_id
                items = sum(one.type == "conversation.item.done" for one in heard)
                if event.type == "session.created":
                    query |= {"session_id": event.session.id, "resume_token": event.resume_token}
                    asked = getattr(event, "last_client_seq", 0)
                if items == 60:
                    break
                if event.type == "conversation.item.done" and items in (10, 25):
                    await restart(server)
                elif event.type in ("session.created", "conversation.item.done"):
                    while asked < min(60, items + 3):  # no more under way: each kill must cost a connection
                        asked += 1
                        with suppress(ConnectionClosed):  # it is said again behind the next `session.created`
                            await connection.send(_line(asked))
    said = [event for event in heard if event.type != "session.created"]
    assert [event.event_id for event in said] == sorted({event.event_id for event in said}), "each once, in order"
    texts = [event.item.content[0].text for event in said if event.type == "conversation.item.done"]
    assert texts == [f"line {n}" for n in range(1, 61)]
    assert [getattr(event, "resumed", False) for event in heard if event.type == "session.created"] == [
        False,
        True,
        True,
    ]
    server.stop()
    done = antiphon("replay", str(query["session_id"]), "--data", str(tmp_path / "data"), "--json")
    assert (done.returncode, json.loads(done.stdout)["identical"]) == (0, True)


def _line(number: int) -> Any:
    """A counted command: the library sends keys that it does not know as they are."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"line {number}"}]}
    return {"type": "conversation.item.create", "item": item, "client_seq": number}


@rule("P6")
@pytest.mark.timeout(180)
async def test_an_answer_cut_by_a_kill_fails_by_name_and_the_session_goes_on(server: ServerProcess) -> None:
    seen = Seen()
    with anyio.fail_after(120):
        async with (
            RealtimeClient(server.url, TALKING, retrying=PATIENT) as client,
            anyio.create_task_group() as group,
        ):
            group.start_soon(seen.read, client)
            client.append_audio(PIECE, rate=16_000)
            await seen.until(1, out.AudioDeltaOut)
            await restart(server)
            await seen.until(1, out.ResponseDone)
            client.append_audio(PIECE, rate=16_000)
            await seen.until(2, out.ResponseCreatedOut)
            await client.close()
    failed = seen.of(out.ResponseDone)[0]
    assert isinstance(failed, out.ResponseDone)
    assert failed.response.status == "failed"
    assert "engine_restarted" in str(failed.response.status_details)
