"""Refusals: a command that is not carried out, by the contract's code."""

from typing import NoReturn

from antiphon.events.errors import Detail
from antiphon.events.events import ErrorReported


class Refusal(Exception):
    """A command that is not carried out, by the contract's code. Raised before the first event is drafted."""

    def __init__(self, code: str, message: str, *, param: str | None = None, detail: Detail | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.detail: Detail | None = detail

    def event(self, number: int, event_id: str | None) -> ErrorReported:
        """Return the error that the client is told."""
        return ErrorReported(
            number=number,
            count=1,
            code=self.code,
            message=self.message,
            param=self.param,
            event_id=event_id,
            detail=self.detail,
        )


def refuse(code: str, message: str, param: str | None = None, detail: Detail | None = None) -> NoReturn:
    """Refuse the command.

    Raises:
        Refusal: always.
    """
    raise Refusal(code, message, param=param, detail=detail)
