"""Frames that hold a whole text of less than 64 KiB: nearly all that crosses a socket, read and written in one go.

Everything else is left to `websockets`, whose parser takes a frame apart in a dozen steps of a generator. What is
read here, it reads in the same way; a test holds both against each other.
"""

try:
    from websockets.speedups import apply_mask
except ImportError:  # there is no compiled half on this platform
    from websockets.utils import apply_mask

TEXT = 0x81
"""The first byte of a final frame of text."""

MASKED = 0x80
SHORT, LONG = 126, 127
"""Lengths that stand for one of two bytes, and of eight."""

_SMALL = tuple(bytes((TEXT, size)) for size in range(SHORT))


def read_text(data: bytes, at: int) -> tuple[bytes, int] | None:
    """Return the text of the frame that begins at `at`, and where the next one does.

    None: it is another kind of frame, or not all of it is here.
    """
    size = len(data)
    if size < at + 6 or data[at] != TEXT:
        return None
    length = data[at + 1] - MASKED
    begin = at + 6
    if not 0 <= length < LONG:
        return None
    if length == SHORT:
        length = data[at + 2] << 8 | data[at + 3]
        begin += 2
    end = begin + length
    if end > size:
        return None
    return apply_mask(data[begin:end], data[begin - 4 : begin]), end


def begins_text(data: bytes, at: int) -> bool:
    """Return whether what is here from `at` on may be the beginning of such a frame."""
    if data[at] != TEXT:
        return False
    return len(data) < at + 2 or MASKED <= data[at + 1] < MASKED + LONG


def extent(data: bytes, at: int) -> int:
    """Return how many bytes the frame of any kind has that begins at `at`; 0: its head is not all here."""
    if len(data) < at + 2:
        return 0
    length, head = data[at + 1] & ~MASKED, 6 if data[at + 1] & MASKED else 2
    wide = 2 if length == SHORT else 8 if length == LONG else 0
    if len(data) < at + 2 + wide:
        return 0
    if wide:
        length = int.from_bytes(data[at + 2 : at + 2 + wide], "big")
    return head + wide + length


def head(size: int) -> bytes:
    """Return what stands before a text of `size` bytes that the server sends."""
    if size < SHORT:
        return _SMALL[size]
    if size < 65_536:
        return b"\x81\x7e" + size.to_bytes(2, "big")
    return b"\x81\x7f" + size.to_bytes(8, "big")
