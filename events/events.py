"""Events: what became true of a session. Past tense, frozen, closed; state is a fold over them.

A public event carries `number`, the number of its first message in the duplex dialect, and `count`, how many
messages it becomes there; both are decided once and never change. `number` 0 marks a public event whose
messages are not numbered and never replayed (WIRE 3.1). A public event holds everything that its messages
show, so that projecting it to any dialect needs no state.
"""

from typing import Literal

from msgspec import Struct

from .audio import AudioFormat, SampleRef, TextMark
from .batches import FunctionBatch
from .commands import (
    AppendAudio,
    AppendText,
    ClearInput,
    CloseReason,
    CommitInput,
    CreateItem,
    CreateResponse,
    DeleteItem,
    ResponseOptions,
    RetrieveItem,
    Signal,
    StageCalled,
    StageFinished,
    StageInnerFinished,
    StageProduced,
    StageSegmentFinished,
    UpdateSession,
)
from .config import Capabilities, Dialect, JsonText, Limits, Modality, SessionConfig
from .context import ContextTurn
from .errors import Detail
from .ids import EventPosition
from .items import FunctionCall, Item, Message, Part
from .metrics import Latency, StageCost, Usage

TurnState = Literal[
    "idle", "user_speaking", "user_committed", "assistant_generating", "assistant_playing", "barge_in"
]
SessionState = Literal["new", "open", "closing", "closed"]
ResponseStatus = Literal["in_progress", "completed", "cancelled", "incomplete", "failed"]
Basis = Literal["truncate", "ack", "playout"]
PartKind = Literal["audio", "text"]
UnitKind = Literal["audio", "silence", "conversation"]
"""Sound of the user; time that goes by, so that the model can go on (G25); the conversation, to be answered."""
Sentence = Literal["complete", "unfinished", "unclear"]
"""How what was said so far ends: like a finished sentence, in the middle of one, or nobody can tell."""
SentenceRule = Literal[
    "no_words",
    "trailing_off",
    "open_mark",
    "asked",
    "filler",
    "number",
    "leading_word",
    "particle",
    "end_mark",
    "no_mark",
]
"""The rule of `sessions/semantics.py` that judged a running transcript."""
TurnEnd = Literal[
    "silence",
    "sentence_complete",
    "sentence_unfinished",
    "sentence_unclear",
    "no_transcript",
    "client",
    "overlap",
    "idle",
]
"""Why an utterance, or a turn, has ended.

`silence`: that of the server's detector. With semantic detection, the silence that the words allowed: after a
complete sentence a short one, after an unfinished one the longest, after one that is unclear, or of which nobody
knows the words (`no_transcript`), that of its eagerness. `client`: it committed. `overlap`: what was said during an
answer is no turn. `idle`: the user said nothing at all.
"""
Cause = Literal[
    "barge_in",
    "turn_detected",
    "client_commit",
    "client_cancelled",
    "input_cancel",
    "output_audio_buffer_clear",
    "resident_ended",
]
"""Why an epoch ended: the engine's word."""
OverlapReason = Literal[
    "client_overlap_action",
    "client_force_barge_in",
    "client_force_listen",
    "server_vad_speech_started",
    "server_vad_utterance_active",
    "barge_in_on_speech",
    "barge_in_unsupported",
    "auto_response_continuous",
    "vision_follow",
    "silence_or_noise",
    "short_ack_transcript",
    "policy_listen_only",
    "policy_barge_in_on_speech",
    "interruption_suspected",
    "long_overlap_speech",
    "overlap_words",
]
"""The rule that decided about sound during an answer (WIRE 6.4); the last three are of suspected interruptions."""
DismissalReason = Literal[
    "too_short",
    "no_words",
    "backchannel",
    "client_overlap_action",
    "input_cleared",
    "answer_over",
    "answer_failed",
    "too_much_held",
    "engine_restarted",
]
"""Why delivery goes on behind a suspected interruption (DESIGN 5.13)."""


class PlaybackCursor(Struct, frozen=True, gc=False):
    """How far one response has come, in whole milliseconds: generated >= sent >= played >= committed."""

    generated_ms: int = 0
    sent_ms: int = 0
    played_ms: int = 0
    committed_ms: int = 0


class PausedOutput(Struct, frozen=True, gc=False):
    """How far an answer was heard when its delivery stopped."""

    response_id: str
    at_ms: int


