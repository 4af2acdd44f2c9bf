"""The sound that the user sent recently, kept in memory as long as a stage may still want it."""

from antiphon.events.audio import SampleRef


class SoundWindow:
    """A piece of the `in` stream: the bytes from `start` to `end`. Older bytes lie in the sample store."""

    __slots__ = ("_bytes", "start")

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self._bytes = bytearray()

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

    def trim(self, keep_from: int) -> None:
        """Forget what lies before `keep_from`."""
        gone = min(keep_from - self.start, len(self._bytes))
        if gone > 0:
            del self._bytes[:gone]
            self.start += gone

    def get(self, ref: SampleRef) -> bytes | None:
        """Return the bytes of `ref`, None unless all of them are here."""
        if ref.stream != "in" or ref.start < self.start or ref.end > self.end:
            return None
        return bytes(self._bytes[ref.start - self.start : ref.end - self.start])
