"""What the events of a session's life change: lease, phase, configuration, end."""

from antiphon.events import events as ev

from . import fold_units, phases, vad
from .batches import retired
from .fold_delivery import decided
from .fold_input import not_all_heard, samples
from .fold_talk import request_to
from .phases import move
from .playback import play_on, stand_still
from .state import (
    KEPT_CONTROLS,
    KEPT_TOKENS,
    Closing,
    ControlOutcome,
    Input,
    Session,
    close_body,
    detach_body,
    opening_body,
    resume_body,
)


def session_opened(session: Session, event: ev.SessionOpened) -> None:
    view = event.view
    session.phase = move(phases.SESSION, session.phase, event)
    session.id, session.dialect = event.session, view.dialect
    session.plugin, session.plugin_version = event.plugin, event.plugin_version
    session.config, session.capabilities, session.limits = view.config, view.capabilities, event.limits
    _recorded(session)
    session.resumable, session.owner = view.resumable, event.owner
    _sow(session, "")
    session.opened_at = session.now
    session.opened_wall_us = event.wall_us
    lease = session.lease
    lease.phase = move(phases.ATTACHMENT, lease.phase, event)
    lease.attachment, lease.token = 1, event.token_digest
    body = opening_body(view.dialect, event.plugin, view.config)
    _remember(session, event.control_id, ControlOutcome("open", body, 1, 0))


def session_resumed(session: Session, event: ev.SessionResumed) -> None:
    lease = session.lease
    lease.phase = move(phases.ATTACHMENT, lease.phase, event)
    lease.attachment, lease.generation = event.attachment, event.generation
    known = () if lease.token is None else (*lease.earlier_tokens, lease.token)
    # The first one is what the last client that was heard has for certain: it may present it as often as it must.
    lease.earlier_tokens = (*known[:1], *known[1:][1 - KEPT_TOKENS :])
    lease.token = event.token_digest
    lease.confirm_by = session.now + session.limits.activation_ms * 1000
    lease.expires_at = None
    body = resume_body(event.presented, event.last_number, event.position)
    _remember(session, event.control_id, ControlOutcome("resume", body, event.attachment, event.generation))
    play_on(session)
    if session.input.idle_since is not None:
        session.input.idle_since = session.now  # nobody heard the silence so far


def attachment_confirmed(session: Session, event: ev.AttachmentConfirmed) -> None:
    lease = session.lease
    lease.phase = move(phases.ATTACHMENT, lease.phase, event)
    lease.earlier_tokens, lease.confirm_by = (), None


def attachment_withdrawn(session: Session, event: ev.AttachmentWithdrawn) -> None:
    lease = session.lease
    lease.phase = move(phases.ATTACHMENT, lease.phase, event)
    lease.confirm_by = None  # both tokens stay good: the client may have got the new one, and could not say so
    lease.expires_at = session.now + session.limits.grace_ms * 1000
    stand_still(session)


def session_detached(session: Session, event: ev.SessionDetached) -> None:
    lease = session.lease
    lease.phase = move(phases.ATTACHMENT, lease.phase, event)
    lease.confirm_by = None
    lease.expires_at = session.now + event.grace_ms * 1000
    if event.control_id is not None:
        body = detach_body(event.expected, event.reason)
        outcome = ControlOutcome("detach", body, lease.attachment, lease.generation)
        _remember(session, event.control_id, outcome)
    stand_still(session)


def config_updated(session: Session, event: ev.ConfigUpdated) -> None:
    if vad.differ(session.config.turn_detection, event.config.turn_detection):
        vad.reset(session.input.vad, samples(session, session.input.position))
        not_all_heard(session)  # speech that the new detector has not found yet counts for none of it
    before, listened = session.config.seed, session.auto
    session.config = event.config
    session.config_generation = event.generation
    _sow(session, before)
    _recorded(session)
    if session.auto and not listened:
        fold_units.listen(session)
    elif listened and not session.auto:
        fold_units.listen_no_more(session)
    if not session.auto:
        session.reserved = None  # the model does not open the response that it was meant for


def turn_signalled(session: Session, event: ev.TurnSignalled) -> None:
    session.turn.state = event.turn_state


def _sow(session: Session, before: str) -> None:
    """Count a text that the configuration seeds as a turn of the user; the same one again does not count (G7)."""
    seed = session.config.seed
    if seed and seed != before:
        session.turn.sown += 1
        session.turn.seeded = True


def _recorded(session: Session) -> None:
    """Count the bytes of a recording that is now in force; one that was sent before lies where it was."""
    recording = session.config.ref_audio
    if recording is not None:
        session.recorded = max(session.recorded, recording.ref.end)


def engine_restarted(session: Session, event: ev.EngineRestarted) -> None:
    for request in event.lost:
        request_to(session, request, event)
    decided(session, event)
    session.turn.epoch = event.epoch
    session.turn.gate = session.turn.listens = None


def session_closing(session: Session, event: ev.SessionClosing) -> None:
    session.phase = move(phases.SESSION, session.phase, event)
    session.closing = Closing(event.reason, event.expired, event.deadline_us, event.words)
    lease = session.lease
    lease.phase = move(phases.ATTACHMENT, lease.phase, event)
    lease.generation += 1
    lease.token = lease.confirm_by = lease.expires_at = None
    lease.earlier_tokens = ()
    session.response = None
    session.others.clear()
    decided(session, event)
    # What waited is discarded, with its credit (M9); nothing is heard any more (M19).
    session.input = Input(position=session.input.position, start=session.input.position)
    if event.control_id is not None:
        outcome = ControlOutcome("close", close_body(event.reason, event.words), lease.attachment, lease.generation)
        _remember(session, event.control_id, outcome)
    for request in event.requests:
        request_to(session, request, event)


def session_closed(session: Session, event: ev.SessionClosed) -> None:
    session.phase = move(phases.SESSION, session.phase, event)
    session.playouts.clear()
    session.batches = retired(session.batches, session.batches.generation)


def command_sequenced(session: Session, event: ev.CommandSequenced) -> None:
    session.lease.client_seq = event.client_seq


def _remember(session: Session, control_id: str, outcome: ControlOutcome) -> None:
    controls = session.lease.controls
    controls[control_id] = outcome
    if len(controls) > KEPT_CONTROLS:
        last = {known.kind: name for name, known in controls.items()}
        del controls[next(name for name, known in controls.items() if last[known.kind] != name)]
