"""A connection whose sending is in a test's hand: what a socket does, without one."""

from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from antiphon.engine.attachment import Attachment
from antiphon.engine.published import Published
from antiphon.events.events import Event, PublicEvent, SessionOpened, SessionResumed
from antiphon.events.ids import FIRST, EventPosition

from .worlds import settle


class SendFailed(Exception):
    """The socket is gone."""


@dataclass
class Link:
    """Reads what its session says and sends it on: the word that attached it, what was missed, then what comes.

    While it is held, a send waits. `fail` makes the one that waits fail, or loses the socket if none does; then the
    connection gives the session up, as a socket's does. `cancel` ends its task at whatever it does.
    """

    attachment: Attachment
    held: bool = False
    sent: list[Event] = field(default_factory=list[Event])
    last: EventPosition = FIRST
    """The place of the last one."""
    ended: str | None = None
    _failing: bool = False
    _news: anyio.Event = field(default_factory=anyio.Event)
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    async def run(self) -> None:
        here = self.attachment
        try:
            with self._scope:
                await self._serve(here)
        except SendFailed:
            self.ended = "send failed"
        finally:
            with anyio.CancelScope(shield=True):
                await here.detach()

    async def _serve(self, here: Attachment) -> None:
        first = True
        with here.cursor() as cursor:
            async for entry in cursor:
                await self._send(entry, above=0)
                if first and here.generation > 1:
                    async for missed in here.replay():
                        await self._send(missed, above=here.last_number, behind=here.position)
                first = False
            self.ended = cursor.end

    async def _send(self, entry: Published, above: int, behind: EventPosition | None = None) -> None:
        while self.held and not self._failing:
            self._news = anyio.Event()
            await self._news.wait()
        if self._failing:
            raise SendFailed
        for index, event in enumerate(entry.transaction.events):
            here = EventPosition(entry.seq, index, 0)
            known = 0 < event.number <= above if isinstance(event, PublicEvent) else True
            if not known and (behind is None or here > behind):
                self.sent.append(event)
                if not isinstance(event, SessionResumed):  # whose id stands for the place before it
                    self.last = here

    def start(self, group: TaskGroup) -> "Link":
        group.start_soon(self.run)
        return self

    def go(self) -> None:
        """Let it send."""
        self.held = False
        self._news.set()

    async def fail(self) -> None:
        """Let its sending fail."""
        self._failing = True
        if self.held:
            self._news.set()
        else:
            self._scope.cancel()
        await settle()

    async def cancel(self) -> None:
        """Cancel whatever it does."""
        self._scope.cancel()
        await settle()

    @property
    def numbers(self) -> list[int]:
        """The numbers of what was sent."""
        return [event.number for event in self.sent if isinstance(event, PublicEvent) and event.number]

    @property
    def words(self) -> list[str]:
        """What it was told about connections."""
        told = [event for event in self.sent if isinstance(event, SessionOpened | SessionResumed)]
        return [type(event).__name__ if self._mine(event) else "replaced" for event in told]

    def _mine(self, event: Event) -> bool:
        return not isinstance(event, SessionResumed) or event.attachment == self.attachment.generation
