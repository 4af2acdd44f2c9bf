"""Audio formats: what the bytes of a chunk mean, and how long they last."""

from typing import Literal

from msgspec import Struct

Encoding = Literal["pcm16", "pcm_f32le", "g711_ulaw", "g711_alaw", "wav"]

MIN_RATE = 8_000
MAX_RATE = 192_000
G711_RATE = 8_000

_WIDTH: dict[str, int] = {"pcm16": 2, "pcm_f32le": 4, "g711_ulaw": 1, "g711_alaw": 1, "wav": 2}


class AudioFormat(Struct, frozen=True, gc=False):
    """Mono audio: an encoding and a rate in Hz (8,000 to 192,000; G.711 is always 8,000)."""

    encoding: Encoding
    rate: int

    @property
    def width(self) -> int:
        """Bytes of one sample."""
        return _WIDTH[self.encoding]

    def samples(self, size: int) -> int:
        """Return the samples in `size` bytes (whole ones)."""
        return size // self.width

    def ms(self, size: int) -> int:
        """Return the milliseconds that `size` bytes last, rounded down."""
        return size * 1000 // (self.width * self.rate)

    def bytes_for(self, ms: int) -> int:
        """Return the bytes of `ms` milliseconds: a whole number of samples, rounded down."""
        return ms * self.rate // 1000 * self.width


class SampleRef(Struct, frozen=True, gc=False):
    """A span of a session's sample stream; `start` and `size` count bytes.

    The streams are the sound that came `in` and went `out`, pictures of the camera, `img`, reference audio, `ref`,
    and what came as parts of items, `item`: sound and pictures. The position is decided by the core from its own
    counter; the bytes lie beside the log.
    """

    stream: Literal["in", "out", "img", "ref", "item"]
    start: int
    size: int

    @property
    def end(self) -> int:
        """The first byte behind the span."""
        return self.start + self.size


RECORDING = AudioFormat("pcm16", 16_000)
"""What reference audio is kept as."""


class Recording(Struct, frozen=True, gc=False):
    """Reference audio, whose voice a model shall have: where its samples lie, and their crc32.

    The same recording sent again has the same size and crc32, and is no change.
    """

    ref: SampleRef
    crc: int

    def same(self, other: "Recording | None") -> bool:
        """Return whether the sound is the same, wherever it lies."""
        return other is not None and (self.ref.size, self.crc) == (other.ref.size, other.crc)


class TextMark(Struct, frozen=True, gc=False):
    """Alignment of text and sound: `chars` characters have been spoken after `ms` milliseconds of the response."""

    chars: int
    ms: int
