"""The state of a session: small records, each a fold over the events that concern it.

The records are mutable because the runner folds its own copy in place; nobody else may change one. Only
`evolve` writes here, and every phase moves by a row of `phases`.
"""

import copy as _copy
from typing import Literal

import msgspec
from msgspec import Struct, field

from antiphon.events import ids
from antiphon.events.audio import AudioFormat, SampleRef, TextMark
from antiphon.events.commands import CloseReason, ResponseOptions
from antiphon.events.config import Capabilities, Dialect, Limits, SessionConfig
from antiphon.events.context import ContextTurn
from antiphon.events.events import (
    Basis,
    CommandHeld,
    OutputHeld,
    ResponseHead,
    Sentence,
    SentenceRule,
    TurnEnd,
    TurnState,
    UnitTaken,
)
from antiphon.events.items import FunctionCall, FunctionOutput, Item, ItemStatus, Message
from antiphon.events.metrics import StageCost, Usage

from .batches import Batches
from .phases import AttachmentPhase, DeliveryPhase, InputPhase, RequestPhase, ResponsePhase, SessionPhase

STATE_VERSION = 34
"""Behaviour of the fold; a snapshot of another version is ignored."""

KEPT_CONTROLS = 1024
"""Outcomes of controls that are remembered: the last ones, and the last one of each kind (B21, DESIGN 5.2)."""
KEPT_PLAYOUTS = 64
"""Answers that are followed although they are not settled; of older ones only the item is left (I14)."""
KEPT_ASIDES = 16
"""Responses out of band of which what was heard is followed."""
KEPT_FORMATS = 4
"""Changes of the format that a resident request was told of which are remembered."""
KEPT_TOKENS = 8
"""Resume tokens that stay good beside the newest one until somebody is heard."""
KEPT_CALLS = 1024
"""Names of calls that models and clients chose which are remembered, so that none stands for two calls."""


class ControlOutcome(Struct, frozen=True):
    """What a control operation did, for a caller that lost the answer (B19, B20)."""

    kind: Literal["open", "resume", "detach", "close"]
    body: str
    attachment: int
    generation: int


class Lease(Struct):
    """Who serves the session: attachment, lease generation and token digests, changed by single events.

    `earlier_tokens` are good as well as `token`: since they were granted, nobody who came with one was heard.
    """

    phase: AttachmentPhase = "absent"
    attachment: int = 0
    generation: int = 0
    token: str | None = None
    earlier_tokens: tuple[str, ...] = ()
    confirm_by: int | None = None
    expires_at: int | None = None
    last_activity: int = 0
    client_seq: int = 0
    controls: dict[str, ControlOutcome] = field(default_factory=dict[str, ControlOutcome])

    @property
    def attached(self) -> bool:
        """Whether a connection serves the session."""
        return self.phase != "absent"


class Turn(Struct):
    """The counters of a conversation and what the session is doing, as clients are told.

    `waiting` are the items that are turns of the user without an answer, and `sown` counts texts that came with the
    configuration instead; `seeded`: there is one, for the model to begin with (G7). `due` are those of them whose
    answer is due as soon as the one before it has ended; an empty name stands for the answer to function outputs.
    """

    epoch: int = 0
    voided: int = 0
    """Sound of an epoch before this one was interrupted: it need not be sent any more (DESIGN 5.11)."""
    turn: int = 0
    commits: int = 0
    waiting: tuple[str, ...] = ()
    sown: int = 0
    seeded: bool = False
    due: tuple[str, ...] = ()
    gate: str | None = None
    """The request whose answer leaves room for the next turn (H3)."""
    listens: str | None = None
    """What a model that listens was last told to be doing; None: it speaks, or nothing was told (G17)."""
    state: TurnState = "idle"
    awaited: tuple[str, ...] = ()
    """Calls of the last response that has any, which have no output yet."""
    beside: tuple[str, ...] = ()
    """Those of them that belong to answers which drained while a newer one was made (H7)."""
    answered: bool = False
    """Some output of these calls has come, and no answer has seen it."""
    early: tuple[str, ...] = ()
    """Calls of open responses that have their output already, which no answer has seen yet."""
    absorbs: bool = False
    """The session answered function outputs by itself: the client's request for that answer is still to come."""

    @property
    def unanswered(self) -> int:
        """How many turns of the user nobody has answered."""
        return self.sown + len(self.waiting)

    @property
    def deferred(self) -> int:
        """How many answers are due."""
        return len(self.due)


