"""What a voice client knows of its conversation: a fold over the server's events, with the speaker beside it.

No I/O and no clock: `handle` is given an event and the time of its arrival, and returns what to tell the server.
"""

from collections.abc import Callable

from msgspec import UNSET, Struct, field

from . import wire_server as server
from .client_events import Received, number_of
from .playback import Ack, Playback, Played, Truncate
from .speaker import Speaker


class Ask(Struct):
    """A turn of the user. Times are the client's, in microseconds."""

    item_id: str
    started_us: int
    committed_us: int | None = None
    text: str = ""


class Reply(Struct):
    """An answer. `heard_ms` is set where the speaker was stopped; `late` counts sound that came after that."""

    response_id: str
    created_us: int
    item_id: str = ""
    first_us: int | None = None
    done_us: int | None = None
    status: str = "in_progress"
    reason: str | None = None
    text: str = ""
    heard_ms: int | None = None
    stopped_us: int | None = None
    late: int = 0
    complaint: str | None = None


class Numbers(Struct):
    """The numbers of the events: whether any was missing or came twice."""

    first: int = 0
    last: int = 0
    count: int = 0
    missing: list[int] = field(default_factory=list[int])
    doubled: list[int] = field(default_factory=list[int])

    @property
    def whole(self) -> bool:
        """Whether each number came once."""
        return not self.missing and not self.doubled

    def saw(self, number: int) -> bool:
        """Note a number; False if it is an old one."""
        self.count += 1
        self.first = self.first or number
        if number <= self.last:
            self.doubled.append(number)
            return False
        self.missing.extend(range(self.last + 1, number))
        self.last = number
        return True


def _nothing(_kind: str, _text: str) -> None:
    pass


_ENDINGS = {
    "turn_detected": "stopped, because you spoke",
    "client_cancelled": "stopped, as it was asked to",
    "max_output_tokens": "cut short: it reached the length that was allowed",
}


def _ending(reply: Reply) -> str:
    """Say how an answer ended, in plain words; `completed` is the ordinary end."""
    if reply.complaint is not None:
        return f"{reply.status}: {reply.complaint}"
    reason = reply.reason or ""
    return _ENDINGS.get(reason) or (f"{reply.status}: {reason.replace('_', ' ')}" if reason else reply.status)


class Dialogue:
    """The state of one conversation as its client sees it.

    `tell(kind, text)` is called with what a person wants to see: `user`, `assistant` (pieces of text),
    `interrupted`, `done`, `error`. `careful`: the session has asked for `false_interruption`, so that speech alone
    does not silence the speaker.
    """

    def __init__(self, tell: Callable[[str, str], None] = _nothing, *, careful: bool = False) -> None:
        """Begin with nothing said."""
        self._playback = Playback(careful=careful, remember=True, cut=self._was_cut)
        self.asks: list[Ask] = []
        self.replies: list[Reply] = []
        self.numbers = Numbers()
        self.errors: list[str] = []
        self.speaking = False
        self.resumed_us: int | None = None
        self.closed: str | None = None
        self._tell = tell

    # -- readings --------------------------------------------------------------------------------------------

    @property
    def speaker(self) -> Speaker:
        """What is heard of it."""
        return self._playback.speaker

    @property
    def reply(self) -> Reply | None:
        """The newest answer."""
        return self.replies[-1] if self.replies else None

    def find(self, response_id: str) -> Reply | None:
        """Return an answer by its id."""
        return next((reply for reply in reversed(self.replies) if reply.response_id == response_id), None)

    def settled(self, now_us: int) -> bool:
        """Whether nobody speaks, every turn has its answer, and all answers were played to their end."""
        if self.speaking or any(ask.committed_us is None for ask in self.asks):
            return False
        if any(reply.done_us is None for reply in self.replies) or self.speaker.playing(now_us) is not None:
            return False
        last = max((ask.committed_us or 0 for ask in self.asks), default=0)
        return not self.asks or (self.reply is not None and self.reply.created_us >= last)

    def acks(self, now_us: int) -> list[Ack]:
        """Return what to acknowledge now; to be asked several times a second."""
        return self._playback.acks(now_us)

    # -- events ----------------------------------------------------------------------------------------------

    def handle(self, event: Received, now_us: int) -> list[Truncate]:
        """Take an event in; return what to send because of it."""
        number = number_of(event)
        if number and not self.numbers.saw(number):
            return []
        self._look(event, now_us)
        told = self._playback.handle(event, now_us)
        if isinstance(event, server.AudioDeltaOut):
            self._count_late(event.response_id)
        return told

    def _look(self, event: Received, now_us: int) -> None:
        match event:
            case server.SpeechStartedOut():
                self.speaking = True
                self.asks.append(Ask(event.item_id, now_us))
            case server.SpeechStoppedOut():
                self.speaking = False
            case server.BufferCommitted():
                self._ask(event.item_id, now_us).committed_us = now_us
            case server.TranscriptionCompleted():
                self._ask(event.item_id, now_us).text = event.transcript.strip()
                self._tell("user", event.transcript.strip())
            case server.OutputResumed() if not self.speaking:
                # What was heard is no turn.
                self.asks = [ask for ask in self.asks if ask.committed_us is not None]
            case server.ErrorOut():
                self.errors.append(f"{event.error.code}: {event.error.message}")
                self._tell("error", event.error.message)
            case server.SessionResumed():
                self.resumed_us = now_us
            case server.SessionClosedOut() | server.SessionExpired():
                self.closed = event.reason
            case _:
                self._answer(event, now_us)

    def stop(self, now_us: int) -> list[Truncate]:
        """Silence the speaker, as when the user cuts in."""
        return self._playback.stop(now_us)

    def _was_cut(self, played: Played) -> None:
        reply = self.find(played.response_id)
        if reply is not None:
            reply.heard_ms, reply.stopped_us = played.heard_ms, played.stopped_us
            self._tell("interrupted", f"{(played.heard_ms or 0) / 1000:.1f} s of it were heard")

    def _answer(self, event: Received, now_us: int) -> None:
        match event:
            case server.ResponseCreatedOut():
                self.replies.append(Reply(event.response_id, now_us))
            case server.AudioDeltaOut():
                reply = self.find(event.response_id)
                if reply is not None and event.delta:
                    reply.item_id = event.item_id
                    reply.first_us = now_us if reply.first_us is None else reply.first_us
            case server.TranscriptDelta() | server.TextDeltaOut():
                reply = self.find(event.response_id)
                if reply is not None and event.delta:
                    reply.text += event.delta
                    self._tell("assistant", event.delta)
            case server.ResponseDone():
                self._done(event, now_us)
            case _:
                pass

    def _count_late(self, response_id: str) -> None:
        reply, played = self.find(response_id), self._playback.find(response_id)
        if reply is not None and played is not None:
            reply.late = played.late

    def _done(self, event: server.ResponseDone, now_us: int) -> None:
        reply = self.find(event.response_id)
        if reply is None:
            return
        details = event.response.status_details
        reply.done_us, reply.status = now_us, event.response.status
        if details is not None:
            reply.reason = None if details.reason is UNSET else details.reason
            reply.complaint = None if details.error is UNSET else details.error.message
        self._tell("done", _ending(reply))

    def _ask(self, item_id: str, now_us: int) -> Ask:
        for ask in reversed(self.asks):
            if ask.item_id == item_id:
                return ask
        self.asks.append(Ask(item_id, now_us))
        return self.asks[-1]
