"""A client that loses its connections anywhere hears every message once, or is told that it cannot (P49)."""

from typing import Literal

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from antiphon.engine.attachment import Attachment
from antiphon.engine.errors import Refused, Resync
from antiphon.engine.opening import Opening, Resumption
from antiphon.engine.published import OVERHEAD
from antiphon.engine.settings import HubSettings
from antiphon.events.commands import Detach, Heartbeat
from antiphon.events.config import Dialect
from antiphon.events.events import SessionResumed
from antiphon.events.ids import EventPosition

from .links import Link
from .worlds import World, settle, world
from tests.rules import rule

Kind = Literal["beat", "drop", "resume", "take over", "give up", "hold", "go", "ack", "stale", "wait", "late"]
Step = tuple[Kind, int]

OTHERS: list[Kind] = ["drop", "give up", "hold", "go", "ack", "stale", "wait", "late"]
KINDS: list[Kind] = ["beat", "beat", "beat", "resume", "resume", "take over", *OTHERS]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 12)), max_size=30)


class Client:
    """Keeps the last number that it saw and the tokens that may be good, as D20 and DESIGN 5.6 have it."""

    def __init__(self, here: World, first: Attachment, group: anyio.abc.TaskGroup) -> None:
        self.here = here
        self.group = group
        self.session = first.session
        self.dialect = first.dialect
        self.tokens = [first.token or ""]
        self.links = [Link(first).start(group)]
        self.resumes = 0
        self.resynced = False
        self.counted: list[int] = []
        """What it saw on former connections, as long as it listened to them."""

    @property
    def link(self) -> Link:
        return self.links[-1]

    @property
    def last(self) -> EventPosition:
        """The place of the last event that it saw."""
        return self.link.last

    @property
    def seen(self) -> list[int]:
        return self.counted + self.link.numbers

    async def ask(self) -> Attachment | None:
        for token in tuple(self.tokens):
            self.resumes += 1
            last = max(self.seen, default=0)
            asked = Resumption(session=self.session, token=token, control_id=f"r{self.resumes}", last_number=last)
            if self.dialect != "duplex":
                asked = replace(asked, last_number=0, position=self.last)
            try:
                return await self.here.hub.resume(asked)
            except Resync:
                self.resynced = True
                return None
            except Refused as refused:
                if refused.code == "session_resume_conflict" and self.dialect != "duplex":
                    self.resynced = True
                    return None
                if refused.code != "invalid_resume_token":
                    raise
        raise AssertionError("P51: none of its tokens is good")

    async def resume(self, *, lost: bool = True) -> None:
        """Come back; the old socket is `lost`, with what it has not delivered, or half open and heard no more."""
        if lost:
            await self.link.cancel()
        seen = self.seen
        granted = await self.ask()
        if granted is not None:
            self.tokens = [granted.token or "", self.tokens[0]]
            self.counted = seen
            self.links.append(Link(granted, last=self.last).start(self.group))

    async def give_up(self, after: int) -> None:
        """Ask for a resume, and be gone after some steps of the loop."""
        await self.link.cancel()
        async with anyio.create_task_group() as trying:
            trying.start_soon(self.ask)
            await settle(after)
            trying.cancel_scope.cancel()
        await settle()

    async def carry_out(self, step: Step) -> None:
        kind, count = step
        here = self.link.attachment
        match kind:
            case "beat":
                for _ in range(count):
                    here.send(Heartbeat(attachment=here.generation))
            case "resume":
                await self.resume()
            case "take over":
                await self.resume(lost=False)
            case "drop":
                await self.link.cancel()
            case "give up":
                await self.give_up(count)
            case "hold":
                self.link.held = True
            case "go":
                self.link.go()
            case "ack" if self.seen:
                here.acknowledge(max(self.seen))
            case "stale":
                runner = self.here.hub._live[self.session].runner  # pyright: ignore[reportPrivateUsage]
                runner.post(Detach(generation=runner.session.lease.generation - 1 - count))
            case "wait":
                await self.here.advance(count * 1_000)
            case "late":
                for link in self.links[:-1]:
                    link.attachment.send(Heartbeat(attachment=link.attachment.generation))
                    await link.attachment.detach()
            case _:
                pass
        await settle()
        self.check()

    def check(self) -> None:
        state = self.here.hub.session(self.session)
        assert state is not None
        assert state.phase == "open"
        lease = state.lease
        assert lease.attached == (lease.expires_at is None), "P44"
        current = [link.attachment.generation for link in self.links if link.attachment.current]
        assert len(current) <= 1, "P43"
        assert not current or current == [lease.attachment], "P44: it serves the latest generation"
        for link in self.links:
            told = [index for index, event in enumerate(link.sent) if _replaces(event, link.attachment)]
            assert not told or told == [len(link.sent) - 1], "P52: something followed session.replaced"
        numbers = self.seen
        assert numbers == list(range(1, len(numbers) + 1)) or self.resynced, "P49"


def _replaces(event: object, attachment: Attachment) -> bool:
    return isinstance(event, SessionResumed) and event.attachment > attachment.generation


async def play(steps: list[Step], window: int, dialect: Dialect) -> None:
    bounds = HubSettings(
        shutdown_ms=200, grace_ms=3_600_000, idle_ttl_ms=0, slow_ms=60_000, replay_bytes=window * OVERHEAD
    )
    async with world(settings=bounds) as here, anyio.create_task_group() as group:
        try:
            asked = Opening(dialect=dialect, control_id="open", wants_resume=True)
            client = Client(here, await here.hub.open(asked), group)
            await settle()
            for step in steps:
                await client.carry_out(step)
            client.link.go()
            await client.resume()
            await settle()
            client.check()
            runner = here.hub._live[client.session].runner  # pyright: ignore[reportPrivateUsage]
            assert client.resynced or client.seen == list(range(1, runner.feed.number + 1)), "P49"
        finally:
            group.cancel_scope.cancel()


@rule("D33", "P43", "P44", "P46", "P49", "P51", "P52", "D12", "D29", "D30")
@settings(max_examples=200)
@given(STEPS, st.sampled_from([10**6, 10**6, 10**6, 12]), st.sampled_from(["duplex", "duplex", "ga", "beta"]))
def test_every_message_once_or_a_word_that_it_cannot_be(steps: list[Step], window: int, dialect: Dialect) -> None:
    anyio.run(play, steps, window, dialect)
