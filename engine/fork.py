"""A fork: a log from the beginning of another, and what its commands decide when something is otherwise.

Everything that came from outside comes again, at its time and with the edits in place. What a stage said is taken
over where it was asked the same, as long after the question as it was said; time is the fork's own.
"""

import heapq

from msgspec import Struct
from msgspec.structs import replace

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.log import Transaction
from antiphon.sessions import core
from antiphon.sessions.plugins import REGISTRY, Registry
from antiphon.stages.base import AnyReport

from .fork_asking import CUT, UNANSWERED, Asking, Held, numbered, stand_ins
from .fork_edits import Edits, Outside, outside
from .fork_names import Names, NeverNamed, counted
from .fork_origin import Given, Order, Origin, Said, inputs
from .fork_pairing import Pairing
from .fork_patch import PatchError, Wanted, kept, opened, updated
from .fork_same import Sounds
from .fork_told import told
from .forked import Circling, Entry, Forked, Left, Source
from .likeness import likeness

LAST: Order = (1 << 60, 0)
MOST_TICKS = 100
"""Timers that ring behind the end of the origin, at most: to the end of a session that had one."""

MOST_ENTRIES_PER_US = 10_000
"""Entries without any time between them, after which a fork is taken to run in a circle."""


class _Stands(Struct, frozen=True):
    """What stands for an answer that is missing, while its request was given no more than `inputs` things."""

    command: AnyReport
    inputs: int | None = None


class _Answer(Struct, frozen=True):
    said: Said
    held: Held


