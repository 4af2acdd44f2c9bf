"""Decisions about the life of a session: open, resume, detach, close, expiry, restart."""

import hmac

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.config import ConfigPatch, merged, overlap_policy

from .checking import asked_of_the_model, check_config
from .continuing import remind
from .draft import Draft
from .ending import close, close_if_free, end_response, fail_response
from .feeding import go_on, lose_units, resident
from .phases import LIVE
from .plugins import Registry
from .rebuilding import renews
from .refusal import refuse
from .state import ControlOutcome, Session, close_body, detach_body, opening_body, resume_body
from .updating import publish
from .view import idle_until, view

TEARDOWN_US = 2_000_000
"""The terminal comes this long after the close at the latest (SUPERSEDED, WIRE 8.7)."""


def open_session(draft: Draft, command: cmd.OpenSession) -> None:
    """Create the session, unless it exists: the same control id is then a lost answer, another one refused."""
    session = draft.session
    plugin = draft.plugins.get(command.plugin)
    implied = overlap_policy(command.config.turn_detection)
    config = merged(command.config, ConfigPatch(overlap_policy=implied))
    if plugin is not None:
        with asked_of_the_model():
            config = plugin.settled(config)
    if session.phase != "new":
        if _repeated(session, command.control_id, "open", opening_body(command.dialect, command.plugin, config)):
            return
        refuse("session_exists", "There is already a session of this id.")
    if plugin is None or plugin.version != command.plugin_version:
        refuse("model_not_found", f"There is no plugin {command.plugin!r} {command.plugin_version}.", "model")
    check_config(config, command.dialect)
    with asked_of_the_model():
        plugin.check(config)
    resumable = command.token_digest is not None and command.capabilities.supports_session_resume
    opened = Session(
        id=command.session,
        phase="open",
        dialect=command.dialect,
        config=config,
        capabilities=command.capabilities,
        limits=command.limits,
        resumable=resumable,
        opened_wall_us=command.wall_us,
    )
    draft.emit(
        ev.SessionOpened(
            number=0,
            count=1,
            session=command.session,
            control_id=command.control_id,
            plugin=plugin.name,
            plugin_version=plugin.version,
            limits=command.limits,
            wall_us=command.wall_us,
            token_digest=command.token_digest if resumable else None,
            view=view(opened),
            owner=command.owner,
        )
    )
    if command.by_update:
        publish(draft, config)


def resume_session(draft: Draft, command: cmd.ResumeSession) -> None:
    """Attach a new connection; the checks are those of D22, in its order. A replay changes nothing (C11)."""
    session = draft.session
    lease = session.lease
    body = resume_body(command.presented, command.last_number, command.position)
    known = _repeated(session, command.control_id, "resume", body) if session.phase == "open" else None
    if known is not None:
        if known.generation != lease.generation:
            refuse("session_resume_conflict", "The session was resumed again since.")
        return
    if session.phase != "open":
        refuse("session_resume_expired", "The session has ended.")
    if (command.position is None) != (session.dialect == "duplex"):
        # Whoever tries ids learns nothing of sessions that are not taken over this way (WIRE 12.16).
        refuse("session_resume_expired", "There is no such session, or it has ended.")
    if not session.resumable:
        refuse("unsupported_session_resume", "This session cannot be resumed.")
    foreign = bool(session.owner and command.owner and session.owner != command.owner)
    if not _token_fits(session, command.presented) or foreign:
        refuse("invalid_resume_token", "The resume token is not valid.")
    if command.gap and command.position is None:
        refuse("journal_gap", "Events that the client has not seen are gone.")
    if command.gap:
        refuse(
            "session_resume_conflict", "What came behind the last event is not kept any more; open a new session."
        )
    head = session.next_number - 1
    if command.ahead or command.last_number > head:
        refuse("session_resume_conflict", "No event of this number, or id, was sent yet.")
    if command.expected_generation not in (None, lease.generation):
        refuse("runtime_resume_failed", "The session was taken over in the meantime.")
    attachment = lease.attachment + 1
    draft.emit(
        ev.SessionResumed(
            number=0,
            count=1,
            control_id=command.control_id,
            presented=command.presented,
            attachment=attachment,
            generation=lease.generation + 1,
            token_digest=command.next_digest,
            last_number=command.last_number,
            head=head,
            last_client_seq=lease.client_seq,
            view=view(session),
            position=command.position,
        )
    )


