"""What the engine says no with: refusals that a client is told, by the contract's codes."""

from typing import Literal

from antiphon.events.errors import retryable


class Refused(Exception):
    """A request was refused; nothing changed.

    `code` is one of the wire contract's, `param` names the field at fault, `retryable` says whether the same
    request may succeed later (by default what the code says).
    """

    def __init__(self, code: str, message: str, *, param: str | None = None, retry: bool | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.param = param
        self.retryable = retryable(code) if retry is None else retry


class Resync(Exception):
    """A resume asked for events that are gone: the client must forget its token, begin anew (WIRE 8.3.5)."""

    def __init__(self, session: str, reason: Literal["journal_gap", "journal_overflow"]) -> None:
        super().__init__(f"{session}: {reason}")
        self.session = session
        self.reason = reason


class UnknownPlugin(Exception):
    """A log was written by a plugin, or a version of one, that is not registered here."""

    def __init__(self, name: str, version: str) -> None:
        super().__init__(f"the log needs plugin {name!r} version {version!r}, which is not registered")
        self.name = name
        self.version = version