class SessionView(Struct, frozen=True, kw_only=True):
    """The session as a client is shown it: built from state, the same in created, updated and resumed (L13)."""

    id: str
    dialect: Dialect
    config: SessionConfig
    capabilities: Capabilities
    resumable: bool
    expires_at: int
    state: SessionState
    turn_state: TurnState
    epoch: int
    turn: int
    active_request: str | None = None
    active_response: str | None = None
    active_response_turn: int | None = None
    playback: PlaybackCursor = PlaybackCursor()
    paused: PausedOutput | None = None
    """Where an answer stands still because of speech that may interrupt it."""


class ResponseHead(Struct, frozen=True, kw_only=True):
    """What is fixed about a response when it opens; later updates of the session do not reach it (G3)."""

    id: str
    item_id: str
    conversation_id: str | None
    turn: int
    epoch: int
    output_modalities: tuple[Modality, ...]
    output_format: AudioFormat
    voice: str
    speed: float = 1.0
    instructions: str = ""
    max_output_tokens: int | None = None
    temperature: float | None = None
    metadata: dict[str, str] | None = None
    tools: JsonText = "[]"
    tool_choice: JsonText = '"auto"'

    @property
    def part(self) -> PartKind:
        """The kind of its one content part."""
        return "audio" if "audio" in self.output_modalities else "text"


class Event(Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True, gc=False):
    """Anything that can have happened; private unless it is a `PublicEvent`."""


class PublicEvent(Event, frozen=True, kw_only=True):
    """An event that clients see."""

    number: int
    count: int


# -- life cycle ----------------------------------------------------------------------------------------------


class SessionOpened(PublicEvent, frozen=True, kw_only=True):
    """The session exists, and its first connection serves it (attachment 1, lease generation 0)."""

    session: str
    control_id: str
    plugin: str
    plugin_version: str
    limits: Limits
    wall_us: int
    token_digest: str | None
    view: SessionView
    owner: str = ""
    """The public id of the API key that it counts for; empty: none was needed."""


class SessionResumed(PublicEvent, frozen=True, kw_only=True):
    """A new connection serves the session: lease, attachment and token changed together (D23).

    `last_number` is the last public number that the client saw, `head` the last one before this event;
    `last_client_seq` the last exactly-once command that was applied. `position`: the last message that it saw,
    where messages have no numbers.
    """

    control_id: str
    presented: str
    attachment: int
    generation: int
    token_digest: str
    last_number: int
    head: int
    last_client_seq: int
    view: SessionView
    position: EventPosition | None = None


class AttachmentConfirmed(Event, frozen=True, kw_only=True):
    """The client was heard on this attachment; the token it presented is void from here on (DESIGN 5.6)."""

    attachment: int


class AttachmentWithdrawn(Event, frozen=True, kw_only=True):
    """The attachment was never heard: the presented token stays valid, the new one is void, grace begins."""

    attachment: int


class SessionDetached(Event, frozen=True, kw_only=True):
    """Nobody serves the session; it ends `grace_ms` from here unless it is resumed.

    `control_id` and `expected` (the generation that was asked for, if any) are an operator's.
    """

    generation: int
    reason: str
    grace_ms: int
    control_id: str | None = None
    expected: int | None = None


class SessionTouched(PublicEvent, frozen=True, kw_only=True):
    """A heartbeat renewed the lease."""

    session: str


class ConfigUpdated(PublicEvent, frozen=True, kw_only=True):
    """The configuration that is in force from here on; `generation` counts what was published (A20)."""

    generation: int
    config: SessionConfig
    view: SessionView


class ActivityNoted(Event, frozen=True, kw_only=True):
    """The client was active although nothing else came of it: the lease is renewed (E9)."""


class TurnSignalled(PublicEvent, frozen=True, kw_only=True):
    """The client said what it sees of the turn; `turn_state` is what the session says from here on (L14)."""

    session: str
    epoch: int
    signal: Signal
    turn_state: TurnState


class EngineRestarted(Event, frozen=True, kw_only=True):
    """Another runner owns the session; nothing more comes of the `lost` requests, and the stages shall forget them.

    Those of a dead process are forgotten already, and say so at once.
    """

    term: int
    wall_us: int
    epoch: int
    lost: tuple[str, ...]


