"""Openings that may be repeated: a caller that lost the answer asks again under the same control id (B19)."""

import anyio
from msgspec import Struct

from .errors import Refused
from .opening import Opening

KEPT = 1024


class _Known(Struct):
    """An opening and what became of it. `session` is known when `done` is set, unless it failed."""

    body: bytes
    done: anyio.Event
    session: str | None = None


class Openings:
    """The last 1,024 openings by control id."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    async def repeated(self, opening: Opening) -> str | None:
        """Return the session that this opening has opened before, None if it is new; waits for one in progress.

        Raises:
            Refused: `control_id_reused`: the id stands for another request; `unknown_session`: it failed just now.
        """
        known = self._known.get(opening.control_id)
        if known is None:
            return None
        if known.body != opening.body:
            raise Refused("control_id_reused", "This control id was used for another request.")
        await known.done.wait()
        if known.session is None:
            raise Refused("unknown_session", "The opening that this repeats has failed.")
        return known.session

    def begin(self, opening: Opening) -> None:
        """Note an opening that is in progress."""
        self._known[opening.control_id] = _Known(opening.body, anyio.Event())

    def end(self, control_id: str, session: str | None) -> None:
        """Note what became of it; without a session the control id is free again."""
        known = self._known.get(control_id)
        if known is None:
            return
        known.session = session
        known.done.set()
        if session is None:
            del self._known[control_id]
        while len(self._known) > KEPT:
            del self._known[next(iter(self._known))]

    def forget(self, control_id: str) -> None:
        """Free a control id: its session was given up."""
        self._known.pop(control_id, None)
