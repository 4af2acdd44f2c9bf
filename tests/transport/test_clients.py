"""One contract for both clients: the same scenarios over sockets and in the client's own process."""

from collections.abc import Callable
from contextlib import suppress

import anyio
import anyio.lowlevel
import msgspec
import pytest

from antiphon.stages.scripted import Cue, Finish, Say, ScriptedStage
from antiphon.transport import client_inbox, client_response
from antiphon.transport import wire_server as out
from antiphon.transport.client import (
    Response,
    SessionClient,
    SessionLost,
    SessionOptions,
    SoundDropped,
)
from antiphon.transport.client_events import Missed, Received, number_of
from antiphon.transport.client_link import Cut, Link, WebsocketLink
from antiphon.transport.wire_client import Resume

from .client_places import PLACES, CallingStage, placed
from .held import HeldStage
from .serving import becomes
from tests.rules import rule

pytestmark = pytest.mark.anyio

PIECE = b"\x10\x20" * 1280  # 80 ms at 16 kHz
QUIET = SessionOptions(modalities=["audio", "text"], turn_detection=None)
WRITTEN = SessionOptions(modalities=["text"], turn_detection=None)
SPOKEN_MS = 800


@pytest.fixture(params=list(PLACES))
def kind(request: pytest.FixtureRequest) -> str:
    """Where the client finds its session."""
    chosen: str = request.param
    return chosen


async def first(client: SessionClient) -> Response:
    """Return the next answer."""
    with anyio.fail_after(10):
        async for response in client.responses():
            return response
    raise AssertionError("there was no answer")


async def sounds(response: Response) -> bytes:
    """Return the whole sound of an answer."""
    heard = b""
    with anyio.fail_after(10):
        async for piece in response.audio():
            assert (piece.rate, piece.encoding) == (24_000, "pcm16")
            heard += piece.data
    return heard


def speak(client: SessionClient, pieces: int = 10) -> None:
    """Say something, and ask for an answer."""
    for _ in range(pieces):
        client.append_audio(PIECE)
    client.commit(create_response=True)


async def until(client: SessionClient, kind: type[out.ServerEvent], take: Callable[[Received], None]) -> None:
    """Read events up to one of a kind."""
    with anyio.fail_after(10):
        async for event in client.events():
            take(event)
            if isinstance(event, kind):
                return


async def test_a_written_turn(kind: str) -> None:
    async with placed(kind) as place, place.client(WRITTEN) as client:
        client.send_text("hello there")
        client.create_response()
        response = await first(client)
        assert [words async for words in response.text()] != []
        done = await response.done()
        assert response.words == 'You said: "hello there"'
        assert (response.status, done.status, response.reason) == ("completed", "completed", None)
        assert response.usage == done.usage
        assert response.item_ids == (done.output[0].id,)
        assert client.session_id.startswith("duplex-")


async def test_a_spoken_turn(kind: str) -> None:
    async with placed(kind) as place, place.client(QUIET) as client:
        speak(client)
        response = await first(client)
        assert len(await sounds(response)) == pytest.approx(SPOKEN_MS * 48, abs=500)
        client.ack_playback(response.id, SPOKEN_MS)
        played = await client.wait_for(out.PlaybackAcknowledgedOut)
        assert played.event.played_ms == SPOKEN_MS


async def test_events_and_responses_at_the_same_time(kind: str) -> None:
    async with placed(kind) as place, place.client(QUIET) as client:
        numbers: list[int] = []
        heard: list[bytes] = []

        async def listen() -> None:
            await until(client, out.RateLimits, lambda event: numbers.append(number_of(event)))

        async with anyio.create_task_group() as group:
            group.start_soon(listen)
            for _ in range(2):
                speak(client)
                response = await first(client)
                heard.append(await sounds(response))
                await response.done()
        assert [number for number in numbers if number] == list(range(1, max(numbers) + 1))
        assert heard[0] == heard[1]


@rule("D20", "P49")
async def test_a_connection_that_is_lost_during_an_answer_loses_nothing(kind: str) -> None:
    async with placed(kind) as place, place.client(QUIET) as client:
        cuts: list[int] = []
        numbers: list[int] = []

        def take(event: Received) -> None:
            if number_of(event):
                numbers.append(number_of(event))
            if isinstance(event, out.AudioDeltaOut) and len(cuts) < 2 and len(numbers) > 20 * (len(cuts) + 1):
                cuts.append(number_of(event))
                client.drop_socket()

        speak(client, 50)
        await until(client, out.RateLimits, take)
        assert numbers == list(range(1, numbers[-1] + 1))
        assert client.generation >= 2
        response = await first(client)
        assert len(await sounds(response)) == pytest.approx(4_000 * 48, abs=500), "it was kept for who comes late"


