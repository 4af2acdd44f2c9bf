"""The bytes of sound and images beside the log: in memory, and in append-only files."""

import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit
from typing import NamedTuple
from urllib.parse import quote, unquote

from anyio import to_thread

from antiphon.events.audio import SampleRef
from antiphon.events.log import LogError, PastRetention, SampleWrite, SoundGone, Unavailable, UnknownSession

from .sample_places import STREAMS, Place

SEGMENT = 4 * 1024 * 1024
"""Bytes of one file: 87 s of sound at 24 kHz."""

PROBE = ".probe"
PROBE_BYTES = 64 * 1024
"""What is written to see whether the disk takes anything: more than one piece of sound."""


def check_sizes(writes: Sequence[SampleWrite]) -> None:
    """Raise ValueError if bytes do not fit the place that was decided for them: a fault of the caller."""
    for write in writes:
        if len(write.data) != write.ref.size:
            raise ValueError(f"{len(write.data)} bytes for {write.ref}")


class MemorySamples:
    """Samples that die with the process."""

    def __init__(self) -> None:
        """Start empty."""
        self._streams: dict[str, dict[str, bytearray]] = {}

    def write(self, session: str, writes: Sequence[SampleWrite]) -> None:
        """Put the bytes in their places; what lay there is overwritten."""
        streams = self._streams.setdefault(session, {})
        for write in writes:
            stream = streams.setdefault(write.ref.stream, bytearray())
            if len(stream) < write.ref.start:
                stream.extend(bytes(write.ref.start - len(stream)))
            stream[write.ref.start : write.ref.end] = write.data

    def forget(self, session: str) -> None:
        """Drop all samples of a session."""
        self._streams.pop(session, None)

    async def read(self, session: str, ref: SampleRef) -> bytes:
        """Return the bytes of `ref`; raises as `Samples.read` says."""
        streams = self._streams.get(session)
        if streams is None:
            raise UnknownSession(f"no samples of {session}")
        stream = streams.get(ref.stream, b"")
        if len(stream) < ref.end:
            raise SoundGone(f"{ref} of {session} was never written")
        return bytes(stream[ref.start : ref.end])


class SampleReader:
    """Reads the sample files of a data directory, also beside the server that writes them.

    A stream is a row of segments of 4 MiB, each in a file of its own (`SESSION.STREAM.N`), so that the beginning
    can be let go while the session goes on. A segment that is past its retention leaves an empty mark (`….gone`),
    a session of which nothing is kept one mark for all (`SESSION.gone`): what is missing without a mark is lost.
    Before there were segments a stream was one file (`SESSION.STREAM`); it is read, and goes on, as it is.
    """

    def __init__(self, directory: Path) -> None:
        """Read below `directory`."""
        self._directory = directory

    def path(self, session: str, stream: str, segment: int = 0) -> Path:
        """Return the file of a segment; no session's name can lead out of the directory."""
        return self._directory / f"{_name(session)}.{stream}.{segment}"

    async def read(self, session: str, ref: SampleRef) -> bytes:
        """Return the bytes of `ref`; raises as `Samples.read` says."""
        return await to_thread.run_sync(self.read_now, session, ref)

    def read_now(self, session: str, ref: SampleRef) -> bytes:
        """Return the bytes of `ref`; blocks, and raises as `Samples.read` says."""
        pieces: list[bytes] = []
        for segment, start, size in spans(ref.start, ref.size):
            data = self._read(session, ref, segment, start, size)
            if len(data) != size:
                raise self._missing(session, ref, segment)
            pieces.append(data)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def fault(self, session: str, place: Place) -> str | None:
        """Return what is wrong with the bytes of a record; None if they are as they were written. Blocks.

        Raises:
            PastRetention: they were let go.
        """
        try:
            data = self.read_now(session, place.ref)
        except PastRetention:
            raise
        except LogError as error:
            return f"its sound: {error}"
        return None if place.crc in (None, zlib.crc32(data)) else f"its sound was changed: {_shown(place.ref)}"

    def _read(self, session: str, ref: SampleRef, segment: int, start: int, size: int) -> bytes:
        try:
            with open(self.path(session, ref.stream, segment), "rb", buffering=0) as file:
                return _pread(file.fileno(), size, start)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise Unavailable(f"cannot read {_shown(ref)} of {session}: {error.strerror}") from error
        try:
            with open(self._whole(session, ref.stream), "rb", buffering=0) as file:
                return _pread(file.fileno(), size, segment * SEGMENT + start)
        except FileNotFoundError:
            return b""

    def _missing(self, session: str, ref: SampleRef, segment: int) -> LogError:
        """Return why a part of `ref` is not there."""
        if self._mark(session).exists() or self._mark(session, ref.stream, segment).exists():
            return PastRetention(f"{_shown(ref)} of {session} is past its retention")
        known = (
            place.exists()
            for stream in STREAMS
            for place in (self._whole(session, stream), self.path(session, stream), self._mark(session, stream, 0))
        )
        if not any(known):
            return UnknownSession(f"no samples of {session}")
        return SoundGone(f"{_shown(ref)} of {session} was never written, or is lost")

    def _whole(self, session: str, stream: str) -> Path:
        """Return the file of a stream from before there were segments."""
        return self._directory / f"{quote(session, safe='')}.{stream}"

    def _mark(self, session: str, stream: str | None = None, segment: int = 0) -> Path:
        """Return the mark of what is past its retention: a segment, or all of a session."""
        name = _name(session)
        return self._directory / (f"{name}.gone" if stream is None else f"{name}.{stream}.{segment}.gone")

    def files(self) -> dict[str, list[Path]]:
        """Return the files of each session that has any; what is none of ours is left out.

        Raises:
            OSError: the directory cannot be read.
        """
        found: dict[str, list[Path]] = {}
        for path in sorted(self._directory.iterdir()):
            session = _session_of(path.name)
            if session is not None:
                found.setdefault(session, []).append(path)
        return found


