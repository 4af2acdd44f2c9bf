"""What a slow reader gets, and what a connection says when the log cannot be written."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from antiphon.engine.memory_log import MemoryLog
from antiphon.engine.published import Published
from antiphon.events.config import SessionConfig
from antiphon.events.events import ItemCreated, SessionClosed
from antiphon.events.log import SampleWrite, Settled, Transaction, Unavailable
from antiphon.transport import connection, intake
from antiphon.transport.websocket import HANDED, WebSocket
from antiphon.transport.wire_out import Message, Reader
from antiphon.transport.wire_read import Decoded, Reading, Undecided, Understood

from .held import HeldStage
from .serving import Serving, Wire, becomes, serving
from .test_server import got
from tests.rules import rule

pytestmark = pytest.mark.anyio

DUPLEX = "?duplex=1&model=m"


async def asked(wire: Wire) -> None:
    """Ask for an answer that goes on and on."""
    await wire.send(
        "conversation.item.create",
        item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
    )
    await wire.send("response.create")


async def durable(served: Serving, pieces: int) -> None:
    """Wait until all the sound of the answer is in the log."""
    (session,) = [row.session for row in await served.log.sessions()]
    await becomes(
        lambda: (found := served.hub.session(session)) is not None and found.output.position >= pieces * 3840
    )


@rule("P15", "P50")
async def test_after_an_interruption_no_stale_sound_leaves_and_no_number_is_missing() -> None:
    pieces = 2000  # 10 MB on the wire: far more than a socket takes unread
    async with serving(stage=HeldStage(pieces)) as served, Wire.to(served.url + DUPLEX) as wire:
        await wire.next()
        wire.socket.transport.pause_reading()
        await asked(wire)
        await durable(served, pieces)
        await wire.send("response.cancel")
        await wire.send("session.heartbeat")
        (session,) = [row.session for row in await served.log.sessions()]
        await becomes(lambda: (found := served.hub.session(session)) is not None and found.epoch > 0)
        wire.socket.transport.resume_reading()
        await wire.until("session.heartbeat_ack")
    numbers = wire.numbers()
    assert numbers == list(range(1, len(numbers) + 1))
    deltas = [event["delta"] for event in wire.seen if event["type"] == "response.output_audio.delta"]
    assert len(deltas) == pieces
    sounding = [index for index, delta in enumerate(deltas) if delta]
    assert sounding == list(range(len(sounding))), "sound came after it was blanked"
    assert "" in deltas
    words = [event["delta"] for event in wire.seen if event["type"] == "response.output_audio_transcript.delta"]
    done = next(event for event in wire.seen if event["type"] == "response.output_audio_transcript.done")
    assert "".join(words) == done["transcript"]


async def test_a_slow_reader_does_not_make_the_transport_grow() -> None:
    async with serving(stage=HeldStage(1000)) as served, Wire.to(served.url + DUPLEX) as wire:
        await wire.next()
        wire.socket.transport.pause_reading()
        await asked(wire)
        await durable(served, 1000)
        sizes = [connection.buffered for connection in served.server.websockets]
        assert sizes
        assert max(sizes) <= HANDED
        wire.socket.transport.resume_reading()
        await wire.send("session.close")
        await wire.until("session.closed")


@rule("D33.14")
async def test_a_reader_that_is_too_slow_is_cut_off_and_may_come_back() -> None:
    pieces = 5000  # 19 MB of sound
    async with serving(stage=HeldStage(pieces)) as served:
        async with Wire.to(served.url + DUPLEX) as wire:
            created = await wire.next()
            wire.socket.transport.pause_reading()
            await asked(wire)
            await durable(served, pieces)
            await becomes(lambda: not served.hub.statistics().attached)
            wire.socket.transport.resume_reading()
            assert await wire.closed() == (1008, "slow_consumer")
        async with Wire.to(served.url + "?duplex=1") as again:
            await again.send(
                "session.resume",
                session_id=created["session"]["id"],
                resume_token=created["resume_token"],
                last_received_server_event_seq=wire.numbers()[-1],
            )
            assert (await again.next())["type"] == "session.resumed"
            assert (await again.next())["server_event_seq"] == wire.numbers()[-1] + 1
            await again.send("response.cancel")
            await again.until("response.done")
    numbers = wire.numbers() + again.numbers()
    assert numbers == list(range(1, len(numbers) + 1))


class BrokenLog(MemoryLog):
    """A log whose disk is full from some moment on."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False

    def append(
        self, session: str, transaction: Transaction, samples: Sequence[SampleWrite], settled: Settled
    ) -> None:
        """Record, or fail soon."""
        if self.full:
            error = Unavailable("the disk is full")
            anyio.lowlevel.current_token().native_token.call_soon(settled, error)  # type: ignore[attr-defined]
        else:
            super().append(session, transaction, samples, settled)

    async def probe(self) -> None:
        """Fail while it is full."""
        if self.full:
            raise Unavailable("the disk is full")
        await super().probe()


