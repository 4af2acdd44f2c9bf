"""Named stand-ins for the models of the cascade: they say what they are told, and wait where they are told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from antiphon.stages.base import AnyReport
from antiphon.stages.chat_prompt import ChatMessage
from antiphon.stages.piper import Mark, SpeechTimings
from antiphon.stages.whisper import Recognition, RecognitionTimings

RATE = 22_050
CHUNK = RATE // 10


@dataclass
class FakeRecogniser:
    """Hears `words` in whatever it is given."""

    words: str = "what is the capital of france"
    heard: list[bytes] = field(default_factory=list)

    def recognise(self, audio: bytes) -> Recognition:
        self.heard.append(audio)
        return Recognition(self.words, 0.0, -0.1, RecognitionTimings(0.0, 0.0))


class FakeReply:
    """An answer of given pieces; blocks before the n-th until `gate` opens."""

    def __init__(
        self,
        pieces: Sequence[str],
        stop: Callable[[], bool],
        gate: threading.Event | None,
        begun: threading.Event,
    ) -> None:
        self._begun = begun
        self.prompt_tokens, self.completion_tokens = 7, 0
        self.finish = "stop"
        self._pieces, self._stop, self._gate = iter(pieces), stop, gate

    def __iter__(self) -> Iterator[str]:
        for piece in self._pieces:
            if self._gate is not None and self.completion_tokens:
                self._begun.set()
                self._gate.wait(10)
            if self._stop():
                self.finish = "stopped"
                return
            self.completion_tokens += 1
            yield piece


@dataclass
class FakeChat:
    """Answers with `pieces`; keeps what it was asked."""

    pieces: Sequence[str] = ("Paris is the capital, ", "and it is lovely. ", "Come and see it.")
    gate: threading.Event | None = None
    fault: Exception | None = None
    asked: list[list[ChatMessage]] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    context: int = 2048
    begun: threading.Event = field(default_factory=threading.Event)
    """Set when a reply has given its first piece, and waits."""

    def stream(
        self, messages: Sequence[ChatMessage], *, stop: Callable[[], bool], max_tokens: int, **_: object
    ) -> FakeReply:
        self.asked.append(list(messages))
        self.limits.append(max_tokens)
        if self.fault is not None:
            raise self.fault
        return FakeReply(self.pieces, stop, self.gate, self.begun)


class FakeUtterance:
    """A chunk of 100 ms for each word of the text."""

    def __init__(self, text: str, stop: Callable[[], bool]) -> None:
        self._words, self._stop = len(text.split()), stop
        self.total_samples = self._words * CHUNK
        self.marks = (Mark(len(text), self.total_samples),) if self._words else ()
        self.timings = SpeechTimings(0.0, 0.0)

    def __iter__(self) -> Iterator[NDArray[np.int16]]:
        for _ in range(self._words):
            if self._stop():
                return
            yield np.full(CHUNK, 1000, np.int16)


class FakeVoice:
    """Speaks every word for 100 ms."""

    sample_rate = RATE

    def __init__(self) -> None:
        self.spoken: list[str] = []

    def speak(self, text: str, *, speed: float = 1.0, stop: Callable[[], bool]) -> FakeUtterance:
        self.spoken.append(text)
        return FakeUtterance(text, stop)

    def close(self) -> None:
        """Nothing to free."""


class Listener:
    """Collects reports from any thread; `until` waits for the first of a kind, or for so many."""

    def __init__(self) -> None:
        self.reports: list[tuple[AnyReport, bytes]] = []
        self._new = threading.Condition()

    def __call__(self, report: AnyReport, sound: bytes = b"") -> None:
        with self._new:
            self.reports.append((report, sound))
            self._new.notify_all()

    def until(self, *kinds: type[AnyReport], count: int = 1, timeout: float = 30) -> AnyReport:
        with self._new:
            assert self._new.wait_for(lambda: len(self.of(*kinds)) >= count, timeout)
            return next(r for r, _ in self.reports if isinstance(r, kinds))

    def of(self, *kinds: type[AnyReport]) -> list[AnyReport]:
        return [report for report, _ in self.reports if isinstance(report, kinds)]
