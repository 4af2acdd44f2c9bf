"""What must hold of every session at every step, checked one transaction at a time (BEHAVIOURS P)."""

import msgspec
from msgspec import Struct, field

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.config import SessionConfig, overlap_policy
from antiphon.events.errors import CODES
from antiphon.events.items import FunctionCall, FunctionOutput, Message
from antiphon.events.log import Transaction, canonical, decode, encode
from antiphon.sessions import core
from antiphon.sessions.phases import LEFT, LIVE, RequestPhase
from antiphon.sessions.playback import prefix_of, waits_until
from antiphon.sessions.plugins import REGISTRY, Registry
from antiphon.sessions.state import Playout
from antiphon.sessions.view import next_deadline

from tests.sessions.watch_delivery import CONFIRMS, Delivery
from tests.sessions.watch_units import Units
from tests.sessions.watch_work import WatchWork


class Spoken(Struct):
    """A response as a client saw it so far."""

    head: ev.ResponseHead
    beside: bool = False
    """It drains, or is out of band: another one may be active."""
    started: bool = False
    done: bool = False
    closed: bool = False
    """What it says is complete; only calls may follow."""
    calls: list[FunctionCall] = field(default_factory=list[FunctionCall])
    open_call: FunctionCall | None = None
    arguments: str = ""
    audio: int = 0
    text: str = ""


class Before(Struct, frozen=True):
    """What is remembered of the state before a transaction: as bytes, as a copy, and what is often asked for."""

    data: bytes
    state: core.Session
    epoch: int
    turn: int
    commits: int
    generation: int
    attachment: int
    attached: bool
    responses: int
    absorbs: bool
    order: tuple[str, ...]
    config: SessionConfig
    config_generation: int
    locked: bool
    cursors: dict[str, tuple[int, int]]
    requests: dict[str, RequestPhase]


def look(session: core.Session, data: bytes) -> Before:
    """Remember the state before a transaction, which `data` holds as a whole."""
    return Before(
        data=data,
        state=core.load(data),
        epoch=session.epoch,
        turn=session.turn.turn,
        commits=session.turn.commits,
        generation=session.lease.generation,
        attachment=session.lease.attachment,
        attached=session.lease.attached,
        responses=session.counters.responses,
        absorbs=session.turn.absorbs,
        order=tuple(session.conversation.order),
        config=session.config,
        config_generation=session.config_generation,
        locked=session.locked,
        cursors={key: (p.played_ms, p.committed_ms) for key, p in session.playouts.items()},
        requests={name: known.phase for name, known in session.requests.items()},
    )


def a_deadline_stands(session: core.Session) -> None:
    """Fail if something waits for ever: a session without a connection, one that ends, or a turn behind nothing."""
    due = next_deadline(session)
    if session.phase == "open" and not session.lease.attached:
        assert due is not None, "P44: unattached without a deadline"
    if session.phase == "closing":
        assert due is not None, "P56: it never ends"
    if session.phase == "open" and session.turn.deferred and session.response is None and session.lease.attached:
        assert due is not None, "P37: a turn waits for ever"


