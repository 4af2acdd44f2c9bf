"""One connection's hold on a session: commands in, durable transactions out."""

from collections.abc import AsyncGenerator
from typing import Literal, Protocol

import anyio
from msgspec import Struct

from antiphon.events.commands import ClientCommand, CloseSession, ConfirmAttachment, Detach, ReportRefusal
from antiphon.events.config import Capabilities, Dialect, SessionConfig
from antiphon.events.ids import EventPosition

from .clock import Clock
from .cursor import Cursor, Patience
from .errors import Refused
from .feed import Feed
from .ingress import AppendRequest, Deferred, Ingress
from .item_request import ItemRequest
from .outcome import Outcome
from .published import Published
from .runner import Runner
from .settings import HubSettings
from .tokens import Veiled

DetachReason = Literal["disconnect", "idle_timeout", "slow_consumer", "transport_error", "shutdown"]
Ended = Literal["replaced", "detached", "slow_consumer", "closed", "failed", "shutdown", "engine_dead"]

REFUSALS_BURST = 100
REFUSALS_PER_S = 50


class Serving(Protocol):
    """What an attachment needs of the live session."""

    runner: Runner
    clock: Clock
    settings: HubSettings

    @property
    def ingress(self) -> Ingress: ...

    @property
    def current(self) -> "Attachment | None": ...


class Granted(Veiled, Struct, frozen=True, kw_only=True):
    """What was decided when a connection was attached."""

    session: str
    dialect: Dialect
    attachment: int
    lease: int
    token: str | None
    entry: Published
    observer_token: str | None = None
    capabilities: Capabilities = Capabilities()
    last_number: int = 0
    position: EventPosition | None = None
    unheard: bool = False