class FileSamples(SampleReader):
    """Writes them too: `write` belongs to the one owner of the directory.

    A write is a `pwrite` at the place that the core decided, a few microseconds into the page cache. Bytes
    without a record (a crash in between) are harmless: nothing refers to them, and the next writer, which
    continues from the records, puts its own in the same place. At most `open_files` descriptors are kept; None:
    a third of what the process may have.
    """

    def __init__(self, directory: Path, open_files: int | None = None) -> None:
        """Write below `directory`, which must exist."""
        super().__init__(directory)
        # A session that talks needs two, and its socket one. With too few, every write opens a file and closes
        # one: five times the cost of the write.
        self._most = open_files or max(getrlimit(RLIMIT_NOFILE)[0] // 3, 64)
        self._files: dict[tuple[str, str], _Open] = {}

    def write(self, session: str, writes: Sequence[SampleWrite]) -> list[Path]:
        """Put the bytes in their places; return what must be flushed to survive a loss of power.

        Raises:
            OSError: the disk is full, or cannot be written; some of the bytes may be there.
        """
        dirty: list[Path] = []
        for write in writes:
            ref, data = write.ref, write.data
            if ref.start // SEGMENT == (ref.end - 1) // SEGMENT:
                self._put(session, ref.stream, ref.start, data, dirty)
                continue
            done = 0
            for segment, start, size in spans(ref.start, ref.size):
                self._put(session, ref.stream, segment * SEGMENT + start, data[done : done + size], dirty)
                done += size
        return dirty

    def _put(self, session: str, stream: str, start: int, data: bytes, dirty: list[Path]) -> None:
        """Write what lies in one segment."""
        known = self._files.pop((session, stream), None)
        if known is not None and not known.base <= start < known.end:
            os.close(known.descriptor)
            known = None
        if known is None:
            known = self._open(session, stream, start // SEGMENT)
            dirty.append(self._directory)
        self._files[session, stream] = known
        _pwrite(known.descriptor, data, start - known.base)
        dirty.append(known.path)

    def _open(self, session: str, stream: str, segment: int) -> "_Open":
        """Open a segment, or the file of a stream that has none; the file used longest ago makes room."""
        if len(self._files) >= self._most:
            os.close(self._files.pop(next(iter(self._files))).descriptor)
        path, base, end = self.path(session, stream, segment), segment * SEGMENT, (segment + 1) * SEGMENT
        whole = self._whole(session, stream)
        if whole.exists():
            path, base, end = whole, 0, 1 << 63
        return _Open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), path, base, end)

    def release(self, session: str) -> None:
        """Close the files of a session; they are opened again when they are written again."""
        for stream in STREAMS:
            known = self._files.pop((session, stream), None)
            if known is not None:
                os.close(known.descriptor)

    def remove(self, session: str) -> None:
        """Remove the files of a session, which were released before.

        Raises:
            OSError: they cannot be removed.
        """
        for path in self.of(session):
            path.unlink(missing_ok=True)

    def of(self, session: str) -> list[Path]:
        """Return the files and marks of one session."""
        return self.files().get(session, [])

    def kept(self) -> dict[str, dict[str, dict[int, int]]]:
        """Return of each session and stream which segments are kept, and when each was last written (µs).

        A stream from before there were segments is its segment 0.

        Raises:
            OSError: the directory cannot be read.
        """
        found: dict[str, dict[str, dict[int, int]]] = {}
        for session, paths in self.files().items():
            for path in paths:
                stream, segment = _part_of(path.name)
                if stream:
                    written = path.stat().st_mtime_ns // 1000
                    found.setdefault(session, {}).setdefault(stream, {})[segment] = written
        return found

    def retire(self, session: str) -> int:
        """Let go of all sound of a session that has ended; return how many bytes that were.

        Raises:
            OSError: not all of it could be removed; it can be done again.
        """
        mark = self._mark(session)
        files = [path for path in self.of(session) if path != mark]
        if files:
            mark.touch(mode=0o600)
        freed = 0
        for path in files:
            freed += path.stat().st_size
            path.unlink()
        return freed

    def retire_segment(self, session: str, stream: str, segment: int) -> int:
        """Let go of one segment of a session that goes on; return how many bytes that were.

        The mark is there before the bytes are gone.

        Raises:
            OSError: it cannot be done.
        """
        mark = self._mark(session, stream, segment)
        path = self.path(session, stream, segment)
        size = path.stat().st_size
        path.rename(mark)
        os.truncate(mark, 0)
        return size

    def probe(self) -> None:
        """Write a file and remove it.

        Raises:
            OSError: it cannot be written.
        """
        probe = self._directory / PROBE
        try:
            probe.write_bytes(bytes(PROBE_BYTES))
        finally:
            probe.unlink(missing_ok=True)

    def close(self) -> None:
        """Close all files."""
        while self._files:
            os.close(self._files.popitem()[1].descriptor)


