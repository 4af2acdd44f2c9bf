"""Who may look at sessions: an administrator's key, or without keys this machine itself."""

import base64
import binascii
import ipaddress
from collections.abc import Iterator
from urllib.parse import urlsplit

from .access import Access, Denied, Request, offered, unknown_key

CHALLENGE = {"WWW-Authenticate": 'Basic realm="Antiphon sessions", charset="UTF-8"'}
"""Lets a browser ask for the key: it is the password, whatever the name."""


def check_administrator(access: Access, request: Request, peer: str | None) -> None:
    """Let the request look at sessions; `peer` is the address that it comes from.

    Without keys it must come from this machine, and by a name of this machine: a page of elsewhere can make a name
    of its own point here, and would read along.

    Raises:
        Denied: 401 without a right key, 403 with one that is no administrator's, or from another machine.
    """
    access.check_origin(request)
    if not access.keys.needed:
        if not (is_local(peer or "") and is_local(_host(request))):
            raise _forbidden("Sessions can be looked at from this machine only, or with an administrator's key.")
        return
    key = access.keys.find((*_password(request), *offered(request, in_query=access.key_in_query)))
    if key is None:
        raise unknown_key()
    if not key.admin:
        raise _forbidden("An administrator's key is needed: `antiphon keys add NAME --admin` makes one.")


def is_local(host: str) -> bool:
    """Return whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host(request: Request) -> str:
    try:
        return urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def _password(request: Request) -> Iterator[str]:
    """Yield the key that a browser sends when it was asked for one."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            yield base64.b64decode(token.strip(), validate=True).decode().partition(":")[2]
        except (binascii.Error, ValueError):
            return


def _forbidden(message: str) -> Denied:
    return Denied(403, "Forbidden", "administrator_needed", message)
