"""A stage that answers with as much sound as it is told to, and does not finish until it is told to."""

from antiphon.events.commands import StageAccepted, StageFinished, StageProduced
from antiphon.stages.base import Submit

from .answering import AnsweringStage


class HeldStage(AnsweringStage):
    """Says `pieces` pieces of 80 ms at once and then nothing, until `finish`."""

    def __init__(self, pieces: int = 3) -> None:
        super().__init__()
        self.pieces = pieces
        self.running: list[str] = []

    def finish(self) -> None:
        """End every answer."""
        for request in self.running:
            self.say(StageFinished(request=request))

    def answer(self, asked: Submit) -> None:
        """Say all of it."""
        request, target = asked.request, asked.payload.format
        self.running.append(request)
        self.say(StageAccepted(request=request))
        for index in range(self.pieces):
            sound = bytes([index % 251 + 1]) * target.bytes_for(80)
            self.say(StageProduced(request=request, text=f"{index} ", size=len(sound)), sound)

    def forget(self, request: str) -> None:
        """It runs no more."""
        if request in self.running:
            self.running.remove(request)
