"""State as a fold: which handler folds which event. Total over every log that `decide` can write."""

from collections.abc import Callable, Mapping
from typing import Any

from antiphon.events import events as ev
from antiphon.events.events import PublicEvent

from . import fold_calls, fold_delivery, fold_input, fold_life, fold_talk, fold_units
from .state import Session


def evolve(session: Session, event: ev.AnyEvent, at: int) -> None:
    """Fold one event, which happened at session time `at` (µs), into the session, in place.

    Raises:
        IllegalTransition: no decision can have written the event here.
    """
    session.now = at
    if isinstance(event, PublicEvent) and event.number:
        session.next_number = event.number + event.count
    kind = type(event)
    if kind in ACTIVITY:
        session.lease.last_activity = at
    handler = HANDLERS.get(kind)
    if handler is not None:
        handler(session, event)


# A handler takes the one event type of its key, which no type of this table can say; `tests` hold the pairs.
HANDLERS: Mapping[type[ev.Event], Callable[[Session, Any], None]] = {
    ev.SessionOpened: fold_life.session_opened,
    ev.SessionResumed: fold_life.session_resumed,
    ev.AttachmentConfirmed: fold_life.attachment_confirmed,
    ev.AttachmentWithdrawn: fold_life.attachment_withdrawn,
    ev.SessionDetached: fold_life.session_detached,
    ev.ConfigUpdated: fold_life.config_updated,
    ev.EngineRestarted: fold_life.engine_restarted,
    ev.SessionClosing: fold_life.session_closing,
    ev.SessionClosed: fold_life.session_closed,
    ev.CommandSequenced: fold_life.command_sequenced,
    ev.TurnSignalled: fold_life.turn_signalled,
    ev.AudioReceived: fold_input.audio_received,
    ev.UnitTaken: fold_units.unit_taken,
    ev.UnitsAccepted: fold_units.units_accepted,
    ev.UnitsGivenUp: fold_units.units_given_up,
    ev.UnitsReturned: fold_units.units_returned,
    ev.ContinuationPlanned: fold_units.continuation_planned,
    ev.ContinuationDropped: fold_units.continuation_dropped,
    ev.CommandHeld: fold_units.command_held,
    ev.HoldEnded: fold_units.hold_ended,
    ev.TextReceived: fold_input.text_received,
    ev.SpeechStarted: fold_input.speech_started,
    ev.SpeechStopped: fold_input.speech_stopped,
    ev.PreviewRequested: fold_talk.preview_requested,
    ev.TurnPreviewed: fold_input.turn_previewed,
    ev.PreviewDropped: fold_talk.request_moved,
    ev.InputTimedOut: fold_input.input_timed_out,
    ev.InputCommitted: fold_input.input_committed,
    ev.InputCleared: fold_input.input_cleared,
    ev.InputDropped: fold_input.input_cleared,
    ev.InputDiscarded: fold_input.input_discarded,
    ev.UserTranscribed: fold_input.user_transcribed,
    ev.OverlapDecided: fold_input.overlap_decided,
    ev.InterruptionSuspected: fold_delivery.interruption_suspected,
    ev.InterruptionDismissed: fold_delivery.decided,
    ev.InterruptionDoubted: fold_delivery.interruption_doubted,
    ev.OutputHeld: fold_delivery.output_held,
    ev.ItemCreated: fold_talk.item_created,
    ev.ItemDeleted: fold_talk.item_deleted,
    ev.ItemTruncated: fold_talk.item_truncated,
    ev.ResponseCreated: fold_talk.response_created,
    ev.OptionsReserved: fold_talk.options_reserved,
    ev.UnansweredDropped: fold_talk.unanswered_dropped,
    ev.AsideCancelled: fold_talk.aside_cancelled,
    ev.GateOpened: fold_talk.gate_opened,
    ev.ContextCommitted: fold_talk.context_committed,
    ev.CostsNoted: fold_talk.costs_noted,
    ev.TurnCompleted: fold_talk.turn_completed,
    ev.ListenDecided: fold_talk.listen_decided,
    ev.ResponseDrains: fold_talk.response_drains,
    ev.AnswerDeferred: fold_talk.answer_deferred,
    ev.RequestSubmitted: fold_talk.request_submitted,
    ev.RequestAccepted: fold_talk.request_accepted,
    ev.RequestFinished: fold_talk.request_moved,
    ev.RequestReleased: fold_talk.request_moved,
    ev.CleanupFailed: fold_talk.cleanup_failed,
    ev.CleanupRetried: fold_talk.cleanup_retried,
    ev.OutputStarted: fold_talk.output_started,
    ev.AudioDelta: fold_talk.audio_delta,
    ev.TextDelta: fold_talk.text_delta,
    ev.OutputEnded: fold_calls.output_ended,
    ev.FunctionBatched: fold_calls.function_batched,
    ev.FunctionBatchesOwned: fold_calls.function_batches_owned,
    ev.CallStarted: fold_calls.call_started,
    ev.CallDelta: fold_calls.call_delta,
    ev.CallEnded: fold_calls.call_ended,
    ev.CreationAbsorbed: fold_calls.creation_absorbed,
    ev.ResponseEnded: fold_talk.response_ended,
    ev.Interrupted: fold_talk.interrupted,
    ev.HistoryCut: fold_talk.history_cut,
    ev.PlaybackAcknowledged: fold_talk.playback_acknowledged,
}

NO_CHANGE: frozenset[type[ev.Event]] = frozenset(
    {
        ev.SessionTouched,
        ev.ActivityNoted,
        ev.ErrorReported,
        ev.ItemRetrieved,
        ev.OutputCleared,
    }
)
"""Events that only tell; with `HANDLERS` they are all members of the union."""

ACTIVITY: frozenset[type[ev.Event]] = frozenset(
    {
        ev.SessionOpened,
        ev.SessionResumed,
        ev.SessionDetached,
        ev.SessionTouched,
        ev.ConfigUpdated,
        ev.ActivityNoted,
        ev.TurnSignalled,
        ev.AudioReceived,
        ev.TextReceived,
        ev.UnitTaken,
        ev.UnitsAccepted,
        ev.UnitsGivenUp,
        ev.CommandHeld,
        ev.OptionsReserved,
        ev.CreationAbsorbed,
        ev.InputCommitted,
        ev.InputCleared,
        ev.InputDropped,
        ev.InputDiscarded,
        ev.UserTranscribed,
        ev.ItemCreated,
        ev.ItemDeleted,
        ev.ItemRetrieved,
        ev.ItemTruncated,
        ev.ResponseCreated,
        ev.RequestSubmitted,
        ev.RequestAccepted,
        ev.RequestFinished,
        ev.OutputHeld,
        ev.OutputStarted,
        ev.AudioDelta,
        ev.TextDelta,
        ev.OutputEnded,
        ev.FunctionBatched,
        ev.FunctionBatchesOwned,
        ev.CallStarted,
        ev.CallDelta,
        ev.CallEnded,
        ev.ResponseEnded,
        ev.Interrupted,
        ev.HistoryCut,
        ev.OutputCleared,
        ev.PlaybackAcknowledged,
    }
)
"""Events that renew the lease: what a client asked for, and what a model took and said (C1, C3, WIRE 8.6)."""