class Vad(Struct):
    """Voice activity, folded from scores. Positions are samples of the input timeline.

    `patience` is how long the pause that goes on may last, in samples, if its words were judged. `spoken` is the
    end of the last frame of speech.
    """

    run: int = 0
    run_start: int = 0
    speaking: bool = False
    silent_since: int | None = None
    patience: int | None = None
    spoken: int = 0
    floor: int = 0


class Span(Struct, frozen=True, gc=False):
    """Sound on its way to a resident model, all of one kind. `final`: it ends a commit (E16)."""

    start: int
    end: int
    speech: bool
    force_listen: bool
    final: bool = False


class Unit(Struct, frozen=True):
    """A unit that the stage has not accepted yet, and when it was handed over."""

    taken: UnitTaken
    at: int

    @property
    def size(self) -> int:
        """Bytes of the `in` and `img` streams that it holds."""
        return size_of(self.taken.refs) + size_of(self.taken.frames)


class Continuation(Struct, frozen=True):
    """Units of silence for a model that paused (G25). `count` were given to `owner`; the next is given at `due`.

    `paced` is when the last one was due, or came, if that was more than a unit too late; None: sound came since.
    """

    request: str
    owner: str
    count: int = 0
    due: int | None = None
    paced: int | None = None


class Told(Struct, frozen=True):
    """The format in which a resident request delivers what it says because of a unit, `since` this one."""

    since: int
    format: AudioFormat


Group = tuple[SampleRef, ...]
"""Pictures that came with one append."""


class Stream(Struct):
    """The input of a resident model, unit by unit (E16-E22, N28).

    `buffer` is what is not committed in a session of turns, `queue` what may become units, oldest first; `pictures`
    and `groups` are what came with them. `seq` and `turn_seq` (in the model turn `turn`) number the last accepted
    unit, `operation` the last one taken. `configuration` is the generation that the model knows, `given` the last
    batch of function outputs that went with a unit. `anchor` is when the last accepted one was handed over (G28),
    `fed` when sound last came.
    `held` are commands that wait until nothing is in flight. `shown` is the length of the `img` stream. `sealed` is
    the item of the last commit, `untold` are the items that were written since the request began, and that no unit
    has told the model of.
    """

    buffer: list[Span] = field(default_factory=list[Span])
    pictures: list[Group] = field(default_factory=list[Group])
    queue: list[Span] = field(default_factory=list[Span])
    groups: list[Group] = field(default_factory=list[Group])
    held: list[CommandHeld] = field(default_factory=list[CommandHeld])
    shown: int = 0
    in_flight: list[Unit] = field(default_factory=list[Unit])
    operation: int = 0
    seq: int = 0
    turn: int = 0
    turn_seq: int = 0
    configuration: int = 0
    given: int = 0
    anchor: int | None = None
    fed: int = 0
    continuation: Continuation | None = None
    sealed: str | None = None
    untold: tuple[str, ...] = ()
    told: tuple[Told, ...] = ()
    """Formats of sound that the request was told, the last ones."""
    reserved: int = 0
    """Bytes that wait for the model or are not accepted yet, what waits behind them, words included, and all
    pictures that are kept (E13)."""

    def delivers(self, operation: int | None = None) -> AudioFormat | None:
        """Return the format of what is said because of a unit, of the last one that was taken if none is named."""
        if operation is None:
            operation = self.in_flight[0].taken.operation - 1 if self.in_flight else self.operation
        found: AudioFormat | None = None
        for told in self.told:
            if found is None or told.since <= operation:
                found = told.format
        return found

    @property
    def waiting(self) -> int:
        """Bytes of sound that are no unit yet."""
        size = 0
        for span in self.queue:
            size += span.end - span.start
        return size

    def weigh(self) -> None:
        """Count anew what is reserved, because some of it is gone."""
        kept = sum(size_of(group) for groups in (self.pictures, self.groups) for group in groups)
        held = sum(size_of(held.refs) + held.size for held in self.held)
        self.reserved = self.waiting + sum(unit.size for unit in self.in_flight) + held + kept

    @property
    def oldest(self) -> int | None:
        """The first byte of the `in` stream that waits for the model or was not accepted; None: there is none."""
        for unit in self.in_flight:
            if unit.taken.refs:
                return unit.taken.refs[0].start
        return self.queue[0].start if self.queue else None

    @property
    def earlier(self) -> frozenset[SampleRef]:
        """The places of bytes that came already, with commands that wait."""
        return frozenset(ref for held in self.held for ref in held.refs) if self.held else NO_PLACES


