"""The body of an HTTP request, which is JSON: read as far and as long as may be."""

import anyio
from starlette.requests import ClientDisconnect, Request

from .codes import MAX_EVENT
from .http_errors import Failed

BODY_S = 30.0
"""How long a request may take to be read."""

PATIENCE = 4
"""How many times the largest body is read to its end, before the connection is closed."""


async def read_body(request: Request) -> bytes:
    """Read the body.

    Raises:
        Failed: it is too large, too slow, no UTF-8, or not all of it comes.
    """
    read = bytearray()
    size = 0
    too_large = Failed(413, f"A request has at most {MAX_EVENT} bytes.")
    with anyio.move_on_after(BODY_S):
        try:
            async for piece in request.stream():
                size += len(piece)
                if size <= MAX_EVENT:
                    read += piece
                elif size > PATIENCE * MAX_EVENT:
                    raise too_large
        except ClientDisconnect:
            raise Failed(400, "The request broke off.") from None
        if size > MAX_EVENT:
            raise too_large  # behind the end: who still sends does not read an answer
        return _text(bytes(read))
    raise Failed(408, f"The request was not there within {BODY_S:.0f} s.")


def _text(body: bytes) -> bytes:
    """Hold a body to be text: a decoder that leaves parts of it for later does not look at them."""
    try:
        body.decode()
    except UnicodeDecodeError:
        raise Failed(400, "The body is not UTF-8.") from None
    return body
