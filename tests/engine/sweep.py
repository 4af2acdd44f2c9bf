"""Cancels an operation at each place where it waits, and looks at what is left of it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, ClassVar, Literal, NamedTuple

import anyio
from msgspec import Struct

from antiphon.engine.attachment import Attachment
from antiphon.engine.clock import VirtualClock
from antiphon.engine.hub import Hub
from antiphon.engine.live import Live
from antiphon.engine.opening import Opening
from antiphon.engine.sample_store import MemorySamples
from antiphon.engine.settings import HubSettings
from antiphon.events.audio import SampleRef
from antiphon.events.events import SessionClosed, SessionDetached, SessionOpened, SessionResumed
from antiphon.events.log import SessionRow, Snapshot, Transaction
from antiphon.sessions.plugins import ECHO, SessionPlugin
from antiphon.stages.scripted import Hang, Say, ScriptedStage

from .worlds import MoodyLog, World, ask, opening, settle, world

How = Literal["at once", "late", "twice", "for good"]
"""At once: as soon as it waits. Late: in the moment in which what it waits for has come, and it does not know yet.
Twice: and again where its clean-up waits first. For good: by a scope, which cancels whatever it waits for then."""

HOWS: tuple[How, ...] = ("at once", "late", "twice", "for good")

MOST = 100
"""Waits of one operation; more of them is an operation that does not end."""


QUESTIONS = 12
"""What an operation, and what comes of it, asks the log for at most, one behind the other."""


class Struck(Struct):
    """What became of an operation: the times it waited, whether one of them was met, and its answer or error."""

    waits: int = 0
    met: bool = False
    answer: object = None
    error: BaseException | None = None

    @property
    def cancelled(self) -> bool:
        return isinstance(self.error, asyncio.CancelledError)


class _Stepped:
    """Awaits something in its task, and calls `wait` with what it waits for, each time before it does."""

    def __init__(self, awaited: Awaitable[object], wait: Callable[[object], None]) -> None:
        self._awaited = awaited
        self._wait = wait

    def __await__(self) -> Generator[Any, Any, object]:
        steps = self._awaited.__await__()
        thrown: BaseException | None = None
        while True:
            try:
                waited = steps.send(None) if thrown is None else steps.throw(thrown)
            except StopIteration as returned:
                return returned.value
            self._wait(waited)
            try:
                thrown = None
                yield waited
            except BaseException as error:
                thrown = error


def strike(awaited: Coroutine[Any, Any, object], number: int, how: How) -> tuple[asyncio.Task[None], Struck]:
    """Begin an operation in a task of its own, which is cancelled where it waits for the `number`-th time from 0.

    A task of asyncio's, as a program has them: what a cancellation by its `cancel` meets, a task group would hide.
    """
    struck = Struck()
    scope = anyio.CancelScope()

    def wait(waited: object) -> None:
        task = asyncio.current_task()
        assert task is not None
        if struck.waits == number:
            struck.met = True
            if how == "for good":
                scope.cancel()
            elif how == "late" and isinstance(waited, asyncio.Future):
                waited.add_done_callback(lambda _: task.cancel())
            else:
                task.cancel()
        elif how == "twice" and struck.waits == number + 1:
            task.cancel()
        struck.waits += 1
        assert struck.waits < MOST

    async def run() -> None:
        try:
            with scope:
                struck.answer = await _Stepped(awaited, wait)
        except BaseException as error:
            struck.error = error
        if scope.cancelled_caught:
            struck.error = asyncio.CancelledError()

    return asyncio.get_running_loop().create_task(run()), struck


class SlowLog(MoodyLog):
    """Answers nothing in the moment in which it is asked, as a store on a disk: while it holds, not even later.

    Who wants to write a session of `gated` waits until it is opened.
    """

    def __init__(self) -> None:
        super().__init__()
        self.samples = SlowSamples(self)
        self.gated: set[str] = set()
        self._gate = anyio.Event()
        self._asked: list[asyncio.Future[None]] = []

    async def acquire(self, session: str) -> int:
        await self.turn()
        if session in self.gated:
            await self._gate.wait()
        return await super().acquire(session)

    async def read(self, session: str, after: int, limit: int = 1000) -> list[Transaction]:
        await self.turn()
        return await super().read(session, after, limit)

    async def locate(self, session: str, number: int) -> int:
        await self.turn()
        return await super().locate(session, number)

    async def sessions(self, state: Literal["open", "closed"] | None = None) -> list[SessionRow]:
        await self.turn()
        return await super().sessions(state)

    async def load_snapshot(self, session: str) -> Snapshot | None:
        await self.turn()
        return await super().load_snapshot(session)

    async def turn(self) -> None:
        """Wait for the answer to come."""
        future = asyncio.get_running_loop().create_future()
        if self.holding:
            self._asked.append(future)
        else:
            _answer(future)
        await future

    def give(self) -> None:
        """Give the answers to what was asked until now, and hold those to what is asked then."""
        super().release(len(self._held))
        asked, self._asked = self._asked, []
        for future in asked:
            _answer(future)

    def release(self, count: int | None = None) -> None:
        super().release(count)
        self.give()

    def open(self) -> None:
        """Let those go on who wait for a session of `gated`."""
        self.gated.clear()
        self._gate.set()


def _answer(future: asyncio.Future[None]) -> None:
    future.get_loop().call_soon(lambda: future.done() or future.set_result(None))


class SlowSamples(MemorySamples):
    """The sound beside a slow log."""

    def __init__(self, log: SlowLog) -> None:
        super().__init__()
        self._log = log

    async def read(self, session: str, ref: SampleRef) -> bytes:
        await self._log.turn()
        return await super().read(session, ref)


class Standing(NamedTuple):
    """What a hub holds, and what is held of it."""

    admitted: int
    live: int
    attached: int
    uncleaned: int
    tasks: int
    timers: int
    readers: int
    requests: int
    openings: int


def standing(here: World) -> Standing:
    """Count."""
    hub = here.hub
    known = hub.statistics()
    feeds = [live.runner.feed for live in hub._live.values()]
    begun = [one for one in hub._openings._known.values() if not one.done.is_set()]
    return Standing(
        admitted=known.admitted,
        live=known.live,
        attached=known.attached,
        uncleaned=known.uncleaned,
        tasks=len(asyncio.all_tasks()),
        timers=timers(here.clock),
        readers=sum(len(feed._readers) for feed in feeds),
        requests=len(here.scripted.live),
        openings=len(begun) + hub._admitting.total(),
    )


def timers(clock: VirtualClock) -> int:
    """Return how many timers may still go off."""
    return sum(timer.callback is not None for _, _, timer in clock._timers)


def live(here: World, session: str) -> Live:
    """Return a session that has a runner."""
    return here.hub._live[session]


async def life(log: MoodyLog, session: str) -> list[str]:
    """Return what the log says of a session's connections and its end."""
    told: list[str] = []
    for event in [event for entry in await log.read(session, 0) for event in entry.events]:
        match event:
            case SessionOpened():
                told.append("opened")
            case SessionResumed(generation=generation):
                told.append(f"resumed {generation}")
            case SessionDetached(generation=generation):
                told.append(f"detached {generation}")
            case SessionClosed(reason=reason):
                told.append(f"closed: {reason}")
            case _:
                pass
    return told