@rule("D20")
async def test_commands_are_applied_once_over_any_number_of_connections(kind: str) -> None:
    async with placed(kind) as place, place.client(QUIET) as client:
        await client.wait_for(out.SessionUpdated)
        for index in range(40):
            client.append_audio(PIECE)
            if index in (3, 10, 25):
                await anyio.lowlevel.checkpoint()
                client.drop_socket()
        client.commit(create_response=True)
        assert len(await sounds(await first(client))) == pytest.approx(3_200 * 48, abs=500)
        assert client.generation >= 2


@rule("D20", "D25")
async def test_an_answer_to_a_resume_that_is_lost_is_asked_for_again(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resume, asked = Link.resume, list[str]()

    async with placed(kind) as place, place.client(QUIET) as client:

        async def lost_once(link: Link, session: str, token: str, last: int) -> object:
            asked.append(token)
            if len(asked) > 1:
                return await resume(link, session, token, last)
            if isinstance(link, WebsocketLink):
                link._socket.transport.pause_reading()  # pyright: ignore[reportPrivateUsage]
            say = Resume(session_id=session, resume_token=token, last_received_server_event_seq=last)
            await link.send(msgspec.json.encode(say))
            await becomes(lambda: place.hub.statistics().resumed == 1)
            link.cut()
            raise Cut("lost on its way")

        await client.wait_for(out.SessionUpdated)
        monkeypatch.setattr(Link, "resume", lost_once)
        speak(client)
        client.drop_socket()
        resumed = await client.wait_for(out.SessionResumed)
        assert len(await sounds(await first(client))) == pytest.approx(SPOKEN_MS * 48, abs=500)
        assert resumed.attachment_generation == 3
        assert len(asked) == 2
        assert asked[0] == asked[1], "the token was not used up by an answer that nobody heard"


@rule("D20")
async def test_a_session_outlives_its_server(kind: str) -> None:
    async with placed(kind) as place, place.client(WRITTEN) as client:
        name = client.session_id
        await client.wait_for(out.SessionUpdated)
        await place.restart()
        client.send_text("still there?")
        client.create_response()
        response = await first(client)
        await response.done()
        assert "still there?" in response.words
        assert (client.session_id, client.generation) == (name, 2)


async def test_an_answer_that_a_server_was_stopped_in_has_failed(kind: str) -> None:
    async with placed(kind, HeldStage) as place, place.client(QUIET) as client:
        speak(client)
        response = await first(client)
        await client.wait_for(out.AudioDeltaOut)
        await place.restart()
        done = await response.done()
        assert done.status == "failed"
        assert done.status_details is not None
        assert isinstance(done.status_details.error, out.FailureOut)
        assert done.status_details.error.code == "engine_restarted"


async def test_a_slow_reader_holds_up_the_session_and_misses_nothing(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_inbox, "HELD", 8)
    async with placed(kind) as place, place.client(QUIET) as client:
        events = client.events()
        seen = [await anext(events)]
        speak(client, 50)
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(0.2):
            await becomes(lambda: client.last_number > 16)
        assert client.last_number <= 16, "it was read no further"
        with anyio.fail_after(10):
            while not isinstance(seen[-1], out.RateLimits):
                seen.append(await anext(events))
        numbers = [number_of(event) for event in seen if number_of(event)]
        assert numbers == list(range(1, numbers[-1] + 1))


async def test_who_never_reads_is_told_what_is_missing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_inbox, "KEPT", 5)
    async with placed(kind) as place, place.client(QUIET) as client:
        speak(client)
        await (await first(client)).done()
        await client.close()
        events = [event async for event in client.events()]
        missed = events[0]
        assert isinstance(missed, Missed)
        assert number_of(events[1]) == missed.last_number + 1
        assert missed.count > missed.last_number, "those without a number count too"
        assert len(events) == 1 + 5


