"""What must hold of the work at stages, of bytes and of places, checked one transaction at a time (P).

Beside `watch.py`, which follows what clients see.
"""

from msgspec import Struct, field

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.audio import AudioFormat
from antiphon.events.config import Limits
from antiphon.events.log import Transaction
from antiphon.sessions import core
from antiphon.sessions.phases import LIVE
from antiphon.sessions.playback import in_progress

MADE_BY_REPORTS = (cmd.StageProduced, cmd.StageCalled)
"""Reports that may open a response: those that say something. All others may only let a turn go on that waited."""

REASONS: dict[str, tuple[str | None, ...]] = {
    "completed": ("stop",),
    "cancelled": ("client_cancelled", "turn_detected"),
    "incomplete": ("max_output_tokens", "content_filter"),
    "failed": (None,),
}
"""What a terminal may give as its reason (G21, WIRE 3.4)."""


def unit_bytes(session: core.Session) -> int:
    """Return the bytes of one unit of a resident model; 0: it takes whatever comes."""
    able = session.capabilities
    return able.input_format.bytes_for(able.chunk_period_ms or 0)


class WatchWork(Struct):
    """Follows one session's requests, bytes and items, and fails at the first step that breaks a rule."""

    submitted: set[str] = field(default_factory=set[str])
    fed: dict[str, int] = field(default_factory=dict[str, int])
    operations: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    """Units that were given to a stage, and the number that each had in its request."""
    formats: dict[int, AudioFormat] = field(default_factory=dict[int, AudioFormat])
    """In which format the stage was told to deliver what it says because of a unit."""
    fence: tuple[int, int] = (0, 0)
    committed: int = 0
    """Where the sound of the last turn ends in the `in` stream."""
    turns: list[str] = field(default_factory=list[str])
    """User items that came by a commit, in their order."""
    announced: dict[str, int] = field(default_factory=dict[str, int])
    """Of each response: how many turns had been committed when it was announced."""
    ended: set[str] = field(default_factory=set[str])
    silences: dict[str, tuple[int, int | None]] = field(default_factory=dict[str, tuple[int, int | None]])
    """Of each owner of units of silence: how many it got, and when it got the last."""
    sound_at: int = 0
    """When a model that listens last got sound that may become a unit."""

    def step(self, before: core.Session, session: core.Session, transaction: Transaction) -> None:
        """Check a transaction; `before` is the state before it, `session` the one behind it."""
        self._answers(before, transaction)
        self._names(before, session, transaction)
        self._effects(before, session, transaction)
        self._sound(transaction)
        self._opening(before, transaction)
        self._ends(transaction)
        self._interruption(before, transaction)
        self._bytes(before, session, transaction)
        self._units(before, session, transaction)
        self._places(before, session, transaction)
        self._expiry(before, transaction)

    # -- requests: P4, P9-P12, P14 ---------------------------------------------------------------------------

    def _answers(self, before: core.Session, transaction: Transaction) -> None:
        command = transaction.command
        if isinstance(command, cmd.StageReport):
            assert command.request in before.requests, "P4: an answer to nothing"
            known = before.requests[command.request]
            heard = (
                isinstance(command, cmd.StageReleased | cmd.StageAbortFailed | cmd.StageLost) or known.phase in LIVE
            )
            assert heard, "P4, K21: a request that is leaving was heard"

    def _names(self, before: core.Session, session: core.Session, transaction: Transaction) -> None:
        for event in transaction.events:
            if isinstance(event, ev.RequestSubmitted):
                name = ids.parse_request(event.request)
                resident = event.response_id is None
                assert name is not None, "P14: a name that nobody can read"
                assert (name.session, name.epoch) == (session.id, event.epoch), "P14"
                assert (name.turn is None and name.aside is None) == resident, "A11: who is resident names no turn"
                assert event.request not in before.requests, "A10: a name is used again"
                self.submitted.add(event.request)
            elif isinstance(event, ev.PreviewRequested):
                self._preview(before, session, event)
        working = {name: known for name, known in session.requests.items() if known.phase in LIVE}
        assert sum(known.resident for known in working.values()) <= 1, "P12: two memories"
        for name, known in working.items():
            owner = known.response_id
            assert owner is None or session.open_response(owner) is not None, f"P12: {name} works for nobody"
            if known.utterance is not None:
                taken = session.input
                matters = taken.phase == "speaking" or (taken.phase == "stopped" and session.suspicion is not None)
                assert matters, f"P12: {name} is for nobody"
                assert taken.item_id == known.utterance, f"P12: {name} is for nobody"
                assert taken.ahead is not None, "P12"
                assert taken.ahead.request == name, "P12: two questions about one utterance"
        gone = {name for name in before.requests if name not in session.requests}
        kinds = (ev.RequestReleased, ev.EngineRestarted)
        assert not gone or any(isinstance(event, kinds) for event in transaction.events), "A18: forgotten unasked"

    def _preview(self, before: core.Session, session: core.Session, event: ev.PreviewRequested) -> None:
        """A question about an open utterance has a name of its own, and asks for sound that is there."""
        name = ids.parse_request(event.request)
        assert name is not None, "P14: a name that nobody can read"
        assert name.preview is not None, "P14: it is no turn"
        assert (name.session, name.epoch) == (session.id, event.epoch), "P14"
        assert event.request not in self.submitted, "A10: a name is used again"
        self.submitted.add(event.request)
        assert session.capabilities.transcribes_ahead, "DESIGN 5.8"
        assert event.ref.size > 0
        assert before.input.start <= event.ref.start < event.ref.end == session.input.position, "P29"

    def _effects(self, before: core.Session, session: core.Session, transaction: Transaction) -> None:
        ending = before.phase in ("closing", "closed")
        for event in transaction.events:
            ending = ending or isinstance(event, ev.SessionClosing)
            assert not (ending and isinstance(event, ev.RequestSubmitted | ev.PreviewRequested)), "P55"
            if isinstance(event, ev.UnitsGivenUp | ev.UnitsReturned) and event.operation in self.operations:
                request, seq = self.operations[event.operation]
                self.fed[request] = seq - 1  # its number is given again (E25)
            for effect in core.react(session, event):
                self._effect(effect)
        if any(isinstance(event, ev.AudioReceived) for event in transaction.events):
            fence = (session.epoch, session.turn.turn)
            assert fence >= self.fence, "P9: the fence went back"
            self.fence = fence

    def _effect(self, effect: fx.AnyEffect) -> None:
        match effect:
            case fx.FeedStage(request=request, operation=operation, seq=seq):
                assert seq == self.fed.get(request, 0) + 1, "P10: a number is missing"
                self.fed[request], self.operations[operation] = seq, (request, seq)
                self.formats[operation] = effect.format
            case fx.AbortRequests(requests=requests) | fx.ReleaseRequests(requests=requests):
                assert all(name in self.submitted for name in requests), "A15: whole names only"
            case fx.SubmitToStage(request=request):
                assert request in self.submitted, "P4: an effect that no event names"
            case _:
                pass

    def _sound(self, transaction: Transaction) -> None:
        command = transaction.command
        made = self.formats.get(command.operation or 0) if isinstance(command, cmd.StageProduced) else None
        for event in transaction.events:
            if made is not None and isinstance(event, ev.AudioDelta):
                assert event.format == made, "P23, L9: labelled as what it is not"

    # -- what opens, ends and interrupts: G20, G21, P8, P21-P24 ----------------------------------------------

    def _opening(self, before: core.Session, transaction: Transaction) -> None:
        command = transaction.command
        waited = any(isinstance(event, ev.HoldEnded) for event in transaction.events)
        for event in transaction.events:
            if not isinstance(event, ev.ResponseCreated):
                continue
            self.announced[event.head.id] = len(self.turns) + self._commits(transaction, event)
            if isinstance(command, cmd.StageReport) and not isinstance(command, MADE_BY_REPORTS):
                due = before.turn.deferred or before.turn.early or before.suspicion  # its words have come
                assert due or waited, "P24: a mere report opened a response"
            if isinstance(command, cmd.StageProduced):
                assert command.text or command.size or waited, "P24: nothing was said"
            if event.options == cmd.ResponseOptions() and not waited:
                head, config = event.head, before.config
                asked = (config.instructions, config.voice, config.speed, config.tools)
                assert (head.instructions, head.voice, head.speed, head.tools) == asked, "P23"
                known = [config.output_format]
                if isinstance(command, MADE_BY_REPORTS):  # it answers a unit, maybe one from before an update
                    known += self.formats.values()
                assert head.output_format in known, "P23"

    def _ends(self, transaction: Transaction) -> None:
        told = [event.code for event in transaction.events if isinstance(event, ev.ErrorReported)]
        for event in transaction.events:
            if isinstance(event, ev.ResponseEnded):
                assert event.head.id in self.announced, "G20"
                assert event.head.id not in self.ended, "G20: a second end"
                self.ended.add(event.head.id)
                assert event.reason in REASONS[event.status], f"G21: {event.status} {event.reason}"
                assert (event.failure is not None) == (event.status == "failed"), "G21"
                code = None if event.failure is None else event.failure.code
                assert code in (None, "append_cancelled", *told), "P21, G23: an error of another name"
                if event.status == "completed" and event.item is not None:
                    assert event.item.status == "completed", "WIRE 3.4: the item says something else"

    def _commits(self, transaction: Transaction, before: ev.AnyEvent) -> int:
        events = transaction.events[: transaction.events.index(before)]
        return sum(isinstance(event, ev.InputCommitted) and not event.empty for event in events)

    def _interruption(self, before: core.Session, transaction: Transaction) -> None:
        """Each interruption has something to interrupt, also the second one of an append with two utterances."""
        found = [event for event in transaction.events if isinstance(event, ev.Interrupted)]
        waited = sum(isinstance(event, ev.HoldEnded) for event in transaction.events)
        heard = sum(isinstance(event, ev.AudioReceived) for event in transaction.events)
        # What waited is decided beside the command that let it go.
        assert len(found) <= max(waited + heard, waited + 1), "P8: more interruptions than decisions"
        if not found:
            return
        busy, now = _busy(before, transaction.at), core.load(core.dump(before))
        for event in transaction.events:
            if isinstance(event, ev.Interrupted):
                assert busy or _busy(now, transaction.at), f"P8: {event.cause} interrupted nothing"
                busy = False
            core.evolve(now, event, transaction.at)

    # -- input: P28, P29, P34 --------------------------------------------------------------------------------

    def _bytes(self, before: core.Session, session: core.Session, transaction: Transaction) -> None:
        position, behind = before.input.position, [*transaction.events[1:], None]
        for event, after in zip(transaction.events, behind, strict=True):
            match event:
                case ev.AudioReceived(ref=ref):
                    assert (ref.stream, ref.start) == ("in", position), "P29: bytes twice, or a hole"
                    position = ref.end
                case ev.InputCommitted():
                    written = isinstance(after, ev.ItemCreated) and after.item.id == event.item_id
                    assert written == (not event.empty), "P34: an item without its sound"
                    assert not event.empty or not event.is_speech or event.overlap_ack, "P34: nobody says why"
                    if event.ref is not None:
                        assert self.committed <= event.ref.start < event.ref.end <= position, "P29: twice"
                        self.committed = event.ref.end
                case ev.AnswerDeferred() if isinstance(transaction.command, cmd.CommitInput):
                    assert before.turn.deferred < before.limits.pending_commits, "P28: too many turns wait"
                case _:
                    pass
        assert session.input.position == position, "P29"

    # -- units of a resident model: P25, P26, P30, P31 ----------------------------------------------------------

    def _units(self, before: core.Session, session: core.Session, transaction: Transaction) -> None:
        self._primed(before, transaction)
        for event in transaction.events:
            if isinstance(event, ev.UnitTaken):
                assert not event.pad or event.final or event.kind == "silence", "P31: padding in the middle"
                if event.kind == "silence" and event.response_id is None:
                    self._silence(before, event, transaction)
            elif isinstance(event, ev.AudioReceived) and event.queued:
                self.sound_at = transaction.at
            elif isinstance(event, ev.UnitsGivenUp) and any(
                unit.taken.kind == "silence" and unit.taken.operation >= event.operation
                for unit in before.input.stream.in_flight
            ):
                # The model has not had it: the next one is paced by what was accepted (G28).
                self.silences = {owner: (count, None) for owner, (count, _) in self.silences.items()}
        stream, unit = session.input.stream, unit_bytes(session)
        if session.auto and unit and not stream.in_flight and not stream.held and self._took(transaction):
            waiting = sum(span.end - span.start for span in stream.queue)
            assert waiting < unit, "P30: a whole unit waits, and nothing is on its way"

    def _took(self, transaction: Transaction) -> bool:
        """Whether a unit could have been taken: something came, and is not deferred (F15)."""
        deferred = any(isinstance(event, ev.OverlapDecided) and event.defer for event in transaction.events)
        return any(isinstance(event, ev.AudioReceived) for event in transaction.events) and not deferred

    def _primed(self, before: core.Session, transaction: Transaction) -> None:
        """What lets a seeded text start is exactly what the model needs, for an announced answer (G7)."""
        silence = [unit for unit in transaction.events if isinstance(unit, ev.UnitTaken) and _primes(unit)]
        if silence:
            assert before.turn.seeded, "G7: there is nothing to start"
            assert before.response is None
            assert len({unit.response_id for unit in silence}) == 1
            assert [unit.final for unit in silence] == [False] * (len(silence) - 1) + [True], "G7"

    def _silence(self, before: core.Session, event: ev.UnitTaken, transaction: Transaction) -> None:
        stream, at = before.input.stream, transaction.at
        going, known = stream.continuation, before.requests.get(event.request)
        begins = any(isinstance(other, ev.RequestSubmitted) for other in transaction.events)
        assert begins == (known is None), "P26: for nobody"
        assert known is None or known.phase in LIVE, "P26: for a request that has ended"
        unit = unit_bytes(before) or 0
        filling = before.auto and 0 < stream.waiting < unit and not stream.in_flight
        sound = before.capabilities.input_format
        assert not filling or at - self.sound_at >= sound.ms(event.pad) * 1000, "P26: sound waits"
        assert going is not None, "P26: nothing was planned"
        assert going.request == event.request, "P26: planned for another request"
        count, last = self.silences.get(going.owner, (0, None))
        assert count < (64 if before.auto else 8), "P25: too many"
        half_us = (before.capabilities.chunk_period_ms or 0) * 500
        on_time = going.due is not None and at - going.due <= half_us
        assert last is None or not on_time or at - last >= half_us, "P25: a burst"
        self.silences[going.owner] = (count + 1, at if on_time else None)

    # -- the conversation: P41, P42 --------------------------------------------------------------------------

    def _places(self, before: core.Session, session: core.Session, transaction: Transaction) -> None:
        gone = {event.item_id for event in transaction.events if isinstance(event, ev.ItemDeleted)}
        new = session.conversation.order
        old = [name for name in before.conversation.order if name not in gone]  # the id may be another's since
        known, kept = set(old), set(new)
        assert [name for name in old if name in kept] == [name for name in new if name in known], "P41"
        if gone:
            _deletions(before, session, transaction)
        for event in transaction.events:
            match event:
                case ev.InputCommitted(empty=False):
                    self.turns.append(event.item_id)
                case ev.OutputStarted(response_id=key, item=item) if item.id in new:
                    later = self.turns[self.announced[key] :]
                    behind = new.index(item.id)
                    assert all(new.index(name) > behind for name in later if name in new), "P41: it moved behind"
                case _:
                    pass

    # -- time: P48 -------------------------------------------------------------------------------------------

    def _expiry(self, before: core.Session, transaction: Transaction) -> None:
        for event in transaction.events:
            if isinstance(event, ev.SessionClosing):
                limits: Limits = before.limits
                silent_us = transaction.at - before.lease.last_activity
                if event.reason == "idle_ttl_expired":
                    assert silent_us >= limits.idle_ttl_ms * 1000, "P48: it was active"
                if event.reason == "disconnect_grace_expired":
                    assert not before.lease.attached, "P48: it was attached"


def _deletions(before: core.Session, after: core.Session, transaction: Transaction) -> None:
    """A deletion takes out one item, and leaves every other one as it is (P42)."""
    now = core.load(core.dump(before))
    for event in transaction.events:
        kept = dict(now.conversation.entries)
        core.evolve(now, event, transaction.at)
        if isinstance(event, ev.ItemDeleted):
            assert kept.pop(event.item_id, None) is not None, "P42"
            assert kept == now.conversation.entries, "P42"
    assert now.conversation == after.conversation, "P42"


def _busy(session: core.Session, now: int) -> bool:
    going = session.input.stream.continuation
    working = any(known.phase in LIVE and known.utterance is None for known in session.requests.values())
    working = working or (going is not None and going.due is not None)
    return working or session.input.reserved > session.input.retained or in_progress(session, now)


def _primes(unit: ev.UnitTaken) -> bool:
    return unit.kind == "silence" and unit.response_id is not None