class Attachment:
    """A connection that serves, or served, a session. After it ended, its methods change nothing.

    `generation` numbers the session's connections from 1 and stands in every command; `lease` is the lease
    generation that it serves. `token` is the resume token to show and `observer_token` the one for observers, None
    if the session cannot be resumed.
    `entry` is the transaction that attached it; `last_number` what its client had seen before, or `position`, where
    messages have no numbers.
    """

    def __init__(self, serving: Serving, granted: Granted) -> None:
        self.session = granted.session
        self.dialect: Dialect = granted.dialect
        self.generation = granted.attachment
        self.lease = granted.lease
        self.token = granted.token
        self.observer_token = granted.observer_token
        self.entry = granted.entry
        self.capabilities = granted.capabilities
        self.last_number = granted.last_number
        self.position = granted.position
        self.ended: Ended | None = None
        self._serving = serving
        self._unheard = granted.unheard
        self._end_event = anyio.Event()
        self._refusals = float(REFUSALS_BURST)
        self._refusals_us = serving.clock.monotonic_us()

    @property
    def current(self) -> bool:
        """Whether it still serves the session."""
        return self.ended is None and self._serving.current is self

    @property
    def feed(self) -> Feed:
        """The durable head of its session."""
        return self._serving.runner.feed

    # -- in --------------------------------------------------------------------------------------------------

    def send(self, command: ClientCommand | CloseSession, size: int = 0, recording: bytes = b"") -> None:
        """Give the session a command; it keeps the order of this connection, but cancel-like ones pass sound.

        `size` is its bytes on the wire: what waits is bounded by them. `recording` is the sound of an update's
        `ref_audio`.
        """
        if self.current:
            self.heard()
            self._serving.ingress.send(self.generation, command, self._refuse, size, recording)

    def append(self, request: AppendRequest) -> None:
        """Give the session sound. What cannot be taken is answered by an error event."""
        if self.current:
            self.heard()
            self._serving.ingress.append(self.generation, request, self._refuse)

    def create(self, request: ItemRequest) -> None:
        """Give the session an item that brings sound or pictures along."""
        if self.current:
            self.heard()
            self._serving.ingress.create(self.generation, request, self._refuse)

    def defer(self, request: Deferred) -> None:
        """Give the session what can be understood only when the updates before it are decided."""
        if self.current:
            self.heard()
            self._serving.ingress.defer(request, self._refuse)

    @property
    def settled(self) -> SessionConfig | None:
        """The configuration that what is sent now is understood by; None: `defer` has to wait for it."""
        return self._serving.ingress.settled if self.current else None

    def acknowledge(self, number: int) -> None:
        """The client has seen every message up to `number`; it will not ask for them again.

        Raises:
            Refused: `invalid_event_ack`: no message of this number has been sent.
        """
        if self.current:
            self.feed.acknowledge(number)

    def heard(self) -> None:
        """The client showed that it is there (a frame, or the pong behind `session.resumed`)."""
        if self._unheard and self.current:
            self._unheard = False
            self._serving.runner.post(ConfirmAttachment(attachment=self.generation))

    def report(self, refusal: ReportRefusal) -> None:
        """Tell the client that something was refused before it could become a command.

        A connection may cause a burst of 100 and 50 a second; what is more is dropped, unless it is counted: the
        session's exactly-once mark has to move past it.
        """
        now = self._serving.clock.monotonic_us()
        earned = (now - self._refusals_us) * REFUSALS_PER_S / 1e6
        self._refusals = min(self._refusals + earned, REFUSALS_BURST)
        self._refusals_us = now
        if self.current and (self._refusals >= 1 or refusal.client_seq is not None):
            self._refusals = max(self._refusals - 1, 0)
            self._serving.ingress.report(refusal)

    def _refuse(self, refused: Refused, event_id: str | None, client_seq: int | None) -> None:
        self.report(
            ReportRefusal(
                attachment=self.generation,
                code=refused.code,
                message=refused.message,
                param=refused.param,
                event_id=event_id,
                client_seq=client_seq,
                detail="value" if refused.code == "bad_event" else None,
            )
        )

    # -- out -------------------------------------------------------------------------------------------------

    def cursor(self) -> Cursor:
        """Return a reader that begins with the transaction which attached this connection."""
        settings = self._serving.settings
        return Cursor(
            self.feed,
            self.entry.seq - 1,
            attachment=self.generation,
            generation=self.lease,
            patience=Patience(settings.slow_bytes, settings.slow_ms * 1000, self._slow),
        )

    async def missed(self) -> Cursor:
        """Return a reader of what the client missed: messages above `last_number`, or behind `position`, up to its
        attaching.

        Its first transaction may hold earlier messages too; the caller skips those. Its end is `done`.

        Raises:
            Refused: `storage_unavailable`.
        """
        feed = self.feed
        last = self.entry.seq - 1
        position = self.position
        after = await feed.locate(self.last_number) if position is None else position.seq - 1
        return Cursor(feed, min(after, last), until=last)

    async def replay(self) -> AsyncGenerator[Published]:
        """Give what `missed` reads. Close it when it is left before its end."""
        with await self.missed() as cursor:
            async for missed in cursor:
                yield missed

    # -- the end ---------------------------------------------------------------------------------------------

    async def detach(self, reason: DetachReason = "disconnect") -> None:
        """Give the session up: it begins its grace, or ends if it cannot be resumed. Does nothing if
        this connection serves it no longer.

        Returns when that is durable; a cancelled caller only stops waiting.
        """
        if not self.current:
            return
        self.end("detached")
        done = anyio.Event()

        def settled(_: Outcome) -> None:
            done.set()

        self._serving.runner.post(Detach(generation=self.lease, reason=reason), reply=settled)
        await done.wait()

    async def wait_ended(self) -> Ended:
        """Wait until this connection no longer serves the session, and say why."""
        await self._end_event.wait()
        return self.ended or "closed"

    def end(self, why: Ended) -> None:
        """Note that it is over; the first reason stays. Called by the engine."""
        if self.ended is None:
            self.ended = why
            self._end_event.set()

    def _slow(self) -> None:
        self.end("slow_consumer")
        self._serving.runner.post(Detach(generation=self.lease, reason="slow_consumer"))
