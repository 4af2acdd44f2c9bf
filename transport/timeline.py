"""What happened when, read from a log: the story that a picture or an account of a session is made of.

Times are seconds of session time. Only events are read, so the story of an exported log is the same as that of
the live session.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from antiphon.engine.heard import Heard, Run
from antiphon.events import events as ev
from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.commands import ClientCommand, StageCost, StageReport
from antiphon.events.items import Message, text_of
from antiphon.events.log import Transaction

FRAME = 512
"""Samples of one voice activity score."""


class Piece(Struct, frozen=True):
    """Sound of the user: where it lies, and when its last sample arrived."""

    ref: SampleRef
    end_s: float


class Turn(Struct):
    """Something that the user said, or wrote in one moment. `stop_s` is when silence was noticed."""

    item_id: str
    start_s: float
    stop_s: float | None = None
    committed_s: float | None = None
    text: str = ""


class Delta(Struct, frozen=True):
    """Sound of an answer: sent at `at_s`, `start_ms` to `end_ms` of the answer."""

    at_s: float
    ref: SampleRef
    start_ms: int
    end_ms: int


class Span(Struct, frozen=True):
    """A stretch of an answer (`from_ms` to `to_ms` of it) that was heard from `start_s` to `end_s`.

    A piece that was late may move the end, but not beyond `until_s`.
    """

    start_s: float
    end_s: float
    from_ms: float
    to_ms: float
    until_s: float | None = None


class Answer(Struct):
    """One response. `points` are (time, milliseconds heard by then); `heard_ms` is set where it was cut.

    `modelled` is when it was heard by the playout model; None: nobody asked the model.
    """

    response_id: str
    item_id: str
    created_s: float
    format: AudioFormat
    first_s: float | None = None
    ended_s: float | None = None
    status: str = "in_progress"
    cause: str | None = None
    deltas: list[Delta] = field(default_factory=list[Delta])
    points: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    modelled: list[Span] | None = None
    heard_ms: int | None = None
    basis: str | None = None
    text: str = ""
    heard_text: str | None = None
    costs: tuple[StageCost, ...] = ()

    @property
    def sent_ms(self) -> int:
        """Sound that was sent."""
        return self.deltas[-1].end_ms if self.deltas else 0

    @property
    def played_ms(self) -> int:
        """Sound that was heard, as far as anybody said."""
        if self.heard_ms is not None:
            return self.heard_ms
        modelled = () if self.points else (int(span.to_ms) for span in self.modelled or ())
        return max((*(ms for _, ms in self.points), *modelled), default=0)


class Work(Struct):
    """One request at the stages. `end` is `finished`, `aborted` or (None) still running."""

    request: str
    start_s: float
    response_id: str | None
    first_s: float | None = None
    end_s: float | None = None
    end: str | None = None


class Wait(Struct, frozen=True):
    """How long the user waited: from the last of the voice to the first sound of the answer."""

    from_s: float
    until_s: float


class Connection(Struct):
    """A connection that served the session."""

    attachment: int
    start_s: float
    end_s: float | None = None
    reason: str | None = None


class Mark(Struct, frozen=True):
    """Something at one moment."""

    at_s: float
    label: str


class Story(Struct):
    """A whole session. `scores` are (time, probability of speech)."""

    session: str = ""
    plugin: str = ""
    input_format: AudioFormat = AudioFormat("pcm16", 16_000)
    end_s: float = 0.0
    transactions: int = 0
    events: int = 0
    pieces: list[Piece] = field(default_factory=list[Piece])
    scores: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    turns: list[Turn] = field(default_factory=list[Turn])
    answers: list[Answer] = field(default_factory=list[Answer])
    work: list[Work] = field(default_factory=list[Work])
    connections: list[Connection] = field(default_factory=list[Connection])
    interruptions: list[Mark] = field(default_factory=list[Mark])
    errors: list[Mark] = field(default_factory=list[Mark])
    commands: list[Mark] = field(default_factory=list[Mark])
    closed: str | None = None

    def time_of(self, position: int) -> float:
        """Return when byte `position` of the user's sound was spoken, by the arrival of the piece around it."""
        at = bisect_left(self.pieces, position, key=lambda piece: piece.ref.end)
        if at == len(self.pieces):
            return self.pieces[-1].end_s if self.pieces else 0.0
        piece = self.pieces[at]
        return piece.end_s - (piece.ref.end - position) / (self.input_format.width * self.input_format.rate)

    def answer(self, response_id: str | None) -> Answer | None:
        """Return a response by its id; the latest are asked for most."""
        return next((answer for answer in reversed(self.answers) if answer.response_id == response_id), None)

    def answered(self) -> Iterator[tuple[Turn, Answer]]:
        """Yield each committed turn that was answered with sound, with its answer."""
        spoken = [answer for answer in self.answers if answer.first_s is not None]
        for index, turn in enumerate(self.turns):
            if turn.committed_s is None:
                continue
            following = self.turns[index + 1].start_s if index + 1 < len(self.turns) else self.end_s + 1
            at = bisect_left(spoken, turn.committed_s, key=lambda answer: answer.created_s)
            if at < len(spoken) and spoken[at].created_s <= following:
                yield turn, spoken[at]


