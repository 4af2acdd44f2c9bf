"""When answers of a story were heard, and how long the user waited for them."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from .timeline import Answer, Span, Story, Turn, Wait

PAUSE_S = 0.06
"""A speaker that waited less than this did not pause."""

LATE_S = 2.0
"""Sound may be so late, and what comes behind it tells when it was."""


def spans(answer: Answer) -> Iterator[Span]:
    """Yield what was heard when: by what the client said, else by the playout model, else as if played at once.

    An answer that was cut was heard up to there and no further, whatever was played.
    """
    if answer.points:
        yield from _up_to(answer.heard_ms, _stretches(answer.points))
    elif answer.modelled is not None:
        yield from answer.modelled
    elif answer.deltas:
        start = answer.deltas[0].at_s
        heard = answer.sent_ms if answer.heard_ms is None else answer.heard_ms
        yield Span(start, start + heard / 1000, 0, heard)


def _up_to(limit: int | None, stretches: Iterable[Span]) -> Iterator[Span]:
    for span in stretches:
        if limit is None or span.to_ms <= limit:
            yield span
        elif span.from_ms < limit:
            yield Span(span.start_s, span.end_s - (span.to_ms - limit) / 1000, span.from_ms, limit)


def _stretches(points: list[tuple[float, int]]) -> Iterator[Span]:
    """Yield stretches without a pause.

    What is played begins at `at - ms`, a moment that moves later with every pause of the speaker and never
    earlier. An acknowledgement that came late (over a new connection, say) would put it too late, so each one
    is corrected by those that follow it.
    """
    begin = float("inf")
    origins: list[float] = []
    for at, ms in reversed(points):
        begin = min(begin, at - ms / 1000)
        origins.append(begin)
    done, upto = 0, 0
    current = origins[-1]
    for (_, ms), origin in zip(points, reversed(origins), strict=True):
        if origin - current > PAUSE_S and upto > done:
            yield Span(current + done / 1000, current + upto / 1000, done, upto)
            done, current = upto, origin
        upto = max(upto, ms)
    if upto > done:
        yield Span(current + done / 1000, current + upto / 1000, done, upto)


def waits(story: Story) -> Iterator[Wait]:
    """Yield the wait behind each turn that was answered with sound."""
    for turn, answer in story.answered():
        if answer.first_s is not None:
            yield Wait(voice_end(story, turn), answer.first_s)


def voice_end(story: Story, turn: Turn) -> float:
    """Return when the voice of a turn ended: with the last frame that was more likely speech than not.

    Without scores, when the turn was committed.
    """
    committed = story.end_s if turn.committed_s is None else turn.committed_s
    first, last = (bisect_left(story.scores, (at,)) for at in (turn.start_s - LATE_S, committed + LATE_S))
    spoken = (at for at, score in story.scores[first:last] if turn.start_s <= at <= committed and score >= 0.5)
    return max(spoken, default=committed)
