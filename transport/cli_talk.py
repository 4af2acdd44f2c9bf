"""`antiphon talk`: speak a WAV file to a server in real time, and hear its answer."""

from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import numpy as np
from msgspec import Struct
from rich.console import Console

from .cli_errors import UNUSABLE, Stop
from .client import RealtimeClient, SessionLost
from .talk import Talk, Unanswered, now_us, spoken
from .talk_dialogue import Dialogue
from .talk_mic import RATE
from .talk_player import track
from .talk_show import Screen, latencies
from .wav import Pcm, write_wav

QUIET_S = 3.0
"""After the file has been spoken, a turn must have begun within this."""

ANSWER_S = 30.0
PLAYED_S = 600.0
REPLY_RATE = 24_000


class Report(Struct, frozen=True, kw_only=True):
    """What `antiphon talk --json` prints. `finished` is the status of each answer."""

    session: str
    heard: list[str]
    said: list[str]
    finished: list[str]
    voice_to_voice_ms: list[int]
    audio_ms: int
    reply: str | None


def run(voice: Pcm, url: str, api_key: str | None, out: Path | None, console: Console) -> Report:
    """Speak `voice` (16 kHz mono) and wait until the answer has been played; write what was heard to `out`.

    Raises:
        Stop: there is no server, it lost the session, or it did not answer.
        WavError: `out` cannot be written.
    """
    url = url if "://" in url else f"ws://{url}"
    if urlsplit(url).scheme not in ("ws", "wss", "http", "https"):
        raise Stop(f"{url} is no address of a server: give --url ws://HOST:PORT", UNUSABLE)
    session, talk = anyio.run(
        partial(_converse, voice, url, api_key, console), backend_options={"use_uvloop": True}
    )
    heard = talk.dialogue.player.heard
    sound = track(heard, heard[0].start_us, REPLY_RATE) if heard else np.zeros(0, np.int16)
    if out is not None:
        write_wav(out, sound, REPLY_RATE)
    return Report(
        session=session,
        heard=[ask.text for ask in talk.dialogue.asks],
        said=[reply.text.strip() for reply in talk.dialogue.replies],
        finished=[reply.status for reply in talk.dialogue.replies],
        voice_to_voice_ms=latencies(talk.dialogue, talk.mic),
        audio_ms=len(sound) * 1000 // REPLY_RATE,
        reply=None if out is None else str(out),
    )


async def _converse(voice: Pcm, url: str, api_key: str | None, console: Console) -> tuple[str, Talk]:
    screen = Screen(console)
    failure: Exception | None = None
    talk: Talk | None = None
    session = ""
    try:
        async with RealtimeClient(url, spoken(), api_key=api_key) as client:
            session = client.session_id
            talk = Talk(client, Dialogue(screen.tell))
            try:
                await talk.run(partial(_speak, talk, voice))
            except Unanswered as unanswered:  # on its own, not inside the group of errors of the client
                failure = unanswered
    except SessionLost as lost:
        failure = failure or lost
    screen.close()
    if isinstance(failure, SessionLost) and talk is None:
        if failure.code == "disconnected":
            raise Stop(
                f"there is no server at {url} ({failure}); start one with `antiphon serve`, or name one with --url"
            )
        raise Stop(f"the server at {url} opened no session ({failure})")
    if failure is not None or talk is None:
        raise Stop(str(failure))
    return session, talk


async def _speak(talk: Talk, voice: Pcm) -> None:
    """Say it, and listen until every turn has been answered and played."""
    dialogue, mic = talk.dialogue, talk.mic
    mic.say(voice)
    length = len(voice) / RATE
    await talk.until("the file to be spoken", lambda _now: not mic.speaking, length + 10)
    spoken_us = now_us()

    def understood(now: int) -> bool:
        return bool(dialogue.asks) or now > spoken_us + QUIET_S * 1e6

    def answered(_now: int) -> bool:
        reply = dialogue.reply
        return reply is not None and (reply.first_us is not None or reply.done_us is not None)

    await talk.until("speech to be noticed", understood, length + QUIET_S + 10)
    if not dialogue.asks:
        raise Unanswered("the server heard no speech in the file")
    await talk.until("an answer", answered, ANSWER_S)
    await talk.until("the answer to end", dialogue.settled, PLAYED_S)
    if all(reply.status == "failed" for reply in dialogue.replies):
        raise Unanswered(f"the answer failed: {dialogue.replies[-1].complaint}")
