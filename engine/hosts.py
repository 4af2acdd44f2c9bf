"""Where a stage may live: on the event loop (cheap ones), in a thread, or in a process of its own."""

import asyncio
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import assert_never

import anyio
import structlog

from antiphon.events.commands import StageAbortFailed, StageFailed, StageReleased
from antiphon.events.effects import (
    AbortRequests,
    ConfirmRequest,
    FeedStage,
    ReleaseRequests,
    SubmitToStage,
)
from antiphon.stages.base import (
    Abort,
    AnyMessage,
    AnyReport,
    Append,
    Confirm,
    Release,
    Scorer,
    Stage,
    StageUnavailable,
    Submit,
)

from .host import OnReport, Sound

_log = structlog.get_logger()

THREAD_NICENESS = 10
"""Stage threads give way to the event loop (DESIGN 6); a real-time class would need privileges."""

MAILBOX = 4096
"""Reports of a threaded stage that may wait; with more, the stage does (DESIGN 6)."""

LOADING = "The model is still being loaded."
CLOSED = "The server is shutting down."


def guarded(doing: str, call: Callable[[], object]) -> Exception | None:
    """Call into a stage or scorer; return what it raised (logged, unless it only lacks something), or None.

    The boundary of the host: whatever a model's code raises, the host and the others that it serves go on.
    """
    try:
        call()
    except StageUnavailable as error:
        return error
    except Exception as error:
        _log.exception("a stage raised an error", doing=doing)
        return error
    return None


def cannot_load(error: Exception) -> str:
    """Say in a sentence why a stage could not be made or started."""
    return str(error) if isinstance(error, StageUnavailable) else f"cannot load: {type(error).__name__}"


def failed(message: AnyMessage, error: Exception) -> list[AnyReport]:
    """Return what a stage that raised on `message` must be taken to have said (K16, K22).

    What it was to forget it may still hold: it is asked again, and nobody else gets the place meanwhile (B2).
    """
    text = f"The stage failed: {type(error).__name__}."
    match message:
        case Submit(request=request) | Append(request=request) | Confirm(request=request):
            return [StageFailed(request=request, code="runtime_data_plane_stream_failed", message=text)]
        case Abort(requests=requests) | Release(requests=requests):
            return [StageAbortFailed(request=request, message=text) for request in requests]
        case _:
            assert_never(message)


def unserved(message: AnyMessage) -> list[AnyReport]:
    """Return what must be said to `message` where there is no stage: it begins nothing, and holds nothing."""
    match message:
        case Submit(request=request) | Append(request=request) | Confirm(request=request):
            text = "The stage failed: StageUnavailable."
            return [StageFailed(request=request, code="runtime_data_plane_stream_failed", message=text)]
        case Abort(requests=requests) | Release(requests=requests):
            return [StageReleased(request=request) for request in requests]
        case _:
            assert_never(message)


def deliver(stage: Stage, message: AnyMessage, report: OnReport) -> None:
    """Hand one message to a stage; an exception fails its request and nothing else."""
    error = guarded(type(message).__name__, partial(stage.handle, message))
    if error is not None:
        for said in failed(message, error):
            report(said, b"")


def scored(scorer: Scorer, streams: list[object], frames: list[bytes]) -> list[float] | None:
    """Score frames; None if the scorer raised, which costs these frames their scores and nothing else."""
    scores: list[float] = []
    error = guarded("score", lambda: scores.extend(scorer.score(streams, frames)))
    return scores if error is None else None


