"""How a connection gets its session: what arrives first decides whether one is opened or resumed (WIRE 1.4, 8)."""

import secrets
from collections import deque
from collections.abc import Iterator

import anyio
from msgspec import Struct

from antiphon.engine.attachment import Attachment
from antiphon.engine.defaults import default_config
from antiphon.engine.errors import Refused, Resync
from antiphon.engine.hub import Hub
from antiphon.engine.opening import Opening, Resumption
from antiphon.engine.plugins import no_recording
from antiphon.engine.tokens import Veiled
from antiphon.events.commands import UpdateSession
from antiphon.events.config import Dialect, SessionConfig, merged
from antiphon.events.ids import FIRST, EventPosition, last_seen

from . import wire_server as out
from .codes import NORMAL, close_code
from .grant import ANYBODY, Grant, over
from .wire_errors import WireError
from .wire_in import decode
from .wire_out import refusal
from .wire_read import Reading, Recorded, SessionResume, Undecided, Understood
from .wire_server import ServerEvent

CONFIG_TIMEOUT_US = 10_000_000
"""How long the duplex dialect waits for the first message."""

_EACH = 64
"""What a message counts beyond its bytes: many empty ones are not free."""


class Return(Veiled, Struct, frozen=True, kw_only=True):
    """A client that comes back to its session, and the id of the last event that it had: empty, if of none."""

    session: str
    token: str
    last_event_id: str


class Watching(Veiled, Struct, frozen=True, kw_only=True):
    """Who wants to read a session as an observer, in a dialect, from where on.

    The duplex dialect says that by a number (None: what was given is none), the others by an event's id.
    """

    dialect: Dialect
    session: str
    token: str
    last_number: int | None = 0
    last_event_id: str = ""


class Invitation(Struct, frozen=True):
    """What the request for a connection says: its dialect, the model, and whether to open at once.

    `resumable`: the session shall outlive its connection, whatever its dialect. `back`: there is one already.
    """

    dialect: Dialect
    model: str | None
    at_once: bool
    resumable: bool = False
    back: Return | None = None


class Gone(Exception):
    """The connection is refused: what is said last, and the close code."""

    def __init__(self, message: ServerEvent, code: int, reason: str) -> None:
        super().__init__(reason)
        self.message = message
        self.code = code
        self.reason = reason


class Early:
    """What arrives before there is a session; None is a binary message. `size` in bytes, about."""

    def __init__(self) -> None:
        self.size = 0
        self._messages: deque[bytes | None] = deque()
        self._arrived = anyio.Event()

    def keep(self, message: bytes | None) -> None:
        """Keep one message."""
        self._messages.append(message)
        self.size += len(message or b"") + _EACH
        self._arrived.set()

    async def first(self) -> bytes | None:
        """Wait for the first message; it stays."""
        await self._arrived.wait()
        return self._messages[0]

    def take(self) -> Iterator[bytes | None]:
        """Give the messages in order, each once."""
        while self._messages:
            yield self._messages.popleft()


