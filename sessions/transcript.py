"""The running transcript: what is known of the words of the utterance that is open, and how long it may pause."""

import msgspec

from antiphon.events.events import TurnEnd

from . import semantics, vad
from .semantics import Judged
from .state import Session, Vad

PAUSE = 200 * vad.RATE // 1000
"""Samples of silence behind which the words so far are asked for."""


def words_so_far(session: Session) -> str | None:
    """Return what was heard of the open utterance by now; None: nothing can tell, "": nothing yet.

    The words that a client sends with its sound count as well, and before those of the stage.
    """
    taken = session.input
    if taken.transcript:
        return taken.transcript
    if taken.ahead is not None:
        return taken.ahead.text or ""
    return "" if previews(session) else None


def words_of_turn(session: Session) -> str | None:
    """Return the words of what is buffered, if the stage has heard all speech in it: it need not be heard again."""
    taken = session.input
    ahead = taken.ahead
    if ahead is None or not ahead.whole or taken.transcript or ahead.heard < taken.vad.spoken:
        return None
    return ahead.text or None


def transcribes(session: Session) -> bool:
    """Return whether the stage can be asked for the words of an utterance that is open."""
    return session.capabilities.transcribes_ahead and not session.resident


def previews(session: Session) -> bool:
    """Return whether it is asked at every pause: the end of a turn is decided from words, and nobody tells them."""
    detection = session.config.turn_detection
    semantic = detection is not None and detection.type == "semantic_vad"
    return semantic and transcribes(session) and not session.input.transcript


def pauses(session: Session, activity: Vad, end: int) -> bool:
    """Return whether the words are wanted because of a pause that goes on at sample `end`: once for each."""
    since, ahead = activity.silent_since, session.input.ahead
    if not activity.speaking or since is None or end - since < PAUSE:
        return False
    return previews(session) and (ahead is None or ahead.until <= since)


def thresholds(session: Session, hint: str | None = None) -> vad.Thresholds:
    """Return the detector's numbers as the session has them; `hint`: words that come with the sound at hand.

    There must be a detection.
    """
    detection = session.config.turn_detection
    assert detection is not None, "somebody detects"
    limits = vad.thresholds(detection)
    if detection.type == "server_vad":
        return limits
    told = session.input.transcript + (hint or "")
    if told:
        ms = semantics.silence_ms(detection.eagerness, semantics.judge(told).sentence)
        return msgspec.structs.replace(limits, silence=ms * vad.RATE // 1000)
    return limits


def ended(session: Session, change: vad.Change, hint: str | None = None) -> tuple[TurnEnd, Judged | None]:
    """Return why the detector has ended the utterance, and what judged its words if anything did."""
    detection = session.config.turn_detection
    if detection is None or detection.type == "server_vad":
        return "silence", None
    told, ahead = session.input.transcript + (hint or ""), session.input.ahead
    if change.patient:
        assert ahead is not None, "its words were judged"
        judged = Judged(ahead.sentence, ahead.rule)
    elif told:
        judged = semantics.judge(told)
    else:
        return "no_transcript", None
    if judged.rule == "no_words":
        return "no_transcript", judged
    return _ENDS[judged.sentence], judged


_ENDS: dict[str, TurnEnd] = {
    "complete": "sentence_complete",
    "unfinished": "sentence_unfinished",
    "unclear": "sentence_unclear",
}