class Operation:
    """One operation on a hub, and what is to be observed when it was cancelled, or was not.

    A bystander is attached meanwhile, and is being answered.
    """

    settings: ClassVar[HubSettings] = HubSettings(max_sessions=4, shutdown_ms=200)
    plugin: ClassVar[SessionPlugin] = ECHO

    def __init__(self, here: World) -> None:
        self.here = here
        self.hub: Hub = here.hub
        self.log = here.log
        assert isinstance(self.log, SlowLog)

    @property
    def readers(self) -> int:
        """How many readers of the log it may leave."""
        return 0

    @classmethod
    def stage(cls, clock: VirtualClock) -> ScriptedStage:
        """Return the stage of its world."""
        return ScriptedStage(clock, default=(Say("Well", 80), Hang()))

    @classmethod
    async def before(cls, log: SlowLog, clock: VirtualClock) -> None:
        """Make what a former server has left."""

    async def prepare(self) -> None:
        """Make what the operation is carried out on."""

    async def act(self) -> object:
        """Carry it out."""
        raise NotImplementedError

    def unblock(self) -> None:
        """Let come what it waits for, other than the log."""

    async def check(self, struck: Struck) -> None:
        """Look at what it has left, and repeat it."""
        raise NotImplementedError

    def asking(self, control_id: str) -> Opening:
        """Return an opening as its sessions have it."""
        return opening(control_id)

    async def bystander(self) -> Attachment:
        """Open a session of somebody else's."""
        attachment = await self.hub.open_held(self.asking("bystander"))
        ask(attachment)
        await settle()
        return attachment