class SessionClosing(Event, frozen=True, kw_only=True):
    """The end is decided (M2); what follows is teardown. `deadline_us`: the terminal comes then at the latest."""

    control_id: str | None
    reason: CloseReason
    expired: bool
    deadline_us: int
    requests: tuple[str, ...]
    words: str | None = None


class SessionClosed(PublicEvent, frozen=True, kw_only=True):
    """The last public event of a session (M4). `words`: what was said about it by who asked for it (M18)."""

    session: str
    reason: CloseReason
    expired: bool
    words: str | None = None


class ErrorReported(PublicEvent, frozen=True, kw_only=True):
    """A refused command, or a fault of ours; the session is otherwise unchanged (P32)."""

    code: str
    message: str
    param: str | None = None
    event_id: str | None = None
    detail: Detail | None = None


class CommandSequenced(Event, frozen=True, kw_only=True):
    """The exactly-once mark moved: this client command was applied or refused (DESIGN 5.9)."""

    client_seq: int


# -- input ---------------------------------------------------------------------------------------------------


class AudioReceived(Event, frozen=True, kw_only=True):
    """Sound was taken: its place in the `in` stream, and the scores that voice activity is folded from."""

    ref: SampleRef
    wire_bytes: int
    scores: tuple[int, ...] = ()
    lead: int = 0
    scored: bool = True
    """False: the session has server VAD, and it cannot tell (F10)."""
    speech: bool = True
    """The one verdict: of the detector if there is one that can tell, else of the client or of the level (E3)."""
    transcript: str | None = None
    buffered: bool = True
    """False: it is not kept for a commit (silence outside an utterance, or given to the model anyway)."""
    queued: bool = False
    """True: a model that listens all the time hears it, unit by unit."""
    force_listen: bool = False
    """True: the client wants that the model only listens to it (E21)."""
    frames: tuple[SampleRef, ...] = ()
    """Pictures that came with it: one group, which one unit takes (E22)."""


class UnitTaken(Event, frozen=True, kw_only=True):
    """Input left the front of the buffer for a resident model: one unit of it, not yet accepted (E16-E20).

    `operation` counts all units of the session and is never used again; `seq` counts 1, 2, 3 … the accepted units
    of the request, `turn_seq` those of the turn in it (A8): the numbers of a unit that is given up are given again.
    `refs` are its sound, oldest first, and `pad` the bytes of silence behind it, only ever at the end of a `final`
    one. `response_id`: the announced response that it shall be answered by; silence is then what lets a written
    turn start (G7).
    """

    request: str
    operation: int
    seq: int
    turn: int
    turn_seq: int
    refs: tuple[SampleRef, ...] = ()
    pad: int = 0
    kind: UnitKind = "audio"
    speech: bool = False
    force_listen: bool = False
    final: bool = False
    frames: tuple[SampleRef, ...] = ()
    response_id: str | None = None
    configuration: int | None = None
    """The generation of the configuration that the model works by from here on, if it is a new one (K3, L9)."""
    told: tuple[str, ...] = ()
    """Items that the model is told of with it: written since its request began, or since the last unit (G6)."""


class UnitsAccepted(Event, frozen=True, kw_only=True):
    """The stage has all units up to `operation`: their numbers are used up, their bytes given back (K8)."""

    operation: int


class UnitsGivenUp(Event, frozen=True, kw_only=True):
    """The unit `operation` and all behind it are lost: refused, or called off. They are not tried again (E25)."""

    operation: int


class UnitsReturned(Event, frozen=True, kw_only=True):
    """The unit `operation` and all behind it are in front of the buffer again, as they were (E20)."""

    operation: int


class ContinuationPlanned(Event, frozen=True, kw_only=True):
    """The model paused: unless sound comes, it is given a unit of silence at `due` (G25, G28).

    `owner`: the response, or the model turn, whose continuations are counted.
    """

    request: str
    owner: str
    due: int


class ContinuationDropped(Event, frozen=True, kw_only=True):
    """The planned unit of silence is not given: sound came, or what it should continue is over (G27)."""


HeldCommand = (
    AppendAudio
    | AppendText
    | CommitInput
    | ClearInput
    | UpdateSession
    | CreateItem
    | DeleteItem
    | RetrieveItem
    | CreateResponse
)


