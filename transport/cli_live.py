"""`antiphon talk` without a file: speak to a server with the microphone and the loudspeaker of this machine."""

import ssl
from functools import partial
from pathlib import Path

import anyio
import numpy as np
from msgspec import Struct
from rich.console import Console

from .cli_errors import Stop
from .cli_files import writable
from .cli_interrupt import interruptible
from .cli_talk import REPLY_RATE, Report, trusting, unopened
from .client import RealtimeClient, SessionClient, SessionLost
from .collector import Collector
from .devices import NoDevice, loudspeaker
from .player import Player, Sink
from .speaker import track
from .talk import spoken
from .talk_dialogue import Dialogue
from .talk_show import Screen
from .wav import write_wav

HINT = "speak; Ctrl-C ends the conversation (headphones keep the answers out of your microphone)"


class _Live(Struct):
    """A conversation that goes on until it is interrupted, or fails."""

    client: SessionClient
    dialogue: Dialogue
    collector: Collector
    failure: SessionLost | NoDevice | None = None
    interrupted: bool = False


def run(url: str, api_key: str | None, out: Path | None, console: Console, ca: Path | None = None) -> Report:
    """Converse until Ctrl-C or the server ends it; write what was heard to `out`.

    Raises:
        Stop: there is no microphone, loudspeaker or server, it lost the session, or `out` or `ca` cannot be used.
        WavError: `out` cannot be written.
    """
    if out is not None:
        writable(out)
    try:
        sink = loudspeaker()
    except NoDevice as missing:
        raise Stop(str(missing)) from None
    url = url if "://" in url else f"ws://{url}"
    tls = None if ca is None else trusting(ca)
    live = anyio.run(partial(_converse, url, api_key, tls, sink, console), backend_options={"use_uvloop": True})
    if not live.client.session_id:
        raise unopened(live.failure, url, api_key)
    heard = live.dialogue.speaker.heard
    sound = track(heard, heard[0].start_us, REPLY_RATE) if heard else np.zeros(0, np.int16)
    if out is not None:
        write_wav(out, sound, REPLY_RATE)
    if live.failure is not None:
        raise Stop(str(live.failure))
    timings = live.collector.summary()
    return Report(
        session=live.client.session_id,
        heard=[ask.text for ask in live.dialogue.asks],
        said=[reply.text.strip() for reply in live.dialogue.replies],
        finished=[reply.status for reply in live.dialogue.replies],
        voice_to_voice_ms=[round(answer.first_sound_ms) for answer in timings.answers if answer.first_sound_ms],
        audio_ms=len(sound) * 1000 // REPLY_RATE,
        reply=None if out is None else str(out),
        interrupted=live.interrupted,
        timings=timings,
    )


async def _converse(
    url: str, api_key: str | None, tls: ssl.SSLContext | None, sink: Sink, console: Console
) -> _Live:
    screen = Screen(console)
    client = RealtimeClient(url, spoken(), api_key=api_key, tls=tls)
    live = _Live(client, Dialogue(screen.tell), Collector(client))
    try:
        async with client, Player(client, sink, playback=live.dialogue, listen=False) as player:
            screen.note(HINT)
            await _until_interrupted(live, player)
            player.stop()
    except (SessionLost, NoDevice) as failure:
        live.failure = live.failure or failure
    screen.close()
    return live


async def _until_interrupted(live: _Live, player: Player) -> None:
    """Listen and speak until SIGINT, the server or a failure ends it; what fails becomes a value."""
    async with interruptible() as running:

        async def speak() -> None:
            try:
                await live.client.stream_microphone()
            except (NoDevice, SessionLost) as failure:
                live.failure = failure
                running.group.cancel_scope.cancel()

        running.group.start_soon(speak)
        try:
            async for event in live.client.events():
                player.hear(event)
        except SessionLost as lost:
            live.failure = lost
    live.interrupted = running.interrupted