class _Open(NamedTuple):
    """An open file, which has the bytes of its stream from `base` to `end`."""

    descriptor: int
    path: Path
    base: int
    end: int


def _part_of(name: str) -> tuple[str, int]:
    """Return the stream and the segment of a file of ours; no stream: it is a mark."""
    *_, stream, last = name.split(".")
    return ("", 0) if last == "gone" else (stream, int(last)) if last.isdecimal() else (last, 0)


def _name(session: str) -> str:
    """Return how files name a session; a dot in it would be taken for one of ours."""
    return quote(session, safe="").replace(".", "%2E")


def spans(start: int, size: int) -> list[tuple[int, int, int]]:
    """Return where a span lies: the segments, where in each it begins, and how much of it is there."""
    found: list[tuple[int, int, int]] = []
    end = start + size
    while start < end or not found:
        segment, within = divmod(start, SEGMENT)
        part = min(end - start, SEGMENT - within)
        found.append((segment, within, part))
        start += part
    return found


def _shown(ref: SampleRef) -> str:
    return f"the stream `{ref.stream}` from {ref.start:,} to {ref.end:,}"


def _session_of(name: str) -> str | None:
    """Return the session that a file belongs to; None if it is none of ours."""
    parts = name.removesuffix(".gone").rsplit(".", 2)
    if len(parts) == 3 and parts[1] in STREAMS and parts[2].isdecimal():
        return unquote(parts[0])
    session, _, kind = name.rpartition(".")
    return unquote(session) if session and kind in (*STREAMS, "gone") else None


def flush(paths: Sequence[Path]) -> None:
    """Wait until these files and folders are on the disk itself; a few milliseconds each.

    Raises:
        OSError: they are not.
    """
    for path in dict.fromkeys(paths):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _pwrite(descriptor: int, data: bytes, start: int) -> None:
    """Write all of it: a disk that fills up first takes a part, and says so only at the next call."""
    done = os.pwrite(descriptor, data, start)
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], start + done)


def _pread(descriptor: int, size: int, start: int) -> bytes:
    """Read `size` bytes, or what there is of them."""
    data = os.pread(descriptor, size, start)
    while len(data) < size:
        more = os.pread(descriptor, size - len(data), start + len(data))
        if not more:
            break
        data += more
    return data