def _token_fits(session: Session, presented: str) -> bool:
    lease = session.lease
    digests = () if lease.token is None else (lease.token, *lease.earlier_tokens)
    fits = [hmac.compare_digest(presented.encode(), digest.encode()) for digest in digests]
    return any(fits)


def confirm_attachment(draft: Draft, command: cmd.ConfirmAttachment) -> None:
    """Note that the client was heard; stale or repeated confirmations say nothing new."""
    lease = draft.session.lease
    if lease.phase == "unheard" and lease.attachment == command.attachment:
        confirm(draft)


def confirm(draft: Draft) -> None:
    """Draft that the client was heard. A model that lost its memory meanwhile goes on with what is there (E20)."""
    session = draft.session
    draft.emit(ev.AttachmentConfirmed(attachment=session.lease.attachment))
    if session.auto and resident(session) is None:
        go_on(draft)
        remind(draft)


def _repeated(session: Session, control_id: str, kind: str, body: str) -> ControlOutcome | None:
    """Return what a control with this id did before, None if it is new (B19).

    Raises:
        Refusal: `control_id_reused`: the id stands for another request (B20).
    """
    known = session.lease.controls.get(control_id)
    if known is not None and (known.kind, known.body) != (kind, body):
        refuse("control_id_reused", "This control id was used for another request.")
    return known


def detach(draft: Draft, command: cmd.Detach) -> None:
    """Begin the grace, or end a session that cannot be resumed (D8). Fenced and idempotent (C4, C6).

    Raises:
        Refusal: `control_id_reused`; `unknown_session`; `session_closed` from the close on (C13);
            `session_resume_conflict`: the generation to be given up is not the current one. For a connection that
            lost the session, that is the right answer and no error to report (D31).
    """
    session = draft.session
    lease = session.lease
    if command.control_id is not None:
        body = detach_body(command.generation, command.reason)
        if _repeated(session, command.control_id, "detach", body) is not None:
            return
    elif command.generation is None:
        refuse("invalid_argument", "A connection detaches the lease generation that it served; name it.")
    if session.phase == "new":
        refuse("unknown_session", "There is no such session.")
    if session.phase != "open":
        refuse("session_closed", "The session has ended.")
    if command.generation not in (None, lease.generation):
        refuse("session_resume_conflict", "Another connection serves the session; leave it alone.")
    if not lease.attached:
        return
    if not session.resumable and command.control_id is not None:
        refuse("unsupported_session_resume", "This session ends without its connection; close it if that is meant.")
    if not session.resumable:
        begin_close(draft, command.reason, control_id=None, expired=False)
        return
    draft.emit(
        ev.SessionDetached(
            generation=lease.generation,
            reason=command.reason,
            grace_ms=session.limits.grace_ms,
            control_id=command.control_id,
            expected=None if command.control_id is None else command.generation,
        )
    )


def heartbeat(draft: Draft, _command: cmd.Heartbeat) -> None:
    """Renew the lease and say so (C15)."""
    draft.emit(ev.SessionTouched(number=draft.number, count=1, session=draft.session.id))


def close_session(draft: Draft, command: cmd.CloseSession) -> None:
    """End the session; closing a closed one is ok and changes nothing (M8).

    Raises:
        Refusal: `control_id_reused`.
    """
    session = draft.session
    known = cmd.CLOSE_REASONS.get(command.reason)
    reason, words = (known, command.words) if known is not None else ("client_close", command.reason)
    before = _repeated(session, command.control_id, "close", close_body(reason, words))
    if before is not None or session.phase != "open":
        return
    if command.attachment is not None and command.attachment != session.lease.attachment:
        return
    begin_close(draft, reason, control_id=command.control_id, expired=False, words=words)


def begin_close(
    draft: Draft, reason: cmd.CloseReason, *, control_id: str | None, expired: bool, words: str | None = None
) -> None:
    """Decide the end (M2): terminals of open responses unless it is an expiry (M14), then the teardown."""
    session = draft.session
    if not expired:
        for response in session.open_responses:
            end_response(draft, response, "cancelled", reason="client_cancelled", cause="session_close")
    draft.emit(
        ev.SessionClosing(
            control_id=control_id,
            reason=reason,
            words=words,
            expired=expired,
            deadline_us=draft.now + TEARDOWN_US,
            # What was left before is being cleaned up already, and a request has one clean-up at a time (K20).
            requests=tuple(name for name, known in session.requests.items() if known.phase in LIVE),
        )
    )
    close_if_free(draft)


