"""One client's connection: how a session is opened or resumed on it, and what passes through it (WIRE 1, 8)."""

import math
import secrets
from collections import deque
from collections.abc import Sequence

import anyio
from msgspec import Struct
from msgspec.structs import replace

from antiphon.engine.attachment import Attachment, DetachReason
from antiphon.engine.clock import Timer
from antiphon.engine.defaults import default_config
from antiphon.engine.errors import Refused, Resync
from antiphon.engine.hub import Hub
from antiphon.engine.ingress import AppendRequest
from antiphon.engine.opening import Opening, Resumption
from antiphon.engine.published import Published
from antiphon.events.commands import CloseSession, ReportRefusal, UpdateSession
from antiphon.events.config import Capabilities, ConfigPatch, Dialect
from antiphon.events.events import ConfigUpdated, SessionClosed, SessionDetached, SessionOpened, SessionResumed

from . import wire_server as out
from .codes import GOING_AWAY, INTERNAL, NORMAL, POLICY, close_code
from .websocket import WebSocket
from .wire_errors import WireError
from .wire_in import Decoded, EventAck, Reading, SessionResume, decode
from .wire_out import Message, Reader, form_of, notice, project, refusal
from .wire_project import Form
from .wire_server import ServerEvent

CONFIG_TIMEOUT_US = 10_000_000
"""How long the duplex dialect waits for the first message."""

EARLY_BYTES = 1024 * 1024
"""What may arrive before the session is open; then the socket is not read until it is."""

TERMINAL_S = 5.0
"""How long a connection waits for the other side once all is said (D9)."""


class Invitation(Struct, frozen=True):
    """What the request for a connection says: its dialect, the model, and whether to open at once."""

    dialect: Dialect
    model: str | None
    at_once: bool


class Gone(Exception):
    """The connection is refused: what is said last, and the close code."""

    def __init__(self, message: ServerEvent, code: int, reason: str) -> None:
        super().__init__(reason)
        self.message = message
        self.code = code
        self.reason = reason


