"""One answer in a client's hand: its sound and words as they come, how it ended, and a way to stop it."""

from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Generic, Self, TypeVar
from weakref import WeakValueDictionary

import anyio
import pybase64
from msgspec import UNSET, Struct, UnsetType

from . import wire_server as out
from .client_errors import SessionLost, SoundDropped
from .client_events import Received
from .wire_items import ItemOut

UNREAD = 8 * 1024 * 1024
"""Characters of base64 of one response that wait to be read: two minutes of speech. A reader who is there holds
up the session then; if there is none, the sound is dropped, which whoever asks for it is told."""

UNTAKEN = 8
"""Responses that nobody has asked for yet and that are kept, the newest ones."""

T = TypeVar("T")
U = TypeVar("U")


class Sound(Struct, frozen=True):
    """A piece of an answer's sound: samples at `rate` Hz, in `encoding`."""

    data: bytes
    rate: int
    encoding: str
    item_id: str


class FunctionCall(Struct, frozen=True, kw_only=True):
    """A function that the model calls; `arguments` is JSON text of the model. Answer it by `send_tool_output`."""

    call_id: str
    name: str
    arguments: str
    item_id: str


class Pieces(Generic[T]):
    """A queue with an end. `dropped` True: what was in it was given up, and readers are told."""

    def __init__(self) -> None:
        self.waiting: deque[T] = deque()
        self.size = 0
        self.readers = 0
        self.dropped = False
        self.over = False
        self.failure: Exception | None = None
        self._news = anyio.Event()

    def put(self, piece: T, size: int) -> None:
        """Add a piece."""
        if not (self.over or self.dropped):
            self.waiting.append(piece)
            self.size += size
            self._news.set()

    def forget(self) -> None:
        """Empty it."""
        self.waiting.clear()
        self.size = 0

    def end(self, failure: Exception | None = None) -> None:
        """There is no more; readers get what is here, and then `failure`."""
        if not self.over:
            self.over, self.failure = True, failure
            self._news.set()

    async def next(self, size: Callable[[T], int]) -> T | None:
        """Take the oldest piece; None behind the last.

        Raises:
            SoundDropped: they are not here any more.
        """
        while not self.waiting:
            if self.dropped:
                raise SoundDropped("the sound was not read while it came")
            if self.over:
                if self.failure is not None:
                    raise self.failure
                return None
            self._news = anyio.Event()
            await self._news.wait()
        piece = self.waiting.popleft()
        self.size -= size(piece)
        return piece


class Reader(AsyncIterator[U], Generic[T, U]):
    """Reads pieces, each once; it counts as one who is there from its first step to its end."""

    def __init__(
        self, pieces: Pieces[T], size: Callable[[T], int], made: Callable[[T], U], wake: Callable[[], None]
    ) -> None:
        self._pieces = pieces
        self._size = size
        self._made = made
        self._wake = wake
        self._inside = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> U:
        if not self._inside:
            self._inside = True
            self._pieces.readers += 1
        piece = await self._pieces.next(self._size)
        self._wake()
        if piece is None:
            raise StopAsyncIteration
        return self._made(piece)

    def __del__(self) -> None:
        if self._inside:
            self._pieces.readers -= 1
            self._wake()


