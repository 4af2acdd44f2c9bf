"""The live half of a fork: what nobody has answered yet is asked of a stage, and comes when the stage says it."""

from collections import deque
from collections.abc import Callable
from typing import Literal

import anyio
import anyio.lowlevel
from msgspec import Struct

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.sessions import core
from antiphon.stages.base import AnyReport

from .clock import Clock
from .desk import Desk
from .fork import Fork
from .fork_asking import Held
from .fork_origin import operation_of
from .fork_samples import ForkSamples
from .host import PipelineHost
from .runner import samples_of
from .window import SoundWindow

Pace = Literal["real", "virtual"]
"""How time goes on while a stage works.

`real`: as it does; what a stage says comes when it was said, and what comes from outside meanwhile in between.
`virtual`: not at all; the work of a stage takes no time, and the rest waits until it has answered.
"""

QUIET_US = 2_000_000
"""A model that listens and has said nothing to a unit for so long has nothing to say to it."""

PATIENCE_US = 120_000_000
SILENT = "The stage has said nothing for two minutes."
"""How long a stage may say nothing while everything else waits for it, and what is said of it then."""

Told = Callable[[str, int], None]
"""Told of every request that a live stage is asked, and at which session time (µs)."""


class _Came(Struct, frozen=True):
    report: AnyReport
    sound: bytes
    us: int


class _Owed:
    """Units of models that listen which have not been worked off yet: the last one of each request."""

    def __init__(self) -> None:
        self._units: dict[str, int] = {}
        self._named: dict[str, int] = {}

    def __contains__(self, request: str) -> bool:
        return request in self._units

    def add(self, request: str, operation: int) -> None:
        self._units[request] = operation

    def forget(self, request: str) -> None:
        self._units.pop(request, None)

    def heed(self, report: AnyReport) -> None:
        """A segment ends the units that were named before it; sound may name its own."""
        name, operation = report.request, operation_of(report)
        if operation is not None:
            self._named[name] = max(operation, self._named.get(name, 0))
        owed = self._units.get(name)
        match report:
            case cmd.StageAccepted() | cmd.StageTranscribed() | cmd.StageMeasured() | cmd.StageOwned():
                return
            case cmd.StageProduced(operation=None):
                return
            case cmd.StageProduced() | cmd.StageSegmentFinished() | cmd.StageRefused():
                if owed is not None and self._named.get(name, 0) >= owed:
                    self.forget(name)
            case _:
                self.forget(name)


