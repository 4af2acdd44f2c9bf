"""Commands: everything that may be asked of a session, by a client, a stage, a timer or the engine itself.

Imperative, frozen, closed. The bytes of sound never stand in a command: they travel beside it in memory, and
the core decides only where they will lie (`AudioReceived.ref`, `AudioDelta.ref`).
"""

from collections.abc import Mapping
from typing import Literal, get_args

from msgspec import Struct

from .audio import AudioFormat, TextMark
from .config import Capabilities, ConfigPatch, Dialect, JsonText, Limits, Modality, SessionConfig
from .context import ContextTurn
from .errors import Detail
from .ids import EventPosition
from .items import Item, ItemReference
from .metrics import StageCost as StageCost
from .metrics import Usage as Usage


class Command(Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True, gc=False):
    """Anything that can be decided."""


class ClientCommand(Command, frozen=True, kw_only=True):
    """A command that came over an attachment.

    `attachment` is the generation of the connection that sent it: nothing of a replaced connection is executed
    (D24). `event_id` is the client's and only correlates errors. `client_seq` counts the commands of a session
    for exactly-once delivery (DESIGN 5.9); None: the client does not opt in.
    """

    attachment: int
    event_id: str | None = None
    client_seq: int | None = None


# -- life cycle ----------------------------------------------------------------------------------------------


class OpenSession(Command, frozen=True, kw_only=True):
    """Create the session. `control_id` makes it repeatable; `token_digest` is hex SHA-256 of the resume token.

    `owner` is the public id of the API key that it counts for, empty where none is needed.
    """

    session: str
    control_id: str
    dialect: Dialect
    plugin: str
    plugin_version: str
    capabilities: Capabilities
    config: SessionConfig
    limits: Limits = Limits()
    wall_us: int
    token_digest: str | None = None
    by_update: bool = False
    event_id: str | None = None
    owner: str = ""


class ResumeSession(Command, frozen=True, kw_only=True):
    """Attach a new connection in place of the last one (D22, D23): lease, attachment and token in one step.

    `presented` and `next_digest` are hex SHA-256 digests; `last_number` is the last public number the client
    saw. `expected_generation` is the lease generation the caller knows, None for "the current one". `gap`: not all
    messages above `last_number` can be replayed any more. Where messages have no numbers, `position` is the last
    one that the client saw, and `ahead`: there is none there yet. `owner` is the public id of the API key that the
    connection showed, empty where none is needed.
    """

    control_id: str
    presented: str
    next_digest: str
    last_number: int = 0
    expected_generation: int | None = None
    gap: bool = False
    position: EventPosition | None = None
    ahead: bool = False
    owner: str = ""


class ConfirmAttachment(Command, frozen=True, kw_only=True):
    """The client of this attachment was heard (an inbound frame, or the pong behind `session.resumed`)."""

    attachment: int


class Detach(Command, frozen=True, kw_only=True):
    """Nobody serves the session any more. A connection's own detach gives the lease generation that it served,
    which is its fence and makes it repeatable (D31, C6). An operator's has a `control_id` and may leave the
    generation out: whoever serves then (C5)."""

    generation: int | None = None
    reason: Literal["disconnect", "idle_timeout", "slow_consumer", "transport_error", "shutdown", "operator"] = (
        "disconnect"
    )
    control_id: str | None = None


class Heartbeat(ClientCommand, frozen=True, kw_only=True):
    """Renew the lease and answer."""


CloseReason = Literal[
    "client_close",
    "disconnect",
    "idle_timeout",
    "slow_consumer",
    "timeout",
    "transport_error",
    "open_abandoned",
    "shutdown",
    "operator",
    "idle_ttl_expired",
    "disconnect_grace_expired",
    "max_duration",
    "request_cleanup",
    "runtime_append_task_failed",
    "internal_error",
]
"""Why a session ends; the list is closed (M18)."""

CLOSE_REASONS: Mapping[str, CloseReason] = {reason: reason for reason in get_args(CloseReason)}


class CloseSession(Command, frozen=True, kw_only=True):
    """End the session for good. `attachment` None: the engine or an operator asks, not a connection.

    `words` is what the asker says about it. A reason that is none of `CloseReason` counts as such words too.
    """

    control_id: str
    reason: str = "client_close"
    words: str | None = None
    attachment: int | None = None


