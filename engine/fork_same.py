"""Whether a stage is asked the same in a fork as in its origin: by sound and words, not by names and numbers."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.audio import SampleRef

from .likeness import Fields, rebuilt
from .runner import samples_of

_NUMBERS = frozenset(
    {
        *("id", "session", "request", "response_id", "call_id", "item_id"),
        *("seed", "operation", "seq", "turn_seq", "model_turn", "generation", "tokens"),
    }
)
"""Fields that only count or name: another number of a turn makes no other question."""


class _Stretch(Struct):
    """Bytes `start` to `end` of a stream of the fork, which are those from `origin` on, or (None) are new."""

    start: int
    end: int
    origin: int | None

    def goes_on(self, origin: int | None) -> bool:
        """Whether what follows it in the fork, and begins at `origin` there, follows it there too."""
        if self.origin is None or origin is None:
            return self.origin is origin
        return self.origin + self.end - self.start == origin


class Piece(Struct, frozen=True):
    """Bytes of the fork, and where the same ones lie in the origin; None: they are new."""

    ref: SampleRef
    origin: SampleRef | None


class Sounds:
    """Which bytes of the fork's streams are which of the origin's."""

    def __init__(self) -> None:
        self._streams: dict[str, list[_Stretch]] = {}

    def note(self, fork: Iterable[ev.AnyEvent], origin: Iterable[ev.AnyEvent] | None) -> None:
        """Note where the bytes of a command lie in the fork; the same command's lay there in the origin."""
        ours = [ref for event in fork for ref in _places(event)]
        theirs = [ref for event in origin or () for ref in _places(event)]
        if not ours:
            return
        same = [(ref.stream, ref.size) for ref in ours] == [(ref.stream, ref.size) for ref in theirs]
        for index, ref in enumerate(ours):
            self._add(ref, theirs[index].start if same else None)

    def _add(self, ref: SampleRef, origin: int | None) -> None:
        known = self._streams.setdefault(ref.stream, [])
        last = known[-1] if known else None
        if last is not None and ref.start < last.end:
            return  # what was held back is named again when it is shown
        if last is not None and last.end == ref.start and last.goes_on(origin):
            last.end = ref.end
            return
        known.append(_Stretch(ref.start, ref.end, origin))

    def origin(self, ref: SampleRef) -> list[SampleRef] | None:
        """Return what the origin calls the bytes of a place in the fork; None: some of them are new."""
        found = [piece.origin for piece in self.pieces(ref)]
        known = [place for place in found if place is not None]
        return known if len(known) == len(found) else None

    def pieces(self, ref: SampleRef) -> Iterator[Piece]:
        """Yield the pieces of a place in the fork, each with its place in the origin."""
        known = self._streams.get(ref.stream, [])
        at = ref.start
        index = max(bisect_right(known, at, key=lambda stretch: stretch.start) - 1, 0)
        while at < ref.end:
            stretch = known[index] if index < len(known) else None
            if stretch is None or not stretch.start <= at < stretch.end:
                yield Piece(SampleRef(ref.stream, at, ref.end - at), None)
                return
            here = SampleRef(ref.stream, at, min(stretch.end, ref.end) - at)
            start = None if stretch.origin is None else stretch.origin + at - stretch.start
            yield Piece(here, None if start is None else SampleRef(ref.stream, start, here.size))
            at, index = here.end, index + 1


def _places(event: ev.AnyEvent) -> list[SampleRef]:
    """Return the places of the bytes that an event speaks of, a recording of a voice included."""
    match event:
        case ev.SessionOpened(view=shown) | ev.ConfigUpdated(view=shown):
            recording = shown.config.ref_audio
            return [] if recording is None else [recording.ref]
        case _:
            return list(samples_of(event))


def question(effect: fx.SubmitToStage | fx.FeedStage, sounds: Sounds | None = None) -> bytes:
    """Return what a stage is asked, without names and numbers; with `sounds`, as the origin's bytes."""

    def place(fields: Fields) -> object:
        if fields.keys() != {"stream", "start", "size"}:
            return None
        ref = msgspec.convert(fields, SampleRef)
        pieces = [ref] if sounds is None else sounds.origin(ref)
        return [] if pieces is None else [(piece.stream, piece.start, piece.size) for piece in pieces]

    return msgspec.json.encode(rebuilt(msgspec.to_builtins(effect), str, without=_NUMBERS, record=place))
