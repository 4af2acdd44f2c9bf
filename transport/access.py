"""Who may connect, and as what: keys, origins, and what the address of a connection asks for (WIRE 1.1, 1.2)."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec
from msgspec import Struct, field

from antiphon.events.config import Dialect

from .handshake import Invitation, Return, Watching
from .keys import ApiKey, Keys

PATHS: Mapping[str, bool] = {"/v1/realtime": False, "/v1/duplex": True}
"""Where websockets are served, and whether the path alone chooses the duplex dialect."""

KEY_PROTOCOL = "openai-insecure-api-key."
BETA_PROTOCOL = "openai-beta.realtime-v1"
LONGEST_MODEL = 256
LONGEST_NUMBER = 20

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


class Denied(Exception):
    """An HTTP answer instead of what was asked for."""

    def __init__(self, status: int, reason: str, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.body = error_json(message, code)


class _Error(Struct, frozen=True, kw_only=True):
    message: str
    type: Literal["invalid_request_error"] = "invalid_request_error"
    param: None = None
    code: str


class _ErrorBody(Struct, frozen=True):
    error: _Error


def error_json(message: str, code: str) -> bytes:
    """Return the body of an HTTP refusal."""
    return msgspec.json.encode(_ErrorBody(_Error(message=message, code=code)))


class Request(Struct, frozen=True, kw_only=True):
    """What a request says of itself. Header names are in lower case; `protocols` are websocket subprotocols."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    protocols: tuple[str, ...] = ()


class Access(Struct, frozen=True, kw_only=True):
    """What an operator allows. `origins` None: browsers may come from every page.

    `key_in_query` True takes the key also from the query `api_key`; addresses end up in logs of others.
    """

    keys: Keys = field(default_factory=Keys)
    key_in_query: bool = False
    origins: tuple[str, ...] | None = None

    def check(self, request: Request) -> ApiKey | None:
        """Let the request pass; return its key, None where none is needed.

        Raises:
            Denied: 401 without a right key, 403 from a wrong origin.
        """
        self.check_origin(request)
        if not self.keys.needed:
            return None
        key = self.keys.find(offered(request, in_query=self.key_in_query))
        if key is None:
            raise unknown_key()
        return key

    def check_origin(self, request: Request) -> None:
        """Let the request pass if it may come from where it says that it does.

        Raises:
            Denied: 403.
        """
        origin = request.headers.get("origin")
        if self.origins is not None and origin is not None and origin.lower() not in self.origins:
            raise Denied(403, "Forbidden", "forbidden_origin", "This origin is not allowed.")


def unknown_key() -> Denied:
    """Return the answer to who has no right key."""
    return Denied(401, "Unauthorized", "invalid_api_key", "A valid API key is needed.")


def offered(request: Request, *, in_query: bool) -> Iterable[str]:
    """Give the keys that a request shows, in each of the ways in which it may (WIRE 1.2)."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token:
        yield token.strip()
    if "api-key" in request.headers:
        yield request.headers["api-key"]
    for protocol in request.protocols:
        if protocol.startswith(KEY_PROTOCOL):
            yield protocol.removeprefix(KEY_PROTOCOL)
    if in_query and "api_key" in request.query:
        yield request.query["api_key"]


def invitation(request: Request, default: Dialect) -> Invitation | Watching:
    """Return what the request for a websocket asks for: a session of its own, or to read that of somebody else.

    Raises:
        Denied: 404 for another path, 400 for a mode that is not offered.
    """
    if request.path not in PATHS:
        raise Denied(404, "Not Found", "not_found", "There is nothing here.")
    query = request.query
    if query.get("intent") == "transcription":
        raise Denied(400, "Bad Request", "unsupported", "Transcription sessions are not supported.")
    if "call_id" in query:
        raise Denied(400, "Bad Request", "unsupported", "Side channels of calls are not supported.")
    if "observe" in query:
        return _watching(request)
    model = query.get("model") or None
    if model is not None and len(model) > LONGEST_MODEL:
        raise Denied(400, "Bad Request", "model_not_found", "No model has a name as long as that.")
    chosen = dialect(request, default)
    waits = query.get("autostart", "").lower() in _NO or query.get("resume", "").lower() in _YES
    return Invitation(
        chosen,
        model,
        at_once=chosen != "duplex" or (model is not None and not waits),
        resumable=query.get("resumable", "").lower() in _YES,
        back=None if chosen == "duplex" else _back(query),
    )


def _watching(request: Request) -> Watching:
    """Return who wants to observe; in the duplex dialect, unless the request chooses another one."""
    query = request.query
    number = query.get("last_received_server_event_seq") or "0"
    return Watching(
        dialect=dialect(request, "duplex"),
        session=query["observe"],
        token=query.get("observer_token", ""),
        last_number=int(number)
        if number.isascii() and number.isdecimal() and len(number) < LONGEST_NUMBER
        else None,
        last_event_id=query.get("last_event_id", ""),
    )


def _back(query: Mapping[str, str]) -> Return | None:
    """Return what an address says that comes back to a session: its client may have no say but in the address."""
    if "session_id" not in query and "resume_token" not in query:
        return None
    return Return(
        session=query.get("session_id", ""),
        token=query.get("resume_token", ""),
        last_event_id=query.get("last_event_id", ""),
    )


def dialect(request: Request, default: Dialect) -> Dialect:
    """Return the dialect of a connection (WIRE 0.3): the first rule that fits, else the operator's default."""
    query = request.query
    if PATHS.get(request.path) or any(query.get(key, "").lower() in _YES for key in ("duplex", "resume")):
        return "duplex"
    beta = "realtime=v1" in request.headers.get("openai-beta", "")
    if beta or BETA_PROTOCOL in request.protocols:
        return "beta"
    return "ga" if "duplex" in query else default
