"""The direct hold on a session in the same process: commands and events of the core, without the wire.

Tests and the simulator use it to see what a session decides; programs use `transport.inline.InlineClient`.
"""

from collections import deque
from collections.abc import AsyncIterator
from secrets import token_hex
from types import TracebackType
from typing import Literal, Self

import anyio
from msgspec import Struct
from msgspec.structs import replace

from antiphon.events.audio import AudioFormat
from antiphon.events.commands import (
    AckPlayback,
    AppendText,
    BargeIn,
    CancelResponse,
    ClearInput,
    ClearOutput,
    CloseSession,
    CommitInput,
    CreateItem,
    CreateResponse,
    DeleteItem,
    Heartbeat,
    ResponseOptions,
    Signal,
    SignalTurn,
    TruncateItem,
    UpdateSession,
)
from antiphon.events.config import ConfigPatch, Dialect
from antiphon.events.events import AudioDelta, PublicEvent
from antiphon.events.items import Item, Message, TextPart

from .attachment import Attachment
from .cursor import Cursor
from .hub import Hub
from .ingress import AppendRequest
from .opening import Opening, Resumption, with_recording
from .published import Published
from .replay_window import Overflow


class ResyncRequired(Struct, frozen=True, kw_only=True):
    """Too much was not acknowledged: what comes from here on has no number, and cannot be had again (D17).

    It is in no log. The numbers go on when everything that has one is acknowledged.
    """

    session: str
    reason: Literal["journal_overflow"] = "journal_overflow"
    number: int = 0
    count: int = 0


class Heard(Struct, frozen=True):
    """A public event, and the sound of an `AudioDelta` (empty otherwise)."""

    event: PublicEvent | ResyncRequired
    sound: bytes = b""


class NotConnected(Exception):
    """The client has no connection to its session now."""


