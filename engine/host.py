"""The contract of whoever runs a stage for the engine, wherever the stage lives."""

from collections.abc import Callable
from typing import Protocol

import anyio

from antiphon.events.audio import SampleRef
from antiphon.events.effects import (
    AbortRequests,
    ConfirmRequest,
    FeedStage,
    ReleaseRequests,
    SubmitToStage,
)
from antiphon.stages.base import AnyReport

Sound = tuple[tuple[SampleRef, bytes], ...]
OnReport = Callable[[AnyReport, bytes], None]


class PipelineHost(Protocol):
    """Runs one stage (a whole pipeline is one) and carries messages to it and reports from it.

    All methods are called on the event loop and return at once. Messages of one request keep their order.
    Reports are given to `on_report` on the event loop, never from inside another call of the session that
    they belong to. A request always ends: if the stage dies, each live one is reported as `StageLost`.

    Being ready is a level: a stage whose process ends is not ready until it is loaded again.
    """

    @property
    def known(self) -> anyio.Event:
        """Set while the stage is loaded, or cannot be; another, unset one takes its place when it is lost."""
        ...

    @property
    def ready(self) -> bool:
        """Whether the stage is loaded and takes work now."""
        ...

    @property
    def not_ready(self) -> str | None:
        """Why the stage takes no work now, in one sentence; None if it is ready."""
        ...

    @property
    def unavailable(self) -> str | None:
        """Why the stage cannot be loaded at all, in one sentence; None while that is not known."""
        ...

    async def start(self, on_report: OnReport) -> None:
        """Begin to load the stage; does not wait for it, and does not fail if it cannot be loaded."""
        ...

    async def wait_ready(self) -> None:
        """Wait until the stage is loaded, or cannot be."""
        ...

    def pause(self, paused: bool) -> None:
        """Hold reports back, or let them come again. The stage waits when much is held; an inline one cannot."""
        ...

    def submit(self, effect: SubmitToStage, sound: Sound) -> None:
        """Begin a request; `sound` is the bytes of every sample reference in its payload."""
        ...

    def feed(self, effect: FeedStage, data: bytes, frames: tuple[bytes, ...] = (), sound: Sound = ()) -> None:
        """Give a resident request a unit of input: `data` is the bytes of `effect.refs`, without the padding.

        `frames` are those of `effect.frames`, `sound` those of every sample reference in its turn and items.
        """
        ...

    def confirm(self, effect: ConfirmRequest) -> None:
        """Let the outputs of a held request flow."""
        ...

    def abort(self, effect: AbortRequests) -> None:
        """Stop requests."""
        ...

    def release(self, effect: ReleaseRequests) -> None:
        """Forget requests."""
        ...

    async def aclose(self) -> None:
        """Stop the stage and free what it holds. May be called again."""
        ...
