"""Client secrets: keys for one opening each, with the session that they open (WIRE 11.8); in memory only."""

import hashlib
import secrets
from collections import Counter

from msgspec import Struct

from antiphon.engine.clock import Clock

from .grant import Start

PREFIX = "ek_"
MOST = 4096
MOST_BYTES = 64 * 1024 * 1024
"""What the sessions of all live secrets may weigh, as they came."""


class Crowded(Exception):
    """There is no room for another live secret: its key has its share, or all are there that may be."""


class Secret(Struct, frozen=True, kw_only=True):
    """What a secret opens, and until when. `owner`: the public id of the key that it was asked for with."""

    owner: str
    start: Start
    until_us: int
    size: int


class Secrets:
    """The live secrets, by their digests: what was given out can be compared, and cannot be read again.

    No key holds more than what is left free: however many it draws, another one finds room.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._live: dict[bytes, Secret] = {}
        self._used: dict[bytes, str] = {}
        self._count: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._live)

    def draw(self, owner: str, start: Start, seconds: int, size: int) -> tuple[str, int]:
        """Return a new secret and when it ends, in seconds since 1970.

        Raises:
            Crowded: there are too many.
        """
        now = self._clock.monotonic_us()
        if not self._has_room(owner, size):
            for name in [name for name, secret in self._live.items() if secret.until_us <= now]:
                self._forget(name)
            if not self._has_room(owner, size):
                raise Crowded
        text = PREFIX + secrets.token_urlsafe(32)
        self._live[_digest(text)] = Secret(owner=owner, start=start, until_us=now + seconds * 1_000_000, size=size)
        self._count[owner] += 1
        self._bytes[owner] += size
        return text, self._clock.wall_us() // 1_000_000 + seconds

    def take(self, text: str) -> Secret | None:
        """Use a secret up; None: it was used, has ended, or never was."""
        name = _digest(text)
        secret = self._forget(name)
        if secret is None or secret.until_us <= self._clock.monotonic_us():
            return None
        self._used[name] = secret.owner
        if len(self._used) > MOST:
            ((most, _),) = Counter(self._used.values()).most_common(1)
            del self._used[next(used for used, owner in self._used.items() if owner == most)]
        return secret

    def used(self, text: str) -> str | None:
        """Return whose one of the last secrets was that were used up; None: it is none of them."""
        return self._used.get(_digest(text))

    def _has_room(self, owner: str, size: int) -> bool:
        """Whether a key may hold one more. Where no key is needed there is nobody to leave room for."""
        count, weight = self._count[owner] + 1, self._bytes[owner] + size
        free = MOST - self._count.total() - 1
        free_bytes = MOST_BYTES - self._bytes.total() - size
        if not owner:
            return free >= 0 and free_bytes >= 0
        return free >= count and free_bytes >= weight

    def _forget(self, name: bytes) -> Secret | None:
        secret = self._live.pop(name, None)
        if secret is not None:
            self._count[secret.owner] -= 1
            self._bytes[secret.owner] -= secret.size
            if not self._count[secret.owner]:
                del self._count[secret.owner], self._bytes[secret.owner]
        return secret


def _digest(text: str) -> bytes:
    """Return what a secret is looked up by. To be found it must be known whole: looking up takes no guess."""
    return hashlib.sha256(text.encode(errors="backslashreplace")).digest()