class CommandHeld(Event, frozen=True, kw_only=True):
    """A command waits until the units that went before it are accepted (E33, E38, L1), and others behind it.

    `refs` are the places of the bytes that came with it, in their order: sound and pictures, or parts of an item.
    `size` is what it weighs besides: its words.
    """

    command: HeldCommand
    refs: tuple[SampleRef, ...] = ()
    size: int = 0


class HoldEnded(Event, frozen=True, kw_only=True):
    """The command that was held longest is carried out, or refused, by the events that follow."""


class SpeechStarted(PublicEvent, frozen=True, kw_only=True):
    """The user began to speak; `start` is the first byte that the utterance keeps."""

    item_id: str
    audio_start_ms: int
    start: int


class SpeechStopped(PublicEvent, frozen=True, kw_only=True):
    """The user fell silent; `audio_end_ms` includes the silence that showed it.

    `rule` is what judged the words, if `reason` comes of them.
    """

    item_id: str
    audio_end_ms: int
    reason: TurnEnd = "silence"
    rule: SentenceRule | None = None


class PreviewRequested(Event, frozen=True, kw_only=True):
    """The user has paused, or something else wants to know: the stage is asked for the words of the open utterance.

    `ref` is its sound so far, or the last of it. The request lives as long as the utterance is open and nobody asks
    anew.
    """

    request: str
    item_id: str
    ref: SampleRef
    epoch: int


class TurnPreviewed(Event, frozen=True, kw_only=True):
    """The running transcript: what was heard of the open utterance when the stage was asked, and how that ends."""

    request: str
    item_id: str
    text: str
    sentence: Sentence
    rule: SentenceRule


class PreviewDropped(Event, frozen=True, kw_only=True):
    """The words of an open utterance are not wanted any more: it has ended, or was asked about anew."""

    request: str


class InputTimedOut(PublicEvent, frozen=True, kw_only=True):
    """The user said nothing for too long behind an answer: the silence becomes item `item_id`, and is answered."""

    item_id: str
    audio_start_ms: int
    audio_end_ms: int


class InputCommitted(PublicEvent, frozen=True, kw_only=True):
    """The buffer became a user item (or nothing, if `empty`).

    `content` is what the item is made of, `history_len` how many items the conversation has with it.
    `overlap_ack`: it was a short acknowledgement of the answer that goes on, and is forgotten (F19).
    `overlap_deferred`: it was spoken over an answer and waits behind it; `response_create_deferred`: its own
    answer does (F21). `reason` says what ended the turn.
    """

    session: str
    item_id: str
    previous_item_id: str | None
    ref: SampleRef | None
    epoch: int
    turn: int
    is_speech: bool = True
    empty: bool = False
    no_response: bool = False
    transcript: str | None = None
    overlap_ack: bool = False
    overlap_deferred: bool = False
    response_create_deferred: bool = False
    content: tuple[Part, ...] = ()
    history_len: int = 0
    reason: TurnEnd = "client"


class TextReceived(Event, frozen=True, kw_only=True):
    """The user wrote into the turn that is being built (WIRE 2.15)."""

    text: str


class InputCleared(PublicEvent, frozen=True, kw_only=True):
    """What was buffered is dropped."""


class InputDropped(Event, frozen=True, kw_only=True):
    """What was buffered went with an interruption that the client is told of in other words."""


class InputDiscarded(Event, frozen=True, kw_only=True):
    """What came during an answer is no turn of the user: it is forgotten, what is committed stays (F16)."""


class UserTranscribed(PublicEvent, frozen=True, kw_only=True):
    """Words of a user item. `count` 0: the client did not ask to see them; they are still history.

    `content_index` is the part of the item that is the sound of them.
    """

    item_id: str
    text: str
    seconds: float
    final: bool = True
    error: str | None = None
    content_index: int = 0


class OverlapDecided(PublicEvent, frozen=True, kw_only=True):
    """What was done about sound that came during an answer, and the rule that decided (F14).

    `duration_ms` is how long it lasts, `overlap_ms` how much speech over answers is buffered behind it. The rest
    are the columns of the rule: it is buffered, kept from the model until it is committed, not to be answered,
    what was announced stays, and what an interruption is called.
    """

    session: str
    epoch: int
    policy: str
    action: Literal["barge_in", "listen", "drop"]
    reason: OverlapReason
    duration_ms: int = 0
    overlap_ms: int = 0
    buffer: bool = False
    defer: bool = False
    force_listen: bool = False
    keep: bool = False
    cancel: str | None = None


