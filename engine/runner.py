"""The one writer of a live session: takes commands, decides, records, and lets the effects run."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import anyio
import anyio.lowlevel
from msgspec import Struct

from antiphon.events.audio import SampleRef
from antiphon.events.commands import (
    AnyCommand,
    AppendAudio,
    ClientCommand,
    Command,
    OpenSession,
    ReportFault,
    ReportRefusal,
    ResumeSession,
    StageReport,
    StageSegmentFinished,
    StartRunner,
    Tick,
    UpdateSession,
)
from antiphon.events.config import SessionConfig
from antiphon.events.effects import AnyEffect
from antiphon.events.events import (
    AnyEvent,
    AudioDelta,
    AudioReceived,
    CommandHeld,
    ConfigUpdated,
    Event,
    ItemCreated,
    OutputHeld,
    SessionOpened,
)
from antiphon.events.items import pieces
from antiphon.events.log import EventLog, LogError, Samples, SampleWrite, Snapshot, Transaction
from antiphon.sessions import core
from antiphon.sessions.plugins import Registry

from .boundary import contained_step, spared_step
from .clock import Clock, Timer
from .desk import Desk
from .errors import Refused
from .feed import Feed
from .host import PipelineHost
from .inbox import Inbox, Item, Prepare
from .outcome import Outcome, Reply
from .published import Published, published
from .statistics import Counts
from .window import SoundWindow

RUN_AHEAD = 256
"""Transactions decided and not yet durable, after which the inbox has to wait (DESIGN 4)."""

STEP_US = 2_000
"""How long a runner decides in one go before others get their turn."""

CROWDED = 4096
CALM = 512
"""Commands that wait: with so many, the stages are asked to wait too, until only so few are left (DESIGN 6)."""

SNAPSHOT_ENTRIES = 2000
SNAPSHOT_AFTER = 100
"""A turn's end makes a snapshot only after this many entries: a fold of fewer is quicker than loading one."""


Meter = Callable[[str, Published], None]
"""Reads what is published, of every session: the session's name, and the transaction. It never waits."""

METERING = "a reader of what is published failed"


class _Pending(Struct):
    """A decided transaction that is not durable yet, and who waits for it."""

    entry: Published
    number: int
    reply: Reply | None
    behind: list[tuple[Reply, Outcome]] | None
    """Answers that are true only when this transaction is durable, if there are any."""


