"""The way in: from a client's bytes to `AppendAudio`, in the client's order and within its credit."""

from collections import deque
from collections.abc import Callable
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from antiphon.events.audio import AudioFormat
from antiphon.events.commands import (
    AnyCommand,
    AppendAudio,
    BargeIn,
    CancelInput,
    ClearInput,
    ClientCommand,
    CloseSession,
    CommitInput,
    ReportRefusal,
    UpdateSession,
)

from .errors import Refused
from .pcm import Resampler, decode, level
from .runner import URGENT, Runner
from .scoring import RATE as SCORING_RATE
from .scoring import Scores, ScoringService, ScoringStream

Refuse = Callable[[Refused, str | None, int | None], None]
"""Where a refusal goes: the error, and the `event_id` and `client_seq` of what is refused (None: not refused)."""


class AppendRequest(Struct, frozen=True, kw_only=True):
    """A piece of sound as a client sent it, base64 undone. `format` None: the session's.

    `speech` and `probability` are the client's own verdict; `silence_rms` overrides the session's threshold.
    """

    data: bytes
    format: AudioFormat | None = None
    speech: bool | None = None
    probability: float | None = None
    silence_rms: float | None = None
    transcript: str | None = None
    event_id: str | None = None
    client_seq: int | None = None


Passing = ClientCommand | CloseSession | ReportRefusal
"""What leaves for the runner."""


class _Raw(Struct):
    """Something that came behind an undecided update: what it means is not known yet."""

    attachment: int
    what: AppendRequest | Passing
    refuse: Refuse


class _Slot(Struct):
    """A command in its place; an append that still waits for its scores is not `ready`."""

    command: Passing
    sound: bytes = b""
    ready: bool = True


