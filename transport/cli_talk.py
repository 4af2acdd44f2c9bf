"""`antiphon talk`: speak a WAV file to a server in real time, and hear its answer."""

import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio
import numpy as np
from msgspec import Struct
from rich.console import Console

from .cli_errors import UNUSABLE, Stop
from .cli_files import writable
from .cli_interrupt import interruptible
from .client import RealtimeClient, SessionLost
from .collector import Collector, Summary
from .speaker import track
from .talk import QUIET_S, Talk, Unanswered, Unheard, now_us, spoken
from .talk_dialogue import Dialogue
from .talk_mic import RATE, silent
from .talk_show import Screen, latencies
from .tls import TlsError, client_context
from .wav import Pcm, read_wav, write_wav

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
    interrupted: bool
    """Whether Ctrl-C has ended the conversation."""
    timings: Summary


class _Held(Struct):
    """A conversation that was held, and what went wrong in it; `talk` None: it did not begin."""

    session: str = ""
    talk: Talk | None = None
    collector: Collector | None = None
    failure: Unanswered | SessionLost | None = None
    interrupted: bool = False


def voice_in(file: Path) -> Pcm:
    """Return what is said in a file (16 kHz mono).

    Raises:
        WavError: it cannot be read.
        Stop: nobody speaks in it.
    """
    voice = read_wav(file)
    if silent(voice):
        raise Stop(f"no speech was heard in {file}: it is silent", UNUSABLE)
    return voice


def run(
    file: Path, url: str, api_key: str | None, out: Path | None, console: Console, ca: Path | None = None
) -> Report:
    """Speak a file and wait until the answer has been played; write what was heard to `out`.

    What was heard is written too when the conversation fails or SIGINT ends it. `ca` is a certificate authority to
    trust in place of those that this machine trusts.

    Raises:
        Stop: `url`, `out` or `ca` cannot be used, there is no server, it lost the session, or it did not answer.
        WavError: the file cannot be read, or `out` cannot be written.
    """
    voice = voice_in(file)
    if out is not None:
        writable(out)
    url = url if "://" in url else f"ws://{url}"
    tls = None if ca is None else trusting(ca)
    held = anyio.run(partial(_converse, voice, url, api_key, console, tls), backend_options={"use_uvloop": True})
    if held.talk is None or held.collector is None:
        raise unopened(held.failure, url, api_key)
    held.talk.dialogue.speaker.stop(now_us())
    heard = held.talk.dialogue.speaker.heard
    sound = track(heard, heard[0].start_us, REPLY_RATE) if heard else np.zeros(0, np.int16)
    if out is not None:
        write_wav(out, sound, REPLY_RATE)
    if isinstance(held.failure, Unheard):
        raise Stop(f"no speech was heard in {file}")
    if held.failure is not None:
        raise Stop(str(held.failure))
    return Report(
        session=held.session,
        heard=[ask.text for ask in held.talk.dialogue.asks],
        said=[reply.text.strip() for reply in held.talk.dialogue.replies],
        finished=[reply.status for reply in held.talk.dialogue.replies],
        voice_to_voice_ms=latencies(held.talk.dialogue, held.talk.mic),
        audio_ms=len(sound) * 1000 // REPLY_RATE,
        reply=None if out is None else str(out),
        interrupted=held.interrupted,
        timings=held.collector.summary(),
    )


def unopened(failure: Exception | None, url: str, api_key: str | None) -> Stop:
    """Return the sentence about a session that was not opened."""
    code = failure.code if isinstance(failure, SessionLost) else ""
    why = failure.why if isinstance(failure, SessionLost) else "nothing was said"
    match code:
        case "invalid_url":
            return Stop(f"{url} is no address of a server: give --url ws://HOST:PORT", UNUSABLE)
        case "disconnected":
            return Stop(
                f"there is no server at {url} ({why}); start one with `antiphon serve`, or name one with --url"
            )
        case "http_401" if api_key:
            return Stop(
                f"the server at {url} does not take this key: give another with --api-key or ANTIPHON_API_KEY"
            )
        case "http_401":
            return Stop(f"the server at {url} wants a key: --api-key or ANTIPHON_API_KEY")
        case _:
            return Stop(f"the server at {url} opened no session ({code}: {why})")


def trusting(authority: Path) -> ssl.SSLContext:
    """Return whom to trust; raises `Stop` if the file cannot be used."""
    try:
        return client_context(authority)
    except TlsError as error:
        raise Stop(str(error), UNUSABLE) from error


async def _converse(
    voice: Pcm, url: str, api_key: str | None, console: Console, tls: ssl.SSLContext | None
) -> _Held:
    screen = Screen(console)
    held = _Held()
    try:
        client = RealtimeClient(url, spoken(), api_key=api_key, tls=tls)
        held.collector = Collector(client)
        async with client:
            held.session = client.session_id
            held.talk = Talk(client, Dialogue(screen.tell))
            await _until_interrupted(held, partial(_speak, held.talk, voice))
    except SessionLost as lost:
        held.failure = held.failure or lost
    screen.close()
    return held


async def _until_interrupted(held: _Held, script: Callable[[], Awaitable[None]]) -> None:
    """Talk until the script or SIGINT ends it; what fails becomes a value."""
    talk = held.talk
    assert talk is not None
    async with interruptible() as running:
        try:
            await talk.run(script)
        except Unanswered as unanswered:
            held.failure = unanswered
    held.interrupted = running.interrupted


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
        raise Unheard("the server heard no speech")
    await talk.until("an answer", answered, ANSWER_S)
    await talk.until("the answer to end", dialogue.settled, PLAYED_S)
    if all(reply.status == "failed" for reply in dialogue.replies):
        raise Unanswered(f"the answer failed: {dialogue.replies[-1].complaint}")
