"""A stage for clients of the field: it answers as the instructions of the session say, in real time."""

import asyncio
import json

from antiphon.events.commands import (
    StageAccepted,
    StageCalled,
    StageFinished,
    StageProduced,
    StageTranscribed,
    Usage,
)
from antiphon.events.items import FunctionOutput, Message, text_of
from antiphon.stages.base import Submit
from antiphon.stages.scripted import tone

from tests.transport.answering import AnsweringStage

PIECE_MS = 80
SHORT, LONG = 5, 100
"""Pieces of an answer."""

PACE_S = 0.02
"""Between two pieces: four times as fast as they play."""


class Speaker(AnsweringStage):
    """Says back what was written, or that it heard something.

    Instructions with `[long]` make it speak for eight seconds, and those with `[call]` call the first function that
    there is, if no output of one was just given.
    """

    def __init__(self) -> None:
        super().__init__()
        self._live: dict[str, asyncio.TimerHandle | None] = {}

    def forget(self, request: str) -> None:
        """Stop speaking."""
        timer = self._live.pop(request, None)
        if timer is not None:
            timer.cancel()

    def answer(self, asked: Submit) -> None:
        """Begin to answer a request."""
        request, payload = asked.request, asked.payload
        self._live[request] = None
        self.say(StageAccepted(request=request))
        if payload.purpose == "transcribe":
            self.say(StageFinished(request=request))
            return
        last = payload.items[-1] if payload.items else None
        words = text_of(last) if isinstance(last, Message) else ""
        if isinstance(last, Message) and last.role == "user" and not words:
            words = "something spoken"
            self.say(StageTranscribed(request=request, item_id=last.id, text=words, seconds=1.0))
        tools = json.loads(payload.tools)
        if isinstance(last, FunctionOutput):
            self._speak(asked, f"It says {last.output}", SHORT)
        elif tools and "[call]" in payload.instructions:
            self.say(
                StageCalled(request=request, index=0, name=tools[0]["name"], arguments='{"city": ', final=False)
            )
            self.say(StageCalled(request=request, index=0, arguments='"Bonn"}'))
            self._finish(request)
        else:
            self._speak(asked, f"You said {words}", LONG if "[long]" in payload.instructions else SHORT)

    def _speak(self, submit: Submit, text: str, left: int) -> None:
        request, payload = submit.request, submit.payload
        if request not in self._live:
            return
        size = payload.format.bytes_for(PIECE_MS) if payload.speaks else 0
        if text or size:
            self.say(StageProduced(request=request, text=text, size=size), tone(size, payload.format))
        if left > 1 and payload.speaks:
            self._live[request] = asyncio.get_running_loop().call_later(PACE_S, self._speak, submit, "", left - 1)
        else:
            self._finish(request)

    def _finish(self, request: str) -> None:
        self.say(StageFinished(request=request, usage=Usage(input_text=3, output_text=3)))
