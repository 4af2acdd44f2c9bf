"""Decisions about false interruptions: speech over an answer that may be no turn of the user (DESIGN 5.13).

Delivery is held while it is unclear. Duration, words or an action of the client make it an interruption; else the
answer goes on at the sample where it stopped, and what was heard is forgotten.
"""

from typing import Literal

from antiphon.events import commands as cmd
from antiphon.events import events as ev

from .acknowledging import acknowledges
from .committing import end_detected, stop_speech
from .delivering import dismiss, doubt
from .draft import Draft
from .ending import interrupt, newest_answer
from .fold_input import samples
from .overlap import Judgement
from .playback import audible, heard, in_progress
from .previewing import ask, asked
from .state import Session, Suspicion
from .transcript import PAUSE, transcribes, words_so_far
from .vad import RATE

SHORTEST = RATE // 2
"""Samples of speech: less interrupts nothing."""


def doubts(session: Session) -> bool:
    """Return whether speech that begins now must prove itself before it interrupts.

    Not for a model that listens all the time, which hears it anyway, nor where what was said before is still
    buffered: that would be forgotten with it.
    """
    detection = session.config.turn_detection
    if detection is None or not detection.false_interruption or session.dialect != "duplex" or session.auto:
        return False
    return session.suspicion is not None or session.input.phase == "silent"


def suspect(draft: Draft, start: int) -> None:
    """Hold delivery because of speech that begins at sample `start` of the input."""
    session = draft.session
    playout, newest = audible(session, draft.now), newest_answer(session)
    at_ms = 0 if playout is None else heard(playout, draft.now)[0]
    if playout is not None:
        response_id = playout.response_id
    else:
        assert newest is not None, "an answer is in progress"
        response_id = newest.head.id
    draft.emit(
        ev.InterruptionSuspected(number=draft.number, count=1, response_id=response_id, at_ms=at_ms, start=start)
    )


def ask_for_words(draft: Draft) -> None:
    """Ask the stage for the words of speech that is long enough to be a turn, once for each part of it."""
    session = draft.session
    known, ahead = session.suspicion, session.input.ahead
    if known is None or session.input.transcript or not transcribes(session) or asked(session) is not None:
        return
    fresh = session.input.vad.spoken - max(known.start, 0 if ahead is None else ahead.until)
    if fresh >= SHORTEST or (fresh > 0 and _quiet(session) and _length(session, known) >= SHORTEST):
        ask(draft)


def heed(draft: Draft, before: Session, command: cmd.AnyCommand) -> None:
    """See whether what was just decided settles it; `before` is the session it was decided on."""
    request = command.request if isinstance(command, cmd.StageReport | cmd.ReportFault) else None
    known = before.requests.get(request or "")
    if known is None or known.utterance is None:
        settle(draft)
    else:
        review(draft)  # the words may have come, or will not
        ask_for_words(draft)


def tick(draft: Draft, _command: cmd.Tick) -> None:
    """Decide what is due."""
    known = draft.session.suspicion
    if known is not None and known.due is not None and draft.now >= known.due:
        review(draft)


def review(draft: Draft) -> None:
    """Decide what the speech is, as soon as that is clear, and at the latest when it is due."""
    settle(draft)
    session = draft.session
    known = session.suspicion
    if known is None:
        return
    real = _interrupts(session, known)
    if real is not None:
        _confirm(draft, known, real)
        return
    false = _is_none(session, known, draft.now)
    if false is None:
        return
    waits = known.phase == "held" and asked(session) is not None and not _all_heard(session)
    if waits or not _quiet(session):
        doubt(draft, false)
        return
    _forget(draft)
    if known.phase == "held":
        dismiss(draft, false)


def settle(draft: Draft) -> None:
    """End what is not suspected any more: the utterance is gone, or there is no answer left to interrupt."""
    session = draft.session
    known = session.suspicion
    if known is None or session.phase != "open":
        return
    if session.input.phase == "silent":
        dismiss(draft, "input_cleared")
    elif not in_progress(session, draft.now):
        dismiss(draft, "answer_over")
        if draft.session.input.phase == "stopped":
            end_detected(draft, known.ended)  # it is a turn like any other


def forget(draft: Draft, judged: Judgement) -> None:
    """Let delivery go on because the client, or its words, say that the utterance is no turn (F16)."""
    known = draft.session.suspicion
    if known is not None and known.phase == "held":
        dismiss(draft, "backchannel" if judged.row.reason == "short_ack_transcript" else "client_overlap_action")


def _confirm(draft: Draft, known: Suspicion, reason: Literal["long_overlap_speech", "overlap_words"]) -> None:
    session = draft.session
    draft.emit(
        ev.OverlapDecided(
            number=draft.number,
            count=1,
            session=session.id,
            epoch=session.epoch,
            policy=session.config.overlap_policy,
            action="barge_in",
            reason=reason,
            duration_ms=_length(session, known) * 1000 // RATE,
            overlap_ms=session.input.overlap_ms,
            buffer=True,
            cancel="turn_detected",
        )
    )
    interrupt(draft, reason="turn_detected", cause="turn_detected", asked=False)
    if session.input.phase == "stopped":
        end_detected(draft, known.ended)


def _forget(draft: Draft) -> None:
    """Forget the utterance (F16)."""
    session = draft.session
    if session.input.phase == "speaking":
        stop_speech(draft, samples(session, session.input.position), "overlap")
    draft.emit(ev.InputDiscarded())


def _interrupts(session: Session, known: Suspicion) -> Literal["long_overlap_speech", "overlap_words"] | None:
    """Return why the speech interrupts; None: not yet.

    Where nothing can tell its words, its length decides alone.
    """
    words, long = _words(session), _length(session, known) >= SHORTEST
    if words is None:
        return "long_overlap_speech" if long else None
    says_more = words.strip() and not acknowledges(words)
    return "overlap_words" if says_more and (long or _quiet(session)) else None


def _is_none(session: Session, known: Suspicion, now: int) -> ev.DismissalReason | None:
    """Return why the speech, which does not interrupt so far, is no interruption; None: that is open."""
    due, quiet = known.due is not None and now >= known.due, _quiet(session)
    if not due and not quiet:
        return None
    if _length(session, known) < SHORTEST:
        return "backchannel" if acknowledges(_words(session)) else "too_short"
    if not due and not _all_heard(session):
        return None
    return "backchannel" if acknowledges(_words(session)) else "no_words"


def _words(session: Session) -> str | None:
    """Return what is known of the words of the utterance; None: nothing can tell, "": nothing yet."""
    ahead = session.input.ahead
    if session.input.transcript or not transcribes(session):
        return words_so_far(session)
    if ahead is not None and ahead.text is None and asked(session) is None:
        return None  # the stage could not
    return "" if ahead is None else ahead.text or ""


def _all_heard(session: Session) -> bool:
    """Return whether the words of all speech are known: what a client tells, it tells with the sound."""
    ahead = session.input.ahead
    if session.input.transcript:
        return bool(session.input.transcript.strip())
    return ahead is not None and ahead.text is not None and ahead.heard >= session.input.vad.spoken


def _length(session: Session, known: Suspicion) -> int:
    """Return how long the speech has lasted, in samples: from its first frame to its last."""
    return session.input.vad.spoken - known.start


def _quiet(session: Session) -> bool:
    """Return whether the user has fallen silent, at least for a moment: shorter gaps are inside words."""
    taken = session.input
    since = taken.vad.silent_since
    return taken.phase == "stopped" or (since is not None and samples(session, taken.position) - since >= PAUSE)
