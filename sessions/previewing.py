"""Decisions about the running transcript: what a stage is asked of an open utterance, and what it answers."""

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.audio import SampleRef

from . import semantics
from .draft import Draft
from .fold_input import samples
from .phases import LIVE
from .state import Session

LONGEST_MS = 20_000
"""Of a longer utterance its last part is listened to: how it ends is what matters, and its cost stays bounded."""

_ENDS = (
    ev.SpeechStopped,
    ev.InputCommitted,
    ev.InputCleared,
    ev.InputDropped,
    ev.InputDiscarded,
    ev.Interrupted,
    ev.InterruptionDismissed,
)
"""What may end the utterance."""


def ask(draft: Draft) -> None:
    """Ask the stage for the words of the utterance that is open, if one is; an earlier question is void."""
    session = draft.session
    taken, sound = session.input, session.capabilities.input_format
    if taken.phase == "silent":
        return
    before = asked(session)
    if before is not None and taken.ahead is not None and taken.ahead.until == samples(session, taken.position):
        return  # about just that
    if before is not None:
        draft.emit(ev.PreviewDropped(request=before))
    start = max(taken.start, taken.position - sound.bytes_for(LONGEST_MS))
    draft.emit(
        ev.PreviewRequested(
            request=ids.preview_request(session.id, session.epoch, session.counters.previews + 1),
            item_id=taken.item_id or "",
            ref=SampleRef("in", start, taken.position - start),
            epoch=session.epoch,
        )
    )


def transcribed(draft: Draft, report: cmd.StageTranscribed) -> None:
    """Note what the stage has heard of the open utterance; the same again is no news, and a failure none either."""
    ahead = draft.session.input.ahead
    assert ahead is not None, "a question that is live is about the open utterance"
    if report.error is not None or (ahead.text, ahead.heard) == (report.text, ahead.until):
        return
    judged = semantics.judge(report.text)
    draft.emit(
        ev.TurnPreviewed(
            request=report.request,
            item_id=draft.session.input.item_id or "",
            text=report.text,
            sentence=judged.sentence,
            rule=judged.rule,
        )
    )


def settle(draft: Draft) -> None:
    """Call a question off whose utterance has ended in this decision; another one may be open since.

    As long as it is open whether the utterance interrupts an answer, its words matter also behind its end.
    """
    if not any(isinstance(event, _ENDS) for event in draft.events):
        return
    session = draft.session
    request, taken = asked(session), session.input
    matters = taken.phase == "speaking" or (taken.phase == "stopped" and session.suspicion is not None)
    if request is not None and not (matters and session.requests[request].utterance == taken.item_id):
        draft.emit(ev.PreviewDropped(request=request))


def asked(session: Session) -> str | None:
    """Return the question that is under way."""
    for name, known in session.requests.items():
        if known.utterance is not None and known.phase in LIVE:
            return name
    return None
