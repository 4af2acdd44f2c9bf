"""The voice cascade: a committed turn in, spoken words out, from four models that each can be replaced.

Recogniser, language model and voice of one turn run beside each other: the language model's text is cut into
clauses, and the voice speaks a clause while the next one is being written. All of it stops within one token or
one piece of sound of an abort. The words of a turn that is still being spoken are looked for in a lane of their
own, one turn at a time, so that no recognition of a whole turn waits for more than one of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from antiphon.events.audio import AudioFormat
from antiphon.events.commands import StageAccepted, StageFailed, StageReleased
from antiphon.stages.asset_errors import UNLOADABLE, AssetError
from antiphon.stages.asset_manifest import DEFAULTS, Kind
from antiphon.stages.assets import resolve
from antiphon.stages.base import (
    Abort,
    AnyMessage,
    AnyReport,
    Append,
    Confirm,
    Release,
    Report,
    StageUnavailable,
    Submit,
)
from antiphon.stages.chat_prompt import PromptTooLong
from antiphon.stages.llm import ChatModel
from antiphon.stages.piper import PiperVoice
from antiphon.stages.preview import Preview
from antiphon.stages.turn import Models, Say, Turn
from antiphon.stages.whisper import WhisperRecogniser

Model = TypeVar("Model")

WORKERS = 8
"""Turns that are worked on at once; more wait. Each takes two threads, most of them waiting for a model."""

DEFAULT_INSTRUCTIONS = "You are a helpful AI assistant. Answer in one or two short spoken sentences."
"""What the small default model follows best of what was tried; a client's own instructions replace it."""


class CascadeSettings(Struct, frozen=True, kw_only=True):
    """Which models to use: a name of the manifest, a path or a place on a hub; None is the shipped default."""

    asr: str | None = None
    llm: str | None = None
    tts: str | None = None
    threads: int = 2
    instructions: str = DEFAULT_INSTRUCTIONS


def cascade(
    *,
    asr: str | None = None,
    llm: str | None = None,
    tts: str | None = None,
    threads: int = 2,
    instructions: str = DEFAULT_INSTRUCTIONS,
) -> CascadeStage:
    """Return the stage that a pipeline's description asks for; the arguments are `CascadeSettings`."""
    settings = CascadeSettings(asr=asr, llm=llm, tts=tts, threads=threads, instructions=instructions)
    return CascadeStage(settings)


class CascadeStage:
    """Answers turns. `start` loads the models (a few seconds, once)."""

    def __init__(self, settings: CascadeSettings | None = None) -> None:
        self._settings = settings or CascadeSettings()
        self._report: Report = _nowhere
        self._lock = threading.Lock()
        self._turns: dict[str, Turn | Preview] = {}
        self._models: Models | None = None
        self._speakers = ThreadPoolExecutor(WORKERS, thread_name_prefix="speaker")
        self._writers = ThreadPoolExecutor(WORKERS, thread_name_prefix="writer")
        self._listeners = ThreadPoolExecutor(1, thread_name_prefix="listener")

    @property
    def input_format(self) -> AudioFormat:
        """16 kHz mono, the recogniser's."""
        return AudioFormat("pcm16", 16_000)

    def start(self, report: Report) -> None:
        """Find, check, load and warm the models.

        Raises:
            StageUnavailable: a model or a library is missing.
        """
        settings = self._settings
        recogniser = _loaded("asr", settings.asr, partial(WhisperRecogniser, threads=settings.threads))
        chat = _loaded("llm", settings.llm, partial(ChatModel, threads=settings.threads))
        voice = _loaded("tts", settings.tts, PiperVoice)
        recogniser.warm_up()
        chat.warm_up(settings.instructions)
        voice.warm_up()
        self.begin(Models(recogniser, chat, voice, settings.instructions), report)

    def begin(self, models: Models, report: Report) -> None:
        """Take turns with models that are loaded already."""
        self._models, self._report = models, report

    def handle(self, message: AnyMessage) -> None:
        """Take one message; work goes on in the pool."""
        match message:
            case Submit():
                self._submit(message)
            case Abort(requests=requests) | Release(requests=requests):
                for request in requests:
                    self._forget(request)
            case Confirm(request=request):
                turn = self._turns.get(request)
                if turn is not None:
                    turn.confirm()
            case Append():
                pass  # a turn is complete when it is submitted

    def close(self) -> None:
        """Stop every turn and free the models."""
        for request in list(self._turns):
            self._forget(request)
        self._speakers.shutdown(wait=True, cancel_futures=True)
        self._writers.shutdown(wait=True, cancel_futures=True)
        self._listeners.shutdown(wait=True, cancel_futures=True)
        if self._models is not None:
            self._models.voice.close()

    def _submit(self, message: Submit) -> None:
        if message.request in self._turns or self._models is None:
            return
        say = self._way_out(message.request)
        work: Turn | Preview
        if message.payload.purpose == "transcribe":
            work, lane = Preview(message, self._models.recogniser, say), self._listeners
        else:
            work, lane = Turn(message, self._models, self._writers, say), self._speakers
        self._turns[message.request] = work
        say(StageAccepted(request=message.request), b"")
        lane.submit(work.run).add_done_callback(partial(_report_fault, message.request, say))

    def _way_out(self, request: str) -> Say:
        """Return where a turn reports to; it closes for ever when the request is forgotten."""

        def say(report: AnyReport, sound: bytes) -> None:
            with self._lock:
                if request in self._turns:
                    self._report(report, sound)

        return say

    def _forget(self, request: str) -> None:
        with self._lock:
            turn = self._turns.pop(request, None)
            self._report(StageReleased(request=request), b"")
        if turn is not None:
            turn.stop()


def _loaded(kind: Kind, name: str | None, load: Callable[[Path], Model]) -> Model:
    """Find and load one model.

    Raises:
        StageUnavailable: it cannot be; the message names it.
    """
    try:
        return load(resolve(kind, name))
    except AssetError as error:
        raise StageUnavailable(str(error)) from error
    except UNLOADABLE as error:
        raise StageUnavailable(f"the {kind} model {name or DEFAULTS[kind]!r} is not usable: {error}") from error


def _report_fault(request: str, say: Say, done: Future[None]) -> None:
    """Fail the request if its turn ended in an exception; nothing else would ever end it (K16)."""
    fault = None if done.cancelled() else done.exception()
    if fault is None:
        return
    if isinstance(fault, PromptTooLong):
        code, message = "context_length_exceeded", "The instructions leave the language model no room to answer."
    else:
        code, message = "runtime_data_plane_stream_failed", f"The voice pipeline failed: {type(fault).__name__}."
    say(StageFailed(request=request, code=code, message=message), b"")


def _nowhere(_report: AnyReport, _sound: bytes) -> None:
    """Nobody listens before `start`."""