class InterruptionSuspected(PublicEvent, frozen=True, kw_only=True):
    """Speech over an answer may be no turn of the user: delivery stands still until that is clear (DESIGN 5.13).

    `response_id` is the answer that was heard, or is being made, and `at_ms` how far it was heard. `start` is the
    sample of the input at which the speech begins.
    """

    response_id: str
    at_ms: int
    start: int
    reason: Literal["interruption_suspected"] = "interruption_suspected"


class InterruptionDismissed(PublicEvent, frozen=True, kw_only=True):
    """It was no interruption: the answer goes on at the sample where it stopped, with what was held.

    `count` 0: it has gone on before, and no client is told.
    """

    response_id: str
    at_ms: int
    reason: DismissalReason


class InterruptionDoubted(PublicEvent, frozen=True, kw_only=True):
    """Delivery goes on as if it was none; the utterance is still open, and may yet interrupt the answer."""

    response_id: str
    at_ms: int
    reason: DismissalReason


class ListenDecided(PublicEvent, frozen=True, kw_only=True):
    """The model goes on listening; with `response_id` it has yielded that response (WIRE 3.7).

    `model`: the model has decided so. `buffering`: it has not, it needs to hear more first (G18).
    """

    session: str
    epoch: int
    reason: str
    model: bool = False
    buffering: bool = False
    response_id: str | None = None


# -- conversation --------------------------------------------------------------------------------------------


class ItemCreated(PublicEvent, frozen=True, kw_only=True):
    """A complete item stands in the conversation, behind `previous_item_id` (None: at the beginning)."""

    item: Item
    previous_item_id: str | None


class ItemDeleted(PublicEvent, frozen=True, kw_only=True):
    """An item was taken out."""

    item_id: str


class ItemRetrieved(PublicEvent, frozen=True, kw_only=True):
    """An item was shown."""

    item: Item


class ItemTruncated(PublicEvent, frozen=True, kw_only=True):
    """The client said how much it heard: a cap for ever (I16). `text` is what is left."""

    item_id: str
    response_id: str
    content_index: int
    audio_end_ms: int
    text: str
    epoch: int


# -- responses -----------------------------------------------------------------------------------------------


class ResponseCreated(PublicEvent, frozen=True, kw_only=True):
    """A response is open and owes exactly one `ResponseEnded` (G8, G20).

    `unasked`: a resident model has begun it by itself. Of a session of turns, those that it was not given wait on.
    """

    head: ResponseHead
    request: str
    options: ResponseOptions
    unasked: bool = False


class OptionsReserved(Event, frozen=True, kw_only=True):
    """The client asked for an answer while the model was about to give one: these are its options (G6)."""

    options: ResponseOptions


class UnansweredDropped(Event, frozen=True, kw_only=True):
    """What was written cannot be answered by a model that only listens: it is no turn any more (G6)."""


class AsideCancelled(Event, frozen=True, kw_only=True):
    """A response beside the active one is called off: out of band (WIRE 2.7), or draining (WIRE 2.5).

    Nothing else is touched. Its `requests` are aborted.
    """

    response_id: str
    requests: tuple[str, ...]


class GateOpened(Event, frozen=True, kw_only=True):
    """The next turn may begin although the answer of this request is still being made (H3)."""

    request: str


class ContextCommitted(Event, frozen=True, kw_only=True):
    """The model remembers a turn: once, and whatever of it is played (H15)."""

    request: str
    turn: ContextTurn


class CostsNoted(Event, frozen=True, kw_only=True):
    """What stages spent on a response; None: on one that has not opened yet (K25)."""

    response_id: str | None
    costs: tuple[StageCost, ...] = ()
    usage: Usage = Usage()


class TurnCompleted(Event, frozen=True, kw_only=True):
    """The model has done with its turn `turn`, and with all before it (A6)."""

    turn: int


class ResponseDrains(Event, frozen=True, kw_only=True):
    """A response is still being made, and a newer turn may become the active one (H4)."""

    response_id: str


class CreationAbsorbed(Event, frozen=True, kw_only=True):
    """The client asked for the answer that follows its function outputs by itself (WIRE 7.4)."""


