"""Speech as a response wants it: resampled across clauses, encoded, with marks on the response's own clock."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from antiphon.events.audio import AudioFormat, TextMark
from antiphon.stages.converter import Converter
from antiphon.stages.piper import Mark


class Delivery:
    """Turns the pieces of one response's speech into bytes of its frozen format.

    `source_rate` is the voice's rate in Hz. The resampler lives as long as the response, so that clause borders
    do not click. Raises `ValueError` for a format that cannot be spoken in.
    """

    def __init__(self, source_rate: int, target: AudioFormat) -> None:
        if target.encoding not in ("pcm16", "g711_ulaw", "g711_alaw"):
            raise ValueError(f"speech cannot be delivered as {target.encoding}")
        self._source_rate = source_rate
        self._converter = Converter(source_rate, target)
        self._taken = 0
        self._chars = 0

    def begin(self, text: str, marks: Sequence[Mark]) -> tuple[TextMark, ...]:
        """Open a clause: return its marks, which may lie ahead of the sound, on the response's clock."""
        start = self._ms(self._taken)
        ends = (TextMark(self._chars + mark.text_end, self._ms(self._taken + mark.sample_end)) for mark in marks)
        found = (TextMark(self._chars, start), *ends)
        self._chars += len(text)
        return found

    def push(self, samples: NDArray[np.int16]) -> bytes:
        """Encode a piece (int16 mono at the source rate); the resampler may hold a few milliseconds back."""
        self._taken += len(samples)
        return self._converter.feed(samples.astype("<i2", copy=False).tobytes())

    def flush(self) -> bytes:
        """Return what the resampler still holds; the response's speech is complete."""
        return self._converter.feed(b"", last=True)

    def _ms(self, samples: int) -> int:
        return samples * 1000 // self._source_rate
