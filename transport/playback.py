"""What is played of a session's answers, as its client hears them: a fold over the server's events.

No I/O and no clock: every call is given the time, and returns what to tell the server.
"""

from collections import deque
from collections.abc import Callable

import pybase64
from msgspec import UNSET, Struct

from antiphon.engine.pcm import decode
from antiphon.events.audio import AudioFormat

from . import wire_server as server
from .client_events import Received
from .speaker import Speaker
from .wire_formats import ENCODINGS

STEP_MS = 200
"""Playback is acknowledged in steps of at least this, and at the end of an answer."""

RECENT = 8
"""Answers that are remembered: what plays is one of the newest."""


class Ack(Struct, frozen=True):
    """Tell the server: this much of a response was played."""

    response_id: str
    played_ms: int


class Truncate(Struct, frozen=True):
    """Tell the server: this much of an answer was heard, and no more will be."""

    item_id: str
    heard_ms: int


class Played(Struct):
    """How one answer is played. `heard_ms` is set where it was stopped; `late` counts sound behind that."""

    response_id: str
    item_id: str = ""
    over: bool = False
    told_ms: int = 0
    heard_ms: int | None = None
    stopped_us: int | None = None
    late: int = 0


def _nothing(_answer: Played) -> None:
    pass


class Playback:
    """Plays answers one behind the other, stands still when it is told to, and falls silent when it is interrupted.

    `careful`: speech alone does not silence it, but what the server makes of it; False is for sessions in which all
    speech interrupts. `remember`: the speaker keeps what was heard. `cut` is called with each answer that was
    stopped.
    """

    def __init__(
        self, *, careful: bool = True, remember: bool = False, cut: Callable[[Played], None] = _nothing
    ) -> None:
        self.speaker = Speaker(remember=remember)
        self.answers: deque[Played] = deque(maxlen=RECENT)
        self._careful = careful
        self._cut = cut

    def find(self, response_id: str) -> Played | None:
        """Return one of the newest answers."""
        return next((answer for answer in reversed(self.answers) if answer.response_id == response_id), None)

    def handle(self, event: Received, now_us: int) -> list[Truncate]:
        """Take an event in; return what to send because of it.

        Raises:
            Refused: `unsupported_audio_format`: sound that is neither pcm16 nor G.711.
        """
        match event:
            case server.AudioDeltaOut():
                self._sound(event, now_us)
            case server.ResponseDone():
                return self._done(event, now_us)
            case server.OutputPaused():
                self.speaker.pause(now_us)
            case server.OutputResumed():
                self.speaker.resume(now_us)
            case server.OutputClearedOut():
                return self.stop(now_us)
            case server.OverlapDecision(action="barge_in"):
                return self.stop(now_us)
            case server.SpeechStartedOut() if not self._careful:
                return self.stop(now_us)
            case _:
                pass
        return []

    def acks(self, now_us: int) -> list[Ack]:
        """Return what to acknowledge now; to be asked several times a second."""
        due: list[Ack] = []
        for answer in self.answers:
            if answer.heard_ms is not None:
                continue
            played = self.speaker.played_ms(answer.response_id, now_us)
            ended = answer.over and played >= self.speaker.received_ms(answer.response_id)
            if played > answer.told_ms and (ended or played - answer.told_ms >= STEP_MS):
                answer.told_ms = played
                due.append(Ack(answer.response_id, played))
        return due

    def stop(self, now_us: int) -> list[Truncate]:
        """Fall silent, as when the user cuts in; return what was heard."""
        told: list[Truncate] = []
        for response_id, heard_ms in self.speaker.stop(now_us).items():
            answer = self.find(response_id)
            if answer is not None:
                answer.heard_ms, answer.stopped_us = heard_ms, now_us
                told.append(Truncate(answer.item_id, heard_ms))
                self._cut(answer)
        return told

    def _sound(self, event: server.AudioDeltaOut, now_us: int) -> None:
        if not event.delta:
            return
        answer = self.find(event.response_id)
        if answer is None:
            answer = Played(event.response_id, event.item_id)
            self.answers.append(answer)
        if answer.stopped_us is not None or answer.over:
            answer.late += 1
        rate = 24_000 if event.sample_rate_hz is UNSET else event.sample_rate_hz
        encoding = "pcm16" if event.format is UNSET else event.format
        sound = decode(pybase64.b64decode(event.delta), AudioFormat(ENCODINGS[encoding], rate))
        self.speaker.feed(now_us, event.response_id, sound, rate)

    def _done(self, event: server.ResponseDone, now_us: int) -> list[Truncate]:
        answer = self.find(event.response_id)
        if answer is None:
            return []
        answer.over = True
        cancelled = event.response.status == "cancelled" and self.speaker.holds(event.response_id)
        return self.stop(now_us) if cancelled else []
