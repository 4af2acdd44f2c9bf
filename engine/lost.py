"""Sessions that go on in the log and have no runner: each is taken over again, sooner or later."""

from collections.abc import Awaitable, Callable, Iterator, Set
from functools import partial

import anyio
import structlog
from anyio.abc import TaskGroup
from msgspec import Struct, field

from antiphon.events.commands import CloseSession
from antiphon.events.log import Corrupt, Fenced, LogError

from .boundary import contained
from .clock import Clock
from .live import Live

_log = structlog.get_logger()

RETRY_US = 1_000_000
MAX_RETRY_US = 60_000_000

Damaged = Callable[[str, Corrupt], None]
"""Told of a session that can never go on."""

TakeOver = Callable[[str], Awaitable[Live | None]]
"""Makes a session live again; None if it has ended. Raises `LogError`: to be tried again, unless it is `Corrupt`
(it never will be whole) or `Fenced` (it is somebody else's)."""


class _Attempt(Struct):
    """A taking over on its way; whoever wants the session waits for the same one."""

    done: anyio.Event = field(default_factory=anyio.Event)
    live: Live | None = None


class _Waiting(Struct):
    """A lost session. `crashed`: an error of ours ended its runner, so that it is taken over only to be closed.

    `owner` is the API key that it counts for, empty where nobody knows yet.
    """

    crashed: bool
    owner: str
    attempt: _Attempt | None = None


class Lost:
    """They hold their slots until they are live again, or the log says that they are over or cannot go on."""

    def __init__(
        self, clock: Clock, stopping: anyio.Event, tasks: TaskGroup, take_over: TakeOver, damaged: Damaged
    ) -> None:
        self._clock = clock
        self._stopping = stopping
        self._tasks = tasks
        self._take_over = take_over
        self._damaged = damaged
        self._waiting: dict[str, _Waiting] = {}

    @property
    def names(self) -> Set[str]:
        """The lost sessions."""
        return self._waiting.keys()

    def __contains__(self, name: str) -> bool:
        return name in self._waiting

    def owned(self, owner: str) -> Iterator[str]:
        """Give the lost sessions of an API key, as far as it is known whose they are."""
        return (name for name, waiting in self._waiting.items() if waiting.owner == owner)

    def add(self, name: str, *, crashed: bool = False, owner: str = "") -> None:
        """A session has no runner any more, or not yet."""
        self._waiting.setdefault(name, _Waiting(crashed, owner))

    def keep_trying(self, name: str) -> None:
        """Take one over after a second, doubling to a minute; a crashed one at once."""
        self._tasks.start_soon(self._keep_trying, name)

    async def revive(self, name: str) -> Live | None:
        """Take one over now; None if it has ended, or still cannot be (then it is still lost).

        That is done in a task of its own, once: a caller that is cancelled only stops waiting for it.
        """
        waiting = self._waiting[name]
        attempt = waiting.attempt
        if attempt is None:
            attempt = waiting.attempt = _Attempt()
            self._tasks.start_soon(self._attempt, name, waiting, attempt)
        await attempt.done.wait()
        return attempt.live

    async def _attempt(self, name: str, waiting: _Waiting, attempt: _Attempt) -> None:
        try:
            trying = partial(self._try, name, waiting, attempt)
            if not await contained("a session cannot be taken over", lambda: name, trying):
                del self._waiting[name]  # another attempt would find the same
        finally:
            waiting.attempt = None
            attempt.done.set()

    async def _try(self, name: str, waiting: _Waiting, attempt: _Attempt) -> None:
        try:
            attempt.live = await self._take_over(name)
        except Corrupt as error:
            _log.error("a session's log is damaged; it is left alone", session=name, seq=error.seq, why=error.why)
            self._damaged(name, error)
        except Fenced:
            _log.warning("a session is another writer's; it is left alone", session=name)
        except LogError:
            return
        del self._waiting[name]
        if attempt.live is not None and waiting.crashed:
            attempt.live.runner.post(CloseSession(control_id=f"{name}:crash", reason="internal_error"))

    async def _keep_trying(self, name: str) -> None:
        waiting = self._waiting.get(name)
        wait_us = 0 if waiting is not None and waiting.crashed else RETRY_US
        while name in self._waiting and not self._stopping.is_set():
            await self._clock.sleep_until(self._clock.monotonic_us() + wait_us)
            wait_us = min(max(wait_us * 2, RETRY_US), MAX_RETRY_US)
            if name in self._waiting:
                await self.revive(name)