NO_PLACES: frozenset[SampleRef] = frozenset()


def size_of(refs: Group) -> int:
    """Return the bytes of some samples together."""
    size = 0
    for ref in refs:  # one or two, for every frame of sound: a generator costs more than it sums
        size += ref.size
    return size


class Ahead(Struct, frozen=True):
    """The running transcript of the utterance that is open: what was asked of the stage last, and what it has said.

    `until` is the sample up to which `request` listens, `whole`: to all that is buffered, and the detector has
    listened to what came behind it. `text` was heard up to sample `heard`: while another question is under way, or
    comes to nothing, that is less.
    """

    request: str
    until: int
    whole: bool = False
    text: str | None = None
    heard: int = 0
    sentence: Sentence = "unclear"
    rule: SentenceRule = "no_words"


class Input(Struct):
    """What the user sent and nobody has answered. Positions are bytes of the `in` stream.

    `start` is where the buffer begins. `retained` counts the committed bytes that no request was given yet, and
    `unanswered` is where they begin. `spoken` counts the bytes of speech in the buffer, `overlap_ms`
    how much of it came over an answer (F18). `text` is what was written into the turn beside the sound; it has
    `text_size` bytes, and `transcript` `hint_size`. `idle_since` is when the last answer ended behind which the
    user has done nothing; `prompted` is the item of the silence that was answered, until the user does something.
    `ahead` is what the stage was asked of the words so far.
    """

    phase: InputPhase = "silent"
    position: int = 0
    start: int = 0
    unanswered: int | None = None
    retained: int = 0
    item_id: str | None = None
    speech: bool = False
    spoken: int = 0
    non_speech: bool = False
    transcript: str = ""
    hint_size: int = 0
    text: str = ""
    text_size: int = 0
    overlap_ms: int = 0
    idle_since: int | None = None
    prompted: str | None = None
    vad: Vad = field(default_factory=Vad)
    ahead: Ahead | None = None
    stream: Stream = field(default_factory=Stream)

    @property
    def keep_from(self) -> int:
        """The first byte of the `in` stream that may still be needed."""
        first = self.start if self.unanswered is None else min(self.start, self.unanswered)
        waiting = self.stream.oldest
        return first if waiting is None else min(first, waiting)

    @property
    def received(self) -> int:
        """The length of the `in` stream: what was heard, and behind it what is held back."""
        for held in reversed(self.stream.held):
            if held.refs and held.refs[0].stream == "in":
                return held.refs[0].end
        return self.position

    @property
    def words(self) -> int:
        """Bytes of the words of the turn that is being built: written, or said of its sound by the client."""
        return self.text_size + self.hint_size

    @property
    def reserved(self) -> int:
        """Bytes held: buffered, committed and unanswered, written, or on their way to a resident model (P27)."""
        return self.position - self.start + self.words + self.retained + self.stream.reserved


class Output(Struct):
    """The `out` stream: its length in bytes."""

    position: int = 0


class Calling(Struct):
    """The function call that a response is writing."""

    index: int
    item_id: str
    call_id: str
    name: str
    arguments: str = ""

    def item(self, status: ItemStatus) -> FunctionCall:
        """Return the call as an item, with the arguments so far."""
        return FunctionCall(
            id=self.item_id, call_id=self.call_id, name=self.name, arguments=self.arguments, status=status
        )


