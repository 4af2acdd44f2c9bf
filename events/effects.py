"""Effects: what the shell must now do because of an event. Imperative; never produced in replay."""

from typing import Literal

from msgspec import Struct

from .audio import AudioFormat, SampleRef
from .batches import FunctionBatch
from .config import JsonText, Sampling
from .context import ContextTurn
from .events import UnitKind
from .items import Item

Purpose = Literal["answer", "transcribe"]


class TurnInput(Struct, frozen=True, kw_only=True):
    """All that a stage needs to answer one turn. The bytes of every sample reference in it come with it.

    `purpose` "transcribe": there is no turn yet. The one item is what the user has said so far, and only its words
    are wanted (`StageTranscribed`); a stage is asked so if its model has the capability `transcribes_ahead`.

    `items` is the conversation as it was *heard*, oldest first, ending with what is to be answered. User audio
    without a transcript is to be recognised by the pipeline (`StageTranscribed` for its item); without a reference
    too, it is sound that a resident request hears unit by unit, or that is not kept. `format` is what
    spoken output must be delivered in; `speaks` False asks for text only. `sampling` has one
    set for each stage of the model, `extras` the options that its stage half reads (persona, window, …).
    `frames` are pictures that were taken while the user spoke, `ref_audio` the recording (pcm16 at 16 kHz) whose
    voice the model shall have.
    `context` is what the model remembers of earlier turns beside the conversation, oldest first.
    `tools` and `tool_choice` are JSON, spelled as the wire shows them. `idle`: what is to be answered is that the
    user has said nothing for a while (WIRE 6.3).
    """

    session: str
    response_id: str | None
    items: tuple[Item, ...]
    instructions: str
    speaks: bool
    format: AudioFormat
    voice: str
    speed: float = 1.0
    max_output_tokens: int | None = None
    temperature: float | None = None
    seed: int = 0
    sampling: tuple[Sampling, ...] = ()
    extras: dict[str, JsonText] = {}
    ref_audio: SampleRef | None = None
    frames: tuple[SampleRef, ...] = ()
    context: tuple[ContextTurn, ...] = ()
    tools: JsonText = "[]"
    tool_choice: JsonText = '"auto"'
    idle: bool = False
    purpose: Purpose = "answer"


class Effect(Struct, frozen=True, kw_only=True, tag=True):
    """Something to do at the stages. Idempotent by its request id."""


class SubmitToStage(Effect, frozen=True, kw_only=True):
    """Start a request. `hold` True: keep its outputs until `ConfirmRequest` (speculation)."""

    request: str
    payload: TurnInput
    hold: bool = False


class FeedStage(Effect, frozen=True, kw_only=True):
    """Give a resident request one unit of input; the facts are those of `UnitTaken`.

    The sound is the bytes of `refs`, and `pad` bytes of silence. What the model says because of it is delivered
    in `format`. `turn`: the response that the unit is the last input of, with all that it should know; None while
    the model decides by itself. `batches` are the function outputs that it has not said to own, up to
    `generation`: a request that begins has those before the first one (J12, J13). `tokens` is what to reserve for
    the unit at most, 0 if that is the stage's to know (N10). `items` are what was written since the request began,
    or since the last unit: the model does not know of it yet. Sound of the user that it was given is not in them.
    The bytes of every sample reference in `turn` and `items` come with the unit.
    """

    request: str
    operation: int
    seq: int
    turn_seq: int
    refs: tuple[SampleRef, ...] = ()
    pad: int = 0
    kind: UnitKind = "audio"
    speech: bool = False
    force_listen: bool = False
    final: bool = False
    frames: tuple[SampleRef, ...] = ()
    model_turn: int = 0
    batches: tuple[FunctionBatch, ...] = ()
    generation: int = 0
    tokens: int = 0
    format: AudioFormat
    sampling: tuple[Sampling, ...] | None = None
    """Sampling sets that replace the ones before (K3); None: they go on."""
    turn: TurnInput | None = None
    items: tuple[Item, ...] = ()


class ConfirmRequest(Effect, frozen=True, kw_only=True):
    """Let the outputs of a held request flow."""

    request: str


class AbortRequests(Effect, frozen=True, kw_only=True):
    """Stop these requests and forget them; each is answered by `StageReleased`."""

    requests: tuple[str, ...]


class ReleaseRequests(Effect, frozen=True, kw_only=True):
    """Forget these finished requests; each is answered by `StageReleased`."""

    requests: tuple[str, ...]


AnyEffect = SubmitToStage | FeedStage | ConfirmRequest | AbortRequests | ReleaseRequests
