"""Tokens, to resume a session and to observe it: derived, never stored; the log holds only digests (DESIGN 5.6)."""

import hashlib
import hmac
from base64 import urlsafe_b64encode

from msgspec import UNSET, Struct
from msgspec.structs import asdict


def token(secret: bytes, session: str, attachment: int) -> str:
    """Return the resume token of one attachment: 43 URL-safe characters, 256 bit.

    The same arguments give the same token, so that an answer which got lost can be given again.
    """
    mac = hmac.digest(secret, f"{session}\0{attachment}".encode(), "sha256")
    return urlsafe_b64encode(mac).rstrip(b"=").decode()


def observer_token(secret: bytes, session: str, attachment: int) -> str:
    """Return what opens a session to observers: as its resume token is made, and not to be had from it."""
    mac = hmac.digest(secret, f"observe\0{session}\0{attachment}".encode(), "sha256")
    return urlsafe_b64encode(mac).rstrip(b"=").decode()


def digest(presented: str) -> str:
    """Return the hex SHA-256 of a token, which is all that commands and events carry."""
    return hashlib.sha256(presented.encode()).hexdigest()


_HIDDEN = frozenset({"token", "resume_token", "observer_token"})


class Veiled:
    """A record that holds a token and does not show it, whoever prints it (D21)."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Say everything but the token."""
        assert isinstance(self, Struct)
        shown = (f"{name}={_shown(name, value)}" for name, value in asdict(self).items())
        return f"{type(self).__name__}({', '.join(shown)})"


def _shown(name: str, value: object) -> str:
    hidden = name in _HIDDEN and value is not None and value is not UNSET
    return "'...'" if hidden else repr(value)
