"""A loudspeaker that plays in real time, as arithmetic: what was heard by when, to the sample."""

from collections import deque
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from .wav import Pcm, to_pcm16

MICROSECONDS = 1_000_000


class Heard(NamedTuple):
    """Sound that left the speaker: `samples` at `rate` Hz, of one response, from `start_us` on."""

    response: str
    start_us: int
    samples: Pcm
    rate: int

    @property
    def end_us(self) -> int:
        """When its last sample had been played."""
        return self.start_us + len(self.samples) * MICROSECONDS // self.rate


class Position(Struct):
    """How much of one response was received and played, in samples, so that nothing is lost to rounding."""

    rate: int
    received: int = 0
    played: int = 0


class Speaker:
    """Plays what it is fed, one piece behind the other; with nothing left it waits. Times in microseconds.

    `pause` stops it between two samples, and `resume` lets it go on there; meanwhile it is fed all the same.
    Nothing is sounded: the times are those at which a real speaker would have played. One that is real takes the
    sound by `due`, from `hand_over` on; then only what was taken can have been heard. The caller's clock must not
    run backwards. `remember`: keep in `heard` what was played.
    """

    def __init__(self, *, remember: bool = True) -> None:
        """Start with an empty queue."""
        self.heard: list[Heard] = []
        self.cut: set[str] = set()
        self._remember = remember
        self._queue: deque[Heard] = deque()
        self._positions: dict[str, Position] = {}
        self._end_us = 0
        self._paused_us: int | None = None
        self._handed_us: int | None = None

    def feed(self, now_us: int, response: str, pcm: bytes, rate: int) -> None:
        """Queue little-endian samples of 16 bits. What comes for a response that was cut off is dropped."""
        self.advance(now_us)
        if response in self.cut or not pcm:
            return
        piece = Heard(response, max(self._until(now_us), self._end_us), np.frombuffer(pcm, "<i2"), rate)
        self._queue.append(piece)
        self._end_us = piece.end_us
        self._positions.setdefault(response, Position(rate)).received += len(piece.samples)

    def advance(self, now_us: int) -> None:
        """Let time pass: pieces that have ended count as heard."""
        while self._queue and self._queue[0].end_us <= self._until(now_us):
            self._finish(self._queue.popleft())

    def pause(self, now_us: int) -> None:
        """Hold the sound where it is."""
        self.advance(now_us)
        if self._paused_us is None:
            at = self._until(now_us)
            self._split(at)
            self._paused_us = at
            self._take_back(at)

    def resume(self, now_us: int) -> None:
        """Play on from the sample where it was held."""
        if self._paused_us is not None:
            waited, self._paused_us = now_us - self._paused_us, None
            self._delay(waited)
            self._take_back(now_us)

    def stop(self, now_us: int) -> dict[str, int]:
        """Fall silent; return for each response that was cut off how many milliseconds of it were heard."""
        self.advance(now_us)
        if self._paused_us is None:
            self._split(self._until(now_us))
        self._paused_us = None
        names = list(dict.fromkeys(piece.response for piece in self._queue))
        self.cut.update(names)
        self._queue.clear()
        self._end_us = now_us
        self._take_back(now_us)
        return {name: self.played_ms(name, now_us) for name in names}

    def hand_over(self, now_us: int) -> None:
        """From now on a device sounds what it takes by `due`."""
        self._handed_us = now_us

    def due(self, now_us: int, until_us: int) -> list[Heard]:
        """Take what is to be heard up to `until_us`. Who comes too late is waited for: the rest is heard later."""
        handed = self._handed_us
        if handed is None or self._paused_us is not None:
            return []
        if handed < now_us:
            self._delay(now_us - handed)
            handed = now_us
        taken = [part for piece in self._queue if len((part := _part(piece, handed, until_us)).samples)]
        self._handed_us = max(now_us, min(until_us, self._end_us))
        return taken

    def played_ms(self, response: str, now_us: int) -> int:
        """Return how many milliseconds of a response were heard by now, rounded down."""
        self.advance(now_us)
        position = self._positions.get(response)
        if position is None:
            return 0
        played = position.played
        if self._queue and self._queue[0].response == response:
            played += max(0, self._until(now_us) - self._queue[0].start_us) * position.rate // MICROSECONDS
        return played * 1000 // position.rate

    def received_ms(self, response: str) -> int:
        """Return how many milliseconds of a response arrived."""
        position = self._positions.get(response)
        return position.received * 1000 // position.rate if position is not None else 0

    def playing(self, now_us: int) -> str | None:
        """Return the response that is being heard; None in silence."""
        self.advance(now_us)
        return self._queue[0].response if self._queue else None

    def sounding(self, now_us: int) -> bool:
        """Whether something is heard just now."""
        return self.playing(now_us) is not None and self._paused_us is None

    def holds(self, response: str) -> bool:
        """Whether some of a response is still to be heard."""
        return any(piece.response == response for piece in self._queue)

    def _until(self, now_us: int) -> int:
        """Return up to when sound has been heard."""
        at = now_us if self._paused_us is None else self._paused_us
        return at if self._handed_us is None else min(at, self._handed_us)

    def _delay(self, us: int) -> None:
        self._queue = deque(piece._replace(start_us=piece.start_us + us) for piece in self._queue)
        self._end_us += us

    def _take_back(self, at_us: int) -> None:
        """The device has been silenced: nothing behind this moment was taken."""
        if self._handed_us is not None:
            self._handed_us = at_us

    def _split(self, at_us: int) -> None:
        """Count what was heard of the piece that plays; its rest begins at this moment."""
        if not self._queue or self._queue[0].start_us >= at_us:
            return
        playing = self._queue[0]
        played = (at_us - playing.start_us) * playing.rate // MICROSECONDS
        if played:
            self._finish(playing._replace(samples=playing.samples[:played]))
            self._queue[0] = playing._replace(start_us=at_us, samples=playing.samples[played:])

    def _finish(self, piece: Heard) -> None:
        if self._remember:
            self.heard.append(piece)
        self._positions[piece.response].played += len(piece.samples)


