"""What is random or written down elsewhere, in a world: one seed decides it, and whoever watches is told."""

import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Protocol

import structlog

from antiphon.engine import direct
from antiphon.transport import handshake


class Watched(Protocol):
    """A world."""

    def token(self, size: int = 16) -> str:
        """Return what is random elsewhere."""
        ...

    def blame(self, error: BaseException) -> None:
        """End the run with this error."""
        ...


class _Errors:
    """Errors of ours that a boundary has caught: nobody may cause one (M10, D7)."""

    def __init__(self, world: Watched) -> None:
        self.world = world

    def __call__(
        self, _logger: object, name: str, event: MutableMapping[str, object]
    ) -> MutableMapping[str, object]:
        if event.get("exc_info"):
            self.world.blame(sys.exc_info()[1] or AssertionError(str(event)))
        raise structlog.DropEvent


@contextmanager
def seeded(world: Watched) -> Iterator[None]:
    """Let the world decide what is random elsewhere, and hear what is logged."""
    config, secrets, token_hex = structlog.get_config(), handshake.secrets, direct.token_hex
    structlog.configure(processors=[_Errors(world)], cache_logger_on_first_use=False)

    class Chance:
        token_hex = staticmethod(world.token)

    handshake.secrets, direct.token_hex = Chance, world.token  # type: ignore[assignment]
    try:
        yield
    finally:
        handshake.secrets, direct.token_hex = secrets, token_hex
        structlog.configure(**config)