class Mailbox:
    """Reports on their way to the event loop: any thread puts them in, one wake-up takes all of them.

    Made on the loop's thread. `most`: another thread waits while so many are here; None: it never does, which
    the loop needs of a stage that it calls itself.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_report: OnReport, most: int | None = None) -> None:
        self._loop = loop
        self._on_report = on_report
        self._most = most
        self._loop_thread = threading.get_ident()
        self._reports: deque[tuple[AnyReport, bytes]] = deque()
        self._room = threading.Condition()
        self._scheduled = False
        self._paused = False
        self._closed = False

    def put(self, report: AnyReport, sound: bytes) -> None:
        """Take a report from any thread."""
        with self._room:
            if self._most is not None and threading.get_ident() != self._loop_thread:
                while len(self._reports) >= self._most and not self._closed:
                    self._room.wait()
            if self._closed:
                return
            self._reports.append((report, sound))
            if self._scheduled or self._paused:
                return
            self._scheduled = True
        self._loop.call_soon_threadsafe(self._drain)

    def pause(self, paused: bool) -> None:
        """Keep what comes from here on, or let it go."""
        with self._room:
            self._paused = paused
            if paused or self._scheduled or not self._reports:
                return
            self._scheduled = True
        self._loop.call_soon(self._drain)

    def close(self) -> None:
        """Deliver nothing from here on."""
        with self._room:
            self._closed = True
            self._reports.clear()
            self._room.notify_all()

    def _drain(self) -> None:
        with self._room:
            self._scheduled = False
            if self._paused:
                return
            reports, self._reports = self._reports, deque()
            if self._most is not None:
                self._room.notify_all()
        for report, sound in reports:
            self._on_report(report, sound)


class BaseHost:
    """What the hosts share: effects become messages, and being ready is a level that may fall again."""

    def __init__(self) -> None:
        self.known = anyio.Event()
        self.unavailable: str | None = None
        self._waiting: str | None = LOADING

    @property
    def ready(self) -> bool:
        """Whether the stage is loaded and takes work now."""
        return self.not_ready is None

    @property
    def not_ready(self) -> str | None:
        """Why the stage takes no work now; None if it is ready."""
        return self.unavailable or self._waiting

    async def wait_ready(self) -> None:
        """Wait until the stage is loaded, or cannot be."""
        while not self.known.is_set():
            await self.known.wait()

    def send(self, message: AnyMessage) -> None:
        """Carry a message to the stage."""
        raise NotImplementedError

    def pause(self, paused: bool) -> None:
        """Hold reports back, or let them come again."""
        raise NotImplementedError

    def submit(self, effect: SubmitToStage, sound: Sound) -> None:
        """Begin a request."""
        self.send(Submit(request=effect.request, payload=effect.payload, sound=sound, hold=effect.hold))

    def feed(self, effect: FeedStage, data: bytes, frames: tuple[bytes, ...] = (), sound: Sound = ()) -> None:
        """Give a resident request a unit of input."""
        self.send(
            Append(
                request=effect.request,
                operation=effect.operation,
                seq=effect.seq,
                turn_seq=effect.turn_seq,
                data=data + bytes(effect.pad) if effect.pad else data,
                format=effect.format,
                pad=effect.pad,
                batches=effect.batches,
                generation=effect.generation,
                tokens=effect.tokens,
                kind=effect.kind,
                speech=effect.speech,
                force_listen=effect.force_listen,
                final=effect.final,
                frames=frames,
                model_turn=effect.model_turn,
                sampling=effect.sampling,
                turn=effect.turn,
                items=effect.items,
                sound=sound,
            )
        )

    def confirm(self, effect: ConfirmRequest) -> None:
        """Let the outputs of a held request flow."""
        self.send(Confirm(request=effect.request))

    def abort(self, effect: AbortRequests) -> None:
        """Stop requests."""
        self.send(Abort(requests=effect.requests))

    def release(self, effect: ReleaseRequests) -> None:
        """Forget requests."""
        self.send(Release(requests=effect.requests))

    def _loaded(self) -> None:
        self.unavailable = self._waiting = None
        self.known.set()

    def _cannot_load(self, reason: str) -> None:
        self.unavailable = reason
        self.known.set()

    def _wait_for(self, reason: str) -> None:
        """Take no work from here on, until the stage is loaded (again) or cannot be."""
        self._waiting = reason
        if self.known.is_set():
            self.known = anyio.Event()


class InlineHost(BaseHost):
    """Runs a cheap stage on the event loop: no thread, no hop. A stage's own threads may report too."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage
        self._on_report: OnReport | None = None
        self._mailbox: Mailbox | None = None
        self._loop_thread = 0

    async def start(self, on_report: OnReport) -> None:
        """Load the stage here and now."""
        self._on_report = on_report
        self._mailbox = Mailbox(asyncio.get_running_loop(), on_report)
        self._loop_thread = threading.get_ident()
        error = guarded("start", partial(self._stage.start, self._report))
        if error is None:
            self._loaded()
        else:
            self._cannot_load(cannot_load(error))

    def send(self, message: AnyMessage) -> None:
        """Let the stage handle the message now; its reports only fill inboxes."""
        if self.not_ready is None:
            deliver(self._stage, message, self._report)
        else:
            for said in unserved(message):
                self._report(said, b"")

    def pause(self, paused: bool) -> None:
        """Hold back what the stage's own threads report; what it says to a message is there at once."""
        if self._mailbox is not None:
            self._mailbox.pause(paused)

    def _report(self, report: AnyReport, sound: bytes) -> None:
        if self._on_report is None or self._mailbox is None:
            return
        if threading.get_ident() == self._loop_thread:
            self._on_report(report, sound)
        else:
            self._mailbox.put(report, sound)

    async def aclose(self) -> None:
        """Close the stage."""
        if self._mailbox is not None:
            self._mailbox.close()
            self._mailbox, self._on_report = None, None
            self._wait_for(CLOSED)
            guarded("close", self._stage.close)