def tell(transactions: Iterable[Transaction]) -> Story:
    """Read a log from its beginning."""
    story = Story()
    heard = Heard()
    origin: int | None = None
    for transaction in transactions:
        heard.take(transaction)
        origin = transaction.at if origin is None else origin
        now = (transaction.at - origin) / 1e6
        story.end_s = now
        story.transactions += 1
        story.events += len(transaction.events)
        command = transaction.command
        if not isinstance(command, StageReport):
            name = type(command).__name__
            story.commands.append(Mark(now, name if isinstance(command, ClientCommand) else f"({name})"))
        for event in transaction.events:
            _happened(story, event, now)
    for answer in story.answers:
        if not heard.lost:
            answer.modelled = list(_modelled(heard.runs(answer.response_id), origin or 0))
    return story


def _modelled(runs: Iterable[Run], origin: int) -> Iterator[Span]:
    for run in runs:
        start = (run.at_us - origin) / 1e6
        end = start + (run.to_us - run.from_us) / 1e6
        until = None if run.until_us is None else (run.until_us - origin) / 1e6
        yield Span(
            start, end if until is None else min(end, until), run.from_us / 1000, run.to_us / 1000, until_s=until
        )


# -- the fold ------------------------------------------------------------------------------------------------


def _happened(story: Story, event: ev.AnyEvent, now: float) -> None:
    _lifecycle(story, event, now)
    _input(story, event, now)
    _work(story, event, now)
    _output(story, event, now)
    _heard(story, event, now)


def _lifecycle(story: Story, event: ev.AnyEvent, now: float) -> None:
    match event:
        case ev.SessionOpened():
            story.session = event.session
            story.plugin = f"{event.plugin} {event.plugin_version}"
            story.input_format = event.view.capabilities.input_format
            story.connections.append(Connection(1, now))
        case ev.SessionResumed():
            _end_connection(story, now, "replaced")
            story.connections.append(Connection(event.attachment, now))
        case ev.SessionDetached():
            _end_connection(story, now, event.reason)
        case ev.AttachmentWithdrawn():
            _end_connection(story, now, "withdrawn")
        case ev.EngineRestarted():
            _end_connection(story, now, "restart")
            for work in story.work:
                if work.request in event.lost:
                    _end_work(work, now, "lost")
        case ev.SessionClosed():
            _end_connection(story, now, event.reason)
            story.closed = event.reason
        case ev.ErrorReported():
            story.errors.append(Mark(now, event.code))
        case _:
            pass


def _end_connection(story: Story, now: float, reason: str) -> None:
    if story.connections and story.connections[-1].end_s is None:
        story.connections[-1].end_s = now
        story.connections[-1].reason = reason