class Watch(Struct):
    """Follows one session and fails at the first step that breaks a rule.

    `twin` is folded from the encoded log, beside the live session; `snapshot` restarts it now and then.
    """

    plugins: Registry = field(default_factory=lambda: REGISTRY)
    twin: core.Session = field(default_factory=core.new)
    number: int = 1
    retained: int = 0
    responses: dict[str, Spoken] = field(default_factory=dict[str, Spoken])
    ended: str | None = None
    given: bool = False
    """The answer that a client's next request would be absorbed by was given."""
    first_detach: int | None = None
    grace_end: int | None = None
    steps: int = 0
    seen: bytes = b""
    """The session behind the last step."""
    units: Units = field(default_factory=Units)
    work: WatchWork = field(default_factory=WatchWork)
    delivery: Delivery = field(default_factory=Delivery)

    def step(self, before: Before, session: core.Session, transaction: Transaction) -> None:
        """Check a transaction that `session` has just folded."""
        self.steps += 1
        self._fold(session, transaction)
        for index, event in enumerate(transaction.events):
            self._number(event)
            self._response(before, transaction, index, event)
        self._epoch(before, session, transaction)
        self._lease(before, session, transaction)
        self._config(before, session, transaction)
        self._input(session, transaction)
        self.units.step(session, transaction)
        self.delivery.step(session, transaction)
        self._overlap(before, session, transaction)
        self._absorbing(before, session, transaction)
        self._refusal(before, session, transaction)
        self._codes(transaction)
        self._conversation(session)
        self._playback(before, session, transaction)
        effects = [effect for event in transaction.events for effect in core.react(session, event)]
        self._requests(session, transaction, effects)
        self.work.step(before.state, session, transaction)
        self._cleanup(before, session, transaction, effects)

    # -- P1, P50, P54 ----------------------------------------------------------------------------------------

    def _fold(self, session: core.Session, transaction: Transaction) -> None:
        read = decode(encode(transaction))
        assert read == transaction
        assert canonical(read.events) == canonical(transaction.events)
        if self.steps % 16 == 0:
            self.twin = core.load(core.dump(self.twin))
        core.fold([read], self.twin)
        self.seen = core.dump(session)
        assert core.dump(self.twin) == self.seen, "P1: the fold is another state"

    def _number(self, event: ev.AnyEvent) -> None:
        if not isinstance(event, ev.PublicEvent):
            return
        assert self.ended is None, f"P54: {type(event).__name__} behind the terminal"
        if event.number:
            assert event.number == self.number, "P50: the numbers have a hole"
            untold = isinstance(event, ev.UserTranscribed | ev.InterruptionDismissed)
            assert event.count >= (0 if untold else 1)
            self.number += event.count
        if isinstance(event, ev.SessionClosed):
            self.ended = event.reason

    # -- responses: P15-P18, P20-P22, WIRE 3.3 ---------------------------------------------------------------

    def _response(self, before: Before, transaction: Transaction, index: int, event: ev.AnyEvent) -> None:
        match event:
            case ev.ResponseCreated(head=head):
                assert head.id not in self.responses
                others = [other for other in self._open() if not other.beside]
                assert not others or head.conversation_id is None, "P18: two responses are active"
                self.responses[head.id] = Spoken(head, beside=head.conversation_id is None)
            case ev.ResponseDrains(response_id=key):
                self.responses[key].beside = True
            case ev.OutputStarted(response_id=key, item=item):
                spoken = self._speaking(key, started=False)
                assert item.id == spoken.head.item_id == f"item_{key}"
                whole = 5 if spoken.head.part == "audio" else 4
                assert event.count == (whole - 2 if event.aside else whole)
                assert event.aside == (spoken.head.conversation_id is None)
                spoken.started = True
            case ev.AudioDelta(response_id=key):
                self._audio(self._speaking(key, started=True), event)
            case ev.TextDelta(response_id=key, text=text):
                spoken = self._speaking(key, started=True)
                assert event.part == spoken.head.part
                self._epoch_of(spoken, event.epoch)
                assert text
                spoken.text += text
            case ev.OutputEnded() | ev.CallStarted() | ev.CallDelta() | ev.CallEnded():
                self._call(event)
            case ev.ResponseEnded():
                self._terminal(transaction, index, event)
            case ev.SessionClosing() if event.expired:
                for spoken in self._open():
                    spoken.done = True  # an expiry is silent about responses (M14)
            case ev.SessionClosed():
                assert not self._open(), "P16: a response has no terminal"
            case _:
                pass

    def _open(self) -> list[Spoken]:
        return [spoken for spoken in self.responses.values() if not spoken.done]

    def _call(self, event: ev.OutputEnded | ev.CallStarted | ev.CallDelta | ev.CallEnded) -> None:
        """Follow the calls of a response: each opens, is written and closes before the next one (WIRE 3.3)."""
        spoken = self.responses[event.response_id]
        assert not spoken.done, "P17: output behind the terminal"
        match event:
            case ev.OutputEnded():
                assert spoken.started
                assert not spoken.closed
                assert event.text == spoken.text
                assert event.count == (5 if event.part == "audio" else 4) - event.aside
                spoken.closed = True
            case ev.CallStarted(item=item):
                assert spoken.open_call is None
                assert spoken.closed or not spoken.started
                assert event.output_index == len(spoken.calls) + spoken.started
                assert item.status == "in_progress"
                assert item.name
                assert item.call_id not in {
                    call.call_id for other in self.responses.values() for call in other.calls
                }
                spoken.open_call, spoken.arguments, spoken.closed = item, "", True
            case ev.CallDelta(item_id=item_id):
                assert spoken.open_call is not None
                assert spoken.open_call.id == item_id
                assert event.arguments
                spoken.arguments += event.arguments
            case ev.CallEnded(item=item):
                assert spoken.open_call is not None
                assert (item.id, item.arguments) == (spoken.open_call.id, spoken.arguments)
                assert item.status == "completed"
                spoken.calls.append(item)
                spoken.open_call = None

    def _speaking(self, key: str, *, started: bool) -> Spoken:
        spoken = self.responses[key]
        assert not spoken.done, "P17: output behind the terminal"
        assert not spoken.closed, "WIRE 3.3: calls come last"
        assert spoken.started == started, "WIRE 3.3: the grammar of deltas"
        return spoken

    def _audio(self, spoken: Spoken, event: ev.AudioDelta) -> None:
        assert spoken.head.part == "audio"
        assert event.ref.size > 0
        self._epoch_of(spoken, event.epoch)
        assert event.format == spoken.head.output_format
        spoken.audio += event.ref.size
        spoken.text += event.text
        assert event.audio_ms == event.format.ms(spoken.audio), "P20: durations are cumulative"
        assert event.playback.generated_ms == event.playback.sent_ms == event.audio_ms

    def _epoch_of(self, spoken: Spoken, epoch: int) -> None:
        """An answer of the conversation dies with its epoch, one out of band does not (P15)."""
        aside = spoken.head.conversation_id is None
        assert epoch >= spoken.head.epoch if aside else epoch == spoken.head.epoch

    def _terminal(self, transaction: Transaction, index: int, event: ev.ResponseEnded) -> None:
        spoken = self.responses[event.head.id]
        assert not spoken.done, "P16: a second terminal"
        assert event.head == spoken.head, "P23"
        assert event.text == spoken.text, "WIRE 3.3.4"
        assert (event.item is not None) == spoken.started
        assert event.item_done == (spoken.closed and spoken.started)
        assert event.calls == tuple(spoken.calls)
        if spoken.open_call is not None:
            cut = event.cut
            assert cut is not None
            assert (cut.id, cut.arguments, cut.status) == (spoken.open_call.id, spoken.arguments, "incomplete")
        aside = spoken.head.conversation_id is None
        closes = 0 if not spoken.started or spoken.closed else (5 if spoken.head.part == "audio" else 4) - aside
        assert event.count == 2 + closes + (0 if spoken.open_call is None else 3 - aside)
        assert not (aside and event.committed), "G5: an answer out of band is no history"
        earlier = [type(other) for other in transaction.events[:index]]
        later = [type(other) for other in transaction.events[index:]]
        if event.status == "failed":
            command = transaction.command
            fault = isinstance(command, cmd.ReportFault) and command.append and command.request is None
            called_off = event.failure is not None and event.failure.code == "append_cancelled"
            told = ev.ErrorReported in (later if fault else earlier)
            assert told or called_off, "P21: a failure without an error"
        if event.status == "cancelled":
            alone = {it.response_id for it in transaction.events[:index] if isinstance(it, ev.AsideCancelled)}
            caused = event.head.id in alone or (not aside and ev.Interrupted in earlier)
            assert caused or ev.SessionClosing in later, "P22"
        spoken.done = True

    # -- P7, P8, P11 -----------------------------------------------------------------------------------------

    def _epoch(self, before: Before, session: core.Session, transaction: Transaction) -> None:
        assert session.turn.turn >= before.turn, "P7"
        assert session.turn.commits >= before.commits, "P7"
        epoch = before.epoch
        for event in transaction.events:
            match event:
                case ev.Interrupted():
                    assert event.epoch == epoch + 1, "P8"
                    epoch = event.epoch
                case ev.EngineRestarted():
                    assert event.epoch - epoch in (0, 1), "P8"
                    epoch = event.epoch
                case ev.AudioDelta() | ev.TextDelta() | ev.OutputStarted() | ev.ResponseCreated():
                    shown = event.head.epoch if isinstance(event, ev.ResponseCreated) else event.epoch
                    assert shown == epoch, "P15: output of a dead epoch"
                case _:
                    pass
        assert session.epoch == epoch
        for request in session.requests.values():
            assert request.phase not in LIVE or request.epoch == epoch, "P11"

    # -- lease: P43-P48, P55 ---------------------------------------------------------------------------------

    def _lease(self, before: Before, session: core.Session, transaction: Transaction) -> None:
        lease, command = session.lease, transaction.command
        raised = sum(isinstance(event, ev.SessionResumed | ev.SessionClosing) for event in transaction.events)
        resumed = sum(isinstance(event, ev.SessionResumed) for event in transaction.events)
        opened = sum(isinstance(event, ev.SessionOpened) for event in transaction.events)
        assert lease.generation == before.generation + raised, "P45"
        assert lease.attachment == before.attachment + resumed + opened
        assert lease.attached == (lease.phase != "absent")
        if session.phase == "open":
            assert lease.attached == (lease.expires_at is None), "P44: unattached without a deadline"
            assert (lease.phase == "unheard") == (lease.confirm_by is not None)
            assert session.resumable or lease.attached
        if isinstance(command, cmd.ClientCommand):
            told = session.phase in ("closing", "closed")
            assert command.attachment == before.attachment, "P52: a replaced connection"
            assert before.attached or told, "P52: a connection that is gone"
        if isinstance(command, cmd.Detach) and before.data != core.dump(core.new()):
            assert command.generation in (None, before.generation), "P46"
            assert command.control_id is not None or command.generation is not None, "C5"
        self._grace(session, transaction)
        if session.phase in ("closing", "closed"):
            dead = transaction.events[self._end_at(transaction) + 1 :]
            for event in dead:
                assert not isinstance(
                    event, ev.RequestSubmitted | ev.ResponseCreated | ev.AudioReceived | ev.SessionResumed
                ), "P55"

    def _end_at(self, transaction: Transaction) -> int:
        kinds = [type(event) for event in transaction.events]
        return kinds.index(ev.SessionClosing) if ev.SessionClosing in kinds else -1

    def _grace(self, session: core.Session, transaction: Transaction) -> None:
        for event in transaction.events:
            match event:
                case ev.SessionDetached(grace_ms=grace_ms):
                    restart = event.reason == "restart"
                    if self.grace_end is None or restart:
                        self.grace_end = transaction.at + grace_ms * 1000
                case ev.AttachmentWithdrawn():
                    assert self.grace_end is None
                    self.grace_end = transaction.at + session.limits.grace_ms * 1000
                case ev.SessionResumed() | ev.SessionClosing():
                    self.grace_end = None
                case _:
                    pass
        if session.phase == "open":
            assert session.lease.expires_at == self.grace_end, "P47, C6: the grace was moved"

    # -- input: P27, P28 -------------------------------------------------------------------------------------

    def _input(self, session: core.Session, transaction: Transaction) -> None:
        taken = session.input
        for event in transaction.events:
            match event:
                case ev.InputCommitted(ref=ref) if ref is not None and not session.resident:
                    self.retained += ref.size
                case ev.InputCommitted(empty=False):
                    pass
                case ev.RequestSubmitted(request=request) if self._aside(request):
                    pass
                case ev.ItemDeleted():
                    assert taken.retained <= self.retained, "P27"
                    self.retained = min(self.retained, taken.retained)
                case ev.RequestSubmitted() | ev.InputCleared() | ev.InputDropped() | ev.SessionClosing():
                    self.retained = 0
                case _:
                    pass
        if not any(isinstance(event, ev.Interrupted) for event in transaction.events):
            assert taken.retained == self.retained, "P27"
        self.retained = taken.retained
        assert 0 <= taken.start <= taken.position
        assert taken.keep_from <= taken.start
        assert 0 <= taken.reserved <= max(session.limits.input_bytes, 0), "P28"
        if session.phase == "closed":
            assert taken.reserved == 0
        assert not taken.vad.speaking or taken.phase == "speaking"
        assert (taken.item_id is None) == (taken.phase == "silent")

    def _aside(self, request: str) -> bool:
        name = ids.parse_request(request)
        return name is not None and name.aside is not None

    # -- turn taking: P35-P37, F14-F23 -----------------------------------------------------------------------

    def _overlap(self, before: Before, session: core.Session, transaction: Transaction) -> None:
        command, turn = transaction.command, session.turn
        kinds = [type(event) for event in transaction.events]
        decided = [event for event in transaction.events if isinstance(event, ev.OverlapDecided)]
        late = [event for event in decided if event.reason in CONFIRMS]
        assert len(decided) - len(late) <= kinds.count(ev.AudioReceived), "F14: one decision for an append"
        for event in decided:
            assert isinstance(command, cmd.AppendAudio) or event in late or ev.HoldEnded in kinds, "F13"
            if event.action == "barge_in":
                assert session.capabilities.supports_barge_in, "P36"
                assert ev.Interrupted in kinds[transaction.events.index(event) :], "F14"
                more = event is not decided[-1] or ev.HoldEnded in kinds
                assert session.input.overlap_ms == 0 or more, "F18"
            if event.action == "drop" and session.auto and isinstance(command, cmd.AppendAudio):
                assert command.overlap == "drop" or ev.HoldEnded in kinds, "P36"
            assert event.overlap_ms >= 0
        if ev.InputDiscarded in kinds:
            assert decided or before.state.suspicion or session.dialect != "duplex", "F16"
            more = ev.HoldEnded in kinds or kinds[-1] is not ev.InputDiscarded  # of the same append, maybe
            assert session.input.position == session.input.start or more, "F16"
        made = {event.item.id for event in transaction.events if isinstance(event, ev.ItemCreated)}
        for event in transaction.events:
            if isinstance(event, ev.InputCommitted) and event.overlap_ack:
                assert session.dialect == "duplex", "WIRE 6.5"
                assert event.item_id not in made, "F19"
        assert turn.deferred <= turn.unanswered, "F21"
        assert all(item_id in turn.waiting for item_id in turn.due if item_id), "F21"
        assert len(set(turn.waiting)) == len(turn.waiting), "F21: a turn waits twice"
        assert all(item_id in session.conversation.entries for item_id in turn.waiting), "J8: a turn that is gone"
        if session.phase == "open" and turn.deferred and session.lease.attached:
            answered = session.response is not None
            paused = session.suspicion is not None and session.suspicion.due is not None
            assert answered or paused or waits_until(session) is not None, "P37: a turn waits for ever"
        if ev.ResponseEnded in kinds and turn.deferred and not {ev.HoldEnded, ev.AnswerDeferred} & {*kinds}:
            assert core.load(before.data).turn.deferred, "F23"

    def _absorbing(self, before: Before, session: core.Session, transaction: Transaction) -> None:
        """A request is absorbed only by an answer that was given, or is due (WIRE 7.4)."""
        created = any(
            isinstance(event, ev.ResponseCreated) and event.head.conversation_id is not None
            for event in transaction.events
        )
        if session.turn.awaited:
            known = (entry.item for entry in session.conversation.entries.values())
            there = {item.call_id for item in known if isinstance(item, FunctionOutput)}
            assert not there & {*session.turn.awaited}, "WIRE 7.4: waits for what is there"
        if session.turn.absorbs and not before.absorbs:
            self.given = False
        self.given = self.given or created
        if session.turn.absorbs and not session.auto and session.phase == "open":
            assert self.given or session.turn.deferred, "WIRE 7.4: absorbed, and never answered"
        assert session.reserved is None or session.auto, "G6: options wait for a response that nobody opens"
        followed = session.playouts.keys() | session.asides.keys()
        for response in session.open_responses:
            if response.phase == "speaking":
                assert response.head.id in followed, "I14: what is heard of an open answer is not followed"

    # -- P32 -------------------------------------------------------------------------------------------------

    def _codes(self, transaction: Transaction) -> None:
        for event in transaction.events:
            if isinstance(event, ev.ErrorReported) and not isinstance(transaction.command, cmd.StageFailed):
                assert event.code in CODES, "O3: a code that is in no table"
                assert event.message

    def _refusal(self, before: Before, session: core.Session, transaction: Transaction) -> None:
        kinds = {type(event) for event in transaction.events}
        if not kinds <= {ev.ErrorReported, ev.CommandSequenced, ev.AttachmentConfirmed}:
            return
        old = core.load(before.data)
        if kinds & {ev.CommandSequenced}:
            old.lease.client_seq = session.lease.client_seq
        if kinds & {ev.AttachmentConfirmed}:
            old.lease.phase, old.lease.confirm_by, old.lease.earlier_tokens = "serving", None, ()
        old.now, old.next_number = session.now, session.next_number
        assert old == session, "P32: a refusal changed something"

    # -- conversation and playback: P38, P39, P41 ------------------------------------------------------------

    def _conversation(self, session: core.Session) -> None:
        order = session.conversation.order
        assert len(set(order)) == len(order)
        assert set(order) == set(session.conversation.entries)
        assert not session.input.item_id or session.input.item_id not in order
        response = session.response
        if response is not None:
            assert response.previous_item_id is None or response.previous_item_id in order

    def _playback(self, before: Before, session: core.Session, transaction: Transaction) -> None:
        lowered = {
            event.response_id
            for event in transaction.events
            if isinstance(event, ev.ItemTruncated | ev.HistoryCut)
            or (isinstance(event, ev.PlaybackAcknowledged) and event.truncate)
        }
        for key, playout in session.playouts.items():
            assert 0 <= playout.committed_ms <= playout.played_ms <= playout.sent_ms, "P38"
            played, committed = before.cursors.get(key, (0, 0))
            if key not in lowered:
                assert playout.played_ms >= played, "P38"
                assert playout.committed_ms >= committed, "P38"
            if playout.cap_ms is not None:
                assert playout.cap_ms == playout.committed_ms
            if playout.ended:
                self._history(session, playout)

    def _history(self, session: core.Session, playout: Playout) -> None:
        entry = session.conversation.entries[playout.item_id]
        said = self.responses[playout.response_id].text
        assert entry.heard is not None
        assert said.startswith(entry.heard), "P39"
        if playout.cap_ms is not None and playout.sent:
            assert entry.heard == prefix_of(playout, playout.cap_ms), "P39"
        elif session.config.playback_policy == "ack_only" and playout.sent:
            limit = prefix_of(playout, playout.committed_ms) if playout.acked else ""
            assert entry.heard == limit, "P39"
        elif playout.sent and 0 < playout.committed_ms < playout.sent_ms and not playout.unaligned:
            assert entry.heard == prefix_of(playout, playout.committed_ms), "I1"
        elif playout.cap_ms is None:
            unheard = playout.unaligned and playout.sent and not playout.complete
            assert entry.heard == ("" if unheard else said), "I1, I4"
        assert isinstance(entry.item, Message)
        assert entry.item.status != "in_progress"

    # -- configuration: A20, L2, L8, L13 ---------------------------------------------------------------------

    def _config(self, before: Before, session: core.Session, transaction: Transaction) -> None:
        published = [event for event in transaction.events if isinstance(event, ev.ConfigUpdated)]
        generations = [event.generation for event in published]
        known = before.config_generation
        assert generations == list(range(known + 1, known + 1 + len(published))), "A20"
        assert session.config_generation == known + len(published), "A20"
        for event in published:
            assert event.view.config == event.config, "L13"
        assert not published or published[-1].config == session.config, "L13"
        if not published and not isinstance(transaction.command, cmd.OpenSession):
            assert session.config == before.config, "L2: a configuration changed without being published"
        assert session.config.overlap_policy == overlap_policy(session.config.turn_detection), "WIRE 4.5"
        assert session.locked >= before.locked, "L8: the lock survives"
        if before.locked:
            model = self.plugins[session.plugin]
            assert model.baked(session.config) == model.baked(before.config), "L8"
        if session.locked:
            assert session.capabilities.core_resumable_request, "Q4.23"

    # -- requests: P4, P13 -----------------------------------------------------------------------------------

    def _requests(self, session: core.Session, transaction: Transaction, effects: list[fx.AnyEffect]) -> None:
        names = {type(event) for event in transaction.events}
        assert all(msgspec.json.encode(effect) for effect in effects)
        working = [response.request for response in session.open_responses]
        assert len(set(working)) == len(working), "H5: two answers are made by one request"
        turns = [name for name, known in session.requests.items() if known.phase in LIVE and known.response_id]
        assert all(name in working for name in turns), "P12: a turn's request lives on without its answer"
        drains = [response for response in session.others.values() if not response.aside]
        assert not drains or session.capabilities.supports_concurrent_turn_requests, "H1"
        for response in session.open_responses:
            assert session.requests[response.request].phase in LIVE, "G8: nobody works on the response"
        if session.response is not None:
            request = session.requests[session.response.request]
            assert request.phase in LIVE, "G8: nobody works on the response"
        if session.phase == "closed" and ev.SessionClosed in names and session.closing is not None:
            late = transaction.at >= session.closing.deadline or session.closing.reason == "request_cleanup"
            restarted = ev.EngineRestarted in names
            tried = all(known.phase == "stuck" for known in session.requests.values())
            assert tried or late or restarted, "M4"

    # -- clean-ups: A18, K20, M12, P13, P56 ------------------------------------------------------------------

    def _cleanup(
        self, before: Before, session: core.Session, transaction: Transaction, effects: list[fx.AnyEffect]
    ) -> None:
        asked = [
            name
            for effect in effects
            if isinstance(effect, fx.AbortRequests | fx.ReleaseRequests)
            for name in effect.requests
        ]
        assert len(asked) == len(set(asked)), "K20: two clean-ups of one request"
        released = {event.request for event in transaction.events if isinstance(event, ev.RequestReleased)}
        again = any(isinstance(event, ev.CleanupRetried | ev.EngineRestarted) for event in transaction.events)
        for name, known in session.requests.items():
            was = before.requests.get(name)
            if known.phase in LEFT and was not in LEFT:
                assert name in asked, "A18: it was left, and nobody is asked to forget it"
            if was in LEFT and name in asked:
                assert again, "K20: a second clean-up beside the first"
        assert before.requests.keys() - session.requests.keys() <= released, "P13: forgotten before its stage has"
        pending = any(known.phase in LEFT for known in session.requests.values())
        assert (session.cleanup is not None) == pending, "P56"
        if session.cleanup is not None:
            due = next_deadline(session)
            assert due is not None, "M12: nobody will ask again"
            assert due <= session.cleanup.due, "M12: nobody will ask again"
