"""Every control operation, cancelled wherever it waits: nothing is held for a caller who is gone, and asking again
under the same control id gives what the contract says (B12-B22, C11-C14, D30-D33)."""

import asyncio

import pytest

from antiphon.engine.attachment import Attachment
from antiphon.engine.clock import VirtualClock
from antiphon.engine.errors import Refused
from antiphon.engine.opening import Opening, with_recording
from antiphon.engine.settings import HubSettings
from antiphon.events.commands import CloseSession, Heartbeat
from antiphon.events.log import Unavailable
from antiphon.sessions.plugins import MINICPM
from antiphon.stages.scripted import Cue, Deaf, Hang, Say, ScriptedStage

from .sweep import HOWS, How, Operation, SlowLog, Struck, life, live, sweep
from .worlds import TALK, ask, code_of, killed, opening, resumption, settle
from tests.rules import rule

pytestmark = pytest.mark.anyio

VOICE = b"\x01\x10" * 16_000
ABANDONED = ["opened", "closed: open_abandoned"]


# -- opening -------------------------------------------------------------------------------------------------


class OpenFresh(Operation):
    """It leaves a session that goes on, or one that was closed for it, or none."""

    async def act(self) -> object:
        return await self.hub.open(self.asking("mine"))

    async def check(self, struck: Struck) -> None:
        lives = [await life(self.log, name) for name in await self.mine()]
        if struck.cancelled:
            assert lives in ([], [ABANDONED])
        else:
            assert lives == [["opened"]]
        again = await self.hub.open(self.asking("mine"))
        assert (again.current, again.generation, again.lease) == (True, 1, 0)
        if isinstance(struck.answer, Attachment):
            first = struck.answer
            assert (again.session, again.token, first.ended) == (first.session, first.token, "replaced")
        assert (await life(self.log, again.session)) == ["opened"]
        assert len(await self.mine()) == len(lives) + struck.cancelled, "another one for another caller"
        assert await code_of(self.hub.open(opening("mine", model="other"))) == "control_id_reused"

    async def mine(self) -> list[str]:
        rows = await self.log.sessions()
        return [row.session for row in rows if await self.control(row.session) == "mine"]

    async def control(self, session: str) -> str:
        first = (await self.here.recorded(session))[0].command
        return getattr(first, "control_id", "")


class OpenWarmingUp(OpenFresh):
    """Clients are held meanwhile."""

    settings = HubSettings(max_sessions=4, shutdown_ms=200, warm_up_units=1)

    @classmethod
    def stage(cls, clock: VirtualClock) -> ScriptedStage:
        return ScriptedStage(
            clock, scripts={0: (Cue("warm"), Say("Hm.", 80), Hang())}, default=(Say("Well", 80), Hang())
        )

    def unblock(self) -> None:
        self.here.scripted.cue("warm")


class OpenRecording(OpenFresh):
    """It brings the voice to speak with."""

    plugin = MINICPM

    def asking(self, control_id: str) -> Opening:
        return opening(control_id, patch=with_recording(TALK, VOICE), recording=VOICE)


class OpenRepeated(Operation):
    """It changes nothing."""

    async def prepare(self) -> None:
        self.first = await self.hub.open(opening("mine"))
        live(self.here, self.first.session).answers.clear()

    async def act(self) -> object:
        return await self.hub.open(opening("mine"))

    async def check(self, struck: Struck) -> None:
        assert self.first.current == struck.cancelled, "whoever asks again serves it instead"
        for attachment in (struck.answer or self.first, await self.hub.open(opening("mine"))):
            assert isinstance(attachment, Attachment)
            assert (attachment.session, attachment.token) == (self.first.session, self.first.token)
        assert await life(self.log, self.first.session) == ["opened"]


class OpenTogether(Operation):
    """Another caller asks for the same meanwhile, and hears what becomes of it."""

    async def act(self) -> object:
        self.other = asyncio.get_running_loop().create_task(self.ask())
        return await self.hub.open(opening("mine"))

    async def ask(self) -> str:
        try:
            return (await self.hub.open(opening("mine"))).session
        except Refused as refused:
            return refused.code

    async def check(self, struck: Struck) -> None:
        heard = await self.other
        again = await self.hub.open(opening("mine"))
        assert again.current
        assert heard == ("unknown_session" if struck.cancelled else again.session)


