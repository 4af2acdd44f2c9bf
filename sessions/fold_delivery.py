"""What a suspected interruption changes: delivery stands still, what is said is kept, the playout model waits."""

from antiphon.events import commands as cmd
from antiphon.events import events as ev

from . import phases
from .phases import move
from .playback import pause, unpause
from .state import Session, Suspicion

UNDECIDED_US = 2_000_000
"""How long speech over an answer may stay undecided (DESIGN 5.13)."""


def interruption_suspected(session: Session, event: ev.InterruptionSuspected) -> None:
    phase: phases.DeliveryPhase = move(phases.DELIVERY, "flowing", event)
    due = session.now + UNDECIDED_US
    session.suspicion = Suspicion(phase, event.response_id, event.at_ms, event.start, due)
    pause(session)


def output_held(session: Session, event: ev.OutputHeld) -> None:
    known = _known(session)
    known.phase = move(phases.DELIVERY, known.phase, event)
    known.held.append(event)
    known.size += weight(event.report)
    if event.ref is not None:
        session.output.position = event.ref.end


def weight(report: ev.HeldReport) -> int:
    """Return the bytes that a report holds: of sound, and of words."""
    if isinstance(report, cmd.StageProduced):
        return report.size + len(report.text.encode())
    return len(report.arguments.encode()) if isinstance(report, cmd.StageCalled) else 0


def interruption_doubted(session: Session, event: ev.InterruptionDoubted) -> None:
    known = _known(session)
    known.phase = move(phases.DELIVERY, known.phase, event)
    known.held, known.size, known.due = [], 0, None
    unpause(session)
    _limit(session, known)


def decided(
    session: Session,
    event: ev.InterruptionDismissed | ev.Interrupted | ev.EngineRestarted | ev.SessionClosing,
) -> None:
    """It is known what the speech was, or does not matter any more."""
    known = session.suspicion
    if known is None:
        return
    known.phase = move(phases.DELIVERY, known.phase, event)
    if known.phase == "flowing":
        session.suspicion = None
        unpause(session)


def forgotten(
    session: Session, event: ev.InputCommitted | ev.InputCleared | ev.InputDropped | ev.InputDiscarded
) -> None:
    """The utterance is over. While delivery is held, it is for a decision to say what that means."""
    known = session.suspicion
    if known is not None and known.phase == "doubted":
        move(phases.DELIVERY, known.phase, event)
        session.suspicion = None


def goes_on(session: Session) -> None:
    """The user speaks again in the same utterance: its end is to come, and nothing is due before that."""
    known = session.suspicion
    if known is not None and known.phase == "doubted":
        known.due = None


def stopped(session: Session, reason: ev.TurnEnd) -> None:
    """The detector has ended the utterance: what is only doubted is not open for ever."""
    known = session.suspicion
    if known is not None:
        known.ended = reason
        _limit(session, known)


def _limit(session: Session, known: Suspicion) -> None:
    if known.phase == "doubted" and session.input.phase == "stopped":
        known.due = session.now + UNDECIDED_US


def _known(session: Session) -> Suspicion:
    known = session.suspicion
    if known is None:
        raise phases.IllegalTransition("no interruption is suspected")
    return known
