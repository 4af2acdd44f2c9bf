"""One life of the server in a world: a real hub and server, on a disk, a stage and a detector that can fail."""

from collections.abc import Callable

import anyio

from antiphon.engine.clock import Clock
from antiphon.engine.hosts import InlineHost
from antiphon.engine.hub import Hub
from antiphon.engine.settings import HubSettings
from antiphon.sessions.models.base import TurnModel
from antiphon.stages.base import Submit
from antiphon.transport.server import Listening, Server

from .net import Line
from .script import Script
from .stage import SimScoring, SimStage
from .store import Disk, ProcessLog, ProcessSamples

SECRET = b"s" * 32


class Process:
    """Lives in `run` until it is stopped, or killed. `log` is the disk as it sees it."""

    def __init__(
        self,
        number: int,
        script: Script,
        disk: Disk,
        clock: Clock,
        plugin: TurnModel,
        *,
        fault: Callable[[str], None],
        given: Callable[["Process", Submit], None],
    ) -> None:
        drawn = script.settings
        self.log = ProcessLog(disk)
        self.stage = SimStage(
            disk.loop, f"{script.seed} {number}", drawn.stage_us, fault, lambda submit: given(self, submit)
        )
        self.scoring = SimScoring(disk.loop, drawn.scores_us)
        settings = HubSettings(
            max_sessions=drawn.max_sessions,
            grace_ms=5_000,
            recovery_grace_ms=10_000,
            idle_ttl_ms=60_000,
            activation_ms=2_000,
            max_session_ms=120_000,
            input_bytes=192 * 1024,
            pending_commits=2,
            items=40,
            replay_bytes=drawn.replay_bytes,
            slow_bytes=drawn.slow_bytes,
            shutdown_ms=1_000,
        )
        host = InlineHost(self.stage)
        self.hub = Hub(self.log, ProcessSamples(self.log), host, plugin, settings, clock, SECRET, self.scoring)
        self.server = Server(self.hub, Listening())
        self.lines: list[Line] = []
        self.stopping = anyio.Event()
        self.over = anyio.Event()
        self.alive = True
        self._scope = anyio.CancelScope()

    @property
    def listens(self) -> bool:
        """Whether it can be connected to."""
        return self.alive and self.server._group is not None

    async def run(self) -> None:
        """Live."""
        try:
            with self._scope:
                async with self.hub, anyio.create_task_group() as group:
                    self.server._group = group  # as `Server.serve` does when its port is bound
                    try:
                        await self.stopping.wait()
                        await self.server._leave()
                    finally:
                        self.server._group = None
                    group.cancel_scope.cancel()
        finally:
            self.alive = False
            self.over.set()

    def kill(self, part: int) -> None:
        """End at once: what it does from here on reaches nobody. See `ProcessLog.die`."""
        if self.alive:
            self.alive = False
            self.log.die(part)
            self.stage.alive = False
            for line in self.lines:
                line.pipe.dead = True
                line.later(line.over)
            self._scope.cancel()
