"""A world: processes that follow each other, clients, a disk, stages, and a script of what happens to them."""

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import msgspec

from antiphon.engine.errors import Refused
from antiphon.engine.orphans import session_of
from antiphon.events import ids
from antiphon.events.audio import SampleRef
from antiphon.events.events import AudioReceived, OverlapDecided, ResponseEnded
from antiphon.events.log import Transaction, encode
from antiphon.sessions import core
from antiphon.sessions.models.base import TurnModel
from antiphon.sessions.plugins import CASCADE, ECHO
from antiphon.stages.base import Submit

from .faults import FAULTS
from .guest import Guest
from .loop import SimClock, SimLoop
from .monitors import GRANTS, LogMonitor, Talk, WireMonitor
from .net import Line, Reader
from .peer import Peer, Shown
from .process import Process
from .script import Script, Step
from .seeded import seeded
from .stage import is_loud
from .store import Disk, ProcessLog
from tests.sessions.world import BESIDE, MEMORY

MODELS: dict[str, TurnModel] = {
    "cascade": CASCADE,
    "beside": BESIDE,
    "echo": ECHO,
    "memory": msgspec.structs.replace(MEMORY, priming_units=2, gate=1),
    "unit": msgspec.structs.replace(
        ECHO, capabilities=msgspec.structs.replace(ECHO.capabilities, chunk_period_ms=80)
    ),
}


class Broken(AssertionError):
    """A rule was broken: which one, in which step of the script."""


