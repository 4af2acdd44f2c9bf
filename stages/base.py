"""The stage contract: messages into a mailbox, reports out of it, every one with its request id."""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.batches import FunctionBatch
from antiphon.events.commands import (
    StageAbortFailed,
    StageAccepted,
    StageCalled,
    StageContext,
    StageFailed,
    StageFinished,
    StageInnerFinished,
    StageLost,
    StageMeasured,
    StageOwned,
    StageProduced,
    StageRefused,
    StageReleased,
    StageSegmentFinished,
    StageTranscribed,
)
from antiphon.events.config import Sampling
from antiphon.events.effects import TurnInput
from antiphon.events.events import UnitKind
from antiphon.events.items import Item

AnyReport = (
    StageAccepted
    | StageRefused
    | StageTranscribed
    | StageProduced
    | StageSegmentFinished
    | StageCalled
    | StageMeasured
    | StageInnerFinished
    | StageContext
    | StageOwned
    | StageFinished
    | StageFailed
    | StageReleased
    | StageAbortFailed
    | StageLost
)


class Submit(Struct, frozen=True, kw_only=True, tag=True):
    """Begin `request`. `sound` holds the bytes of every sample reference in `payload`.

    Idempotent by `request`: a second one is ignored. `hold` True: outputs wait until `Confirm`.
    """

    request: str
    payload: TurnInput
    sound: tuple[tuple[SampleRef, bytes], ...] = ()
    hold: bool = False


class Append(Struct, frozen=True, kw_only=True, tag=True):
    """One unit of input for a resident request (BEHAVIOURS A8, E16-E25, K5).

    `data` is its sound; the last `pad` bytes of it are silence that fills up the `final` unit of a commit. It is
    empty for a unit of kind "conversation", and may be for one that only holds `frames` (JPEG or PNG). `operation`
    names the unit: one that was seen before is ignored. `seq` counts 1, 2, 3 … the units of the request that were
    accepted, `turn_seq` those of its model turn `model_turn`; a stage that maps them to places on a timeline
    refuses (`StageRefused`) a number that is not the next one. What is said because of the unit is delivered in
    `format`. `sampling` replaces the sampling sets that hold for the request (K3). `turn`: the unit is the last one
    of this response, which is announced and waits for its content. `items` is what was written in the conversation
    since the request began, or since the last unit: the request does not know of it yet, whatever `turn` says.
    `sound` holds the bytes of every sample reference in `items` and `turn`.

    `batches` and `generation` are for `events.batches.take`: function outputs, each to be taken in exactly once,
    and owned (`StageOwned`) when that is done. `tokens` is what the unit needs at most, 0: the stage knows.

    Units come without waiting for each other. Each is answered, by `StageAccepted`, by an output that names its
    operation, or by `StageRefused`; an answer to one answers all before it. Behind a refused unit, those that
    were under way already are not taken either, and the next one has the refused one's number again.
    """

    request: str
    operation: int
    seq: int
    turn_seq: int
    data: bytes
    format: AudioFormat
    pad: int = 0
    kind: UnitKind = "audio"
    speech: bool = False
    force_listen: bool = False
    final: bool = False
    frames: tuple[bytes, ...] = ()
    model_turn: int = 0
    batches: tuple[FunctionBatch, ...] = ()
    generation: int = 0
    tokens: int = 0
    sampling: tuple[Sampling, ...] | None = None
    turn: TurnInput | None = None
    items: tuple[Item, ...] = ()
    sound: tuple[tuple[SampleRef, bytes], ...] = ()


class Confirm(Struct, frozen=True, kw_only=True, tag=True):
    """Let the outputs of a held request flow."""

    request: str


class Abort(Struct, frozen=True, kw_only=True, tag=True):
    """Stop these requests at once and forget them; each is answered by `StageReleased`, unknown ones too.

    It may come again for the same request. `StageAbortFailed` says that it could not be done; it is asked again.
    """

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
    `StageTranscribed`, `StageProduced`, `StageCalled`, `StageMeasured`, at most one `StageContext` and one
    `StageInnerFinished` for each inner stage, then one of `StageFinished` or `StageFailed`; `StageReleased` once,
    after `Abort` or `Release`. Text of an inner stage that the client shall see is `StageProduced` as soon as it is
    there, and goes on to the next stage all the same (N12).

    A request whose `payload.purpose` is "transcribe" is answered by `StageTranscribed` for its one item and
    `StageFinished`: nobody has ended a turn, and nothing is answered. It comes only to a stage whose model has the
    capability `transcribes_ahead`.

    A resident request (`payload.response_id` None) does not finish: between its acceptance and its end, each of its
    units is answered (see `Append`), and `StageSegmentFinished` says what the model decides when it has worked off
    what it has. An exception out of `handle` is a fault of the stage: the host fails the request.
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
