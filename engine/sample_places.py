"""What a record says of the bytes that were written with it: where they lie, and their crc32."""

import struct
import zlib
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from antiphon.events.audio import SampleRef
from antiphon.events.log import SampleWrite

Stream = Literal["in", "out", "img", "ref", "item"]
STREAMS: tuple[Stream, ...] = ("in", "out", "img", "ref", "item")
"""In the order in which records number them: it never changes."""

_NUMBERS = {stream: number for number, stream in enumerate(STREAMS)}
_PLACE = struct.Struct("<BQII")


class Place(Struct, frozen=True):
    """A span of a stream, and the crc32 of its bytes."""

    ref: SampleRef
    crc: int | None
    """None: nobody knows; a record of an older layout says only in its events where its sound lies."""


def pack(writes: Sequence[SampleWrite]) -> bytes | None:
    """Return what the record says of its bytes; None if it has none."""
    if not writes:
        return None
    return b"".join(
        [
            _PLACE.pack(_NUMBERS[write.ref.stream], write.ref.start, write.ref.size, zlib.crc32(write.data))
            for write in writes
        ]
    )


def unpack(sound: bytes | None) -> list[Place]:
    """Return what `pack` was given.

    Raises:
        ValueError: it is none of ours.
    """
    places: list[Place] = []
    number: int
    start: int
    size: int
    crc: int
    try:
        for number, start, size, crc in _PLACE.iter_unpack(sound or b""):
            places.append(Place(SampleRef(STREAMS[number], start, size), crc))
    except (struct.error, IndexError) as error:
        raise ValueError(str(error)) from error
    return places
