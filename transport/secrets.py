"""Client secrets: keys for one opening each, with the session that they open (WIRE 11.8); in memory only."""

import hashlib
import secrets

from msgspec import Struct

from antiphon.engine.clock import Clock

from .grant import Start

PREFIX = "ek_"
MOST = 4096
MOST_BYTES = 64 * 1024 * 1024
"""What the sessions of all live secrets may weigh, as they came."""


class Crowded(Exception):
    """There are as many live secrets as there may be."""


class Secret(Struct, frozen=True, kw_only=True):
    """What a secret opens, and until when. `owner`: the public id of the key that it was asked for with."""

    owner: str
    start: Start
    until_us: int
    size: int


class Secrets:
    """The live secrets, by their digests: what was given out can be compared, and cannot be read again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._live: dict[bytes, Secret] = {}
        self._used: dict[bytes, str] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._live)

    def draw(self, owner: str, start: Start, seconds: int, size: int) -> tuple[str, int]:
        """Return a new secret and when it ends, in seconds since 1970.

        Raises:
            Crowded: there are too many.
        """
        now = self._clock.monotonic_us()
        if len(self._live) >= MOST or self._bytes + size > MOST_BYTES:
            for name in [name for name, secret in self._live.items() if secret.until_us <= now]:
                self._forget(name)
        if len(self._live) >= MOST or self._bytes + size > MOST_BYTES:
            raise Crowded
        text = PREFIX + secrets.token_urlsafe(32)
        self._live[_digest(text)] = Secret(owner=owner, start=start, until_us=now + seconds * 1_000_000, size=size)
        self._bytes += size
        return text, self._clock.wall_us() // 1_000_000 + seconds

    def take(self, text: str) -> Secret | None:
        """Use a secret up; None: it was used, has ended, or never was."""
        name = _digest(text)
        secret = self._forget(name)
        if secret is None or secret.until_us <= self._clock.monotonic_us():
            return None
        self._used[name] = secret.owner
        if len(self._used) > MOST:
            del self._used[next(iter(self._used))]
        return secret

    def used(self, text: str) -> str | None:
        """Return whose one of the last secrets was that were used up; None: it is none of them."""
        return self._used.get(_digest(text))

    def _forget(self, name: bytes) -> Secret | None:
        secret = self._live.pop(name, None)
        self._bytes -= secret.size if secret is not None else 0
        return secret


def _digest(text: str) -> bytes:
    """Return what a secret is looked up by. To be found it must be known whole: looking up takes no guess."""
    return hashlib.sha256(text.encode(errors="backslashreplace")).digest()
