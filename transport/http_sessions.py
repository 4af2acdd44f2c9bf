"""`GET /sessions` and `GET /sessions/<id>`: what an administrator sees of the sessions, running ones included."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

import anyio
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from antiphon.engine.hub import Hub
from antiphon.events.log import LogError, SessionRow

from .access import Access
from .administration import check_administrator
from .http_errors import Failed
from .http_secrets import described
from .moments import moment
from .page_making import Unshown, made_apart, made_here
from .session_page import Parts, list_page, parts

PATH = "/sessions"

LISTED = 500
"""Sessions of the list: the newest ones."""

WAITING = 8
"""Pages that wait to be made; one is made at a time, for each takes a core for a while."""


def session_routes(hub: Hub, access: Access, data: Path | None) -> list[Route]:
    """Return the routes. `data` is the hub's data directory, None if its log is in memory."""
    making = anyio.Lock()

    async def index(request: HttpRequest) -> Response:
        _admit(request, access)
        try:
            rows = await hub.log.sessions()
        except LogError as error:
            raise Failed(503, f"The sessions cannot be listed now: {error}.") from error
        body = await anyio.to_thread.run_sync(list_page, _lines(rows[:LISTED]), len(rows))
        return _html(body, parts())

    async def one(request: HttpRequest) -> Response:
        _admit(request, access)
        name = str(request.path_params["name"])
        if making.statistics().tasks_waiting >= WAITING:
            raise Failed(503, "Too many pages are asked for at once; try again later.")
        async with making:
            try:
                if data is None:
                    body = await made_here(hub.log.read, hub.samples.read, name)
                else:
                    body = await made_apart(data, name)
            except Unshown as unshown:
                raise Failed(unshown.answer.status, unshown.answer.message) from None
        return _html(body, parts())

    return [Route(PATH, index), Route(f"{PATH}/{{name:path}}", one)]


def _admit(request: HttpRequest, access: Access) -> None:
    """Raise `Denied` unless it is an administrator's."""
    check_administrator(access, described(request), None if request.client is None else request.client.host)


def _lines(rows: Sequence[SessionRow]) -> list[tuple[str, ...]]:
    """Return the rows of the list as markup."""
    return [
        (
            f'<a href="{PATH}/{quote(row.session, safe="")}">{escape(row.session)}</a>',
            moment(row.opened_us),
            escape(row.state),
            escape(row.kind),
            escape(row.dialect),
            escape(row.model),
            escape(f"{row.plugin} {row.plugin_version}"),
            f"{row.at / 1e6:,.1f} s",
            f"{row.head:,}",
        )
        for row in rows
    ]


def _html(body: bytes, fixed: Parts) -> Response:
    return Response(
        body,
        media_type="text/html",
        headers={
            "Content-Security-Policy": f"{fixed.policy}; img-src data:; frame-ancestors 'none'",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Cache-Control": "no-store",
        },
    )
