"""`POST /v1/realtime/client_secrets`: a key for one opening, with the session that it opens (WIRE 11.8)."""

import secrets
from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw, Struct
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from antiphon.engine.defaults import default_config
from antiphon.engine.errors import Refused
from antiphon.engine.hub import Hub
from antiphon.engine.opening import Opening
from antiphon.engine.plugins import no_recording
from antiphon.events.config import SessionConfig

from .access import Request
from .gate import Gate
from .grant import Start
from .http_body import read_body
from .http_errors import Failed
from .secrets import Crowded
from .wire_errors import WireError, translate, wrong_type
from .wire_json import check, invalid_json
from .wire_session import read_session
from .wire_view import shown_session

Endpoint = Callable[[HttpRequest], Awaitable[Response]]


class ExpiresAfter(Struct, frozen=True):
    """How long a secret can be used."""

    anchor: Literal["created_at"] = "created_at"
    seconds: Annotated[int, Meta(ge=10, le=7200)] = 600


class Asked(Struct, frozen=True):
    """The body of the request."""

    expires_after: ExpiresAfter = ExpiresAfter()
    session: Raw = Raw(b"{}")


class SecretOut(Struct, frozen=True):
    """The answer."""

    value: str
    expires_at: int
    session: Raw


def described(request: HttpRequest) -> Request:
    """Return what a request says of itself."""
    return Request(path=request.url.path, query=dict(request.query_params), headers=dict(request.headers))


def client_secrets(hub: Hub, gate: Gate) -> Endpoint:
    """Return the endpoint."""

    async def answer(request: HttpRequest) -> Response:
        grant = gate.check(described(request))
        body = await read_body(request)
        spent = grant.budget.spend(len(body)) if grant.budget is not None else None
        if spent is not None:
            raise Failed(429, spent)
        try:
            asked = _read(body)
            start, shown = _prepared(asked, hub)
            value, expires_at = gate.secrets.draw(grant.owner, start, asked.expires_after.seconds, len(body))
        except (WireError, Refused) as error:
            raise Failed(400, error.message, error.param) from error
        except Crowded:
            raise Failed(429, "Too many client secrets are waiting to be used; try again later.") from None
        return Response(msgspec.json.encode(SecretOut(value, expires_at, shown)), media_type="application/json")

    return answer


def _read(body: bytes) -> Asked:
    if not body.strip():
        return Asked()
    check(body)
    try:
        return _decode(body)
    except msgspec.ValidationError as error:
        if str(error).startswith("Expected `object`") and " - at " not in str(error):
            raise wrong_type("The body must be a JSON object.", "") from None
        raise translate(error, Asked) from None
    except (msgspec.DecodeError, RecursionError):
        raise invalid_json() from None


_decode = msgspec.json.Decoder(Asked).decode


def _prepared(asked: Asked, hub: Hub) -> tuple[Start, Raw]:
    """Return how the session starts, and as what it will be shown: it is the one that the secret opens.

    Raises:
        WireError, Refused: no session can have this configuration.
    """
    patch, sound = read_session(asked.session, _defaults(hub), "ga", no_recording=no_recording(hub.plugin))
    start = Start(patch=patch, recording=sound, control_id=secrets.token_hex(16))
    opening = Opening(dialect="ga", control_id=start.control_id, patch=patch, recording=sound)
    return start, shown_session(hub.preview(opening))


def _defaults(hub: Hub) -> SessionConfig:
    can = hub.plugin.capabilities
    voice = can.voices[0] if can.voices else "default"
    return default_config("ga", hub.settings, can, model=hub.settings.served_model, voice=voice)