class Tick(Command, frozen=True, kw_only=True):
    """The session's timer: some deadline may have passed. A stale one decides to nothing."""


class StartRunner(Command, frozen=True, kw_only=True):
    """A new process took the session over; everything that lived in the old one is gone (DESIGN 4, restart)."""

    term: int
    wall_us: int
    grace_ms: int = 120_000


class ReportRefusal(Command, frozen=True, kw_only=True):
    """Something was refused before it could become a command. `numbered` False: it never was one (WIRE 3.1).

    `client_seq`: it was a counted command; it counts as carried out, or the next one would be a gap (5.9).
    """

    attachment: int
    code: str
    message: str
    param: str | None = None
    event_id: str | None = None
    detail: Detail | None = None
    numbered: bool = True
    client_seq: int | None = None


class ReportFault(Command, frozen=True, kw_only=True):
    """Handling a command raised an error of ours; the command changed nothing (M10).

    It came over `attachment`, or was a stage's report of `request`. `append`: it carried sound, which is lost.
    """

    attachment: int | None = None
    event_id: str | None = None
    client_seq: int | None = None
    append: bool = False
    request: str | None = None


# -- input ---------------------------------------------------------------------------------------------------

OverlapAction = Literal["barge_in", "listen", "continue", "drop"]
"""What a client wants done about sound that it sends during an answer."""

_OVERLAP_ACTIONS: Mapping[str, OverlapAction] = {
    "barge_in": "barge_in",
    "interrupt": "barge_in",
    "cancel": "barge_in",
    "listen": "listen",
    "continue": "continue",
    "continue_output": "continue",
    "ack": "continue",
    "drop": "drop",
    "ignore": "drop",
    "silence": "drop",
}


def overlap_action(word: str | None) -> OverlapAction | None:
    """Return the action that a client spelled, in any case; an unknown word asks for nothing (F15)."""
    return _OVERLAP_ACTIONS.get(word.lower()) if word is not None else None


class AppendAudio(ClientCommand, frozen=True, kw_only=True):
    """`size` bytes of sound in the model's input format; the bytes travel beside the command.

    `scores` are speech probabilities in thousandths, one for each 512-sample frame that this append completed;
    `lead` is how many samples of the first of these frames came with earlier appends. `speech` is the verdict of
    the client or of the level meter, used when the session has no server VAD (E3), or has one that cannot tell
    (`scored` False, F10). `wire_bytes` is the size as decoded from the wire, which the byte budget counts (E12);
    `sent` how many samples of the model's rate the client's own samples last, where the resampler gave another
    number. `overlap`, `force_listen` and `force_barge_in` say what the client wants done with it during an answer
    (WIRE 6.4). `frames` are the sizes of pictures (JPEG or PNG) that the camera took meanwhile; their bytes follow
    the sound (E7).
    """

    size: int
    sent: int = 0
    wire_bytes: int = 0
    scores: tuple[int, ...] = ()
    lead: int = 0
    scored: bool = True
    speech: bool = True
    transcript: str | None = None
    overlap: OverlapAction | None = None
    force_listen: bool = False
    force_barge_in: bool = False
    frames: tuple[int, ...] = ()


class AppendText(ClientCommand, frozen=True, kw_only=True):
    """Write into the turn that is being built, beside the sound (WIRE 2.15)."""

    text: str


class CommitInput(ClientCommand, frozen=True, kw_only=True):
    """Seal the input buffer into a user item. `create_response` None: by the session's kind (E37)."""

    create_response: bool | None = None
    is_speech: bool | None = None
    final: bool = True


class ClearInput(ClientCommand, frozen=True, kw_only=True):
    """Drop what is buffered and not committed (E28)."""


class CancelInput(ClientCommand, frozen=True, kw_only=True):
    """Clear the input and interrupt a running or playing answer (E29)."""


# -- conversation and responses ------------------------------------------------------------------------------


class CreateItem(ClientCommand, frozen=True, kw_only=True):
    """Add an item. An empty `item.id` asks for one; `previous_item_id` None appends, `root` prepends.

    The bytes of its sound and pictures travel beside the command, one behind the other, in the order of its parts.
    """

    item: Item
    previous_item_id: str | None = None


class DeleteItem(ClientCommand, frozen=True, kw_only=True):
    """Take an item out of the conversation."""

    item_id: str


