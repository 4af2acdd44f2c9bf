"""Voice activity as a service: frames of many sessions are scored in one thread, together."""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

import anyio
from msgspec import Struct

from antiphon.stages.base import Scorer

from .hosts import scored
from .pcm import level

FRAME = 512
FRAME_BYTES = FRAME * 2
RATE = 16_000

LEVEL_FLOOR = 0.003
LEVEL_SPEECH = 0.02


class Scores(Struct, frozen=True):
    """What one append completed: thousandths for each 512-sample frame, and how many samples of the first
    frame came with earlier appends. `failed`: the scorer raised; there are no scores."""

    values: tuple[int, ...] = ()
    lead: int = 0
    failed: bool = False


class ScoringStream:
    """One session's stream: what does not fill a frame yet, and the scorer's own state."""

    def __init__(self, state: object) -> None:
        self.state = state
        self.rest = b""
        self.busy = 0
        """Jobs of this stream that are on their way."""

    def cut(self, pcm16: bytes) -> tuple[list[bytes], int]:
        """Return the frames that `pcm16` completes, and the samples of the first that were there before."""
        lead = len(self.rest) // 2
        data = self.rest + pcm16
        whole = len(data) // FRAME_BYTES * FRAME_BYTES
        self.rest = data[whole:]
        return [data[at : at + FRAME_BYTES] for at in range(0, whole, FRAME_BYTES)], lead


class _Job:
    __slots__ = ("done", "frames", "lead", "scores", "stream")

    def __init__(
        self, stream: ScoringStream, frames: list[bytes], lead: int, done: Callable[[Scores], None]
    ) -> None:
        self.stream = stream
        self.frames = frames
        self.lead = lead
        self.done = done
        self.scores: list[float] = []


class LevelScorer:
    """A `Scorer` that needs no model: loud is speech. Good for clean microphones, tests and the echo."""

    def new_stream(self) -> object:
        """Return nothing: a level needs no memory."""
        return None

    def score(self, streams: list[object], frames: list[bytes]) -> list[float]:
        """Return 0 at an RMS of 0.003 of full scale and below, 1 at 0.02 and above, linear in between."""
        del streams
        return [_clip((level(frame) - LEVEL_FLOOR) / (LEVEL_SPEECH - LEVEL_FLOOR)) for frame in frames]


class ScoringService:
    """Scores the appends of many sessions. `submit` never blocks; `done` is called on the loop, in the order
    of the submits of a stream. Without `threaded` the scorer is called at once (cheap ones, tests)."""

    def __init__(self, scorer: Scorer, *, threaded: bool = True) -> None:
        self._scorer = scorer
        self._threaded = threaded
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._finished: deque[_Job] = deque()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        if self._threaded:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._run, name="scoring", daemon=True)
            self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop = None
        if self._thread is not None:
            thread, self._thread = self._thread, None
            self._jobs.put(None)
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(thread.join)

    def new_stream(self) -> ScoringStream:
        """Return the state of a new stream: a session's, or a session's whose waiting sound was dropped."""
        return ScoringStream(self._scorer.new_stream())

    def submit(self, stream: ScoringStream, pcm16: bytes, done: Callable[[Scores], None]) -> None:
        """Score what `pcm16` (16 kHz) completes. `done` is called before this returns if nothing is complete
        and nothing of the stream is on its way, or if the service has no thread."""
        frames, lead = stream.cut(pcm16)
        job = _Job(stream, frames, lead, done)
        if self._thread is None:
            self._score([job])
            done(_result(job))
        elif not frames and not stream.busy:
            done(Scores())
        else:
            stream.busy += 1
            self._jobs.put(job)

    # -- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (first := self._jobs.get()) is not None:
            jobs, ended = [first], False
            while not self._jobs.empty():
                job = self._jobs.get_nowait()
                if job is None:
                    ended = True
                    break
                jobs.append(job)
            self._score(jobs)
            loop = self._loop
            self._finished.extend(jobs)
            if loop is not None and not loop.is_closed():
                loop.call_soon_threadsafe(self._deliver)
            if ended:
                return

    def _score(self, jobs: list[_Job]) -> None:
        """Score round by round: in each, one frame of every stream that has one, oldest first."""
        left: dict[int, deque[tuple[_Job, bytes]]] = {}
        for job in jobs:
            left.setdefault(id(job.stream), deque()).extend((job, frame) for frame in job.frames)
        while batch := [frames.popleft() for frames in left.values() if frames]:
            streams = [job.stream.state for job, _ in batch]
            scores = scored(self._scorer, streams, [frame for _, frame in batch])
            if scores is None:
                continue
            for (job, _), score in zip(batch, scores, strict=True):
                job.scores.append(score)

    def _deliver(self) -> None:
        while self._finished:
            job = self._finished.popleft()
            job.stream.busy -= 1
            job.done(_result(job))


def _result(job: _Job) -> Scores:
    if len(job.scores) != len(job.frames):
        return Scores(failed=True)
    values = tuple(round(_clip(score) * 1000) for score in job.scores)
    return Scores(values, job.lead if values else 0)


def _clip(value: float) -> float:
    return min(max(value, 0.0), 1.0)
