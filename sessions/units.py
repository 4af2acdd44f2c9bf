"""How the input of a resident model is cut into units: the first one that is complete, off the front (E16-E22)."""

from msgspec import Struct

from antiphon.events.audio import SampleRef

from .state import Session, Span


class Cut(Struct, frozen=True):
    """One unit: its sound, the silence that fills it up, and its flags (E21)."""

    refs: tuple[SampleRef, ...]
    pad: int
    speech: bool
    force_listen: bool
    final: bool


def unit_bytes(session: Session) -> int | None:
    """Return the bytes of a unit; None: the model has no period, and takes every piece as it comes."""
    model = session.capabilities
    return None if model.chunk_period_ms is None else model.input_format.bytes_for(model.chunk_period_ms)


def cut(queue: list[Span], size: int | None) -> Cut | None:
    """Take the next unit of `size` bytes off the queue, in place; None: it is not complete.

    The sound of a commit ends with a `final` span: what is left of it is padded (E16), and on a boundary there is
    nothing left (E32). Without a size, a unit is what was committed, else one piece.
    """
    if not queue:
        return None
    taken = _whole(queue) if size is None else _spans(queue, size)
    if taken is None:
        return None
    pad = 0 if size is None else size - sum(span.end - span.start for span in taken)
    return Cut(
        refs=tuple(SampleRef("in", span.start, span.end - span.start) for span in taken),
        pad=pad,
        speech=any(span.speech for span in taken),
        force_listen=any(span.force_listen for span in taken),
        final=taken[-1].final,
    )


def _whole(queue: list[Span]) -> list[Span]:
    last = next((index for index, span in enumerate(queue) if span.final), 0)
    taken = queue[: last + 1]
    del queue[: last + 1]
    return taken


def _spans(queue: list[Span], size: int) -> list[Span] | None:
    total = 0
    for index, span in enumerate(queue):
        total += span.end - span.start
        if total > size:
            middle = span.end - (total - size)
            front = Span(span.start, middle, span.speech, span.force_listen)
            taken = [*queue[:index], front]
            queue[: index + 1] = [Span(middle, span.end, span.speech, span.force_listen, span.final)]
            return taken
        if total == size or span.final:
            taken = queue[: index + 1]
            del queue[: index + 1]
            return taken
    return None


def ended(queue: list[Span]) -> list[Span]:
    """Return the queue with its end marked as that of a commit."""
    last = queue[-1]
    return [*queue[:-1], Span(last.start, last.end, last.speech, last.force_listen, True)]