class DirectClient:
    """Opens a session when it is entered and closes it when it is left.

    `events` is what a socket client would read. `drop` and `resume` do what a lost and a new connection do; what is
    not acknowledged is kept for that, within bounds. `recording` is reference audio: pcm16 at 16 kHz, mono.
    """

    def __init__(
        self,
        hub: Hub,
        *,
        dialect: Dialect = "duplex",
        patch: ConfigPatch | None = None,
        model: str | None = None,
        close_s: float = 5.0,
        recording: bytes = b"",
    ) -> None:
        self._hub = hub
        self._opening = Opening(
            dialect=dialect,
            control_id=token_hex(16),
            model=model,
            patch=with_recording(patch or ConfigPatch(), recording),
            recording=recording,
        )
        self._attachment: Attachment | None = None
        self._cursor: Cursor | None = None
        self._ready: deque[Heard] = deque()
        self._overflow: Overflow | None = None
        self._close_s = close_s
        self._closed = False
        self._session = ""
        self._token: str | None = None
        self.last_number = 0
        """The last numbered event that `events` gave."""

    async def __aenter__(self) -> Self:
        self._take(await self._hub.open(self._opening))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.move_on_after(self._close_s, shield=True):
            await self.close()

    @property
    def session(self) -> str:
        """The session's id."""
        return self._session

    @property
    def attachment(self) -> Attachment:
        """The connection.

        Raises:
            NotConnected: it was dropped or has ended.
        """
        if self._attachment is None:
            raise NotConnected("the client has no connection")
        return self._attachment

    # -- what a client says ----------------------------------------------------------------------------------

    def append_audio(
        self,
        data: bytes,
        *,
        format: AudioFormat | None = None,  # noqa: A002  # the wire's word
        speech: bool | None = None,
        transcript: str | None = None,
        frames: tuple[bytes, ...] = (),
    ) -> None:
        """Send sound, in the session's input format unless another is named, and what the camera saw meanwhile."""
        request = AppendRequest(
            data=data,
            frames=frames,
            frames_size=sum(map(len, frames)),
            format=format,
            speech=speech,
            transcript=transcript,
        )
        self.attachment.append(request)

    def commit(self, *, create_response: bool | None = None, final: bool = True) -> None:
        """Seal the input into a user item."""
        here = self.attachment
        here.send(CommitInput(attachment=here.generation, create_response=create_response, final=final))

    def clear_input(self) -> None:
        """Drop what was sent and not committed."""
        self.attachment.send(ClearInput(attachment=self.attachment.generation))

    def create_item(self, item: Item, *, previous_item_id: str | None = None) -> None:
        """Add an item to the conversation; an empty id asks for one."""
        here = self.attachment
        here.send(CreateItem(attachment=here.generation, item=item, previous_item_id=previous_item_id))

    def send_text(self, text: str) -> None:
        """Add a user message; it is not answered before `create_response`."""
        self.create_item(Message(id="", role="user", content=(TextPart(text),)))

    def create_response(self, options: ResponseOptions | None = None) -> None:
        """Ask for an answer."""
        here = self.attachment
        here.send(CreateResponse(attachment=here.generation, options=options or ResponseOptions()))

    def cancel_response(self, response_id: str | None = None) -> None:
        """Stop an answer."""
        here = self.attachment
        here.send(CancelResponse(attachment=here.generation, response_id=response_id))

    def barge_in(self) -> None:
        """Say that the user cut in."""
        self.attachment.send(BargeIn(attachment=self.attachment.generation))

    def ack_playback(self, played_ms: int, response_id: str | None = None) -> None:
        """Say how much of a response was played."""
        here = self.attachment
        here.send(AckPlayback(attachment=here.generation, played_ms=played_ms, response_id=response_id))

    def truncate(self, item_id: str, audio_end_ms: int) -> None:
        """Say how much of an assistant item was heard."""
        here = self.attachment
        here.send(TruncateItem(attachment=here.generation, item_id=item_id, audio_end_ms=audio_end_ms))

    def update_session(self, patch: ConfigPatch, *, recording: bytes = b"") -> None:
        """Change the configuration; `recording` is reference audio, as for the client itself."""
        here = self.attachment
        patch = with_recording(patch, recording)
        here.send(UpdateSession(attachment=here.generation, patch=patch), recording=recording)

    def append_text(self, text: str) -> None:
        """Write into the turn that is being spoken; a commit ends it."""
        self.attachment.send(AppendText(attachment=self.attachment.generation, text=text))

    def signal_turn(self, signal: Signal) -> None:
        """Tell what the client sees of the turn; `close` and `timeout` end the session."""
        self.attachment.send(SignalTurn(attachment=self.attachment.generation, signal=signal))

    def clear_output(self, response_id: str | None = None) -> None:
        """Stop playing."""
        here = self.attachment
        here.send(ClearOutput(attachment=here.generation, response_id=response_id))

    def delete_item(self, item_id: str) -> None:
        """Take an item out of the conversation."""
        self.attachment.send(DeleteItem(attachment=self.attachment.generation, item_id=item_id))

    def heartbeat(self) -> None:
        """Renew the lease."""
        self.attachment.send(Heartbeat(attachment=self.attachment.generation))

    def acknowledge(self) -> None:
        """Confirm every event that `events` gave so far."""
        self.attachment.acknowledge(self.last_number)

    # -- what a client hears ---------------------------------------------------------------------------------

    async def events(self) -> AsyncIterator[Heard]:
        """Give the events of this connection, after a resume with what was missed first.

        Ends when the connection does: the session is over, or another connection serves it. May be left and
        taken up again; behind `close` there is nothing more (M17).

        Raises:
            NotConnected: there is no connection.
            Refused: `storage_unavailable`.
        """
        if self._closed:
            return
        here, cursor = self.attachment, self._cursor
        if cursor is None:
            cursor = self._cursor = await here.missed() if here.generation > 1 else here.cursor()
        while True:
            while self._ready:
                yield self._next()
            entry = await anext(cursor, None)
            if entry is not None:
                self._unpack(entry, here)
            elif cursor.end == "done" and self._cursor is cursor:
                cursor = self._cursor = here.cursor()
            else:
                return

    def _unpack(self, entry: Published, here: Attachment) -> None:
        missed = entry.seq < here.entry.seq
        journaled = missed or self._is_journaled(entry, here)
        for event in entry.transaction.events:
            # What has no number is told once, to whom it concerned.
            if isinstance(event, PublicEvent) and (event.number > self.last_number or not (event.number or missed)):
                sound = entry.sound.get(event.ref, b"") if isinstance(event, AudioDelta) else b""
                self._ready.append(Heard(event if journaled else replace(event, number=0), sound))

    def _is_journaled(self, entry: Published, here: Attachment) -> bool:
        """Return whether a live transaction may be asked for again; that it may not is told once."""
        overflow = here.feed.overflow_at(entry.seq) if self._token is not None else None
        if overflow is not None and overflow is not self._overflow:
            self._overflow = overflow
            self._ready.append(Heard(ResyncRequired(session=here.session)))
        return overflow is None

    def _next(self) -> Heard:
        """Take one event; only what was taken counts as seen."""
        heard = self._ready.popleft()
        if heard.event.number and heard.event.count:
            self.last_number = heard.event.number + heard.event.count - 1
        return heard

    # -- connections -----------------------------------------------------------------------------------------

    async def drop(self) -> None:
        """Lose the connection, as a socket may."""
        here, self._attachment = self.attachment, None
        self._forget_cursor()
        await here.detach()

    async def resume(self) -> None:
        """Connect again, in place of the old connection if there still is one.

        Raises:
            Refused, Resync: as `Hub.resume` does.
            NotConnected: the session cannot be resumed.
        """
        if self._token is None:
            raise NotConnected("this session cannot be resumed")
        self._take(
            await self._hub.resume(
                Resumption(
                    session=self._session,
                    token=self._token,
                    control_id=token_hex(16),
                    last_number=self.last_number,
                )
            )
        )

    async def close(self, words: str | None = None) -> None:
        """End the session and wait for its terminal, `close_s` at most; then it is closed for this client (M17).

        `words` may say why; they stand in the terminal event.
        """
        here = self._attachment
        if here is not None and here.current:
            control_id = token_hex(16)
            here.send(CloseSession(control_id=control_id, words=words, attachment=here.generation))
            await self._until_ended(here)
        self._closed = True
        self._forget_cursor()

    async def _until_ended(self, here: Attachment) -> None:
        clock = self._hub.clock
        latest = clock.monotonic_us() + round(self._close_s * 1e6)

        async def give_up() -> None:
            await clock.sleep_until(latest)
            here.end("closed")

        async with anyio.create_task_group() as group:
            group.start_soon(give_up)
            await here.wait_ended()
            group.cancel_scope.cancel()

    def _take(self, attachment: Attachment) -> None:
        self._forget_cursor()
        self._attachment = attachment
        self._session = attachment.session
        self._token = attachment.token
        attachment.heard()

    def _forget_cursor(self) -> None:
        self._ready.clear()
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None
