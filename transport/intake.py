"""From a client's messages to its session: understood one by one, by plain calls, in the client's order."""

from collections.abc import Callable

from antiphon.engine.attachment import Attachment
from antiphon.engine.errors import Refused
from antiphon.engine.ingress import AppendRequest, Deferred
from antiphon.engine.item_request import ItemRequest
from antiphon.events.commands import CloseSession, ReportRefusal, SignalTurn
from antiphon.events.config import SessionConfig

from .handshake import binary
from .limits import Budget
from .wire_errors import WireError
from .wire_in import decode, head_of
from .wire_out import Reader
from .wire_read import EventAck, Reading, Recorded, SessionResume, Undecided, Understood

_CLOSING = ("close", "timeout")
"""Signals that end the session."""

_RESUME = "session.resume"

STOPPING = frozenset({"barge_in", "input.cancel", "output_audio_buffer.clear", "response.cancel", "session.close"})
"""What ends or stops something: it may overdraw the budget of its key, within a bound."""

Guard = Callable[[Callable[[], None]], None]
"""Carries out a step within the boundary that is drawn round a connection."""


class Intake:
    """The way in of one connection whose session is open."""

    def __init__(
        self,
        attachment: Attachment,
        reader: Reader,
        guard: Guard,
        no_recording: Refused | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._attachment = attachment
        self._reader = reader
        self._guard = guard
        self._budget = budget
        self._reading = Reading(
            dialect=attachment.dialect,
            attachment=attachment.generation,
            signals=attachment.capabilities.supports_external_turn_signal,
            no_recording=no_recording,
        )

    def take(self, message: bytes | None) -> None:
        """Carry a message to the session; None is a binary one."""
        self._attachment.heard()
        config = self._attachment.settled
        try:
            if self._budget is not None:
                _afford(self._budget, message)
            if message is None:
                raise binary()
            decoded = decode(message, self._reading, config)
        except WireError as error:
            # Whatever a resume says, it comes too late (WIRE 2.12).
            self._refuse(_attached_already(error.event_id) if error.event_type == _RESUME else error)
            return
        if not isinstance(decoded, Undecided):
            self._carry_out(decoded, len(message))
        elif config is None:
            self._defer(decoded)
        else:
            self._understand(decoded, config)

    def _defer(self, undecided: Undecided) -> None:
        """Leave it to the session when this can be understood: an update before it may change what it means."""

        def understand(config: SessionConfig) -> None:
            self._guard(lambda: self._understand(undecided, config))

        self._attachment.defer(
            Deferred(
                understand=understand,
                size=undecided.size,
                sound=undecided.sound,
                event_id=undecided.event_id,
                client_seq=undecided.client_seq,
            )
        )

    def _understand(self, undecided: Undecided, config: SessionConfig) -> None:
        try:
            understood = undecided.under(config)
        except WireError as error:
            self._refuse(error)
        else:
            self._carry_out(understood, undecided.size)

    def _carry_out(self, asked: Understood, size: int) -> None:
        if isinstance(asked, AppendRequest):
            self._attachment.append(asked)
        elif isinstance(asked, ItemRequest):
            self._attachment.create(asked)
        elif isinstance(asked, EventAck):
            self._acknowledge(asked)
        elif isinstance(asked, SessionResume):
            self._refuse(_attached_already(asked.event_id))
        elif isinstance(asked, Recorded):
            self._attachment.send(asked.update, size + len(asked.sound), asked.sound)
        else:
            if isinstance(asked, CloseSession) or (isinstance(asked, SignalTurn) and asked.signal in _CLOSING):
                self._reader.asked_to_close = True
            self._attachment.send(asked, size)

    def _acknowledge(self, ack: EventAck) -> None:
        if self._attachment.dialect != "duplex":
            return
        try:
            self._attachment.acknowledge(ack.number)
        except Refused as refused:
            self._refuse(
                WireError(refused.code, refused.message, "server_event_seq", event_id=ack.event_id, numbered=False)
            )

    def _refuse(self, error: WireError) -> None:
        if error.code == "invalid_event_ack" and self._attachment.dialect != "duplex":
            return  # the other dialects have no numbers, and no interest in acknowledgements
        self._attachment.report(
            ReportRefusal(
                attachment=self._attachment.generation,
                code=error.code,
                message=error.message,
                param=error.param,
                event_id=error.event_id,
                detail=error.detail,
                numbered=error.numbered,
                client_seq=error.client_seq,
            )
        )


def _afford(budget: Budget, message: bytes | None) -> None:
    """Take a message out of the budget of its key, before anything is decoded but the names of what is refused.

    Raises:
        WireError: `input_backpressure`: there is no room for it. A counted one is refused, and leaves no gap.
    """
    size = len(message or b"")
    why = budget.spend(size)
    if why is None:
        return
    refusal = WireError("input_backpressure", why)
    if message is not None:
        head = head_of(message)
        if head.type in STOPPING and budget.spend(size, urgent=True) is None:
            return
        refusal.event_id, refusal.client_seq = head.event_id, head.client_seq
    raise refusal


def _attached_already(event_id: str | None) -> WireError:
    message = "A session is attached to this connection already."
    return WireError("unsupported_session_resume", message, event_id=event_id)