class ThreadHost(BaseHost):
    """Runs a stage's `handle` in one thread of lower priority."""

    def __init__(self, stage: Stage, name: str = "stage") -> None:
        super().__init__()
        self._stage = stage
        self._name = name
        self._messages: queue.SimpleQueue[AnyMessage | None] = queue.SimpleQueue()
        self._mailbox: Mailbox | None = None
        self._thread: threading.Thread | None = None

    async def start(self, on_report: OnReport) -> None:
        """Start the thread, which loads the stage."""
        loop = asyncio.get_running_loop()
        mailbox = self._mailbox = Mailbox(loop, on_report, MAILBOX)
        self._thread = threading.Thread(target=self._run, args=(loop, mailbox), name=self._name, daemon=True)
        self._thread.start()

    def send(self, message: AnyMessage) -> None:
        """Queue the message; while the stage still loads it waits."""
        if self.unavailable is None:
            self._messages.put(message)
        elif self._mailbox is not None:
            for said in unserved(message):
                self._mailbox.put(said, b"")

    def pause(self, paused: bool) -> None:
        """Hold reports back; the stage waits when the mailbox is full."""
        if self._mailbox is not None:
            self._mailbox.pause(paused)

    def _run(self, loop: asyncio.AbstractEventLoop, mailbox: Mailbox) -> None:
        lower = min(19, os.getpriority(os.PRIO_PROCESS, 0) + THREAD_NICENESS)
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), lower)
        error = guarded("start", partial(self._stage.start, mailbox.put))
        if error is None:
            self._tell(loop, self._loaded)
            while (message := self._messages.get()) is not None:
                deliver(self._stage, message, mailbox.put)
        else:
            self._tell(loop, self._refuse_all, cannot_load(error))
        guarded("close", self._stage.close)

    def _refuse_all(self, reason: str) -> None:
        self._cannot_load(reason)
        while not self._messages.empty():
            message = self._messages.get_nowait()
            if message is not None:
                self.send(message)

    @staticmethod
    def _tell(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: str) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(call, *args)

    async def aclose(self) -> None:
        """Let the thread finish its message, close the stage and end."""
        if self._mailbox is not None:
            self._mailbox.close()
            self._mailbox = None
        self._wait_for(CLOSED)
        if self._thread is not None:
            thread, self._thread = self._thread, None
            self._messages.put(None)
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(thread.join)
