"""Which turns and answers of a fork are which of its origin: by the sound they are made of, by what they answer."""

from collections.abc import Sequence

from antiphon.events import events as ev
from antiphon.events.audio import SampleRef
from antiphon.sessions.core import Session

from .fork_names import Counted, Names, counted, given
from .fork_origin import Origin
from .fork_same import Sounds

_APART_MS = 1000
"""A turn that begins so much earlier than another may still be the same: it keeps what was said just before."""


class Pairing:
    """Pairs the names that a fork gives with those of its origin, as they are given."""

    def __init__(self, origin: Origin, names: Names, sounds: Sounds) -> None:
        self._origin = origin
        self._names = names
        self._sounds = sounds
        self._item = ""
        self._answers: dict[str, int] = {}

    def note(self, session: Session, before: Counted, events: Sequence[ev.AnyEvent], seq: int | None) -> None:
        """Note what a command decided; `seq` is its transaction in the origin, `before` what was given before."""
        for event in events:
            self._note_event(session, event)
        after = counted(session)
        if seq is not None and after != before:
            theirs = given(self._origin.session, self._origin.met[seq - 1].given, self._origin.met[seq].given)
            self._names.pair_given(theirs, given(self._names.fork, before, after))

    def _note_event(self, session: Session, event: ev.AnyEvent) -> None:
        match event:
            case ev.SpeechStarted():
                self._note_turn(session, event.item_id, event.start)
            case ev.InputCommitted() if not event.empty:
                self._item = event.item_id
                if event.ref is not None:
                    self._note_turn(session, event.item_id, event.ref.start)
            case ev.ItemCreated(item=item):
                self._item = item.id
            case ev.ResponseCreated(head=head):
                self._note_answer(head.id)
            case _:
                pass

    def _note_turn(self, session: Session, item_id: str, start: int) -> None:
        """Pair a turn with the one of the origin whose sound is around its beginning."""
        if self._names.back(item_id) is not None:
            return
        format_ = session.capabilities.input_format
        places = self._sounds.origin(SampleRef("in", start, format_.width))
        if places is None:
            return
        at, slack = places[0].start, format_.bytes_for(_APART_MS)
        near = [
            known
            for known in self._origin.utterances
            if known.start - slack <= at < max(known.end, known.start + 1) and not self._names.paired(known.item_id)
        ]
        if near:
            self._names.pair(min(near, key=lambda known: abs(known.start - at)).item_id, item_id)

    def _note_answer(self, response_id: str) -> None:
        """Pair an answer with the one of the origin that answered the same, the first with the first."""
        number = self._answers.get(self._item, 0)
        self._answers[self._item] = number + 1
        known = self._origin.answers.get(self._names.back(self._item) or self._item, [])
        if number < len(known):
            self._names.pair(known[number], response_id)