class Response(Struct):
    """A response that is open: it owes its one terminal.

    `previous_item_id` is the item that its first item stands behind: the last one when it was announced (P41).
    `said` is its message once that is closed because calls follow; `calls` are complete, `calling` is the open one.
    """

    head: ResponseHead
    request: str
    options: ResponseOptions = ResponseOptions()
    phase: ResponsePhase = "created"
    opened_at: int = 0
    since: int = 0
    """When the input was handed over that it answers: its turn, or the unit before its first output (K27)."""
    by_unit: bool = False
    first_text_at: int | None = None
    first_audio_at: int | None = None
    costs: tuple[StageCost, ...] = ()
    usage: Usage = Usage()
    previous_item_id: str | None = None
    acknowledged: bool = False
    """Whether the client acknowledged it before there was anything to be heard of it."""
    text: str = ""
    said: Message | None = None
    calls: tuple[FunctionCall, ...] = ()
    calling: Calling | None = None

    @property
    def items(self) -> tuple[str, ...]:
        """The ids of its items: the message that it has or may have, its calls, and the one that is open."""
        calling = () if self.calling is None else (self.calling.item_id,)
        return (self.head.item_id, *(call.id for call in self.calls), *calling)

    @property
    def aside(self) -> bool:
        """Whether it is out of band: made beside the conversation, which does not know of it (G5)."""
        return self.head.conversation_id is None


class Playout(Struct):
    """How much of one response was sent and heard.

    `commits` counts the user's turns up to the one it belongs to. `spoken`: its part is one of sound. `unaligned`:
    its text is heard with the last of its sound, or not at all (I4). `placed`: its place in history was fixed when
    it was announced (I10); else that takes an acknowledgement. `complete`: the stage has said all of it. `started`
    is the session time at which its sound began to play by the playout model, None while nobody could hear it.
    `reached` is what had been sent (ms) when the last connection went: until the next one comes, no more than that
    can have been heard. `paused` is when delivery was held: nothing is played from there on. `acked_at` is the
    time of the last acknowledgement. `cap_ms` is a hard limit set by a truncation or an interruption, and
    `committed_ms` is then the same; `cut_at` says when it was first set.
    """

    response_id: str
    item_id: str
    format: AudioFormat
    turn: int
    commits: int
    sent: int = 0
    text: str = ""
    marks: list[TextMark] = field(default_factory=list[TextMark])
    started: int | None = None
    reached: int | None = None
    paused: int | None = None
    spoken: bool = True
    unaligned: bool = False
    placed: bool = False
    ended: bool = False
    complete: bool = False
    acked_at: int | None = None
    played_ms: int = 0
    committed_ms: int = 0
    cap_ms: int | None = None
    cap_basis: Basis | None = None
    cut_at: int | None = None

    @property
    def acked(self) -> bool:
        """Whether the client ever said how far it played."""
        return self.acked_at is not None

    @property
    def sent_ms(self) -> int:
        """Sound handed out, in milliseconds."""
        return self.format.ms(self.sent)


class Suspicion(Struct):
    """Speech over an answer that may be no turn of the user.

    `response_id` and `at_ms` are what was heard when it began, `start` is the sample where it begins. While
    delivery is held, what the stages say is kept: `size` bytes of it. `due`: it is decided then at the latest;
    None: when the utterance ends. `ended` is why the detector has ended it meanwhile.
    """

    phase: DeliveryPhase
    response_id: str
    at_ms: int
    start: int
    due: int | None
    held: list[OutputHeld] = field(default_factory=list[OutputHeld])
    size: int = 0
    ended: TurnEnd = "silence"


class Entry(Struct, frozen=True):
    """An item of the conversation. `heard` is the part of an assistant's text that is history; None: all.

    `weight` is what it counts as something that a client wrote: nothing, if it is an answer.
    """

    item: Item
    heard: str | None = None
    weight: int = 0


class Conversation(Struct):
    """The items, in order."""

    order: list[str] = field(default_factory=list[str])
    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
    attached: int = 0
    """Bytes of the `item` stream."""
    called: tuple[str, ...] = ()
    """Names of calls that models and clients chose, the last ones: they outlive the calls (J10)."""
    weight: int = 0
    """What all entries weigh."""


class Request(Struct, frozen=True):
    """Work at the stage: for a response, for the words of an `utterance` that is open, or resident.

    `aborted`: it was left because of an interruption; if its stage cannot stop it, the client is told (K22).
    """

    phase: RequestPhase
    response_id: str | None
    epoch: int
    remembered: bool = False
    aborted: bool = False
    utterance: str | None = None

    @property
    def resident(self) -> bool:
        """Whether it is extended unit by unit, and opens responses by itself."""
        return self.response_id is None and self.utterance is None