class OpenAtOnce(Operation):
    """It is repeated as soon as the first caller is gone or answered, before the log can say what became of it."""

    async def act(self) -> object:
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(self.repeat)
        return await self.hub.open(opening("mine"))

    def repeat(self, _: object) -> None:
        self.again = asyncio.get_running_loop().create_task(self.hub.open(opening("mine")))

    async def check(self, struck: Struck) -> None:
        again = await self.again
        assert again.current
        if isinstance(struck.answer, Attachment):
            assert again.session == struck.answer.session
        assert await life(self.log, again.session) == ["opened"]


# -- resuming ------------------------------------------------------------------------------------------------


class ResumeFresh(Operation):
    """It leaves the session to its grace, or to the connection that it has granted."""

    told = ("opened", "detached 0")

    async def prepare(self) -> None:
        self.first = await self.hub.open(opening("mine"))
        await self.first.detach()

    async def act(self) -> object:
        return await self.hub.resume(resumption(self.first, "r"))

    async def check(self, struck: Struck) -> None:
        told = await self.told_by_now()
        landed = "resumed 1" in told
        if isinstance(struck.answer, Attachment):
            assert (struck.answer.current, told) == (True, [*self.told, "resumed 1"])
        else:
            assert told in ([*self.told], [*self.told, "resumed 1", "detached 1"])
        again = await self.hub.resume(resumption(self.first, "r"))
        assert again.lease == 1, "one bump, however often it is asked"
        if struck.cancelled and landed:
            assert again.ended == "detached", "the known generation; nobody serves it"
        else:
            assert again.current
        assert (await self.told_by_now()).count("resumed 1") == 1
        other = await self.hub.resume(resumption(self.first, "other"))
        assert (other.current, other.lease) == (True, 2), "the token that was presented is good"

    async def told_by_now(self) -> list[str]:
        return await life(self.log, self.first.session)


class ResumeTakingOver(ResumeFresh):
    """Somebody is attached: it stays so, or is replaced."""

    told = ("opened",)

    async def prepare(self) -> None:
        self.first = await self.hub.open(opening("mine"))

    async def check(self, struck: Struck) -> None:
        landed = "resumed 1" in await self.told_by_now()
        assert self.first.ended == ("replaced" if landed else None)
        await super().check(struck)


class Lost(Operation):
    """A server was killed, and a session of it is being taken over."""

    first: Attachment

    @classmethod
    async def before(cls, log: SlowLog, clock: VirtualClock) -> None:
        async with killed(cls.stage(clock), log, clock) as hub:
            cls.first = await hub.open(opening("mine"))
            ask(cls.first)
            await settle()
        log.gated.add(cls.first.session)

    async def prepare(self) -> None:
        pass

    def unblock(self) -> None:
        assert isinstance(self.log, SlowLog)
        self.log.open()


class ResumeLost(Lost, ResumeFresh):
    """Of such a session."""


class Broken(Operation):
    """The log could not be written for a while: the first who wants the session takes it over."""

    told = ("opened", "detached 0")

    async def prepare(self) -> None:
        self.first = await self.hub.open(opening("mine"))
        self.log.broken = Unavailable("full")
        self.first.send(Heartbeat(attachment=1))
        await settle()
        self.log.broken = None
        assert self.first.ended == "failed"

    def unblock(self) -> None:
        self.here.clock.advance(1_000_000)


class ResumeBroken(Broken, ResumeFresh):
    """Of such a session."""


class ResumeRepeated(Operation):
    """It changes nothing."""

    async def prepare(self) -> None:
        self.first = await self.hub.open(opening("mine"))
        self.second = await self.hub.resume(resumption(self.first, "r"))
        live(self.here, self.first.session).answers.clear()

    async def act(self) -> object:
        return await self.hub.resume(resumption(self.first, "r"))

    async def check(self, struck: Struck) -> None:
        assert self.second.current == struck.cancelled, "whoever asks again serves it instead"
        for attachment in (struck.answer or self.second, await self.hub.resume(resumption(self.first, "r"))):
            assert isinstance(attachment, Attachment)
            assert (attachment.lease, attachment.token) == (1, self.second.token)
        assert await life(self.log, self.first.session) == ["opened", "resumed 1"]


