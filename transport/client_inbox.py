"""Where the events of a session wait for whoever reads them: in order, within bounds, and never lost in silence."""

from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Self, TypeVar

import anyio

from . import wire_server as out
from .client_errors import SessionLost
from .client_events import Missed, Received, number_of
from .client_response import Responses

HELD = 1024
"""Events that wait for a reader who is there; then the connection is read no further, and the server waits."""

KEPT = 8192
"""Events that are kept while nobody reads; older ones are let go, of which the next reader is told."""

Listener = Callable[[Received], None]
E = TypeVar("E", bound=out.ServerEvent)


class Inbox:
    """Takes every event once, in order, and gives it to those who listen, who wait for it, and who read.

    A listener is called at once; `responses` has the answers. What is waited for is taken out of what
    is read, unless somebody reads just then. `cancel` stops an answer by its id.
    """

    def __init__(self, cancel: Callable[[str], None]) -> None:
        self.responses = Responses(cancel, self.wake)
        self._events: deque[Received] = deque()
        self._listeners: list[Listener] = []
        self._waiting: list[_Waiting] = []
        self._readers = 0
        self._missed = self._last_missed = 0
        self._over = False
        self._came = anyio.Event()
        self._taken = anyio.Event()

    # -- in --------------------------------------------------------------------------------------------------

    def put(self, event: Received) -> None:
        """Take an event."""
        for listener in tuple(self._listeners):
            listener(event)
        self.responses.heard(event)
        wanted = [waiting for waiting in self._waiting if waiting.wants(event)]
        for waiting in wanted:
            waiting.take(event)
        if wanted and not self._readers:
            return
        self._events.append(event)
        if len(self._events) > KEPT and (self._waiting or not self._readers):
            self._missed += 1
            self._last_missed = number_of(self._events.popleft()) or self._last_missed
        self._came.set()

    async def room(self) -> None:
        """Wait until whoever reads has caught up. A reader who waits for one event must not wait for room."""
        while (self._readers and len(self._events) >= HELD and not self._waiting) or self.responses.hold():
            self._taken = anyio.Event()
            await self._taken.wait()

    def end(self, failure: SessionLost | None) -> None:
        """There will be no more events; those that are here can still be read. `failure`: the session was lost."""
        self._over = True
        self.responses.end(failure)
        self._came.set()
        self.wake()
        for waiting in self._waiting:
            waiting.came.set()

    def wake(self) -> None:
        """Look again whether there is room."""
        self._taken.set()

    # -- out -------------------------------------------------------------------------------------------------

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event from now on, before anybody reads it; return what stops that.

        It must not wait, and an error of its own ends the client.
        """
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    async def wait(self, kind: type[E], where: Callable[[E], bool] = lambda _: True) -> E | None:
        """Return the next event of a kind that is as asked; None if the session is over before it comes."""
        for index, event in enumerate(self._events):
            if isinstance(event, kind) and where(event):
                if not self._readers:
                    del self._events[index]
                return event
        if self._over:
            return None
        waiting = _Waiting(lambda event: isinstance(event, kind) and where(event))
        self._waiting.append(waiting)
        self.wake()
        try:
            await waiting.came.wait()
        finally:
            self._waiting.remove(waiting)
        return waiting.event if isinstance(waiting.event, kind) else None

    def enter(self) -> None:
        """Somebody begins to read."""
        self._readers += 1

    def leave(self) -> None:
        """Somebody reads no more."""
        self._readers -= 1
        self.wake()

    async def next(self) -> Received | None:
        """Take the oldest event; None when the session is over and all was read."""
        while True:
            if self._missed:
                told = Missed(count=self._missed, last_number=self._last_missed)
                self._missed = 0
                return told
            if self._events:
                self.wake()
                return self._events.popleft()
            if self._over:
                return None
            self._came = anyio.Event()
            await self._came.wait()


class Reading(AsyncIterator[Received]):
    """A reader of all events, from the first that was not read yet; it is one from its first step to its end.

    `failed` says what there is to raise behind the last event.
    """

    def __init__(self, inbox: Inbox, failed: Callable[[], Exception | None]) -> None:
        self._inbox = inbox
        self._failed = failed
        self._inside = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Received:
        if not self._inside:
            self._inside = True
            self._inbox.enter()
        event = await self._inbox.next()
        if event is not None:
            return event
        self.close()
        failure = self._failed()
        if failure is not None:
            raise failure
        raise StopAsyncIteration

    def close(self) -> None:
        """Read no more; what was not read stays."""
        if self._inside:
            self._inside = False
            self._inbox.leave()

    def __del__(self) -> None:
        # A loop that is left by `break` says nothing else.
        self.close()


class _Waiting:
    """Somebody who waits for one event."""

    def __init__(self, asked: Callable[[Received], bool]) -> None:
        self.came = anyio.Event()
        self.event: Received | None = None
        self._asked = asked

    def wants(self, event: Received) -> bool:
        return self.event is None and self._asked(event)

    def take(self, event: Received) -> None:
        self.event = event
        self.came.set()