def _part(piece: Heard, from_us: int, until_us: int) -> Heard:
    """Return what of a piece lies between two moments."""
    if from_us >= piece.end_us:
        return piece._replace(samples=piece.samples[:0])
    first = max(0, (from_us - piece.start_us) * piece.rate // MICROSECONDS)
    last = (until_us - piece.start_us) * piece.rate // MICROSECONDS
    return piece._replace(
        samples=piece.samples[first : len(piece.samples) if until_us >= piece.end_us else max(0, last)]
    )


def track(heard: list[Heard], origin_us: int, rate: int, length: int = 0) -> Pcm:
    """Return one channel at `rate` Hz that begins at `origin_us` and has each piece where it was heard.

    It is at least `length` samples long. Pieces that follow each other within two samples are joined, so that
    rounding leaves no click.
    """
    placed: list[tuple[int, Pcm]] = []
    end = -1
    for run in _runs(heard):
        sound = to_pcm16(run.samples.reshape(-1, 1).astype(np.float32) / np.float32(32768), run.rate, rate)
        start = max((run.start_us - origin_us) * rate // MICROSECONDS, end, 0)
        placed.append((start, sound))
        end = start + len(sound)
    channel = np.zeros(max(end, length, 0), np.int16)
    for start, sound in placed:
        channel[start : start + len(sound)] = sound
    return channel


def _runs(heard: list[Heard]) -> list[Heard]:
    runs: list[list[Heard]] = []
    for piece in heard:
        last = runs[-1][-1] if runs else None
        joined = last is not None and last.rate == piece.rate and piece.response == last.response
        if last is not None and joined and piece.start_us - last.end_us <= 2 * MICROSECONDS // piece.rate:
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return [run[0]._replace(samples=np.concatenate([piece.samples for piece in run])) for run in runs]
