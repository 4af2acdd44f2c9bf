"""What a client in the process waits for, cancelled wherever it waits: it can go on, or ask again, and misses
nothing (C14, D32, M17, P49)."""

from contextlib import aclosing

import pytest

from antiphon.engine.attachment import Attachment
from antiphon.engine.direct import DirectClient
from antiphon.events.events import Event

from .sweep import HOWS, How, Operation, Struck, life, live, sweep
from .worlds import settle
from tests.rules import rule

pytestmark = pytest.mark.anyio

BEATS = 40
"""More than a reader is given in one go."""


class Inline(Operation):
    """A client, and the numbers of what it has heard."""

    async def prepare(self) -> None:
        self.client = DirectClient(self.hub)
        self.heard: list[int] = []
        await self.client.__aenter__()
        for _ in range(BEATS):
            self.client.heartbeat()
        await settle()

    @property
    def readers(self) -> int:
        """It keeps its place in the log between two readings."""
        return int(self.client._cursor is not None and self.client.session in self.hub._live)

    async def hear(self) -> None:
        """Hear all that there is to be heard."""
        feed = live(self.here, self.client.session).runner.feed
        async with aclosing(self.client.events()) as events:
            while self.client.last_number < feed.number:
                heard = await anext(events)
                assert isinstance(heard.event, Event)
                if heard.event.number:
                    self.heard += range(heard.event.number, heard.event.number + heard.event.count)
                if len(self.heard) % 8 == 0:
                    await settle(1)

    async def hears_all(self) -> None:
        """Everything was heard once, or is now."""
        await self.hear()
        feed = live(self.here, self.client.session).runner.feed
        assert self.heard == list(range(1, feed.number + 1)), "P49"

    async def comes_back(self) -> None:
        """The client connects again, and misses nothing."""
        await self.client.resume()
        assert self.client.attachment.current
        self.client.heartbeat()
        await settle()
        await self.hears_all()
        await self.leaves()

    async def leaves(self) -> None:
        await self.client.close()
        assert (await life(self.log, self.client.session))[-1] == "closed: client_close"
        assert [heard async for heard in self.client.events()] == [], "M17"


class Enter(Inline):
    """It opens a session, or leaves none."""

    async def prepare(self) -> None:
        self.client = DirectClient(self.hub)
        self.heard = []

    async def act(self) -> object:
        return await self.client.__aenter__()

    async def check(self, struck: Struck) -> None:
        rows = await self.log.sessions("open")
        assert len(rows) == (1 if struck.cancelled else 2)
        if struck.cancelled:
            await self.client.__aenter__()
        await self.hears_all()
        await self.leaves()


class Leave(Inline):
    """It closes its session."""

    async def act(self) -> object:
        return await self.client.__aexit__(None, None, None)

    async def check(self, struck: Struck) -> None:
        told = await life(self.log, self.client.session)
        assert told == ["opened", "closed: client_close"]
        await self.leaves()


class Close(Leave):
    """So does this."""

    async def act(self) -> object:
        await self.hear()
        return await self.client.close("enough")

    async def check(self, struck: Struck) -> None:
        await self.leaves()


class Drop(Inline):
    """It gives its session up, and may come back."""

    async def prepare(self) -> None:
        await super().prepare()
        await self.hear()

    async def act(self) -> object:
        return await self.client.drop()

    async def check(self, struck: Struck) -> None:
        assert await life(self.log, self.client.session) == ["opened", "detached 0"]
        await self.comes_back()


class Resume(Inline):
    """It has come back, or may."""

    async def prepare(self) -> None:
        await super().prepare()
        await self.client.drop()

    async def act(self) -> object:
        return await self.client.resume()

    async def check(self, struck: Struck) -> None:
        told = await life(self.log, self.client.session)
        before, after = ["opened", "detached 0"], ["resumed 1", "detached 1"]
        assert told in ([before, [*before, *after]] if struck.cancelled else [[*before, "resumed 1"]])
        await self.comes_back()


class ResumeInPlace(Resume):
    """Its connection is replaced by the new one, or is not."""

    async def prepare(self) -> None:
        await Inline.prepare(self)
        await self.hear()

    async def check(self, struck: Struck) -> None:
        await self.comes_back()


class Hear(Inline):
    """It reads, and may go on where it was."""

    async def act(self) -> object:
        return await self.hear()

    async def check(self, struck: Struck) -> None:
        await self.hears_all()
        await self.leaves()


class HearFromTheLog(Hear):
    """What it reads is no longer in memory."""

    async def prepare(self) -> None:
        await super().prepare()
        live(self.here, self.client.session).runner.feed._tail.clear()


class HearWhatWasMissed(Hear):
    """It has come back."""

    async def prepare(self) -> None:
        await super().prepare()
        await self.client.drop()
        await self.client.resume()
        self.client.heartbeat()
        await settle()


class Replay(Operation):
    """Whoever reads what was missed may begin again."""

    async def prepare(self) -> None:
        client = DirectClient(self.hub)
        await client.__aenter__()
        for _ in range(BEATS):
            client.heartbeat()
        await client.drop()
        await client.resume()
        self.attachment: Attachment = client.attachment

    async def act(self) -> object:
        read: list[int] = []
        async with aclosing(self.attachment.replay()) as missed:
            async for entry in missed:
                read.append(entry.seq)
                if len(read) % 8 == 0:
                    await settle(1)
        return read

    async def check(self, struck: Struck) -> None:
        assert self.attachment.current
        again = await self.act()
        assert again == list(range(2, self.attachment.entry.seq)), "all but its opening, which has no number"
        assert struck.cancelled or struck.answer == again


OPERATIONS = (
    Enter,
    Leave,
    Close,
    Drop,
    Resume,
    ResumeInPlace,
    Hear,
    HearFromTheLog,
    HearWhatWasMissed,
    Replay,
)


@rule("B16", "C14", "D32", "M17", "P49")
@pytest.mark.parametrize("held", [False, True], ids=["", "held"])
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", OPERATIONS, ids=lambda kind: kind.__name__)
async def test_a_client_that_is_cancelled_anywhere_goes_on(kind: type[Operation], how: How, held: bool) -> None:
    assert await sweep(kind, how, held=held) > 0, "it waits"
