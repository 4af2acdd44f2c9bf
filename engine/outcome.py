"""What became of a command that somebody waits for."""

from collections.abc import Callable

from msgspec import Struct

from antiphon.events.log import LogError

from .errors import Refused
from .published import Published


class Outcome(Struct, frozen=True, kw_only=True):
    """The answer to a command, given when everything decided before it is durable.

    `entry` is its durable transaction, None if it decided to nothing. `error` says why there is none: refused
    before it was decided, or never durable.
    """

    entry: Published | None = None
    error: Refused | LogError | None = None


Reply = Callable[[Outcome], None]


def decided(outcome: Outcome) -> None:
    """Let an outcome pass that is durable, or changed nothing.

    Raises:
        Refused: it was refused, or is not durable.
    """
    if isinstance(outcome.error, LogError):
        raise Refused("storage_unavailable", "The session cannot be recorded now.") from outcome.error
    if outcome.error is not None:
        raise outcome.error


def durable(outcome: Outcome) -> Published:
    """Return the durable transaction of an outcome.

    Raises:
        Refused: what stands in its place.
    """
    decided(outcome)
    if outcome.entry is None:
        raise Refused("internal_error", "The request decided to nothing.")
    return outcome.entry
