"""The in-process client: what a socket client can do, without the socket."""

import anyio
import pytest

from antiphon.engine.direct import DirectClient, NotConnected
from antiphon.engine.errors import Refused
from antiphon.engine.hub import Hub
from antiphon.engine.settings import HubSettings
from antiphon.events.audio import AudioFormat
from antiphon.events.commands import CloseSession
from antiphon.events.config import ConfigPatch, TurnDetection
from antiphon.events.events import (
    AudioDelta,
    ConfigUpdated,
    ErrorReported,
    InputCleared,
    ItemCreated,
    ItemDeleted,
    ItemTruncated,
    OutputCleared,
    OutputStarted,
    PlaybackAcknowledged,
    ResponseEnded,
    SessionClosed,
    SessionOpened,
    SessionResumed,
    SessionTouched,
    TurnSignalled,
)
from antiphon.stages.echo import EchoStage

from .worlds import Listener, settle, world
from tests.rules import rule

pytestmark = pytest.mark.anyio

PCM = b"\x00\x20" * 4_000


async def hear(client: DirectClient, kind: type[object]) -> Listener:
    """Read until an event of a kind has come."""
    listener = Listener(client)
    async for heard in client.events():
        listener.heard.append(heard)
        if isinstance(heard.event, kind):
            break
    return listener


def same_rate() -> ConfigPatch:
    return ConfigPatch(output_format=AudioFormat("pcm16", 16_000))


def listening() -> ConfigPatch:
    """The model listens all the time and answers on its own."""
    return ConfigPatch(auto_response=True, output_format=AudioFormat("pcm16", 16_000))


async def test_a_spoken_turn_comes_back_with_its_sound() -> None:
    async with world(EchoStage()) as here, DirectClient(here.hub, patch=same_rate()) as client:
        client.append_audio(PCM, speech=True)
        client.commit(create_response=True)
        listener = await hear(client, ResponseEnded)
        assert listener.sound == PCM
        assert listener.names[0] == "SessionOpened"
        (ended,) = listener.all(ResponseEnded)
        assert isinstance(ended, ResponseEnded)
        assert ended.status == "completed"
        assert ended.text == 'You said: "[250 ms of speech]"'


async def test_a_model_that_listens_all_the_time_answers_every_piece() -> None:
    async with world(EchoStage()) as here, DirectClient(here.hub, patch=listening()) as client:
        for _ in range(5):
            client.append_audio(PCM, speech=True)
        heard = b""
        async for event in client.events():
            heard += event.sound
            if len(heard) == 5 * len(PCM):
                break
        assert heard == 5 * PCM


async def test_every_method_reaches_the_session() -> None:
    async with world(EchoStage()) as here, DirectClient(here.hub, patch=same_rate()) as client:
        client.append_audio(PCM, speech=True, transcript="hello")
        client.clear_input()
        await hear(client, InputCleared)
        client.update_session(ConfigPatch(instructions="Speak."))
        await hear(client, ConfigUpdated)
        client.heartbeat()
        await hear(client, SessionTouched)
        client.append_audio(PCM, speech=True)
        client.commit(create_response=True)
        answered = await hear(client, ResponseEnded)
        (started,) = answered.all(OutputStarted)
        assert isinstance(started, OutputStarted)
        client.ack_playback(100, started.response_id)
        await hear(client, PlaybackAcknowledged)
        client.truncate(started.item.id, 120)
        await hear(client, ItemTruncated)
        client.send_text("bye")
        await hear(client, ItemCreated)
        client.append_text("Look ")
        client.signal_turn("user_started")
        await hear(client, TurnSignalled)
        client.clear_output()
        await hear(client, OutputCleared)
        client.delete_item(started.item.id)
        await hear(client, ItemDeleted)
        client.acknowledge()
        assert client.attachment.feed.window.acknowledged == client.last_number
        client.barge_in()
        client.cancel_response()
        client.create_response()
        await hear(client, ResponseEnded)


@rule("L6", "B10", "L13")
async def test_an_update_in_the_process_is_checked_like_one_of_the_wire() -> None:
    async with world(EchoStage()) as here, DirectClient(here.hub, patch=same_rate()) as client:
        (opened,) = (await hear(client, SessionOpened)).all(SessionOpened)
        assert isinstance(opened, SessionOpened)
        wrong = ConfigPatch(input_format=AudioFormat("wav", 1), turn_detection=TurnDetection(threshold=9))
        client.update_session(wrong)
        (error,) = (await hear(client, ErrorReported)).all(ErrorReported)
        assert isinstance(error, ErrorReported)
        assert error.code == "unsupported_audio_format"
        client.update_session(ConfigPatch(turn_detection=TurnDetection(threshold=9)))
        (error,) = (await hear(client, ErrorReported)).all(ErrorReported)
        assert isinstance(error, ErrorReported)
        assert error.code == "unsupported_turn_detection"
        client.update_session(ConfigPatch())
        (updated,) = (await hear(client, ConfigUpdated)).all(ConfigUpdated)
        assert isinstance(updated, ConfigUpdated)
        assert updated.view == opened.view
        with pytest.raises(Refused) as refused:
            await DirectClient(here.hub, patch=wrong).__aenter__()
        assert refused.value.code == "unsupported_audio_format"


