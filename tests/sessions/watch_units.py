"""What must hold of a resident model's input at every step (BEHAVIOURS E16-E22, P9, P10, P27-P31)."""

from msgspec import Struct, field

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.ids import parse_request
from antiphon.events.items import json_size
from antiphon.events.log import Transaction
from antiphon.sessions import core
from antiphon.sessions.units import unit_bytes


class Units(Struct):
    """Follows every byte from its arrival to the stage."""

    operation: int = 0
    flying: dict[int, ev.UnitTaken] = field(default_factory=dict[int, ev.UnitTaken])
    accepted_end: int = 0
    shown_end: int = 0
    counts: dict[str, int] = field(default_factory=dict[str, int])
    turn_counts: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    fence: tuple[int, int] = (0, 0)
    silences: list[int] = field(default_factory=list[int])
    """When the last units of silence in a row were handed over."""
    woken: bool = False

    def step(self, session: core.Session, transaction: Transaction) -> None:
        """Check a transaction that `session` has just folded."""
        for event in transaction.events:
            match event:
                case ev.UnitTaken():
                    self._taken(session, event)
                    self._pace(session, event, transaction.at)
                case ev.ContinuationPlanned(due=due):
                    self.woken = due == transaction.at
                case ev.UnitsAccepted(operation=operation):
                    for number in [number for number in self.flying if number <= operation]:
                        self._accepted(self.flying.pop(number))
                case ev.UnitsGivenUp(operation=operation) | ev.UnitsReturned(operation=operation):
                    for number in [number for number in self.flying if number >= operation]:
                        del self.flying[number]
                case ev.Interrupted(requests=requests) | ev.SessionClosing(requests=requests):
                    self._lost(requests)
                case ev.EngineRestarted(lost=requests):
                    self._lost(requests)
                case ev.RequestFinished(request=request) | ev.RequestReleased(request=request):
                    self._lost((request,))
                case _:
                    pass
        self._state(session, transaction)

    def _taken(self, session: core.Session, unit: ev.UnitTaken) -> None:
        assert unit.operation == self.operation + 1, "N28: an operation is never used again"
        self.operation = unit.operation
        sound = sum(ref.size for ref in unit.refs)
        size = unit_bytes(session)
        assert not unit.pad or unit.final or unit.kind == "silence", "P31: padding inside a commit"
        if unit.kind == "audio":
            assert sound or unit.frames
            assert size is None or sound + unit.pad == size, "E16: a part of a unit"
        else:
            assert not unit.refs
        if unit.response_id is not None:
            response = session.open_response(unit.response_id)
            assert response is None or response.request == unit.request, "A14"
        self.flying[unit.operation] = unit

    def _pace(self, session: core.Session, unit: ev.UnitTaken, at: int) -> None:
        going = session.input.stream.continuation
        if unit.kind != "silence" or unit.response_id is not None:
            self.silences.clear()  # what lets a seeded text start is no continuation (G7)
            return
        assert len(self.flying) == 1, "P26: real sound is under way"
        most = 64 if session.auto else 8
        assert going is None or going.count <= most, "P25"
        assert unit.force_listen == (session.auto and going is not None and going.count == most), "G26"
        if self.woken:
            self.silences.clear()
        self.silences.append(at)
        sound = session.capabilities.input_format
        period_us = sound.samples(unit.pad) * 1_000_000 // sound.rate
        if len(self.silences) > 2:
            assert self.silences[-1] - self.silences[-3] >= period_us, "P25: a burst"

    def _accepted(self, unit: ev.UnitTaken) -> None:
        for ref in unit.refs:
            assert ref.start >= self.accepted_end, "P29: out of order, or twice"
            self.accepted_end = ref.end
        for ref in unit.frames:
            assert ref.start >= self.shown_end, "P29: a picture out of order, or twice"
            self.shown_end = ref.end
        seq = self.counts.get(unit.request, 0) + 1
        assert unit.seq == seq, "P10: a hole in the numbers"
        self.counts[unit.request] = seq
        key = unit.request, unit.turn
        turn_seq = self.turn_counts.get(key, 0) + 1
        assert unit.turn_seq == turn_seq, "P10: a hole in the numbers of a turn"
        self.turn_counts[key] = turn_seq
        name = parse_request(unit.request)
        assert name is not None
        assert name.turn is None, "A10"
        fence = name.epoch, unit.turn
        assert fence >= self.fence, "P9"
        self.fence = fence

    def _lost(self, requests: tuple[str, ...]) -> None:
        for number in [number for number, unit in self.flying.items() if unit.request in requests]:
            del self.flying[number]

    def _state(self, session: core.Session, transaction: Transaction) -> None:
        taken, stream = session.input, session.input.stream
        assert [unit.taken for unit in stream.in_flight] == list(self.flying.values())
        waiting = sum(span.end - span.start for span in stream.queue)
        held = sum(held.size + sum(ref.size for ref in held.refs) for held in stream.held)
        flying = sum(ref.size for unit in self.flying.values() for ref in (*unit.refs, *unit.frames))
        pictures = sum(ref.size for group in (*stream.pictures, *stream.groups) for ref in group)
        buffered = taken.position - taken.start + json_size(taken.text) + json_size(taken.transcript)
        assert taken.reserved == buffered + taken.retained + waiting + held + flying + pictures, "P27"
        assert taken.keep_from <= min([taken.start, *(ref.start for u in self.flying.values() for ref in u.refs)])
        ends = [0, *(span.end for span in stream.queue)]
        assert all(span.start < span.end for span in (*stream.queue, *stream.buffer))
        assert all(before <= span.start for before, span in zip(ends, stream.queue, strict=False))
        if not session.resident:
            assert not stream.queue
            assert not stream.buffer
            assert not self.flying
            assert not stream.held
        listening = [key for key, known in session.requests.items() if known.resident]
        assert listening or not stream.untold, "G6: a request that begins is told everything"
        assert len(set(stream.untold)) == len(stream.untold), "G6: told twice"
        size = unit_bytes(session)
        if session.auto and isinstance(transaction.command, cmd.AppendAudio) and session.phase == "open":
            deferred = any(isinstance(event, ev.OverlapDecided) and event.defer for event in transaction.events)
            refused = any(isinstance(event, ev.ErrorReported) for event in transaction.events)
            if not deferred and not refused and not stream.held:
                assert waiting < (1 if size is None else size), "P30"
        if session.phase == "open" and stream.held:
            first = stream.held[0].command
            assert self.flying, "E26: a command waits for nothing"
            assert isinstance(first, cmd.CommitInput | cmd.UpdateSession | cmd.CreateItem), "E38"
