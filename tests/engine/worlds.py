"""A whole engine for a test: a hub with a moved clock, a log that can be made to fail, a scripted stage."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio.lowlevel
import pytest
from anyio import to_thread

from antiphon.engine.attachment import Attachment
from antiphon.engine.clock import VirtualClock
from antiphon.engine.direct import DirectClient, Heard
from antiphon.engine.errors import Refused
from antiphon.engine.host import PipelineHost
from antiphon.engine.hosts import InlineHost
from antiphon.engine.hub import Hub
from antiphon.engine.memory_log import MemoryLog
from antiphon.engine.opening import Opening, Resumption
from antiphon.engine.scoring import ScoringService
from antiphon.engine.settings import HubSettings
from antiphon.events.commands import AnyCommand, CreateItem, CreateResponse, Tick
from antiphon.events.config import ConfigPatch
from antiphon.events.events import AnyEvent, Event, PublicEvent, SessionClosed
from antiphon.events.items import Message, TextPart
from antiphon.events.log import LogError, SampleWrite, Settled, Transaction, Unavailable
from antiphon.sessions.plugins import ECHO, SessionPlugin
from antiphon.stages.base import Stage
from antiphon.stages.scripted import ScriptedStage

SECRET = b"s" * 32
ROUNDS = 60
KILLED = HubSettings(shutdown_ms=1)
ONE = HubSettings(max_sessions=1, shutdown_ms=200)
"""Room for one session."""


async def settle(rounds: int = ROUNDS) -> None:
    """Let everything that can go on without time go on."""
    for _ in range(rounds):
        await anyio.lowlevel.checkpoint()


async def breathe(times: int = 1) -> None:
    """Let what runs in other threads come to its end too."""
    for _ in range(times):
        await settle(4)
        await to_thread.run_sync(int)


class MoodyLog(MemoryLog):
    """A memory log whose answers can be held back, and whose appends can be made to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.holding = False
        self.broken: LogError | None = None
        self.appended: list[Transaction] = []
        self.acquiring: anyio.Event | None = None
        self._held: list[Settled] = []
        self._failed_terms: set[tuple[str, int]] = set()

    async def acquire(self, session: str) -> int:
        if self.acquiring is not None:
            await self.acquiring.wait()
        return await super().acquire(session)

    def append(
        self, session: str, transaction: Transaction, samples: Sequence[SampleWrite], settled: Settled
    ) -> None:
        term = (session, transaction.term)
        if self.broken is not None or term in self._failed_terms:
            self._failed_terms.add(term)
            error = self.broken or Unavailable("an earlier append failed")
            asyncio.get_running_loop().call_soon(settled, error)
            return
        self.appended.append(transaction)
        super().append(session, transaction, samples, self._later(settled))

    async def probe(self) -> None:
        if self.broken is not None:
            raise self.broken
        await super().probe()

    def _later(self, settled: Settled) -> Settled:
        def answer(error: LogError | None) -> None:
            if self.holding:
                self._held.append(settled)
            else:
                settled(error)

        return answer

    def release(self, count: int | None = None) -> None:
        """Give `count` answers that were held back (all of them, and hold no more, without a number)."""
        if count is None:
            self.holding = False
        held = self._held[:count]
        del self._held[:count]
        for settled in held:
            settled(None)