async def meet(kind: type[Operation], number: int, how: How, *, held: bool) -> Struck:
    """Cancel an operation where it waits for the `number`-th time, and check what is to be observed then.

    `held`: the log keeps its answers to itself until the operation waits for nothing else, or is gone.
    """
    others = asyncio.all_tasks()
    clock, log = VirtualClock(), SlowLog()
    await kind.before(log, clock)
    async with world(kind.stage(clock), plugin=kind.plugin, settings=kind.settings, clock=clock, log=log) as here:
        operation = kind(here)
        other = await operation.bystander()
        await operation.prepare()
        await settle()
        log.holding = held
        task, struck = strike(operation.act(), number, how)
        await answers(log, held=held)
        log.holding = held
        operation.unblock()
        await answers(log, held=held)
        assert task.done(), "nothing that it waits for is held any more"
        assert struck.cancelled or struck.error is None, struck.error
        await consistent(here, len(others), operation)
        await operation.check(struck)
        await settle()
        await consistent(here, len(others), operation)
        assert other.current
        assert await life(here.log, other.session) == ["opened"], "nobody else hears of it"
        await come_to_rest(here)
    await settle()
    assert asyncio.all_tasks() == others
    return struck


async def answers(log: SlowLog, *, held: bool) -> None:
    """Let happen what can; if answers are held, what can when they are given, and so on."""
    await settle()
    if held:
        for _ in range(QUESTIONS):
            log.give()
            await settle(20)
        log.release()
        await settle()


async def consistent(here: World, others: int, operation: Operation) -> None:
    """What is held is what the log says: sessions that go on, their connections, and what their answers need."""
    lives = {row.session: await life(here.log, row.session) for row in await here.log.sessions("open")}
    found = standing(here)
    attached = [name for name, told in lives.items() if told[-1].startswith(("opened", "resumed"))]
    assert (found.admitted, found.live, found.attached) == (len(lives), len(lives), len(attached))
    assert (found.uncleaned, found.openings) == (0, 0)
    for name in lives:
        lease = live(here, name).runner.session.lease
        assert lease.attached == (lease.expires_at is None), "P44: owned, or given up with its grace running"
    armed = [live(here, name).runner._timer for name in lives]
    assert found.timers == sum(timer is not None for timer in armed)
    assert (found.tasks, found.readers) == (others + len(lives), operation.readers)
    asked = {request.partition(".e")[0] for request in here.scripted.live}
    assert asked <= lives.keys()


async def come_to_rest(here: World) -> None:
    """Let everybody go: nothing is held."""
    for row in await here.log.sessions("open"):
        await here.hub.close(row.session, "rest")
    await settle()
    found = standing(here)
    assert (found.admitted, found.live, found.requests, found.timers, found.openings) == (0, 0, 0, 0, 0)


async def sweep(kind: type[Operation], how: How, *, held: bool) -> int:
    """Cancel an operation at each wait, until it comes to its end; return how often it waits."""
    number = 0
    while (await meet(kind, number, how, held=held)).met:
        number += 1
    return number
