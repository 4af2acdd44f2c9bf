"""The function channel of Nemotron VoiceChat: what stands between its markers is JSON that nobody hears (N48)."""

import msgspec
from msgspec import Raw, Struct

PARSE_ERROR = "nemotron_function_call_parse_error"
"""The code that a client is told of a call that cannot be read."""


class Unreadable(Exception):
    """What the model wrote between the markers is no function call."""


class Call(Struct, frozen=True):
    """A function that the model asks for; `arguments` is JSON text of an object."""

    name: str
    arguments: str


class _Written(Struct):
    name: str
    arguments: Raw = Raw(b"{}")


def calls(text: str) -> list[Call]:
    """Return the calls in the text between the markers: one object, or a list of them.

    `arguments` may be an object, or a string that encodes one.

    Raises:
        Unreadable: none of it is a call then, also not what could be read.
    """
    try:
        written = msgspec.json.decode(text.encode(), type=list[_Written] | _Written)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise Unreadable(f"not a function call: {error}") from error
    found = [_call(one) for one in (written if isinstance(written, list) else [written])]
    if not found:
        raise Unreadable("an empty list is no function call")
    return found


def _call(written: _Written) -> Call:
    if not written.name:
        raise Unreadable("a function call without a name")
    return Call(written.name, _arguments(written.arguments))


def _arguments(raw: Raw) -> str:
    """Return the text of an object, which may stand in a string."""
    text = bytes(raw)
    try:
        if text.startswith(b'"'):
            text = msgspec.json.decode(text, type=str).encode()
        msgspec.json.decode(text, type=dict[str, Raw])
    except msgspec.DecodeError as error:
        raise Unreadable(f"arguments that are no object: {error}") from error
    return text.decode()
