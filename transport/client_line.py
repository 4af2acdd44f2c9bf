"""The line to a session: one connection after the other, so that nothing is lost and nothing comes twice."""

import random
from collections.abc import Awaitable, Callable

import anyio
import msgspec
from msgspec import Struct, UnsetType

from antiphon.engine.clock import Clock

from . import wire_client as say
from . import wire_server as out
from .client_errors import SessionLost
from .client_events import Received, number_of
from .client_inbox import Inbox
from .client_link import Cut, Link, Refused, SessionOptions
from .client_outbox import Outbox, Overfull
from .wire_client import ClientEvent
from .wire_view import SessionOut, read_session

ATTEMPTS = 5
SHORTEST_S, LONGEST_S = 0.25, 4.0
ACK_EVERY = 16
"""Numbered events between two acknowledgements while sound streams; anything else is acknowledged at once."""

Dial = Callable[[], Awaitable[Link]]
"""Makes a connection; raises `Cut` or `Refused`."""


class Retrying(Struct, frozen=True, kw_only=True):
    """How often and how fast a lost connection is tried again (D35)."""

    attempts: int = ATTEMPTS
    shortest_s: float = SHORTEST_S
    longest_s: float = LONGEST_S


class Line:
    """Opens a session, then `live` keeps it, on as many connections as it takes; `inbox` has what it says.

    `session` is the session as the server last showed it, `last_number` the last numbered event that arrived,
    `generation` how many connections there were, `lost` why there will be no other one. `closing` True: the session
    was asked to end.
    """

    def __init__(
        self, dial: Dial, options: SessionOptions, *, clock: Clock, retrying: Retrying, heartbeat_s: float
    ) -> None:
        self.outbox = Outbox()
        self.inbox = Inbox(lambda response_id: self.send(say.ResponseCancel(response_id=response_id)))
        self.session_id = ""
        self.session: SessionOut | None = None
        self.last_number = 0
        self.generation = 0
        self.lost: SessionLost | None = None
        self.closing = False
        self.ended = anyio.Event()
        self._dial = dial
        self._options = options
        self._clock = clock
        self._retrying = retrying
        self._heartbeat_us = int(heartbeat_s * 1e6)
        self._random = random.SystemRandom()
        self._link: Link | None = None
        self._tokens: list[str] = []
        """The resume token that holds; behind it the one that it was got with."""
        self._acknowledged = 0

    # -- the application's side ------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the session.

        Raises:
            SessionLost: it could not be opened.
        """
        try:
            link = await self._dial()
            try:
                created = await link.open(self._options)
            except BaseException:
                link.cut()
                raise
        except Refused as refused:
            raise SessionLost(refused.code, str(refused)) from refused
        except Cut as cut:
            raise SessionLost("disconnected", str(cut)) from cut
        self._link = link
        self.session_id = read_session(created.session).id
        self._shown(created)
        self.inbox.put(created)

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self._link is not None

    def send(self, event: ClientEvent) -> None:
        """Say something, now or on the next connection.

        Raises:
            SessionLost: there is nobody to say it to, or too much waits already.
        """
        if self.lost is not None:
            raise self.lost
        try:
            self.outbox.put(event)
        except Overfull as error:
            raise SessionLost("overfull", str(error)) from error

    def cut(self) -> None:
        """Lose the connection."""
        if self._link is not None:
            self._link.cut()

    # -- one connection after the other ----------------------------------------------------------------------

    async def live(self) -> None:
        """Serve the session until it is over or lost. To be run once, after `open`."""
        try:
            while (link := self._link) is not None:
                async with link:
                    await self._serve(link)
                    self._link = None
                if not self.ended.is_set():
                    self._link = await self._reconnect()
        except SessionLost as lost:
            # A session that was to end and is not there any more has ended.
            if not (self.closing and lost.code == "session_resume_expired"):
                self.lost = lost
        finally:
            self.ended.set()
            self.inbox.end(self.lost)

    async def _serve(self, link: Link) -> None:
        """Read and write until the socket is gone or the session over.

        Raises:
            SessionLost
        """
        lost: SessionLost | None = None
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._write, link)
                group.start_soon(self._beat)
                await self._read(link)
                group.cancel_scope.cancel()
        except* SessionLost as losses:
            lost = _first(losses)
        if lost is not None:
            raise lost

    async def _read(self, link: Link) -> None:
        try:
            while not self.ended.is_set():
                await self._take(await link.receive(), link)
        except Cut:
            return

    async def _write(self, link: Link) -> None:
        try:
            while True:
                for frame in self.outbox.take():
                    await link.send(frame)
                await self.outbox.wait_news()
        except Cut:
            return  # the reader finds it out too

    async def _beat(self) -> None:
        """Send heartbeats: they keep the lease, and their answers say what was applied."""
        while True:
            await self._clock.sleep_until(self._clock.monotonic_us() + self._heartbeat_us)
            self.send(say.HeartbeatIn())

    async def _take(self, event: Received, link: Link) -> None:
        number = number_of(event)
        if number:
            if number <= self.last_number:
                return  # seen on a former socket
            self.last_number = number
        if isinstance(event, out.HeartbeatAck):
            self.outbox.heartbeat_answered()
        elif isinstance(event, out.SessionUpdated):
            self.session = read_session(event.session)
        elif isinstance(event, out.ResyncRequired):
            self._tokens.clear()  # the session goes on, but not on another socket (D20)
        self.inbox.put(event)
        if isinstance(event, out.SessionClosedOut | out.SessionExpired):
            self.ended.set()
        elif isinstance(event, out.SessionReplaced):
            raise SessionLost("session_replaced", "another connection serves the session")
        await self.inbox.room()
        streaming = isinstance(event, out.AudioDeltaOut | out.TranscriptDelta | out.TextDeltaOut)
        if number - self._acknowledged >= (ACK_EVERY if streaming else 1):
            self._acknowledged = number
            await self._acknowledge(link, number)

    async def _acknowledge(self, link: Link, number: int) -> None:
        try:
            await link.send(_encode(say.EventAckIn(server_event_seq=number)))
        except Cut:
            return  # what came before the socket was lost is still to be read

    # -- resuming --------------------------------------------------------------------------------------------

    async def _reconnect(self) -> Link:
        """Return a new socket that serves the session.

        Raises:
            SessionLost: the server does not have it any more, or cannot be reached.
        """
        if not self._tokens:
            raise SessionLost("disconnected", "the session cannot be resumed")
        last: Exception | None = None
        for attempt in range(self._retrying.attempts):
            await self._clock.sleep_until(self._clock.monotonic_us() + self._pause_us(attempt))
            try:
                return await self._resume()
            except Cut as cut:
                last = cut
            except Refused as refused:
                last = refused
                if refused.code == "invalid_resume_token" and len(self._tokens) > 1:
                    # The server may never have heard from us on the last socket. Then that resume is withdrawn, its
                    # token void, and the one before it good again. No event tells: what is missed comes unasked.
                    del self._tokens[0]
                elif refused.final:
                    raise SessionLost(refused.code, str(refused)) from refused
        raise SessionLost("disconnected", "the server cannot be reached") from last

    def _pause_us(self, attempt: int) -> int:
        shortest = self._retrying.shortest_s
        longest = max(min(self._retrying.longest_s, shortest * 2**attempt), shortest)
        return int(self._random.uniform(shortest, longest) * 1e6)

    async def _resume(self) -> Link:
        link = await self._dial()
        try:
            resumed, early = await link.resume(self.session_id, self._tokens[0], self.last_number)
            self._shown(resumed)
            self._acknowledged = self.last_number
            self.outbox.restart(resumed.last_client_seq)
            self.inbox.put(resumed)
            for event in early:
                await self._take(event, link)
        except BaseException:
            link.cut()
            raise
        return link

    def _shown(self, answer: out.SessionCreated | out.SessionResumed) -> None:
        generation, token = answer.attachment_generation, answer.resume_token
        self.session = read_session(answer.session)
        self.generation = 1 if isinstance(generation, UnsetType) else generation
        self._tokens = [token, *self._tokens[:1]] if isinstance(token, str) and token else []


def _first(losses: BaseExceptionGroup[SessionLost]) -> SessionLost:
    """Return the first loss of a group."""
    first = losses.exceptions[0]
    return first if isinstance(first, SessionLost) else _first(first)


_encode = msgspec.json.Encoder().encode