class Response:
    """An answer. What is read of it is given once; each of `audio`, `text` and `transcript` may be left alone.

    `status` is `in_progress` until it has ended, `words` what it has said or written so far, `calls` the functions
    that it calls. The sound of an answer that was interrupted is void: what was not read yet is not given any more.
    """

    def __init__(
        self, created: out.ResponseCreatedOut, cancel: Callable[[str], None], wake: Callable[[], None]
    ) -> None:
        self.id = created.response_id
        self.words = ""
        self.calls: tuple[FunctionCall, ...] = ()
        self._shown = created.response
        self._items: dict[str, None] = {}
        self._cancel = cancel
        self._wake = wake
        self._rate = created.response.audio.output.format.rate
        self._sound: Pieces[out.AudioDeltaOut] = Pieces()
        self._spoken: Pieces[str] = Pieces()
        self._written: Pieces[str] = Pieces()
        self._done = anyio.Event()
        self._failure: SessionLost | None = None

    # -- what is known ---------------------------------------------------------------------------------------

    @property
    def status(self) -> str:
        """How it stands: `in_progress`, or how it ended."""
        return self._shown.status

    @property
    def reason(self) -> str | None:
        """Why it ended so, as far as that is told: `turn_detected`, `client_cancelled`, …"""
        details = self._shown.status_details
        return None if details is None or isinstance(details.reason, UnsetType) else details.reason

    @property
    def item_ids(self) -> tuple[str, ...]:
        """The items that it consists of."""
        return tuple(self._items)

    @property
    def usage(self) -> out.UsageOut | None:
        """The tokens that it cost, when it has ended."""
        return self._shown.usage

    @property
    def cancelled(self) -> bool:
        """Whether it was interrupted."""
        return self._shown.status == "cancelled"

    def cancel(self) -> None:
        """Stop it, if it is still going on."""
        if not self._done.is_set():
            self._cancel(self.id)

    # -- what comes ------------------------------------------------------------------------------------------

    def audio(self) -> AsyncIterator[Sound]:
        """Give its sound.

        Raises:
            SoundDropped: nobody read it while it came, and it was too much.
            SessionLost: the session cannot be reached any more.
        """
        return Reader(self._sound, _size, self._decoded, self._wake)

    def transcript(self) -> AsyncIterator[str]:
        """Give the words that it speaks, as they come; raises `SessionLost`."""
        return Reader(self._spoken, len, str, self._wake)

    def text(self) -> AsyncIterator[str]:
        """Give the words that it writes, as they come; raises `SessionLost`."""
        return Reader(self._written, len, str, self._wake)

    async def done(self) -> out.ResponseOut:
        """Wait until it has ended; return what the server says of it.

        Raises:
            SessionLost: the session ended before it did.
        """
        await self._done.wait()
        if self._failure is not None:
            raise self._failure
        return self._shown

    def _decoded(self, delta: out.AudioDeltaOut) -> Sound:
        rate = self._rate if delta.sample_rate_hz is UNSET else delta.sample_rate_hz
        encoding = "pcm16" if delta.format is UNSET else delta.format
        return Sound(pybase64.b64decode(delta.delta), rate, encoding, delta.item_id)

    # -- the session's side ----------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether so much waits for a reader who is there that no more should come."""
        return self._sound.readers > 0 and self._sound.size >= UNREAD

    def heard(self, event: Received) -> None:
        """Take in an event that is about it."""
        match event:
            case out.AudioDeltaOut():
                if event.delta:
                    self._hear(event)
            case out.TranscriptDelta():
                self.words += event.delta
                self._spoken.put(event.delta, len(event.delta))
            case out.TextDeltaOut():
                self.words += event.delta
                self._written.put(event.delta, len(event.delta))
            case out.OutputItemAdded() | out.OutputItemDone():
                self._item(event.item)
            case out.ArgumentsDone():
                call = FunctionCall(
                    call_id=event.call_id, name=event.name, arguments=event.arguments, item_id=event.item_id
                )
                self.calls = (*self.calls, call)
            case _:
                pass

    def _hear(self, delta: out.AudioDeltaOut) -> None:
        sound = self._sound
        sound.put(delta, len(delta.delta))
        if sound.size > UNREAD and not sound.readers:
            sound.dropped = True
            sound.forget()

    def _item(self, item: ItemOut) -> None:
        self._items[item.id] = None

    def finished(self, response: out.ResponseOut) -> None:
        """It has ended."""
        self._shown = response
        if self.cancelled:
            self.void()
        self._end(None)

    def void(self) -> None:
        """Its sound is void."""
        self._sound.forget()
        self._sound.end()
        self._wake()

    def lost(self, failure: SessionLost) -> None:
        """The session is over, and it never ended."""
        self._failure = failure
        self._end(failure)

    def _end(self, failure: SessionLost | None) -> None:
        for pieces in (self._sound, self._spoken, self._written):
            pieces.end(failure)
        self._done.set()
        self._wake()


class Responses:
    """The answers of a session: those that run, and those that nobody has asked for yet."""

    def __init__(self, cancel: Callable[[str], None], wake: Callable[[], None]) -> None:
        self._cancel = cancel
        self._wake = wake
        self._running: dict[str, Response] = {}
        self._known: WeakValueDictionary[str, Response] = WeakValueDictionary()
        self._untaken: deque[Response] = deque(maxlen=UNTAKEN)
        self._news = anyio.Event()
        self._over = False
        self._failure: SessionLost | None = None

    def hold(self) -> bool:
        """Whether somebody who reads sound has enough of it for now."""
        return any(response.full for response in self._running.values())

    def heard(self, event: Received) -> None:
        """Take in an event of the session."""
        match event:
            case (
                out.AudioDeltaOut()
                | out.TranscriptDelta()
                | out.TextDeltaOut()
                | out.OutputItemAdded()
                | out.OutputItemDone()
                | out.ArgumentsDone()
            ):
                response = self._running.get(event.response_id)
                if response is not None:
                    response.heard(event)
            case out.ResponseCreatedOut():
                begun = Response(event, self._cancel, self._wake)
                self._running[begun.id] = self._known[begun.id] = begun
                self._untaken.append(begun)
                self._news.set()
            case out.ResponseDone():
                ended = self._running.pop(event.response_id, None)
                if ended is not None:
                    ended.finished(event.response)
            case out.OutputClearedOut():
                self._void(event.response_id)
            case _:
                pass

    def _void(self, response_id: str | None) -> None:
        for response in list(self._known.values()):
            if response_id in (None, response.id):
                response.void()

    def end(self, failure: SessionLost | None) -> None:
        """The session is over."""
        self._over, self._failure = True, failure
        for response in self._running.values():
            response.lost(failure or SessionLost("session_closed", "the session ended before the answer did"))
        self._running.clear()
        self._news.set()

    async def next(self) -> Response | None:
        """Take the oldest answer that nobody took; None when there will be none.

        Raises:
            SessionLost: the session cannot be reached any more.
        """
        while not self._untaken:
            if self._over:
                if self._failure is not None:
                    raise self._failure
                return None
            self._news = anyio.Event()
            await self._news.wait()
        return self._untaken.popleft()


def _size(delta: out.AudioDeltaOut) -> int:
    return len(delta.delta)
