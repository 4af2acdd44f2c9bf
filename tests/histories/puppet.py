"""A stage that a scene moves by hand, where a script is not enough: it says what it is told to, and when."""

from antiphon.events.audio import TextMark
from antiphon.events.commands import (
    StageCalled,
    StageFailed,
    StageFinished,
    StageInnerFinished,
    StageLost,
    StageOwned,
    StageTranscribed,
    Usage,
)
from antiphon.events.items import Message
from antiphon.events.metrics import StageCost
from antiphon.stages.base import AnyReport, Append
from antiphon.stages.scripted import Hang, Say, Script, ScriptedStage, StageClock

WAITING: Script = (Hang(),)
NOTHING = Usage()


class Puppet(ScriptedStage):
    """Plays its scripts, if it has some, and else takes every request and waits for the scene.

    What it is told to do is done for the last request of an answer that it has not forgotten, or for `request`.
    """

    def __init__(
        self,
        clock: StageClock,
        scripts: dict[int, Script] | None = None,
        default: Script = WAITING,
        previews: dict[int, Script] | None = None,
    ) -> None:
        super().__init__(clock, scripts, default, previews=previews)

    @property
    def request(self) -> str:
        """The last request of an answer that is live."""
        answers = [name for name, run in self._runs.items() if run.submit.payload.response_id is not None]
        return answers[-1]

    @property
    def resident(self) -> str:
        """The last request that listens, which is live."""
        listening = [name for name, run in self._runs.items() if run.submit.payload.response_id is None]
        return listening[-1]

    def own(self) -> None:
        """Say that all outputs of functions that the resident request was given are taken in."""
        given = [message.generation for message in self.messages if isinstance(message, Append)]
        self.tell(StageOwned(request=self.resident, generation=max(given)))

    def say(self, text: str, ms: int = 0, marks: tuple[TextMark, ...] = (), request: str | None = None) -> None:
        """Say words, and so much sound."""
        self._produce(self._runs[request or self.request], Say(text, ms, marks))

    def transcribe(self, text: str, *, final: bool = True, seconds: float = 0.0, error: str | None = None) -> None:
        """Report what was heard last."""
        run = self._runs[self.request]
        users = [item for item in run.submit.payload.items if isinstance(item, Message) and item.role == "user"]
        self.tell(
            StageTranscribed(
                request=self.request, item_id=users[-1].id, text=text, final=final, seconds=seconds, error=error
            )
        )

    def call(
        self,
        name: str = "",
        arguments: str = "",
        *,
        index: int = 0,
        call_id: str = "",
        final: bool = True,
        ends: bool = False,
        request: str | None = None,
    ) -> None:
        """Ask for a function, or for a piece of its arguments."""
        asked = request or self.request
        self.tell(
            StageCalled(
                request=asked,
                name=name,
                arguments=arguments,
                index=index,
                call_id=call_id,
                final=final,
                ends=ends,
            )
        )

    def inner(self, stage: int) -> None:
        """End an inner stage."""
        self.tell(StageInnerFinished(request=self.request, stage=stage))

    def finish(self, usage: Usage = NOTHING, costs: tuple[StageCost, ...] = (), request: str | None = None) -> None:
        """End the answer."""
        self.tell(StageFinished(request=request or self.request, usage=usage, costs=costs))

    def fail(self, code: str = "engine_error", message: str = "It broke.") -> None:
        """Fail the answer."""
        self.tell(StageFailed(request=self.request, code=code, message=message))

    def lose(self, request: str | None = None) -> None:
        """Be gone, and the answer with it, as a stage process that dies."""
        lost = request or self.request
        del self._runs[lost]
        self.tell(StageLost(request=lost))

    def tell(self, report: AnyReport) -> None:
        """Report something."""
        self._say(report)
