"""A session that is being run here, and questions to it whose askers may go away."""

import asyncio
from collections.abc import Callable

import anyio

from antiphon.events.commands import AnyCommand
from antiphon.events.events import SessionClosed, SessionDetached
from antiphon.sessions import core

from .attachment import Attachment, Ended
from .clock import Clock
from .inbox import Prepare
from .ingress import Ingress
from .outcome import Outcome
from .published import Published, loss
from .recorded import recorded
from .replay_window import Trail
from .runner import Runner
from .scoring import ScoringService
from .settings import HubSettings

KEPT_ANSWERS = 64


class Live:
    """One session's runner, its way in, and the connection that serves it now."""

    def __init__(
        self, runner: Runner, clock: Clock, settings: HubSettings, scoring: ScoringService, owner: str = ""
    ) -> None:
        self.runner = runner
        self.owner = owner
        """The public id of the API key that it counts for."""
        self.clock = clock
        self.settings = settings
        self.current: Attachment | None = None
        self.observers = 0
        self.over = anyio.Event()
        """Set when the runner has ended."""
        self.closed = anyio.Event()
        """Set when its end is durable, or it had to be given up."""
        self._closed = False
        self.answers: dict[str, Published] = {}
        """The transactions that opened or resumed it, by control id, for callers that lost the answer."""
        runner.turned = self.turned
        runner.feed.window.bytes = settings.replay_bytes
        runner.feed.window.age_us = settings.replay_ms * 1000
        runner.closing = self._discard
        self._scoring = scoring
        self._ingress: Ingress | None = None

    @property
    def ingress(self) -> Ingress:
        """The way in; made when the session is open and its input format is known."""
        if self._ingress is None:
            self._ingress = Ingress(self.runner, self._scoring)
        return self._ingress

    @property
    def holds_slot(self) -> bool:
        """Whether it counts against `max_sessions`: until its log is closed and its stages have let go (M6)."""
        return not self._closed or bool(core.outstanding(self.runner.session))

    def _discard(self) -> None:
        if self._ingress is not None:
            self._ingress.discard()

    def remember(self, control_id: str, entry: Published) -> None:
        """Keep an answer."""
        self.answers[control_id] = entry
        if len(self.answers) > KEPT_ANSWERS:
            del self.answers[next(iter(self.answers))]

    async def answered(self, control_id: str) -> Published | None:
        """Return the durable transaction that opened or resumed it under a control id; it may have left memory.

        Raises:
            Refused: `storage_unavailable`.
        """
        return self.answers.get(control_id) or await recorded(self.runner.feed, control_id)

    def attach(self, attachment: Attachment) -> None:
        """Let a connection serve the session in place of the last one."""
        self.end("replaced")
        self.current = attachment
        feed = self.runner.feed
        if feed.trail is None and attachment.dialect != "duplex" and attachment.token is not None:
            settings = self.settings
            feed.trail = Trail(self.clock, feed.durable, settings.replay_bytes, settings.replay_ms * 1000)

    def turned(self, entry: Published) -> None:
        """A durable transaction may have taken the session from the connection that serves it."""
        here = self.current
        known = (None, None) if here is None else (here.generation, here.lease)
        lost = loss(entry.transaction, *known)
        if lost == "closed":
            self._closed = True
            self.closed.set()
        if lost is not None:
            self.end("shutdown" if _shuts_down(entry) else "detached" if lost == "withdrawn" else lost)

    def end(self, why: Ended) -> None:
        """Nobody serves the session any more."""
        if why in ("closed", "failed", "engine_dead"):
            self.closed.set()
        if self.current is not None:
            self.current.end(why)
            self.current = None

    async def ask(
        self,
        command: AnyCommand,
        *,
        sound: bytes = b"",
        prepare: Prepare | None = None,
        abandoned: Callable[[Outcome], None] | None = None,
        droppable: bool = False,
    ) -> Outcome:
        """Give the runner a command and wait until its outcome is durable.

        A cancelled asker changes nothing that was decided, and `abandoned` is told of it. A command whose turn had
        not come is decided all the same, unless it is `droppable`.
        """
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def reply(outcome: Outcome) -> None:
            if not answer.done():
                answer.set_result(outcome)
            elif abandoned is not None:
                abandoned(outcome)

        wanted = (lambda: not answer.cancelled()) if droppable else None
        self.runner.post(command, sound, reply, prepare=prepare, wanted=wanted)
        try:
            return await answer
        except asyncio.CancelledError:
            # The answer may have come in the same moment; then nobody else will take it.
            if answer.done() and not answer.cancelled() and abandoned is not None:
                abandoned(answer.result())
            raise


def _shuts_down(entry: Published) -> bool:
    """Whether the server stops, and takes the session from its connection for that."""
    return any(
        isinstance(event, SessionDetached | SessionClosed) and event.reason == "shutdown"
        for event in entry.transaction.events
    )