@pytest.mark.parametrize("query", ["", DUPLEX])
async def test_a_full_disk_is_told(query: str) -> None:
    log = BrokenLog()
    async with serving(log=log) as served, Wire.to(served.url + query) as wire:
        await wire.next()
        log.full = True
        await wire.send("session.heartbeat")
        error = await wire.error()
        assert (error["code"], error["retryable"]) == ("storage_unavailable", True)
        assert "server_event_seq" not in wire.seen[-1]
        assert (await wire.closed())[0] == 1013
        assert await got(served.http + "/health") == (
            503,
            {"status": "unhealthy", "reason": "sessions cannot be recorded: the disk is full"},
        )
        log.full = False
        async with Wire.to(served.url) as another:
            await another.next()
        assert await got(served.http + "/health") == (200, {"status": "healthy"})


async def test_no_more_than_agreed_waits_whatever_one_transaction_says(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0
    real = WebSocket.fill

    def fill(socket: WebSocket, messages: Iterable[bytes]) -> int:
        nonlocal most
        taken = real(socket, messages)
        most = max(most, socket.buffered)
        return taken

    monkeypatch.setattr(WebSocket, "fill", fill)
    async with serving() as served, Wire.to(served.url + DUPLEX) as wire:
        await wire.next()
        wire.socket.transport.pause_reading()
        text = {"type": "input_text", "text": "x" * 180_000}
        for _ in range(80):  # each is told by three messages of one transaction: 540 kB
            await wire.send("conversation.item.create", item={"type": "message", "role": "user", "content": [text]})
        await becomes(lambda: most > 0)
        wire.socket.transport.resume_reading()
        while wire.kinds().count("conversation.item.done") < 80:
            await wire.next()
    assert most <= HANDED


async def test_messages_in_fragments() -> None:
    async with serving() as served, Wire.to(served.url) as wire:
        await wire.next()
        frame = json.dumps({"type": "session.heartbeat", "x": "é" * 50})
        await wire.socket.send([frame[:10], frame[10:60], frame[60:]])
        assert (await wire.next())["type"] == "session.heartbeat_ack"


async def test_pings_are_answered() -> None:
    async with serving() as served, Wire.to(served.url) as wire:
        with anyio.fail_after(5):
            await (await wire.socket.ping())
        event: dict[str, Any] = await wire.next()
        assert event["type"] == "session.created"


@rule("D7")
async def test_an_error_of_ours_ends_one_session_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    real = connection.project

    def faulty(entry: Published, reader: Reader, epoch: int) -> tuple[Message, ...]:
        if any(isinstance(event, ItemCreated) for event in entry.transaction.events):
            raise ZeroDivisionError
        return real(entry, reader, epoch)

    monkeypatch.setattr(connection, "project", faulty)
    async with serving() as served, Wire.to(served.url + DUPLEX) as good, Wire.to(served.url + DUPLEX) as bad:
        await good.next()
        session = (await bad.next())["session"]["id"]
        with capture_logs() as logged:
            await asked(bad)
            assert (await bad.error())["code"] == "realtime_input_failed"
            assert await bad.closed() == (1011, "internal_error")
        assert [entry["session"] for entry in logged if entry["log_level"] == "error"] == [session]
        await good.send("session.heartbeat")
        assert (await good.next())["type"] == "session.heartbeat_ack"
        await becomes(lambda: served.hub.statistics().admitted == 1)


FAULTY = [
    {"type": "response.cancel", "event_id": "faulty"},
    {"type": "session.update", "event_id": "faulty", "session": {}},
]


@rule("D7")
@pytest.mark.parametrize("query", ["", DUPLEX])
@pytest.mark.parametrize("event", FAULTY, ids=["at once", "when it is understood"])
async def test_an_error_of_ours_in_the_reading_ends_one_session_too(
    monkeypatch: pytest.MonkeyPatch, event: dict[str, Any], query: str
) -> None:
    real = intake.decode

    def build(_config: SessionConfig) -> Understood:
        raise ZeroDivisionError

    def faulty(frame: bytes, reading: Reading, config: SessionConfig | None) -> Decoded:
        if b"faulty" not in frame:
            return real(frame, reading, config)
        if b"session.update" not in frame:
            raise ZeroDivisionError
        return Undecided(build=build, size=0)

    monkeypatch.setattr(intake, "decode", faulty)
    async with serving() as served, Wire.to(served.url + query) as good, Wire.to(served.url + query) as bad:
        await good.next()
        session = (await bad.next())["session"]["id"]
        with capture_logs() as logged:
            await bad.send("session.update", session={"instructions": "x"})
            await bad.raw(json.dumps(event))
            assert (await bad.closed()) == (1011, "internal_error")
            assert bad.seen[-1]["error"]["code"] == "realtime_input_failed"
        assert [entry["session"] for entry in logged if entry["log_level"] == "error"] == [session]
        await becomes(lambda: served.hub.statistics().admitted == 1)
        recorded = await served.log.read(session, 0, 1000)
        ends = [event for entry in recorded for event in entry.events if isinstance(event, SessionClosed)]
        assert [end.reason for end in ends] == ["transport_error"]
        await good.send("session.heartbeat")
        assert (await good.next())["type"] == "session.heartbeat_ack"