class GatedLog(MoodyLog):
    """A log in which some sessions cannot be taken over until they may, or cannot be read sensibly."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = anyio.Event()
        self.gated: Sequence[str] = ()
        self.asked: list[str] = []
        self.senseless = ""

    async def acquire(self, session: str) -> int:
        self.asked.append(session)
        if session in self.gated:
            await self.gate.wait()
        return await super().acquire(session)

    async def read(self, session: str, after: int, limit: int = 1000) -> list[Transaction]:
        found = await super().read(session, after, limit)
        if session == self.senseless and found:
            event = SessionClosed(number=9, count=1, session=session, reason="client_close", expired=False)
            found.append(Transaction(seq=found[-1].seq + 1, term=1, at=0, command=Tick(), events=(event,)))
        return found


@dataclass
class World:
    """What a test holds in its hands."""

    hub: Hub
    log: MoodyLog
    clock: VirtualClock
    stage: Stage

    @property
    def scripted(self) -> ScriptedStage:
        assert isinstance(self.stage, ScriptedStage)
        return self.stage

    async def advance(self, ms: int) -> None:
        """Move time and let happen what falls due."""
        self.clock.advance(ms * 1000)
        await settle()

    async def recorded(self, session: str) -> list[Transaction]:
        """Return everything that is durable of a session."""
        return await self.log.read(session, 0, 100_000)

    async def commands(self, session: str, kind: type[AnyCommand]) -> list[AnyCommand]:
        return [entry.command for entry in await self.recorded(session) if type(entry.command) is kind]

    async def events(self, session: str) -> list[AnyEvent]:
        return [event for entry in await self.recorded(session) for event in entry.events]


@asynccontextmanager
async def world(
    stage: Stage | None = None,
    *,
    plugin: SessionPlugin = ECHO,
    settings: HubSettings | None = None,
    log: MoodyLog | None = None,
    clock: VirtualClock | None = None,
    host: PipelineHost | None = None,
    scorer: ScoringService | None = None,
) -> AsyncIterator[World]:
    """Run a hub."""
    clock = clock or VirtualClock()
    stage = stage if stage is not None else ScriptedStage(clock)
    log = log or MoodyLog()
    hub = Hub(
        log,
        log.samples,
        host or InlineHost(stage),
        plugin,
        settings or HubSettings(shutdown_ms=200),
        clock,
        SECRET,
        scorer,
    )
    async with hub:
        await settle()
        yield World(hub, log, clock, stage)


@asynccontextmanager
async def killed(
    stage: ScriptedStage, log: MoodyLog, clock: VirtualClock, *, plugin: SessionPlugin = ECHO
) -> AsyncIterator[Hub]:
    """Run a hub that does not get to say goodbye: nothing it wants to write at its end is recorded."""
    async with world(stage, plugin=plugin, log=log, clock=clock, settings=KILLED) as here:
        yield here.hub
        log.broken = Unavailable("the process is gone")
    log.broken = None


def opening(control_id: str = "open", **fields: object) -> Opening:
    """An opening of the duplex dialect."""
    return Opening(dialect="duplex", control_id=control_id, **fields)  # type: ignore[arg-type]


def resumption(attachment: Attachment, control_id: str = "resume", last_number: int = 0) -> Resumption:
    """What the client of an attachment sends to come back."""
    return Resumption(
        session=attachment.session,
        token=attachment.token or "",
        control_id=control_id,
        last_number=last_number,
    )


async def code_of(request: Awaitable[object]) -> str:
    """Return the code by which a request is refused."""
    with pytest.raises(Refused) as refused:
        await request
    return refused.value.code


def ask(attachment: Attachment, words: str = "Hello?") -> None:
    """Say something in writing and ask for the answer."""
    item = Message(id="", role="user", content=(TextPart(words),))
    attachment.send(CreateItem(attachment=attachment.generation, item=item))
    attachment.send(CreateResponse(attachment=attachment.generation))


@dataclass
class Listener:
    """Reads a client's events in the background of a test."""

    client: DirectClient
    heard: list[Heard] = field(default_factory=list[Heard])
    error: Exception | None = None
    ended: bool = False

    async def run(self) -> None:
        try:
            async for heard in self.client.events():
                self.heard.append(heard)
        finally:
            self.ended = True

    @property
    def names(self) -> list[str]:
        return [type(heard.event).__name__ for heard in self.heard]

    @property
    def numbers(self) -> list[int]:
        return [heard.event.number for heard in self.heard if heard.event.number and heard.event.count]

    def all(self, kind: type[Event]) -> list[PublicEvent]:
        return [heard.event for heard in self.heard if isinstance(heard.event, kind)]

    @property
    def sound(self) -> bytes:
        return b"".join(heard.sound for heard in self.heard)


TALK = ConfigPatch(auto_response=True)
"""The model listens all the time and answers on its own."""
