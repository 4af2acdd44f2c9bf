"""`POST /v1/chat/completions`: a turn on the stages that serve conversations, in a session of its own (WIRE 11.4).

The session is one request: it takes no place of a conversation (B28), is recorded like any other, and ends with its
answer or when its client goes away.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from secrets import token_hex

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from antiphon.engine.attachment import Attachment
from antiphon.engine.errors import Refused
from antiphon.engine.hub import Hub
from antiphon.engine.opening import Opening
from antiphon.events.commands import CloseSession, CreateResponse
from antiphon.events.errors import error_type, retryable
from antiphon.events.events import (
    AudioDelta,
    ErrorReported,
    PublicEvent,
    ResponseCreated,
    ResponseEnded,
    SessionClosed,
)

from .chat_in import Wanted, wanted
from .chat_out import DONE, Answer, line
from .gate import Gate
from .grant import Grant
from .http_body import read_body
from .http_errors import Failed
from .http_secrets import described
from .wire_errors import WireError

READERS = 2
"""Large bodies that are taken apart at one time."""

AT_ONCE = 64 * 1024
"""Bytes of a body that is read at once: a thread would take longer."""

_STATUS = {"model_not_found": 404, "event_too_large": 413}
_STATUS_BY_TYPE = {"rate_limit_error": 429, "server_error": 500, "authentication_error": 401}


class ChatCompletions:
    """The endpoint. A request counts for its key like a session that is opened with it."""

    def __init__(self, hub: Hub, gate: Gate) -> None:
        self._hub = hub
        self._gate = gate
        # A body is megabytes of JSON and packed sound: read beside the conversations, two at a time.
        self._reading = anyio.CapacityLimiter(READERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Raises:
            Failed, Denied: it is not answered; nothing was sent yet.
        """
        request = Request(scope, receive)
        grant = self._gate.check(described(request))
        try:
            body = await read_body(request)
            spent = grant.budget.spend(len(body)) if grant.budget is not None else None
            if spent is not None:
                raise Failed(429, spent)
            asked = await self._read(body)
        except WireError as error:
            raise _refused(error.code, error.message, error.param) from None
        exchange = _Exchange(self._hub, asked, grant, send)
        failed: Failed | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(_until_gone, receive, group.cancel_scope)
            failed = await exchange.run()
            group.cancel_scope.cancel()
        if failed is not None:
            raise failed

    async def _read(self, body: bytes) -> Wanted:
        if len(body) <= AT_ONCE:
            return wanted(body)
        return await anyio.to_thread.run_sync(wanted, body, limiter=self._reading)


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    """End the answer when nobody waits for it any more."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


class _Exchange:
    """One request and its answer."""

    def __init__(self, hub: Hub, asked: Wanted, grant: Grant, send: Send) -> None:
        self._hub = hub
        self._asked = asked
        self._grant = grant
        self._send = send
        self._started = False
        self._session = ""
        self._failed: Failed | None = None

    async def run(self) -> Failed | None:
        """Answer; return why not, if nothing was sent yet. A stream that has begun says so itself."""
        sound = await self._hub.contain(lambda: self._session, self._run)
        if not sound:
            self._failed = Failed(500, "The request failed by an error of the server.")
        if self._failed is None or not self._started:
            return self._failed
        await self._say(line(self._failed.body) + DONE, more=False)
        return None

    async def _run(self) -> None:
        try:
            attachment = await self._open()
            self._session = attachment.session
            try:
                self._ask(attachment)
                async with aclosing(_heard(attachment)) as heard:
                    await self._answer(attachment, heard)
            finally:
                closing = CloseSession(control_id=token_hex(16), reason="client_close", attachment=1)
                attachment.send(closing)
        except Failed as failed:
            self._failed = failed

    async def _open(self) -> Attachment:
        opening = Opening(
            dialect="ga",
            control_id=token_hex(16),
            model=self._asked.model,
            patch=self._asked.patch,
            wants_resume=False,
            request=True,
            owner=self._grant.owner,
            sessions=self._grant.sessions,
        )
        try:
            return await self._hub.open(opening)
        except Refused as refused:
            raise _refused(refused.code, refused.message, _field(refused.param)) from None

    def _ask(self, attachment: Attachment) -> None:
        for item in self._asked.items:
            attachment.create(item)
        attachment.send(CreateResponse(attachment=attachment.generation))

    async def _answer(self, attachment: Attachment, heard: AsyncGenerator[tuple[PublicEvent, bytes]]) -> None:
        asked = self._asked
        answer = Answer(
            model=asked.model or self._hub.settings.served_model,
            created=self._hub.clock.wall_us() // 1_000_000,
            file=asked.file,
            shows_usage=asked.shows_usage,
        )
        async for event, sound in heard:
            if isinstance(event, ResponseEnded) and event.status == "cancelled":
                continue  # its session ends, and says why
            if isinstance(event, ResponseCreated):
                first = answer.begun(event.head.id)
                if asked.stream:
                    await self._say(first)
            elif asked.stream:
                for chunk in answer.chunks(event, sound):
                    await self._say(chunk)
            else:
                answer.take(event, sound)
            if isinstance(event, ResponseEnded):
                whole = DONE if asked.stream else await anyio.to_thread.run_sync(answer.completion, event)
                await self._say(whole, more=False)
                return

    async def _say(self, data: bytes, *, more: bool = True) -> None:
        if not self._started:
            kind = b"text/event-stream; charset=utf-8" if self._asked.stream else b"application/json"
            headers = [(b"content-type", kind)]
            if self._asked.stream:
                headers.append((b"cache-control", b"no-cache"))
            self._started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        message: Message = {"type": "http.response.body", "body": data, "more_body": more}
        await self._send(message)


async def _heard(attachment: Attachment) -> AsyncGenerator[tuple[PublicEvent, bytes]]:
    """Give what the session says, with the sound of its deltas.

    Raises:
        Failed: it refuses something, or ends.
    """
    with attachment.cursor() as cursor:
        try:
            async for entry in cursor:
                for event in entry.transaction.events:
                    if isinstance(event, ErrorReported):
                        raise _refused(event.code, event.message, _field(event.param))
                    if isinstance(event, SessionClosed):
                        raise _ended(event)
                    if isinstance(event, PublicEvent):
                        yield event, entry.sound.get(event.ref, b"") if isinstance(event, AudioDelta) else b""
        except Refused as refused:
            raise _refused(refused.code, refused.message, _field(refused.param)) from None
    raise Failed(503, f"The session of the request has ended: {cursor.end}.")


def _field(param: str | None) -> str | None:
    """Return where in the body stands what a session names by its own field."""
    if param is None:
        return None
    name = param.removeprefix("session.")
    return "messages" if name.startswith("item") else _FIELDS.get(name, name)


_FIELDS = {
    "audio.output.voice": "audio.voice",
    "ref_audio": "audio.voice",
    "instructions": "messages",
    "max_output_tokens": "max_completion_tokens",
}


def _refused(code: str, message: str, param: str | None) -> Failed:
    kind = error_type(code)
    status = 503 if kind == "server_error" and retryable(code) else _STATUS_BY_TYPE.get(kind, 400)
    return Failed(_STATUS.get(code, status), message, param)


def _ended(event: SessionClosed) -> Failed:
    if event.reason == "max_duration":
        return Failed(504, "The answer took too long.")
    return Failed(
        503 if event.reason == "shutdown" else 500, f"The session of the request has ended: {event.reason}."
    )
