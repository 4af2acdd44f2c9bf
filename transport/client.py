"""The socket client: a session that survives its sockets, with typed events and commands applied exactly once."""

import base64
import random
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator
from types import TracebackType
from typing import Self, TypeVar

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup
from msgspec import Raw, Struct, UnsetType

from antiphon.engine.clock import Clock, SystemClock

from . import wire_client as say
from . import wire_server as out
from .client_events import Received, number_of
from .client_link import Cut, Link, Refused, SessionOptions, address
from .client_outbox import Outbox, Overfull
from .wire_client import ClientEvent, ItemIn, PartIn
from .wire_view import SessionOut

ATTEMPTS = 5
SHORTEST_S, LONGEST_S = 0.25, 4.0
HEARTBEAT_S = 10.0
CLOSING_S = 20.0
ACK_EVERY = 16
"""Numbered events between two acknowledgements while sound streams; anything else is acknowledged at once."""

BUFFERED = 1024
"""Events that wait for the application; then the socket is read no further, and the server waits."""

E = TypeVar("E", bound=out.ServerEvent)


class SessionLost(Exception):
    """The session cannot be reached any more. `code` says why: the server's word, or `disconnected`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Retrying(Struct, frozen=True, kw_only=True):
    """How often and how fast a lost connection is tried again (D35)."""

    attempts: int = ATTEMPTS
    shortest_s: float = SHORTEST_S
    longest_s: float = LONGEST_S


class RealtimeClient:
    """A session in the duplex dialect. Opens it when it is entered and closes it when it is left.

    Commands are plain calls that never wait; each is applied exactly once, whatever happens to the socket.
    `events` gives everything the session says, once and in order. One task reads.
    """

    def __init__(
        self,
        url: str,
        options: SessionOptions | None = None,
        *,
        api_key: str | None = None,
        clock: Clock | None = None,
        retrying: Retrying | None = None,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._options = options or SessionOptions()
        self._url = address(url, self._options.model)
        self._api_key = api_key
        self._clock = clock or SystemClock()
        self._retrying = retrying or Retrying()
        self._heartbeat_s = heartbeat_s
        self._random = random.SystemRandom()
        self._outbox = Outbox()
        self._link: Link | None = None
        self._group: TaskGroup = anyio.create_task_group()
        self._push, self._pull = anyio.create_memory_object_stream[Received](BUFFERED)
        self._kept_back: deque[Received] = deque()
        self._token: str | None = None
        self._acknowledged = 0
        self._lost: SessionLost | None = None
        self._closing = False
        self._ended = anyio.Event()
        self.session_id = ""
        self.session: SessionOut | None = None
        """The session as the server last showed it."""
        self.last_number = 0
        """The last numbered event that arrived."""
        self.generation = 0
        """How many sockets the session has had."""

    # -- life ------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Connect and open the session.

        Raises:
            SessionLost: it could not be opened.
        """
        try:
            link, created = await self._open()
        except BaseException:
            self._push.close()
            self._pull.close()
            raise
        self.session_id = created.session.id
        self._shown(created.session, created.resume_token, created.attachment_generation)
        await self._push.send(created)
        await self._group.__aenter__()
        self._link = link
        self._group.start_soon(self._live, link)
        return self

    async def _open(self) -> tuple[Link, out.SessionCreated]:
        try:
            link = await Link.dial(self._url, self._api_key)
            try:
                return link, await link.open(self._options)
            except BaseException:
                link.cut()
                raise
        except Refused as refused:
            raise SessionLost(refused.code, str(refused)) from refused
        except Cut as cut:
            raise SessionLost("disconnected", str(cut)) from cut

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        elif self._link is not None and not self._ended.is_set():
            # Said on the way out: a dropped socket would hold the session's slot for its whole grace (D36).
            with anyio.CancelScope(shield=True), anyio.move_on_after(1.0):
                self._send(say.SessionClose(reason="client_error"))
                await self._outbox.wait_taken()
        self._group.cancel_scope.cancel()
        try:
            # Without the error of the block: it is to come out as it is, not in a group of errors.
            await self._group.__aexit__(None, None, None)
        finally:
            self._push.close()
            self._pull.close()

    async def close(self, reason: str = "client_close") -> None:
        """End the session and wait for its last word, at most 20 s. Events stay readable."""
        if not self._ended.is_set():
            self._closing = True
            self._send(say.SessionClose(reason=reason))
            with anyio.move_on_after(CLOSING_S):
                await self._ended.wait()

    def drop_socket(self) -> None:
        """Lose the socket, as a bad network does; the session is resumed on a new one."""
        if self._link is not None:
            self._link.cut()

    # -- commands --------------------------------------------------------------------------------------------

    def append_audio(
        self,
        sound: bytes,
        *,
        encoding: str | None = None,
        rate: int | None = None,
        is_speech: bool | None = None,
        transcript: str | None = None,
    ) -> None:
        """Send sound, in the session's input format unless another is said (`rate` in Hz)."""
        self._send(
            say.AppendBuffer(
                audio=base64.b64encode(sound).decode(),
                format=encoding,
                sample_rate_hz=rate,
                is_speech=is_speech,
                transcript=transcript,
            )
        )

    async def stream_pcm(
        self, sound: bytes | AsyncIterable[bytes], *, rate: int, piece_ms: int = 80, width: int = 2
    ) -> None:
        """Send sound as fast as it would be spoken: each piece when its end has been reached on the clock.

        `sound` is pcm16 of `rate` Hz (`width` bytes a sample), whole or in pieces of any size.
        """
        size = rate * piece_ms // 1000 * width
        begin_us, sent = self._clock.monotonic_us(), 0
        async for piece in _pieces(sound, size):
            self.append_audio(piece, rate=rate)
            sent += len(piece)
            await self._sleep_until(begin_us + sent * 1_000_000 // (rate * width))
            await self._outbox.wait_taken()

    def commit(self, *, create_response: bool | None = None) -> None:
        """Make what was said into a turn."""
        self._send(say.CommitBuffer(create_response=create_response))

    def clear_input(self) -> None:
        """Forget what was said and not committed."""
        self._send(say.ClearBuffer())

    def cancel_response(self, response_id: str | None = None) -> None:
        """Stop an answer."""
        self._send(say.ResponseCancel(response_id=response_id))

    def barge_in(self) -> None:
        """Say that the user has cut in."""
        self._send(say.BargeInNow())

    def clear_output(self, response_id: str | None = None) -> None:
        """Stop playing."""
        self._send(say.OutputClear(response_id=response_id))

    def create_item(self, item: ItemIn, *, previous_item_id: str | None = None) -> None:
        """Add an item to the conversation."""
        self._send(say.ItemCreate(item=item, previous_item_id=previous_item_id))

    def send_text(self, text: str) -> None:
        """Add what the user wrote."""
        self.create_item(ItemIn(type="message", role="user", content=[PartIn(type="input_text", text=text)]))

    def delete_item(self, item_id: str) -> None:
        """Take an item out of the conversation."""
        self._send(say.ItemDelete(item_id=item_id))

    def create_response(self, response: say.ResponseIn | None = None) -> None:
        """Ask for an answer."""
        self._send(say.ResponseCreate(response=say.ABSENT if response is None else Raw(_encode(response))))

    def ack_playback(self, response_id: str, played_ms: int, *, committed_ms: int | None = None) -> None:
        """Tell how much of an answer was played."""
        self._send(say.PlaybackAck(response_id=response_id, played_ms=played_ms, committed_ms=committed_ms))

    def truncate(self, item_id: str, audio_end_ms: int, *, content_index: int = 0) -> None:
        """Tell that no more of an answer was heard."""
        self._send(say.ItemTruncate(item_id=item_id, audio_end_ms=audio_end_ms, content_index=content_index))

    def update_session(self, options: SessionOptions) -> None:
        """Change the configuration."""
        self._send(say.SessionUpdate(session=Raw(_encode(options))))

    def heartbeat(self) -> None:
        """Renew the lease."""
        self._send(say.HeartbeatIn())

    def _send(self, event: ClientEvent) -> None:
        if self._lost is not None:
            raise self._lost
        try:
            self._outbox.put(event)
        except Overfull as error:
            raise SessionLost("overfull", str(error)) from error

    # -- events ----------------------------------------------------------------------------------------------

    async def events(self) -> AsyncIterator[Received]:
        """Give every event once, in order, until the session is over.

        Raises:
            SessionLost: the session cannot be reached any more.
        """
        while True:
            event = self._kept_back.popleft() if self._kept_back else await self._next()
            if event is None:
                return
            yield event

    async def wait_for(self, kind: type[E], *, timeout_s: float = 30.0) -> E:
        """Return the next event of a kind. What comes before it is kept for `events`.

        Raises:
            TimeoutError: it did not come in time.
            SessionLost: it will not come.
        """
        for event in self._kept_back:
            if isinstance(event, kind):
                self._kept_back.remove(event)
                return event
        with anyio.fail_after(timeout_s):
            while (came := await self._next()) is not None:
                if isinstance(came, kind):
                    return came
                self._kept_back.append(came)
        raise SessionLost("session_closed", f"no {kind.__name__} came before the end")

    async def _next(self) -> Received | None:
        try:
            return await self._pull.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            if self._lost is not None:
                raise self._lost from None
            return None

    # -- the sockets -----------------------------------------------------------------------------------------

    async def _live(self, link: Link) -> None:
        """Serve the session on one socket after the other."""
        try:
            while True:
                async with link:
                    self._link = link
                    await self._serve(link)
                    self._link = None
                if self._ended.is_set():
                    return
                link = await self._reconnect()
        except SessionLost as lost:
            # A session that was to end and is not there any more has ended.
            if not (self._closing and lost.code == "session_resume_expired"):
                self._lost = lost
        finally:
            self._ended.set()
            self._push.close()

    async def _serve(self, link: Link) -> None:
        """Read and write until the socket is gone or the session over."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._write, link)
            group.start_soon(self._beat)
            try:
                while not self._ended.is_set():
                    await self._take(await link.receive(), link)
            except Cut:
                pass
            group.cancel_scope.cancel()

    async def _write(self, link: Link) -> None:
        try:
            while True:
                for frame in self._outbox.take():
                    await link.send(frame)
                await self._outbox.wait_news()
        except Cut:
            return  # the reader finds it out too

    async def _beat(self) -> None:
        """Send heartbeats: they keep the lease, and their answers say what was applied."""
        while True:
            await self._sleep_until(self._clock.monotonic_us() + int(self._heartbeat_s * 1e6))
            self._outbox.put(say.HeartbeatIn())

    async def _take(self, event: Received, link: Link) -> None:
        number = number_of(event)
        if number:
            if number <= self.last_number:
                return  # seen on a former socket
            self.last_number = number
        if isinstance(event, out.HeartbeatAck):
            self._outbox.heartbeat_answered()
        elif isinstance(event, out.SessionUpdated):
            self.session = event.session
        await self._push.send(event)
        if isinstance(event, out.SessionClosedOut | out.SessionExpired):
            self._ended.set()
        elif isinstance(event, out.SessionReplaced | out.ResyncRequired):
            raise SessionLost("session_replaced", "another connection, or none, can serve the session")
        streaming = isinstance(event, out.AudioDeltaOut | out.TranscriptDelta | out.TextDeltaOut)
        if number - self._acknowledged >= (ACK_EVERY if streaming else 1):
            self._acknowledged = number
            await self._acknowledge(link, number)

    async def _acknowledge(self, link: Link, number: int) -> None:
        try:
            await link.send(_encode(say.EventAckIn(server_event_seq=number)))
        except Cut:
            return  # what came before the socket was lost is still to be read

    async def _reconnect(self) -> Link:
        """Return a new socket that serves the session.

        Raises:
            SessionLost: the server does not have it any more, or cannot be reached.
        """
        if self._token is None:
            raise SessionLost("disconnected", "the session cannot be resumed")
        last: Exception | None = None
        for attempt in range(self._retrying.attempts):
            longest = min(self._retrying.longest_s, self._retrying.shortest_s * 2**attempt)
            delay = self._random.uniform(self._retrying.shortest_s, max(longest, self._retrying.shortest_s))
            await self._sleep_until(self._clock.monotonic_us() + int(delay * 1e6))
            try:
                return await self._resume()
            except Cut as cut:
                last = cut
            except Refused as refused:
                if refused.final:
                    raise SessionLost(refused.code, str(refused)) from refused
                last = refused
        raise SessionLost("disconnected", "the server cannot be reached") from last

    async def _resume(self) -> Link:
        link = await Link.dial(self._url, self._api_key)
        try:
            resumed = await link.resume(self.session_id, self._token or "", self.last_number)
        except BaseException:
            link.cut()
            raise
        self._shown(resumed.session, resumed.resume_token, resumed.attachment_generation)
        self._acknowledged = self.last_number
        self._outbox.restart(resumed.last_client_seq)
        await self._push.send(resumed)
        return link

    def _shown(self, session: SessionOut, token: str | UnsetType, generation: int | UnsetType) -> None:
        self.session = session
        self._token = token if isinstance(token, str) and token else None
        self.generation = 1 if isinstance(generation, UnsetType) else generation

    async def _sleep_until(self, us: int) -> None:
        """Wait until the clock shows `us`."""
        if self._clock.monotonic_us() >= us:
            await anyio.lowlevel.checkpoint()
            return
        reached = anyio.Event()
        timer = self._clock.call_at(us, reached.set)
        try:
            await reached.wait()
        finally:
            timer.cancel()


def connect(url: str, options: SessionOptions | None = None, *, api_key: str | None = None) -> RealtimeClient:
    """Return a client for `async with`."""
    return RealtimeClient(url, options, api_key=api_key)


async def _pieces(sound: bytes | AsyncIterable[bytes], size: int) -> AsyncIterator[bytes]:
    """Cut sound into pieces of `size` bytes; the last may be shorter."""
    if isinstance(sound, bytes):
        for start in range(0, len(sound), size):
            yield sound[start : start + size]
        return
    rest = b""
    async for more in sound:
        rest += more
        while len(rest) >= size:
            yield rest[:size]
            rest = rest[size:]
    if rest:
        yield rest


_encode = msgspec.json.Encoder().encode

__all__ = ["RealtimeClient", "Retrying", "SessionLost", "SessionOptions", "connect"]
