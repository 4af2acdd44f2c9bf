"""Turns from speech probabilities: a pure fold over frames of 512 samples (BEHAVIOURS F5-F8, WIRE 6.1).

Scores are thousandths. A start needs `min_speech_duration` of consecutive frames at or above the threshold. A
stop needs `silence_duration` since the first frame below the lower threshold, and closes on such a frame;
frames in between keep the timer running; a frame at the threshold cancels it.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from antiphon.events.config import TurnDetection

from .semantics import silence_ms
from .state import Vad

FRAME = 512
RATE = 16_000
FRAME_MS = FRAME * 1000 // RATE


class Change(Struct, frozen=True):
    """Speech began or ended. `at`: sample at which the utterance begins (padding included), or ends.

    `patient`: it ended by what its words allowed. `speech` is the sample at which the first frame of speech
    begins, or the last one ends.
    """

    kind: Literal["start", "stop"]
    at: int
    patient: bool = False
    speech: int = 0


class Thresholds(Struct, frozen=True):
    """A detection in frames, samples and thousandths."""

    start: int
    stop: int
    min_frames: int
    silence: int
    prefix: int


@lru_cache(maxsize=256)
def thresholds(detection: TurnDetection) -> Thresholds:
    """Return the effective numbers of a detection (WIRE 4.4: floors of 0.16 and 32 ms applied)."""
    threshold = max(round(detection.threshold * 1000), 160)
    wait_ms = detection.silence_duration_ms
    if detection.type == "semantic_vad":
        wait_ms = silence_ms(detection.eagerness, "unclear")
    return Thresholds(
        start=threshold,
        stop=max(threshold - 150, 10),
        min_frames=-(-max(detection.min_speech_duration_ms, FRAME_MS) // FRAME_MS),
        silence=wait_ms * RATE // 1000,
        prefix=detection.prefix_padding_ms * RATE // 1000,
    )


def differ(before: TurnDetection | None, after: TurnDetection | None) -> bool:
    """Return whether two detections find other speech; what is done about it is no matter of the detector."""
    if before is None or after is None:
        return before is not after
    return (before.type, thresholds(before)) != (after.type, thresholds(after))


def advance(vad: Vad, limits: Thresholds, scores: Sequence[int], first: int) -> list[Change]:
    """Fold `scores` of frames that begin at sample `first` into `vad`, in place; return what changed."""
    changes: list[Change] = []
    at = first
    for score in scores:
        step = _while_speaking if vad.speaking else _while_silent
        change = step(vad, limits, score, at)
        if change is not None:
            changes.append(change)
        at += FRAME
    return changes


def _while_silent(vad: Vad, limits: Thresholds, score: int, at: int) -> Change | None:
    if score < limits.start:
        vad.run = 0
        return None
    if vad.run == 0:
        vad.run_start = at
    vad.run += 1
    if vad.run < limits.min_frames:
        return None
    vad.run, vad.speaking, vad.silent_since, vad.patience, vad.spoken = 0, True, None, None, at + FRAME
    return Change("start", max(vad.run_start - limits.prefix, vad.floor), speech=vad.run_start)


def _while_speaking(vad: Vad, limits: Thresholds, score: int, at: int) -> Change | None:
    if score >= limits.start:
        vad.silent_since = vad.patience = None
        vad.spoken = at + FRAME
        return None
    if score >= limits.stop:
        return None
    if vad.silent_since is None:
        vad.silent_since = at
    end = at + FRAME
    patient = vad.patience is not None
    if end - vad.silent_since < (limits.silence if vad.patience is None else vad.patience):
        return None
    vad.speaking, vad.silent_since, vad.patience = False, None, None
    return Change("stop", end, patient, vad.spoken)


def reset(vad: Vad, at: int) -> None:
    """Forget the stream but not the clock: nothing before sample `at` belongs to a later utterance (F8)."""
    vad.run, vad.speaking, vad.silent_since, vad.patience, vad.floor = 0, False, None, None, at
