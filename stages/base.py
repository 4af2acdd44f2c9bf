"""The stage contract: messages into a mailbox, reports out of it, every one with its request id."""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.commands import (
    StageAccepted,
    StageFailed,
    StageFinished,
    StageLost,
    StageProduced,
    StageReleased,
    StageTranscribed,
)
from antiphon.events.effects import TurnInput

AnyReport = (
    StageAccepted | StageTranscribed | StageProduced | StageFinished | StageFailed | StageReleased | StageLost
)


class Submit(Struct, frozen=True, kw_only=True, tag=True):
    """Begin `request`. `sound` holds the bytes of every sample reference in `payload.items`.

    Idempotent by `request`: a second one is ignored. `hold` True: outputs wait until `Confirm`.
    """

    request: str
    payload: TurnInput
    sound: tuple[tuple[SampleRef, bytes], ...] = ()
    hold: bool = False


class Append(Struct, frozen=True, kw_only=True, tag=True):
    """More input for a resident request; `seq` counts 1, 2, 3 …; an old number is ignored."""

    request: str
    seq: int
    data: bytes


class Confirm(Struct, frozen=True, kw_only=True, tag=True):
    """Let the outputs of a held request flow."""

    request: str


class Abort(Struct, frozen=True, kw_only=True, tag=True):
    """Stop these requests at once and forget them; each is answered by `StageReleased`, unknown ones too."""

    requests: tuple[str, ...]


class Release(Struct, frozen=True, kw_only=True, tag=True):
    """Forget these finished requests; each is answered by `StageReleased`, unknown ones too."""

    requests: tuple[str, ...]


AnyMessage = Submit | Append | Confirm | Abort | Release

Report = Callable[[AnyReport, bytes], None]
"""Where a stage puts what it has to say: the report, and the sound that belongs to it (may be empty).

May be called from any thread of the stage; order of one request's reports is kept. After `StageReleased` for a
request nothing may be reported for it.
"""


class StageUnavailable(Exception):
    """The stage cannot load. The message says what is missing and how to get it, in one sentence."""


class Stage(Protocol):
    """Something that computes.

    `handle` is called by the host, one message at a time, and must return quickly: long work belongs to the
    stage's own threads. A report for a request follows this grammar: `StageAccepted`, then any number of
    `StageTranscribed` and `StageProduced`, then one of `StageFinished` or `StageFailed`; `StageReleased` once,
    after `Abort` or `Release`. An exception out of `handle` is a fault of the stage: the host fails the request.
    """

    @property
    def input_format(self) -> AudioFormat:
        """The format that appended and submitted sound must have."""
        ...

    def start(self, report: Report) -> None:
        """Load what is needed (may take seconds; called in the host's thread or process).

        Raises:
            StageUnavailable: something is missing.
        """
        ...

    def handle(self, message: AnyMessage) -> None:
        """Take one message out of the mailbox."""
        ...

    def close(self) -> None:
        """Stop all work and free everything. Called once, also after a failed start."""
        ...


class Scorer(Protocol):
    """Voice activity: a probability of speech for each 512-sample frame at 16 kHz."""

    def new_stream(self) -> object:
        """Return the state of one session's stream."""
        ...

    def score(self, streams: list[object], frames: list[bytes]) -> list[float]:
        """Score one frame (1,024 bytes of pcm16) of each stream; runs in a thread, batched over sessions."""
        ...
