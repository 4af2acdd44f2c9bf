"""What the user sent recently, kept in memory as long as a stage may still want it."""

from collections import deque

from antiphon.events.audio import SampleRef

KEPT_PIECES = 16 * 1024 * 1024
"""Bytes of pieces that are kept. Older ones lie in the sample store: they were durable long ago."""


class SoundWindow:
    """A stretch of the `in` stream, the bytes from `start` to `end`, and the latest pieces of the other streams.

    Everything older lies in the sample store. A piece is a picture, the sound of an item
    or a recording: it came as a whole.
    """

    __slots__ = ("_bytes", "_kept", "_order", "_pieces", "held", "start")

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self._bytes = bytearray()
        self._pieces: dict[SampleRef, bytes] = {}
        self._order: deque[SampleRef] = deque()
        self._kept = 0
        self.held: dict[SampleRef, bytes] = {}
        """Sound of an answer that waits to be shown (DESIGN 5.13); how much that may be, the session decides."""

    @property
    def end(self) -> int:
        """The position behind the last byte."""
        return self.start + len(self._bytes)

    def append(self, ref: SampleRef, data: bytes) -> None:
        """Add the bytes of `ref`, which follow the last ones; a gap (never written here) begins anew."""
        if ref.start != self.end:
            self.start = ref.start
            self._bytes.clear()
        self._bytes += data

    def keep(self, ref: SampleRef, data: bytes) -> None:
        """Keep a piece; the oldest ones make room, but not for one that is larger than all of it."""
        if ref in self._pieces:
            return
        self._pieces[ref] = data
        self._order.append(ref)
        self._kept += len(data)
        while self._kept > KEPT_PIECES and len(self._order) > 1:
            self._kept -= len(self._pieces.pop(self._order.popleft()))

    def trim(self, keep_from: int) -> None:
        """Forget what lies before `keep_from`."""
        gone = min(keep_from - self.start, len(self._bytes))
        if gone > 0:
            del self._bytes[:gone]
            self.start += gone

    def get(self, ref: SampleRef) -> bytes | None:
        """Return the bytes of `ref`, None unless all of them are here."""
        if ref.stream != "in":
            return self._pieces.get(ref)
        if ref.start < self.start or ref.end > self.end:
            return None
        return bytes(self._bytes[ref.start - self.start : ref.end - self.start])
