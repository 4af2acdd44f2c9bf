"""The stages of a world: answers drawn from a seed, and everything that a stage may do wrong."""

import random
from collections.abc import Callable
from typing import Any, Literal, Protocol

from msgspec import Struct

from antiphon.engine.scoring import Scores, ScoringService, ScoringStream
from antiphon.events.audio import AudioFormat, TextMark
from antiphon.events.commands import (
    StageAbortFailed,
    StageAccepted,
    StageCalled,
    StageContext,
    StageCost,
    StageFailed,
    StageFinished,
    StageInnerFinished,
    StageLost,
    StageMeasured,
    StageProduced,
    StageRefused,
    StageReleased,
    StageSegmentFinished,
    StageTranscribed,
)
from antiphon.events.context import ContextTurn
from antiphon.events.items import Message
from antiphon.stages.base import Abort, AnyMessage, AnyReport, Append, Confirm, Release, Report, Submit
from antiphon.stages.scripted import tone

from .loop import SimLoop

Mood = Literal["well", "slow", "failing", "losing", "twice", "late", "stuck", "strange"]
MOODS: tuple[Mood, ...] = ("well", "well", "slow", "failing", "losing", "twice", "late", "stuck", "strange")
WORDS = ("Well, ", "all is well", ". And you?", " word", "", "Mhm. ", "one two three four ")


class StageLoop(Protocol):
    """As much of a loop as a stage needs."""

    @property
    def now_us(self) -> int:
        """The time."""
        ...

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> object:
        """Call back at a time, in seconds."""
        ...


class _Run(Struct):
    submit: Submit
    rng: random.Random
    resident: bool


