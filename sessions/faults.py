"""Decisions about faults of ours: handling a command raised an error, and changed nothing (M10)."""

from antiphon.events import commands as cmd
from antiphon.events import events as ev

from .draft import Draft
from .ending import end_response
from .lifecycle import begin_close
from .reporting import fail_request

MESSAGE = "The server failed to carry this out; nothing was changed."
APPEND_MESSAGE = "The server failed to take the sound; the session is closed."


def report_fault(draft: Draft, command: cmd.ReportFault) -> None:
    """Tell whom it concerns. A command is answered, and the session lives; a stage's report fails what it is about.

    Sound that was lost cannot be told from silence by the model: an append closes the session, its answer first.
    """
    if command.request is not None:
        fail_request(draft, command.request, ev.Failure("internal_error", MESSAGE))
        return
    session = draft.session
    lease = session.lease
    if session.phase != "open" or not lease.attached or command.attachment != lease.attachment:
        return
    if command.append:
        _give_up(draft, command)
        return
    _tell(draft, "internal_error", MESSAGE, command.event_id)
    if command.client_seq is not None and command.client_seq == lease.client_seq + 1:
        draft.emit(ev.CommandSequenced(client_seq=command.client_seq))


def _give_up(draft: Draft, command: cmd.ReportFault) -> None:
    code: cmd.CloseReason = "runtime_append_task_failed"
    active = draft.session.response
    if active is not None:
        end_response(draft, active, "failed", failure=ev.Failure(code, APPEND_MESSAGE))
    _tell(draft, code, APPEND_MESSAGE, command.event_id)
    begin_close(draft, code, control_id=None, expired=False)


def _tell(draft: Draft, code: str, message: str, event_id: str | None) -> None:
    draft.emit(ev.ErrorReported(number=draft.number, count=1, code=code, message=message, event_id=event_id))
