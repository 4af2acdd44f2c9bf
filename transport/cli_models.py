"""`antiphon models`: the names that are served, or that can be."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import msgspec
import typer
from msgspec import Struct
from rich.markup import escape
from rich.table import Table

from . import pipelines
from .cli_errors import UNUSABLE, Stop
from .cli_options import CaOption, JsonOption, UrlKeyOption, given
from .cli_terminal import print_json, screen

if TYPE_CHECKING:
    from http.client import HTTPConnection

PATIENCE_S = 10.0
LARGEST = 1024 * 1024
"""Bytes of an answer that are read."""


class Shipped(Struct, frozen=True, kw_only=True):
    """A pipeline that can be served here. `id` is the name that clients are shown, `sessions` how many it holds."""

    id: str
    pipeline: str
    plugin: str
    sessions: int


class Served(Struct, frozen=True, kw_only=True):
    """A name that a server serves. `root` is the model behind it."""

    id: str
    root: str | None = None
    owned_by: str | None = None


class _Listed(Struct, frozen=True):
    data: list[Served]


def models(
    url: Annotated[
        str | None, typer.Option(parser=given, metavar="ADDRESS", help="Ask this server; none: what is here.")
    ] = None,
    api_key: UrlKeyOption = None,
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """
    List the pipelines that can be served here, or the models that a server serves.

        antiphon models

        antiphon models --url ws://gpu-box:8000 --json

    A server answers with what it has at /v1/models: the name that its sessions show, and other names for it.
    """
    rows = shipped() if url is None else served(url, api_key, ca)
    if as_json:
        return print_json(msgspec.json.encode(rows))
    screen().print(_table(rows))
    if url is None:
        screen().print("[dim]antiphon serve --pipeline NAME serves one; `antiphon doctor` says what it lacks[/]")
    return None


def shipped() -> list[Shipped]:
    """Return the pipelines that come with the package."""
    return [
        Shipped(id=one.model, pipeline=one.name, plugin=one.plugin, sessions=one.max_sessions)
        for one in map(pipelines.load, pipelines.shipped())
    ]


def served(url: str, api_key: str | None, ca: Path | None) -> list[Served]:
    """Ask a server for its models.

    Raises:
        Stop: there is none, it does not let us in, or it says something else.
    """
    line, path = _line(url, ca)
    try:
        line.request("GET", f"{path}/v1/models", headers={"Authorization": f"Bearer {api_key}"} if api_key else {})
        answer = line.getresponse()
        body = answer.read(LARGEST)
    except ValueError:
        raise Stop("this key holds characters that no key has", UNUSABLE) from None
    except OSError as error:
        why = error.strerror or str(error)
        raise Stop(f"there is no server at {url} ({why}); start one with `antiphon serve`") from None
    finally:
        line.close()
    if answer.status == 401:
        more = "does not take this key: give another" if api_key else "wants a key: give one"
        raise Stop(f"the server at {url} {more} with --api-key or ANTIPHON_API_KEY")
    try:
        return msgspec.json.decode(body, type=_Listed).data
    except msgspec.DecodeError:
        raise Stop(f"what answers at {url} lists no models (HTTP {answer.status})") from None


def _line(url: str, ca: Path | None) -> "tuple[HTTPConnection, str]":
    """Return a connection to a server, and what its addresses begin with there. It follows no redirection: a key
    is for one server."""
    from http.client import HTTPConnection, HTTPSConnection

    from .cli_talk import trusting

    parts = urlsplit(url if "://" in url else f"ws://{url}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or parts.scheme not in ("ws", "http", "wss", "https"):
        raise Stop(f"{url} is no address of a server: give --url ws://HOST:PORT", UNUSABLE)
    path = parts.path.rstrip("/").removesuffix("/realtime").removesuffix("/v1")
    if parts.scheme in ("ws", "http"):
        return HTTPConnection(host, port, timeout=PATIENCE_S), path
    context = None if ca is None else trusting(ca)
    return HTTPSConnection(host, port, timeout=PATIENCE_S, context=context), path


def _table(rows: list[Shipped] | list[Served]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    here = rows and isinstance(rows[0], Shipped)
    for head in ("model", "pipeline", "plugin", "sessions") if here else ("model", ""):
        table.add_column(head, header_style="dim")
    for row in rows:
        if isinstance(row, Shipped):
            table.add_row(*map(escape, (row.id, row.pipeline, row.plugin, f"{row.sessions:,}")))
        else:
            table.add_row(
                escape(row.id), "" if row.root in (None, row.id) else f"another name of {escape(row.root)}"
            )
    return table
