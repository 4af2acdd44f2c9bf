"""A scene of the shipped voice pipeline, with its own models: recorded again only where they are installed."""

import queue
from functools import lru_cache, partial

import numpy as np
import soxr
from msgspec import structs

from antiphon.engine.scoring import ScoringService
from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import AudioFormat
from antiphon.events.metrics import StageCost
from antiphon.stages.asset_errors import AssetError
from antiphon.stages.asset_manifest import Kind
from antiphon.stages.assets import resolve
from antiphon.stages.base import AnyMessage, AnyReport, Report, Stage, Submit
from antiphon.stages.cascade import DEFAULT_INSTRUCTIONS, CascadeStage
from antiphon.stages.llm import ChatModel
from antiphon.stages.piper import PiperVoice
from antiphon.stages.scorers import silero
from antiphon.stages.turn import Models
from antiphon.stages.whisper import WhisperRecogniser

from .place import Place
from .scene import scene

RATE = 16_000
KINDS: tuple[Kind, ...] = ("vad", "asr", "llm", "tts")
FIRST_MS, APART_MS = 200, 40
PATIENCE_S = 120.0
THREADS = 2


def missing() -> str | None:
    """Return why the models cannot be used here; None if they can."""
    try:
        for kind in KINDS:
            resolve(kind)
    except AssetError as error:
        return str(error)
    return None


class Timeless(Stage):
    """The cascade, whose work takes no time: the scene waits for it, and its reports come in even steps.

    What it measured is left out: it is another time whenever it is measured.
    """

    def __init__(self, here: Place) -> None:
        self._clock = here.clock
        self._inner = CascadeStage()
        self._said: queue.SimpleQueue[tuple[AnyReport, bytes]] = queue.SimpleQueue()
        self._report: Report

    @property
    def input_format(self) -> AudioFormat:
        """The cascade's."""
        return self._inner.input_format

    def start(self, report: Report) -> None:
        """Load the models; the voice speaks without what it draws by lot."""
        self._report = report
        recogniser = WhisperRecogniser(resolve("asr"), threads=THREADS)
        chat = ChatModel(resolve("llm"), threads=THREADS)
        models = Models(recogniser, chat, PiperVoice(resolve("tts"), noise=0.0, noise_w=0.0), DEFAULT_INSTRUCTIONS)
        self._inner.begin(models, lambda report, sound: self._said.put((report, sound)))

    def handle(self, message: AnyMessage) -> None:
        """Let the cascade do it all, and tell of it."""
        self._inner.handle(message)
        if isinstance(message, Submit):
            self._work()
        while not self._said.empty():
            self._report(*self._said.get())

    def close(self) -> None:
        """Free the models."""
        self._inner.close()

    def _work(self) -> None:
        at = self._clock.monotonic_us() + FIRST_MS * 1000
        while True:
            report, sound = self._said.get(timeout=PATIENCE_S)
            if isinstance(report, cmd.StageAccepted):
                self._report(report, sound)
                continue
            self._clock.call_at(at, partial(self._report, _timeless(report), sound))
            at += APART_MS * 1000
            if isinstance(report, cmd.StageFinished | cmd.StageFailed):
                return


def _timeless(report: AnyReport) -> AnyReport:
    match report:
        case cmd.StageFinished(costs=costs) | cmd.StageMeasured(costs=costs):
            return structs.replace(report, costs=tuple(_unmeasured(cost) for cost in costs))
        case _:
            return report


def _unmeasured(cost: StageCost) -> StageCost:
    times = {field.name: field.default for field in structs.fields(StageCost) if field.name.endswith("_ms")}
    return structs.replace(cost, **times)


@lru_cache
def spoken(text: str) -> bytes:
    """Return a question in the shipped voice, as pcm16 at 16 kHz."""
    voice = PiperVoice(resolve("tts"), noise=0.0, noise_w=0.0)
    try:
        samples = np.concatenate([np.zeros(0, np.int16), *voice.speak(text)])
        return soxr.resample(samples, voice.sample_rate, RATE).astype("<i2").tobytes()
    finally:
        voice.close()


@scene(
    ev.SpeechStarted,
    ev.SpeechStopped,
    ev.UserTranscribed,
    ev.AudioDelta,
    ev.Interrupted,
    ev.ResponseEnded,
    stage=Timeless,
    scorer=lambda: ScoringService(silero(), threaded=False),
    models=missing,
)
async def voice_pipeline(here: Place) -> None:
    """The shipped recogniser, language model, voice and detector: a question, its answer, and an interruption."""
    detection = {"type": "server_vad", "silence_duration_ms": 400}
    transcription = {"model": "default", "language": "en"}
    me = await here.connect("duplex", turn_detection=detection, input_audio_transcription=transcription)
    for question in ("What is the capital of France?", "Stop, please. Thank you."):
        await me.sound(spoken(question), 160)
        await me.silence(640, 160)
        await me.until("response.created")
        await here.wait(900)
        await me.ack(500)
    await me.until("response.done")
    await here.wait(1_000)
    await me.close()