class LiveFork:
    """Runs a fork to its end beside a host whose stage is loaded; `told` hears of each request that is asked."""

    def __init__(
        self, fork: Fork, host: PipelineHost, samples: ForkSamples, clock: Clock, pace: Pace, told: Told
    ) -> None:
        self._fork = fork
        self._host = host
        self._samples = samples
        self._clock = clock
        self._pace: Pace = pace
        self._told = told
        self._came: deque[_Came] = deque()
        self._reached = anyio.Event()
        self._anchor: int | None = None
        """The clock's time at session time 0, while time goes on by itself."""
        self._owed = _Owed()
        self._reminded: str | None = None
        """The request whose stage is told what was answered before; what it says to that is not heard."""

    def on_report(self, report: AnyReport, sound: bytes) -> None:
        """Take what the stage says; for the host."""
        self._owed.heed(report)
        if not self._reminds(report.request):
            self._came.append(_Came(report, sound, self._clock.monotonic_us()))
        self._reached.set()

    async def run(self) -> None:
        """Go on until nothing is left to do, and no live stage has anything left to say.

        Raises:
            Circling: as `Fork.step` does.
        """
        async with anyio.create_task_group() as tasks:
            desk = Desk(self._fork.forked.session, self._host, self._samples, SoundWindow(), tasks, self._refused)
            while True:
                await self._ask(desk)
                if self._came:
                    self._hear(self._came.popleft())
                elif self._busy():
                    await self._pass_time()
                else:
                    self._anchor = None
                    if not self._fork.step():
                        break
                await anyio.lowlevel.checkpoint()
            desk.abandon([])
            tasks.cancel_scope.cancel()

    def _refused(self, command: cmd.AnyCommand) -> None:
        """Take the desk's word that a stage could not be given what it needs.

        A model that cannot be told what it heard before cannot go on from there.
        """
        if not isinstance(command, cmd.StageFailed | cmd.StageRefused):
            return
        if self._reminds(command.request):
            self._reminded = None
            command = cmd.StageFailed(request=command.request, code=command.code, message=command.message)
        self.on_report(command, b"")

    async def _ask(self, desk: Desk) -> None:
        """Give the stage what is unanswered; what was answered before it took over one by one, and unheard."""
        questions, self._fork.unanswered = self._fork.unanswered, []
        lost: set[str] = set()
        for question in questions:
            held = self._live(question.request) if isinstance(question, fx.SubmitToStage | fx.FeedStage) else None
            if held is not None and held.name in lost:
                continue
            if isinstance(question, fx.SubmitToStage):
                self._told(question.request, self._fork.session.now)
            if isinstance(question, fx.FeedStage):
                self._owed.add(question.request, question.operation)
            if held is None or not held.answered(question):
                desk.execute([question])
                continue
            self._reminded = held.name
            desk.execute([question])
            if isinstance(question, fx.FeedStage):
                await self._worked_off(held.name)
            if not self._reminds(held.name):
                lost.add(held.name)
            self._reminded = None

    def _reminds(self, request: str) -> bool:
        return self._reminded == request

    async def _worked_off(self, request: str) -> None:
        """Wait until a unit is worked off, or nothing has been said for a while."""
        while request in self._owed:
            if not await self._wait_until(self._clock.monotonic_us() + QUIET_US):
                self._owed.forget(request)

    def _hear(self, came: _Came) -> None:
        if self._live(came.report.request) is None:
            return
        at = self._fork.session.now if self._anchor is None else came.us - self._anchor
        data = came.sound
        for event in self._fork.hear(came.report, at):
            for ref in samples_of(event):
                self._samples.say(ref, data[: ref.size])
                data = data[ref.size :]

    def _busy(self) -> bool:
        """Whether a stage has something to say before time may go on by itself."""
        # A model that listens for ever has something to say only to a unit, or while time goes on.
        goes_on = self._pace == "real" and self._fork.next_at() is not None
        live = [held for held in map(self._live, core.outstanding(self._fork.session)) if held is not None]
        return any(not held.resident or held.name in self._owed or goes_on for held in live)

    def _live(self, request: str) -> Held | None:
        held = self._fork.asking.requests.get(request)
        return held if held is not None and held.live else None

    async def _pass_time(self) -> None:
        """Wait for the stage; in real time only until something else is due, and do that."""
        if self._pace == "real" and self._anchor is None:
            self._anchor = self._clock.monotonic_us() - self._fork.session.now
        due = None if self._anchor is None else self._fork.next_at()
        owing = [name for name in core.outstanding(self._fork.session) if name in self._owed]
        until = self._clock.monotonic_us() + (QUIET_US if owing else PATIENCE_US)
        if due is not None and self._anchor is not None:
            until = min(until, due + self._anchor)
        if await self._wait_until(until) or self._came:
            return
        if due is not None and self._anchor is not None and self._clock.monotonic_us() >= due + self._anchor:
            self._fork.step()
            return
        for name in owing or core.outstanding(self._fork.session):
            held = self._live(name)
            if name in self._owed:
                self._owed.forget(name)
            elif held is not None and not held.resident:
                self._fork.give_up(held, SILENT)

    async def _wait_until(self, us: int) -> bool:
        """Wait until the stage says something (True), or for a time of the clock (False)."""
        self._reached = reached = anyio.Event()
        if self._came:
            return True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._ring, us, tasks.cancel_scope)
            await reached.wait()
            tasks.cancel_scope.cancel()
        return reached.is_set()

    async def _ring(self, us: int, scope: anyio.CancelScope) -> None:
        await self._clock.sleep_until(us)
        scope.cancel()