@rule("L14", "Q4.16")
async def test_a_signal_may_end_the_session() -> None:
    async with world(EchoStage()) as here, DirectClient(here.hub, patch=same_rate()) as client:
        client.signal_turn("timeout")
        listener = await hear(client, SessionClosed)
        assert listener.names[-2:] == ["TurnSignalled", "SessionClosed"]
        await client.attachment.wait_ended()
        assert here.hub.statistics().admitted == 0


@rule("D34", "P49")
async def test_a_dropped_client_resumes_with_exactly_what_it_missed() -> None:
    async with world(EchoStage()) as here, DirectClient(here.hub, patch=same_rate()) as client:
        first = Listener(client)
        client.append_audio(PCM, speech=True)
        client.commit(create_response=True)
        async for heard in client.events():
            first.heard.append(heard)
            if isinstance(heard.event, AudioDelta):
                break
        await settle()
        await client.drop()
        with pytest.raises(NotConnected):
            client.heartbeat()
        await here.advance(5_000)
        await client.resume()
        rest = await hear(client, ResponseEnded)
        assert first.sound + rest.sound == PCM
        client.heartbeat()
        rest.heard += (await hear(client, SessionTouched)).heard
        numbers = first.numbers + rest.numbers
        assert numbers == sorted(set(numbers))
        assert client.attachment.generation == 2


@rule("D24")
async def test_a_second_resume_replaces_the_first_connection() -> None:
    async with world() as here, DirectClient(here.hub) as client, anyio.create_task_group() as group:
        old = client.attachment
        listener = Listener(client)
        group.start_soon(listener.run)
        await settle()
        await client.resume()
        await settle()
        assert old.ended == "replaced"
        group.cancel_scope.cancel()


@rule("P49", "D23")
async def test_who_leaves_what_was_missed_and_takes_it_up_again_misses_nothing() -> None:
    async with world() as here, DirectClient(here.hub) as client:
        for _ in range(3):
            client.heartbeat()
        await settle()
        await client.drop()
        await client.resume()
        client.heartbeat()
        await settle()
        async for _ in client.events():
            break
        assert client.last_number == 1
        heard = (await hear(client, SessionResumed)).heard
        async for one in client.events():
            heard.append(one)
            break
        assert [one.event.number for one in heard] == [2, 3, 0, 4], "once each, and the word between"


@rule("D23")
async def test_what_has_no_number_is_not_said_again() -> None:
    """An older connection's opening and resuming were its own; a socket client does not hear them twice either."""
    async with world() as here, DirectClient(here.hub) as client:
        client.heartbeat()
        for _ in range(2):
            await client.drop()
            await client.resume()
        listener = await hear(client, SessionResumed)
        assert listener.names == ["SessionTouched", "SessionResumed"]
        (resumed,) = listener.all(SessionResumed)
        assert isinstance(resumed, SessionResumed)
        assert resumed.attachment == client.attachment.generation == 3


@rule("M17")
async def test_leaving_closes_the_session_and_the_reader_ends() -> None:
    async with world() as here, anyio.create_task_group() as group:
        async with DirectClient(here.hub) as client:
            listener = Listener(client)
            group.start_soon(listener.run)
            await settle()
        await settle()
        assert listener.ended
        assert listener.names[-1] == "SessionClosed"
        (closed,) = await here.commands(client.session, CloseSession)
        assert isinstance(closed, CloseSession)
        assert closed.reason == "client_close"
        assert isinstance((await here.events(client.session))[-1], SessionClosed)


@rule("D8")
async def test_a_session_of_the_ga_dialect_ends_with_its_connection() -> None:
    async with world() as here:
        async with DirectClient(here.hub, dialect="ga") as client:
            with pytest.raises(NotConnected):
                await client.resume()
            await client.drop()
            await settle()
        assert isinstance((await here.events(client.session))[-1], SessionClosed)
        assert here.hub.session(client.session) is None


@rule("P57")
async def test_sessions_do_not_hear_one_another() -> None:
    async def one(hub: Hub, value: int) -> None:
        pcm = bytes([value, 32]) * 1_000
        async with DirectClient(hub, patch=listening()) as client:
            for _ in range(20):
                client.append_audio(pcm, speech=True)
            sound = b""
            async for heard in client.events():
                sound += heard.sound
                if len(sound) == 20 * len(pcm):
                    break
            assert sound == 20 * pcm

    async with world(EchoStage(), settings=HubSettings(max_sessions=20, shutdown_ms=200)) as here:
        async with anyio.create_task_group() as group:
            for value in range(20):
                group.start_soon(one, here.hub, value)
        assert here.hub.statistics().closed == 20
