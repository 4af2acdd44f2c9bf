"""Decisions about delivery that is held: what the stages say meanwhile, and how it goes on (DESIGN 5.13)."""

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import SampleRef

from .calling import stage_called
from .draft import Draft
from .draining import stage_inner_finished
from .feeding import accept, live
from .fold_delivery import weight
from .reporting import stage_finished
from .segments import segment_finished
from .speaking import stage_produced
from .state import Session, Suspicion

HELD_BYTES = 4 * 1024 * 1024
HELD_PIECES = 1024
"""What may be held; a stage that says more so soon is not waited for any longer."""

_FAILS = (cmd.StageRefused, cmd.StageFailed, cmd.StageReleased, cmd.StageLost, cmd.ReportFault)


def keep(draft: Draft, report: cmd.AnyCommand) -> bool:
    """Keep what a stage says of an answer for when delivery goes on; False if it is to be decided now.

    A failure is: it is told at once, behind what was said before it.
    """
    session = draft.session
    known = session.suspicion
    if known is None or known.phase != "held" or not _concerns(session, report):
        return False
    if not isinstance(report, ev.HeldReport):
        if isinstance(report, _FAILS):
            doubt(draft, "answer_failed")
        return False
    if _has_ended(known, report.request):
        return True  # it comes behind the end
    if len(known.held) >= HELD_PIECES or known.size + weight(report) > HELD_BYTES:
        doubt(draft, "too_much_held")
        return False
    if isinstance(report, cmd.StageProduced | cmd.StageSegmentFinished):
        accept(draft, session, report.request, report.operation)
    size = report.size if isinstance(report, cmd.StageProduced) else 0
    draft.emit(ev.OutputHeld(report=report, ref=SampleRef("out", session.output.position, size) if size else None))
    return True


def _has_ended(known: Suspicion, request: str) -> bool:
    reports = (kept.report for kept in known.held)
    return any(isinstance(report, cmd.StageFinished) and report.request == request for report in reports)


def _concerns(session: Session, report: cmd.AnyCommand) -> bool:
    """Return whether a report is about an answer of the conversation, or may begin one."""
    request = report.request if isinstance(report, cmd.StageReport | cmd.ReportFault) else None
    known = live(session, request) if request is not None else None
    if request is None or known is None:
        return False
    served = session.served_by(request)
    return known.resident if served is None else not served.aside


def dismiss(draft: Draft, reason: ev.DismissalReason) -> None:
    """Let delivery go on: it was no interruption. Nobody is told if it goes on already."""
    known = _suspected(draft)
    held = tuple(known.held)
    draft.emit(
        ev.InterruptionDismissed(
            number=draft.number,
            count=1 if known.phase == "held" else 0,
            response_id=known.response_id,
            at_ms=known.at_ms,
            reason=reason,
        )
    )
    _deliver(draft, held)


def doubt(draft: Draft, reason: ev.DismissalReason) -> None:
    """Let delivery go on, although the utterance may still turn out to interrupt the answer."""
    known = _suspected(draft)
    held = tuple(known.held)
    draft.emit(
        ev.InterruptionDoubted(
            number=draft.number, count=1, response_id=known.response_id, at_ms=known.at_ms, reason=reason
        )
    )
    _deliver(draft, held)


def _suspected(draft: Draft) -> Suspicion:
    known = draft.session.suspicion
    assert known is not None, "an interruption is suspected"
    return known


def _deliver(draft: Draft, held: tuple[ev.OutputHeld, ...]) -> None:
    """Decide what was held, in its order, as if it came now."""
    for kept in held:
        report = kept.report
        match report:
            case cmd.StageProduced():
                stage_produced(draft, report, kept.ref)
            case cmd.StageCalled():
                stage_called(draft, report)
            case cmd.StageSegmentFinished():
                segment_finished(draft, report)
            case cmd.StageInnerFinished():
                stage_inner_finished(draft, report)
            case _:
                stage_finished(draft, report)
