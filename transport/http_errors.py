"""How the HTTP endpoints say no: one body for all of them (WIRE 11)."""

import msgspec
from msgspec import Struct
from starlette.responses import Response


class Failure(Struct, frozen=True, kw_only=True):
    """What went wrong; `code` is the HTTP status."""

    message: str
    type: str
    param: str | None = None
    code: int


class FailureBody(Struct, frozen=True):
    """The body of an error of a JSON endpoint."""

    error: Failure


class Failed(Exception):
    """A request cannot be answered; what its sender is told."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param

    @property
    def body(self) -> FailureBody:
        """The body of the answer, which is also what a stream that has begun ends with."""
        return FailureBody(
            Failure(message=self.message, type=_kind(self.status), param=self.param, code=self.status)
        )

    def response(self) -> Response:
        """Return the answer."""
        return json_response(self.body, self.status)


_KINDS = {
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    426: "UpgradeRequired",
    429: "RateLimitError",
    503: "ServiceUnavailableError",
    504: "TimeoutError",
}


def _kind(status: int) -> str:
    return _KINDS.get(status, "BadRequestError" if status < 500 else "InternalServerError")


def json_response(body: Struct, status: int = 200) -> Response:
    """Return a body as JSON."""
    return Response(msgspec.json.encode(body), status, media_type="application/json")
