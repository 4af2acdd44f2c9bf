"""The hub: admits sessions, attaches connections to them, and ends in order."""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import asdict

from antiphon.events.commands import CloseSession, Detach
from antiphon.events.events import SessionResumed, SessionView
from antiphon.events.ids import is_request
from antiphon.events.log import EventLog, LogError, Samples
from antiphon.sessions import core
from antiphon.sessions.plugins import SessionPlugin

from .attachment import Attachment
from .boundary import contained
from .census import Census, census
from .clock import Clock
from .errors import Refused, Resync
from .host import PipelineHost
from .keeper import Needs
from .live import Live
from .naming import ABANDONED, Naming
from .observing import Observation, Observer, observe
from .opening import (
    Opening,
    Resumption,
    granted,
    opening_command,
    preview,
    resume_command,
    resume_preparation,
)
from .openings import Openings
from .outcome import Outcome, decided, durable
from .plugins import check_plugin
from .published import Published
from .restart import Restart
from .roster import OVERTAKEN, Roster
from .runner import Meter
from .scoring import LevelScorer, ScoringService
from .settings import HubSettings
from .statistics import Statistics
from .warm_up import WarmUp

WARM_UP_S = 20.0
"""How long an opening waits for the stages, and for the warm-up (WIRE 1.10)."""

WARMING = "The model is being warmed up."
STILL_TAKEN_OVER = "Sessions are still being taken over; try again later."


