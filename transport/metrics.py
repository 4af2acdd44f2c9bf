"""`GET /metrics` (WIRE 11.3): a fold over what is published, and a count of what there is when it is asked for.

Nothing else in the server measures for it. Labels come out of closed lists of the server's own, never from clients.
"""

from collections.abc import Iterator

from msgspec import Struct, field
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from antiphon.engine.hub import Hub
from antiphon.engine.published import Published
from antiphon.events import events as ev
from antiphon.events.config import SessionConfig
from antiphon.events.errors import CODES

from .metric_families import FAST_SECONDS, PREFIX, RATIOS, SECONDS, Spread, Tally, counter, gauge

CONTENT_TYPE = CONTENT_TYPE_LATEST

UNDERRUN_US = 100_000
"""A speaker that was without sound for less has played without a gap that is heard."""

APART_US = 500_000
"""Speech behind so long a silence is a new utterance."""


class _Answer(Struct):
    """A response that is being given. `first` and `behind` are when its sound began, and how far it fell behind."""

    at: int
    first: int | None = None
    audio_ms: int = 0
    behind: int = 0
    paused: bool = False


class _Session(Struct):
    """What has to be remembered of a session until it is measured. Times are its own, in microseconds."""

    threshold: float | None = None
    speech_since: int | None = None
    speech_at: int | None = None
    answers: dict[str, _Answer] = field(default_factory=dict[str, _Answer])
    submitted: dict[str, int] = field(default_factory=dict[str, int])


_STATES = (
    ev.SessionOpened,
    ev.SessionResumed,
    ev.ConfigUpdated,
    ev.AttachmentWithdrawn,
    ev.SessionClosed,
    ev.ErrorReported,
)
_WORK = (
    ev.SpeechStopped,
    ev.InterruptionSuspected,
    ev.Interrupted,
    ev.RequestSubmitted,
    ev.RequestAccepted,
    ev.ResponseCreated,
    ev.ResponseEnded,
)
_MEASURED = frozenset((ev.AudioDelta, ev.AudioReceived, *_STATES, *_WORK))
_FINISHED = {"completed": "stop", "incomplete": "length", "cancelled": "abort"}


