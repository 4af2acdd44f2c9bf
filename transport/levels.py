"""How loud a session was, moment by moment: the waveforms of its page, small enough for hours of them."""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from antiphon.engine.pcm import decode
from antiphon.events.audio import AudioFormat, SampleRef

from .placing import Placed

Levels = NDArray[np.uint8]
"""One byte for each step: 0 nothing is there, 1 silence, or sound that is not kept any more, 255 full scale."""

Read = Callable[[SampleRef], bytes | None]
"""Returns the bytes of a span, None where there are none any more."""

STEP_MS = 20
MOST = 200_000
"""Steps of one voice; of a session that is longer than an hour they are longer."""

FRAME_MS = 32
"""What one probability of speech is about."""

PIECE = 1 << 20


def step_ms(seconds: float) -> int:
    """Return how long the steps of a session are, in milliseconds."""
    return STEP_MS * max(1, -(-int(seconds * 1000) // (STEP_MS * MOST)))


def levels_of(placed: Iterable[Placed], steps: int, step: int, read: Read) -> Levels:
    """Return how loud what was placed is, in `steps` steps of `step` ms. Loudness is felt: the square root."""
    levels = np.zeros(steps, np.uint8)
    for one in placed:
        at, form = one.start, one.format
        for ref in _pieces(one):
            count = ref.size // form.width
            size = max(1, form.rate * step // 1000)
            _raise(levels, at // size, _peaks(_samples(read(ref), form), at % size, size, count))
            at += count
    return levels


def scores_of(scores: Iterable[tuple[float, float]], steps: int, step: int) -> Levels:
    """Return the highest probability of speech (0 to 254, plus 1) in each step; 0: nobody scored it."""
    levels = np.zeros(steps, np.uint8)
    for at, score in scores:
        last = int(at * 1000) // step
        for place in range(max(0, last - FRAME_MS // step), min(last + 1, steps)):
            levels[place] = max(levels[place], 1 + round(score * 254))
    return levels


def _pieces(one: Placed) -> Iterable[SampleRef]:
    for ref in one.refs:
        for start in range(ref.start, ref.end, PIECE):
            yield SampleRef(ref.stream, start, min(PIECE, ref.end - start))


def _samples(data: bytes | None, form: AudioFormat) -> NDArray[np.int16] | None:
    if data is None:
        return None
    plain = AudioFormat("pcm16", form.rate) if form.encoding == "wav" else form
    return np.frombuffer(decode(data, plain), "<i2")


def _peaks(samples: NDArray[np.int16] | None, behind: int, size: int, count: int) -> Levels:
    """Return the loudest sample of each step; the first one has begun `behind` samples before."""
    steps = -(-(behind + count) // size)
    if samples is None:
        return np.ones(steps, np.uint8)
    whole = np.zeros(steps * size, np.float32)
    whole[behind : behind + len(samples)] = np.abs(samples.astype(np.float32))
    peaks = np.sqrt(whole.reshape(steps, size).max(axis=1) / 32768)
    return np.asarray(np.clip(np.rint(peaks * 255), 1, 255), np.uint8)


def _raise(levels: Levels, at: int, peaks: Levels) -> None:
    end = min(at + len(peaks), len(levels))
    if end > at:
        np.maximum(levels[at:end], peaks[: end - at], out=levels[at:end])