# -- giving up -----------------------------------------------------------------------------------------------


class Detached(Operation):
    """A connection that gives its session up has done so, however long it waits for that."""

    async def prepare(self) -> None:
        self.first = await self.hub.open(opening("mine"))
        ask(self.first)

    async def act(self) -> object:
        return await self.first.detach()

    async def check(self, struck: Struck) -> None:
        assert self.first.ended == "detached"
        await self.first.detach()
        assert await life(self.log, self.first.session) == ["opened", "detached 0"]
        assert (await self.hub.resume(resumption(self.first))).current


class DetachedForGood(Detached):
    """Without resume that is its end."""

    async def prepare(self) -> None:
        self.first = await self.hub.open(Opening(dialect="ga", control_id="mine"))
        ask(self.first)

    async def check(self, struck: Struck) -> None:
        await self.first.detach()
        assert await life(self.log, self.first.session) == ["opened", "closed: disconnect"]


class HubDetach(Operation):
    """An operator's detach."""

    async def prepare(self) -> None:
        self.first = await self.hub.open(opening("mine"))
        ask(self.first)

    async def act(self) -> object:
        return await self.hub.detach(self.first.session, "d")

    async def check(self, struck: Struck) -> None:
        told = await life(self.log, self.first.session)
        assert told in (["opened"], ["opened", "detached 0"])
        assert struck.cancelled or struck.answer == 0
        for _ in range(2):
            assert await self.hub.detach(self.first.session, "d") == 0
        assert await life(self.log, self.first.session) == ["opened", "detached 0"], "one grace"


class HubDetachLost(Lost, HubDetach):
    """Being taken over has detached it already."""


class HubDetachBroken(Broken, HubDetach):
    """As that of one that was left behind."""


class HubClose(Operation):
    """An operator's close."""

    async def prepare(self) -> None:
        self.first = await self.hub.open(opening("mine"))
        ask(self.first)

    async def act(self) -> object:
        return await self.hub.close(self.first.session, "c")

    async def check(self, struck: Struck) -> None:
        for _ in range(2):
            await self.hub.close(self.first.session, "c")
        told = await life(self.log, self.first.session)
        assert told[-1] == "closed: operator"
        assert sum(word.startswith("closed") for word in told) == 1
        assert await code_of(self.hub.resume(resumption(self.first))) == "session_resume_expired"


class HubCloseLost(Lost, HubClose):
    """Of a session that is being taken over."""


class HubCloseBroken(Broken, HubClose):
    """Of a session whose log could not be written."""


class HubCloseBusy(HubClose):
    """Its stage does not let go at once."""

    @classmethod
    def stage(cls, clock: VirtualClock) -> ScriptedStage:
        return ScriptedStage(clock, scripts={1: (Deaf(), Hang())}, default=(Say("Well", 80), Hang()))

    def unblock(self) -> None:
        self.here.scripted.let_go()


class HubFree(HubCloseBusy):
    """Somebody waits for the slot of a session that ends."""

    async def prepare(self) -> None:
        await super().prepare()
        await settle()
        self.first.send(CloseSession(control_id="end", reason="operator", attachment=1))

    async def act(self) -> object:
        return await self.hub.free(self.first.session)


OPERATIONS = (
    OpenFresh,
    OpenWarmingUp,
    OpenRecording,
    OpenRepeated,
    OpenTogether,
    OpenAtOnce,
    ResumeFresh,
    ResumeTakingOver,
    ResumeLost,
    ResumeBroken,
    ResumeRepeated,
    Detached,
    DetachedForGood,
    HubDetach,
    HubDetachLost,
    HubDetachBroken,
    HubClose,
    HubCloseLost,
    HubCloseBroken,
    HubCloseBusy,
    HubFree,
)


@rule("B12", "B13", "B14", "B16", "B17", "B19", "B20", "C11", "C14", "D31", "D32", "P44", "P53")
@pytest.mark.parametrize("held", [False, True], ids=["", "held"])
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", OPERATIONS, ids=lambda kind: kind.__name__)
async def test_a_control_that_is_cancelled_anywhere_keeps_nothing(
    kind: type[Operation], how: How, held: bool
) -> None:
    assert await sweep(kind, how, held=held) > 0, "it waits"