class Metrics:
    """Counts for one hub: `take` is told of everything that is published, `text` shows what it came to."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._sessions: dict[str, _Session] = {}
        self._success = Tally("requests_success", "Responses that ended, by how.", "finished_reason")
        self._failed = Tally("requests_failed", "Responses that failed, by code.", "reason")
        self._prompt = Tally("prompt_tokens", "Tokens of words and sound that models were given.")
        self._generated = Tally("generation_tokens", "Tokens of words and sound that models made.")
        self._frames = Tally("audio_frames", "Frames of sound that stages made.", "stage")
        self._continuous = Tally("audio_continuity_ok", "Responses whose sound had no gap.", "threshold_ms")
        self._resumes = Tally("realtime_resumes", "Attempts to resume a session.", "outcome")
        self._vad_errors = Tally("realtime_vad_errors", "Failures of the voice detector.", "reason")
        self._e2e = Spread("e2e_request_latency_s", "From a response's creation to its end.", SECONDS)
        self._queue = Spread("request_queue_wait_s", "From a request's submission to its start.", FAST_SECONDS)
        self._stage = Spread("stage_gen_time_s", "How long a stage worked on a response.", SECONDS, "stage")
        self._ttfp = Spread("audio_ttfp_s", "From the end of the input to the first sound.", SECONDS)
        self._duration = Spread("audio_duration_s", "How much sound a response had.", SECONDS)
        self._rtf = Spread("audio_rtf", "A stage's work for each second of sound.", RATIOS, "stage")
        self._underrun = Spread("audio_underrun_s", "How long a speaker would have waited, at most.", FAST_SECONDS)
        self._endpoint = Spread("realtime_vad_endpoint_delay_s", "From the last speech to its end.", FAST_SECONDS)
        self._barge_in = Spread(
            "realtime_barge_in_latency_s", "From the first speech over an answer to its interruption.", FAST_SECONDS
        )
        self._grown = tuple(known for known in vars(self).values() if isinstance(known, Tally | Spread))
        self._refused = 0
        """Refused resumes that were counted in: no log holds them."""
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def take(self, name: str, entry: Published) -> None:
        """Count what a transaction of session `name` says."""
        transaction = entry.transaction
        for event in transaction.events:
            if type(event) in _MEASURED:
                session = self._sessions.get(name)
                if session is None:
                    session = self._sessions[name] = _Session()
                self._event(name, session, event, transaction.at)

    def text(self) -> bytes:
        """Return all figures as Prometheus reads them."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Give all figures of ours; the registry asks."""
        model = self._hub.settings.served_model
        yield from self._now(model)
        for grown in self._grown:
            yield grown.family(model)

    def _now(self, model: str) -> Iterator[Metric]:
        for name in [name for name in self._sessions if self._hub.session(name) is None]:
            del self._sessions[name]  # it was lost, and told nobody
        census, counted = self._hub.census(), self._hub.statistics()
        yield gauge("num_requests_running", "Responses that are being given.", model, census.answers)
        yield gauge("num_requests_waiting", "Requests that no stage has taken up.", model, census.waiting)
        yield gauge("realtime_vad_active_sessions", "Sessions with a voice detector.", model, census.detecting)
        yield gauge("realtime_journal_bytes", "What clients have not acknowledged.", model, census.journal_bytes)
        yield counter("realtime_listening_beats", "Decisions of models to listen on.", model, counted.beats)
        sessions = GaugeMetricFamily(
            f"{PREFIX}realtime_sessions", "Open sessions.", labels=("model_name", "dialect", "state")
        )
        for (dialect, state), count in sorted(census.sessions.items()):
            sessions.add_metric((model, dialect, state), count)
        yield sessions
        refused = counted.resumes_refused - self._refused
        if refused:
            self._resumes.add("refused", by=refused)
            self._refused = counted.resumes_refused

    # -- events ----------------------------------------------------------------------------------------------

    def _event(self, name: str, session: _Session, event: ev.AnyEvent, at: int) -> None:
        if isinstance(event, ev.AudioDelta):
            _fall_behind(session, event, at)
        elif isinstance(event, ev.AudioReceived):
            _listen(session, event, at)
        elif isinstance(event, _STATES):
            self._state(name, session, event)
        elif isinstance(event, _WORK):
            self._work(session, event, at)

    def _state(
        self,
        name: str,
        session: _Session,
        event: ev.SessionOpened
        | ev.SessionResumed
        | ev.ConfigUpdated
        | ev.AttachmentWithdrawn
        | ev.SessionClosed
        | ev.ErrorReported,
    ) -> None:
        match event:
            case ev.SessionOpened(view=view):
                _detect(session, view.config)
            case ev.SessionResumed(view=view):
                _detect(session, view.config)
                self._resumes.add("resumed")
            case ev.ConfigUpdated(config=config):
                _detect(session, config)
            case ev.AttachmentWithdrawn():
                self._resumes.add("withdrawn")
            case ev.SessionClosed():
                self._sessions.pop(name, None)
            case ev.ErrorReported(code=code):
                if code == "server_vad_unavailable":
                    self._vad_errors.add(code)

    def _work(
        self,
        session: _Session,
        event: ev.SpeechStopped
        | ev.InterruptionSuspected
        | ev.Interrupted
        | ev.RequestSubmitted
        | ev.RequestAccepted
        | ev.ResponseCreated
        | ev.ResponseEnded,
        at: int,
    ) -> None:
        match event:
            case ev.SpeechStopped():
                if session.speech_at is not None:
                    self._endpoint.add((at - session.speech_at) / 1e6)
            case ev.InterruptionSuspected(response_id=response_id):
                if response_id in session.answers:
                    session.answers[response_id].paused = True
            case ev.Interrupted(cause=cause):
                if session.speech_since is not None and cause in ("turn_detected", "barge_in"):
                    self._barge_in.add((at - session.speech_since) / 1e6)
            case ev.RequestSubmitted(request=request):
                session.submitted[request] = at
            case ev.RequestAccepted(request=request):
                since = session.submitted.pop(request, None)
                if since is not None:
                    self._queue.add((at - since) / 1e6)
            case ev.ResponseCreated(head=head):
                session.answers[head.id] = _Answer(at)
            case ev.ResponseEnded():
                self._ended(session, event, at)

    def _ended(self, session: _Session, event: ev.ResponseEnded, at: int) -> None:
        if event.failure is not None or event.status == "failed":
            code = event.failure.code if event.failure is not None else ""
            self._failed.add(code if code in CODES else "other")
        else:
            self._success.add(_FINISHED.get(event.status, "stop"))
        self._prompt.add(by=event.usage.input_text + event.usage.input_audio)
        self._generated.add(by=event.usage.output_text + event.usage.output_audio)
        if event.latency.first_audio_ms is not None:
            self._ttfp.add(event.latency.first_audio_ms / 1e3)
        for cost in event.costs:
            self._stage.add(cost.total_ms / 1e3, cost.stage)
            if cost.audio_s:
                self._rtf.add(cost.total_ms / 1e3 / cost.audio_s, cost.stage)
                self._frames.add(cost.stage, by=cost.audio_frames)
        answer = session.answers.pop(event.head.id, None)
        if answer is None:
            return
        self._e2e.add((at - answer.at) / 1e6)
        if answer.first is not None:
            self._duration.add(answer.audio_ms / 1e3)
            if not answer.paused:
                self._underrun.add(answer.behind / 1e6)
                if answer.behind < UNDERRUN_US:
                    self._continuous.add(str(UNDERRUN_US // 1000))


def _detect(session: _Session, config: SessionConfig) -> None:
    detection = config.turn_detection
    session.threshold = None if detection is None else detection.threshold * 1000


def _listen(session: _Session, event: ev.AudioReceived, at: int) -> None:
    """Note when speech was heard, as the detector takes it."""
    if session.threshold is None or not event.scores or max(event.scores) < session.threshold:
        return
    if session.speech_at is None or at - session.speech_at > APART_US:
        session.speech_since = at
    session.speech_at = at


def _fall_behind(session: _Session, event: ev.AudioDelta, at: int) -> None:
    """Note how long a speaker that began with the first sound has waited for this one."""
    answer = session.answers.get(event.response_id)
    if answer is None:
        return
    if answer.first is None:
        answer.first = at
    answer.behind = max(answer.behind, at - answer.first - answer.audio_ms * 1000)
    answer.audio_ms = event.audio_ms