class Hub:
    """Everything that is one server. Used as an asynchronous context manager, in the task that leaves it.

    A listener may be open before the stages are loaded and the sessions of a former process taken over.
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
        self.stopping = anyio.Event()
        self._log = log
        self._samples = samples
        self._pipeline = pipeline
        self._secret = secret
        self._group: TaskGroup = anyio.create_task_group()
        self._roster = Roster(
            log=log,
            samples=samples,
            pipeline=pipeline,
            plugin=plugin,
            settings=settings,
            clock=clock,
            scoring=scorer or ScoringService(LevelScorer(), threaded=False),
            tasks=self._group,
            stopping=self.stopping,
        )
        self._live = self._roster.live
        self._counts = self._roster.counts
        self._openings = Openings()
        units = plugin.warmup_units if settings.warm_up_units is None else settings.warm_up_units
        self._warm_up = WarmUp(units, pipeline, plugin.capabilities, clock)
        self._naming = Naming(log, plugin, secret, self._live)
        self._admitting = Counter[bool]()
        """Openings that hold a place already, requests and conversations."""
        self._claims: Counter[str] = Counter()
        """Openings of each owner that have no runner yet."""
        self._retired = False

    async def __aenter__(self) -> Self:
        check_plugin(self.plugin)
        await self._group.__aenter__()
        try:
            await self._pipeline.start(self._roster.on_report)
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        self._group.start_soon(self._roster.recover)
        if not self._warm_up.over.is_set():
            self._group.start_soon(self._warm_up.run, self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if error is not None:
            self._roster.dead = True
            self.stopping.set()
            return await self._end(kind, error, trace)
        try:
            await self.shutdown()
        except BaseException as cancelled:
            await self._end(type(cancelled), cancelled, cancelled.__traceback__)
            raise
        return await self._end(None, None, None)

    async def _end(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """End what still runs, and the stages behind it."""
        try:
            self._roster.close()
            self._group.cancel_scope.cancel()
            return await self._group.__aexit__(kind, error, trace)
        finally:
            await self._pipeline.aclose()

    @property
    def recovered(self) -> anyio.Event:
        """Set when every unfinished session of the log has been taken over, or is left alone."""
        return self._roster.recovered

    @property
    def counted(self) -> anyio.Event:
        """Set when it is known how many sessions a former process left."""
        return self._roster.counted

    @property
    def restart(self) -> Restart:
        """How far the taking over of these is."""
        return self._roster.restart

    @property
    def ready(self) -> anyio.Event:
        """Set while the stages are loaded, or cannot be; another one takes its place when they are lost."""
        return self._pipeline.known

    @property
    def not_ready(self) -> str | None:
        """Why no session can be served now: the stages are loading, restarting, `unavailable` or being warmed up,
        or the log cannot be written; None if one can."""
        warming = None if self._warm_up.over.is_set() else WARMING
        return self._pipeline.not_ready or self._roster.storage.trouble or warming

    @property
    def unavailable(self) -> str | None:
        """Why the stages cannot be loaded at all; None while that is not known."""
        return self._pipeline.unavailable

    @property
    def log(self) -> EventLog:
        """What was recorded of all sessions, to be read."""
        return self._log

    @property
    def samples(self) -> Samples:
        """The sound of all sessions, to be read."""
        return self._samples

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
            uncleaned=self._roster.uncleaned,
            **asdict(self._counts),
        )

    def census(self) -> Census:
        """Count the live sessions by what they do."""
        return census(live.runner for live in self._live.values())

    def measure(self, meter: Meter) -> None:
        """Tell a meter of every transaction of every session when it has become durable, until the hub ends.

        It is a plain call on the path of every event: it must be quick, and what goes wrong in it is only logged.
        """
        self._roster.meters.append(meter)

    def session(self, name: str) -> core.Session | None:
        """Return the decided state of a live session, to look at."""
        live = self._live.get(name)
        return live.runner.session if live is not None else None

    async def needs(self, session: str) -> Needs | None:
        """Return what a live session needs of its sound; None if it is not live here.

        Raises:
            LogError: the store cannot be read.
        """
        live = self._live.get(session)
        if live is None:
            return None
        after = await live.runner.feed.oldest_wanted()
        return Needs(core.places(live.runner.session), after)

    def accompany(self, task: Callable[[], Coroutine[object, object, None]]) -> None:
        """Run a task beside the sessions, as long as the hub; an error of it ends the hub."""
        self._group.start_soon(task)

    async def contain(self, session: Callable[[], str], serve: Callable[[], Awaitable[None]]) -> bool:
        """Run what serves one session from outside; return False if an error of ours ended it (D7).

        The boundary round a session, drawn round its connection too: what the error means for the session is the
        caller's business.
        """
        return await contained("a connection failed", session, serve)

    # -- opening ---------------------------------------------------------------------------------------------

    async def open(self, opening: Opening) -> Attachment:
        """Open a session; return when that is durable.

        A cancelled caller leaves no session behind: what was opened for it is closed (B16).

        Raises:
            Refused: `going_away`, `model_not_found`, `resource_exhausted`, `stage_unavailable`,
                `storage_unavailable`, `control_id_reused`, `session_closed` (it is repeated, and what it opened has
                ended), `timeout`, or what the plugin refuses.
        """
        return await self._counting_refusals(self._open(opening))

    def preview(self, opening: Opening) -> SessionView:
        """Return the session that an opening would make, as it would be shown. Nothing is opened.

        Raises:
            Refused: `model_not_found`, or what the plugin refuses.
        """
        return preview(opening, self.plugin, self.settings, self.clock, self._secret)

    async def open_held(self, opening: Opening) -> Attachment:
        """Open a session although clients are held until the warm-up is over; raises as `open` does."""
        return await self._open(opening, waits=False)

    async def _open(self, opening: Opening, *, waits: bool = True) -> Attachment:
        before = await self._openings.repeated(opening)
        if before is not None:
            return await self._reopen(before, opening.control_id)
        command = opening_command(opening, self.plugin, self.settings, self.clock, self._secret)
        begun = self._openings.begin(opening)
        opened: str | None = None
        try:
            async with self._patience():
                command, known = await self._naming.named(opening, command)
                if known:
                    opened = command.session
                    return await self._reopen(opened, opening.control_id)
            if waits:
                await _until(self._warm_up.over, WARMING)
            live = await self._admit(command.session, opening)
            async with self._patience():
                outcome = await live.ask(
                    command,
                    sound=opening.recording,
                    abandoned=lambda outcome: self._abandon_open(live, opening.control_id, outcome),
                )
            if outcome.error is not None:
                live.runner.stop()  # nothing was opened (B11)
            entry = durable(outcome)
            opened = command.session
            self._roster.storage.works()
        finally:
            self._openings.end(opening.control_id, begun, opened)
            if opened is None:
                self._naming.give_up(command.session)
        self._counts.opened += 1
        live.remember(opening.control_id, entry)
        return self._attach(live, entry)

    async def _admit(self, name: str, opening: Opening) -> Live:
        """Take a slot and start a runner. The slot is held from the first check on (B3), that of its owner too.

        The sessions of a former process hold theirs before: nobody new may take one of them (P53).
        """
        self._roster.refuse_if_stopping()
        await _until(self._roster.counted, STILL_TAKEN_OVER)
        if self._is_spent(opening, self._roster.unclaimed):
            await _until(self._roster.recovered, STILL_TAKEN_OVER)  # then it is known whose they are
        self._roster.refuse_if_stopping()
        with self._place(name, opening):
            await self._warm()
            try:
                term = await self._log.acquire(name)
            except LogError as error:
                self._roster.storage.failed(error)
                raise Refused("storage_unavailable", "The session cannot be recorded now.") from error
        self._roster.refuse_if_stopping()
        return self._roster.start(core.new(), name, term, head=0, owner=opening.owner)

    def _refuse_if_spent(self, opening: Opening) -> None:
        """Hold an owner to its bound, with the sessions in their grace and those that are being opened."""
        if self._is_spent(opening):
            raise Refused(
                "resource_exhausted",
                f"The limit of {opening.sessions:,} open sessions of this key is reached; end one first.",
            )

    def _is_spent(self, opening: Opening, more: int = 0) -> bool:
        """Whether an owner would be beyond its bound, with so many sessions more than are known to be its own."""
        most = opening.sessions
        return most is not None and self._roster.owned(opening.owner) + self._claims[opening.owner] + more >= most

    @contextmanager
    def _place(self, name: str, opening: Opening) -> Generator[None]:
        """Hold a place for a session that is about to be started; HTTP requests have their own (B28)."""
        request = is_request(name)
        if request and self._admitting[True] + self._roster.requests >= self.settings.max_requests:
            raise Refused("resource_exhausted", "Too many requests are being answered; try again later.")
        if not request and self._admitted >= self.settings.max_sessions:
            raise Refused("resource_exhausted", "All sessions are taken; try again later.")
        self._refuse_if_spent(opening)
        self._admitting[request] += 1
        self._claims[opening.owner] += 1
        try:
            yield
        finally:
            self._admitting[request] -= 1
            self._claims[opening.owner] -= 1

    async def _warm(self) -> None:
        """Wait for the stages: they are still being loaded, or loaded again."""
        with anyio.move_on_after(WARM_UP_S):
            while not self._pipeline.ready and self._pipeline.unavailable is None:
                await self._pipeline.wait_ready()
        if self._pipeline.not_ready is not None:
            code = "resource_exhausted" if self._pipeline.unavailable is None else "stage_unavailable"
            raise Refused(code, self._pipeline.not_ready)

    @property
    def _admitted(self) -> int:
        return self._admitting[False] + self._roster.slots

    def _abandon_open(self, live: Live, control_id: str, outcome: Outcome) -> None:
        """Nobody waits for the session any more (B16): close it, or let go of what was never opened."""
        if outcome.error is not None:
            live.runner.stop()
            return
        live.runner.post(CloseSession(control_id=f"{control_id}:abandoned", reason=ABANDONED))

    async def _reopen(self, name: str, control_id: str) -> Attachment:
        """Answer a repeated opening as it was answered; what was resumed since is no longer its connection's."""
        try:
            live = await self._roster.find(name)
        except Refused as refused:
            if refused.code == "session_resume_expired":
                raise Refused("session_closed", f"The session that this opened, {name}, has ended.") from None
            raise
        entry = await live.answered(control_id)
        if entry is None:
            raise Refused("unknown_session", "The session that this opened was never recorded.")
        return self._attach(live, entry)

    # -- resuming --------------------------------------------------------------------------------------------

    async def resume(self, resumption: Resumption) -> Attachment:
        """Attach a new connection to a session; return when that is durable.

        A cancelled caller changes nothing that was decided: the attachment that nobody took is detached by its own
        generation (C14). If its turn had not come, there was no resume, and who was attached stays (D33).

        Raises:
            Refused: by the code of the first check that fails (D22): `session_resume_expired`,
                `unsupported_session_resume`, `invalid_resume_token`, `session_resume_conflict`,
                `runtime_resume_failed`; `going_away` while sessions are still being taken over or the server
                stops; `stage_unavailable` if it needs another pipeline; `storage_unavailable`; `timeout`;
                `control_id_reused`.
            Resync: the client asks for events that are gone.
        """
        try:
            return await self._counting_refusals(self._resume(resumption))
        except (Refused, Resync):
            self._counts.resumes_refused += 1
            raise

    async def _resume(self, resumption: Resumption) -> Attachment:
        self._roster.refuse_if_stopping()
        async with self._patience():
            live = await self._roster.find(resumption.session)
            runner = live.runner
            outcome = await live.ask(
                resume_command(resumption),
                prepare=resume_preparation(runner.feed, self._secret),
                abandoned=lambda outcome: self._abandon_resume(live, outcome),
                droppable=True,
            )
        if outcome.error is None and outcome.entry is None:
            return await self._again(live, resumption)
        if isinstance(outcome.error, Refused) and await self._overtaken(live):
            raise Refused("storage_unavailable", OVERTAKEN)
        if isinstance(outcome.error, Refused) and outcome.error.code == "session_closed":
            raise Refused("session_resume_expired", "The session has ended.")
        if isinstance(outcome.error, Refused) and outcome.error.code == "journal_gap":
            raise Resync(resumption.session, "journal_gap")
        entry = durable(outcome)
        self._counts.resumed += 1
        live.remember(resumption.control_id, entry)
        if resumption.position is None and resumption.last_number <= runner.feed.number:
            runner.feed.acknowledge(resumption.last_number)
        return self._attach(live, entry)

    async def _overtaken(self, live: Live) -> bool:
        """Return whether somebody else has recorded more of the session: a runner learns that only when it writes,
        and what it refuses until then, it refuses by a state of the past."""
        runner = live.runner
        try:
            newer = await self._log.read(runner.name, runner.head, 1)
        except LogError as error:
            raise Refused("storage_unavailable", "The session's log cannot be read now.") from error
        return any(entry.term != runner.term for entry in newer)

    async def _again(self, live: Live, resumption: Resumption) -> Attachment:
        """Answer a repeated resume as it was answered, if that is still how things stand (C11)."""
        entry = await live.answered(resumption.control_id)
        lease = live.runner.session.lease
        known = lease.controls.get(resumption.control_id)
        if known is None or entry is None or known.attachment != lease.attachment:
            raise Refused("session_resume_conflict", "The session was taken over in the meantime.")
        return self._attach(live, entry)

    def _abandon_resume(self, live: Live, outcome: Outcome) -> None:
        for event in outcome.entry.transaction.events if outcome.entry is not None else ():
            if isinstance(event, SessionResumed):
                live.runner.post(Detach(generation=event.generation))

    def _attach(self, live: Live, entry: Published) -> Attachment:
        """Make the attachment that a durable transaction has granted."""
        attachment = Attachment(live, granted(entry, live.runner.session, self._secret))
        lease = live.runner.session.lease
        if lease.attachment != attachment.generation:
            attachment.end("replaced")
        elif not lease.attached or live.over.is_set():
            attachment.end("detached")
        else:
            live.attach(attachment)
        return attachment

    @asynccontextmanager
    async def _patience(self) -> AsyncGenerator[None]:
        """Wait no longer than a control may take: whoever waits for it is told, and may try again (B22).

        What was asked for is decided all the same, and taken back like that of a caller who went away (B16, C14).
        """
        with anyio.CancelScope() as waiting:
            deadline = self.clock.monotonic_us() + self.settings.control_ms * 1000
            timer = self.clock.call_at(deadline, waiting.cancel)
            try:
                yield
            finally:
                timer.cancel()
        if waiting.cancelled_caught:
            raise Refused("timeout", "This took too long; try again.")

    async def _counting_refusals(self, request: Awaitable[Attachment]) -> Attachment:
        try:
            return await request
        except Refused:
            self._counts.refused += 1
            raise

    # -- observing -------------------------------------------------------------------------------------------

    async def observe(self, asked: Observation) -> Observer:
        """Let somebody read a session who has no part in it; raises as `observing.observe` does, and `timeout`."""
        self._roster.refuse_if_stopping()
        async with self._patience():
            return await observe(self._roster, self._secret, asked)

    # -- an operator's controls ------------------------------------------------------------------------------

    async def close(self, session: str, control_id: str, words: str | None = None) -> None:
        """End a session; return when its end is durable. One that has ended, or never was, is closed (B19, M8).

        `words` may say why; they stand in its terminal (M18).

        Raises:
            Refused: `control_id_reused`, `timeout`, `storage_unavailable`, `going_away`, `stage_unavailable`,
                `engine_dead`.
        """
        async with self._patience():
            try:
                live = await self._roster.find(session)
                outcome = await live.ask(CloseSession(control_id=control_id, reason="operator", words=words))
                decided(outcome)
            except Refused as refused:
                if refused.code in ("session_resume_expired", "session_closed"):
                    return
                raise
            await live.closed.wait()
            if self._roster.dead:
                raise Refused("engine_dead", "The server has ended.")

    async def free(self, session: str) -> None:
        """Wait until a session holds its slot no longer: it has ended, and its stages have let go."""
        live = self._live.get(session)
        if live is not None:
            await live.over.wait()

    async def detach(self, session: str, control_id: str, expected: int | None = None) -> int:
        """Take a session from its connection, whoever that is, or only of lease generation `expected` (C5).

        Returns the generation that was given up, when that is durable; repeated, the same one (B19).

        Raises:
            Refused: `control_id_reused`, `session_resume_conflict`, `unsupported_session_resume`, `session_closed`,
                `unknown_session`, `timeout`, `storage_unavailable`, `going_away`, `stage_unavailable`.
        """
        async with self._patience():
            try:
                live = await self._roster.find(session)
            except Refused as refused:
                code = "unknown_session" if refused.code == "session_resume_expired" else refused.code
                raise Refused(code, refused.message) from None
            decided(await live.ask(Detach(generation=expected, reason="operator", control_id=control_id)))
        lease = live.runner.session.lease
        known = lease.controls.get(control_id)
        return known.generation if known is not None else lease.generation

    # -- the end ---------------------------------------------------------------------------------------------

    async def shutdown(self) -> None:
        """Stop serving: resumable sessions are detached and stay, the others are closed (DESIGN 5.7).

        Returns when that is durable, or after `shutdown_ms`. May be called before the hub is left, and again if it
        was cancelled.
        """
        self.stopping.set()
        if not self._retired:
            with anyio.move_on_after(self.settings.shutdown_ms / 1000):
                await self._roster.retire()
            self._retired = True


async def _until(known: anyio.Event, why: str) -> None:
    """Hold a client, before it takes a slot, until something is over (B27); 20 s at most (WIRE 1.10).

    Raises:
        Refused: `resource_exhausted`, for that reason.
    """
    with anyio.move_on_after(WARM_UP_S):
        await known.wait()
    if not known.is_set():
        raise Refused("resource_exhausted", why)
