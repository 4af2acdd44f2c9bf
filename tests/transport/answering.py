"""What the small stages of tests have in common: they answer a request, and let go of what is called off."""

from antiphon.events.audio import AudioFormat
from antiphon.events.commands import StageReleased
from antiphon.stages.base import Abort, AnyMessage, AnyReport, Release, Report, Submit


class AnsweringStage:
    """Hears 16 kHz, answers each request by `answer`, and says nothing once it is closed."""

    def __init__(self) -> None:
        self._report: Report | None = None

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
                self.answer(message)
            case Abort(requests=requests) | Release(requests=requests):
                for request in requests:
                    self.forget(request)
                    self.say(StageReleased(request=request))
            case _:
                pass

    def answer(self, asked: Submit) -> None:
        """Begin to answer a request."""
        raise NotImplementedError

    def forget(self, request: str) -> None:
        """Stop what is said to a request that was called off, or is over."""

    def say(self, report: AnyReport, sound: bytes = b"") -> None:
        """Report something."""
        if self._report is not None:
            self._report(report, sound)