def tick(draft: Draft, _command: cmd.Tick) -> None:
    """Carry out whatever deadline has passed: grace before idle time (C8); boundaries are inclusive (C2, C7)."""
    session, now = draft.session, draft.now
    if session.phase == "closing":
        if session.closing is not None and now >= session.closing.deadline:
            close(draft)
        return
    if session.phase != "open":
        return
    lease, limits, idle = session.lease, session.limits, idle_until(session)
    if lease.confirm_by is not None and now >= lease.confirm_by:
        draft.emit(ev.AttachmentWithdrawn(attachment=lease.attachment))
        return
    if lease.expires_at is not None and now >= lease.expires_at:
        begin_close(draft, "disconnect_grace_expired", control_id=None, expired=True)
    elif idle is not None and now >= idle:
        begin_close(draft, "idle_ttl_expired", control_id=None, expired=True)
    elif limits.max_session_ms and now >= session.opened_at + limits.max_session_ms * 1000:
        begin_close(draft, "max_duration", control_id=None, expired=True)


def start_runner(draft: Draft, command: cmd.StartRunner) -> None:
    """Take a session over after a restart (DESIGN 4): fail what ran, detach, start the grace now.

    Whatever the stages may still hold is asked for again: a runner may have crashed while its stages live on.
    """
    session = draft.session
    if session.phase not in ("open", "closing"):
        return
    if session.phase == "open":
        failure = ev.Failure("engine_restarted", "The engine was restarted while it answered.")
        for response in session.open_responses:
            fail_response(draft, response, failure)
    lost = tuple(session.requests)
    forgotten = _memory_lost(session, draft.plugins)
    epoch = session.epoch + (1 if lost and session.phase == "open" else 0)
    if not forgotten:
        lose_units(draft, again=True)
    draft.emit(ev.EngineRestarted(term=command.term, wall_us=command.wall_us, epoch=epoch, lost=lost))
    if session.phase == "closing":
        close(draft)
    elif forgotten:
        begin_close(draft, "request_cleanup", control_id=None, expired=True)
        close(draft)  # announced before the clean-up (M5)
    elif session.resumable:
        grace = max(session.limits.grace_ms, command.grace_ms)
        draft.emit(ev.SessionDetached(generation=session.lease.generation, reason="restart", grace_ms=grace))
        _stop_waiting(draft)
    else:
        begin_close(draft, "disconnect", control_id=None, expired=False)


def _stop_waiting(draft: Draft) -> None:
    """End a suspected interruption: whoever spoke is not connected any more, and what was held is lost."""
    known = draft.session.suspicion
    if known is not None and known.phase == "held":
        draft.emit(
            ev.InterruptionDismissed(
                number=draft.number,
                count=1,
                response_id=known.response_id,
                at_ms=known.at_ms,
                reason="engine_restarted",
            )
        )


def _memory_lost(session: Session, plugins: Registry) -> bool:
    """Return whether a resident model's memory dies with the process and cannot be rendered again (K15)."""
    resident = any(request.resident for request in session.requests.values())
    return resident and not renews(session, plugins)


def report_refusal(draft: Draft, command: cmd.ReportRefusal) -> None:
    """Tell the attached client why something was refused at the edge.

    A counted command that was refused there counts as carried out; a repeated one was told already (DESIGN 5.9).
    """
    session = draft.session
    lease = session.lease
    if session.phase != "open" or not lease.attached or command.attachment != lease.attachment:
        return
    counted = command.client_seq
    if counted is not None and counted <= lease.client_seq:
        return
    draft.emit(
        ev.ErrorReported(
            number=draft.number if command.numbered else 0,
            count=1,
            code=command.code,
            message=command.message[:256],
            param=command.param,
            event_id=command.event_id,
            detail=command.detail,
        )
    )
    if counted is not None and counted == lease.client_seq + 1:
        draft.emit(ev.CommandSequenced(client_seq=counted))