class Ingress:
    """The input of one live session; it survives reconnects, because the resampler and the scorer do.

    Everything passes at once unless something before it waits: an append for its scores, or anything for an
    `UpdateSession` that is not decided yet, since it may change what bytes mean. Cancel-like commands never
    wait, unless they are counted (`client_seq`): exactly-once keeps the order.
    """

    def __init__(self, runner: Runner, scoring: ScoringService | None) -> None:
        self._runner = runner
        self._scoring = scoring
        self._stream: ScoringStream | None = None
        self._resampler: Resampler | None = None
        self._source: AudioFormat | None = None
        self._rate = runner.session.capabilities.input_format.rate
        self._slots: deque[_Slot] = deque()
        self._raw: deque[_Raw] = deque()
        self._updating = False
        self._waiting_bytes = 0

    @property
    def reserved(self) -> int:
        """Bytes of input that are somewhere between the socket and the answer (E13)."""
        return self._waiting_bytes + self._runner.queued_bytes + self._runner.session.input.reserved

    def send(self, attachment: int, command: ClientCommand | CloseSession, refuse: Refuse) -> None:
        """Take a command of the connection `attachment`."""
        if type(command) in URGENT and not _counted(command):
            if isinstance(command, BargeIn | CancelInput):
                self._drop()
            self._runner.post(_known(command))
        elif self._runner.full:
            refuse(Refused("input_backpressure", "Too many commands are waiting."), *_names(command))
        elif self._updating:
            self._raw.append(_Raw(attachment, command, refuse))
        else:
            self._command(attachment, command, refuse)

    def append(self, attachment: int, request: AppendRequest, refuse: Refuse) -> None:
        """Take sound. Over credit or undecodable it is refused at once, and nothing of it is kept."""
        size = len(request.data)
        limit = self._runner.session.limits.input_bytes
        if self._runner.full or self.reserved + size > limit:
            text = f"More than {limit} bytes of audio are waiting."
            refuse(Refused("input_backpressure", text), request.event_id, request.client_seq)
        elif self._updating:
            self._waiting_bytes += size
            self._raw.append(_Raw(attachment, request, refuse))
        else:
            self._append(attachment, request, refuse)

    def report(self, refusal: ReportRefusal) -> None:
        """Take a refusal: the client hears it behind the answers to what it sent before."""
        if self._updating:
            self._raw.append(_Raw(refusal.attachment, refusal, _never))
        else:
            self._leave(refusal, b"")

    # -- sound -----------------------------------------------------------------------------------------------

    def _append(self, attachment: int, request: AppendRequest, refuse: Refuse) -> None:
        config = self._runner.session.config
        source = request.format or config.input_format
        try:
            pcm = decode(request.data, source)
        except Refused as refused:
            refuse(refused, request.event_id, request.client_seq)
            return
        if source != self._source:
            self._flush(attachment, refuse)
            self._source = source
        if source.rate == self._rate:
            sound = pcm
        else:
            if self._resampler is None:
                self._resampler = Resampler(source.rate, self._rate)
            sound = self._resampler.feed(pcm)
        detected = config.turn_detection is not None
        command = AppendAudio(
            attachment=attachment,
            event_id=request.event_id,
            client_seq=request.client_seq,
            size=len(sound),
            wire_bytes=len(request.data),
            speech=True if detected else _verdict(request, pcm, config.overlap_silence_rms),
            transcript=request.transcript,
        )
        self._score(command, sound, refuse, detected=detected)

    def _flush(self, attachment: int, refuse: Refuse) -> None:
        """Send on what the resampler holds: the sound is over, or goes on in another format."""
        resampler, self._resampler = self._resampler, None
        tail = resampler.flush() if resampler is not None else b""
        if tail:
            detected = self._runner.session.config.turn_detection is not None
            self._score(AppendAudio(attachment=attachment, size=len(tail)), tail, refuse, detected=detected)

    def _score(self, command: AppendAudio, sound: bytes, refuse: Refuse, *, detected: bool) -> None:
        """Give the append its scores, if the session has server VAD, and its place."""
        if not detected or self._scoring is None or self._rate != SCORING_RATE:
            self._stream = None
            self._leave(command, sound)
            return
        if self._stream is None:
            self._stream = self._scoring.new_stream()
        slot = _Slot(command, sound, ready=False)
        self._slots.append(slot)
        self._waiting_bytes += command.wire_bytes

        def done(scores: Scores) -> None:
            slot.command = replace(command, scores=scores.values, lead=scores.lead)
            slot.ready = True
            if scores.failed:
                refuse(Refused("server_vad_unavailable", "Voice activity cannot be told."), command.event_id, None)
            self._pump()

        self._scoring.submit(self._stream, sound, done)

    def _drop(self) -> None:
        """Forget the sound that waits: what comes now clears the input anyway."""
        self._resampler = None
        self._stream = None
        self._slots = deque(slot for slot in self._slots if not _droppable(slot.command))
        self._raw = deque(
            raw for raw in self._raw if not (isinstance(raw.what, AppendRequest) and raw.what.client_seq is None)
        )
        self._waiting_bytes = sum(len(raw.what.data) for raw in self._raw if isinstance(raw.what, AppendRequest))
        self._waiting_bytes += sum(
            slot.command.wire_bytes for slot in self._slots if isinstance(slot.command, AppendAudio)
        )
        self._pump()

    # -- order -----------------------------------------------------------------------------------------------

    def _command(self, attachment: int, command: Passing, refuse: Refuse) -> None:
        if isinstance(command, CommitInput):
            self._flush(attachment, refuse)
        elif isinstance(command, ClearInput | CancelInput):
            self._resampler = None
        elif isinstance(command, UpdateSession):
            self._updating = True
        self._leave(command, b"")

    def _leave(self, command: Passing, sound: bytes) -> None:
        if self._slots:
            self._waiting_bytes += command.wire_bytes if isinstance(command, AppendAudio) else 0
            self._slots.append(_Slot(command, sound))
        else:
            self._post(command, sound)

    def _post(self, command: Passing, sound: bytes) -> None:
        if isinstance(command, UpdateSession):
            self._runner.post(_known(command), taken=self._updated)
        else:
            self._runner.post(_known(command), sound)

    def _pump(self) -> None:
        """Let everything leave that has nothing to wait for any more."""
        while self._slots and self._slots[0].ready:
            slot = self._slots.popleft()
            if isinstance(slot.command, AppendAudio):
                self._waiting_bytes -= slot.command.wire_bytes
            self._post(slot.command, slot.sound)

    def _updated(self) -> None:
        """An update was decided: what came behind it can be understood now, up to the next one."""
        self._updating = False
        while self._raw and not self._updating:
            raw = self._raw.popleft()
            if isinstance(raw.what, AppendRequest):
                self._waiting_bytes -= len(raw.what.data)
                self._append(raw.attachment, raw.what, raw.refuse)
            else:
                self._command(raw.attachment, raw.what, raw.refuse)


def _known(command: Passing) -> AnyCommand:
    # Every concrete class of `ClientCommand` is a member of the union; a test holds that.
    return cast("AnyCommand", command)


def _counted(command: ClientCommand | CloseSession) -> bool:
    return isinstance(command, ClientCommand) and command.client_seq is not None


def _droppable(command: Passing) -> bool:
    return isinstance(command, AppendAudio) and command.client_seq is None


def _names(command: ClientCommand | CloseSession) -> tuple[str | None, int | None]:
    """Return the `event_id` and the `client_seq` of a command."""
    return (command.event_id, command.client_seq) if isinstance(command, ClientCommand) else (None, None)


def _never(_refused: Refused, _event_id: str | None, _client_seq: int | None) -> None:
    """A refusal is not refused again."""


def _verdict(request: AppendRequest, pcm16: bytes, threshold: float) -> bool:
    """Return the one speech verdict of an append without server VAD (E3)."""
    if request.speech is not None:
        return request.speech
    if request.probability is not None:
        return request.probability >= 0.5
    least = threshold if request.silence_rms is None else request.silence_rms
    return bool(pcm16) and level(pcm16) >= least
