"""Openings that may be repeated: a caller that lost the answer asks again under the same control id (B19)."""

import anyio
from msgspec import Struct

from .errors import Refused
from .opening import Opening

KEPT = 1024


class Begun(Struct):
    """An opening and what became of it. `session` is known when `done` is set, unless it failed."""

    body: bytes
    done: anyio.Event
    session: str | None = None


class Openings:
    """The last 1,024 openings by control id."""

    def __init__(self) -> None:
        self._known: dict[str, Begun] = {}

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

    def begin(self, opening: Opening) -> Begun:
        """Note an opening that is in progress, until `end` is called with what this returns."""
        begun = self._known[opening.control_id] = Begun(opening.body, anyio.Event())
        if len(self._known) > KEPT:
            del self._known[next(iter(self._known))]
        return begun

    def end(self, control_id: str, begun: Begun, session: str | None) -> None:
        """Tell those who wait what became of it; without a session the control id is free again."""
        begun.session = session
        begun.done.set()
        if session is None and self._known.get(control_id) is begun:
            del self._known[control_id]
