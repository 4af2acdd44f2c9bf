"""Where the sound of a session lies on its clock, to the sample: what the user said, what was heard and made."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

import msgspec
from msgspec import Struct

from antiphon.events.audio import AudioFormat, SampleRef

from .timeline import Answer, Delta, Piece, Story
from .timeline_spans import LATE_S, PAUSE_S, spans


class Placed(Struct, frozen=True):
    """Sound without a gap: the spans `refs`, one behind the other, from sample `start` of the clock at its rate."""

    start: int
    refs: tuple[SampleRef, ...]
    format: AudioFormat

    @property
    def samples(self) -> int:
        """How many it has."""
        return sum(ref.size for ref in self.refs) // self.format.width

    @property
    def end_s(self) -> float:
        """When its last sample has been played."""
        return (self.start + self.samples) / self.format.rate


class Track:
    """One voice: pieces that follow each other, joined where there is no gap between them."""

    def __init__(self) -> None:
        self.placed: list[Placed] = []
        self._refs: list[SampleRef] = []
        self._start: int = 0
        self._end: int = 0
        self._format: AudioFormat = AudioFormat("pcm16", 16_000)

    def busy_until(self, rate: int) -> int:
        """Return the first free sample of the clock at this rate."""
        return -(-self._end * rate // self._format.rate)

    def add(self, start: int, ref: SampleRef, form: AudioFormat) -> None:
        """Put a piece at sample `start`, which nothing before it reaches."""
        if not self._refs or form != self._format or start != self._end:
            self.finish()
            self._start, self._format = start, form
        self._end = start + ref.size // form.width
        if self._refs and self._refs[-1].end == ref.start:
            ref = SampleRef(ref.stream, self._refs[-1].start, self._refs.pop().size + ref.size)
        self._refs.append(ref)

    def finish(self) -> list[Placed]:
        """Return all that was placed."""
        if self._refs:
            self.placed.append(Placed(self._start, tuple(self._refs), self._format))
            self._refs = []
        return self.placed


def of_user(story: Story) -> list[Placed]:
    """Return where the user's sound lies: it ended when it arrived, and is whole across what came a little late."""
    track, form, shift = Track(), story.input_format, float("-inf")
    for piece, (before, origin) in zip(story.pieces, _origins(story.pieces, form), strict=True):
        if origin > shift + PAUSE_S:
            shift = origin
        ideal = round(shift * form.rate) + before
        track.add(max(ideal, track.busy_until(form.rate), 0), piece.ref, form)
    return track.finish()


def _origins(pieces: Sequence[Piece], form: AudioFormat) -> Iterator[tuple[int, float]]:
    """Yield for each piece the samples before it, and when the stream began if nothing later came early."""
    total, ends = 0, list[float]()
    for piece in pieces:
        total += piece.ref.size // form.width
        ends.append(piece.end_s - total / form.rate)
    least: deque[int] = deque()
    ahead = before = 0
    for index, piece in enumerate(pieces):
        while ahead < len(pieces) and pieces[ahead].end_s <= piece.end_s + LATE_S:
            while least and ends[least[-1]] >= ends[ahead]:
                least.pop()
            least.append(ahead)
            ahead += 1
        while least[0] < index:
            least.popleft()
        yield before, ends[least[0]]
        before += piece.ref.size // form.width


def of_heard(answers: Iterable[Answer]) -> list[Placed]:
    """Return where what was heard of answers lies, cut where it was cut; no piece before it was sent."""
    track = Track()
    for answer in sorted(answers, key=lambda answer: answer.first_s or 0.0):
        for span in spans(answer):
            until = None if span.until_s is None else round(span.until_s * answer.format.rate)
            ideal = round(span.start_s * answer.format.rate)
            first, last = (round(ms * answer.format.rate / 1000) for ms in (span.from_ms, span.to_ms))
            _play(track, answer, (ideal, first, last), until)
    return track.finish()


def _play(track: Track, answer: Answer, stretch: tuple[int, int, int], until: int | None) -> None:
    """Place samples `first` to `last` of an answer from `start` on; a late piece moves those behind it."""
    start, first, last = stretch
    form = answer.format
    for begin, delta in _cumulated(answer):
        size = delta.ref.size // form.width
        a, b = max(first, begin), min(last, begin + size)
        if a >= b:
            continue
        at = max(start + a - first, track.busy_until(form.rate))
        late = round(delta.at_s * form.rate) - at
        if late > PAUSE_S * form.rate:
            start, at = start + late, at + late
        b = b if until is None else min(b, a + until - at)
        if b > a:
            ref = SampleRef(delta.ref.stream, delta.ref.start + (a - begin) * form.width, (b - a) * form.width)
            track.add(at, ref, form)


def _cumulated(answer: Answer) -> Iterator[tuple[int, Delta]]:
    total = 0
    for delta in answer.deltas:
        yield total, delta
        total += delta.ref.size // answer.format.width


def of_unheard(story: Story) -> list[Placed]:
    """Return where what was made and never heard would have been, as far as the next answer leaves room."""
    track = Track()
    spoken = [answer for answer in story.answers if answer.deltas]
    for answer, following in zip_longest(spoken, spoken[1:]):
        form, played = answer.format, list(spans(answer))
        first = round(answer.played_ms * form.rate / 1000)
        start = played[-1].end_s if played else answer.deltas[0].at_s
        room = None if following is None else round(following.deltas[0].at_s * form.rate)
        moved = msgspec.structs.replace(answer, deltas=[_at_once(delta) for delta in answer.deltas])
        _play(track, moved, (round(start * form.rate), first, sum(d.ref.size for d in answer.deltas)), room)
    return track.finish()


def _at_once(delta: Delta) -> Delta:
    return msgspec.structs.replace(delta, at_s=0.0)


def of_generated(answers: Iterable[Answer]) -> list[Placed]:
    """Return where all that was made of answers lies: each begins when it was made, or behind the one before it."""
    track = Track()
    for answer in sorted(answers, key=lambda answer: answer.first_s or 0.0):
        form = answer.format
        for delta in answer.deltas:
            at = track.busy_until(form.rate)
            made = round(delta.at_s * form.rate)
            track.add(made if made > at + PAUSE_S * form.rate else at, delta.ref, form)
    return track.finish()