class RetrieveItem(ClientCommand, frozen=True, kw_only=True):
    """Show an item as the session has it."""

    item_id: str


class TruncateItem(ClientCommand, frozen=True, kw_only=True):
    """The user heard `audio_end_ms` of an assistant item and no more (I15, I16)."""

    item_id: str
    audio_end_ms: int
    content_index: int = 0


class ResponseOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Overrides for one response; None keeps the session's value.

    `max_output_tokens` `inf`: no limit, whatever the session's is. `remember` False: out of band, it writes nothing
    into the conversation. `input` is read in place of the conversation; empty, there are only the instructions.
    """

    instructions: str | None = None
    output_modalities: tuple[Modality, ...] | None = None
    output_format: AudioFormat | None = None
    voice: str | None = None
    speed: float | None = None
    max_output_tokens: int | Literal["inf"] | None = None
    temperature: float | None = None
    metadata: dict[str, str] | None = None
    tools: JsonText | None = None
    tool_choice: JsonText | None = None
    input: tuple[Item | ItemReference, ...] | None = None
    extras: dict[str, JsonText] | None = None
    remember: bool = True


class CreateResponse(ClientCommand, frozen=True, kw_only=True):
    """Answer now."""

    options: ResponseOptions = ResponseOptions()


class CancelResponse(ClientCommand, frozen=True, kw_only=True):
    """Stop the named response, else the active one (G31)."""

    response_id: str | None = None


class BargeIn(ClientCommand, frozen=True, kw_only=True):
    """The client says that the user cut in (WIRE 2.16)."""


class ClearOutput(ClientCommand, frozen=True, kw_only=True):
    """Stop playing: drop queued sound and the rest of its response (WIRE 2.5)."""

    response_id: str | None = None


class AckPlayback(ClientCommand, frozen=True, kw_only=True):
    """`played_ms` of a response left the speaker (I6)."""

    played_ms: int
    committed_ms: int | None = None
    response_id: str | None = None
    item_id: str | None = None
    truncate: bool = False


class UpdateSession(ClientCommand, frozen=True, kw_only=True):
    """Change the configuration, all or nothing (L1)."""

    patch: ConfigPatch


Signal = Literal[
    "user_started", "user_committed", "assistant_started", "assistant_done", "playback_ack", "timeout", "close"
]
"""What a client may say that it sees of the turn."""


class SignalTurn(ClientCommand, frozen=True, kw_only=True):
    """Tell what the client sees of the turn (L14).

    `playback_ack` carries how far the current answer was played, as `AckPlayback` does. `timeout` and `close` end
    the session.
    """

    signal: Signal
    playback: AckPlayback | None = None


# -- what stages report --------------------------------------------------------------------------------------


class StageReport(Command, frozen=True, kw_only=True):
    """Something that a stage says about a request. A request that is not live decides to nothing (DESIGN 3)."""

    request: str


class StageAccepted(StageReport, frozen=True, kw_only=True):
    """The stage took the request; with `operation`, all units of it up to this one (K8)."""

    operation: int | None = None


class StageRefused(StageReport, frozen=True, kw_only=True):
    """The stage could not take this unit of a resident request, nor any that was sent behind it (E25).

    Their numbers are not used up: the next unit has the number of this one. The request goes on.
    """

    operation: int
    message: str
    code: str = "runtime_append_failed"


class StageTranscribed(StageReport, frozen=True, kw_only=True):
    """What the user said in item `item_id`, which the request answers; `final` False is a delta.

    Of a request whose purpose is to transcribe it is all that was said so far, each time anew.
    `error` says why there are no words; `text` is then empty.
    """

    item_id: str
    text: str
    seconds: float = 0.0
    final: bool = True
    error: str | None = None


class StageProduced(StageReport, frozen=True, kw_only=True):
    """A piece of an answer: `text`, and `size` bytes of sound in the response's format (beside the command).

    `marks` are relative to the response, as far as the stage knows them, and may lie ahead of the sound.
    `operation`: it comes of this unit, which is thereby accepted, and all before it. `model_turn`: the turn that
    the model counts; None: that of the session.
    """

    text: str = ""
    size: int = 0
    marks: tuple[TextMark, ...] = ()
    operation: int | None = None
    model_turn: int | None = None


Decision = Literal["listen", "speak", "end_of_turn"]
"""What a resident model decides when it has worked off its units: to hear on, to speak on, to have done."""


class StageSegmentFinished(StageReport, frozen=True, kw_only=True):
    """A resident model has worked off all units up to `operation` and waits for more; its request goes on (G15).

    `listen`: it has nothing to say (`reason` says why; `buffering`: it needs more before it can tell, G18; `abort`:
    later stages were warmed for sound that does not come, G16). `speak`: it is in the middle of an answer, and
    needs time to go by (G25). `end_of_turn`: it has said all (G14, G19). `usage` and `costs` are of this segment.
    """

    decision: Decision
    operation: int | None = None
    reason: str | None = None
    model_turn: int | None = None
    buffering: bool = False
    abort: bool = False
    usage: Usage = Usage()
    costs: tuple[StageCost, ...] = ()


class StageOwned(StageReport, frozen=True, kw_only=True):
    """The model has taken in the function outputs up to this `generation` (J14)."""

    generation: int


class StageCalled(StageReport, frozen=True, kw_only=True):
    """A piece of a function call that the model asks for, after everything that it says in the same answer.

    `index` counts the calls of an answer, from 0. The first piece of a call names the function, and the call
    (`call_id` empty: the session names it); `arguments` is the next piece of the model's raw JSON text; `final`
    marks the last piece. `ends`: the answer is complete with it although the request goes on (a resident model).
    """

    index: int = 0
    name: str = ""
    call_id: str = ""
    arguments: str = ""
    final: bool = True
    ends: bool = False


class StageMeasured(StageReport, frozen=True, kw_only=True):
    """What stages have spent on the request since they said so last; it comes in the order of the outputs (K24)."""

    costs: tuple[StageCost, ...] = ()
    usage: Usage = Usage()


class StageInnerFinished(StageReport, frozen=True, kw_only=True):
    """An inner stage of the request's chain has said all that it had to say; the stages behind it go on (N16).

    `stage` counts from 0, in the order of the model's stages.
    """

    stage: int


class StageContext(StageReport, frozen=True, kw_only=True):
    """What the model will remember of the turn that the request answers, once its text is complete (H15)."""

    turn: ContextTurn


class StageFinished(StageReport, frozen=True, kw_only=True):
    """The answer is complete. `stop` is `stop` or the limit that was hit.

    `silent`: the model has decided to say nothing; `reason` says why (G15). `abort`: later stages were warmed for
    sound that does not come, and must be stopped (G16). The costs are those that were not told before.
    """

    stop: Literal["stop", "max_output_tokens", "content_filter"] = "stop"
    silent: bool = False
    reason: str | None = None
    abort: bool = False
    usage: Usage = Usage()
    costs: tuple[StageCost, ...] = ()


class StageFailed(StageReport, frozen=True, kw_only=True):
    """The request ended in an error (K16). `goes_on`: it did not, only what it was saying is void (G24)."""

    code: str
    message: str
    goes_on: bool = False


class StageReleased(StageReport, frozen=True, kw_only=True):
    """The stage has forgotten the request (K19)."""


class StageAbortFailed(StageReport, frozen=True, kw_only=True):
    """The stage could not stop or forget the request (K22): it may still hold what the request needs."""

    message: str = ""


class StageLost(StageReport, frozen=True, kw_only=True):
    """Nobody knows what became of the request: its process is gone."""


AnyCommand = (
    OpenSession
    | ResumeSession
    | ConfirmAttachment
    | Detach
    | Heartbeat
    | CloseSession
    | Tick
    | StartRunner
    | ReportRefusal
    | ReportFault
    | AppendAudio
    | AppendText
    | CommitInput
    | ClearInput
    | CancelInput
    | CreateItem
    | DeleteItem
    | RetrieveItem
    | TruncateItem
    | CreateResponse
    | CancelResponse
    | BargeIn
    | ClearOutput
    | AckPlayback
    | UpdateSession
    | SignalTurn
    | StageAccepted
    | StageRefused
    | StageTranscribed
    | StageProduced
    | StageSegmentFinished
    | StageOwned
    | StageCalled
    | StageMeasured
    | StageInnerFinished
    | StageContext
    | StageFinished
    | StageFailed
    | StageReleased
    | StageAbortFailed
    | StageLost
)
