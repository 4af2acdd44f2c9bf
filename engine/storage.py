"""Whether sessions can be recorded: a store that failed is asked again until it can be written."""

import structlog
from anyio import Event
from anyio.abc import TaskGroup

from antiphon.events.log import EventLog, LogError

from .clock import Clock

_log = structlog.get_logger()

ASK_US = 1_000_000
"""A try costs two small writes; what is shown at `/health` is at most so old."""


class Storage:
    """What is known of the store's writing.

    A server must find out by itself that its store is well again: whoever looks at its health sends it no session
    that could show it.
    """

    def __init__(self, log: EventLog, clock: Clock, tasks: TaskGroup, stopping: Event) -> None:
        self.trouble: str | None = None
        """Why a session could not be recorded, until it is known that one can."""
        self._log = log
        self._clock = clock
        self._tasks = tasks
        self._stopping = stopping
        self._asking = False

    def failed(self, error: LogError) -> None:
        """A session could not be recorded. From now on the store is tried every second."""
        if self.trouble is None:
            _log.error("the store cannot be written; it is tried every second", why=str(error))
        self.trouble = f"sessions cannot be recorded: {error}"
        if not self._asking and not self._stopping.is_set():
            self._asking = True
            self._tasks.start_soon(self._ask)

    def works(self) -> None:
        """Something was recorded."""
        if self.trouble is not None:
            _log.warning("the store can be written again")
            self.trouble = None

    async def _ask(self) -> None:
        while self.trouble is not None and not self._stopping.is_set():
            await self._clock.sleep_until(self._clock.monotonic_us() + ASK_US)
            try:
                await self._log.probe()
            except LogError as error:
                self.trouble = f"sessions cannot be recorded: {error}"
            else:
                self.works()
        self._asking = False
