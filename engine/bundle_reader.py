"""Reading a bundle, whoever wrote it: nothing in it is believed before it is compared with what is there.

Only the entries that a bundle has are looked at; the log is unpacked a line at a time, within bounds; samples are
read where they lie. So a bundle names no path that is ever written, and does not fill the memory or the disk with
much more than it is itself.
"""

import os
import struct
import zlib
from bisect import bisect_right
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from errno import EINVAL
from pathlib import Path
from typing import BinaryIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import msgspec
from anyio import to_thread
from msgspec import Struct

from antiphon.events.audio import SampleRef
from antiphon.events.log import SoundGone, Unavailable, UnknownSession

from .bundle import LAYOUT, LOG, MANIFEST, PIECE, SAMPLES, Manifest, Part, Span
from .sample_places import STREAMS

MAGIC = b"PK\x03\x04"
MOST_DIRECTORY = 1 << 16
"""Bytes of the list of entries: there are seven at most."""
MOST_MANIFEST = 16 << 20
MOST_LOG = 4 << 30
MOST_LINE = 64 << 20
"""Bytes of the manifest, of the log and of one of its lines, unpacked."""
MOST_RATIO = 250
"""How much longer than its packed form a log may be; that of a conversation is 10 to 30 times as long."""
MOST_SPANS = 1 << 20
FURTHEST = 1 << 42
"""Where a stream ends at the latest: years of sound."""

_DAMAGED = (BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError, KeyError)
"""What the library raises when a file is none of its own."""

_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_LOCAL = struct.Struct("<4s5H3L2H")


class BundleError(Exception):
    """The file is no bundle, or cannot be trusted. The message says why."""


class _Place(Struct, frozen=True):
    """Where the bytes of a stream lie in the file."""

    offset: int
    part: Part
    begins: list[int]
    """For each span, how many bytes of the stream's entry lie before it."""


