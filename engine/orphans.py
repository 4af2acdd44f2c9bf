"""Requests at the stages whose runner has ended before they were forgotten: they are asked for until they are."""

from collections.abc import Callable, Iterable, Set
from functools import partial

from msgspec import Struct

from antiphon.events.effects import AbortRequests

from .boundary import contained_step
from .clock import Clock, Timer

RETRY_US = 5_000_000
MAX_RETRY_US = 60_000_000


class _Left(Struct):
    """What the stages still hold of one session, and when they are asked again."""

    requests: set[str]
    wait_us: int
    due: int


class Orphans:
    """They hold the slots of their sessions until the stages have let go, however often these fail (M6, M12).

    `abort` carries an effect to the stages. `in_use` says whether a new runner works under the name of a request
    that an old one has left; such a one is not disturbed.
    """

    def __init__(self, clock: Clock, abort: Callable[[AbortRequests], None], in_use: Callable[[str], bool]) -> None:
        self._clock = clock
        self._abort = abort
        self._in_use = in_use
        self._sessions: dict[str, _Left] = {}
        self._timer: Timer | None = None
        self._closed = False

    def __contains__(self, request: str) -> bool:
        left = self._sessions.get(session_of(request))
        return left is not None and request in left.requests

    @property
    def sessions(self) -> Set[str]:
        """The sessions of which something is still held."""
        return self._sessions.keys()

    @property
    def count(self) -> int:
        """How many requests are still held."""
        return sum(len(left.requests) for left in self._sessions.values())

    def add(self, requests: Iterable[str]) -> None:
        """Take over requests whose abort is on its way: they are asked for again if it does not come about."""
        due = self._clock.monotonic_us() + RETRY_US
        for request in requests:
            left = self._sessions.setdefault(session_of(request), _Left(set(), RETRY_US, due))
            left.requests.add(request)
        self._arm()

    def settle(self, request: str) -> None:
        """The stage has forgotten one; harmless when it is not known."""
        name = session_of(request)
        left = self._sessions.get(name)
        if left is not None:
            left.requests.discard(request)
            if not left.requests:
                del self._sessions[name]

    def close(self) -> None:
        """Ask no more: the stages end too."""
        self._closed = True
        self._sessions.clear()
        self._cancel()

    # -- time ------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        self._cancel()
        if self._sessions and not self._closed:
            due = min(left.due for left in self._sessions.values())
            self._timer = self._clock.call_at(due, self._ask_again)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ask_again(self) -> None:
        now = self._clock.monotonic_us()
        for name, left in list(self._sessions.items()):
            if left.due > now:
                continue
            left.wait_us = min(left.wait_us * 2, MAX_RETRY_US)
            left.due = now + left.wait_us
            free = tuple(request for request in sorted(left.requests) if not self._in_use(request))
            if free:
                # A fault with one of them is no reason to forget the others (M11).
                asking = partial(self._abort, AbortRequests(requests=free))
                contained_step("a clean-up failed", name.__str__, asking)
        self._arm()


def session_of(request: str) -> str:
    """Return the session that a request belongs to: its name is the beginning of the request's."""
    return request.partition(".e")[0]
