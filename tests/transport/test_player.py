"""The loudspeaker of a client: what it acknowledges, what it hands to a device, and how it falls silent."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import numpy as np
import pybase64
import pytest

from antiphon.engine.clock import VirtualClock
from antiphon.engine.errors import Refused
from antiphon.stages.scripted import Cue, Finish, Say, ScriptedStage
from antiphon.transport import wire_server as out
from antiphon.transport.client import SessionClient, SessionOptions
from antiphon.transport.devices import NoDevice
from antiphon.transport.inline import InlineClient
from antiphon.transport.playback import Playback
from antiphon.transport.player import AHEAD_US, TICK_US, Player
from antiphon.transport.speaker import Speaker

from .serving import Serving, serving
from tests.rules import rule

pytestmark = pytest.mark.anyio

MS = 1_000
QUIET = SessionOptions(modalities=["audio", "text"], turn_detection=None)


class Device:
    """A loudspeaker that remembers what it was given; `silenced` counts."""

    def __init__(self, latency_us: int = 0) -> None:
        self.latency_us = latency_us
        self.sounded: list[int] = []
        self.silenced = 0
        self.closed = False

    def write(self, sound: bytes, rate: int) -> None:
        assert rate == 24_000
        self.sounded += np.frombuffer(sound, "<i2").tolist()

    def flush(self) -> None:
        self.silenced += 1

    def close(self) -> None:
        self.closed = True


def sound(ms: int, value: int = 100) -> bytes:
    return np.full(ms * 24, value, "<i2").tobytes()


def delta(response: str, data: bytes, **more: object) -> out.AudioDeltaOut:
    shown = {"sample_rate_hz": 24_000, **more}
    return out.AudioDeltaOut(
        response_id=response,
        item_id=f"item_{response}",
        delta=pybase64.b64encode_as_string(data),
        **shown,  # type: ignore[arg-type]
    )


class World:
    """A client whose time stands still until it is moved."""

    def __init__(self, served: Serving, client: SessionClient, clock: VirtualClock) -> None:
        self.served = served
        self.client = client
        self.clock = clock

    async def pass_(self, ms: int) -> None:
        """Let time pass, in steps of a tick."""
        for _ in range(ms * MS // TICK_US):
            self.clock.advance(TICK_US)
            await anyio.wait_all_tasks_blocked()

    def played_ms(self) -> int:
        """Return what the server was told of the newest answer."""
        session = self.served.hub.session(self.client.session_id)
        assert session is not None
        return session.playback.cursor.played_ms


@asynccontextmanager
async def world(*steps: object) -> AsyncIterator[tuple[World, ScriptedStage]]:
    """Lend a client in a world whose stage does what is written."""
    clock = VirtualClock()
    stage = ScriptedStage(default=steps)  # type: ignore[arg-type]
    async with (
        serving(clock=clock, stage=stage) as served,
        InlineClient(served.hub, QUIET, heartbeat_s=10_000) as client,
    ):
        yield World(served, client, clock), stage


def ask(client: SessionClient) -> None:
    client.send_text("Say something.")
    client.create_response()


@rule("I6")
async def test_what_was_played_is_acknowledged_every_fifth_of_a_second_and_at_the_end() -> None:
    async with world(Say("Hello.", 500), Finish()) as (here, _):
        told: list[int] = []
        here.client.listen(
            lambda event: (
                told.append(event.event.played_ms) if isinstance(event, out.PlaybackAcknowledgedOut) else None
            )
        )
        async with Player(here.client) as player:
            ask(here.client)
            await anyio.wait_all_tasks_blocked()
            await here.pass_(400)
            assert told == [200, 400]
            await here.pass_(200)
            assert told == [200, 400, 500], "at the end too, to the millisecond"
            await player.wait_silent()


async def test_a_device_is_handed_everything_once_and_a_little_ahead() -> None:
    device = Device()
    async with world(Say("Hello.", 200), Say("Hello.", 200), Finish()) as (here, _):
        async with Player(here.client, device) as player:
            ask(here.client)
            await anyio.wait_all_tasks_blocked()
            await here.pass_(100)
            heard = player.playback.speaker.played_ms
            response = here.client.session
            assert response is not None
            ahead = len(device.sounded) // 24 - 100
            assert 0 <= ahead <= AHEAD_US // MS
            await here.pass_(400)
            assert len(device.sounded) == 400 * 24
            assert heard is not None
        assert device.closed


@rule("I6")
async def test_an_interruption_silences_the_device_at_once_and_tells_where() -> None:
    device = Device()
    playback = Playback()
    async with (
        world(Say("Hello.", 2_000), Cue("never")) as (here, _),
        Player(here.client, device, playback=playback),
    ):
        ask(here.client)
        await anyio.wait_all_tasks_blocked()
        await here.pass_(500)
        given = len(device.sounded)
        assert device.silenced == 0
        here.client.cancel_response()
        await anyio.wait_all_tasks_blocked()
        assert device.silenced == 1
        (answer,) = playback.answers
        assert answer.heard_ms == pytest.approx(490, abs=10)
        truncated = await here.client.wait_for(out.ItemTruncatedOut)
        assert truncated.audio_end_ms == 400, "what was acknowledged is history already, and holds"
        await here.pass_(500)
        assert len(device.sounded) == given


async def test_whoever_stops_the_player_stops_the_device() -> None:
    device = Device()
    async with world(Say("Hello.", 2_000), Cue("never")) as (here, _), Player(here.client, device) as player:
        ask(here.client)
        await anyio.wait_all_tasks_blocked()
        await here.pass_(200)
        player.stop()
        assert device.silenced == 1
        await here.client.wait_for(out.ItemTruncatedOut)
        await player.wait_silent()


class Broken(Device):
    """A loudspeaker that is unplugged."""

    def write(self, sound: bytes, rate: int) -> None:
        raise NoDevice("it was unplugged")


async def test_a_device_that_fails_ends_the_block_by_name() -> None:
    device = Broken()
    async with world(Say("Hello.", 500), Finish()) as (here, _):

        async def listen() -> None:
            async with Player(here.client, device) as player:
                ask(here.client)
                await anyio.wait_all_tasks_blocked()
                await here.pass_(100)
                await player.wait_silent()
                pytest.fail("it plays on")

        with pytest.raises(NoDevice, match="unplugged"):
            await listen()
        assert device.closed
        here.client.heartbeat()
        await here.client.wait_for(out.HeartbeatAck)


def playing(playback: Playback, response: str = "r") -> None:
    """Two seconds of sound at time 0, sample by sample another value."""
    data = np.arange(48_000, dtype=np.int64).astype("<i2").tobytes()
    playback.handle(delta(response, data), 0)


def paused() -> out.OutputPaused:
    return out.OutputPaused(response_id="r", at_ms=100, reason="interruption_suspected")


def resumed() -> out.OutputResumed:
    return out.OutputResumed(response_id="r", at_ms=100, reason="too_short")


def taken(speaker: Speaker, now_ms: int, until_ms: int) -> list[int]:
    """Return the samples that a device takes."""
    return [int(sample) for piece in speaker.due(now_ms * MS, until_ms * MS) for sample in piece.samples]


def expected(first_ms: int, last_ms: int) -> list[int]:
    return np.arange(first_ms * 24, last_ms * 24, dtype=np.int64).astype("<i2").tolist()


def test_a_pause_takes_back_what_was_handed_ahead_and_goes_on_at_the_sample() -> None:
    playback = Playback()
    speaker = playback.speaker
    speaker.hand_over(0)
    playing(playback)
    assert taken(speaker, 0, 60) == expected(0, 60)
    assert taken(speaker, 50, 110) == expected(60, 110)
    playback.handle(paused(), 80 * MS)
    assert taken(speaker, 90, 150) == []
    assert speaker.played_ms("r", 500 * MS) == 80
    playback.handle(resumed(), 500 * MS)
    assert taken(speaker, 500, 560) == expected(80, 140), "30 ms were silenced in the device, and come again"
    assert speaker.played_ms("r", 540 * MS) == 120


def test_what_a_device_took_too_late_is_heard_later() -> None:
    playback = Playback()
    speaker = playback.speaker
    speaker.hand_over(0)
    playing(playback)
    assert taken(speaker, 0, 60) == expected(0, 60)
    assert speaker.played_ms("r", 200 * MS) == 60, "nobody took more, so nobody heard more"
    assert taken(speaker, 200, 260) == expected(60, 120)
    assert speaker.played_ms("r", 230 * MS) == 90
    assert playback.stop(240 * MS)[0].heard_ms == 100


def test_sound_behind_a_silence_begins_at_its_first_sample() -> None:
    playback = Playback()
    speaker = playback.speaker
    speaker.hand_over(0)
    assert taken(speaker, 0, 60) == []
    assert taken(speaker, 20, 80) == []
    playback.handle(delta("r", sound(10, 7)), 30 * MS)
    assert taken(speaker, 40, 100) == [7] * 240
    assert taken(speaker, 60, 120) == []
    assert speaker.played_ms("r", 60 * MS) == 10


def test_only_what_the_server_makes_of_speech_silences_it() -> None:
    playback = Playback()
    playing(playback)
    assert playback.handle(out.SpeechStartedOut(audio_start_ms=0, item_id="u"), 100 * MS) == []
    decided = out.OverlapDecision(
        session_id="s",
        epoch=1,
        policy="barge_in_on_speech",
        action="barge_in",
        reason="",
        metadata=out.OverlapMetadata(
            duration_ms=0,
            overlap_speech_ms=0,
            buffer_audio=True,
            defer_runtime_append=False,
            force_listen=False,
            preserve_realtime_input=True,
            cancel_reason=None,
        ),
    )
    (told,) = playback.handle(decided, 120 * MS)
    assert (told.item_id, told.heard_ms) == ("item_r", 120)
    assert playback.acks(500 * MS) == []


def test_an_answer_out_of_band_that_is_cancelled_silences_nobody() -> None:
    playback = Playback()
    playing(playback, "aside")
    playback.speaker.advance(2_000 * MS)
    playback.handle(delta("r", sound(100)), 2_000 * MS)
    assert playback.speaker.holds("r")
    assert not playback.speaker.holds("aside")


def test_g711_is_played_and_a_file_is_refused() -> None:
    playback = Playback()
    playback.handle(delta("r", b"\xff" * 800, format="g711_ulaw", sample_rate_hz=8_000), 0)
    assert playback.speaker.received_ms("r") == 100
    with pytest.raises(Refused):
        playback.handle(delta("r", b"RIFF", format="wav"), 0)
