"""The socket client against a real server: everything once and in order, over any number of sockets."""

import anyio
import anyio.lowlevel
import pytest

from antiphon.engine.attachment import Attachment
from antiphon.engine.clock import VirtualClock
from antiphon.engine.memory_log import MemoryLog
from antiphon.transport import client_outbox
from antiphon.transport import wire_server as out
from antiphon.transport.client import RealtimeClient, Retrying, SessionLost, SessionOptions
from antiphon.transport.client_events import Received, Unknown, number_of, read
from antiphon.transport.client_link import Link, Refused

from .serving import Wire, becomes, serving
from tests.rules import rule

pytestmark = pytest.mark.anyio

PIECE = b"\x10\x20" * 1280  # 80 ms at 16 kHz
QUIET = SessionOptions(modalities=["audio", "text"], turn_detection=None)
WRITTEN = SessionOptions(modalities=["text"], turn_detection=None)


async def until_done(client: RealtimeClient) -> list[Received]:
    seen: list[Received] = []
    with anyio.fail_after(10):
        async for event in client.events():
            seen.append(event)
            if isinstance(event, out.RateLimits):
                break
    return seen


@rule("L14")
async def test_words_and_signals_of_a_turn() -> None:
    async with serving() as served, RealtimeClient(served.url, WRITTEN) as client:
        client.append_text("hello ")
        client.append_text("there")
        client.signal_turn("user_started")
        client.signal_turn("session.update", {"instructions": "Be brief.", "theme": "dark"})
        client.commit(create_response=True)
        seen = await until_done(client)
        (signalled,) = [event for event in seen if isinstance(event, out.TurnEvent)]
        assert (signalled.event, signalled.turn_state) == ("user_started", "user_speaking")
        assert client.session is not None
        assert client.session.instructions == "Be brief."
        assert (
            "".join(event.delta for event in seen if isinstance(event, out.TextDeltaOut))
            == 'You said: "hello there"'
        )


async def test_a_written_turn() -> None:
    async with serving() as served, RealtimeClient(served.url, WRITTEN) as client:
        client.send_text("hello there")
        client.create_response()
        seen = await until_done(client)
        words = "".join(event.delta for event in seen if isinstance(event, out.TextDeltaOut))
        assert "hello there" in words
        assert client.session is not None
        assert client.session.output_modalities == ("text",)
    assert client.session_id.startswith("duplex-")


async def test_a_spoken_turn_and_its_playback() -> None:
    async with serving() as served, RealtimeClient(served.url, QUIET) as client:
        for _ in range(10):
            client.append_audio(PIECE)
        client.commit(create_response=True)
        seen = await until_done(client)
        deltas = [event for event in seen if isinstance(event, out.AudioDeltaOut)]
        metadata = deltas[-1].metadata
        assert isinstance(metadata, out.DeltaMetadata)
        assert metadata.audio_duration_ms == pytest.approx(800, abs=5)
        client.ack_playback(deltas[0].response_id, 800)
        played = await client.wait_for(out.PlaybackAcknowledgedOut)
        assert played.event.played_ms == 800


async def test_waiting_keeps_what_comes_before() -> None:
    async with serving() as served, RealtimeClient(served.url, WRITTEN) as client:
        client.send_text("a")
        client.create_response()
        done = await client.wait_for(out.ResponseDone)
        assert done.response.status == "completed"
        kinds: list[type[object]] = []
        async for event in client.events():
            kinds.append(type(event))
            if isinstance(event, out.TextDone):
                break
        assert kinds[:2] == [out.SessionCreated, out.SessionUpdated]
        assert out.ItemAdded in kinds


