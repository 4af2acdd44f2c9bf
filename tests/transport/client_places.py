"""Where a client finds its sessions: behind a socket, or in its own process; both can be left and come back."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus

from antiphon.engine.clock import SystemClock
from antiphon.engine.hosts import InlineHost
from antiphon.engine.hub import Hub
from antiphon.engine.memory_log import MemoryLog
from antiphon.events.commands import StageAccepted, StageCalled, StageFinished, StageProduced
from antiphon.events.items import FunctionOutput
from antiphon.sessions.plugins import ECHO
from antiphon.stages.base import Stage, Submit
from antiphon.stages.echo import EchoStage
from antiphon.transport.client import RealtimeClient, Retrying, SessionClient, SessionOptions
from antiphon.transport.inline import InlineClient
from antiphon.transport.server import Listening, Server

from .answering import AnsweringStage
from .serving import DEFAULTS, served_by

FAST = Retrying(shortest_s=0.01, longest_s=0.05, attempts=20)


class Place(ABC):
    """A hub on a log in memory; `restart` opens another one on the same log."""

    def __init__(self, group: TaskGroup, stage: Callable[[], Stage]) -> None:
        self.hub: Hub
        self.log = MemoryLog()
        self._group = group
        self._stage = stage
        self._stop = anyio.Event()
        self._stopped = anyio.Event()

    @abstractmethod
    def client(self, options: SessionOptions | None = None, **more: Any) -> SessionClient:
        """Return a client that comes back quickly."""

    async def restart(self) -> None:
        """End the hub in order, and open another one."""
        await self.stop()
        await self.start()

    async def start(self) -> None:
        """Open a hub."""
        self._stop, self._stopped = anyio.Event(), anyio.Event()
        await self._group.start(self._run)

    async def stop(self) -> None:
        """End the hub."""
        self._stop.set()
        await self._stopped.wait()

    async def _run(self, *, task_status: TaskStatus[None]) -> None:
        host = InlineHost(self._stage())
        async with Hub(self.log, self.log.samples, host, ECHO, DEFAULTS, SystemClock(), b"secret" * 6) as hub:
            await hub.ready.wait()
            await hub.recovered.wait()
            self.hub = hub
            await self._serve(task_status)
        self._stopped.set()

    async def _serve(self, task_status: TaskStatus[None]) -> None:
        task_status.started()
        await self._stop.wait()


class Process(Place):
    """The client's own process."""

    def client(self, options: SessionOptions | None = None, **more: Any) -> SessionClient:
        return InlineClient(lambda: self.hub, options, **{"retrying": FAST, **more})


class Port(Place):
    """A server behind a port, always the same one."""

    port = 0

    def client(self, options: SessionOptions | None = None, **more: Any) -> SessionClient:
        return RealtimeClient(f"ws://127.0.0.1:{self.port}", options, **{"retrying": FAST, **more})

    async def _serve(self, task_status: TaskStatus[None]) -> None:
        server = Server(self.hub, Listening(port=self.port))
        async with served_by(server):
            self.port = server.port
            await super()._serve(task_status)


PLACES: dict[str, type[Place]] = {"socket": Port, "process": Process}


@asynccontextmanager
async def placed(kind: str, stage: Callable[[], Stage] = EchoStage) -> AsyncIterator[Place]:
    """Lend a place of a kind."""
    async with anyio.create_task_group() as group:
        here = PLACES[kind](group, stage)
        await here.start()
        try:
            yield here
        finally:
            await here.stop()


class CallingStage(AnsweringStage):
    """Calls a function, and says the function's output when it is asked again."""

    def answer(self, asked: Submit) -> None:
        """Do either."""
        request, last = asked.request, asked.payload.items[-1]
        self.say(StageAccepted(request=request))
        if isinstance(last, FunctionOutput):
            self.say(StageProduced(request=request, text=f"It says {last.output}."))
        else:
            self.say(StageCalled(request=request, name="weather", arguments='{"city":"Paris"}'))
        self.say(StageFinished(request=request))
