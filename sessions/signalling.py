"""Decisions about what a client says beside its sound: signals of the turn, and words for it."""

from collections.abc import Mapping

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.events import TurnState
from antiphon.events.items import json_size

from .draft import Draft
from .lifecycle import begin_close
from .playing import ack_playback
from .refusal import Refusal, refuse
from .state import Session
from .weighing import check_words

_STATES: Mapping[cmd.Signal, TurnState] = {
    "user_started": "user_speaking",
    "user_committed": "user_committed",
    "assistant_started": "assistant_generating",
    "assistant_done": "idle",
}
"""What the session says of the turn behind a signal; the others leave it."""

_CLOSES: Mapping[cmd.Signal, cmd.CloseReason] = {"close": "client_close", "timeout": "timeout"}


def signal_turn(draft: Draft, command: cmd.SignalTurn) -> None:
    """Take a client's word for the turn, and say so; `close` and `timeout` are real ends (L14, Q4.16)."""
    session = draft.session
    if not session.capabilities.supports_external_turn_signal:
        refuse("unsupported", "This model takes no signals about turns.", "event")
    if command.playback is not None:
        ack_playback(draft, command.playback)
        session = draft.session
    draft.emit(
        ev.TurnSignalled(
            number=draft.number,
            count=1,
            session=session.id,
            epoch=session.epoch,
            signal=command.signal,
            turn_state=_STATES.get(command.signal, session.turn.state),
        )
    )
    reason = _CLOSES.get(command.signal)
    if reason is not None:
        begin_close(draft, reason, control_id=None, expired=False)


def append_text(draft: Draft, command: cmd.AppendText) -> None:
    """Write into the turn that is being built (WIRE 2.15).

    A model that hears the turn as it comes has no place for words in it; the client was active all the same (E9).
    """
    session = draft.session
    if _native(session):
        message = "This model hears the turn as it is spoken; it takes no text into it."
        refusal = Refusal("native_text_append_unsupported", message)
        draft.emit(refusal.event(draft.number, command.event_id))
        draft.emit(ev.ActivityNoted())
        return
    if not command.text:
        refuse("bad_event", "There is no text to append.", "text", "value")
    size, limit = json_size(command.text), session.limits.input_bytes
    check_words(session, size, "text")
    if session.input.reserved + size > limit:
        refuse("input_backpressure", f"More than {limit} bytes of input are waiting; commit or clear the input.")
    draft.emit(ev.TextReceived(text=command.text))


def _native(session: Session) -> bool:
    return session.auto or session.capabilities.implementation_level == "model_native_duplex"
