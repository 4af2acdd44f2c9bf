"""The hub: admits sessions, attaches connections, keeps runners alive, and takes sessions over at a restart."""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import anyio
import structlog
from anyio.abc import TaskGroup

from antiphon.events.commands import CloseSession, Detach, StageLost, StageReleased, StartRunner
from antiphon.events.events import SessionOpened, SessionResumed
from antiphon.events.log import EventLog, Fenced, LogError, Samples, SessionRow
from antiphon.sessions import core
from antiphon.sessions.plugins import SessionPlugin
from antiphon.stages.base import AnyReport

from .attachment import Attachment, Granted
from .clock import Clock
from .errors import Refused
from .host import PipelineHost
from .live import Live
from .lost import RETRY_US, Lost
from .opening import (
    Opening,
    Resumption,
    opening_command,
    resume_command,
    resume_preparation,
)
from .openings import Openings
from .outcome import Outcome
from .published import Published
from .recovery import fold
from .runner import Runner
from .scoring import LevelScorer, ScoringService
from .settings import HubSettings
from .statistics import Statistics
from .tokens import token

_log = structlog.get_logger()

WARM_UP_S = 20.0
"""How long an opening waits for the stages (WIRE 1.10)."""


class Hub:
    """Everything that is one server. Used as an asynchronous context manager, in the task that leaves it.

    `recovered` is set when every unfinished session of the log has been taken over; `ready` when the stages
    are loaded, or cannot be (`unavailable` then says why). A listener may be open before either.
    """

    def __init__(
        self,
        log: EventLog,
        samples: Samples,
        pipeline: PipelineHost,
        plugin: SessionPlugin,
        settings: HubSettings,
        clock: Clock,
        secret: bytes,
        scorer: ScoringService | None = None,
    ) -> None:
        self.settings = settings
        self.plugin = plugin
        self.clock = clock
        self.recovered = anyio.Event()
        self.ready = anyio.Event()
        self.stopping = anyio.Event()
        self._log = log
        self._samples = samples
        self._pipeline = pipeline
        self._secret = secret
        self._scoring = scorer or ScoringService(LevelScorer(), threaded=False)
        self._plugins = {plugin.name: plugin}
        self._group: TaskGroup = anyio.create_task_group()
        self._live: dict[str, Live] = {}
        self._lost = Lost(clock, self.stopping, self._take_over_safely)
        self._leaving: set[str] = set()
        self._openings = Openings()
        self._admitting = 0
        self._counts = dict.fromkeys(("opened", "resumed", "refused", "closed", "crashed", "recovered"), 0)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        await self._pipeline.start(self._on_report)
        self._group.start_soon(self._await_stages)
        self._group.start_soon(self._recover)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            if error is None:
                await self.shutdown()
            self._group.cancel_scope.cancel()
            return await self._group.__aexit__(kind, error, trace)
        finally:
            await self._pipeline.aclose()

    @property
    def unavailable(self) -> str | None:
        """Why the stages cannot be loaded; None while that is not known."""
        return self._pipeline.unavailable

    def statistics(self) -> Statistics:
        """Return how things stand."""
        runners = [live.runner for live in self._live.values()]
        return Statistics(
            admitted=self._admitted,
            live=len(self._live),
            attached=sum(runner.session.lease.attached for runner in runners),
            max_sessions=self.settings.max_sessions,
            backlog=sum(runner.backlog for runner in runners),
            ahead=sum(runner.ahead for runner in runners),
            **self._counts,
        )

    def session(self, name: str) -> core.Session | None:
        """Return the decided state of a live session, to look at."""
        live = self._live.get(name)
        return live.runner.session if live is not None else None

    async def contain(self, session: Callable[[], str], serve: Callable[[], Awaitable[None]]) -> bool:
        """Run what serves one session from outside; return False if an error of ours ended it (D7).

        The boundary of the hub drawn round a connection: the error is logged with the session's name, and
        nothing else stops for it. What it means for the session is the caller's business.
        """
        try:
            await serve()
        except Exception:
            _log.exception("a connection failed", session=session())
            return False
        return True

    # -- opening ---------------------------------------------------------------------------------------------

    async def open(self, opening: Opening) -> Attachment:
        """Open a session; return when that is durable.

        A cancelled caller leaves no session behind: what was opened for it is closed (B16).

        Raises:
            Refused: `going_away`, `model_not_found`, `resource_exhausted`, `stage_unavailable`,
                `storage_unavailable`, `control_id_reused`, or what the plugin refuses.
        """
        return await self._counting_refusals(self._open(opening))

    async def _open(self, opening: Opening) -> Attachment:
        before = await self._openings.repeated(opening)
        if before is not None:
            return self._reopen(before, opening)
        command = opening_command(opening, self.plugin, self.settings, self.clock, self._secret)
        self._openings.begin(opening)
        opened: str | None = None
        try:
            live = await self._admit(command.session)
            outcome = await live.ask(command, abandoned=lambda _: self._abandon_open(live, opening.control_id))
            entry = _entry(outcome)
            opened = command.session
        finally:
            self._openings.end(opening.control_id, opened)
        self._counts["opened"] += 1
        live.remember(opening.control_id, entry)
        return self._attach(live, entry)

    async def _admit(self, name: str) -> Live:
        """Take a slot and start a runner. The slot is held from the first check on (B3)."""
        if self.stopping.is_set():
            raise Refused("going_away", "The server is shutting down.", retry=True)
        if self._admitted >= self.settings.max_sessions:
            raise Refused("resource_exhausted", "All sessions are taken; try again later.")
        self._admitting += 1
        try:
            await self._warm()
            term = await self._log.acquire(name)
        except LogError as error:
            raise Refused("storage_unavailable", "The session cannot be recorded now.") from error
        finally:
            self._admitting -= 1
        return self._start(core.new(), name, term, head=0)

    async def _warm(self) -> None:
        if not self._pipeline.ready:
            with anyio.move_on_after(WARM_UP_S):
                await self._pipeline.wait_ready()
        if self._pipeline.unavailable is not None:
            raise Refused("stage_unavailable", self._pipeline.unavailable)
        if not self._pipeline.ready:
            raise Refused("resource_exhausted", "The model is still being loaded.")

    @property
    def _admitted(self) -> int:
        held = sum(live.holds_slot for live in self._live.values())
        return self._admitting + held + len(self._lost.names - self._live.keys())

    def _abandon_open(self, live: Live, control_id: str) -> None:
        self._openings.forget(control_id)
        live.runner.post(CloseSession(control_id=f"{control_id}:abandoned", reason="open_abandoned"))

    def _reopen(self, name: str, opening: Opening) -> Attachment:
        """Answer a repeated opening as it was answered."""
        live = self._live.get(name)
        entry = live.answers.get(opening.control_id) if live is not None else None
        if live is None or entry is None or live.runner.session.lease.attachment != 1:
            raise Refused("unknown_session", "The session that this opened is no longer as it was.")
        return self._attach(live, entry)

    # -- resuming --------------------------------------------------------------------------------------------

    async def resume(self, resumption: Resumption) -> Attachment:
        """Attach a new connection to a session; return when that is durable.

        A cancelled caller changes nothing that was decided; the attachment that nobody took is detached.

        Raises:
            Refused: by the code of the first check that fails (D22): `session_resume_expired`,
                `unsupported_session_resume`, `invalid_resume_token`, `session_resume_conflict`,
                `runtime_resume_failed`; `going_away` while sessions are still being taken over or the server
                stops; `storage_unavailable`; `control_id_reused`.
            Resync: the client asks for events that are gone.
        """
        return await self._counting_refusals(self._resume(resumption))

    async def _resume(self, resumption: Resumption) -> Attachment:
        live = await self._find(resumption.session)
        runner = live.runner
        outcome = await live.ask(
            resume_command(resumption),
            prepare=resume_preparation(runner.feed, self._secret, self.settings),
            abandoned=lambda outcome: self._abandon_resume(live, outcome),
        )
        if outcome.error is None and outcome.entry is None:
            return self._again(live, resumption)
        if isinstance(outcome.error, Refused) and outcome.error.code == "session_closed":
            raise Refused("session_resume_expired", "The session has ended.")
        entry = _entry(outcome)
        self._counts["resumed"] += 1
        live.remember(resumption.control_id, entry)
        if resumption.last_number <= runner.feed.number:
            runner.feed.acknowledge(resumption.last_number, self.settings.replay_bytes)
        return self._attach(live, entry)

    async def _find(self, name: str) -> Live:
        """Return a live session; fold it from the store if its runner was lost."""
        if self.stopping.is_set():
            raise Refused("going_away", "The server is shutting down.", retry=True)
        live = self._live.get(name)
        if live is None and name in self._lost:
            live = await self._lost.revive(name) or self._live.get(name)
            if live is None and name in self._lost:
                raise Refused("storage_unavailable", "The session's log cannot be read now.")
        if live is None and not self.recovered.is_set():
            raise Refused("going_away", "Sessions are still being taken over.", retry=True)
        if live is None:
            raise Refused("session_resume_expired", "There is no such session, or it has ended.")
        return live

    def _again(self, live: Live, resumption: Resumption) -> Attachment:
        """Answer a repeated resume as it was answered, if that is still how things stand (C11)."""
        lease = live.runner.session.lease
        known = lease.controls.get(resumption.control_id)
        entry = live.answers.get(resumption.control_id)
        if known is None or entry is None or known.attachment != lease.attachment:
            raise Refused("session_resume_conflict", "The session was taken over in the meantime.")
        return self._attach(live, entry)

    def _abandon_resume(self, live: Live, outcome: Outcome) -> None:
        for event in outcome.entry.transaction.events if outcome.entry is not None else ():
            if isinstance(event, SessionResumed):
                live.runner.post(Detach(generation=event.generation))

    def _attach(self, live: Live, entry: Published) -> Attachment:
        """Make the attachment that a durable transaction has granted."""
        for event in entry.transaction.events:
            if isinstance(event, SessionOpened):
                granted = self._granted(live, entry, attachment=1, lease=0, last=0)
                break
            if isinstance(event, SessionResumed):
                granted = self._granted(
                    live, entry, attachment=event.attachment, lease=event.generation, last=event.last_number
                )
                break
        else:
            raise ValueError("a transaction that attaches nobody")
        attachment = Attachment(live, granted)
        lease = live.runner.session.lease
        if lease.attachment != attachment.generation:
            attachment.end("replaced")
        elif not lease.attached or live.over.is_set():
            attachment.end("detached")
        else:
            live.attach(attachment)
        return attachment

    def _granted(self, live: Live, entry: Published, *, attachment: int, lease: int, last: int) -> Granted:
        session = live.runner.session
        return Granted(
            session=session.id,
            dialect=session.dialect,
            attachment=attachment,
            lease=lease,
            token=token(self._secret, session.id, attachment) if session.resumable else None,
            entry=entry,
            last_number=last,
            unheard=attachment > 1,
        )

    async def _counting_refusals(self, request: Awaitable[Attachment]) -> Attachment:
        try:
            return await request
        except Refused:
            self._counts["refused"] += 1
            raise

    # -- runners ---------------------------------------------------------------------------------------------

    def _start(self, session: core.Session, name: str, term: int, *, head: int) -> Live:
        runner = Runner(
            session,
            name=name,
            term=term,
            head=head,
            log=self._log,
            samples=self._samples,
            host=self._pipeline,
            plugins=self._plugins,
            clock=self.clock,
            tasks=self._group,
            abandoning=self._leaving.update,
        )
        live = Live(runner, self.clock, self.settings, self._scoring)
        self._live[name] = live
        self._group.start_soon(self._supervise, live)
        return live

    async def _supervise(self, live: Live) -> None:
        """Run a session; an error of ours ends it, and no other one."""
        runner = live.runner
        crashed = False
        try:
            await runner.run()
        except Exception:
            _log.exception("a session crashed", session=runner.name)
            self._counts["crashed"] += 1
            crashed = True
        live.end("failed" if crashed or runner.failure is not None else "closed")
        live.over.set()
        if self._live.get(runner.name) is live:
            del self._live[runner.name]
        if runner.session.phase == "closed" and runner.failure is None and not crashed:
            self._counts["closed"] += 1
        elif self._worth_reviving(runner):
            # The slot is held until the log says that the session is over.
            self._lost.add(runner.name)
            self._group.start_soon(self._lost.keep_trying, runner.name, crashed)

    def _worth_reviving(self, runner: Runner) -> bool:
        """Whether nobody else cares for a session whose runner has ended before it."""
        fenced = isinstance(runner.failure, Fenced)
        return not fenced and not self.stopping.is_set() and runner.name not in self._lost

    async def _take_over_safely(self, name: str) -> Live | None:
        """Take a session over; one that cannot be folded, or that is another process's, is left alone."""
        try:
            return await self._take_over(name)
        except Fenced:
            return None
        except LogError:
            raise
        except Exception:
            _log.exception("a session cannot be folded", session=name)
            return None

    async def _take_over(self, name: str) -> Live | None:
        """Become the writer of an unfinished session (DESIGN 4, restart)."""
        term = await self._log.acquire(name)
        folded = await fold(self._log, name)
        if folded is None or folded.session.phase == "closed":
            return None
        live = self._start(folded.session, name, term, head=folded.head)
        lost = core.outstanding(folded.session)
        started = StartRunner(term=term, wall_us=self.clock.wall_us(), grace_ms=self.settings.recovery_grace_ms)
        outcome = await live.ask(started)
        for request in lost:
            live.runner.post(StageLost(request=request))
        if isinstance(outcome.error, LogError):
            raise outcome.error
        return live

    async def _recover(self) -> None:
        """Take over what a former process left unfinished."""
        # Sessions that were opened while the index was read are ours already.
        rows = [row for row in await self._unfinished() if row.session not in self._live]
        for row in rows:
            self._lost.add(row.session)
        for row in rows:
            if row.session in self._lost and await self._lost.revive(row.session) is not None:
                self._counts["recovered"] += 1
            if row.session in self._lost:
                self._group.start_soon(self._lost.keep_trying, row.session, False)
        self.recovered.set()

    async def _unfinished(self) -> list[SessionRow]:
        while True:
            try:
                return await self._log.sessions("open")
            except LogError:
                _log.exception("the log's index cannot be read")
                await self._lost.sleep(RETRY_US)

    async def _await_stages(self) -> None:
        await self._pipeline.wait_ready()
        self.ready.set()

    def _on_report(self, report: AnyReport, sound: bytes) -> None:
        """Carry a stage's report to its session."""
        request = report.request
        if request in self._leaving:
            # The request belongs to a runner that is gone; one of the same name may follow it.
            if isinstance(report, StageReleased | StageLost):
                self._leaving.discard(request)
            return
        live = self._live.get(request.partition(".e")[0])
        if live is not None:
            live.runner.post(report, sound)

    # -- the end ---------------------------------------------------------------------------------------------

    async def shutdown(self) -> None:
        """Stop serving: resumable sessions are detached and stay, the others are closed (DESIGN 5.7).

        Returns when that is durable, or after `shutdown_ms`. May be called before the hub is left.
        """
        if self.stopping.is_set():
            return
        self.stopping.set()
        with anyio.move_on_after(self.settings.shutdown_ms / 1000):
            async with anyio.create_task_group() as group:
                for live in tuple(self._live.values()):
                    group.start_soon(self._retire, live)

    async def _retire(self, live: Live) -> None:
        runner = live.runner
        session = runner.session
        if session.resumable:
            await live.ask(Detach(generation=session.lease.generation, reason="shutdown"))
        else:
            await live.ask(CloseSession(control_id=f"{runner.name}:shutdown", reason="shutdown"))
            await live.over.wait()
        runner.stop()
        await live.over.wait()


def _entry(outcome: Outcome) -> Published:
    """Return the durable transaction of an outcome, or raise what stands in its place."""
    if isinstance(outcome.error, LogError):
        raise Refused("storage_unavailable", "The session cannot be recorded now.") from outcome.error
    if outcome.error is not None:
        raise outcome.error
    if outcome.entry is None:
        raise Refused("internal_error", "The request decided to nothing.")
    return outcome.entry
