"""The way in: from a client's bytes to `AppendAudio`, in the client's order and within its credit."""

from collections.abc import Callable
from functools import partial
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from antiphon.events.audio import AudioFormat
from antiphon.events.commands import (
    AnyCommand,
    AppendAudio,
    ClearInput,
    ClientCommand,
    CloseSession,
    CommitInput,
    OverlapAction,
    ReportFault,
    ReportRefusal,
    UpdateSession,
)
from antiphon.events.config import SessionConfig
from antiphon.events.items import json_size

from .boundary import contained_step
from .errors import Refused
from .inbox import CLEARING, CLIENT_INBOX, REFUSALS_INBOX, URGENT_INBOX, Line, counted, urgent
from .item_request import ItemRequest, placed
from .pcm import Resampler, decode, level
from .runner import Runner
from .scoring import RATE as SCORING_RATE
from .scoring import Scores, ScoringService, ScoringStream

Refuse = Callable[[Refused, str | None, int | None], None]
"""Where a refusal goes: the error, and the `event_id` and `client_seq` of what is refused (None: not refused)."""


class AppendRequest(Struct, frozen=True, kw_only=True):
    """A piece of sound as a client sent it, base64 undone. `format` None: the session's.

    `frames` are pictures (JPEG or PNG) that the camera took meanwhile, `frames_size` what they weighed on the wire;
    there may be no sound with them.

    `speech` and `probability` are the client's own verdict; `silence_rms` overrides the session's threshold.
    `overlap`, `force_listen` and `force_barge_in` say what is wanted of it during an answer (WIRE 6.4).
    """

    data: bytes = b""
    frames: tuple[bytes, ...] = ()
    frames_size: int = 0
    format: AudioFormat | None = None
    speech: bool | None = None
    probability: float | None = None
    silence_rms: float | None = None
    transcript: str | None = None
    overlap: OverlapAction | None = None
    force_listen: bool = False
    force_barge_in: bool = False
    event_id: str | None = None
    client_seq: int | None = None

    @property
    def brought(self) -> int:
        """Bytes of sound and pictures, as decoded from the wire (E12)."""
        return len(self.data) + self.frames_size

    @property
    def size(self) -> int:
        """What it weighs against the session's credit: the client's words count as well."""
        return self.brought + json_size(self.transcript or "")


Passing = ClientCommand | CloseSession | ReportRefusal
"""What leaves for the runner."""


class Deferred(Struct, frozen=True, kw_only=True):
    """A request that means something only under the configuration in force when its turn comes.

    `understand` is called with it, once, and hands on what comes of it; `size` bytes are held until then.
    `sound` True: an append.
    """

    understand: Callable[[SessionConfig], None]
    size: int
    sound: bool = False
    event_id: str | None = None
    client_seq: int | None = None


class _Held(Struct):
    """Something that came behind an undecided update."""

    go_on: Callable[[], None]
    size: int = 0


class _Slot(Struct):
    """A command in its place; an append that still waits for its scores is not `ready`."""

    command: Passing
    sound: bytes = b""
    size: int = 0
    ready: bool = True