class Connection:
    """Serves one websocket: `on_…` are called by it, `run` is its one task."""

    def __init__(self, hub: Hub, socket: WebSocket, invitation: Invitation) -> None:
        self._hub = hub
        self._socket = socket
        self._invitation = invitation
        self._attachment: Attachment | None = None
        self._early: deque[bytes | None] = deque()
        self._early_bytes = 0
        self._arrived = anyio.Event()
        self._lost = False
        self._scope = anyio.CancelScope()
        self._notices = 0
        self._reading = self._first_reading()
        self._reader = Reader(session="", form=invitation.dialect, attachment=1)
        self._heard_us = hub.clock.monotonic_us()
        self._idle_timer: Timer | None = None
        self._idle_us = 0
        self._detaching: DetachReason = "disconnect"

    # -- the websocket's side --------------------------------------------------------------------------------

    def on_text(self, data: bytes) -> None:
        """Take a message: before the session is open it waits, then it is carried out at once."""
        self._heard_us = self._hub.clock.monotonic_us()
        if self._attachment is None:
            self._keep(data, len(data))
        else:
            self._attachment.heard()
            self._take(data, self._attachment)

    def on_binary(self) -> None:
        """Refuse a binary message."""
        self._heard_us = self._hub.clock.monotonic_us()
        if self._attachment is None:
            self._keep(None, 0)
        else:
            self._refuse(_binary(), self._attachment)

    def on_sign_of_life(self) -> None:
        """A control frame: the other side is there, but says nothing that renews a lease."""
        if self._attachment is not None:
            self._attachment.heard()

    def on_lost(self) -> None:
        """The socket is gone; nothing more can be said."""
        self._lost = True
        self._scope.cancel()

    def _keep(self, data: bytes | None, size: int) -> None:
        self._early.append(data)
        self._early_bytes += size
        if self._early_bytes > EARLY_BYTES:
            self._socket.pause()
        self._arrived.set()

    # -- the task --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until the session, the connection or the server ends; then give the session up."""
        try:
            if not await self._hub.contain(lambda: self._reader.session, self._serve_to_the_end):
                self._fault()
        finally:
            if self._idle_timer is not None:
                self._idle_timer.cancel()
            self._socket.close(GOING_AWAY, "shutdown")
            if self._attachment is not None and self._attachment.current:
                with anyio.CancelScope(shield=True):
                    await self._attachment.detach(self._detaching)

    async def _serve_to_the_end(self) -> None:
        with self._scope:
            await self._serve()
            with anyio.move_on_after(TERMINAL_S):
                await self._socket.wait_lost()

    def _fault(self) -> None:
        message = "The connection failed; the session is closed."
        self._say(refusal("realtime_input_failed", message, None, None, self._reader.form))
        self._socket.close(INTERNAL, "internal_error")
        attachment = self._attachment
        if attachment is not None:
            control_id = f"{attachment.session}:{attachment.generation}:fault"
            generation = attachment.generation
            attachment.send(CloseSession(control_id=control_id, reason="transport_error", attachment=generation))

    async def _serve(self) -> None:
        try:
            attachment = await self._attach()
        except Gone as gone:
            self._say(gone.message)
            self._socket.close(gone.code, gone.reason)
            return
        self._begin(attachment)
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch_slowness, attachment)
            try:
                await self._write(attachment)
            except Refused as refused:
                self._say(refusal(refused.code, refused.message, refused.param, None, self._reader.form))
                self._socket.close(close_code(refused.code), refused.code)
            group.cancel_scope.cancel()

    # -- opening ---------------------------------------------------------------------------------------------

    async def _attach(self) -> Attachment:
        if self._invitation.at_once:
            return await self._open()
        await self._await_first_message()
        first = self._early[0]
        try:
            if first is None:
                raise _binary()
            decoded = decode(first, self._reading)
        except WireError as error:
            if _ends_opening(error):
                raise self._gone(error.code, error.message, error.param, error.event_id) from None
            return await self._open()
        if isinstance(decoded, SessionResume):
            self._early.popleft()
            return await self._resume(decoded)
        if isinstance(decoded, UpdateSession):
            self._early.popleft()
            return await self._open(decoded)
        return await self._open()

    async def _await_first_message(self) -> None:
        clock = self._hub.clock
        timer = clock.call_at(clock.monotonic_us() + CONFIG_TIMEOUT_US, self._arrived.set)
        try:
            await self._arrived.wait()
        finally:
            timer.cancel()
        if not self._early:
            raise self._gone("config_timeout", "No message came within 10 s.")

    async def _open(self, update: UpdateSession | None = None) -> Attachment:
        opening = Opening(
            dialect=self._invitation.dialect,
            control_id=secrets.token_hex(16),
            model=self._invitation.model,
            patch=update.patch if update else ConfigPatch(),
            by_update=update is not None,
            event_id=update.event_id if update else None,
        )
        try:
            return await self._hub.open(opening)
        except Refused as refused:
            event_id = update.event_id if update else None
            raise self._gone(refused.code, refused.message, refused.param, event_id) from None

    async def _resume(self, asked: SessionResume) -> Attachment:
        resumption = Resumption(
            session=asked.session,
            token=asked.token,
            control_id=secrets.token_hex(16),
            last_number=asked.last_number,
        )
        try:
            return await self._hub.resume(resumption)
        except Resync as resync:
            message = out.ResyncRequired(session_id=resync.session, reason=resync.reason)
            raise Gone(message, NORMAL, resync.reason) from None
        except Refused as refused:
            raise self._gone(refused.code, refused.message, refused.param, asked.event_id) from None

    def _gone(self, code: str, message: str, param: str | None = None, event_id: str | None = None) -> Gone:
        said = refusal(code, message, param, event_id, self._reader.form)
        return Gone(said, close_code(code), code)

    def _begin(self, attachment: Attachment) -> None:
        """Take up the session: whose configuration holds, and what arrived too early is carried out."""
        for event in attachment.entry.transaction.events:
            if isinstance(event, SessionOpened | SessionResumed):
                view = event.view
                break
        else:
            raise ValueError("a transaction that attaches nobody")
        form: Form = form_of(attachment.dialect, resumable=view.resumable)
        self._reader = Reader(
            session=attachment.session, form=form, attachment=attachment.generation, token=attachment.token
        )
        self._reading = Reading(dialect=attachment.dialect, attachment=attachment.generation, config=view.config)
        self._attachment = attachment
        self._watch_idleness(view.config.idle_timeout_s)
        while self._early:
            data = self._early.popleft()
            if data is None:
                self._refuse(_binary(), attachment)
            else:
                self._take(data, attachment)
        self._socket.resume()

    def _first_reading(self) -> Reading:
        dialect, hub = self._invitation.dialect, self._hub
        can: Capabilities = hub.plugin.capabilities
        config = default_config(
            dialect,
            hub.settings,
            can,
            model=self._invitation.model or hub.settings.served_model,
            voice=can.voices[0] if can.voices else "default",
        )
        return Reading(dialect=dialect, attachment=1, config=config)

    # -- in --------------------------------------------------------------------------------------------------

    def _take(self, data: bytes, attachment: Attachment) -> None:
        """Decode a message and hand it to the session."""
        try:
            decoded = decode(data, self._reading)
        except WireError as error:
            if error.code != "invalid_event_ack" or attachment.dialect == "duplex":
                self._refuse(error, attachment)
            return
        self._carry_out(decoded, attachment)

    def _carry_out(self, decoded: Decoded, attachment: Attachment) -> None:
        if isinstance(decoded, AppendRequest):
            attachment.append(decoded)
        elif isinstance(decoded, EventAck):
            if attachment.dialect == "duplex":
                self._acknowledge(decoded, attachment)
        elif isinstance(decoded, SessionResume):
            message = "A session is attached to this connection already."
            self._refuse(WireError("unsupported_session_resume", message, event_id=decoded.event_id), attachment)
        else:
            if isinstance(decoded, CloseSession):
                self._reader.asked_to_close = True
            attachment.send(decoded)

    def _acknowledge(self, ack: EventAck, attachment: Attachment) -> None:
        try:
            attachment.acknowledge(ack.number)
        except Refused as refused:
            error = WireError(
                refused.code, refused.message, "server_event_seq", event_id=ack.event_id, numbered=False
            )
            self._refuse(error, attachment)

    def _refuse(self, error: WireError, attachment: Attachment) -> None:
        attachment.report(
            ReportRefusal(
                attachment=attachment.generation,
                code=error.code,
                message=error.message,
                param=error.param,
                event_id=error.event_id,
                detail=error.detail,
                numbered=error.numbered,
                client_seq=error.client_seq,
            )
        )

    # -- out -------------------------------------------------------------------------------------------------

    async def _write(self, attachment: Attachment) -> None:
        """Send what the session says, from the transaction that attached this connection to its end."""
        socket, reader = self._socket, self._reader
        last: Published | None = None
        with attachment.cursor() as cursor:
            async for entry in cursor:
                await socket.room()
                messages = project(entry, reader, cursor.epoch)
                if last is None and attachment.generation > 1:
                    await self._catch_up(attachment, messages[:1])
                    messages = messages[1:]
                socket.send([message.data for message in messages])
                if type(entry.transaction.command) is UpdateSession:
                    self._reconfigure(entry)
                last = entry
            self._finish(cursor.end or "closed", last)

    async def _catch_up(self, attachment: Attachment, resumed: Sequence[Message]) -> None:
        """Say that the session is resumed, ask whether that was heard, and send what was missed."""
        socket, reader = self._socket, self._reader
        socket.send([message.data for message in resumed])
        socket.ping(attachment.heard)
        seen = attachment.last_number
        async for missed in attachment.replay():
            await socket.room()
            messages = project(missed, reader, attachment.feed.epoch)
            socket.send([message.data for message in messages if message.number > seen])

    def _reconfigure(self, entry: Published) -> None:
        for event in entry.transaction.events:
            if isinstance(event, ConfigUpdated):
                self._reading = replace(self._reading, config=event.config)
                self._watch_idleness(event.config.idle_timeout_s)

    def _finish(self, end: str, last: Published | None) -> None:
        """Close the socket as the end of the reading asks for (WIRE 1.9)."""
        if end == "closed" and last is not None:
            code, reason = _after_session(last, self._reader)
        elif end == "detached" and last is not None:
            code, reason = self._after_detaching(last)
        else:
            code, reason = _AFTER.get(end, (NORMAL, end))
        self._socket.close(code, reason)

    def _after_detaching(self, last: Published) -> tuple[int, str]:
        for event in last.transaction.events:
            if isinstance(event, SessionDetached):
                if event.reason == "shutdown":
                    self._say(
                        out.SessionGoingAway(
                            session_id=self._reader.session,
                            reason="shutdown",
                            resume_within_s=max(event.grace_ms, self._hub.settings.recovery_grace_ms) / 1000,
                        )
                    )
                    return GOING_AWAY, "shutdown"
                return (POLICY if event.reason == "slow_consumer" else NORMAL), event.reason
        return NORMAL, "detached"

    def _say(self, message: ServerEvent) -> None:
        """Send a message that is in no log."""
        self._notices += 1
        self._socket.send([notice(message, self._notices).data])

    # -- limits ----------------------------------------------------------------------------------------------

    async def _watch_slowness(self, attachment: Attachment) -> None:
        """A reader that is too far behind is cut off, even while a write to it waits."""
        if await attachment.wait_ended() == "slow_consumer":
            self._socket.close(POLICY, "slow_consumer")

    def _watch_idleness(self, timeout_s: float) -> None:
        self._idle_us = int(timeout_s * 1e6) if math.isfinite(timeout_s) else 0
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if self._idle_us:
            self._idle_timer = self._hub.clock.call_at(self._heard_us + self._idle_us, self._look_idle)

    def _look_idle(self) -> None:
        """The socket was silent for long, or was heard meanwhile: then the timer goes on from there."""
        if self._hub.clock.monotonic_us() < self._heard_us + self._idle_us:
            self._watch_idleness(self._idle_us / 1e6)
        elif self._attachment is not None and not self._lost:
            self._detaching = "idle_timeout"
            self._socket.close(NORMAL, "idle_timeout")


_AFTER = {
    "replaced": (NORMAL, "session_replaced"),
    "withdrawn": (POLICY, "not_heard"),
    "slow_consumer": (POLICY, "slow_consumer"),
}

_BROKEN = frozenset({"internal_error", "transport_error", "engine_error", "engine_dead"})


def _after_session(last: Published, reader: Reader) -> tuple[int, str]:
    """Return the close code behind the last message of a session."""
    for event in last.transaction.events:
        if isinstance(event, SessionClosed):
            if event.reason == "shutdown":
                return GOING_AWAY, "shutdown"
            if event.expired and event.reason == "max_duration" and reader.form in ("ga", "beta"):
                return GOING_AWAY, "session_expired"
            return (INTERNAL if event.reason in _BROKEN else NORMAL), event.reason
    return NORMAL, "closed"


def _binary() -> WireError:
    return WireError("bad_event", "Binary messages are not taken.")


def _ends_opening(error: WireError) -> bool:
    """Whether the first message is one after which no session is opened (WIRE 1.4)."""
    if error.event_type in ("session.update", "session.resume"):
        return True
    return not error.numbered or (error.code == "bad_event" and error.event_type is None and error.detail is None)
