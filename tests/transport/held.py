"""A stage that answers with as much sound as it is told to, and does not finish until it is told to."""

from antiphon.events.audio import AudioFormat
from antiphon.events.commands import StageAccepted, StageFinished, StageProduced, StageReleased
from antiphon.stages.base import Abort, AnyMessage, Release, Report, Submit


class HeldStage:
    """Says `pieces` pieces of 80 ms at once and then nothing, until `finish`."""

    def __init__(self, pieces: int = 3) -> None:
        self.pieces = pieces
        self.running: list[str] = []
        self._report: Report | None = None

    @property
    def input_format(self) -> AudioFormat:
        """16 kHz."""
        return AudioFormat("pcm16", 16_000)

    def start(self, report: Report) -> None:
        """Be ready at once."""
        self._report = report

    def handle(self, message: AnyMessage) -> None:
        """Take one message."""
        match message:
            case Submit():
                self._begin(message)
            case Abort(requests=requests) | Release(requests=requests):
                for request in requests:
                    if request in self.running:
                        self.running.remove(request)
                    self._say(StageReleased(request=request))
            case _:
                pass

    def finish(self) -> None:
        """End every answer."""
        for request in self.running:
            self._say(StageFinished(request=request))

    def close(self) -> None:
        """Nothing to free."""

    def _begin(self, message: Submit) -> None:
        request, target = message.request, message.payload.format
        self.running.append(request)
        self._say(StageAccepted(request=request))
        for index in range(self.pieces):
            sound = bytes([index % 251 + 1]) * target.bytes_for(80)
            self._say(StageProduced(request=request, text=f"{index} ", size=len(sound)), sound)

    def _say(
        self, report: StageAccepted | StageFinished | StageProduced | StageReleased, sound: bytes = b""
    ) -> None:
        assert self._report is not None
        self._report(report, sound)
