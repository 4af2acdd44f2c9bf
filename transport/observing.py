"""A connection that only reads: an observer of a session, and all that it may do (docs/wire.md)."""

import anyio

from antiphon.engine.errors import Refused
from antiphon.engine.hub import Hub
from antiphon.engine.observing import Observation, Observer
from antiphon.events.ids import FIRST, EventPosition, last_seen

from . import wire_server as out
from .codes import GOING_AWAY, INTERNAL, NORMAL, POLICY, close_code
from .delivering import deliver
from .handshake import Watching
from .websocket import HANDED, WebSocket
from .wire_errors import WireError
from .wire_out import Reader, notice, project, refusal, unseen
from .wire_server import ServerEvent
from .wire_view import shown_session

NOBODY = 2**62
"""No connection of a session has this number: an observer is none of them."""

REFUSALS_BURST = 10
REFUSALS_PER_S = 1


class Watch:
    """Serves one websocket that observes: `on_...` are called by it, `run` is its one task."""

    def __init__(self, hub: Hub, socket: WebSocket, asked: Watching) -> None:
        self._hub = hub
        self._socket = socket
        self._asked = asked
        self._scope = anyio.CancelScope()
        self._notices = 0
        self._shown = False
        self._unheard = False
        """Whether something was said before the session was shown."""
        self._refusals = float(REFUSALS_BURST)
        self._refusals_us = hub.clock.monotonic_us()

    # -- the websocket's side --------------------------------------------------------------------------------

    def on_text(self, data: bytes) -> None:
        """Refuse a message."""
        self._refuse()

    def on_binary(self) -> None:
        """Refuse a message."""
        self._refuse()

    def on_sign_of_life(self) -> None:
        """A control frame: it keeps the socket, and nothing else."""

    def on_lost(self) -> None:
        """The socket is gone."""
        self._scope.cancel()

    def _refuse(self) -> None:
        """Say that nothing can be said here; to who says much, or does not read, not every time."""
        self._unheard = not self._shown
        if self._unheard:
            return
        now = self._hub.clock.monotonic_us()
        earned = (now - self._refusals_us) * REFUSALS_PER_S / 1e6
        self._refusals, self._refusals_us = min(self._refusals + earned, REFUSALS_BURST), now
        if self._refusals >= 1 and self._socket.buffered < HANDED:
            self._refusals -= 1
            self._say(self._error("observer_is_read_only", "Who observes a session has no say in it."))

    # -- serving ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until the session, the connection or the server ends."""
        try:
            with self._scope:
                if not await self._hub.contain(lambda: self._asked.session, self._serve):
                    self._socket.close(INTERNAL, "internal_error")
                await self._socket.wait_lost()
        finally:
            self._socket.close(GOING_AWAY, "shutdown")

    async def _serve(self) -> None:
        try:
            observation = self._observation()
            with await self._hub.observe(observation) as observer:
                await self._read(observer, observation)
        except WireError as error:
            self._say(self._error(error.code, error.message, error.param))
            self._socket.close(POLICY, error.code)
        except Refused as refused:
            self._say(self._error(refused.code, refused.message))
            self._socket.close(close_code(refused.code), refused.code)

    def _observation(self) -> Observation:
        """Return what is asked for. From where on: the duplex dialect says that by a number, others by an id."""
        asked = self._asked
        if asked.dialect == "duplex":
            if asked.last_number is None:
                message = "This is not the number of an event."
                raise WireError("invalid_session_resume", message, "last_received_server_event_seq")
            return Observation(session=asked.session, token=asked.token, last_number=asked.last_number)
        position = last_seen(asked.last_event_id) if asked.last_event_id else FIRST
        if position is None:
            raise WireError("invalid_session_resume", "This is not the id of an event.", "last_event_id")
        return Observation(session=asked.session, token=asked.token, position=position)

    async def _read(self, observer: Observer, asked: Observation) -> None:
        """Show the session, then all that it says behind the place that was asked for."""
        self._say(out.SessionCreated(session=shown_session(observer.view), observer=True), asked.position)
        self._shown = True
        if self._unheard:
            self._refuse()
        reader = Reader(session=observer.session, form=self._asked.dialect, attachment=NOBODY)
        with await observer.cursor(self._too_slow) as cursor:
            async for entry in cursor:
                await self._socket.room()
                said = project(entry, reader, cursor.epoch)
                wanted = unseen(entry, said, asked.last_number, asked.position)
                await deliver(self._socket, entry, reader, wanted, lambda: cursor.epoch)
            stops = cursor.end == "closed" and self._hub.stopping.is_set()
        self._socket.close(GOING_AWAY if stops else NORMAL, "shutdown" if stops else "session_ended")

    def _too_slow(self) -> None:
        self._socket.close(POLICY, "slow_consumer")
        self._scope.cancel()

    def _error(self, code: str, message: str, param: str | None = None) -> ServerEvent:
        return refusal(code, message, param, None, self._asked.dialect)

    def _say(self, message: ServerEvent, behind: EventPosition | None = None) -> None:
        self._notices += 1
        self._socket.send([notice(message, self._notices, behind).data])
