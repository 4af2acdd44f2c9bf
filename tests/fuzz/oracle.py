"""What RFC 6455 says of a client's bytes: a second reader of frames, which shares no code with the server's."""

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct, field

from antiphon.transport.codes import INVALID_DATA, MAX_FRAME, PROTOCOL, TOO_BIG

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
FORBIDDEN = frozenset({1004, 1005, 1006, 1015})


class Fate(Struct):
    """How the connection stands behind the bytes.

    `open`: between two frames, or two fragments (`fragments`); `within`: in the middle of a frame; `failed`: the
    server must close; `closed`: the client has closed. `codes` are those that the server may close with then: what
    comes behind the first fault may be seen before it, where both arrive at once.
    """

    state: Literal["open", "within", "failed", "closed"] = "open"
    codes: set[int | None] = field(default_factory=set[int | None])
    fragments: bool = False
    texts: list[bytes] = field(default_factory=list[bytes])
    pings: list[bytes] = field(default_factory=list[bytes])


class _Failed(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _Frame(Struct):
    head: int
    payload: bytes


def read(data: bytes) -> Fate:
    """Return what becomes of a connection on which a client has sent these bytes."""
    fate = Fate()
    parts: list[bytes] = []
    opcode = CONT
    try:
        for frame in _frames(data, parts):
            if frame is None:
                fate.state = fate.state if fate.codes else "within"
                break
            kind = frame.head & 15
            if kind == PING:
                fate.pings.append(frame.payload)
            elif kind == CLOSE:
                _close(fate, frame.payload, in_fragments=bool(parts))
                break
            elif kind != PONG:
                if (kind == CONT) != bool(parts):
                    raise _Failed(PROTOCOL)
                opcode = kind or opcode
                parts.append(frame.payload)
                if frame.head & 0x80:
                    whole = b"".join(parts)
                    parts.clear()
                    _take(fate, opcode, whole)
    except _Failed as failed:
        fate.state = "failed"
        fate.codes.add(failed.code)
    fate.fragments = bool(parts)
    return fate


def _close(fate: Fate, payload: bytes, *, in_fragments: bool) -> None:
    code = _closing(payload)
    if not fate.codes:
        fate.state = "closed"
    fate.codes.add(code)
    if in_fragments:
        fate.codes.add(PROTOCOL)  # RFC 6455 allows it, and no client does it


def _take(fate: Fate, opcode: int, whole: bytes) -> None:
    if opcode == TEXT:
        if _is_text(whole):
            fate.texts.append(whole)
        else:
            fate.state = "failed"
            fate.codes.add(INVALID_DATA)


def _frames(data: bytes, parts: list[bytes]) -> Iterator[_Frame | None]:
    """Yield the frames; None: the last one is not complete. `parts` are the fragments before a frame."""
    at = 0
    while at < len(data):
        if at + 2 > len(data):
            yield None
            return
        head, size = data[at], data[at + 1] & 127
        if head & 15 not in (CONT, TEXT, BINARY, CLOSE, PING, PONG) or not data[at + 1] & 128:
            raise _Failed(PROTOCOL)
        wide = {126: 2, 127: 8}.get(size, 0)
        if at + 2 + wide > len(data):
            yield None
            return
        if wide:
            size = int.from_bytes(data[at + 2 : at + 2 + wide], "big")
        if size + sum(map(len, parts)) > MAX_FRAME:
            raise _Failed(TOO_BIG)
        begin = at + 2 + wide + 4
        if begin + size > len(data):
            yield None
            return
        if head & 0x70 or (head & 8 and (size > 125 or not head & 0x80)):
            raise _Failed(PROTOCOL)
        mask = data[begin - 4 : begin]
        yield _Frame(head, bytes(byte ^ mask[n & 3] for n, byte in enumerate(data[begin : begin + size])))
        at = begin + size


def _closing(payload: bytes) -> int | None:
    if not payload:
        return None
    code = int.from_bytes(payload[:2], "big")
    if len(payload) == 1:
        raise _Failed(PROTOCOL)
    if not _is_text(payload[2:]):
        raise _Failed(INVALID_DATA)
    if not (1000 <= code <= 1014 or 3000 <= code < 5000) or code in FORBIDDEN:
        raise _Failed(PROTOCOL)
    return code


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
