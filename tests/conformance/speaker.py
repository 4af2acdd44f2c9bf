"""A stage for clients of the field: it answers as the instructions of the session say, in real time."""

import asyncio
import json

from antiphon.events.audio import AudioFormat
from antiphon.events.commands import (
    StageAccepted,
    StageCalled,
    StageFinished,
    StageProduced,
    StageReleased,
    StageTranscribed,
    Usage,
)
from antiphon.events.items import FunctionOutput, Message, text_of
from antiphon.stages.base import Abort, AnyMessage, AnyReport, Release, Report, Submit
from antiphon.stages.scripted import tone

PIECE_MS = 80
SHORT, LONG = 5, 100
"""Pieces of an answer."""

PACE_S = 0.02
"""Between two pieces: four times as fast as they play."""


class Speaker:
    """Says back what was written, or that it heard something.

    Instructions with `[long]` make it speak for eight seconds, and those with `[call]` call the first function that
    there is, if no output of one was just given.
    """

    def __init__(self) -> None:
        self._report: Report | None = None
        self._live: dict[str, asyncio.TimerHandle | None] = {}

    @property
    def input_format(self) -> AudioFormat:
        """16 kHz."""
        return AudioFormat("pcm16", 16_000)

    def start(self, report: Report) -> None:
        """Be ready at once."""
        self._report = report

    def close(self) -> None:
        """Say nothing more."""
        self._report = None

    def handle(self, message: AnyMessage) -> None:
        """Take one message."""
        match message:
            case Submit():
                self._begin(message)
            case Abort(requests=requests) | Release(requests=requests):
                for request in requests:
                    timer = self._live.pop(request, None)
                    if timer is not None:
                        timer.cancel()
                    self._say(StageReleased(request=request))
            case _:
                pass

    def _begin(self, submit: Submit) -> None:
        request, payload = submit.request, submit.payload
        self._live[request] = None
        self._say(StageAccepted(request=request))
        if payload.purpose == "transcribe":
            self._say(StageFinished(request=request))
            return
        last = payload.items[-1] if payload.items else None
        words = text_of(last) if isinstance(last, Message) else ""
        if isinstance(last, Message) and last.role == "user" and not words:
            words = "something spoken"
            self._say(StageTranscribed(request=request, item_id=last.id, text=words, seconds=1.0))
        tools = json.loads(payload.tools)
        if isinstance(last, FunctionOutput):
            self._speak(submit, f"It says {last.output}", SHORT)
        elif tools and "[call]" in payload.instructions:
            self._say(
                StageCalled(request=request, index=0, name=tools[0]["name"], arguments='{"city": ', final=False)
            )
            self._say(StageCalled(request=request, index=0, arguments='"Bonn"}'))
            self._finish(request)
        else:
            self._speak(submit, f"You said {words}", LONG if "[long]" in payload.instructions else SHORT)

    def _speak(self, submit: Submit, text: str, left: int) -> None:
        request, payload = submit.request, submit.payload
        if request not in self._live:
            return
        size = payload.format.bytes_for(PIECE_MS) if payload.speaks else 0
        if text or size:
            self._say(StageProduced(request=request, text=text, size=size), tone(size, payload.format))
        if left > 1 and payload.speaks:
            self._live[request] = asyncio.get_running_loop().call_later(PACE_S, self._speak, submit, "", left - 1)
        else:
            self._finish(request)

    def _finish(self, request: str) -> None:
        self._say(StageFinished(request=request, usage=Usage(input_text=3, output_text=3)))

    def _say(self, report: AnyReport, sound: bytes = b"") -> None:
        if self._report is not None:
            self._report(report, sound)
