"""The web page at `/`: the files of `transport/page`, served as they are, under a strict policy."""

import hashlib
from importlib.resources import files

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
"""What each kind of file is, by the end of its name; anything else is not served."""

HEADERS = {
    # Everything comes from this server: no script stands in the page, and no frame stands round it.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self' data:; "
        "media-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    # Only a page that is on its own may share memory with its audio thread.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Permissions-Policy": "microphone=(self), camera=(self)",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # Asked for again each time, and answered with 304: a server of another version has another page.
    "Cache-Control": "no-cache",
}


class _File(Struct, frozen=True):
    body: bytes
    media_type: str
    etag: str


def page_routes() -> list[Route]:
    """Return the routes of the page: `/`, and its files below `/page/`. They are read once."""
    known = {
        entry.name: _file(entry.name, entry.read_bytes())
        for entry in (files("antiphon.transport") / "page").iterdir()
        if _suffix(entry.name) in TYPES
    }

    async def index(request: Request) -> Response:
        return _answer(known["index.html"], request)

    async def one(request: Request) -> Response:
        file = known.get(str(request.path_params["name"]))
        if file is None:
            raise HTTPException(404, "There is nothing here.")
        return _answer(file, request)

    return [Route("/", index), Route("/page/{name}", one)]


def _suffix(name: str) -> str:
    return name[name.rfind(".") :]


def _file(name: str, body: bytes) -> _File:
    return _File(body, TYPES[_suffix(name)], f'"{hashlib.sha256(body).hexdigest()[:16]}"')


def _answer(file: _File, request: Request) -> Response:
    headers = {**HEADERS, "ETag": file.etag}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if file.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(file.body, media_type=file.media_type, headers=headers)
