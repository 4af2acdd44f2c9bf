"""A microphone that is always open: silence, and what it is given to say, at the speed of a real one."""

import numpy as np
from msgspec import Struct

from .wav import Pcm

RATE = 16_000
FRAME = 512
"""Samples of one piece, 32 ms: what the voice activity detector looks at."""

_QUIET = 300
"""Samples below this (about -40 dB) at the end of an utterance are not voice."""

_PAUSE = RATE * 3 // 10
"""A pause of the voice that separates two utterances, in samples."""


class Utterance(Struct):
    """Something that was said: the samples at which the voice begins, and behind which there is none."""

    start: int
    end: int


class Microphone:
    """The user's side in samples since `start_us`; sample `i` is recorded at `start_us + i / 16,000 s`."""

    def __init__(self, start_us: int) -> None:
        """Open it."""
        self.start_us = start_us
        self.utterances: list[Utterance] = []
        self._taken = 0
        self._waiting = np.zeros(0, np.int16)
        self._recorded: list[Pcm] = []

    def say(self, voice: Pcm) -> Utterance:
        """Speak as soon as what is being said has ended; return the first utterance of it.

        A pause of more than 0.3 s begins a new utterance.
        """
        start = self._taken + len(self._waiting)
        self._waiting = np.concatenate([self._waiting, voice])
        said = [Utterance(start + first, start + last) for first, last in _loud_parts(voice)]
        self.utterances.extend(said)
        return said[0]

    def take(self) -> bytes:
        """Return the next piece as little-endian samples of 16 bits."""
        piece = np.zeros(FRAME, np.int16)
        said = self._waiting[:FRAME]
        piece[: len(said)] = said
        self._waiting = self._waiting[FRAME:]
        self._taken += FRAME
        self._recorded.append(piece)
        return piece.astype("<i2").tobytes()

    @property
    def due_us(self) -> int:
        """When the next piece has been recorded as a whole."""
        return self.time_of(self._taken + FRAME)

    @property
    def speaking(self) -> bool:
        """Whether something is still to be said."""
        return len(self._waiting) > 0

    def time_of(self, sample: int) -> int:
        """Return when a sample was recorded, in microseconds of the caller's clock."""
        return self.start_us + sample * 1_000_000 // RATE

    def recording(self) -> Pcm:
        """Return everything that was recorded."""
        return np.concatenate(self._recorded) if self._recorded else np.zeros(0, np.int16)


def silent(voice: Pcm) -> bool:
    """Return whether nothing in it is loud enough to be a voice."""
    return not (np.abs(voice.astype(np.int32)) > _QUIET).any()


def _loud_parts(voice: Pcm) -> list[tuple[int, int]]:
    """Return (first, behind the last) sample of each stretch of voice; all of it if there is none."""
    loud = np.flatnonzero(np.abs(voice.astype(np.int32)) > _QUIET)
    if not loud.size:
        return [(0, len(voice))]
    pauses = np.flatnonzero(np.diff(loud) > _PAUSE)
    firsts = [int(loud[0]), *(int(loud[at + 1]) for at in pauses)]
    lasts = [*(int(loud[at]) + 1 for at in pauses), int(loud[-1]) + 1]
    return list(zip(firsts, lasts, strict=True))
