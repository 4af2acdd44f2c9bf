"""A server, cancelled wherever it waits while it starts, serves and ends: it leaves no task, no timer and no stage
behind, and its sessions go on in the next one (M15, M16)."""

import asyncio

import anyio.lowlevel
import pytest

from antiphon.engine.attachment import Attachment
from antiphon.engine.clock import VirtualClock
from antiphon.engine.host import OnReport
from antiphon.engine.hosts import InlineHost
from antiphon.engine.hub import Hub
from antiphon.engine.opening import Opening
from antiphon.engine.settings import HubSettings
from antiphon.sessions.plugins import ECHO
from antiphon.stages.scripted import Hang, Say, ScriptedStage

from .sweep import HOWS, How, SlowLog, Struck, answers, life, strike, timers
from .worlds import SECRET, World, ask, code_of, killed, opening, resumption, settle, world
from tests.rules import rule

pytestmark = pytest.mark.anyio

SETTINGS = HubSettings(shutdown_ms=2_000)
DETACHED, CLOSED = ["opened", "detached 0"], ["opened", "closed: shutdown"]


def busy(clock: VirtualClock) -> ScriptedStage:
    return ScriptedStage(clock, default=(Say("Well", 80), Hang()))


class SlowHost(InlineHost):
    """Takes its time to start and to end."""

    def __init__(self, stage: ScriptedStage) -> None:
        super().__init__(stage)
        self.told: list[str] = []

    async def start(self, on_report: OnReport) -> None:
        self.told.append("start")
        await anyio.lowlevel.checkpoint()
        await super().start(on_report)
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        self.told.append("close")
        await super().aclose()
        await anyio.lowlevel.checkpoint()


class Server:
    """A server that takes over a session, opens two, and ends."""

    def __init__(self, log: SlowLog, clock: VirtualClock) -> None:
        stage = busy(clock)
        self.host = SlowHost(stage)
        self.hub = Hub(log, log.samples, self.host, ECHO, SETTINGS, clock, SECRET)
        self.handles: list[Attachment] = []

    async def serve(self) -> None:
        async with self.hub:
            for dialect in ("duplex", "ga"):
                asked = Opening(dialect="ga" if dialect == "ga" else "duplex", control_id=dialect)
                self.handles.append(await self.hub.open(asked))
                ask(self.handles[-1])
            await settle(3)


async def meet(number: int, how: How, *, held: bool) -> Struck:
    """Cancel a server where it waits for the `number`-th time."""
    log, clock = SlowLog(), VirtualClock()
    async with killed(busy(clock), log, clock) as hub:
        left = await hub.open(opening("left"))
        ask(left)
        await settle()
    others = asyncio.all_tasks()
    server = Server(log, clock)
    log.holding = held
    task, struck = strike(server.serve(), number, how)
    await answers(log, held=held)
    assert task.done()
    assert struck.cancelled or struck.error is None, struck.error
    assert asyncio.all_tasks() == others
    assert timers(clock) == 0
    assert server.host.told in ([], ["start", "close"])
    assert await code_of(server.hub.open(opening("late"))) in ("going_away", "engine_dead")
    ends = {handle.ended for handle in server.handles}
    assert ends <= ({"shutdown", "engine_dead"} if struck.cancelled else {"shutdown"})
    if not struck.cancelled:
        assert [await life(log, handle.session) for handle in server.handles] == [DETACHED, CLOSED]
    async with world(busy(clock), log=log, clock=clock, settings=SETTINGS) as here:
        await go_on(here, [left, *server.handles])
    return struck


async def go_on(here: World, handles: list[Attachment]) -> None:
    """What the next server finds: sessions that can be resumed, and no others."""
    for handle in handles:
        if handle.dialect == "duplex":
            assert (await here.hub.resume(resumption(handle, "again"))).current
    known = here.hub.statistics()
    assert known.live == known.admitted == len(await here.log.sessions("open"))
    assert known.attached == sum(handle.dialect == "duplex" for handle in handles)


@rule("M15", "M16", "B12", "P53")
@pytest.mark.parametrize("held", [False, True], ids=["", "held"])
@pytest.mark.parametrize("how", HOWS)
async def test_a_server_that_is_cancelled_anywhere_leaves_nothing_behind(how: How, held: bool) -> None:
    number = 0
    while (await meet(number, how, held=held)).met:
        number += 1
    assert number > 0, "it waits"


@rule("M15")
@pytest.mark.parametrize("held", [False, True], ids=["", "held"])
@pytest.mark.parametrize("how", HOWS)
async def test_a_shutdown_that_is_cancelled_anywhere_may_be_asked_for_again(how: How, held: bool) -> None:
    number, met = 0, True
    while met:
        clock, log = VirtualClock(), SlowLog()
        async with world(busy(clock), log=log, clock=clock, settings=SETTINGS) as here:
            one = await here.hub.open(opening("one"))
            two = await here.hub.open(Opening(dialect="ga", control_id="two"))
            ask(one)
            ask(two)
            await settle()
            log.holding = held
            task, struck = strike(here.hub.shutdown(), number, how)
            await answers(log, held=held)
            assert task.done()
            await here.hub.shutdown()
            assert (one.ended, two.ended) == ("shutdown", "shutdown")
            assert [await life(here.log, handle.session) for handle in (one, two)] == [DETACHED, CLOSED]
            assert here.hub.statistics().live == 0
        number, met = number + 1, struck.met
    assert number > 1, "it waits"