class Fork:
    """Runs a fork. `step` until it has nothing left to do; `forked` grows meanwhile.

    `live`: questions without a recorded answer are left in `unanswered` for who has a stage; else something stands
    for their answers. `assumes`: what was said in the same turn shall do where it was asked otherwise.
    """

    def __init__(
        self,
        origin: Origin,
        edits: Edits,
        *,
        session: str,
        at: int,
        wanted: Wanted | None = None,
        live: bool = False,
        assumes: bool = False,
        plugins: Registry = REGISTRY,
    ) -> None:
        self.origin = origin
        self.edits = edits
        self.forked = Forked(session, at)
        self.session = core.new()
        self.names = Names(origin.session, session, origin.given)
        self.sounds = Sounds()
        self.asking = Asking(origin, self.names, self.sounds, assumes=assumes)
        self.unanswered: list[fx.AnyEffect] = []
        self._pairing = Pairing(origin, self.names, self.sounds)
        self._wanted = wanted
        self._live = live
        self._plugins = plugins
        self._due: list[tuple[int, Order, int, Outside | _Answer | _Stands]] = []
        self._count = 0
        self._walking = True
        self._useless: int | None = None
        self._ticks = 0
        self._still = 0
        self._patched = False
        self._unheeded = set(edits.lines)
        self._sounded: set[str] = set()
        self._unheard: dict[str, list[Outside]] = {}
        self._begin(at)

    # -- the beginning ---------------------------------------------------------------------------------------

    def _begin(self, at: int) -> None:
        """Do again what is as it was, and lay ready what comes behind that."""
        whole = len(self.origin.transactions)
        parts = self.edits.first or whole + 1
        if self._wanted is not None:
            parts = min(parts, at + 1)
        for transaction in self.origin.transactions[: parts - 1]:
            self._again(transaction)
        self._walking = False
        if self._wanted is not None and at:
            here = updated(self.session, self._wanted)
            events = self._decide(here, self.session.now, "edited", None)
            refused = next((event for event in events if isinstance(event, ev.ErrorReported)), None)
            if refused is not None:
                raise PatchError(f"the session did not take it behind {at}: {refused.message}")
            self._patched = True
        if parts > whole and not self.edits.outside and not self.edits.said:
            return
        for known in outside(self.origin, self.edits, parts):
            self._await(known)
        self.asking.settle(self.edits)
        for held in self.asking.requests.values():
            for said in self.asking.pending(held, parts):
                self._later(said.at, said.order, _Answer(said, held))
            self._expect_cut(held)
        for seq in sorted(self.edits.dropped):
            self._leave(seq, "dropped by an edit")

    def _again(self, transaction: Transaction) -> None:
        """Do a transaction again that is as it was."""
        source: Source = "prefix" if transaction.seq <= self.forked.at else _kind(transaction.command)
        met = self.origin.met[transaction.seq - 1]
        command = told(
            self.names.command(transaction.command),
            met,
            self.session,
            self.forked.session,
            len(self.forked.entries),
        )
        self._decide(command, transaction.at, source, transaction.seq)

    def _await(self, known: Outside) -> None:
        """Let a command come at its time; that an answer was heard, as long after its sound as it was told then."""
        response = None if known.seq is None or known.edited else self.origin.heard.get(known.seq)
        if response is None or self.counterpart(response) in self._sounded:
            self._later(known.at, known.order, known)
        else:
            self._unheard.setdefault(response, []).append(known)

    def _sound(self, event: ev.AudioDelta) -> None:
        """Note when the sound of an answer began, and let what was said of its being heard come."""
        if event.response_id in self._sounded:
            return
        self._sounded.add(event.response_id)
        response = self.names.back(event.response_id)
        for known in self._unheard.pop(response, ()) if response is not None else ():
            later_by = self.session.now - self.origin.sounded[response or ""]
            self._later(known.at + later_by, known.order, known)

    # -- one thing after another -----------------------------------------------------------------------------

    def next_at(self) -> int | None:
        """Return the session time of what comes next; None: nothing does."""
        due, timer = self._due[0][:2] if self._due else None, self._timer()
        known = [when for when in (due, timer) if when is not None]
        return max(min(known)[0], self.session.now) if known else None

    def step(self) -> bool:
        """Do what comes next; False if there is nothing.

        Raises:
            Circling: no time passes any more.
        """
        timer = self._timer()
        if timer is not None and (not self._due or timer < self._due[0][:2]):
            self._ring(timer)
            return True
        if not self._due:
            return False
        at, _, _, what = heapq.heappop(self._due)
        if isinstance(what, Outside):
            self._from_outside(what, at)
        elif isinstance(what, _Answer):
            self._answer(what, at)
        elif what.inputs is None or len(self.asking.requests[what.command.request].inputs) == what.inputs:
            self._decide(what.command, at, "missing", None)
        return True

    def hear(self, report: AnyReport, at: int) -> list[ev.AnyEvent]:
        """Take what a live stage says; return what it decided."""
        return self._decide(report, at, "live", None)

    def give_up(self, held: Held, why: str) -> None:
        """Let a request fail whose live stage says nothing; whatever it says later is not heard."""
        held.live = False
        failed = cmd.StageFailed(request=held.name, code=UNANSWERED, message=why)
        self._decide(failed, self.session.now, "missing", None)

    def _timer(self) -> tuple[int, Order] | None:
        """Return when the next timer rings: as late as in the origin, if it was to ring there too."""
        if self._walking:
            return None
        deadline = core.next_deadline(self.session)
        if deadline is None or deadline == self._useless:
            return None
        at, order = self.origin.timers.get(deadline, (deadline, LAST))
        if max(at, self.session.now) > self._horizon and not self._due and not self._goes_on():
            return None
        return max(at, self.session.now), order

    @property
    def _horizon(self) -> int:
        return max(self.origin.end, self.edits.last_at)

    def _goes_on(self) -> bool:
        """Whether time goes on behind the end of the origin: to the end of a session that had one."""
        return self._ticks < MOST_TICKS and (self.origin.closed or self.session.phase == "closing")

    def _ring(self, timer: tuple[int, Order]) -> None:
        deadline = core.next_deadline(self.session)
        if timer[0] > self._horizon:
            self._ticks += 1
        recorded = timer[1][0] if timer[1] != LAST and timer[1][1] == 0 else None
        events = self._decide(cmd.Tick(), timer[0], "timer", recorded)
        self._useless = None if events else deadline

    def _from_outside(self, known: Outside, at: int) -> None:
        try:
            command = self.names.command(known.command)
        except NeverNamed:
            self._leave(known.seq, "it speaks of something that never was")
            return
        command = told(
            command, self.origin.met[known.met], self.session, self.forked.session, len(self.forked.entries)
        )
        if self._wanted is not None:
            command = self._patch(command)
        events = self._decide(command, at, "edited" if known.edited else "decided", known.seq)
        self._unheeded -= {known.line} if events else set()

    def _patch(self, command: cmd.AnyCommand) -> cmd.AnyCommand:
        assert self._wanted is not None
        if isinstance(command, cmd.OpenSession):
            changed: cmd.AnyCommand = opened(command, self._wanted)
        elif isinstance(command, cmd.UpdateSession):
            changed = replace(command, patch=kept(command.patch, self._wanted))
        else:
            return command
        self._patched = self._patched or changed != command
        return changed

    def counterpart(self, name: str) -> str | None:
        """Return what the fork calls something of the origin, None if there is no such thing in it."""
        try:
            return self.names.forth(name)
        except NeverNamed:
            return None

    @property
    def patched(self) -> bool:
        """Whether what is wanted of the configuration made any difference to it."""
        return self._patched

    def _answer(self, answer: _Answer, at: int) -> None:
        """Let a stage say what it said in the origin, in answer to the same."""
        said, held = answer.said, answer.held
        try:
            report = self.names.command(said.command)
        except NeverNamed:
            self._leave(said.seq, "it speaks of something that never was")
            return
        assert held.origin is not None
        source: Source = "edited" if said.edited else "assumed" if held.assumed else "recorded"
        now = numbered(report, held.origin.inputs[said.cause], held.inputs[said.cause])
        events = self._decide(now, at, source, said.seq)
        self._unheeded -= {said.line} if events else set()

    # -- deciding --------------------------------------------------------------------------------------------

    def _decide(self, command: cmd.AnyCommand, at: int, source: Source, seq: int | None) -> list[ev.AnyEvent]:
        session, forked = self.session, self.forked
        before, now = counted(session), max(at, session.now)
        self._still = self._still + 1 if now == session.now else 0
        if self._still > MOST_ENTRIES_PER_US:
            raise Circling(len(forked.entries))
        try:
            events = core.decide(session, command, now, self._plugins)
        except core.Refusal as refusal:
            if isinstance(command, cmd.OpenSession):
                raise PatchError(f"no session can be opened so: {refusal.message}") from None
            self._leave(seq, f"refused now: {refusal.code}")
            return []
        if not events:
            self._leave(seq, self._why_nothing(command))
            return []
        number = len(forked.transactions) + 1
        for event in events:
            core.evolve(session, event, now)
        was = self.origin.transactions[seq - 1] if seq is not None else None
        self.sounds.note(events, None if was is None else was.events)
        self._pairing.note(session, before, events, seq)
        forked.transactions.append(
            Transaction(
                seq=number,
                term=was.term if was is not None else (forked.transactions[-1].term if forked.transactions else 1),
                at=now,
                command=command,
                events=tuple(events),
            )
        )
        forked.entries.append(Entry(number, source, seq, was is not None and self._as_it_was(was, events)))
        for event in events:
            if isinstance(event, ev.AudioDelta):
                self._sound(event)
            for effect in core.react(session, event, self._plugins):
                for name, what in inputs(effect, number, now):
                    self._give(name, what)
        return events

    def _as_it_was(self, was: Transaction, events: list[ev.AnyEvent]) -> bool:
        """Whether the same was decided as in the origin, but for names and numbers."""
        if self._walking or list(was.events) == events:
            return True
        if [type(event) for event in was.events] != [type(event) for event in events]:
            return False
        return likeness(was.events, self.origin.session) == likeness(events, self.forked.session)

    def _give(self, name: str, given: Given) -> None:
        """Give a request something: what it said then comes as long after it, or there is no answer."""
        if self._walking:
            self.asking.again(name, given)
            return
        held = self.asking.give(name, given)
        if held.parted:
            self._miss(held, given)
            return
        index = len(held.inputs) - 1
        for said in self.asking.answers(held, index):
            self._later(said.at + self.asking.later_by(held, index), said.order, _Answer(said, held))
        self._expect_cut(held)

    def _expect_cut(self, held: Held) -> None:
        """Say where a recorded answer breaks off, if nothing else ends it before."""
        cut = self.asking.cut_at(held)
        if cut is not None:
            failed = cmd.StageFailed(request=held.name, code=UNANSWERED, message=CUT)
            self._later(cut, LAST, _Stands(failed, inputs=1))

    def _miss(self, held: Held, given: Given) -> None:
        """Ask a live stage, or let something stand for the answer."""
        if self._live and (held.live or given.effect is not None):
            self.unanswered += held.questions(given)
            return
        for stands in stand_ins(held, given):
            self._later(given.at, LAST, _Stands(stands))

    def _why_nothing(self, command: cmd.AnyCommand) -> str:
        if self.session.phase == "closed":
            return "the session had ended"
        return "its request was over" if isinstance(command, cmd.StageReport) else "it decides nothing now"

    def account(self) -> Forked:
        """Return the fork, when nothing is left to do, with a reason for all that is not in it."""
        forked, origin = self.forked, self.origin
        known = {entry.origin for entry in forked.entries} | {left.origin for left in forked.left}
        for transaction in origin.transactions:
            if transaction.seq not in known:
                self._leave(transaction.seq, _why_not(transaction.command, self.edits.gone(transaction.seq)))
        forked.unheeded = sorted(self._unheeded)
        return forked

    def _leave(self, seq: int | None, why: str) -> None:
        if seq is not None:
            self.forked.left.append(Left(seq, why))

    def _later(self, at: int, order: Order, what: Outside | _Answer | _Stands) -> None:
        self._count += 1
        heapq.heappush(self._due, (at, order, self._count, what))


def _kind(command: cmd.AnyCommand) -> Source:
    """Return where a command of the origin comes from that is done again behind the prefix."""
    if isinstance(command, cmd.Tick):
        return "timer"
    return "recorded" if isinstance(command, cmd.StageReport) else "decided"


def _why_not(command: cmd.AnyCommand, edited: bool) -> str:
    """Return why a transaction has no place in a fork."""
    if edited:
        return "replaced by an answer to something that was not asked"
    if isinstance(command, cmd.ClientCommand):
        return "the answer that it acknowledges was not heard"
    return (
        "timers ring by the fork's own time" if isinstance(command, cmd.Tick) else "what it answers was not asked"
    )