async def test_sound_that_nobody_reads_is_dropped_by_name(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_response, "UNREAD", 10_000)
    async with placed(kind) as place, place.client(QUIET) as client:
        speak(client)
        response = await first(client)
        assert (await response.done()).status == "completed"
        with pytest.raises(SoundDropped):
            await sounds(response)


async def test_a_slow_reader_of_sound_holds_up_the_session(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_response, "UNREAD", 10_000)
    stage = ScriptedStage(default=(Say(ms=80), Cue("go on"), *[Say(ms=80)] * 19, Finish()))
    async with placed(kind, lambda: stage) as place, place.client(QUIET) as client:
        speak(client)
        audio = (await first(client)).audio()
        heard = (await anext(audio)).data
        stage.cue("go on")
        with pytest.raises(TimeoutError):
            await client.wait_for(out.ResponseDone, timeout_s=0.2)
        heard += b"".join([piece.data async for piece in audio])
        assert len(heard) == 1_600 * 48


async def test_an_answer_that_is_stopped_has_no_more_sound(kind: str) -> None:
    async with placed(kind, HeldStage) as place, place.client(QUIET) as client:
        speak(client)
        response = await first(client)
        audio = response.audio()
        assert (await anext(audio)).data
        response.cancel()
        done = await response.done()
        assert (done.status, response.cancelled, response.reason) == ("cancelled", True, "client_cancelled")
        assert [piece async for piece in audio] == [], "what was not read yet is void"
        response.cancel()
        client.heartbeat()
        await client.wait_for(out.HeartbeatAck)
        with suppress(TimeoutError):
            await client.wait_for(out.ErrorOut, timeout_s=0.01)
            raise AssertionError("what has ended is not cancelled again")


async def test_a_function_is_called_and_its_output_is_said(kind: str) -> None:
    tools: list[dict[str, object]] = [{"type": "function", "name": "weather", "parameters": {}}]
    options = SessionOptions(modalities=["text"], turn_detection=None, tools=tools)
    async with placed(kind, CallingStage) as place, place.client(options) as client:
        client.send_text("What is the weather in Paris?")
        client.create_response()
        calling = await first(client)
        await calling.done()
        (call,) = calling.calls
        assert (call.name, call.arguments) == ("weather", '{"city":"Paris"}')
        assert calling.item_ids == (call.item_id,)
        client.send_tool_output(call.call_id, {"sun": True}, create_response=True)
        answer = await first(client)
        await answer.done()
        assert answer.words == 'It says {"sun":true}.'


@rule("O1")
async def test_refusals_are_events_and_end_nothing(kind: str) -> None:
    async with placed(kind) as place, place.client(WRITTEN) as client:
        client.cancel_response()
        assert (await client.wait_for(out.ErrorOut)).error.code == "response_not_active"
        client.append_audio(b"abc")
        assert (await client.wait_for(out.ErrorOut)).error.code == "bad_audio"
        client.send_text("still there")
        client.create_response()
        await client.wait_for(out.ResponseDone)


async def test_an_opening_that_is_refused_says_why(kind: str) -> None:
    async with placed(kind) as place:
        with pytest.raises(SessionLost) as lost:
            async with place.client(SessionOptions(input_audio_format="opus")):
                pass
        assert lost.value.code == "unsupported_audio_format"


async def test_closing_is_the_last_word(kind: str) -> None:
    async with placed(kind, HeldStage) as place, place.client(QUIET) as client:
        speak(client)
        response = await first(client)
        await client.wait_for(out.AudioDeltaOut)
        await client.close("enough")
        events = [event async for event in client.events()]
        assert isinstance(events[-1], out.SessionClosedOut)
        assert events[-1].reason == "enough"
        assert (await response.done()).status != "in_progress"
        assert [response async for response in client.responses()] == []
        with pytest.raises(SessionLost):
            await client.wait_for(out.HeartbeatAck)
        await becomes(lambda: not place.hub.statistics().admitted)


@rule("D36")
async def test_an_error_of_the_application_comes_out_as_it_is_and_closes_the_session(kind: str) -> None:
    async with placed(kind) as place:
        with pytest.raises(ZeroDivisionError):
            async with place.client(WRITTEN):
                raise ZeroDivisionError
        await becomes(lambda: not place.hub.statistics().admitted)


