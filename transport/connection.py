"""One client's connection: its session is opened or resumed, and served until one of them ends (WIRE 1, 8)."""

from collections.abc import Callable, Sequence
from contextlib import aclosing

import anyio
from msgspec.structs import replace

from antiphon.engine.attachment import Attachment, DetachReason
from antiphon.engine.boundary import contained_step
from antiphon.engine.errors import Refused
from antiphon.engine.hub import Hub
from antiphon.engine.plugins import no_recording
from antiphon.engine.published import Published
from antiphon.engine.replay_window import Overflow
from antiphon.events.commands import CloseSession, UpdateSession
from antiphon.events.events import (
    ConfigUpdated,
    SessionClosed,
    SessionDetached,
    SessionOpened,
    SessionResumed,
    SessionView,
)
from antiphon.events.ids import FIRST, EventPosition, through

from . import wire_server as out
from .codes import GOING_AWAY, INTERNAL, NORMAL, POLICY, TRY_LATER, close_code
from .delivering import deliver
from .grant import ANYBODY, Grant
from .handshake import Early, Gone, Handshake, Invitation
from .idleness import Idleness
from .intake import Intake
from .websocket import Socket
from .wire_out import Message, Reader, form_of, notice, project, refusal, unseen, welcome
from .wire_server import ServerEvent

EARLY_BYTES = 1024 * 1024
"""What may arrive before the session is open; then the socket is not read until it is."""

TERMINAL_S = 5.0
"""How long a connection waits for the other side once all is said (D9)."""

TERMINAL_US = 5_000_000
"""How long the last messages of a session may take to leave."""

GIVING_UP_S = 1.0
"""How long a connection that ends waits until the log says that the session was given up."""