def _input(story: Story, event: ev.AnyEvent, now: float) -> None:
    match event:
        case ev.AudioReceived():
            story.pieces.append(Piece(event.ref, now))
            rate = story.input_format.rate
            first = event.ref.start // story.input_format.width - event.lead
            for index, score in enumerate(event.scores, 1):
                behind = event.ref.end // story.input_format.width - first - index * FRAME
                story.scores.append((now - behind / rate, score / 1000))
        case ev.SpeechStarted():
            story.turns.append(Turn(event.item_id, story.time_of(event.start)))
        case ev.SpeechStopped():
            _turn(story, event.item_id, now).stop_s = now
        case ev.InputCommitted() if not event.empty:
            turn = _turn(story, event.item_id, now)
            turn.committed_s = now
            turn.text = event.transcript or turn.text
        case ev.ItemCreated(item=Message(role="user") as item):
            if all(turn.item_id != item.id for turn in reversed(story.turns)):  # it was written
                story.turns.append(Turn(item.id, now, now, now, text_of(item)))
        case ev.UserTranscribed():
            turn = _turn(story, event.item_id, now)
            turn.text = event.text if event.final else turn.text + event.text
        case _:
            pass


def _turn(story: Story, item_id: str, now: float) -> Turn:
    for turn in reversed(story.turns):
        if turn.item_id == item_id:
            return turn
    story.turns.append(Turn(item_id, now))
    return story.turns[-1]


def _work(story: Story, event: ev.AnyEvent, now: float) -> None:
    match event:
        case ev.RequestSubmitted():
            story.work.append(Work(event.request, now, event.response_id))
        case ev.PreviewRequested():
            story.work.append(Work(event.request, now, None))
        case ev.PreviewDropped():
            _abort(story, (event.request,), now)
        case ev.RequestFinished():
            for work in story.work:
                if work.request == event.request:
                    _end_work(work, now, "finished")
        case ev.Interrupted():
            story.interruptions.append(Mark(now, event.cause))
            _abort(story, event.requests, now)
        case ev.AsideCancelled():
            _abort(story, event.requests, now)
        case ev.OutputStarted():
            for work in story.work:
                if work.response_id == event.response_id and work.first_s is None:
                    work.first_s = now
        case _:
            pass


def _abort(story: Story, requests: tuple[str, ...], now: float) -> None:
    for work in story.work:
        if work.request in requests:
            _end_work(work, now, "aborted")


def _end_work(work: Work, now: float, end: str) -> None:
    if work.end is None:
        work.end_s, work.end = now, end


def _output(story: Story, event: ev.AnyEvent, now: float) -> None:
    match event:
        case ev.ResponseCreated():
            head = event.head
            story.answers.append(Answer(head.id, head.item_id, now, head.output_format))
        case ev.AudioDelta():
            answer = story.answer(event.response_id)
            if answer is not None:
                answer.first_s = now if answer.first_s is None else answer.first_s
                answer.deltas.append(Delta(now, event.ref, answer.sent_ms, event.audio_ms))
                answer.text += event.text
        case ev.TextDelta():
            answer = story.answer(event.response_id)
            if answer is not None:
                answer.text += event.text
        case ev.ResponseEnded():
            answer = story.answer(event.head.id)
            if answer is not None:
                answer.ended_s, answer.status, answer.costs = now, event.status, event.costs
                answer.text = event.text or answer.text
                answer.cause = event.cause or (None if event.status == "completed" else event.reason)
                if event.failure is not None:
                    answer.cause = event.failure.code
        case _:
            pass


def _heard(story: Story, event: ev.AnyEvent, now: float) -> None:
    match event:
        case ev.PlaybackAcknowledged():
            answer = story.answer(event.response_id)
            if answer is not None:
                answer.points.append((now, event.playback.played_ms))
                limit = event.playback.committed_ms
                if event.truncate or answer.heard_ms not in (None, limit):  # it corrects an estimate, or cuts
                    answer.heard_ms, answer.basis = limit, "ack"
                answer.heard_text = event.history or answer.heard_text
        case ev.HistoryCut():
            _cut(story.answer(event.response_id), now, event.ms, event.basis, event.text)
        case ev.ItemTruncated():
            _cut(story.answer(event.response_id), now, event.audio_end_ms, "truncate", event.text)
        case _:
            pass


def _cut(answer: Answer | None, now: float, ms: int, basis: str, text: str) -> None:
    if answer is None:
        return
    answer.heard_ms, answer.basis, answer.heard_text = ms, basis, text
    if answer.points and ms > answer.points[-1][1]:
        answer.points.append((now, ms))
