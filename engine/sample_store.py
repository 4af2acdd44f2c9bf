"""The bytes of sound and images beside the log: in memory, and in one append-only file a stream."""

import os
from collections.abc import Sequence
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit
from urllib.parse import quote

from anyio import to_thread

from antiphon.events.audio import SampleRef
from antiphon.events.log import SampleWrite, SoundGone, Unavailable, UnknownSession

_STREAMS = ("in", "out", "img", "ref", "item")

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
    """Reads the sample files of a data directory, also beside the server that writes them."""

    def __init__(self, directory: Path) -> None:
        """Read below `directory`."""
        self._directory = directory

    def path(self, session: str, stream: str) -> Path:
        """Return the file of one stream; no session's name can lead out of the directory."""
        return self._directory / f"{quote(session, safe='')}.{stream}"

    async def read(self, session: str, ref: SampleRef) -> bytes:
        """Return the bytes of `ref`; raises as `Samples.read` says."""
        return await to_thread.run_sync(self._read, session, ref)

    def _read(self, session: str, ref: SampleRef) -> bytes:
        try:
            with open(self.path(session, ref.stream), "rb", buffering=0) as file:
                data = _pread(file.fileno(), ref.size, ref.start)
        except FileNotFoundError:
            if not any(self.path(session, stream).exists() for stream in _STREAMS):
                raise UnknownSession(f"no samples of {session}") from None
            data = b""
        except OSError as error:
            raise Unavailable(f"cannot read {ref} of {session}: {error.strerror}") from error
        if len(data) != ref.size:
            raise Unavailable(f"{ref} of {session} was never written, or is past its retention")
        return data


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
        self._files: dict[tuple[str, str], tuple[int, Path]] = {}

    def write(self, session: str, writes: Sequence[SampleWrite]) -> list[Path]:
        """Put the bytes in their places; return what must be flushed to survive a loss of power.

        Raises:
            OSError: the disk is full, or cannot be written; some of the bytes may be there.
        """
        dirty: list[Path] = []
        for write in writes:
            descriptor, path, created = self._open(session, write.ref.stream)
            _pwrite(descriptor, write.data, write.ref.start)
            dirty.append(path)
            if created:
                dirty.append(self._directory)
        return dirty

    def release(self, session: str) -> None:
        """Close the files of a session; they are opened again when they are written again."""
        for stream in _STREAMS:
            known = self._files.pop((session, stream), None)
            if known is not None:
                os.close(known[0])

    def remove(self, session: str) -> None:
        """Remove the files of a session, which were released before.

        Raises:
            OSError: they cannot be removed.
        """
        for stream in _STREAMS:
            self.path(session, stream).unlink(missing_ok=True)

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
            os.close(self._files.popitem()[1][0])

    def _open(self, session: str, stream: str) -> tuple[int, Path, bool]:
        """Return a descriptor, its path, and whether the file is new; the one used longest ago makes room."""
        known = self._files.pop((session, stream), None)
        created = False
        if known is None:
            if len(self._files) >= self._most:
                os.close(self._files.pop(next(iter(self._files)))[0])
            path = self.path(session, stream)
            created = not path.exists()
            known = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), path
        self._files[session, stream] = known
        return *known, created


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
