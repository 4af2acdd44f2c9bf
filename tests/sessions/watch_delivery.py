"""What must hold of speech that may interrupt, and of delivery that is held meanwhile (DESIGN 5.13)."""

from msgspec import Struct, field

from antiphon.events import events as ev
from antiphon.events.audio import SampleRef
from antiphon.events.log import Transaction
from antiphon.sessions import core
from antiphon.sessions.playback import in_progress
from antiphon.sessions.view import next_deadline

CONFIRMS = ("long_overlap_speech", "overlap_words")
"""Rules by which a suspected interruption is one."""
SPOKEN = (ev.OutputStarted, ev.AudioDelta, ev.TextDelta, ev.OutputEnded, ev.CallStarted, ev.CallDelta, ev.CallEnded)


class Delivery(Struct):
    """Follows every piece from when it was held to when it is shown."""

    holds: bool = False
    suspected: bool = False
    out: int = 0
    places: list[SampleRef] = field(default_factory=list[SampleRef])

    def step(self, session: core.Session, transaction: Transaction) -> None:
        """Check a transaction that `session` has just folded."""
        asides = {key for key, response in session.others.items() if response.aside} | set(session.asides)
        restarts = any(isinstance(event, ev.EngineRestarted) for event in transaction.events)
        for event in transaction.events:
            match event:
                case ev.InterruptionSuspected():
                    assert not self.suspected, "5.13: suspected twice"
                    self.holds = self.suspected = True
                    self.places.clear()
                case ev.OutputHeld(ref=ref):
                    assert self.holds, "5.13: held while delivery goes on"
                    if ref is not None:
                        assert ref.start == self.out, "5.13: what is held has no place of its own"
                        self.out = ref.end
                        self.places.append(ref)
                case ev.OverlapDecided(reason=reason) if reason in CONFIRMS:
                    assert self.suspected, "5.13: nothing was suspected"
                case ev.Interrupted(renews=True):
                    pass
                case ev.InterruptionDismissed(count=0) | ev.InterruptionDoubted():
                    assert self.suspected
                    assert self.holds == isinstance(event, ev.InterruptionDoubted), "5.13: told without need"
                    self.holds, self.suspected = False, isinstance(event, ev.InterruptionDoubted)
                case ev.InterruptionDismissed():
                    assert self.holds, "5.13: told that it goes on, and it did"
                    self.holds = self.suspected = False
                case ev.Interrupted() | ev.SessionClosing():
                    self.holds = self.suspected = False
                case ev.InputDiscarded() | ev.InputCommitted() | ev.InputCleared() | ev.InputDropped():
                    self.suspected = self.holds
                case ev.AudioDelta(ref=ref):
                    self._shown(ref)
                case ev.ResponseEnded(head=head, status="completed"):
                    assert not self.holds or head.conversation_id is None, "5.13: it ended while it was held"
                case _:
                    pass
            if isinstance(event, SPOKEN) and self.holds:
                assert event.response_id in asides or restarts, f"5.13: {type(event).__name__} while it is held"
        self._state(session, transaction)

    def _shown(self, ref: SampleRef) -> None:
        if ref in self.places:
            del self.places[: self.places.index(ref) + 1]  # pieces before it had no part to be shown in
            return
        assert ref.start == self.out, "P29: sound lies where it does not belong"
        self.out = ref.end

    def _state(self, session: core.Session, transaction: Transaction) -> None:
        known = session.suspicion
        self.suspected = known is not None
        assert (known is not None and known.phase == "held") == self.holds
        if not self.holds:
            self.places.clear()
            assert all(playout.paused is None for playout in session.playouts.values()), "5.13: it stands for ever"
        if known is None or transaction.at > session.now:
            return
        assert session.phase == "open"
        assert session.dialect == "duplex"
        assert session.input.phase != "silent", "5.13: nobody speaks"
        if self.holds:
            assert in_progress(session, session.now), "5.13: nothing can be interrupted"
            due = next_deadline(session)
            assert known.due is not None
            assert due is not None
            assert due <= known.due, "5.13: it may stay open"
            assert len(known.held) >= len(self.places)
        else:
            assert not known.held