class SimStage:
    """Answers each request as the seed and the number of the request say.

    `count` is told of each fault, `given` of what each request brings along.
    """

    def __init__(
        self,
        loop: StageLoop,
        seed: str,
        gap_us: int,
        count: Callable[[str], None],
        given: Callable[[Submit], None],
    ) -> None:
        self.mood: Mood = "well"
        self.live: dict[str, _Run] = {}
        self.alive = True
        self._loop = loop
        self._seed = seed
        self._gap_us = gap_us
        self._count = count
        self._given = given
        self._requests = 0
        self._report: Report | None = None
        self._rng = random.Random(f"{seed} stage")
        self._last: dict[str, int] = {}
        self._gone: list[str] = []

    @property
    def input_format(self) -> AudioFormat:
        """16 kHz mono."""
        return AudioFormat("pcm16", 16_000)

    def start(self, report: Report) -> None:
        """Begin."""
        self._report = report

    def close(self) -> None:
        """End; nothing is said any more."""
        self.alive = False
        self.live.clear()

    def handle(self, message: AnyMessage) -> None:
        """Take one message."""
        match message:
            case Submit(request=request):
                self._given(message)
                if request not in self.live:
                    self._begin(message)
            case Append(request=request):
                run = self.live.get(request)
                if run is not None:
                    self._unit(run, message)
            case Abort(requests=requests) | Release(requests=requests):
                for request in requests:
                    self._leave(request)
            case Confirm():
                pass

    def lose_all(self) -> None:
        """Lose the stage's process: every request is gone, and that is told."""
        for request in list(self.live):
            del self.live[request]
            self._say(StageLost(request=request))

    # -- what it says ----------------------------------------------------------------------------------------

    def _begin(self, submit: Submit) -> None:
        self._requests += 1
        run = _Run(submit, random.Random(f"{self._seed} {self._requests}"), submit.payload.response_id is None)
        self.live[submit.request] = run
        request = submit.request
        self._later(request, StageAccepted(request=request))
        if submit.payload.purpose == "transcribe":
            self._preview(run)
            return
        if run.resident:
            return
        rng = run.rng
        users = [item for item in submit.payload.items if isinstance(item, Message) and item.role == "user"]
        if users and rng.random() < 0.4:
            final = rng.random() < 0.7
            words = rng.choice(("", "Hello there.", "What is"))
            self._later(request, StageTranscribed(request=request, item_id=users[-1].id, text=words, final=final))
        for _ in range(rng.choice((0, 1, 2, 3, 4, 8))):
            self._produce(run)
        if rng.random() < 0.3:
            for index in range(rng.choice((1, 1, 2))):
                name = rng.choice(("look", "go"))
                self._later(
                    request, StageCalled(request=request, index=index, name=name, arguments='{"a":', final=False)
                )
                self._last[request] += rng.choice((0, 0, 30_000, 300_000))  # it writes slowly
                self._later(request, StageCalled(request=request, index=index, arguments="1}", ends=True))
        if rng.random() < 0.3:
            self._later(request, StageInnerFinished(request=request, stage=1))
        if rng.random() < 0.1:
            self._later(request, StageContext(request=request, turn=ContextTurn(user="?", assistant="!")))
        if rng.random() < 0.2:
            costs = (StageCost(stage="llm", outputs=1),)
            self._later(request, StageMeasured(request=request, costs=costs))
        failing = rng.random() < (0.5 if self.mood == "failing" else 0.02)
        if failing:
            self._count("stage: fails")
            self._later(request, StageFailed(request=request, code="engine_error", message="It broke."))
        else:
            self._later(request, StageFinished(request=request))

    def _preview(self, run: _Run) -> None:
        """Tell what the user has said so far (WIRE 4.4)."""
        rng, submit = run.rng, run.submit
        users = [item for item in submit.payload.items if isinstance(item, Message)]
        if users and rng.random() < 0.9:
            text = rng.choice(("Hello there.", "What is", "I would like, um", "", "mhm"))
            heard = StageTranscribed(request=submit.request, item_id=users[-1].id, text=text, final=False)
            self._later(submit.request, heard)
        if rng.random() < (0.5 if self.mood == "failing" else 0.05):
            self._later(submit.request, StageFailed(request=submit.request, code="engine_error", message="Deaf."))
        else:
            self._later(submit.request, StageFinished(request=submit.request))

    def _produce(self, run: _Run, operation: int | None = None) -> None:
        rng, payload = run.rng, run.submit.payload
        ms = rng.choice((20, 100, 100, 400, 1_500))
        text = rng.choice(WORDS)
        size = payload.format.bytes_for(ms) if payload.speaks else 0
        if not size and not text:
            text = "so"
        marks = (TextMark(len(text), ms),) if size and text and rng.random() < 0.5 else ()
        report = StageProduced(request=run.submit.request, text=text, size=size, marks=marks, operation=operation)
        self._later(run.submit.request, report, tone(size, payload.format))

    def _unit(self, run: _Run, unit: Append) -> None:
        """Take a unit of a model that listens: it is answered, and now and then the model speaks."""
        rng, request = run.rng, unit.request
        if rng.random() < (0.3 if self.mood == "failing" else 0.01):
            self._count("stage: refuses a unit")
            self._later(request, StageRefused(request=request, operation=unit.operation, message="No room."))
            return
        roll = rng.random()
        if roll < 0.55 and not unit.final:
            self._later(request, StageAccepted(request=request, operation=unit.operation))
            if roll < 0.2:
                said = StageSegmentFinished(request=request, decision="listen", operation=unit.operation)
                self._later(request, said)
        elif roll < 0.9:
            self._produce(run, unit.operation)
            if rng.random() < 0.6:
                decision = rng.choice(("listen", "end_of_turn", "end_of_turn", "speak"))
                said = StageSegmentFinished(request=request, decision=decision, operation=unit.operation)
                self._later(request, said)
        else:
            said = StageSegmentFinished(request=request, decision="end_of_turn", operation=unit.operation)
            self._later(request, StageAccepted(request=request, operation=unit.operation))
            self._later(request, said)

    def _leave(self, request: str) -> None:
        run = self.live.get(request)
        rng = self._rng
        if self.mood == "stuck" and rng.random() < 0.7:
            self._count("stage: cannot forget")
            self._later(request, StageAbortFailed(request=request, message="It does not stop."))
            return
        if run is not None and self.mood == "late":
            self._count("stage: late output")
            self._produce(run)
            if rng.random() < 0.5:
                self._later(request, StageFinished(request=request))
        self.live.pop(request, None)
        self._later(request, StageReleased(request=request))
        if self.mood == "strange":
            self._count("stage: speaks behind its end")
            self._later(request, StageProduced(request=request, text="ghost", size=0))
            self._gone.append(request)

    # -- how it arrives --------------------------------------------------------------------------------------

    def _later(self, request: str, report: AnyReport, sound: bytes = b"") -> None:
        rng, mood = self._rng, self.mood
        gap = rng.randrange(self._gap_us + 1) * (20 if mood == "slow" else 1)
        at = max(self._loop.now_us + gap, self._last.get(request, 0))
        self._last[request] = at
        if mood == "losing" and rng.random() < 0.15:
            self._count("stage: loses an answer")
            return
        self._loop.call_at(at / 1e6, self._say, report, sound)
        if mood == "twice" and rng.random() < 0.5:
            self._count("stage: says it twice")
            self._loop.call_at((at + rng.randrange(50_000)) / 1e6, self._say, report, sound)
        if mood == "strange" and self._gone and rng.random() < 0.3:
            self._count("stage: speaks of a dead epoch")
            dead = rng.choice(self._gone)
            self._loop.call_at(at / 1e6, self._say, StageAccepted(request=dead), b"")

    def _say(self, report: AnyReport, sound: bytes = b"") -> None:
        if self.alive and self._report is not None:
            self._report(report, sound)


class SimScoring(ScoringService):
    """Finds speech in what is not silence, a little later; deaf now and then."""

    def __init__(self, loop: SimLoop, gap_us: int) -> None:
        super().__init__(_Nothing(), threaded=False)
        self.deaf = 0
        self._sim = loop
        self._gap_us = gap_us
        self._last_us = 0

    def submit(self, stream: ScoringStream, pcm16: bytes, done: Callable[[Scores], None]) -> None:
        """See `ScoringService`."""
        frames, lead = stream.cut(pcm16)
        if not frames and not stream.busy:
            done(Scores())
            return
        if self.deaf and frames:
            self.deaf -= 1
            scores = Scores(failed=True)
        else:
            values = tuple([990 if is_loud(frame[512:514]) else 10 for frame in frames])
            scores = Scores(values, lead if values else 0)
        if not self._gap_us and not stream.busy:
            done(scores)
            return
        stream.busy += 1
        self._last_us = max(self._last_us, self._sim.now_us + self._gap_us)

        def deliver() -> None:
            stream.busy -= 1
            done(scores)

        self._sim.call_at(self._last_us / 1e6, deliver)


def is_loud(sample: bytes) -> bool:
    """Return whether there is more in a sample than the resampler's noise."""
    return abs(int.from_bytes(sample, "little", signed=True)) > 1000


class _Nothing:
    """A scorer that is never asked."""

    def new_stream(self) -> object:
        return None

    def score(self, streams: list[object], frames: list[bytes]) -> list[float]:
        raise AssertionError("nobody asks")
