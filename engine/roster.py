"""The sessions of a server that go on: those with a runner, and those that are to be taken over."""

from collections.abc import Iterator

import anyio
import structlog
from anyio.abc import TaskGroup

from antiphon.events.commands import CloseSession, Detach, StageLost, StageReleased, StartRunner
from antiphon.events.ids import is_request
from antiphon.events.log import Corrupt, EventLog, Fenced, LogError, Samples, SessionRow, Unavailable
from antiphon.sessions import core
from antiphon.sessions.phases import LEFT, LIVE, RequestPhase
from antiphon.sessions.plugins import SessionPlugin
from antiphon.stages.base import AnyReport

from .boundary import contained
from .clock import Clock
from .errors import Refused
from .host import PipelineHost
from .live import Live
from .lost import RETRY_US, Lost
from .orphans import Orphans, session_of
from .recovery import fold
from .restart import Outcome, Restart, bring_back
from .runner import Meter, Runner
from .scoring import ScoringService
from .settings import HubSettings
from .statistics import Counts
from .storage import Storage

_log = structlog.get_logger()

OVERTAKEN = "Another process serves this session now; connect again."
KEPT_FENCED = 1024


class Roster:
    """Starts runners, keeps sessions alive whose runner has ended, and takes over what a former process left.

    `recovered` is set when that is done. Tasks run in `tasks`; nothing new is begun once `stopping` is set.
    """

    def __init__(
        self,
        *,
        log: EventLog,
        samples: Samples,
        pipeline: PipelineHost,
        plugin: SessionPlugin,
        settings: HubSettings,
        clock: Clock,
        scoring: ScoringService,
        tasks: TaskGroup,
        stopping: anyio.Event,
    ) -> None:
        self.live: dict[str, Live] = {}
        self.recovered = anyio.Event()
        self.counted = anyio.Event()
        """Set when it is known which sessions a former process left: they hold their slots from then on."""
        self.restart = Restart()
        """How far the taking over is."""
        self.dead = False
        """Whether the engine has ended by an error (M16)."""
        self.counts = Counts()
        self.meters: list[Meter] = []
        """Told of everything that is published, by every runner."""
        self._log = log
        self._samples = samples
        self._pipeline = pipeline
        self._plugin = plugin
        self._settings = settings
        self._clock = clock
        self._scoring = scoring
        self._tasks = tasks
        self._stopping = stopping
        self._folding = anyio.Lock()
        """Held while a session is folded: a thread that reads and a loop that folds keep each other waiting for the
        interpreter, and two of each at a time need twice as long for the same work."""
        self._lost = Lost(clock, stopping, tasks, self._take_over, self._give_up)
        self._elsewhere: dict[str, str] = {}
        """Sessions that another pipeline's server serves, and the plugin that they need."""
        self._fenced: dict[str, None] = {}
        """Sessions that another process took over from this one, the last of them."""
        self._orphans = Orphans(clock, pipeline.abort, lambda request: self._phase(request) in LIVE)
        self._crowded: set[str] = set()
        self.storage = Storage(log, clock, tasks, stopping)
        self._damaged: dict[str, int] = {}
        """Sessions with a record that was durable and is so no more, and its sequence: what a client may have seen
        is not cut off, so nobody can go on with them."""

    @property
    def slots(self) -> int:
        """How many sessions count against `max_sessions`: what they need is held, or may still be (B2, P53)."""
        return len({name for name in self._held() if not is_request(name)})

    @property
    def requests(self) -> int:
        """How many HTTP requests count against `max_requests`."""
        return len({name for name in self._held() if is_request(name)})

    def _held(self) -> Iterator[str]:
        yield from (name for name, live in self.live.items() if live.holds_slot)
        yield from self._lost.names
        yield from self._orphans.sessions

    def owned(self, owner: str) -> int:
        """Return how many sessions of an API key hold a slot, requests too, by its public id."""
        held = {name for name, live in self.live.items() if live.owner == owner and live.holds_slot}
        held.update(self._lost.owned(owner))
        return len(held)

    @property
    def unclaimed(self) -> int:
        """How many sessions there are of which nobody knows yet whose they are."""
        return sum(1 for _ in self._lost.owned(""))

    @property
    def uncleaned(self) -> int:
        """How many requests the stages were told to forget, and have not confirmed (M12)."""
        known = (known for live in self.live.values() for known in live.runner.session.requests.values())
        return sum(request.phase in LEFT for request in known) + self._orphans.count

    async def find(self, name: str) -> Live:
        """Return a live session; take it over first if its runner was lost.

        Raises:
            Refused: `storage_unavailable`, `stage_unavailable` (it needs another pipeline), `going_away` (it may
                still be taken over, here or by the next process), `engine_dead`, `session_resume_expired`.
        """
        live = self.live.get(name)
        if live is None and name in self._lost:
            self.refuse_if_stopping()
            live = await self._lost.revive(name) or self.live.get(name)
            if live is None and name in self._lost:
                raise Refused("storage_unavailable", "The session's log cannot be read now.")
        if live is not None:
            return live
        if not self.recovered.is_set():
            raise Refused("going_away", "Sessions are still being taken over.", retry=True)
        if name in self._fenced:
            raise Refused("storage_unavailable", OVERTAKEN)
        if name in self._elsewhere:
            raise Refused(
                "stage_unavailable",
                f"The session needs a pipeline with the plugin {self._elsewhere[name]}; another one runs here.",
            )
        if name in self._damaged:
            raise Refused(
                "session_resume_expired",
                f"The session cannot go on: record {self._damaged[name]} of its log is damaged.",
            )
        raise Refused("session_resume_expired", "There is no such session, or it has ended.")

    def refuse_if_stopping(self) -> None:
        """Begin nothing new once the server stops.

        Raises:
            Refused: `going_away`, `engine_dead`.
        """
        if self.dead:
            raise Refused("engine_dead", "The server has ended.")
        if self._stopping.is_set():
            raise Refused("going_away", "The server is shutting down.", retry=True)

    # -- runners ---------------------------------------------------------------------------------------------

    def start(
        self, session: core.Session, name: str, term: int, *, head: int, owner: str, snapshot: int = 0
    ) -> Live:
        """Begin to run a session whose term was acquired; a runner that it still had stops at once.

        `snapshot` is the place of the last one that can be used.
        """
        before = self.live.get(name)
        runner = Runner(
            session,
            name=name,
            term=term,
            head=head,
            snapshot=snapshot,
            log=self._log,
            samples=self._samples,
            host=self._pipeline,
            plugins={self._plugin.name: self._plugin},
            clock=self._clock,
            abandoning=self._orphans.add,
            counts=self.counts,
            meters=self.meters,
        )
        live = self.live[name] = Live(runner, self._clock, self._settings, self._scoring, owner)
        runner.crowding = self._crowding
        self._tasks.start_soon(self._supervise, live)
        if before is not None:
            before.runner.stop()
        return live

    async def _supervise(self, live: Live) -> None:
        """Run a session; an error of ours ends it, and no other one."""
        runner = live.runner
        try:
            sound = await contained("a session crashed", lambda: runner.name, runner.run)
        except anyio.get_cancelled_exc_class():
            live.end("shutdown" if self._stopping.is_set() and not self.dead else "engine_dead")
            live.over.set()
            raise
        self.counts.crashed += not sound
        if isinstance(runner.failure, LogError) and not isinstance(runner.failure, Fenced):
            why = str(runner.failure)
            _log.error("a session cannot be recorded; it is given up for now", session=runner.name, why=why)
            self.storage.failed(runner.failure)
        replaced = self.live.get(runner.name) is not live
        orderly = sound and runner.failure is None and not replaced
        live.end("closed" if orderly else "failed")
        live.over.set()
        if replaced:
            return
        del self.live[runner.name]
        if orderly and runner.session.phase == "closed":
            self.counts.closed += 1
        elif isinstance(runner.failure, Fenced):
            self._give_away(runner.name)
        elif self._worth_reviving(runner):
            # The slot is held until the log says that the session is over.
            self._lost.add(runner.name, crashed=not sound, owner=live.owner)
            self._lost.keep_trying(runner.name)

    def _give_away(self, name: str) -> None:
        """Note that another process serves a session now: its client shall find it there."""
        self._fenced[name] = None
        if len(self._fenced) > KEPT_FENCED:
            del self._fenced[next(iter(self._fenced))]

    def _give_up(self, name: str, damage: Corrupt) -> None:
        self._damaged[name] = damage.seq

    def _worth_reviving(self, runner: Runner) -> bool:
        """Whether nobody else cares for a session whose runner has ended before it."""
        if runner.failure is None and runner.session.phase == "new":
            return False  # it was never opened
        return not self._stopping.is_set() and runner.name not in self._lost

    def on_report(self, report: AnyReport, sound: bytes) -> None:
        """Carry a stage's report to its session."""
        request = report.request
        if self._orphans.sessions and request in self._orphans:
            if isinstance(report, StageReleased | StageLost):
                self._orphans.settle(request)
            # It belongs to a runner that is gone, and one of the same name may follow it. What the next runner has
            # taken over to be cleaned up is the same request, and it is told.
            if self._phase(request) not in LEFT:
                return
        live = self.live.get(session_of(request))
        if live is not None:
            live.runner.post(report, sound)

    def _phase(self, request: str) -> RequestPhase | None:
        live = self.live.get(session_of(request))
        known = live.runner.session.requests.get(request) if live is not None else None
        return known.phase if known is not None else None

    def close(self) -> None:
        """Forget what the stages still hold: they end too."""
        self._orphans.close()

    def _crowding(self, name: str, crowded: bool) -> None:
        """Let the stages wait while any session has too much to take: it is the store that stands."""
        if crowded:
            self._crowded.add(name)
        else:
            self._crowded.discard(name)
        self._pipeline.pause(bool(self._crowded))

    async def retire(self) -> None:
        """Detach the sessions that can be resumed and close the others; return when all runners have ended."""
        async with anyio.create_task_group() as group:
            for live in tuple(self.live.values()):
                group.start_soon(_retire, live)

    # -- taking over -----------------------------------------------------------------------------------------

    async def recover(self) -> None:
        """Take over what a former process left unfinished, but for what only another pipeline can serve."""
        # Sessions that were opened while the index was read are ours already.
        rows = [row for row in await self._unfinished() if row.session not in self.live]
        ours = [row.session for row in rows if self._can_serve(row)]
        for name in ours:
            self._lost.add(name)
        self.restart.left = len(ours)
        self.counted.set()
        await bring_back(ours, self._bring_back, self.restart, self._stopping)
        if not self._stopping.is_set():
            self.recovered.set()

    async def _bring_back(self, name: str) -> Outcome:
        """Take over one; whoever wants it at once may have done so already."""
        live = self.live.get(name)
        if name in self._lost:
            live = await self._lost.revive(name)
            if name in self._lost:
                self._lost.keep_trying(name)
        if live is None:
            return "left alone"
        self.counts.recovered += 1
        return "back" if live.runner.session.phase == "open" else "ended"

    def _can_serve(self, row: SessionRow) -> bool:
        """Whether the session's plugin is the one that runs here; if not, the session is left alone in the log."""
        if (row.plugin, row.plugin_version) == (self._plugin.name, self._plugin.version):
            return True
        self._elsewhere[row.session] = f"{row.plugin} {row.plugin_version}"
        _log.warning(
            "a session of another pipeline is left alone",
            session=row.session,
            plugin=row.plugin,
            plugin_version=row.plugin_version,
        )
        return False

    async def _unfinished(self) -> list[SessionRow]:
        told = False
        while True:
            try:
                return await self._log.sessions("open")
            except LogError as error:
                if not told:
                    _log.error("the log's index cannot be read; it is tried again and again", why=str(error))
                told = True
                await self._clock.sleep_until(self._clock.monotonic_us() + RETRY_US)

    async def _take_over(self, name: str) -> Live | None:
        """Become the writer of an unfinished session (DESIGN 4, restart); raises as `TakeOver` says."""
        term = await self._log.acquire(name)
        async with self._folding:
            folded = await fold(self._log, name)
        if folded is None or folded.session.phase == "closed":
            return None
        owner = folded.session.owner
        live = self.start(folded.session, name, term, head=folded.head, owner=owner, snapshot=folded.snapshot)
        started = StartRunner(term=term, wall_us=self._clock.wall_us(), grace_ms=self._settings.recovery_grace_ms)
        outcome = await live.ask(started)
        if isinstance(outcome.error, LogError):
            raise outcome.error
        if live.over.is_set() and live.runner.session.phase != "closed":
            raise live.runner.failure or Unavailable("the runner has ended again")
        self.storage.works()
        return live


async def _retire(live: Live) -> None:
    runner = live.runner
    session = runner.session
    if session.resumable:
        await live.ask(Detach(generation=session.lease.generation, reason="shutdown"))
    else:
        await live.ask(CloseSession(control_id=f"{runner.name}:shutdown", reason="shutdown"))
        await live.over.wait()
    runner.stop()
    await live.over.wait()
    await runner.keep()
