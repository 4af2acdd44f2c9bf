"""The HTTP endpoints beside the websocket: health, models, and the answers to what is not there (WIRE 11)."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from antiphon.engine.hub import Hub

from .access import PATHS, Denied
from .administration import CHALLENGE
from .chat import ChatCompletions
from .gate import Gate
from .http_errors import Failed, json_response
from .http_secrets import client_secrets, described
from .http_sessions import PATH as SESSIONS
from .http_sessions import session_routes
from .metrics import CONTENT_TYPE
from .page_files import page_routes


class ModelOut(Struct, frozen=True, kw_only=True):
    """One served model."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "antiphon"
    root: str
    parent: None = None
    max_model_len: None = None
    permission: tuple[()] = ()


class ModelList(Struct, frozen=True, kw_only=True):
    """The served models."""

    object: str = "list"
    data: list[ModelOut]


class Recovering(Struct, frozen=True):
    """How many sessions a former process left, and how many of them have been dealt with."""

    sessions: int
    done: int


class Health(Struct, frozen=True, omit_defaults=True):
    """Whether the server can answer; `reason` says why not. `recovering` until the last session is taken over."""

    status: str
    reason: str = ""
    recovering: Recovering | None = None


def application(hub: Hub, gate: Gate, measured: Callable[[], bytes], data: Path | None = None) -> Starlette:
    """Return the endpoints of one hub; `measured` returns its figures as text, `data` is its data directory."""
    started_s = hub.clock.wall_us() // 1_000_000

    async def health(_request: HttpRequest) -> Response:
        reason, recovering = hub.not_ready, _recovering(hub)
        if reason is None:
            return json_response(Health("healthy", recovering=recovering))
        return json_response(Health("unhealthy", reason, recovering), 503)

    async def models(request: HttpRequest) -> Response:
        gate.check(described(request))
        return json_response(ModelList(data=[_model(name, hub, started_s) for name in _served(hub)]))

    async def model(request: HttpRequest) -> Response:
        gate.check(described(request))
        name = str(request.path_params["name"])
        if name not in _served(hub):
            raise HTTPException(404, "There is no such model.")
        return json_response(_model(name, hub, started_s))

    async def metrics(_request: HttpRequest) -> Response:
        return Response(measured(), media_type=CONTENT_TYPE)

    async def upgrade_only(_request: HttpRequest) -> Response:
        refusal = Failed(426, "This address speaks websocket.").response()
        refusal.headers["Upgrade"] = "websocket"
        return refusal

    routes = [
        Route("/health", health),
        Route("/metrics", metrics),
        Route("/v1/models", models),
        Route("/v1/models/{name:path}", model),
        Route("/v1/chat/completions", ChatCompletions(hub, gate), methods=["POST"]),
        *(Route(path, upgrade_only) for path in PATHS),
        Route("/v1/realtime/client_secrets", client_secrets(hub, gate), methods=["POST"]),
        *session_routes(hub, gate.access, data),
        *page_routes(),
    ]
    handlers = {HTTPException: _on_http, Failed: _on_failed, Denied: _on_denied}
    return Starlette(routes=routes, exception_handlers=handlers)


def _recovering(hub: Hub) -> Recovering | None:
    restart = hub.restart
    return Recovering(restart.left, restart.done) if restart.left and not hub.recovered.is_set() else None


def _served(hub: Hub) -> tuple[str, ...]:
    return (hub.settings.served_model, *hub.settings.aliases)


def _model(name: str, hub: Hub, created: int) -> ModelOut:
    return ModelOut(id=name, created=created, root=hub.settings.served_model)


async def _on_http(_request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Failed(error.status_code, error.detail).response()


async def _on_failed(_request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, Failed)
    return error.response()


async def _on_denied(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, Denied)
    asks = error.status == 401 and request.url.path.startswith(SESSIONS)
    return Response(error.body, error.status, headers=CHALLENGE if asks else None, media_type="application/json")