class World:
    """Runs one script. `counts` is what happened, `seen` what must be seen in some world."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.loop = SimLoop()
        self.clock = SimClock(self.loop)
        self.plugin = MODELS[script.settings.model]
        self.plugins = {self.plugin.name: self.plugin}
        self.rng = random.Random(f"world {script.seed}")
        self.faults: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.actions = 0
        self.at = -1
        self.resting = False
        self.trace = hashlib.blake2b(digest_size=16)
        self.logs: dict[str, LogMonitor] = {}
        self.wires: dict[str, WireMonitor] = {}
        self.talks: dict[int, Talk] = {}
        self.processes: list[Process] = []
        self.lines = 0
        self.messages = 0
        self.tokens = 0
        self.peers: list[Peer | Guest] = []

    # -- what is noted ---------------------------------------------------------------------------------------

    def fault(self, kind: str) -> None:
        """A fault was put in."""
        self.faults[kind] += 1

    def saw(self, kind: str) -> None:
        """Something rare has happened."""
        self.seen[kind] += 1

    def token(self, size: int = 16) -> str:
        """Return what is random elsewhere."""
        self.tokens += 1
        return f"{self.script.seed:08x}{self.tokens:0{2 * size - 8}x}"

    def blame(self, error: BaseException) -> None:
        """End the run: `error` says which rule was broken, from within whatever noticed it."""
        if self.loop.failure is None:
            self.loop.failure = error

    # -- witnesses -------------------------------------------------------------------------------------------

    def decided(self, log: ProcessLog, session: str, transaction: Transaction) -> None:
        """See `Witness`."""
        try:
            process = next(process for process in self.processes if process.log is log)
            if transaction.term != self.disk.term(session):
                self.saw("a fenced writer decides")
                return
            live = process.hub.session(session)
            assert live is not None
            monitor = self.logs.get(session)
            if monitor is None:
                monitor = self.logs[session] = LogMonitor(session, self.plugins)
            monitor.writer = log
            monitor.decided(transaction, live, self.disk)
            self.trace.update(session.encode())
            self.trace.update(encode(transaction))
            self._notice(transaction)
        except Exception as error:
            self.blame(error)

    def durable(self, session: str, transaction: Transaction) -> None:
        """See `Witness`."""
        monitor = self.logs.get(session)
        if monitor is not None:
            try:
                monitor.recorded(transaction)
            except AssertionError as error:
                self.blame(error)

    def told(self, session: str, transaction: Transaction) -> None:
        """See `Witness`."""
        monitor = self.logs.get(session)
        if monitor is not None:
            monitor.told(transaction)

    def heard(self, peer: Peer, line: Line, shown: Shown, data: bytes) -> None:
        """A client got a message."""
        self.trace.update(data)
        self.messages += 1
        book = peer.book_of(line)
        name = str(shown.session["id"]) if shown.type == "session.created" and shown.session else book.session
        talk = self.talks.get(id(line))
        if talk is None:
            talk = self.talks[id(line)] = Talk()
        wire = self.wires.get(name)
        if wire is None:
            wire = self.wires[name] = WireMonitor(name, peer.dialect, self.logs.get(name))
        if shown.type in GRANTS:
            wire.talks.append(talk)
        try:
            wire.heard(line, talk, shown, data, book)
            peer.judge(line, shown)
        except AssertionError as error:
            self.blame(error)
        if shown.type == "session.resync_required":
            self.saw(f"resync: {shown.reason}")
        elif shown.type == "session.replaced":
            self.saw("a connection is replaced")
        elif shown.type == "error" and shown.error is not None:
            self.saw(f"error: {shown.error.get('code')}")

    def _notice(self, transaction: Transaction) -> None:
        for event in transaction.events:
            name = type(event).__name__
            if name in NOTED:
                reason = next((getattr(event, key) for key in REASONS if getattr(event, key, None)), None)
                self.saw(f"{name}: {reason}" if reason else name)
            elif isinstance(event, ResponseEnded) and event.cut is not None:
                self.saw("a function call is cut short")
            elif isinstance(event, OverlapDecided):
                self.saw(f"OverlapDecided: {event.reason}")

    def _sounds(self, name: str, log: list[Transaction]) -> None:
        """What lies in the store is what the detector has heard, where it heard it (P29)."""
        for transaction in log:
            for event in transaction.events:
                if isinstance(event, AudioReceived) and event.scored:
                    for number, score in enumerate(event.scores):
                        at = event.ref.start - 2 * event.lead + 1024 * number
                        if at < event.ref.start:
                            continue  # its first frame began in another append
                        middle = self.disk.sound(name, SampleRef("in", at + 512, 2))
                        same = is_loud(middle) == (score > 500)
                        assert same or not middle, f"P29: {event.ref} is not what was heard"

    # -- what is done ----------------------------------------------------------------------------------------

    @property
    def process(self) -> Process:
        """The newest life of the server."""
        return self.processes[-1]

    def dial(self, reader: Reader, path: str, headers: str) -> Line | None:
        """Connect to the server, if there is one that listens."""
        process = self.process
        if not process.listens:
            return None
        self.lines += 1
        rng = random.Random(f"{self.script.seed} line {self.lines}")
        most = self.script.settings.latency_us
        line = Line(self.loop, process.server._upgraded, reader, path, headers, lambda: rng.randrange(most + 1))
        process.lines.append(line)
        if isinstance(reader, Peer):
            line.leaves = lambda data: self._leaves(reader, line, data)
        return line

    def _leaves(self, peer: Peer, line: Line, data: bytes) -> None:
        """Sound that an interruption has voided leaves no more (P15, DESIGN 5.11)."""
        if b"audio.delta" not in data[:40] or b'"delta":""' in data:
            return
        self.saw("sound leaves for a client")
        if line.silent or line is not peer.line:
            return  # nobody is at its other end any more
        log = self.logs.get(peer.book_of(line).session)
        found = data.find(b"event_", 40)
        place = ids.parse_event_id(data[found : found + 38].decode())
        if log is not None and place is not None and place.seq in log.voided:
            text = f"P15, 5.11: sound of transaction {place.seq} leaves behind its interruption"
            self.blame(AssertionError(text))

    def given(self, process: Process, submit: Submit) -> None:
        """A stage is given a request: the sound that it brings is what was received (P29).

        Not looked at where that may lie nowhere: a disk that refuses, or a rival, has undone what was decided.
        """
        if not process.alive or self.faults["disk refuses"] or self.faults["a rival process"]:
            return
        session = session_of(submit.request)
        for ref, data in submit.sound:
            if process.log.sound(session, ref) != data:
                self.blame(AssertionError(f"P29: {ref} is not what was received"))

    def after_step(self) -> None:
        """Ask of the whole what can be asked at any time (P53)."""
        process = self.processes[-1] if self.processes else None
        if process is not None and process.alive:
            admitted = process.hub._admitted
            assert admitted <= process.hub.settings.max_sessions or self.faults["a rival process"], "P53: too many"

    async def run(self) -> None:
        """Carry the script out, then let everything end, and look at what is left."""
        self.loop.after = self.after_step
        self.disk = Disk(self.loop, self, self.rng, self.script.settings.commit_us)
        async with anyio.create_task_group() as group:
            self.group = group
            self.begin()
            for who, kind in enumerate(self.script.settings.peers):
                self.peers.append(Guest(self, who) if kind == "inline" else Peer(self, who, kind))
            for at, step in enumerate(self.script.steps):
                self.at = at
                if step.gap_us:
                    await self.clock.sleep_until(self.clock.monotonic_us() + step.gap_us)
                self._do(step)
            self.at = len(self.script.steps)
            await self._come_to_rest()
            group.cancel_scope.cancel()

    def begin(self) -> None:
        """Start a process, beside or behind those that there were."""
        process = Process(
            len(self.processes),
            self.script,
            self.disk,
            self.clock,
            self.plugin,
            fault=self.fault,
            given=self.given,
        )
        self.processes.append(process)
        self.group.start_soon(process.run)

    def begin_again(self, process: Process, ms: int) -> None:
        """Start a process so long after that one has ended, if none has taken its place."""

        async def follow() -> None:
            await process.over.wait()
            await self.wait(ms)
            if self.process is process and not self.resting:
                self.begin()

        self.group.start_soon(follow)

    async def wait(self, ms: int) -> None:
        """Let time pass."""
        await self.clock.sleep_until(self.clock.monotonic_us() + ms * 1000)

    def _do(self, step: Step) -> None:
        self.actions += 1
        if step.what in FAULTS:
            FAULTS[step.what](self, step)
            return
        peer = self.peers[step.who % len(self.peers)]
        act: Callable[[Step], None] | None = getattr(peer, step.what, None)
        if act is not None:
            act(step)

    async def _come_to_rest(self) -> None:
        """Nothing goes wrong any more: everybody leaves, and nothing may be left (P13, P27, P37, P47, P53, P54)."""
        process = await self._last_process()
        process.stage.mood = "well"
        process.log.refusals, process.log.crash = 0, None
        process.scoring.deaf = 0
        with anyio.move_on_after(30):
            await process.hub.ready.wait()
        await self.wait(3_000)
        for peer in self.peers:
            await peer.leave() if isinstance(peer, Guest) else peer.leave()
        await self.wait(5_000)
        for name in self.disk.names:
            if self._open(name):
                with suppress(Refused):
                    await process.hub.close(name, f"{name}:end")
        for _ in range(40):
            if not process.hub.statistics().admitted:
                break
            await self.wait(10_000)
        statistics = process.hub.statistics()
        assert statistics.admitted == 0, f"P53: {statistics.admitted} slots are still held"
        assert not process.stage.live, f"P13: the stage still holds {list(process.stage.live)}"
        assert statistics.crashed == 0, "M10: a session crashed"
        for name in self.disk.names:
            self._ended(name)
        process.stopping.set()
        await process.over.wait()

    async def _last_process(self) -> Process:
        """Return a process that will not end by itself; all others end now."""
        self.resting = True
        for process in self.processes[:-1]:
            process.kill(0)
        process = self.process
        process.log.crash = None
        if self.faults["a rival process"]:
            process.kill(0)  # whom a rival has fenced, and left, is taken over at the next start
        if process.stopping.is_set() or not process.alive:
            await process.over.wait()
            self.begin()
        return self.process

    def _open(self, name: str) -> bool:
        rows = self.disk.recorded(name)
        return bool(rows) and not any(type(event).__name__ == "SessionClosed" for event in rows[-1].events)

    def _ended(self, name: str) -> None:
        log = self.disk.recorded(name)
        session = core.fold(log)
        assert session.phase == "closed", f"P47, P54: {name} never ends"
        assert session.input.reserved == 0, "P27: bytes are still reserved"
        if self.logs[name].term == self.disk.term(name) and self.logs[name].writer is self.process.log:
            assert not core.outstanding(session), "P13: requests were never cleaned up"
        if self.script.seed % 100 == 0:
            self.logs[name].from_the_beginning(log)
        self._sounds(name, log)
        if name in self.wires:
            self.wires[name].at_the_end(log, lambda ref: self.disk.sound(name, ref))

    def spawn(self, act: Callable[[], Awaitable[object]], step: Step) -> None:
        """Begin a call that may be cancelled at any of its awaits."""
        limit = step.c % 40

        async def run() -> None:
            with anyio.CancelScope() as scope:
                if step.c % 3 == 0:
                    self.fault("a caller is cancelled")
                    self.loop.call_later(limit * 0.0005, scope.cancel)
                await act()

        self.group.start_soon(run)


REASONS = ("reason", "cause", "sentence")

NOTED = frozenset(
    {
        "Interrupted",
        "SessionResumed",
        "SessionDetached",
        "EngineRestarted",
        "SessionClosed",
        "AsideCancelled",
        "ResponseDrains",
        "InputDiscarded",
        "HoldEnded",
        "CommandHeld",
        "AnswerDeferred",
        "AttachmentWithdrawn",
        "CleanupRetried",
        "CleanupFailed",
        "UnitsGivenUp",
        "UnitsReturned",
        "ItemTruncated",
        "HistoryCut",
        "InterruptionSuspected",
        "InterruptionDismissed",
        "InterruptionDoubted",
        "OutputHeld",
        "PreviewRequested",
        "TurnPreviewed",
        "PreviewDropped",
        "InputTimedOut",
    }
)


def live(script: Script) -> World:
    """Run a script in a world of its own.

    Raises:
        Broken: a rule was broken; its cause says which.
    """
    world = World(script)
    try:
        with seeded(world):
            world.loop.run(world.run())
        left = [task.get_name() for task in asyncio.all_tasks(world.loop) if not task.done()]
        assert not left, f"Q2: tasks are left: {left}"
    except Exception as error:
        raise Broken(f"seed {script.seed}, step {world.at}: {_first(error)}") from error
    return world


def _first(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
