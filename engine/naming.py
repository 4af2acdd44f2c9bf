"""Which session an opening means: the one that it has opened before, or the next that its control id stands for."""

from collections.abc import Mapping

from antiphon.events.commands import OpenSession
from antiphon.events.log import EventLog, LogError
from antiphon.sessions import core
from antiphon.sessions.plugins import SessionPlugin

from .errors import Refused
from .live import Live
from .opening import Opening, renamed, session_name
from .recovery import fold

ABANDONED = "open_abandoned"
"""Why a session is closed whose caller did not wait for its opening."""

KEPT = 1024


class Naming:
    """Finds what a control id has opened, in `live` and as long as the log has it (B19, DESIGN 5.2).

    The id of a session follows from the control id of its opening. One that was given up is none; the control id
    then stands for the next id.
    """

    def __init__(self, log: EventLog, plugin: SessionPlugin, secret: bytes, live: Mapping[str, Live]) -> None:
        self._log = log
        self._plugin = plugin
        self._secret = secret
        self._live = live
        self._given_up: dict[str, None] = {}

    def give_up(self, session: str) -> None:
        """A session's opening failed, or its caller went away. The log may not say so yet."""
        self._given_up[session] = None
        if len(self._given_up) > KEPT:
            del self._given_up[next(iter(self._given_up))]

    async def named(self, opening: Opening, command: OpenSession) -> tuple[OpenSession, bool]:
        """Return the command by the name of its session, and whether this opening was carried out before.

        Raises:
            Refused: `control_id_reused`; `storage_unavailable`; `session_closed`: what it opened has ended.
        """
        attempt = 0
        while True:
            name = session_name(opening, self._secret, attempt)
            attempt += 1
            if name in self._given_up:
                continue
            command = renamed(command, name, self._secret)
            session = await self._known(name)
            if session is None or session.phase == "new":
                return command, False
            if session.closing is None or session.closing.reason != ABANDONED:
                self._compare(session, command)
                return command, True

    async def _known(self, name: str) -> core.Session | None:
        """Return a session as it is, or as the log has it; None if there never was one."""
        live = self._live.get(name)
        if live is not None:
            return live.runner.session
        try:
            folded = await fold(self._log, name)
        except LogError as error:
            raise Refused("storage_unavailable", "The session's log cannot be read now.") from error
        return folded.session if folded is not None else None

    def _compare(self, session: core.Session, command: OpenSession) -> None:
        """Pass if the command opened this session, and that goes on."""
        try:
            core.decide(session, command, session.now, {self._plugin.name: self._plugin})
        except core.Refusal as refusal:
            raise Refused(refusal.code, refusal.message) from None
        if session.phase == "closed":
            raise Refused("session_closed", f"The session that this opened, {session.id}, has ended.")
