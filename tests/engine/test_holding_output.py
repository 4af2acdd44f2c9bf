"""What a stage says while speech may interrupt it: its bytes wait until delivery goes on (DESIGN 5.13)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from antiphon.engine.clock import VirtualClock
from antiphon.engine.direct import DirectClient
from antiphon.engine.ingress import AppendRequest
from antiphon.engine.replay import replay
from antiphon.engine.scoring import LevelScorer, ScoringService
from antiphon.events.audio import AudioFormat
from antiphon.events.config import ConfigPatch, TurnDetection
from antiphon.events.events import (
    AudioDelta,
    OutputHeld,
    ResponseEnded,
)
from antiphon.sessions.plugins import CASCADE
from antiphon.stages.scripted import Cue, Finish, Say, ScriptedStage, tone

from .worlds import Listener, MoodyLog, World, ask, killed, opening, resumption, settle, world

pytestmark = pytest.mark.anyio

LOUD, QUIET = b"\x00\x20" * 512, bytes(1_024)
"""One frame of 32 ms."""
OUT = AudioFormat("pcm16", 24_000)
CAREFUL = ConfigPatch(
    turn_detection=TurnDetection(min_speech_duration_ms=64, false_interruption=True),
    input_format=AudioFormat("pcm16", 16_000),
    output_format=OUT,
)
SCRIPT = (Say("One. ", 700), Cue("more"), Say("Two. ", 300), Say("Three. ", 200), Cue("end"), Finish())


@asynccontextmanager
async def speaking() -> AsyncIterator[tuple[World, DirectClient, Listener]]:
    """A client that hears an answer, of which more is to come."""
    clock = VirtualClock()
    scorer = ScoringService(LevelScorer(), threaded=False)
    async with (
        world(ScriptedStage(clock, default=SCRIPT), plugin=CASCADE, clock=clock, scorer=scorer) as here,
        anyio.create_task_group() as tasks,
        DirectClient(here.hub, patch=CAREFUL) as client,
    ):
        listener = Listener(client)
        tasks.start_soon(listener.run)
        ask(client.attachment)
        await settle()
        yield here, client, listener
        tasks.cancel_scope.cancel()


async def send(here: World, client: DirectClient, frame: bytes, frames: int) -> None:
    for _ in range(frames):
        client.append_audio(frame)
        await here.advance(32)


def waiting(here: World, client: DirectClient) -> int:
    """Bytes of an answer that the engine keeps in memory until they are shown."""
    runner = here.hub._live[client.session].runner  # pyright: ignore[reportPrivateUsage]
    return sum(map(len, runner._window.held.values()))  # pyright: ignore[reportPrivateUsage]


async def test_5_13_what_was_held_is_heard_whole_when_delivery_goes_on() -> None:
    async with speaking() as (here, client, listener):
        await send(here, client, LOUD, 3)
        assert listener.names.count("InterruptionSuspected") == 1
        here.scripted.cue("more")
        await settle()
        assert listener.names.count("AudioDelta") == 1, "nothing of it is shown"
        assert waiting(here, client) == OUT.bytes_for(500)
        await send(here, client, QUIET, 8)
        assert waiting(here, client) == 0
        here.scripted.cue("end")
        await settle()
        (ended,) = listener.all(ResponseEnded)
        assert isinstance(ended, ResponseEnded)
        assert ended.text == "One. Two. Three. "
        whole = b"".join(tone(OUT.bytes_for(ms), OUT) for ms in (700, 300, 200))
        assert listener.sound == whole
        assert listener.numbers == sorted(set(listener.numbers))
        for event in listener.all(AudioDelta):
            assert isinstance(event, AudioDelta)
            assert len(await here.log.samples.read(client.session, event.ref)) == event.ref.size
        assert replay(await here.recorded(client.session)).identical


async def test_5_13_nothing_is_lost_with_the_connection() -> None:
    async with speaking() as (here, client, listener):
        await send(here, client, LOUD, 3)
        await client.drop()
        here.scripted.cue("more")
        here.scripted.cue("end")
        await here.advance(2_000)
        assert waiting(here, client) == 0
        await client.resume()
        async for heard in client.events():
            listener.heard.append(heard)
            if isinstance(heard.event, ResponseEnded):
                break
        assert "InterruptionDoubted" in listener.names
        assert listener.sound == b"".join(tone(OUT.bytes_for(ms), OUT) for ms in (700, 300, 200))
        assert listener.numbers == sorted(set(listener.numbers))


async def test_5_13_what_was_held_is_forgotten_when_it_is_interrupted() -> None:
    async with speaking() as (here, client, listener):
        await send(here, client, LOUD, 3)
        here.scripted.cue("more")
        await settle()
        await send(here, client, LOUD, 16)
        assert waiting(here, client) == 0
        (ended,) = listener.all(ResponseEnded)
        assert isinstance(ended, ResponseEnded)
        assert (ended.status, ended.text) == ("cancelled", "One. ")
        assert listener.sound == tone(OUT.bytes_for(700), OUT)


async def test_5_13_what_was_held_is_read_from_the_store_after_a_restart() -> None:
    clock, log = VirtualClock(), MoodyLog()
    stage = ScriptedStage(clock, default=SCRIPT)
    async with killed(stage, log, clock, plugin=CASCADE) as hub:
        old = await hub.open(opening(patch=CAREFUL))
        ask(old)
        await settle()
        for frame in (LOUD,) * 3 + (QUIET,) * 8:
            if frame == QUIET:
                stage.cue("more")
            old.append(AppendRequest(data=frame))
            await settle()
    held = [event for entry in log.appended for event in entry.events if isinstance(event, OutputHeld)]
    assert sum(event.ref.size for event in held if event.ref is not None) == OUT.bytes_for(500)
    async with world(log=log, clock=clock, plugin=CASCADE) as here:
        new = await here.hub.resume(resumption(old))
        sound = [
            entry.sound[event.ref]
            async for entry in new.replay()
            for event in entry.transaction.events
            if isinstance(event, AudioDelta)
        ]
        assert b"".join(sound) == b"".join(tone(OUT.bytes_for(ms), OUT) for ms in (700, 300, 200))
