"""A stage that does what a test wrote down: deterministic, without a thread, moved by the clock it is given."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, assert_never

from msgspec import Struct

from antiphon.events.audio import AudioFormat, TextMark
from antiphon.events.commands import (
    Decision,
    StageAbortFailed,
    StageAccepted,
    StageCost,
    StageFailed,
    StageFinished,
    StageInnerFinished,
    StageProduced,
    StageRefused,
    StageReleased,
    StageSegmentFinished,
    StageTranscribed,
    Usage,
)
from antiphon.events.items import Message
from antiphon.stages.base import Abort, AnyMessage, AnyReport, Append, Confirm, Release, Report, Submit

INPUT = AudioFormat("pcm16", 16_000)


class StageClock(Protocol):
    """As much of a clock as a script needs; times in microseconds."""

    def monotonic_us(self) -> int:
        """Return the time now."""
        ...

    def call_at(self, us: int, callback: Callable[[], None]) -> object:
        """Call back at a time."""
        ...


class Say(Struct, frozen=True):
    """Produce words, and `ms` of sound that belongs to them. `marks` are given as they are.

    `takes`: it comes of the next unit, waits for it, and is its acceptance.
    """

    text: str = ""
    ms: int = 0
    marks: tuple[TextMark, ...] = ()
    takes: bool = False
    model_turn: int | None = None


class Transcribe(Struct, frozen=True):
    """Report the words of the last user item."""

    text: str
    final: bool = True
    error: str | None = None


class Sleep(Struct, frozen=True):
    """Wait for the clock."""

    ms: int


class Cue(Struct, frozen=True):
    """Wait until the test gives this cue; a cue given before counts."""

    name: str


class Hear(Struct, frozen=True):
    """Wait until this many bytes of appends have come for a resident request, since the last `Hear`."""

    size: int


class Take(Struct, frozen=True):
    """Wait for this many units, and accept each. A script without such a step accepts every unit as it comes."""

    units: int = 1


class Refuse(Struct, frozen=True):
    """Wait for a unit, and refuse it and all that are under way behind it."""

    code: str = "runtime_append_failed"
    message: str = "The script said so."


class Decide(Struct, frozen=True):
    """Report that the units are worked off, and what the model decides: it listens, pauses, or has said all."""

    decision: Decision
    reason: str | None = None
    model_turn: int | None = None
    buffering: bool = False
    abort: bool = False
    usage: Usage = Usage()
    costs: tuple[StageCost, ...] = ()


class Inner(Struct, frozen=True):
    """Report that an inner stage has ended."""

    stage: int


class Finish(Struct, frozen=True):
    """Report the end."""

    usage: Usage = Usage()
    costs: tuple[StageCost, ...] = ()


class Fail(Struct, frozen=True):
    """Report a failure."""

    code: str = "engine_error"
    message: str = "The script said so."


class Crash(Struct, frozen=True):
    """Raise out of `handle`; only as the first step, where the host is the caller."""


class Hang(Struct, frozen=True):
    """Never go on."""


class Deaf(Struct, frozen=True):
    """From here on answer neither `Abort` nor `Release`, until the test calls `let_go`."""


class Stuck(Struct, frozen=True):
    """From here on fail every `Abort` and `Release`, and hold on, until the test calls `let_go`."""


class Late(Struct, frozen=True):
    """After an abort, and before it is confirmed, still produce these words and this much sound."""

    text: str = "late"
    ms: int = 0


class Repeat(Struct, frozen=True):
    """Report the last thing again, as a stage that retries might."""


Step = (
    Say
    | Transcribe
    | Sleep
    | Cue
    | Hear
    | Take
    | Refuse
    | Decide
    | Inner
    | Finish
    | Fail
    | Crash
    | Hang
    | Deaf
    | Stuck
    | Late
    | Repeat
)
Script = Sequence[Step]

ANSWER: Script = (Say("Hello.", 80), Finish())
QUIET: Script = (Finish(),)
"""Hears nothing in what is said so far."""


class Crashed(Exception):
    """What `Crash` raises."""


class _Run:
    """One request on its way through its script."""

    def __init__(self, submit: Submit, script: Script) -> None:
        self.submit = submit
        self.steps: deque[Step] = deque(script)
        self.held = submit.hold
        self.heard = 0
        self.deaf = False
        self.stuck = False
        self.late: list[Late] = []
        self.last: tuple[AnyReport, bytes] | None = None
        self.sleeping = False
        self.by_hand = any(
            isinstance(step, Take | Refuse) or (isinstance(step, Say) and step.takes) for step in script
        )
        self.units: deque[Append] = deque()
        self.taken = 0
        self.operation = 0


class ScriptedStage:
    """Plays `scripts[n]` for the n-th request (0, 1, …), else `default`.

    Requests for the words of an utterance that is still open are counted apart: `previews[n]`, else `QUIET`.
    `messages` is everything it was told, in order. `cue(name)` lets scripts go on; `crash` makes every later
    message raise.
    """

    def __init__(
        self,
        clock: StageClock | None = None,
        scripts: Mapping[int, Script] | None = None,
        default: Script = ANSWER,
        input_format: AudioFormat = INPUT,
        previews: Mapping[int, Script] | None = None,
    ) -> None:
        self.messages: list[AnyMessage] = []
        self._clock = clock
        self._scripts = dict(scripts or {})
        self._default = default
        self._input_format = input_format
        self._report: Report | None = None
        self._count = 0
        self._previews = dict(previews or {})
        self._previewed = 0
        self._runs: dict[str, _Run] = {}
        self._cues: set[str] = set()
        self._owed: list[str] = []
        self._closed = False

    @property
    def input_format(self) -> AudioFormat:
        """What it was told to say."""
        return self._input_format

    @property
    def requests(self) -> list[str]:
        """The requests that it was given, in order."""
        return [message.request for message in self.messages if isinstance(message, Submit)]

    @property
    def live(self) -> list[str]:
        """The requests that it has not forgotten."""
        return list(self._runs)

    def start(self, report: Report) -> None:
        """Begin; there is nothing to load."""
        self._report = report

    def handle(self, message: AnyMessage) -> None:
        """Take one message and play as far as the scripts allow."""
        self.messages.append(message)
        match message:
            case Submit(request=request):
                if request not in self._runs:
                    self._submit(message)
            case Append(request=request):
                run = self._runs.get(request)
                if run is not None and message.operation > run.operation:
                    self._append(run, message)
                    self._play(request)
            case Confirm(request=request):
                run = self._runs.get(request)
                if run is not None:
                    run.held = False
                    self._play(request)
            case Abort(requests=requests) | Release(requests=requests):
                for request in requests:
                    self._leave(request)
            case _:
                assert_never(message)

    def close(self) -> None:
        """Stop everything."""
        self._closed = True
        self._runs.clear()

    # -- for the test ----------------------------------------------------------------------------------------

    def cue(self, name: str) -> None:
        """Give a cue: scripts that wait for it go on, and later ones do not wait."""
        self._cues.add(name)
        for request in list(self._runs):
            self._play(request)

    def let_go(self) -> None:
        """Confirm what `Deaf` scripts did not answer, and let what `Stuck` ones failed succeed from here on."""
        for run in self._runs.values():
            run.stuck = False
        owed, self._owed = self._owed, []
        for request in owed:
            self._runs.pop(request, None)
            self._say(StageReleased(request=request))

    # -- playing ---------------------------------------------------------------------------------------------

    def _submit(self, submit: Submit) -> None:
        script = self._script(submit)
        if script and isinstance(script[0], Crash):
            raise Crashed("as the script says")
        self._runs[submit.request] = _Run(submit, script)
        self._say(StageAccepted(request=submit.request))
        self._play(submit.request)

    def _script(self, submit: Submit) -> Script:
        if submit.payload.purpose == "transcribe":
            self._previewed += 1
            return self._previews.get(self._previewed - 1, QUIET)
        self._count += 1
        return self._scripts.get(self._count - 1, self._default)

    def _append(self, run: _Run, unit: Append) -> None:
        """Take a unit in; one that is not the next is refused, as a model with a timeline must."""
        run.operation = unit.operation
        if unit.seq != run.taken + len(run.units) + 1:
            text = f"unit {unit.seq} is not the next"
            self._say(StageRefused(request=unit.request, operation=unit.operation, message=text))
            return
        run.units.append(unit)
        if not run.by_hand:
            self._say(StageAccepted(request=unit.request, operation=_taken(run)))

    def _leave(self, request: str) -> None:
        run = self._runs.get(request)
        if run is not None and run.deaf:
            if request not in self._owed:
                self._owed.append(request)
            return
        if run is not None and run.stuck:
            self._say(StageAbortFailed(request=request, message="The script said so."))
            return
        if run is not None:
            for late in run.late:
                self._produce(run, Say(late.text, late.ms))
        self._runs.pop(request, None)
        self._say(StageReleased(request=request))

    def _play(self, request: str) -> None:
        run = self._runs.get(request)
        while run is not None and self._runs.get(request) is run and run.steps and not self._closed:
            if run.held or run.sleeping or not self._step(run, run.steps[0]):
                return

    def _step(self, run: _Run, step: Step) -> bool:
        """Carry out one step; False if it must wait."""
        match step:
            case Cue(name=name) if name not in self._cues:
                return False
            case Hear(size=size) if run.heard < size:
                return False
            case Take(units=units) if units > len(run.units):
                return False
            case Refuse() | Say(takes=True) if not run.units:
                return False
            case Hang():
                return False
            case _:
                run.steps.popleft()
        match step:
            case Say():
                self._produce(run, step, _taken(run) if step.takes else None)
            case Take(units=units):
                for _ in range(units):
                    self._tell(run, StageAccepted(request=run.submit.request, operation=_taken(run)))
            case Refuse(code=code, message=message):
                refused = run.units[0].operation
                run.units.clear()
                report = StageRefused(request=run.submit.request, operation=refused, code=code, message=message)
                self._tell(run, report)
            case Hear(size=size):
                run.heard -= size
            case Sleep(ms=ms):
                self._sleep(run, ms)
            case Late():
                run.late.append(step)
            case Deaf():
                run.deaf = True
            case Stuck():
                run.stuck = True
            case Repeat():
                if run.last is not None:
                    self._say(*run.last)
            case Transcribe() | Decide() | Inner() | Finish() | Fail():
                self._tell(run, _report(run, step))
            case Cue() | Crash() | Hang():
                pass
            case _:
                assert_never(step)
        return True

    def _sleep(self, run: _Run, ms: int) -> None:
        if self._clock is None:
            raise ValueError("a script that sleeps needs a clock")
        run.sleeping = True

        def wake() -> None:
            run.sleeping = False
            self._play(run.submit.request)

        self._clock.call_at(self._clock.monotonic_us() + ms * 1000, wake)

    def _produce(self, run: _Run, say: Say, operation: int | None = None) -> None:
        payload = run.submit.payload
        size = payload.format.bytes_for(say.ms) if payload.speaks else 0
        report = StageProduced(
            request=run.submit.request,
            text=say.text,
            size=size,
            marks=say.marks,
            operation=operation,
            model_turn=say.model_turn,
        )
        self._tell(run, report, tone(size, payload.format))

    def _tell(self, run: _Run, report: AnyReport, sound: bytes = b"") -> None:
        run.last = (report, sound)
        self._say(report, sound)

    def _say(self, report: AnyReport, sound: bytes = b"") -> None:
        if self._report is not None and not self._closed:
            self._report(report, sound)


def _taken(run: _Run) -> int:
    """Take the oldest unit; return its operation."""
    unit = run.units.popleft()
    run.taken += 1
    run.heard += len(unit.data)
    return unit.operation


def _report(run: _Run, step: Transcribe | Decide | Inner | Finish | Fail) -> AnyReport:
    submit = run.submit
    match step:
        case Decide():
            return StageSegmentFinished(
                request=submit.request,
                decision=step.decision,
                reason=step.reason,
                model_turn=step.model_turn,
                buffering=step.buffering,
                abort=step.abort,
                usage=step.usage,
                costs=step.costs,
            )
        case Transcribe(text=text, final=final, error=error):
            users = [item for item in submit.payload.items if isinstance(item, Message) and item.role == "user"]
            item_id = users[-1].id if users else ""
            return StageTranscribed(request=submit.request, item_id=item_id, text=text, final=final, error=error)
        case Inner(stage=stage):
            return StageInnerFinished(request=submit.request, stage=stage)
        case Finish(usage=usage, costs=costs):
            return StageFinished(request=submit.request, usage=usage, costs=costs)
        case Fail(code=code, message=message):
            return StageFailed(request=submit.request, code=code, message=message)
        case _:
            assert_never(step)


def tone(size: int, sound: AudioFormat) -> bytes:
    """Return `size` bytes of a sound that is not silence: a saw of 64 samples in every format's own bytes."""
    period = bytes((index * 4) & 0xFF for index in range(64 * sound.width))
    return (period * (size // len(period) + 1))[:size]
