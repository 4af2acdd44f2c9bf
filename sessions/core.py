"""The core's face: decide, evolve and react, and the folds made of them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.log import Transaction

from . import (
    calling,
    committing,
    conversing,
    creating,
    delivering,
    draining,
    faults,
    holding,
    lifecycle,
    listening,
    playing,
    previewing,
    reporting,
    segments,
    signalling,
    speaking,
    suspecting,
    ticking,
    updating,
)
from .draft import Draft
from .evolve import evolve as evolve
from .places import places as places
from .plugins import REGISTRY as REGISTRY
from .plugins import Registry
from .react import REACTIONS as REACTIONS
from .react import react as react
from .refusal import Refusal as Refusal
from .segments import is_beat as is_beat
from .state import STATE_VERSION as STATE_VERSION
from .state import Session as Session
from .state import dump as dump
from .state import load as load
from .updating import patched as patched
from .updating import upcoming as upcoming
from .view import next_deadline as next_deadline
from .view import outstanding as outstanding
from .view import view as view

Handler = Callable[[Draft, Any], None]

# A handler takes the one command type of its key, which no type of this table can say; `tests` hold the pairs.
CONTROLS: Mapping[type[cmd.Command], Handler] = {
    cmd.OpenSession: lifecycle.open_session,
    cmd.ResumeSession: lifecycle.resume_session,
    cmd.ConfirmAttachment: lifecycle.confirm_attachment,
    cmd.Detach: lifecycle.detach,
    cmd.CloseSession: lifecycle.close_session,
    cmd.Tick: ticking.tick,
    cmd.StartRunner: lifecycle.start_runner,
    cmd.ReportRefusal: lifecycle.report_refusal,
    cmd.ReportFault: faults.report_fault,
    cmd.StageAccepted: reporting.stage_accepted,
    cmd.StageRefused: reporting.stage_refused,
    cmd.StageTranscribed: reporting.stage_transcribed,
    cmd.StageProduced: speaking.stage_produced,
    cmd.StageSegmentFinished: segments.segment_finished,
    cmd.StageMeasured: segments.stage_measured,
    cmd.StageInnerFinished: draining.stage_inner_finished,
    cmd.StageContext: draining.stage_context,
    cmd.StageOwned: calling.stage_owned,
    cmd.StageCalled: calling.stage_called,
    cmd.StageFinished: reporting.stage_finished,
    cmd.StageFailed: reporting.stage_failed,
    cmd.StageReleased: reporting.stage_released,
    cmd.StageAbortFailed: reporting.stage_abort_failed,
    cmd.StageLost: reporting.stage_lost,
}
"""Commands of the engine and its stages."""

REQUESTS: Mapping[type[cmd.ClientCommand], Handler] = {
    cmd.Heartbeat: lifecycle.heartbeat,
    cmd.AppendAudio: listening.append_audio,
    cmd.AppendText: signalling.append_text,
    cmd.CommitInput: committing.commit_input,
    cmd.ClearInput: listening.clear_input,
    cmd.CancelInput: listening.cancel_input,
    cmd.BargeIn: listening.barge_in,
    cmd.CreateItem: conversing.create_item,
    cmd.DeleteItem: conversing.delete_item,
    cmd.RetrieveItem: conversing.retrieve_item,
    cmd.TruncateItem: playing.truncate_item,
    cmd.AckPlayback: playing.ack_playback,
    cmd.ClearOutput: playing.clear_output,
    cmd.CreateResponse: creating.create_response,
    cmd.CancelResponse: creating.cancel_response,
    cmd.UpdateSession: updating.update_session,
    cmd.SignalTurn: signalling.signal_turn,
}
"""Commands of clients."""


def new() -> Session:
    """Return the state before the first event."""
    return Session()


def decide(session: Session, command: cmd.AnyCommand, now: int, plugins: Registry = REGISTRY) -> list[ev.AnyEvent]:
    """Return what becomes true because of `command` at session time `now` (µs). Pure; `session` is not touched.

    An empty list means that nothing changes (stale, duplicate) and nothing is to be recorded. A refused client
    command becomes one `ErrorReported`.

    Raises:
        Refusal: a control (open, resume, detach, close) is refused; only its caller hears that.
    """
    draft = Draft(session, now if now > session.now else session.now, plugins)
    if isinstance(command, cmd.ClientCommand):
        _decide_request(draft, command)
    elif session.suspicion is None or not delivering.keep(draft, command):
        CONTROLS[type(command)](draft, command)
    if session.suspicion is not None and draft.events:
        suspecting.heed(draft, session, command)
    waiting = len(session.input.stream.held)
    if waiting and draft.events:
        holding.carry_on(draft, REQUESTS, aborted=waiting if draft.failed else 0)
    if session.counters.previews and previewing.asked(session) is not None:
        previewing.settle(draft)
    return draft.events


def _decide_request(draft: Draft, command: cmd.ClientCommand) -> None:
    """Decide a client's command: only of the connection that serves (D24), and once if it is counted (5.9)."""
    session = draft.session
    lease = session.lease
    if session.phase not in ("open", "closing") or command.attachment != lease.attachment:
        return
    if command.client_seq is not None and command.client_seq <= lease.client_seq:
        return
    if session.phase == "closing":
        touch = isinstance(command, cmd.Heartbeat)
        code = "runtime_touch_failed" if touch else "session_closed"
        draft.emit(Refusal(code, "The session is closing.").event(draft.number, command.event_id))
        return
    if lease.phase == "absent":
        return
    if lease.phase == "unheard":
        lifecycle.confirm(draft)
        session = draft.session  # it may have handed units over, which the command waits for
    if command.client_seq is not None and command.client_seq != lease.client_seq + 1:
        gap = Refusal("client_seq_gap", f"The next command must be number {lease.client_seq + 1}.")
        draft.emit(gap.event(draft.number, command.event_id))
        return
    before = len(draft.events)
    try:
        if not (session.input.stream.held and holding.cut_in(draft, command, REQUESTS)):
            handler = holding.hold if holding.must_wait(session, command) else REQUESTS[type(command)]
            handler(draft, command)
    except Refusal as refusal:
        assert len(draft.events) == before, "a refusal must come before the first event"
        draft.emit(refusal.event(draft.number, command.event_id))
    if command.client_seq is not None:
        # Last, because whoever drafts an event first pays for a copy of the session: appends are counted too.
        draft.emit(ev.CommandSequenced(client_seq=command.client_seq))


def fold(transactions: Iterable[Transaction], session: Session | None = None) -> Session:
    """Fold recorded transactions, from the empty state or from `session` (which is changed)."""
    state = new() if session is None else session
    for transaction in transactions:
        for event in transaction.events:
            evolve(state, event, transaction.at)
    return state