class AnswerDeferred(Event, frozen=True, kw_only=True):
    """An answer is due and waits for the end of the one that runs or plays (F21, WIRE 6.2).

    `item_id` is the turn that it is the answer to; empty: it answers function outputs.
    """

    item_id: str = ""


class RequestSubmitted(Event, frozen=True, kw_only=True):
    """Work was given to the stage. `response_id` None: a resident request that opens responses by itself."""

    request: str
    response_id: str | None
    epoch: int
    turn: int
    frames: tuple[SampleRef, ...] = ()
    """Pictures that came with what is to be answered."""


class RequestAccepted(Event, frozen=True, kw_only=True):
    """The stage has the request."""

    request: str


class RequestFinished(Event, frozen=True, kw_only=True):
    """The stage is done with it and shall forget it; `abort`: what later stages do for it is stopped (G16)."""

    request: str
    abort: bool = False


class RequestReleased(Event, frozen=True, kw_only=True):
    """The stage has forgotten it."""

    request: str


class CleanupFailed(Event, frozen=True, kw_only=True):
    """The stage could not forget a request; it will be asked again (M12)."""

    request: str


class CleanupRetried(Event, frozen=True, kw_only=True):
    """The stages are asked once more to forget `requests`: all that they still hold, in one effect (K20, M12).

    `attempt` counts 1, 2, 3 … since the first of them was left.
    """

    requests: tuple[str, ...]
    attempt: int


HeldReport = StageProduced | StageCalled | StageSegmentFinished | StageInnerFinished | StageFinished


class OutputHeld(Event, frozen=True, kw_only=True):
    """What a stage says while delivery stands still: it is decided when that goes on, in its place among the rest.

    `ref` is the place of its sound in the `out` stream, if it has any.
    """

    report: HeldReport
    ref: SampleRef | None = None


class OutputStarted(PublicEvent, frozen=True, kw_only=True):
    """The response has something to say: its message item and content part are open.

    `aside`: the item is out of band, the conversation does not know of it.
    """

    session: str
    response_id: str
    item: Message
    previous_item_id: str | None
    part: PartKind
    epoch: int
    aside: bool = False


class AudioDelta(PublicEvent, frozen=True, kw_only=True):
    """Sound of a response and the words that came with it. `audio_ms` is cumulative for the response.

    `aside`: it is out of band, and an interruption of the conversation does not void it.
    """

    session: str
    response_id: str
    item_id: str
    ref: SampleRef
    format: AudioFormat
    audio_ms: int
    text: str
    epoch: int
    marks: tuple[TextMark, ...] = ()
    playback: PlaybackCursor = PlaybackCursor()
    aside: bool = False
    costs: tuple[StageCost, ...] = ()
    """What the response has cost so far, if the session wants to see it."""


class TextDelta(PublicEvent, frozen=True, kw_only=True):
    """Words of a response without sound."""

    response_id: str
    item_id: str
    part: PartKind
    text: str
    epoch: int


class OutputEnded(PublicEvent, frozen=True, kw_only=True):
    """What a response says is complete, and function calls follow: its message item and content part close."""

    response_id: str
    item: Message
    previous_item_id: str | None
    part: PartKind
    text: str
    aside: bool = False


class FunctionBatched(Event, frozen=True, kw_only=True):
    """A function output waits for a resident model to take it in (J12)."""

    batch: FunctionBatch


class FunctionBatchesOwned(Event, frozen=True, kw_only=True):
    """The model has taken in all function outputs up to `generation`: they are not shown to it again (J14)."""

    generation: int


class CallStarted(PublicEvent, frozen=True, kw_only=True):
    """The model begins to ask for a function call: an item of the response is open."""

    response_id: str
    output_index: int
    item: FunctionCall
    previous_item_id: str | None
    aside: bool = False


class CallDelta(PublicEvent, frozen=True, kw_only=True):
    """The next piece of the arguments of the call that is open."""

    response_id: str
    output_index: int
    item_id: str
    call_id: str
    arguments: str


class CallEnded(PublicEvent, frozen=True, kw_only=True):
    """The call is complete: `item` has all of its arguments."""

    response_id: str
    output_index: int
    item: FunctionCall
    previous_item_id: str | None
    aside: bool = False