@rule("D20")
async def test_a_lost_socket_loses_nothing_and_doubles_nothing() -> None:
    async with serving() as served, RealtimeClient(served.url, QUIET) as client:
        await client.wait_for(out.SessionUpdated)
        for index in range(40):
            client.append_audio(PIECE)
            if index in (10, 25):
                await anyio.lowlevel.checkpoint()
                client.drop_socket()
        client.commit(create_response=True)
        seen = await until_done(client)
        numbers = [number_of(event) for event in seen if number_of(event)]
        assert numbers == sorted(set(numbers))
        done = next(event for event in seen if isinstance(event, out.ResponseDone))
        assert done.response.status == "completed"
        deltas = [event for event in seen if isinstance(event, out.AudioDeltaOut)]
        metadata = deltas[-1].metadata
        assert isinstance(metadata, out.DeltaMetadata)
        assert metadata.audio_duration_ms == pytest.approx(3200, abs=5)
        assert client.generation >= 2


@rule("D20", "P49")
async def test_every_number_arrives_once_when_sockets_die_during_an_answer() -> None:
    async with serving() as served, RealtimeClient(served.url, QUIET) as client:
        for _ in range(50):
            client.append_audio(PIECE)
        client.commit(create_response=True)
        numbers: list[int] = []
        cuts = 0
        with anyio.fail_after(20):
            async for event in client.events():
                if number_of(event):
                    numbers.append(number_of(event))
                if isinstance(event, out.AudioDeltaOut) and cuts < 2 and len(numbers) > 20 * (cuts + 1):
                    cuts += 1
                    client.drop_socket()
                if isinstance(event, out.RateLimits):
                    break
        assert numbers == list(range(1, numbers[-1] + 1))


async def test_what_the_client_keeps_is_forgotten_when_a_heartbeat_is_answered() -> None:
    async with serving() as served, RealtimeClient(served.url, QUIET) as client:
        client.append_audio(PIECE)
        client.heartbeat()
        await client.wait_for(out.HeartbeatAck)
        assert client._line.outbox.size == 0  # pyright: ignore[reportPrivateUsage]


@rule("O1")
async def test_refusals_are_events_and_end_nothing() -> None:
    async with serving() as served, RealtimeClient(served.url, WRITTEN) as client:
        client.cancel_response()
        error = await client.wait_for(out.ErrorOut)
        assert error.error.code == "response_not_active"
        client.send_text("still there")
        client.create_response()
        await client.wait_for(out.ResponseDone)


async def test_a_session_that_ended_is_told() -> None:
    async with serving() as served:
        async with RealtimeClient(served.url, WRITTEN) as client:
            await client.close("enough")
            ends = [event async for event in client.events() if isinstance(event, out.SessionClosedOut)]
            assert [event.reason for event in ends] == ["enough"]
        with pytest.raises(SessionLost) as lost:
            async with RealtimeClient(f"http://127.0.0.1:{served.server.port}/nowhere"):
                pass
        assert lost.value.code == "http_404"


@rule("D36")
async def test_an_error_of_the_application_comes_out_as_it_is_and_closes_the_session() -> None:
    async with serving() as served:
        with pytest.raises(ZeroDivisionError):
            async with RealtimeClient(served.url, WRITTEN):
                raise ZeroDivisionError
        await becomes(lambda: not served.hub.statistics().admitted)


@rule("D35")
async def test_a_session_that_is_gone_is_lost() -> None:
    log = MemoryLog()
    async with serving(log=log) as served:
        retrying = Retrying(shortest_s=0.01, longest_s=0.01, attempts=3)

        async def listen() -> None:
            async with RealtimeClient(served.url, WRITTEN, retrying=retrying) as client:
                served.server.stop()
                async for _ in client.events():
                    pass

        with pytest.raises(SessionLost) as lost:
            await listen()
        assert lost.value.code == "disconnected"
    kinds = [row.state for row in await log.sessions()]
    assert kinds == ["open"], "a session that can be resumed outlives its server"


async def test_sound_is_sent_as_fast_as_it_is_spoken() -> None:
    clock = VirtualClock()
    async with serving() as served, RealtimeClient(served.url, QUIET, clock=clock) as client:
        await client.wait_for(out.SessionUpdated)
        spoken: list[int] = []

        async def speak() -> None:
            await client.stream_pcm(PIECE * 5, rate=16_000)
            spoken.append(clock.monotonic_us())

        async with anyio.create_task_group() as group:
            group.start_soon(speak)
            for _ in range(5):
                await anyio.wait_all_tasks_blocked()
                assert not spoken
                clock.advance(80_000)
            await becomes(lambda: bool(spoken))
        assert spoken == [400_000]