async def test_a_session_that_is_gone_is_lost_and_its_answers_with_it(kind: str) -> None:
    async with placed(kind, HeldStage) as place, place.client(QUIET) as client:
        speak(client)
        response = await first(client)
        await client.wait_for(out.AudioDeltaOut)
        session = place.hub.session(client.session_id)
        assert session is not None
        client._line._tokens.clear()  # pyright: ignore[reportPrivateUsage]
        client.drop_socket()
        with pytest.raises(SessionLost) as lost:
            await response.done()
        assert lost.value.code == "disconnected"
        with pytest.raises(SessionLost):
            _ = [piece async for piece in response.audio()]
        with pytest.raises(SessionLost):
            _ = [response async for response in client.responses()]
        with pytest.raises(SessionLost):
            client.commit()


async def test_the_input_format_changes_when_the_server_confirms_it(kind: str) -> None:
    """ar-stages S-I1: not when an update is sent, and not by one that is refused."""
    async with placed(kind) as place, place.client(QUIET) as client:
        before = client.input_format
        assert (before.encoding, before.rate) == ("pcm16", 16_000)
        client.update_session(SessionOptions(input_audio_format="pcm_f32le", sample_rate_hz=24_000))
        assert client.input_format == before
        client.append_audio(PIECE)
        await client.wait_for(out.SessionUpdated)
        await client.wait_for(out.SessionUpdated)
        assert (client.input_format.encoding, client.input_format.rate) == ("pcm_f32le", 24_000)
        client.update_session(SessionOptions(input_audio_format="opus"))
        client.update_session(SessionOptions(sample_rate_hz=16_000))
        await client.wait_for(out.ErrorOut)
        await client.wait_for(out.SessionUpdated)
        assert (client.input_format.encoding, client.input_format.rate) == ("pcm_f32le", 16_000)
        client.append_audio(b"\0\0\0\0" * 1280)
        client.commit(create_response=True)
        assert len(await sounds(await first(client))) == pytest.approx(160 * 48, abs=500), "each in its own format"


async def test_listeners_hear_everything_at_once_until_they_have_enough(kind: str) -> None:
    async with placed(kind) as place, place.client(WRITTEN) as client:
        heard: list[Received] = []
        stop = client.listen(heard.append)
        client.heartbeat()
        await client.wait_for(out.HeartbeatAck)
        assert any(isinstance(event, out.HeartbeatAck) for event in heard)
        stop()
        stop()
        count = len(heard)
        client.heartbeat()
        await client.wait_for(out.HeartbeatAck)
        assert len(heard) == count


async def test_an_error_of_a_listener_ends_the_client_and_comes_out(kind: str) -> None:
    def fault(event: Received) -> None:
        if isinstance(event, out.HeartbeatAck):
            raise ZeroDivisionError

    async def listened(client: SessionClient) -> None:
        client.listen(fault)
        async with client:
            client.heartbeat()
            await client.wait_for(out.ItemDone)

    async with placed(kind) as place:
        with pytest.raises(ExceptionGroup) as errors:
            await listened(place.client(WRITTEN))
        assert errors.group_contains(ZeroDivisionError)


async def test_what_is_waited_for_may_be_described(kind: str) -> None:
    async with placed(kind) as place, place.client(WRITTEN) as client:
        for text in ("one", "two"):
            client.send_text(text)
        second = await client.wait_for(out.ItemDone, lambda event: "two" in repr(event.item))
        client.send_text("three")
        third = await client.wait_for(out.ItemDone, lambda event: event.item.id != second.item.id)
        assert "one" in repr(third.item), "what came before is still there"


async def test_both_clients_hear_the_same() -> None:
    heard: dict[str, list[tuple[str, int]]] = {}
    for kind in PLACES:
        async with placed(kind) as place:
            client = place.client(WRITTEN)
            events = heard[kind] = []
            client.listen(lambda event, to=events: to.append((type(event).__name__, number_of(event))))
            async with client:
                await client.wait_for(out.SessionUpdated)
                speak(client, 20)
                await (await first(client)).done()
                client.update_session(SessionOptions(instructions="Be brief."))
                client.update_session(SessionOptions(input_audio_format="opus"))
                await client.wait_for(out.ErrorOut)
                client.send_text("hello")
                client.create_response()
                await (await first(client)).done()
                await client.wait_for(out.RateLimits)
                await client.wait_for(out.RateLimits)
    assert heard["socket"] == heard["process"]
    assert len(heard["socket"]) > 30
