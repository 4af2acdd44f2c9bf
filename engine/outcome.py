"""What became of a command that somebody waits for."""

from collections.abc import Callable

from msgspec import Struct

from antiphon.events.log import LogError

from .errors import Refused, Resync
from .published import Published


class Outcome(Struct, frozen=True, kw_only=True):
    """The answer to a command, given when everything decided before it is durable.

    `entry` is its durable transaction, None if it decided to nothing. `error` says why there is none: refused
    before it was decided, or never durable.
    """

    entry: Published | None = None
    error: Refused | Resync | LogError | None = None


Reply = Callable[[Outcome], None]
