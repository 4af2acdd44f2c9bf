"""The bytes of a fork: those of its origin, wherever they lie there, and what live stages have said."""

from bisect import bisect_right
from collections.abc import Awaitable, Callable

from antiphon.events.audio import SampleRef
from antiphon.events.log import Samples, Unavailable

from .fork_same import Piece, Sounds

Read = Callable[[SampleRef], Awaitable[bytes]]


class ForkSamples(Samples):
    """Reads any span of a fork's streams. `origin` reads the origin's, and raises as `Samples.read` does."""

    def __init__(self, sounds: Sounds, origin: Read) -> None:
        self._sounds = sounds
        self._origin = origin
        self._said: dict[str, list[tuple[int, bytes]]] = {}

    def say(self, ref: SampleRef, data: bytes) -> None:
        """Take what a live stage has said, at its place in the fork."""
        self._said.setdefault(ref.stream, []).append((ref.start, data))

    async def read(self, session: str, ref: SampleRef) -> bytes:
        """Return the bytes of a place in the fork; raises as the contract says."""
        return b"".join([await self._piece(piece) for piece in self._sounds.pieces(ref)])

    async def _piece(self, piece: Piece) -> bytes:
        if piece.origin is not None:
            return await self._origin(piece.origin)
        found = self._live(piece.ref)
        if len(found) != piece.ref.size:
            raise Unavailable("The sound of what was edited is not known.")
        return found

    def _live(self, ref: SampleRef) -> bytes:
        """Return as much of a place as a live stage has said, from its beginning on."""
        said = self._said.get(ref.stream, [])
        index = max(bisect_right(said, ref.start, key=lambda known: known[0]) - 1, 0)
        found = b""
        for start, data in said[index:]:
            at = ref.start + len(found)
            if len(found) >= ref.size or not start <= at < start + len(data):
                break
            found += data[at - start : ref.end - start]
        return found
