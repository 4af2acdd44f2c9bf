"""The words of an utterance that is still open: only the recogniser works, and nothing follows from it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from antiphon.events.commands import StageCost, StageFinished, StageTranscribed
from antiphon.events.items import AudioPart, Message
from antiphon.stages.base import AnyReport, Submit
from antiphon.stages.whisper import WhisperRecogniser


class Preview:
    """The work on one request of purpose "transcribe". `run` does it; `stop` may be called from any thread.

    A recognition that has begun is not broken off, and what it finds is then told to nobody.
    """

    def __init__(
        self, submit: Submit, recogniser: WhisperRecogniser, say: Callable[[AnyReport, bytes], None]
    ) -> None:
        self._request = submit.request
        self._items = submit.payload.items
        self._sound = dict(submit.sound)
        self._recogniser = recogniser
        self._say = say
        self._stopped = threading.Event()
        self._begun = time.perf_counter()

    def stop(self) -> None:
        """Tell nothing from here on."""
        self._stopped.set()

    def confirm(self) -> None:
        """Nothing is held back: no answer is speculated on."""

    def run(self) -> None:
        """Recognise. Exceptions of the model are the caller's to report."""
        parts = [(item.id, part) for item in self._items if isinstance(item, Message) for part in item.content]
        costs = [
            self._recognise(item_id, part, self._sound[part.ref])
            for item_id, part in parts
            if isinstance(part, AudioPart) and part.ref is not None and not self._stopped.is_set()
        ]
        self._tell(StageFinished(request=self._request, costs=tuple(costs)))

    def _recognise(self, item_id: str, part: AudioPart, sound: bytes) -> StageCost:
        since = time.perf_counter()
        text = self._recogniser.recognise(sound).text
        total_ms = round((time.perf_counter() - since) * 1000, 1)
        seconds = round(part.ms / 1000, 3)
        self._tell(
            StageTranscribed(request=self._request, item_id=item_id, text=text, seconds=seconds, final=False)
        )
        queue_ms = round((since - self._begun) * 1000, 1)
        return StageCost(stage="asr", queue_ms=queue_ms, first_output_ms=total_ms, total_ms=total_ms, outputs=1)

    def _tell(self, report: AnyReport) -> None:
        if not self._stopped.is_set():
            self._say(report, b"")