class Failure(Struct, frozen=True):
    """Why a response failed."""

    code: str
    message: str


class ResponseEnded(PublicEvent, frozen=True, kw_only=True):
    """The one terminal of a response. `item` None: it had nothing to say. `text` is all that was produced.

    `item_done`: the item was closed before (`OutputEnded`). `calls` are the function calls that it completed, `cut`
    is one that it did not. `cause` is the engine's own word for a cancellation; `reason` the client's (WIRE 3.4).
    `shows_costs`: the session wants to see them.
    """

    session: str
    head: ResponseHead
    status: ResponseStatus
    item: Message | None
    text: str
    item_done: bool = False
    calls: tuple[FunctionCall, ...] = ()
    cut: FunctionCall | None = None
    previous_item_id: str | None = None
    reason: str | None = None
    cause: str | None = None
    failure: Failure | None = None
    usage: Usage = Usage()
    costs: tuple[StageCost, ...] = ()
    committed: bool = False
    playback: PlaybackCursor = PlaybackCursor()
    shows_costs: bool = False
    latency: Latency = Latency()


class Interrupted(Event, frozen=True, kw_only=True):
    """What was being generated or played is dead: the epoch moved, `requests` are aborted (G34).

    `spares_turns`: turns that wait for an answer go on waiting; else they are dropped with their bytes (F23).
    `renews`: a resident model's memory has ended and begins anew, which voids nothing of what it said (A10).
    """

    epoch: int
    cause: Cause
    requests: tuple[str, ...]
    response_id: str | None = None
    spares_turns: bool = False
    renews: bool = False


class HistoryCut(Event, frozen=True, kw_only=True):
    """Item and history end at what was heard: `ms` of sound, `text` of the words (DESIGN 5.10)."""

    response_id: str
    item_id: str
    ms: int
    basis: Basis
    text: str


class OutputCleared(PublicEvent, frozen=True, kw_only=True):
    """Sound of a response that was still to be played is void. `asked`: in answer to the client."""

    response_id: str | None
    asked: bool


class PlaybackAcknowledged(PublicEvent, frozen=True, kw_only=True):
    """The client told how far it played. `history` is the part of the text that is history now."""

    session: str
    epoch: int
    response_id: str
    item_id: str
    played_ms: int
    committed_ms: int
    truncate: bool
    playback: PlaybackCursor
    history: str
    history_committed: bool


AnyEvent = (
    SessionOpened
    | SessionResumed
    | AttachmentConfirmed
    | AttachmentWithdrawn
    | SessionDetached
    | SessionTouched
    | ConfigUpdated
    | ActivityNoted
    | TurnSignalled
    | EngineRestarted
    | SessionClosing
    | SessionClosed
    | ErrorReported
    | CommandSequenced
    | AudioReceived
    | UnitTaken
    | UnitsAccepted
    | UnitsGivenUp
    | UnitsReturned
    | ContinuationPlanned
    | ContinuationDropped
    | CommandHeld
    | HoldEnded
    | TextReceived
    | SpeechStarted
    | SpeechStopped
    | PreviewRequested
    | TurnPreviewed
    | PreviewDropped
    | InputTimedOut
    | InputCommitted
    | InputCleared
    | InputDropped
    | InputDiscarded
    | UserTranscribed
    | OverlapDecided
    | InterruptionSuspected
    | InterruptionDismissed
    | InterruptionDoubted
    | ListenDecided
    | ItemCreated
    | ItemDeleted
    | ItemRetrieved
    | ItemTruncated
    | ResponseCreated
    | OptionsReserved
    | UnansweredDropped
    | AsideCancelled
    | GateOpened
    | ContextCommitted
    | CostsNoted
    | TurnCompleted
    | ResponseDrains
    | CreationAbsorbed
    | AnswerDeferred
    | RequestSubmitted
    | RequestAccepted
    | RequestFinished
    | RequestReleased
    | CleanupFailed
    | CleanupRetried
    | OutputHeld
    | OutputStarted
    | AudioDelta
    | TextDelta
    | OutputEnded
    | FunctionBatched
    | FunctionBatchesOwned
    | CallStarted
    | CallDelta
    | CallEnded
    | ResponseEnded
    | Interrupted
    | HistoryCut
    | OutputCleared
    | PlaybackAcknowledged
)
