"""A connection, cancelled wherever it waits: its session is given up, and its client may come back (D25, D32)."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace

from antiphon.engine.observing import MOST, Observation
from antiphon.engine.opening import Opening, Resumption
from antiphon.events.commands import Heartbeat
from antiphon.events.ids import FIRST
from antiphon.transport.connection import Connection
from antiphon.transport.handshake import Invitation, Return, Watching
from antiphon.transport.observing import Watch

from tests.engine.sweep import HOWS, How, Operation, Struck, life, sweep
from tests.engine.worlds import ask, opening, resumption, settle
from tests.rules import rule

pytestmark = pytest.mark.anyio


class Socket:
    """A websocket whose other side reads everything, a little later, and says nothing."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.closed: tuple[int, str] | None = None
        self._lost = anyio.Event()

    def send(self, messages: Iterable[bytes]) -> None:
        self.messages += [json.loads(message) for message in messages]

    def fill(self, messages: Iterable[bytes]) -> int:
        known = list(messages)
        self.send(known)
        return len(known)

    buffered = 0
    has_room = False

    async def room(self) -> None:
        await anyio.lowlevel.checkpoint()

    def ping(self, answered: Callable[[], None]) -> None:
        pass

    def close(self, code: int, reason: str = "") -> None:
        self.closed = self.closed or (code, reason)
        self._lost.set()

    def cut_off(self) -> None:
        self._lost.set()

    async def wait_lost(self) -> None:
        await self._lost.wait()

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass


class Opens(Operation):
    """It opens a session and serves it until the socket is lost."""

    at_once = True

    async def prepare(self) -> None:
        self.socket = Socket()
        asked = Invitation(dialect="duplex", model="m", at_once=self.at_once)
        self.connection: Connection | Watch = Connection(self.hub, self.socket, asked)
        for _ in range(3):
            self.says("session.heartbeat")
        self.says("response.create", event_id="ask")

    def says(self, kind: str, **fields: object) -> None:
        self.connection.on_text(json.dumps({"type": kind, **fields}).encode())

    async def act(self) -> object:
        return await self.connection.run()

    def unblock(self) -> None:
        self.connection.on_lost()

    async def check(self, struck: Struck) -> None:
        assert self.socket.closed is not None
        told = [await life(self.log, session) for session in await self.mine()]
        assert told in ([], [["opened", "closed: open_abandoned"]], [["opened", "detached 0"]])
        for message in self.socket.messages:
            if message["type"] == "session.created":
                asked = Resumption(
                    session=message["session"]["id"], token=message["resume_token"], control_id="back"
                )
                assert (await self.hub.resume(asked)).current

    async def mine(self) -> list[str]:
        rows = await self.log.sessions()
        return [row.session for row in rows if row.model == "m"]


class Closes(Opens):
    """Its client closes the session."""

    def unblock(self) -> None:
        self.says("session.close")

    async def check(self, struck: Struck) -> None:
        told = [await life(self.log, session) for session in await self.mine()]
        if told != [["opened", "closed: client_close"]]:
            assert struck.cancelled
            await super().check(struck)
        elif not struck.cancelled:
            assert self.socket.messages[-1]["type"] == "session.closed"


class Resumes(Opens):
    """It resumes a session."""

    at_once = False
    told = ("opened", "detached 0")

    async def prepare(self) -> None:
        self.first = await self.hub.open(opening("mine"))
        for _ in range(3):
            self.first.send(Heartbeat(attachment=1))
        ask(self.first)
        await settle()
        await self.leave()
        self.socket = Socket()
        asked = Invitation(dialect="duplex", model=None, at_once=False)
        self.connection = Connection(self.hub, self.socket, asked)
        self.says("session.resume", session_id=self.first.session, resume_token=self.first.token)

    async def leave(self) -> None:
        await self.first.detach()

    async def check(self, struck: Struck) -> None:
        told = await life(self.log, self.first.session)
        resumed = [*self.told, "resumed 1", "detached 1"]
        assert told in ([resumed, [*self.told]] if struck.cancelled else [resumed])
        numbers = [message["server_event_seq"] for message in self.socket.messages if "server_event_seq" in message]
        assert numbers == list(range(1, len(numbers) + 1))
        assert (await self.hub.resume(resumption(self.first, "back"))).current, "the token it presented is good"


class TakesOver(Resumes):
    """From a connection that there still is."""

    told = ("opened",)

    async def leave(self) -> None:
        pass

    async def check(self, struck: Struck) -> None:
        landed = "resumed 1" in await life(self.log, self.first.session)
        assert self.first.ended == ("replaced" if landed else None)
        await super().check(struck)


class ComesBack(Resumes):
    """By the address, for it has no numbers."""

    async def prepare(self) -> None:
        asked = Opening(dialect="ga", control_id="mine", model="m", wants_resume=True)
        self.first = await self.hub.open(asked)
        for _ in range(3):
            self.first.send(Heartbeat(attachment=1))
        ask(self.first)
        await settle()
        await self.leave()
        self.socket = Socket()
        back = Return(session=self.first.session, token=self.first.token or "", last_event_id="")
        invitation = Invitation(dialect="ga", model=None, at_once=True, back=back)
        self.connection = Connection(self.hub, self.socket, invitation)

    async def check(self, struck: Struck) -> None:
        told = await life(self.log, self.first.session)
        resumed = [*self.told, "resumed 1", "detached 1"]
        assert told in ([resumed, [*self.told]] if struck.cancelled else [resumed])
        asked = resumption(self.first, "back")
        assert (await self.hub.resume(replace(asked, position=FIRST))).current, "the token it presented is good"


class Observes(Opens):
    """It reads a session that somebody else has."""

    async def prepare(self) -> None:
        self.first = await self.hub.open(opening("mine"))
        ask(self.first)
        await settle()
        self.socket = Socket()
        asked = Watching(dialect="duplex", session=self.first.session, token=self.first.observer_token or "")
        self.connection = Watch(self.hub, self.socket, asked)

    async def check(self, struck: Struck) -> None:
        assert self.socket.closed is not None
        assert await life(self.log, self.first.session) == ["opened"]
        assert self.first.current
        for _ in range(MOST):
            asked = Observation(session=self.first.session, token=self.first.observer_token or "")
            (await self.hub.observe(asked)).__enter__()


OPERATIONS = (Opens, Closes, Resumes, TakesOver, ComesBack, Observes)


@rule("D25", "D32", "D33.1", "D33.2", "D33.4", "B16", "P44")
@pytest.mark.parametrize("held", [False, True], ids=["", "held"])
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", OPERATIONS, ids=lambda kind: kind.__name__)
async def test_a_connection_that_is_cancelled_anywhere_gives_its_session_up(
    kind: type[Operation], how: How, held: bool
) -> None:
    assert await sweep(kind, how, held=held) > 2, "it waits"
