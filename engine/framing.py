"""Frames between the engine and a stage process: lengths, a msgpack head, and raw bytes behind it."""

import struct

import msgspec
from msgspec import Struct

from antiphon.stages.base import AnyMessage, AnyReport

_LENGTHS = struct.Struct("<II")
MAX_FRAME = 256 * 1024 * 1024


class HostReady(Struct, frozen=True, tag=True):
    """The stage is loaded."""


class HostUnavailable(Struct, frozen=True, tag=True):
    """The stage cannot be loaded; the process ends."""

    reason: str


AnySaid = AnyReport | HostReady | HostUnavailable

_encoder = msgspec.msgpack.Encoder()
_said = msgspec.msgpack.Decoder[AnySaid](AnySaid)
_message = msgspec.msgpack.Decoder[AnyMessage](AnyMessage)


class BrokenFrame(Exception):
    """The other side sent something that is not a frame."""


def encode(head: AnyMessage | AnySaid, body: bytes = b"") -> bytes:
    """Return one frame."""
    data = _encoder.encode(head)
    return b"".join((_LENGTHS.pack(len(data), len(body)), data, body))


def decode_said(head: bytes) -> AnySaid:
    """Decode what a stage process says.

    Raises:
        msgspec.DecodeError: it is something else.
    """
    return _said.decode(head)


def decode_message(head: bytes) -> AnyMessage:
    """Decode what the engine asks of a stage process; raises as `decode_said` does."""
    return _message.decode(head)


class Splitter:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Take bytes as they come; return the frames (head, body) that are complete now.

        Raises:
            BrokenFrame: a frame claims to be larger than `MAX_FRAME`.
        """
        self._buffer += data
        frames: list[tuple[bytes, bytes]] = []
        at = 0
        while len(self._buffer) - at >= _LENGTHS.size:
            head, body = _LENGTHS.unpack_from(self._buffer, at)
            if head + body > MAX_FRAME:
                raise BrokenFrame(f"a frame of {head + body} bytes")
            start = at + _LENGTHS.size
            if len(self._buffer) < start + head + body:
                break
            middle, at = start + head, start + head + body
            frames.append((bytes(self._buffer[start:middle]), bytes(self._buffer[middle:at])))
        del self._buffer[:at]
        return frames
