"""What a connection may do, and how its session starts: decided when its request is looked at."""

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from antiphon.events.config import ConfigPatch

from .limits import Budget


class Start(Struct, frozen=True, kw_only=True):
    """How a session begins that was prepared before: its configuration, and the sound of the reference in it.

    `control_id` names the opening, so that the session has the name that was shown; empty: nothing was prepared.
    """

    patch: ConfigPatch = ConfigPatch()
    recording: bytes = b""
    control_id: str = ""


class Grant(Struct, frozen=True, kw_only=True):
    """What a connection may do. `owner` is the public id of the key that opened it, empty where none is needed.

    `sessions` bounds the open sessions of the owner, `budget` what it may send; None: no bound. `comes_back`: it
    may take up a session that there is, and open none.
    """

    owner: str = ""
    sessions: int | None = None
    budget: Budget | None = None
    start: Start = Start()
    comes_back: bool = False


ANYBODY = Grant()


def over(start: ConfigPatch, patch: ConfigPatch) -> ConfigPatch:
    """Return one patch that does what these two do, one behind the other."""
    changes = {name: value for name, value in asdict(patch).items() if value is not UNSET}
    return replace(
        start,
        **changes
        | {
            "echo": _both(start.echo, patch.echo),
            "unknown": _both(start.unknown, patch.unknown),
            "extras": _both(start.extras, patch.extras),
        },
    )


def _both(first: dict[str, str] | UnsetType, second: dict[str, str] | UnsetType) -> dict[str, str] | UnsetType:
    if first is UNSET or second is UNSET:
        return first if second is UNSET else second
    return {**first, **second}