class Cleanup(Struct, frozen=True):
    """The one clean-up of a session (K20): what the stages still hold is asked for again at `due` (M12).

    `attempt` counts how often that was done since there was nothing to clean up.
    """

    attempt: int
    due: int


class Counters(Struct):
    """Where derived ids come from."""

    items: int = 0
    responses: int = 0
    calls: int = 0
    previews: int = 0


class Closing(Struct, frozen=True):
    """The decided end: why, of which kind, and when the terminal comes at the latest."""

    reason: CloseReason
    expired: bool
    deadline: int
    words: str | None = None


class Session(Struct):
    """Everything that is true about a session.

    `config_generation` counts published configurations (A20). `started`: there was input, so what is create-only
    is fixed (WIRE 1.4). `locked`: a resident stage has accepted some, so the model remembers what it was prompted
    with (L8); both outlive interruptions. `recorded` is how many bytes the `ref` stream has.
    """

    id: str = ""
    phase: SessionPhase = "new"
    dialect: Dialect = "ga"
    plugin: str = ""
    plugin_version: str = ""
    config: SessionConfig = field(default_factory=lambda: SessionConfig(model=""))
    capabilities: Capabilities = Capabilities()
    limits: Limits = Limits()
    resumable: bool = False
    owner: str = ""
    """The public id of the API key that it counts for."""
    config_generation: int = 0
    opened_at: int = 0
    opened_wall_us: int = 0
    now: int = 0
    next_number: int = 1
    locked: bool = False
    started: bool = False
    recorded: int = 0
    closing: Closing | None = None
    lease: Lease = field(default_factory=Lease)
    turn: Turn = field(default_factory=Turn)
    input: Input = field(default_factory=Input)
    output: Output = field(default_factory=Output)
    response: Response | None = None
    """The active response of the conversation."""
    others: dict[str, Response] = field(default_factory=dict[str, Response])
    """Responses beside the active one: draining ones of earlier turns (H), and those out of band (G5)."""
    reserved: ResponseOptions | None = None
    """What the client wants of the response that the model is about to open (G6)."""
    asides: dict[str, Playout] = field(default_factory=dict[str, Playout])
    """What was sent and heard of responses out of band; it concerns nobody but who asks (I11)."""
    playouts: dict[str, Playout] = field(default_factory=dict[str, Playout])
    suspicion: Suspicion | None = None
    """Speech that may turn out to interrupt the answer (DESIGN 5.13)."""
    conversation: Conversation = field(default_factory=Conversation)
    requests: dict[str, Request] = field(default_factory=dict[str, Request])
    cleanup: Cleanup | None = None
    context: tuple[ContextTurn, ...] = ()
    """What the model remembers of the turns, beside the conversation (H15)."""
    costs: tuple[StageCost, ...] = ()
    usage: Usage = Usage()
    """What was spent for a response that has not opened yet (K25)."""
    counters: Counters = field(default_factory=Counters)
    batches: Batches = Batches()

    @property
    def epoch(self) -> int:
        """The interruption counter."""
        return self.turn.epoch

    @property
    def auto(self) -> bool:
        """Whether the model listens all the time and answers on its own."""
        return self.config.auto_response and self.capabilities.core_resumable_request

    @property
    def resident(self) -> bool:
        """Whether the model keeps one request and extends it: the one place that is asked (A13)."""
        return self.capabilities.core_resumable_request

    @property
    def sees(self) -> bool:
        """Whether pictures are input by themselves: the model takes them, and can do without sound (E6, E23)."""
        required, optional = (
            self.capabilities.required_input_modalities,
            self.capabilities.optional_input_modalities,
        )
        return "audio" not in required and ("video" in required or "video" in optional)

    @property
    def open_responses(self) -> tuple[Response, ...]:
        """Every response that owes a terminal, oldest first within each lane; the active one comes last."""
        active = () if self.response is None else (self.response,)
        return (*self.others.values(), *active)

    def open_response(self, response_id: str) -> Response | None:
        """Return an open response of either lane."""
        active = self.response
        if active is not None and active.head.id == response_id:
            return active
        return self.others.get(response_id)

    def playout(self, response_id: str) -> Playout | None:
        """Return what is followed of a response, of either lane."""
        return self.playouts.get(response_id) or self.asides.get(response_id)

    def served_by(self, request: str) -> Response | None:
        """Return the open response that a request makes: ownership comes before lateness (G39)."""
        active = self.response
        if active is not None and active.request == request:
            return active
        return next((other for other in self.others.values() if other.request == request), None)