def is_bundle(path: Path) -> bool:
    """Return whether a file begins as a bundle does; False if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == MAGIC
    except OSError:
        return False


class Bundle:
    """A bundle that can be read. It holds no open file, and `read` is that of `Samples` for the session in it."""

    def __init__(self, path: Path) -> None:
        """Look into the file.

        Raises:
            BundleError: it is no bundle, or of a later layout, or damaged.
            OSError: it cannot be read.
        """
        self.path = path
        self._places: dict[str, _Place] = {}
        self._good: set[str] = set()
        with open(path, "rb") as file, _told():
            size = os.fstat(file.fileno()).st_size
            _check_directory(file, size)
            with ZipFile(file) as archive:
                entries = _entries(archive)
                self.manifest = _manifest(archive, entries)
            for part in self.manifest.streams:
                self._places[part.stream] = _place(file, size, entries.get(SAMPLES + part.stream), part)

    @property
    def session(self) -> str:
        """The session's id."""
        return self.manifest.session

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the exported log.

        Raises:
            BundleError: they are not what the manifest says; what came before may not be trusted.
            OSError: the file cannot be read.
        """
        size = crc = 0
        with _told(), ZipFile(self.path) as archive, archive.open(LOG) as log:
            while line := log.readline(MOST_LINE):
                size += len(line)
                crc = zlib.crc32(line, crc)
                if size > self.manifest.log_bytes or not line.endswith(b"\n"):
                    raise BundleError("its log is not as long as it says")
                yield line
        if (size, crc) != (self.manifest.log_bytes, self.manifest.log_crc):
            raise BundleError("its log has been damaged: the checksum does not match")

    def check(self) -> None:
        """Compare all samples with their checksums.

        Raises:
            BundleError: they are damaged.
            OSError: the file cannot be read.
        """
        with open(self.path, "rb") as file:
            for place in self._places.values():
                self._check(file, place)

    def read_now(self, ref: SampleRef) -> bytes | None:
        """Return the bytes of `ref`, None if they are not in the bundle.

        Raises:
            BundleError: the stream is damaged.
            OSError: the file cannot be read.
        """
        place = self._places.get(ref.stream)
        at = _within(place, ref)
        if place is None or at is None:
            return None
        with open(self.path, "rb", buffering=0) as file:
            if ref.stream not in self._good:
                self._check(file, place)
            return os.pread(file.fileno(), ref.size, place.offset + at)

    async def read(self, session: str, ref: SampleRef) -> bytes:
        """Return the bytes of `ref`; raises as `Samples.read` says, also if the stream is damaged."""
        if session != self.session:
            raise UnknownSession(f"no samples of {session} in {self.path}")
        try:
            data = await to_thread.run_sync(self.read_now, ref)
        except (OSError, BundleError) as error:
            raise Unavailable(f"cannot read {ref} of {self.path}: {error}") from error
        if data is None:
            raise SoundGone(f"{ref} is not in {self.path}: it was not there any more when that was written")
        return data

    def _check(self, file: BinaryIO, place: _Place) -> None:
        """Compare a stream with its checksum, or raise `BundleError`."""
        crc, left, offset = 0, place.part.size, place.offset
        while left and (data := os.pread(file.fileno(), min(PIECE, left), offset)):
            crc = zlib.crc32(data, crc)
            left, offset = left - len(data), offset + len(data)
        if left or crc != place.part.crc:
            raise BundleError(f"its stream {place.part.stream!r} is damaged: the checksum does not match")
        self._good.add(place.part.stream)


@contextmanager
def _told() -> Generator[None, None, None]:
    """Turn what the library says of a damaged file into `BundleError`."""
    try:
        yield
    except OSError as error:
        if error.errno != EINVAL:  # it was asked to look before the beginning of the file
            raise
        raise BundleError("it is damaged: something lies outside of it") from error
    except _DAMAGED as error:
        raise BundleError(f"it is damaged: {error}") from error


def _check_directory(file: BinaryIO, size: int) -> None:
    """Look how long the list of entries is before anything reads it into memory."""
    if not _record(file, 0, _LOCAL, MAGIC):
        raise BundleError("it is no bundle: make one with `antiphon log export --with-samples`")
    end = _record(file, size - _END.size, _END, b"PK\x05\x06")
    if end is None:
        raise BundleError("it is cut off, or something was added to it")
    length = end[5]
    locator = size - _END.size - _LOCATOR.size
    if _record(file, locator, _LOCATOR, b"PK\x06\x07"):
        large = _record(file, locator - _END_64.size, _END_64, b"PK\x06\x06")
        length = MOST_DIRECTORY + 1 if large is None else large[8]
    if length > MOST_DIRECTORY:
        raise BundleError("it is no bundle: there is more in it than a session")


def _record(file: BinaryIO, at: int, layout: struct.Struct, mark: bytes) -> tuple[int, ...] | None:
    """Return a record of the file, or None if there is none at that place."""
    data = os.pread(file.fileno(), layout.size, at) if at >= 0 else b""
    if len(data) != layout.size or not data.startswith(mark):
        return None
    return layout.unpack(data)


def _entries(archive: ZipFile) -> dict[str, ZipInfo]:
    known = {LOG, MANIFEST, *(SAMPLES + stream for stream in STREAMS)}
    found: dict[str, ZipInfo] = {}
    for entry in archive.infolist():
        if entry.filename not in known or entry.filename in found:
            raise BundleError(f"it is no bundle: there is an entry {entry.filename!r} in it")
        if entry.flag_bits & 1:
            raise BundleError("it is encrypted; a bundle is not")
        found[entry.filename] = entry
    for name, most in ((MANIFEST, MOST_MANIFEST), (LOG, MOST_LOG)):
        if name not in found:
            raise BundleError(f"it is no bundle: there is no {name} in it")
        _check_size(found[name], most)
    return found


def _check_size(entry: ZipInfo, most: int) -> None:
    if entry.file_size > most or entry.compress_type not in (ZIP_DEFLATED, ZIP_STORED):
        raise BundleError(f"its {entry.filename} is too large or packed in another way")
    if entry.file_size > MOST_RATIO * (entry.compress_size + 1024):
        raise BundleError(f"its {entry.filename} unpacks to {entry.file_size:,} bytes, which no log does")


def _manifest(archive: ZipFile, entries: dict[str, ZipInfo]) -> Manifest:
    with archive.open(entries[MANIFEST]) as file:
        data = file.read(MOST_MANIFEST)
    try:
        layout = msgspec.json.decode(data, type=_Layout).antiphon_bundle
        if layout > LAYOUT:
            raise BundleError(f"it has layout {layout}, which a later version of antiphon wrote")
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise BundleError(f"its manifest cannot be read: {error}") from error
    if manifest.log_bytes != entries[LOG].file_size:
        raise BundleError("its log is not as long as it says")
    if len({part.stream for part in manifest.streams}) != len(manifest.streams):
        raise BundleError("it says twice what a stream is")
    return manifest


class _Layout(Struct, frozen=True):
    """The one field that all layouts have."""

    antiphon_bundle: int


def _place(file: BinaryIO, size: int, entry: ZipInfo | None, part: Part) -> _Place:
    """Return where a stream lies, after the file and its manifest were found to say the same."""
    if entry is None or entry.compress_type != ZIP_STORED or entry.file_size != part.size:
        raise BundleError(f"its stream {part.stream!r} is not what it says")
    local = _record(file, entry.header_offset, _LOCAL, MAGIC)
    if local is None:
        raise BundleError(f"its stream {part.stream!r} is not where it says")
    offset = entry.header_offset + _LOCAL.size + local[9] + local[10]
    if offset + entry.file_size > size or len(part.spans) > MOST_SPANS:
        raise BundleError(f"its stream {part.stream!r} does not fit into it")
    begins: list[int] = []
    filled = end = 0
    for span in part.spans:
        if span.start < end or span.size < 1 or span.end > FURTHEST:
            raise BundleError(f"its stream {part.stream!r} has no order")
        begins.append(filled)
        filled, end = filled + span.size, span.end
    return _Place(offset, part, begins)


def _within(place: _Place | None, ref: SampleRef) -> int | None:
    """Return where a span begins in the entry of its stream; None if it is not all there."""
    if place is None or ref.size < 1:
        return None
    found = bisect_right(place.part.spans, ref.start, key=_start) - 1
    if found < 0 or ref.end > place.part.spans[found].end:
        return None
    return place.begins[found] + ref.start - place.part.spans[found].start


def _start(span: Span) -> int:
    return span.start