async def test_nobody_there() -> None:
    with pytest.raises(SessionLost) as lost:
        async with RealtimeClient("ws://127.0.0.1:1"):
            pass
    assert lost.value.code == "disconnected"


def test_what_is_not_known_is_kept_as_it_came() -> None:
    frame = b'{"type":"x.y","event_id":"e","server_event_seq":7}'
    event = read(frame)
    assert event == Unknown(type="x.y", number=7, raw=frame)
    assert number_of(event) == 7


async def test_a_command_that_is_refused_at_the_edge_does_not_stop_the_next_ones() -> None:
    async with serving() as here, RealtimeClient(here.url) as client:
        client.append_audio(b"abc")
        client.heartbeat()
        assert (await client.wait_for(out.ErrorOut)).error.code == "bad_audio"
        client.send_text("Still there.")
        await client.wait_for(out.ItemDone)


FAST = Retrying(shortest_s=0.01, longest_s=0.01, attempts=3)


async def listened(client: RealtimeClient) -> str:
    """Read to the end; return the code of the loss."""
    with pytest.raises(SessionLost) as lost, anyio.fail_after(10):
        async for _ in client.events():
            pass
    return lost.value.code


@rule("D24")
async def test_a_session_that_somebody_else_took_is_lost() -> None:
    async with serving() as served, RealtimeClient(served.url, QUIET, retrying=FAST) as client:
        created = await client.wait_for(out.SessionCreated)
        await client.wait_for(out.SessionUpdated)
        async with Wire.to(served.url + "?duplex=1") as other:
            await other.send(
                "session.resume",
                session_id=client.session_id,
                resume_token=str(created.resume_token),
                last_received_server_event_seq=client.last_number,
            )
            assert (await other.next())["type"] == "session.resumed"
            assert await listened(client) == "session_replaced"
            with pytest.raises(SessionLost):
                client.heartbeat()


async def test_a_heartbeat_that_finds_no_room_ends_the_session_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    async with serving() as served, RealtimeClient(served.url, QUIET, clock=clock) as client:
        await client.wait_for(out.SessionUpdated)
        monkeypatch.setattr(client_outbox, "LARGEST", -1)
        await anyio.wait_all_tasks_blocked()
        clock.advance(10_000_000)
        assert await listened(client) == "overfull"


@rule("D25")
async def test_a_withdrawn_resume_leaves_the_token_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard = Attachment.heard

    def deaf(attachment: Attachment) -> None:
        if attachment.generation != 2:
            heard(attachment)

    monkeypatch.setattr(Attachment, "heard", deaf)
    clock = VirtualClock()
    async with (
        serving(clock=clock) as served,
        RealtimeClient(served.url, QUIET, retrying=FAST) as client,
    ):
        await client.wait_for(out.SessionUpdated)
        client.drop_socket()
        await client.wait_for(out.SessionResumed)
        clock.advance(10_000_000)
        again = await client.wait_for(out.SessionResumed)
        assert again.attachment_generation == 3
        client.heartbeat()
        await client.wait_for(out.HeartbeatAck)


@rule("D35")
async def test_a_token_that_is_no_good_is_tried_once_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def resume(_link: Link, _session: str, token: str, _last: int) -> out.SessionResumed:
        asked.append(token)
        raise Refused("invalid_resume_token", "no", final=True)

    async with serving() as served, RealtimeClient(served.url, QUIET, retrying=FAST) as client:
        await client.wait_for(out.SessionUpdated)
        client.drop_socket()
        await client.wait_for(out.SessionResumed)
        monkeypatch.setattr(Link, "resume", resume)
        client.drop_socket()
        assert await listened(client) == "invalid_resume_token"
    assert len(asked) == len(set(asked)) == 2