def copy(session: Session) -> Session:
    """Return a session that can be folded further without touching `session`."""
    twin = _copy.copy(session)
    twin.lease = _copy.copy(session.lease)
    twin.lease.controls = dict(session.lease.controls)
    twin.turn = _copy.copy(session.turn)
    twin.input = _copy.copy(session.input)
    twin.input.vad = _copy.copy(session.input.vad)
    stream = twin.input.stream = _copy.copy(session.input.stream)
    stream.buffer, stream.pictures = list(stream.buffer), list(stream.pictures)
    stream.queue, stream.groups = list(stream.queue), list(stream.groups)
    stream.in_flight, stream.held = list(stream.in_flight), list(stream.held)
    twin.output = _copy.copy(session.output)
    twin.response = _copied(session.response) if session.response is not None else None
    twin.others = {key: _copied(response) for key, response in session.others.items()}
    twin.playouts = {key: _followed(playout) for key, playout in session.playouts.items()}
    twin.asides = {key: _followed(playout) for key, playout in session.asides.items()}
    twin.suspicion = _copy.copy(session.suspicion)
    if twin.suspicion is not None:
        twin.suspicion.held = list(twin.suspicion.held)
    conversation = twin.conversation = _copy.copy(session.conversation)
    conversation.order, conversation.entries = list(conversation.order), dict(conversation.entries)
    twin.requests = dict(session.requests)
    twin.counters = _copy.copy(session.counters)
    return twin


def _followed(playout: Playout) -> Playout:
    twin = _copy.copy(playout)
    twin.marks = list(playout.marks)
    return twin


def _copied(response: Response) -> Response:
    twin = _copy.copy(response)
    twin.calling = _copy.copy(response.calling)
    return twin


def next_item_number(session: Session) -> int:
    """Return the counter of the next item that the server names; the fold steps over names that a client took."""
    return session.counters.items + 1


def next_response_number(session: Session) -> int:
    """Return the counter of the next response; the fold steps over ids whose item a client has made up."""
    return session.counters.responses + 1


def unanswered(session: Session) -> list[Item]:
    """Return the items that are turns of the user without an answer."""
    return [session.conversation.entries[item_id].item for item_id in session.turn.waiting]


def call_ids(session: Session) -> set[str]:
    """Return the names of all calls of the conversation."""
    entries = session.conversation.entries.values()
    return {entry.item.call_id for entry in entries if isinstance(entry.item, FunctionCall)}


def answered_calls(session: Session) -> set[str]:
    """Return the names of the calls whose output is in the conversation."""
    entries = session.conversation.entries.values()
    return {entry.item.call_id for entry in entries if isinstance(entry.item, FunctionOutput)}


def next_call_id(session: Session) -> str:
    """Return the name of a call that has none; the fold steps over names that a client took."""
    return ids.call_id(session.id, session.counters.calls + 1)


def opening_body(dialect: Dialect, plugin: str, config: SessionConfig) -> str:
    """Return what two openings under one control id must have in common (B20)."""
    return ids.fingerprint(_plain.encode((dialect, plugin, config)))


def resume_body(presented: str, last_number: int, position: ids.EventPosition | None) -> str:
    """Return what two resumes under one control id must have in common."""
    seen = last_number if position is None else ids.event_id(position.seq, position.index, position.part)
    return f"{presented}:{seen}"


def close_body(reason: str, words: str | None) -> str:
    """Return what two closes under one control id must have in common."""
    return f"{reason}:{words or ''}"


def detach_body(expected: int | None, reason: str) -> str:
    """Return what two detaches under one control id must have in common."""
    return f"{expected}:{reason}"


_plain = msgspec.msgpack.Encoder(order="deterministic")
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Session)


def dump(session: Session) -> bytes:
    """Encode a session for a snapshot."""
    return _encoder.encode(session)


def load(data: bytes) -> Session:
    """Decode what `dump` of the same `STATE_VERSION` made.

    Raises:
        msgspec.DecodeError: it is something else.
    """
    return _decoder.decode(data)