class Ingress:
    """The input of one live session; it survives reconnects, because the resampler and the scorer do.

    Everything passes at once unless something before it waits: an append for its scores, or anything for an
    `UpdateSession` that the session has not seen yet, since it may change what bytes mean. One that waits in the
    session itself holds nothing up: what comes behind it is understood as it says. Cancel-like commands pass sound
    that waits, here as in the runner's inbox; see there.
    """

    def __init__(self, runner: Runner, scoring: ScoringService) -> None:
        self._runner = runner
        self._scoring = scoring
        self._stream: ScoringStream | None = None
        self._resampler: Resampler | None = None
        self._source: AudioFormat | None = None
        self._inside: AppendAudio | None = None
        """The append whose end the resampler still holds."""
        self._rate = runner.session.capabilities.input_format.rate
        self._slots: Line[_Slot] = Line()
        self._held: Line[_Held] = Line()
        self._updating = False
        self._waiting_bytes = 0
        self._deaf = False
        """Whether the client was told that nothing here can tell whether it speaks."""
        self._failing = False
        """Whether it was told that this failed, and it has not worked since."""

    @property
    def reserved(self) -> int:
        """Bytes of input that are somewhere between the socket and the answer (E13)."""
        return self._waiting_bytes + self._runner.inbox.queued_bytes + self._runner.session.input.reserved

    @property
    def settled(self) -> SessionConfig | None:
        """The configuration that what comes now is understood by; None while an update before it is undecided."""
        return None if self._updating else self._runner.upcoming

    def send(
        self,
        attachment: int,
        command: ClientCommand | CloseSession,
        refuse: Refuse,
        size: int = 0,
        recording: bytes = b"",
    ) -> None:
        """Take a command of the connection `attachment` that has `size` bytes on the wire."""
        passes = urgent(command)
        no_room = self._no_room(0, URGENT_INBOX) if passes else self._no_room(size)
        if no_room is not None:
            refuse(no_room, *_names(command))
        elif passes:
            self._overtake(attachment, command, refuse)
        elif self._updating:
            self._hold(lambda: self._command(attachment, command, refuse, size, recording), size)
        else:
            self._command(attachment, command, refuse, size, recording)

    def append(self, attachment: int, request: AppendRequest, refuse: Refuse) -> None:
        """Take sound. Over credit or undecodable it is refused at once, and nothing of it is kept."""
        size = request.size
        no_room = self._no_room(size)
        if no_room is not None:
            refuse(no_room, request.event_id, request.client_seq)
        elif self._updating:
            self._hold(
                lambda: self._append(attachment, request, refuse), size, droppable=request.client_seq is None
            )
        else:
            self._append(attachment, request, refuse)

    def create(self, attachment: int, request: ItemRequest, refuse: Refuse) -> None:
        """Take an item that brings sound or pictures along; refused as a whole, or taken as a whole."""
        command = request.command
        no_room = self._no_room(request.size)
        if no_room is not None:
            refuse(no_room, *_names(command))
        elif self._updating:
            self._hold(lambda: self._create(attachment, request, refuse), request.size)
        else:
            self._create(attachment, request, refuse)

    def _create(self, attachment: int, request: ItemRequest, refuse: Refuse) -> None:
        try:
            command, data = placed(request, self._runner.upcoming, self._runner.session.capabilities.input_format)
        except Refused as refused:
            refuse(refused, *_names(request.command))
            return
        self._leave(command, data, request.size)

    def defer(self, request: Deferred, refuse: Refuse) -> None:
        """Let a request be understood: now, or behind the updates that are not decided yet."""
        if not self._updating:
            request.understand(self._runner.upcoming)
            return
        no_room = self._no_room(request.size)
        if no_room is not None:
            refuse(no_room, request.event_id, request.client_seq)
        else:
            droppable = request.sound and request.client_seq is None
            understand = request.understand
            self._hold(lambda: understand(self._runner.upcoming), request.size, droppable=droppable)

    def report(self, refusal: ReportRefusal) -> None:
        """Take a refusal: the client hears it behind the answers to what it sent before.

        Where far too much waits it is dropped. If it was counted, the commands behind it are refused as a gap,
        and the client has to send again from there.
        """
        if self._waiting >= REFUSALS_INBOX:
            return
        if self._updating:
            self._hold(lambda: self._leave(refusal, b"", 0))
        else:
            self._leave(refusal, b"", 0)

    def discard(self) -> None:
        """The session is closing: drop what waits, and give its credit back; nobody is told of each (M9)."""
        self._slots.clear()
        self._held.clear()
        self._updating = False
        self._waiting_bytes = 0

    @property
    def _waiting(self) -> int:
        return self._runner.inbox.clients + self._slots.size + self._held.size

    def _no_room(self, size: int, most: int = CLIENT_INBOX) -> Refused | None:
        """Return the refusal of something with `size` bytes, None if there is room for it."""
        if self._waiting >= most:
            return Refused("input_backpressure", "Too many commands are waiting.")
        limit = self._runner.session.limits.input_bytes
        if size and self.reserved + size > limit:
            return Refused("input_backpressure", f"More than {limit} bytes of input are waiting.")
        return None

    # -- sound -----------------------------------------------------------------------------------------------

    def _append(self, attachment: int, request: AppendRequest, refuse: Refuse) -> None:
        self._contain(
            partial(self._take, attachment, request, refuse), attachment, request.event_id, request.client_seq
        )

    def _contain(
        self, step: Callable[[], None], attachment: int, event_id: str | None, client_seq: int | None
    ) -> None:
        """Carry out a step on the way of sound. An error of ours there is told, and ends the session (M10)."""
        if not contained_step("an append failed", lambda: self._runner.name, step):
            self._runner.post(
                ReportFault(attachment=attachment, event_id=event_id, client_seq=client_seq, append=True)
            )

    def _take(self, attachment: int, request: AppendRequest, refuse: Refuse) -> None:
        config = self._runner.upcoming
        if not request.data:
            self._pictures(attachment, request)
            return
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
        scored = self._scored(config)
        command = AppendAudio(
            attachment=attachment,
            event_id=request.event_id,
            client_seq=request.client_seq,
            size=len(sound),
            sent=0 if sound is pcm else -(-len(pcm) // 2 * self._rate // source.rate),
            wire_bytes=request.brought,
            frames=tuple(map(len, request.frames)),
            scored=scored,
            speech=True if detected and scored else _verdict(request, pcm, config.overlap_silence_rms),
            transcript=request.transcript,
            overlap=request.overlap,
            force_listen=request.force_listen,
            force_barge_in=request.force_barge_in,
        )
        self._inside = None if sound is pcm else command
        self._score(command, sound, refuse, detected=detected, pictures=b"".join(request.frames))

    def _pictures(self, attachment: int, request: AppendRequest) -> None:
        """Take pictures without sound: nobody speaks in them, and no detector is asked (E8)."""
        command = AppendAudio(
            attachment=attachment,
            event_id=request.event_id,
            client_seq=request.client_seq,
            size=0,
            wire_bytes=request.brought,
            frames=tuple(map(len, request.frames)),
            scored=False,
            speech=False,
            transcript=request.transcript,
            overlap=request.overlap,
            force_listen=request.force_listen,
            force_barge_in=request.force_barge_in,
        )
        self._leave(command, b"".join(request.frames), _weight(command))

    def _flush(self, attachment: int, refuse: Refuse) -> None:
        """Send on what the resampler holds: the sound is over, or goes on in another format.

        It is the end of the append before it, and of one kind with it (E3).
        """
        resampler, self._resampler = self._resampler, None
        tail = resampler.flush() if resampler is not None else b""
        if tail and self._inside is not None:
            config, inside = self._runner.upcoming, self._inside
            command = AppendAudio(
                attachment=attachment,
                size=len(tail),
                scored=self._scored(config),
                speech=inside.speech,
                overlap=inside.overlap,
                force_listen=inside.force_listen,
            )
            self._score(command, tail, refuse, detected=config.turn_detection is not None)

    def _scored(self, config: SessionConfig) -> bool:
        """Return whether a detector's word counts, or none is asked."""
        return config.turn_detection is None or self._rate == SCORING_RATE

    def _score(
        self, command: AppendAudio, sound: bytes, refuse: Refuse, *, detected: bool, pictures: bytes = b""
    ) -> None:
        """Give the append its scores, if the session has server VAD, and its place."""
        if not detected or self._rate != SCORING_RATE:
            if detected and not self._deaf:
                text = f"Voice activity cannot be told at {self._rate} Hz."
                refuse(Refused("server_vad_unavailable", text), command.event_id, None)
            self._stream, self._deaf = None, detected
            self._leave(command, sound + pictures, _weight(command))
            return
        if self._stream is None:
            self._stream = self._scoring.new_stream()
        slot = _Slot(command, sound + pictures, _weight(command), ready=False)
        self._queue(slot)
        self._waiting_bytes += slot.size

        def scored(scores: Scores) -> None:
            slot.command = replace(command, scores=scores.values, lead=scores.lead)
            slot.ready = True
            if scores.failed:
                loud = level(sound) >= self._runner.upcoming.overlap_silence_rms
                slot.command = replace(command, scored=False, speech=loud)
                if not self._failing:
                    failure = Refused("server_vad_unavailable", "Voice activity cannot be told.")
                    refuse(failure, command.event_id, None)
            if scores.failed or scores.values:
                self._failing = scores.failed
            self._pump()

        def done(scores: Scores) -> None:
            self._contain(partial(scored, scores), command.attachment, command.event_id, command.client_seq)

        self._scoring.submit(self._stream, sound, done)

    # -- order -----------------------------------------------------------------------------------------------

    def _overtake(self, attachment: int, command: ClientCommand | CloseSession, refuse: Refuse) -> None:
        """Let a cancel-like command pass the sound that waits, or drop that, up to the last other command."""
        clears = type(command) in CLEARING
        if self._updating:
            if clears:
                self._waiting_bytes -= sum(held.size for held in self._held.drop())
            if self._held.blocked:
                self._held.overtake(_Held(lambda: self._command(attachment, command, refuse)))
                return
        if clears:
            self._forget_sound()
            self._waiting_bytes -= sum(slot.size for slot in self._slots.drop())
        if self._slots.blocked:
            self._slots.overtake(_Slot(command))
        else:
            self._post(command, b"", 0)

    def _forget_sound(self) -> None:
        """Begin anew with the next sound: what comes before it is dropped."""
        self._resampler = None
        self._stream = None

    def _command(
        self, attachment: int, command: Passing, refuse: Refuse, size: int = 0, recording: bytes = b""
    ) -> None:
        if isinstance(command, CommitInput):
            self._contain(partial(self._flush, attachment, refuse), attachment, command.event_id, None)
        elif isinstance(command, ClearInput):
            self._resampler = None
        elif type(command) in CLEARING:
            self._forget_sound()
        elif isinstance(command, UpdateSession):
            self._updating = True
        self._leave(command, recording, size)

    def _hold(self, go_on: Callable[[], None], size: int = 0, *, droppable: bool = False) -> None:
        self._waiting_bytes += size
        held = _Held(go_on, size)
        if droppable:
            self._held.add_passable(held)
        else:
            self._held.add(held)

    def _leave(self, command: Passing, sound: bytes, size: int) -> None:
        if self._slots.size:
            self._waiting_bytes += size
            self._queue(_Slot(command, sound, size))
        else:
            self._post(command, sound, size)

    def _queue(self, slot: _Slot) -> None:
        if isinstance(slot.command, AppendAudio) and not counted(slot.command):
            self._slots.add_passable(slot)
        else:
            self._slots.add(slot)

    def _post(self, command: Passing, sound: bytes, size: int) -> None:
        taken = self._updated if isinstance(command, UpdateSession) else None
        self._runner.post(_known(command), sound, taken=taken, size=size)

    def _pump(self) -> None:
        """Let everything leave that has nothing to wait for any more; no sound into a session that ends (E11)."""
        while (slot := self._slots.first()) is not None and slot.ready:
            self._slots.take()
            self._waiting_bytes -= slot.size
            if not (isinstance(slot.command, AppendAudio) and self._runner.session.closing):
                self._post(slot.command, slot.sound, slot.size)

    def _updated(self) -> None:
        """An update was decided, or waits in the session: what came behind it is understood now, up to the next."""
        self._updating = False
        while self._held and not self._updating:
            held = self._held.take()
            self._waiting_bytes -= held.size
            held.go_on()


def _weight(command: AppendAudio) -> int:
    """Return what an append weighs while it waits."""
    return command.wire_bytes + json_size(command.transcript or "")


def _known(command: Passing) -> AnyCommand:
    # Every concrete class of `ClientCommand` is a member of the union; a test holds that.
    return cast("AnyCommand", command)


def _names(command: ClientCommand | CloseSession) -> tuple[str | None, int | None]:
    """Return the `event_id` and the `client_seq` of a command."""
    return (command.event_id, command.client_seq) if isinstance(command, ClientCommand) else (None, None)


def _verdict(request: AppendRequest, pcm16: bytes, threshold: float) -> bool:
    """Return the one speech verdict of an append without server VAD (E3)."""
    if request.speech is not None:
        return request.speech
    if request.probability is not None:
        return request.probability >= 0.5
    least = threshold if request.silence_rms is None else request.silence_rms
    return bool(pcm16) and level(pcm16) >= least