class Runner:
    """Owns a live session. `run` awaits only the inbox; from command to append there is no await.

    `session` is the decided state: others may look at it, between commands, and must not change it.
    `abandoning` is told which requests are aborted because the runner ends; nobody waits for their reports.
    `counts` are those of all sessions; `meters` are told of every transaction that has become durable here.
    Its background tasks end with it, and an error in one of them ends it.
    """

    def __init__(
        self,
        session: core.Session,
        *,
        name: str,
        term: int,
        head: int,
        snapshot: int,
        log: EventLog,
        samples: Samples,
        host: PipelineHost,
        plugins: Registry,
        clock: Clock,
        abandoning: Callable[[list[str]], None],
        counts: Counts,
        meters: Sequence[Meter] = (),
    ) -> None:
        self.session = session
        self.name = name
        self.term = term
        self.head = head
        self.feed = Feed(
            name, log, samples, clock, durable=head, number=session.next_number - 1, epoch=session.turn.voided
        )
        self.failure: LogError | None = None
        self.commands = 0
        self.inbox = Inbox()
        self.crowded = False
        self.turned: Callable[[Published], None] | None = None
        """Told of every durable transaction that changes who is attached, or ends the session."""
        self.closing: Callable[[], None] | None = None
        """Told when the session's end is decided: what waits on the way in is not wanted any more."""
        self.crowding: Callable[[str, bool], None] | None = None
        """Told with the session's name when so much waits that its stages should, and when they may go on."""
        self._log = log
        self._plugins = plugins
        self._clock = clock
        self._tasks = anyio.create_task_group()
        self._abandoning = abandoning
        self._counts = counts
        self._meters = meters
        self._window = SoundWindow(session.input.received)
        self._desk = Desk(name, host, samples, self._window, self._tasks, self.post)
        self._pending: deque[_Pending] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._stopped = False
        self._last_at = session.now
        self._looked_us = clock.monotonic_us()
        """When the clock was last looked at, for a command."""
        self._anchor_us = self._looked_us - session.now
        self._timer: Timer | None = None
        self._timer_at = 0
        self._useless_tick_at: int | None = None
        """A deadline for which a tick decided nothing: asking again at once would only spin."""
        self._snapshot_seq = snapshot
        self._snapshot_due = False
        self._upcoming: tuple[int, SessionConfig] | None = None
        """What `upcoming` was behind which transaction: it is asked for with every append."""
        self._deciding: Item | None = None
        self._closing = session.closing is not None
        self._dead = False
        """Whether the engine itself has ended, or is ended, under the session."""

    @property
    def upcoming(self) -> SessionConfig:
        """The configuration for what is sent now: the one in force, with the updates that wait in the session."""
        if self._upcoming is None or self._upcoming[0] != self.head:
            self._upcoming = (self.head, core.upcoming(self.session, self._plugins))
        return self._upcoming[1]

    # -- the inbox -------------------------------------------------------------------------------------------

    @property
    def backlog(self) -> int:
        """Commands that wait."""
        return self.inbox.size

    @property
    def ahead(self) -> int:
        """Transactions that are decided and not durable."""
        return len(self._pending)

    def post(
        self,
        command: AnyCommand,
        sound: bytes = b"",
        reply: Reply | None = None,
        *,
        prepare: Prepare | None = None,
        taken: Callable[[], None] | None = None,
        size: int = 0,
        wanted: Callable[[], bool] | None = None,
    ) -> None:
        """Put a command into the inbox; never waits, never decides before it returns.

        `sound` is the bytes that belong to it. `reply` is called once, when the outcome is durable. `prepare`
        completes the command just before it is decided, `taken` is called right after. `size`: what it weighs
        against the session's credit. `wanted` False when its turn comes: it is dropped. See
        `inbox` for who waits behind whom.
        """
        if self.failure is not None or self._stopped:
            if reply is not None:
                error = self.failure or Refused("session_closed", "The session has ended.")
                reply(Outcome(error=error))
            return
        self.inbox.put(Item(command, sound, size, reply, prepare, taken, wanted))
        if not self.crowded and self.inbox.others > CROWDED:
            self._crowd(True)
        if self._waiter is not None:
            self._wake()

    def _crowd(self, crowded: bool) -> None:
        self.crowded = crowded
        if self.crowding is not None:
            self.crowding(self.name, crowded)

    def stop(self) -> None:
        """Let `run` return without taking another command; what is decided still becomes durable."""
        self._stopped = True
        self._wake()

    async def run(self) -> None:
        """Take commands until the session is closed and its stages have let go, or the log has failed."""
        async with self._tasks:
            sound = False
            try:
                while not self._finished():
                    self._snapshot()
                    if not self._may_take():
                        await self._wait()
                    if not spared_step("a command failed", lambda: self.name, self._take_all, self._unchanged):
                        self._excuse()
                    self._arm()
                    if self._may_take():
                        await anyio.lowlevel.checkpoint()
                sound = True
            except anyio.get_cancelled_exc_class():
                self._dead = True
                raise
            finally:
                self._end(sound)
            self._tasks.cancel_scope.cancel()

    def _finished(self) -> bool:
        if self.failure is not None:
            return True
        if self._pending:
            return False
        return self._stopped or (self.session.phase == "closed" and not core.outstanding(self.session))

    def _may_take(self) -> bool:
        if self._stopped or self.failure is not None or len(self._pending) >= RUN_AHEAD:
            return False
        return self.inbox.size > 0

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _take_all(self) -> None:
        """Take what is there, and what that causes: an inline stage's answer shares its question's commit."""
        until: int | None = None
        for _ in range(RUN_AHEAD):
            if not self._may_take():
                break
            self._take(self.inbox.take())
            if until is None:
                until = self._looked_us + STEP_US
            elif self._looked_us >= until:
                break
        if self.crowded and self.inbox.others <= CALM:
            self._crowd(False)

    # -- one command -----------------------------------------------------------------------------------------

    def _take(self, item: Item) -> None:
        """Decide one command and record what it decided. A plain call: nothing can change underneath it."""
        if item.wanted is not None and not item.wanted():
            return
        session = self.session
        self.commands += 1
        self._deciding = item
        command = item.command if item.prepare is None else item.prepare(session, item.command)
        at = self._stamp(command)
        try:
            events = core.decide(session, command, at, self._plugins)
        except core.Refusal as refusal:
            self._deciding = None
            error = Refused(refusal.code, refusal.message, param=refusal.param)
            self._answer(item.reply, Outcome(error=error))
        else:
            self._deciding = None
            if type(command) is StageSegmentFinished:
                self._counts.beats += core.is_beat(session, command, events)
            if events:
                self._record(command, at, events, item.sound, item.reply)
            else:
                self._useless_tick_at = core.next_deadline(session) if type(command) is Tick else None
                self._answer(item.reply, Outcome())
        if item.taken is not None:
            item.taken()

    def _unchanged(self) -> bool:
        """Whether the error at hand came out of the deciding, which changes nothing, and somebody can be told."""
        return self._deciding is not None and _bears_a_fault(self._deciding.command)

    def _excuse(self) -> None:
        """Say that a command has failed (M10): to who waits for it, and in the session's log."""
        item, self._deciding = self._deciding, None
        assert item is not None, "an error behind the deciding is not spared"
        self._answer(item.reply, Outcome(error=Refused("internal_error", "The server failed to carry this out.")))
        if item.taken is not None:
            item.taken()
        fault = fault_of(item.command)
        if fault is not None:
            self._take(Item(fault))

    def _discard(self) -> None:
        """Drop the commands that wait behind the close (M9)."""
        if self.closing is not None:
            self.closing()
        for item in self.inbox.discard():
            if item.taken is not None:
                item.taken()
            self._answer(item.reply, Outcome(error=Refused("session_closed", "The session has ended.")))

    def _stamp(self, command: AnyCommand) -> int:
        """Return the session time of a command: never earlier than the last one's."""
        if type(command) is StartRunner:
            since_opened = command.wall_us - self.session.opened_wall_us
            self._anchor_us = self._clock.monotonic_us() - max(self._last_at, since_opened)
        elif type(command) is OpenSession:
            self._anchor_us = self._clock.monotonic_us()
        self._looked_us = self._clock.monotonic_us()
        at = self._looked_us - self._anchor_us
        if at > self._last_at:
            self._last_at = at
        return self._last_at

    def _record(
        self, command: AnyCommand, at: int, events: list[AnyEvent], sound: bytes, reply: Reply | None
    ) -> None:
        session = self.session
        self.head += 1
        transaction = Transaction(seq=self.head, term=self.term, at=at, command=command, events=tuple(events))
        stream = session.input.stream
        earlier = stream.earlier if stream.held else _NO_PLACES
        for event in events:
            core.evolve(session, event, at)
        if session.closing is not None and not self._closing:
            self._closing = True
            self._discard()
        effects: list[AnyEffect] = []
        for event in events:
            if type(event) in core.REACTIONS:
                effects += core.react(session, event, self._plugins)
        writes: list[SampleWrite] = []
        shown: dict[SampleRef, bytes] = {}
        if sound or self._window.held:
            self._place(events, sound, earlier, writes, shown)
            if type(command) in _WITH_RECORDING:
                writes += self._keep(events, sound)
        entry = published(transaction, shown, session.turn.voided)
        self._pending.append(_Pending(entry, session.next_number - 1, reply, None))
        self._log.append(self.name, transaction, writes, self._settled)
        if effects and self.failure is None:
            self._desk.execute(effects)
        self._window.trim(session.input.keep_from)

    def _place(
        self,
        events: list[AnyEvent],
        sound: bytes,
        earlier: frozenset[SampleRef],
        writes: list[SampleWrite],
        shown: dict[SampleRef, bytes],
    ) -> None:
        """Cut the bytes of a command into the pieces that its events name: what is written, and what is shown.

        What was held back came before: bytes of clients `earlier`, the sound of an answer as what is `held`.
        """
        held = self._window.held
        at = 0
        for event in events:
            if type(event) not in _NAMING:
                continue
            for ref in samples_of(event):
                if held and ref in held:
                    shown[ref] = held.pop(ref)
                    continue
                if earlier and _within(ref, earlier):
                    continue
                size = ref.size
                data = sound if size == len(sound) else sound[at : at + size]
                at += size
                if type(event) is OutputHeld:
                    held[ref] = data
                elif ref.stream == "out":
                    shown[ref] = data
                elif ref.stream == "in":
                    self._window.append(ref, data)
                else:
                    self._window.keep(ref, data)
                if data:
                    writes.append(SampleWrite(ref, data))
        if held and (self.session.suspicion is None or self.session.suspicion.phase != "held"):
            held.clear()  # what was held and not shown by now never is

    def _keep(self, events: list[AnyEvent], recording: bytes) -> list[SampleWrite]:
        """Keep the recording that came with a configuration, if that was taken."""
        writes: list[SampleWrite] = []
        for event in events:
            if isinstance(event, SessionOpened | ConfigUpdated):
                config = event.config if isinstance(event, ConfigUpdated) else event.view.config
                if config.ref_audio is not None and config.ref_audio.ref.size == len(recording):
                    self._window.keep(config.ref_audio.ref, recording)
                    writes.append(SampleWrite(config.ref_audio.ref, recording))
        return writes

    # -- durability ------------------------------------------------------------------------------------------

    def _settled(self, error: LogError | None) -> None:
        """The log's answer to the oldest append that had none."""
        if error is not None:
            self._fail(error)
        if self.failure is not None:
            return
        pending = self._pending.popleft()
        self.feed.publish(pending.entry, pending.number)
        for meter in self._meters:
            contained_step(METERING, lambda: self.name, partial(meter, self.name, pending.entry))
        if pending.entry.turning and self.turned is not None:
            self.turned(pending.entry)
        if pending.reply is not None:
            pending.reply(Outcome(entry=pending.entry))
        for reply, outcome in pending.behind or ():
            reply(outcome)
        self._consider_snapshot(pending.entry)
        # Tasks are started by `run` alone: a callback of the loop is no place for it.
        if self._waiter is not None and (self.backlog or self._snapshot_due or self._finished()):
            self._wake()

    def _answer(self, reply: Reply | None, outcome: Outcome) -> None:
        """Answer now, or when what was decided before is durable: it may be the reason."""
        if reply is None:
            return
        if self._pending:
            last = self._pending[-1]
            last.behind = [*(last.behind or ()), (reply, outcome)]
        else:
            reply(outcome)

    def _fail(self, error: LogError) -> None:
        """Nothing more can be recorded: give up, so that the session can be folded again from the store."""
        if self.failure is not None:
            return
        self.failure = error
        self._wake()

    def _end(self, sound: bool) -> None:
        """Tell everybody who waits, and let go of the stages. Not `sound`: an error of ours ended the loop."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self.failure is None and self._pending and not self._dead:
            self.failure = LogError("the runner was stopped")
        if self.failure is not None:
            self.feed.fail(Refused("storage_unavailable", "The session cannot be recorded now."))
        elif self._dead:
            self.feed.fail(Refused("engine_dead", "The server has ended."))
        elif not sound:
            self.feed.fail(Refused("internal_error", "The session had to be given up."))
        ended = Refused("engine_dead", "The server has ended.") if self._dead else None
        gone = Outcome(error=self.failure or ended or Refused("session_closed", "The session has ended."))
        for pending in self._pending:
            for reply in (pending.reply, *(reply for reply, _ in pending.behind or ())):
                if reply is not None:
                    reply(gone)
        for item in self.inbox.clear():
            if item.reply is not None:
                item.reply(gone)
        if self.crowded:
            self._crowd(False)
        requests = core.outstanding(self.session)
        self._abandoning(requests)
        self._desk.abandon(requests)
        self.feed.close()

    # -- time ------------------------------------------------------------------------------------------------

    def now(self) -> int:
        """Return the session time in microseconds."""
        return max(self._last_at, self._clock.monotonic_us() - self._anchor_us)

    def _arm(self) -> None:
        """Make sure that a timer comes no later than the next deadline. A later deadline costs nothing."""
        deadline = core.next_deadline(self.session)
        if deadline is None or deadline == self._useless_tick_at or self.failure is not None:
            return
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._clock.call_at(deadline + self._anchor_us, self._ring)

    def _ring(self) -> None:
        """The timer went off: a deadline may have passed, or was moved meanwhile."""
        self._timer = None
        deadline = core.next_deadline(self.session)
        if deadline is None or self._stopped:
            return
        if deadline <= self.now():
            self.post(Tick())
        else:
            self._arm()

    # -- snapshots -------------------------------------------------------------------------------------------

    def _consider_snapshot(self, entry: Published) -> None:
        transaction = entry.transaction
        since = transaction.seq - self._snapshot_seq
        # What had to be folded at this start shall not have to be folded at the next one, however soon that is.
        rests = entry.ends_turn or type(transaction.command) is StartRunner
        if since >= SNAPSHOT_ENTRIES or (since >= SNAPSHOT_AFTER and rests):
            self._snapshot_due = True

    def _snapshot(self) -> None:
        """Keep the state if it is time, but only at rest: then the decided state is the durable one."""
        if self._snapshot_due and not self._pending and self.failure is None:
            self._snapshot_due = False
            self._tasks.start_soon(self._save, self._taken())

    def _taken(self) -> Snapshot:
        self._snapshot_seq = self.head
        return Snapshot(seq=self.head, version=core.STATE_VERSION, state=core.dump(self.session))

    async def keep(self) -> None:
        """Keep the state in which it was stopped, so that the next process need not fold what led there."""
        goes_on = self.failure is None and not self._pending and self.session.phase == "open"
        if goes_on and self.head - self._snapshot_seq >= SNAPSHOT_AFTER:
            await self._save(self._taken())

    async def _save(self, snapshot: Snapshot) -> None:
        try:
            await self._log.save_snapshot(self.name, snapshot)
        except LogError:
            return  # the next one may succeed; a fold without it is only slower


def _bears_a_fault(command: AnyCommand) -> bool:
    """Whether the session can go on although this command was not carried out.

    Not so if its end, its connection or its time depends on it: then it is given up and taken over.
    """
    return isinstance(command, ClientCommand | ReportRefusal | StageReport | ResumeSession | OpenSession)


def fault_of(command: AnyCommand) -> ReportFault | None:
    """Return what the session is told of a command that has failed; None: only the caller is."""
    if isinstance(command, ClientCommand):
        return ReportFault(
            attachment=command.attachment,
            event_id=command.event_id,
            client_seq=command.client_seq,
            append=isinstance(command, AppendAudio),
        )
    if isinstance(command, ReportRefusal):
        return ReportFault(attachment=command.attachment, event_id=command.event_id, client_seq=command.client_seq)
    return ReportFault(request=command.request) if isinstance(command, StageReport) else None


def _within(ref: SampleRef, earlier: frozenset[SampleRef]) -> bool:
    """Return whether the bytes of a place came earlier: what was held back may be taken in pieces."""
    return any(
        known.stream == ref.stream and known.start <= ref.start and ref.end <= known.end for known in earlier
    )


_NO_PLACES: frozenset[SampleRef] = frozenset()

_WITH_RECORDING: frozenset[type[Command]] = frozenset({OpenSession, UpdateSession})
"""Commands that reference audio comes with."""

_NAMING: frozenset[type[Event]] = frozenset({AudioDelta, OutputHeld, AudioReceived, CommandHeld, ItemCreated})
"""Events that speak of bytes."""


def samples_of(event: AnyEvent) -> tuple[SampleRef, ...]:
    """Return the places of the bytes that an event speaks of, in the order in which they came."""
    match event:
        case AudioDelta(ref=ref):
            return (ref,)
        case OutputHeld(ref=ref):
            return () if ref is None else (ref,)
        case AudioReceived(ref=ref, frames=frames):
            return (ref, *frames) if frames else (ref,)
        case CommandHeld(refs=refs):
            return refs
        case ItemCreated(item=item):
            return tuple(part.ref for part in pieces(item) if part.ref is not None)
        case _:
            return ()
