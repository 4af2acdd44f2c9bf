"""Refusals of the wire: what is wrong with a frame, by the contract's code, and where in it."""

import re

from antiphon.events.errors import Detail

from .wire_hints import Shape, allowed

QUOTED = 64
"""At most so many characters of a client's text are quoted in a message (WIRE 9.1)."""

LONGEST_PARAM, LONGEST_MESSAGE = 128, 256
"""At most so many characters of a path that a client wrote are told back, and of the sentence around it."""

_AT = re.compile(r" - at (?:`(?:key|\.\.\.)` in )?`\$\.?([^`]*)`$")
_MISSING = re.compile(r"^Object missing required field `([^`]*)`")
_WRONG_TYPE = re.compile(r"^Expected `[^`]*`, got ")


class WireError(Exception):
    """A frame or field that is refused.

    `code` is the duplex dialect's; `param` the path of the field as the client wrote it; `detail` tells the
    four kinds of `bad_event` apart. `event_id`, `event_type` and `client_seq` are the client's, once known.
    `numbered` False: the frame never became a command, so its error carries no number (WIRE 3.1).
    """

    def __init__(
        self,
        code: str,
        message: str,
        param: str | None = None,
        detail: Detail | None = None,
        *,
        event_id: str | None = None,
        numbered: bool = True,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message[:LONGEST_MESSAGE]
        self.param = param[:LONGEST_PARAM] if param is not None else None
        self.detail: Detail | None = detail
        self.event_id = event_id
        self.event_type: str | None = None
        self.client_seq: int | None = None
        self.numbered = numbered

    def about(self, event_id: str | None, event_type: str, client_seq: int | None) -> None:
        """Note which event is refused."""
        self.event_id = event_id
        self.event_type = event_type
        self.client_seq = client_seq


def quoted(text: str) -> str:
    """Return the beginning of a client's text, fit to stand in a message."""
    return repr(text[:QUOTED] + ("…" if len(text) > QUOTED else ""))


def bad_value(message: str, param: str) -> WireError:
    """Return the refusal of a value that is out of range or none of the allowed words."""
    return WireError("bad_event", message, param, "value")


def wrong_type(message: str, param: str) -> WireError:
    """Return the refusal of a value of the wrong JSON type."""
    return WireError("bad_event", message, param, "wrong_type")


def missing(param: str) -> WireError:
    """Return the refusal of an event that lacks a required field."""
    return WireError("bad_event", f"Missing required parameter: '{param}'.", param, "missing")


def translate(error: Exception, shape: Shape, prefix: str = "") -> WireError:
    """Return the refusal that a msgspec error about an object of a shape stands for: where, and what is right.

    `prefix` is the path of the object that was decoded, with a dot at its end if it is not empty.
    """
    text = str(error)
    at = _AT.search(text)
    inner = at.group(1) if at else ""
    path = (prefix.removesuffix(".") + inner if inner.startswith("[") else prefix + inner).replace("[...]", "")
    absent = _MISSING.match(text)
    if absent:
        path = f"{path.rstrip('.')}.{absent.group(1)}" if path else absent.group(1)
        return missing(path)
    path = path.rstrip(".")
    words = allowed(shape, inner)
    where = (f" for '{path}'" if path else "") + (f": expected {words}." if words else ".")
    if _WRONG_TYPE.match(text):
        return wrong_type("Invalid type" + where, path)
    return bad_value("Invalid value" + where, path)