class Connection:
    """Serves one socket, or what takes its place in a process: `on_…` are called by it, `run` is its one task."""

    def __init__(self, hub: Hub, socket: Socket, invitation: Invitation, grant: Grant = ANYBODY) -> None:
        self._hub = hub
        self._socket = socket
        self._early = Early()
        self._handshake = Handshake(hub, invitation, self._early, grant)
        self._budget = grant.budget
        self._attachment: Attachment | None = None
        self._intake: Intake | None = None
        self._reader = Reader(session="", form=invitation.dialect, attachment=1)
        self._idleness = Idleness(hub.clock, self._on_idle)
        self._scope = anyio.CancelScope()
        self._notices = 0
        self._through = 0
        """The last transaction of which everything was handed to the socket."""
        self._overflow: Overflow | None = None
        self._failed = False
        self._detaching: DetachReason = "disconnect"

    # -- the websocket's side --------------------------------------------------------------------------------

    def on_text(self, data: bytes) -> None:
        """Take a message: before the session is open it waits, then it is carried out at once."""
        self._on_message(data)

    def on_binary(self) -> None:
        """Refuse a binary message."""
        self._on_message(None)

    def on_sign_of_life(self) -> None:
        """A control frame: the other side is there, but says nothing that renews a lease."""
        if self._attachment is not None:
            self._guard(self._attachment.heard)

    def on_lost(self) -> None:
        """The socket is gone; nothing more can be said."""
        self._scope.cancel()

    def _on_message(self, message: bytes | None) -> None:
        self._idleness.heard()
        intake = self._intake
        if intake is not None:
            self._guard(lambda: intake.take(message))
            return
        self._early.keep(message)
        if self._early.size > EARLY_BYTES:
            self._socket.pause()

    def _on_idle(self) -> None:
        self._detaching = "idle_timeout"
        self._socket.close(NORMAL, "idle_timeout")

    # -- the boundary ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until the session, the connection or the server ends; then give the session up."""
        try:
            if not await self._hub.contain(self._name, self._serve_to_the_end):
                self._fail()
        finally:
            self._idleness.stop()
            self._socket.close(GOING_AWAY, "shutdown")
            if self._attachment is not None and self._attachment.current:
                # A store that stands must not keep the server from stopping; the detaching itself goes on.
                with anyio.move_on_after(GIVING_UP_S, shield=True):
                    await self._attachment.detach(self._detaching)

    async def _serve_to_the_end(self) -> None:
        with self._scope:
            await self._serve()
            with anyio.move_on_after(TERMINAL_S):
                await self._socket.wait_lost()

    def _guard(self, step: Callable[[], None]) -> None:
        """Carry out a step of the reading. It is a call of the event loop's: an error must not end up there."""
        if not self._failed and not contained_step("a connection failed", self._name, step):
            self._fail()

    def _fail(self) -> None:
        """An error of ours ends this connection and its session, and no other one (D7)."""
        self._failed = True
        message = "The connection failed; the session is closed."
        self._say(refusal("realtime_input_failed", message, None, None, self._reader.form))
        self._socket.close(INTERNAL, "internal_error")
        attachment = self._attachment
        if attachment is not None:
            control_id = f"{attachment.session}:{attachment.generation}:fault"
            generation = attachment.generation
            attachment.send(CloseSession(control_id=control_id, reason="transport_error", attachment=generation))

    def _name(self) -> str:
        return self._reader.session

    # -- serving ---------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        try:
            attachment = await self._handshake.attach()
        except Gone as gone:
            self._say(gone.message)
            self._socket.close(gone.code, gone.reason)
            return
        self._begin(attachment)
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch_the_end, attachment)
            try:
                await self._write(attachment)
            except Refused as refused:
                self._say(refusal(refused.code, refused.message, refused.param, None, self._reader.form))
                self._socket.close(close_code(refused.code), refused.code)
            group.cancel_scope.cancel()

    def _begin(self, attachment: Attachment) -> None:
        """Take up the session, and carry out what arrived too early."""
        view = _granted(attachment.entry)
        self._reader = Reader(
            session=attachment.session,
            form=form_of(attachment.dialect, resumable=view.resumable),
            attachment=attachment.generation,
            token=attachment.token,
            observer_token=attachment.observer_token,
        )
        self._attachment = attachment
        self._intake = Intake(attachment, self._reader, self._guard, no_recording(self._hub.plugin), self._budget)
        self._idleness.watch(view.config.idle_timeout_s)
        for message in self._early.take():
            self._intake.take(message)
        self._socket.resume()

    async def _write(self, attachment: Attachment) -> None:
        """Send what the session says, from the transaction that attached this connection to its end."""
        socket = self._socket
        last: Published | None = None
        with attachment.cursor() as cursor:
            async for entry in cursor:
                if not entry.public and last is not None:
                    last, self._through = entry, entry.seq
                    continue
                if not socket.has_room:
                    await socket.room()
                reader = self._journal(entry, attachment)
                messages: Sequence[Message] = project(entry, reader, cursor.epoch)
                if last is None and attachment.generation > 1:
                    messages = await self._catch_up(attachment, messages)
                await self._send(entry, reader, messages, lambda: cursor.epoch)
                if type(entry.transaction.command) is UpdateSession:
                    self._watch_for_silence(entry)
                last = entry
            self._finish(cursor.end or "closed", last)

    async def _catch_up(self, attachment: Attachment, messages: Sequence[Message]) -> Sequence[Message]:
        """Say that the session is resumed, ask whether that was heard, and send what was missed.

        Returns what is left of the transaction that resumed it.
        """
        socket, reader, position = self._socket, self._reader, attachment.position
        if position is None:
            resumed, messages = messages[0], messages[1:]
        else:
            resumed = welcome(attachment.entry, reader, position)
        await socket.room()
        socket.fill([resumed.data])
        socket.ping(lambda: self._guard(attachment.heard))
        async with aclosing(attachment.replay()) as replay:
            async for missed in replay:
                await socket.room()
                said = project(missed, reader, attachment.feed.epoch)
                wanted = unseen(missed, said, attachment.last_number, position)
                await self._send(missed, reader, wanted, lambda: attachment.feed.epoch)
        return messages

    async def _send(
        self, entry: Published, reader: Reader, messages: Sequence[Message], epoch: Callable[[], int]
    ) -> None:
        await deliver(self._socket, entry, reader, messages, epoch)
        self._through = entry.seq

    def _journal(self, entry: Published, attachment: Attachment) -> Reader:
        """Return the reader that a live transaction is written for: without numbers while the replay window has
        overflowed, of which the client is told once, and without one (D17)."""
        overflow = attachment.feed.overflow_at(entry.seq) if self._reader.form == "duplex" else None
        if overflow is None:
            return self._reader
        if overflow is not self._overflow:
            self._overflow = overflow
            self._say(out.ResyncRequired(session_id=attachment.session, reason="journal_overflow"))
        return replace(self._reader, form="plain")

    def _watch_for_silence(self, entry: Published) -> None:
        for event in entry.transaction.events:
            if isinstance(event, ConfigUpdated):
                self._idleness.watch(event.config.idle_timeout_s)

    async def _watch_the_end(self, attachment: Attachment) -> None:
        """Cut off a reader that is too far behind, even while a write to it waits; and one that does not read how
        its session, or its hold on it, has ended, after 5 s (D9)."""
        if await attachment.wait_ended() == "slow_consumer":
            self._socket.close(self._dropped(), "slow_consumer")
            return
        clock = self._hub.clock
        await clock.sleep_until(clock.monotonic_us() + TERMINAL_US)
        self._socket.cut_off()

    def _say(self, message: ServerEvent) -> None:
        """Send a message that is in no log."""
        self._notices += 1
        self._socket.send([notice(message, self._notices, self._seen(), self._reader.attachment).data])

    def _seen(self) -> EventPosition | None:
        """Return up to where a client has seen everything that comes back by the id of its last event."""
        attachment = self._attachment
        if attachment is None:
            return self._handshake.seen
        if attachment.token is None or attachment.dialect == "duplex":
            return None
        return through(self._through) if self._through else attachment.position or FIRST

    # -- the end ---------------------------------------------------------------------------------------------

    def _finish(self, end: str, last: Published | None) -> None:
        """Close the socket as the end of the reading asks for (WIRE 1.9)."""
        if end == "closed" and last is not None:
            code, reason = _after_session(last, self._reader)
        elif end == "detached" and last is not None:
            code, reason = self._after_detaching(last)
        else:
            code, reason = _AFTER.get(end, (NORMAL, end))
            code = self._dropped() if code == POLICY else code
        self._socket.close(code, reason)

    def _after_detaching(self, last: Published) -> tuple[int, str]:
        for event in last.transaction.events:
            if isinstance(event, SessionDetached):
                if event.reason == "shutdown":
                    self._tell_going_away(event)
                    return GOING_AWAY, "shutdown"
                return (self._dropped() if event.reason == "slow_consumer" else NORMAL), event.reason
        return NORMAL, "detached"

    def _dropped(self) -> int:
        """Return the close code for who has lost its hold, and may come back: a client that does so by the address
        is moved to it by 1013 alone."""
        return POLICY if self._seen() is None else TRY_LATER

    def _tell_going_away(self, event: SessionDetached) -> None:
        """Say how long the session waits; the dialects without a word for it have the code of the close."""
        if self._reader.form in ("ga", "beta"):
            return
        self._say(
            out.SessionGoingAway(
                session_id=self._reader.session,
                reason="shutdown",
                resume_within_s=max(event.grace_ms, self._hub.settings.recovery_grace_ms) / 1000,
            )
        )


_AFTER = {
    "replaced": (NORMAL, "session_replaced"),
    "withdrawn": (POLICY, "not_heard"),
    "slow_consumer": (POLICY, "slow_consumer"),
}

_BROKEN = frozenset({"internal_error", "transport_error", "engine_error", "engine_dead"})


def _granted(entry: Published) -> SessionView:
    """Return the session as it was when it was given to a connection."""
    for event in entry.transaction.events:
        if isinstance(event, SessionOpened | SessionResumed):
            return event.view
    raise ValueError("a transaction that attaches nobody")


def _after_session(last: Published, reader: Reader) -> tuple[int, str]:
    """Return the close code behind the last message of a session."""
    for event in last.transaction.events:
        if isinstance(event, SessionClosed):
            if event.reason == "shutdown":
                return GOING_AWAY, "shutdown"
            if event.expired and event.reason == "max_duration" and reader.form in ("ga", "beta"):
                return GOING_AWAY, "session_expired"
            return (INTERNAL if event.reason in _BROKEN else NORMAL), event.words or event.reason
    return NORMAL, "closed"
