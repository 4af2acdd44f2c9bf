"""One connection of the client: opening or resuming a session on it, and its frames; the one over a websocket."""

import ssl
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Literal, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import anyio
import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI, WebSocketException
from websockets.protocol import State

from . import wire_server as out
from .client_events import Received, read
from .codes import FATAL_RESUME
from .wire_client import Resume, SessionUpdate

OPENING_S = 30.0
LARGEST_FRAME = 64 * 1024 * 1024
_FATAL_OPENING = frozenset({"model_not_found", "invalid_session_config", "bad_event", "invalid_api_key"})


class Refused(Exception):
    """The server said no. `final`: another attempt would hear the same."""

    def __init__(self, code: str, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.code = code
        self.final = final


class Cut(Exception):
    """The socket is gone, or could not be had."""


class SessionOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a session is opened with; the fields are those of the wire's session object (WIRE 4.3).

    Rates in Hz. `turn_detection` None switches it off; left out it is the server's default.
    """

    model: str | None = None
    instructions: str | None = None
    modalities: list[Literal["audio", "text"]] | None = None
    voice: str | None = None
    speed: float | None = None
    sample_rate_hz: int | None = None
    input_audio_format: str | None = None
    output_audio_format: str | None = None
    audio: dict[str, dict[str, object]] | None = None
    turn_detection: dict[str, object] | UnsetType | None = UNSET
    input_audio_transcription: dict[str, object] | None = None
    ref_audio: str | None = None
    initial_user_text: str | None = None
    overlap_policy: str | None = None
    playback_commit_policy: str | None = None
    tools: list[dict[str, object]] | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] | None = None
    idle_timeout_s: float | None = None
    extra_body: dict[str, object] | None = None


UNUSABLE = "invalid_url"
"""The code of an address that names no server."""


def address(url: str, model: str | None) -> str:
    """Return the URL that is dialled: the duplex dialect, and nothing is opened before the first message.

    Raises:
        Refused: `url` names no server.
    """
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no port, brackets that do not close
        parts, usable = urlsplit(""), False
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    if not usable or scheme not in ("ws", "wss"):
        raise Refused(UNUSABLE, f"{url!r} is no address of a server; it looks like ws://HOST:PORT", final=True)
    path = parts.path if parts.path.strip("/") else "/v1/realtime"
    query = dict(parse_qsl(parts.query)) | {"duplex": "1", "autostart": "0"}
    if model is not None:
        query["model"] = model
    return urlunsplit((scheme, parts.netloc, path, urlencode(query), ""))


class Link(ABC):
    """A connection to a server, of whatever kind. It carries frames in order until it is lost."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(1.0):
            await self.close()
        self.cut()

    @abstractmethod
    async def send(self, frame: bytes) -> None:
        """Send a frame of text.

        Raises:
            Cut: the connection is gone.
        """

    @abstractmethod
    async def frame(self) -> bytes:
        """Return the next frame of text.

        Raises:
            Cut: the connection is gone.
        """

    @abstractmethod
    async def close(self) -> None:
        """Say that the connection is over."""

    @abstractmethod
    def cut(self) -> None:
        """Drop the connection without a word, as a lost network does."""

    async def open(self, options: SessionOptions) -> out.SessionCreated:
        """Open a session.

        Raises:
            Cut, Refused
        """
        await self.send(_encode(SessionUpdate(session=Raw(_encode(options)))))
        event = await self._answer()
        if not isinstance(event, out.SessionCreated):
            raise Cut("the server did not open a session")
        return event

    async def resume(self, session: str, token: str, last_number: int) -> tuple[out.SessionResumed, list[Received]]:
        """Take a session over; return the answer, and what came before it and belongs behind it (D35).

        Raises:
            Cut, Refused
        """
        asked = Resume(session_id=session, resume_token=token, last_received_server_event_seq=last_number)
        await self.send(_encode(asked))
        early: list[Received] = []
        with anyio.move_on_after(OPENING_S):
            while not isinstance(event := await self._answer(), out.SessionResumed):
                if isinstance(event, out.ResyncRequired):
                    raise Refused("session_resync_required", event.reason, final=True)
                early.append(event)
            return event, early
        raise Cut("the server did not resume the session")

    async def _answer(self) -> Received:
        with anyio.move_on_after(OPENING_S):
            event = await self.receive()
            if isinstance(event, out.ErrorOut):
                code = event.error.code or "error"
                final = code in FATAL_RESUME or code in _FATAL_OPENING
                raise Refused(code, event.error.message, final=final)
            return event
        raise Cut("the server did not answer")

    async def receive(self) -> Received:
        """Return the next event.

        Raises:
            Cut: the connection is gone.
        """
        try:
            return read(await self.frame())
        except msgspec.DecodeError as error:
            raise Cut("the server sent something that is not an event") from error


class WebsocketLink(Link):
    """A websocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    @classmethod
    async def dial(cls, url: str, api_key: str | None, tls: ssl.SSLContext | None = None) -> Self:
        """Connect.

        Raises:
            Cut: there is nobody, or not now.
            Refused: the server does not want this client.
        """
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            socket = await connect(
                url,
                additional_headers=headers,
                max_size=LARGEST_FRAME,
                ssl=(tls or True) if url.startswith("wss:") else None,
                compression=None,
                open_timeout=OPENING_S,
            )
        except InvalidStatus as error:
            status = error.response.status_code
            if 400 <= status < 500:
                raise Refused(f"http_{status}", str(error), final=True) from error
            raise Cut(str(error)) from error
        except ssl.SSLCertVerificationError as error:
            raise Cut(f"its certificate is not trusted here: {error.verify_message}") from error
        except ssl.SSLError as error:
            raise Cut("it does not speak TLS: use ws:// in place of wss://") from error
        except (OSError, TimeoutError) as error:
            raise Cut(str(error)) from error
        except (InvalidURI, ValueError) as error:
            raise Refused(UNUSABLE, f"{url!r} is no address of a server", final=True) from error
        except (WebSocketException, EOFError) as error:
            raise Cut("what listens there does not speak this protocol") from error
        return cls(socket)

    async def send(self, frame: bytes) -> None:
        """Send a frame of text; raises `Cut`."""
        if self._socket.state is not State.OPEN:
            # The library would wait until the socket is gone. While much is unread it does not read on, and notices
            # that only when it gives up, after 10 s: time that whoever reads, and acknowledges, would stand still.
            raise Cut("the connection is closing")
        try:
            await self._socket.send(frame, text=True)
        except ConnectionClosed as error:
            raise Cut(str(error)) from error

    async def frame(self) -> bytes:
        """Return the next frame of text; raises `Cut`."""
        try:
            return await self._socket.recv(decode=False)
        except ConnectionClosed as error:
            raise Cut(str(error)) from error

    async def close(self) -> None:
        """Close the websocket."""
        await self._socket.close()

    def cut(self) -> None:
        """Drop the socket without a word."""
        self._socket.transport.abort()


_encode = msgspec.json.Encoder().encode