class Handshake:
    """Opens or resumes the session of one connection."""

    def __init__(self, hub: Hub, invitation: Invitation, early: Early, grant: Grant = ANYBODY) -> None:
        self._hub = hub
        self._invitation = invitation
        self._grant = grant
        self._early = early

    @property
    def seen(self) -> EventPosition | None:
        """Up to where a client that comes back by its address has seen everything, None if it says nothing of that.

        Whoever refuses it for now must not make it forget that: it names the last event that it had, this one.
        """
        back = self._invitation.back
        if back is None:
            return None
        return last_seen(back.last_event_id) if back.last_event_id else FIRST

    async def attach(self) -> Attachment:
        """Return the connection's hold on its session. A first message that asks for it is used up.

        Raises:
            Gone: there will be none.
        """
        if self._invitation.back is not None:
            return await self._come_back(self._invitation.back)
        if self._invitation.at_once:
            return await self._open()
        first = await self._first()
        try:
            asked = self._understand(first)
        except WireError as error:
            if _ends_opening(error):
                raise self._gone(error.code, error.message, error.param, error.event_id) from None
            return await self._open()
        if not isinstance(asked, SessionResume | UpdateSession | Recorded):
            return await self._open()
        next(self._early.take())
        if isinstance(asked, Recorded):
            return await self._open(asked.update, asked.sound)
        return await (self._resume(asked) if isinstance(asked, SessionResume) else self._open(asked))

    async def _first(self) -> bytes | None:
        clock = self._hub.clock
        with anyio.CancelScope() as waiting:
            timer = clock.call_at(clock.monotonic_us() + CONFIG_TIMEOUT_US, waiting.cancel)
            try:
                return await self._early.first()
            finally:
                timer.cancel()
        raise self._gone("config_timeout", "No message came within 10 s.")

    def _understand(self, message: bytes | None) -> Understood:
        if message is None:
            raise binary()
        decoded = decode(
            message,
            Reading(
                dialect=self._invitation.dialect,
                attachment=1,
                no_recording=no_recording(self._hub.plugin),
            ),
        )
        return decoded.under(self._defaults()) if isinstance(decoded, Undecided) else decoded

    def _defaults(self) -> SessionConfig:
        """Return the configuration that a first message is a patch to."""
        hub = self._hub
        can = hub.plugin.capabilities
        config = default_config(
            self._invitation.dialect,
            hub.settings,
            can,
            model=self._invitation.model or hub.settings.served_model,
            voice=can.voices[0] if can.voices else "default",
        )
        return merged(config, self._grant.start.patch)

    async def _open(self, update: UpdateSession | None = None, recording: bytes = b"") -> Attachment:
        event_id = update.event_id if update else None
        if self._grant.comes_back:
            message = "This client secret has opened its session; it opens no other one, and resumes that."
            raise self._gone("invalid_api_key", message, event_id=event_id)
        start = self._grant.start
        opening = Opening(
            dialect=self._invitation.dialect,
            control_id=start.control_id or secrets.token_hex(16),
            model=self._invitation.model,
            patch=over(start.patch, update.patch) if update else start.patch,
            by_update=update is not None,
            event_id=event_id,
            wants_resume=True if self._invitation.resumable else None,
            recording=recording or start.recording,
            owner=self._grant.owner,
            sessions=self._grant.sessions,
        )
        try:
            return await self._hub.open(opening)
        except Refused as refused:
            raise self._gone(refused.code, refused.message, refused.param, event_id) from None

    async def _resume(self, asked: SessionResume) -> Attachment:
        resumption = Resumption(
            session=asked.session,
            token=asked.token,
            control_id=secrets.token_hex(16),
            last_number=asked.last_number,
            owner=self._grant.owner,
        )
        return await self._take_over(resumption, asked.event_id)

    async def _come_back(self, asked: Return) -> Attachment:
        """Resume by the address (docs/wire.md): never open another session instead."""
        wrong = "session_id" if not asked.session else "resume_token" if not asked.token else None
        if wrong is not None:
            raise self._gone("invalid_session_resume", f"Whoever comes back names its {wrong}.", wrong)
        position = self.seen
        if position is None:
            message = "This is not the id of an event of the session."
            raise self._gone("invalid_session_resume", message, "last_event_id")
        resumption = Resumption(
            session=asked.session,
            token=asked.token,
            control_id=secrets.token_hex(16),
            position=position,
            owner=self._grant.owner,
        )
        return await self._take_over(resumption)

    async def _take_over(self, resumption: Resumption, event_id: str | None = None) -> Attachment:
        try:
            return await self._hub.resume(resumption)
        except Resync as resync:
            message = out.ResyncRequired(session_id=resync.session, reason=resync.reason)
            raise Gone(message, NORMAL, resync.reason) from None
        except Refused as refused:
            code = "runtime_resume_failed" if refused.code == "timeout" else refused.code
            raise self._gone(code, refused.message, refused.param, event_id) from None

    def _gone(self, code: str, message: str, param: str | None = None, event_id: str | None = None) -> Gone:
        said = refusal(code, message, param, event_id, self._invitation.dialect)
        return Gone(said, close_code(code), code)


def binary() -> WireError:
    """Return the refusal of a binary message."""
    return WireError("bad_event", "Binary messages are not taken.")


def _ends_opening(error: WireError) -> bool:
    """Whether the first message is one after which no session is opened (WIRE 1.4)."""
    if error.event_type in ("session.update", "session.resume"):
        return True
    return not error.numbered or (error.code == "bad_event" and error.event_type is None and error.detail is None)
