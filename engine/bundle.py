"""A bundle: one file with a session's log and its sound and pictures, to be read on another machine.

It is a ZIP file, so that anybody can look into it: `log.jsonl` is the exported log; `samples/in`, `samples/out` and
so on are the bytes of each stream, uncompressed, so that any span is read where it lies; `manifest.json`, which is
written last, says what is where, with the crc32 of each.
"""

import zlib
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Sequence
from typing import IO, BinaryIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from msgspec import Struct, json, structs

from antiphon.events.audio import SampleRef
from antiphon.events.log import SoundGone, Transaction, UnknownSession, to_json

from .sample_places import STREAMS, Stream

LAYOUT = 1
SUFFIX = ".antiphon"
LOG = "log.jsonl"
MANIFEST = "manifest.json"
SAMPLES = "samples/"
PIECE = 1 << 20
"""Bytes that are read and written at a time."""

Read = Callable[[SampleRef], Awaitable[bytes]]


class Span(Struct, frozen=True, array_like=True, gc=False):
    """Bytes of a stream: where they began in the session, and how many."""

    start: int
    size: int

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.start + self.size


class Part(Struct, frozen=True, kw_only=True):
    """A stream in the bundle: its spans, ascending, one behind the other, and the crc32 of all of it."""

    stream: Stream
    spans: tuple[Span, ...]
    crc: int

    @property
    def size(self) -> int:
        """Bytes of all spans."""
        return sum(span.size for span in self.spans)


class Manifest(Struct, frozen=True, kw_only=True):
    """What is in a bundle; written last."""

    antiphon_bundle: int = LAYOUT
    """The layout of the file."""
    session: str
    transactions: int
    log_bytes: int
    log_crc: int
    streams: tuple[Part, ...] = ()
    missing: int = 0
    """Bytes that the log speaks of and that were not there any more."""

    @property
    def sample_bytes(self) -> int:
        """Bytes of sound and pictures."""
        return sum(part.size for part in self.streams)


def refs_in(value: object) -> Iterator[SampleRef]:
    """Yield every span of samples that an event, or a part of one, speaks of."""
    match value:
        case SampleRef():
            yield value
        case Struct():
            yield from refs_in(structs.astuple(value))
        case tuple() | list():
            for part in value:  # pyright: ignore[reportUnknownVariableType]
                if isinstance(part, (Struct, tuple, list)):
                    yield from refs_in(part)  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return


async def write(
    file: BinaryIO,
    header: bytes,
    session: str,
    pages: AsyncIterable[Sequence[Transaction]],
    read: Read,
    told: Callable[[int], None] = lambda _: None,
) -> Manifest:
    """Write a bundle as it comes: a page of the log at a time, then a piece of a stream at a time.

    `header` is the first line of the log; `read` gives the bytes of a span or raises as `Samples.read` does, and
    what is not there is counted and left out. `told` hears how many transactions and spans are done.

    Raises:
        OSError: the file cannot be written.
        LogError: the log, or a span that is there, cannot be read.
    """
    with ZipFile(file, "w", allowZip64=True) as archive:
        log = _LogPart()
        with archive.open(_entry(LOG, ZIP_DEFLATED), "w", force_zip64=True) as out:
            out.write(log.line(header + b"\n"))
            async for page in pages:
                out.write(b"".join(map(log.transaction, page)))
                told(len(page))
        parts: list[Part] = []
        missing = 0
        for stream in STREAMS:
            refs = log.refs.get(stream)
            if refs:
                part, gone = await _write_stream(archive, stream, sorted(refs), read, told)
                missing += gone
                parts.append(part)
        manifest = Manifest(
            session=session,
            transactions=log.transactions,
            log_bytes=log.size,
            log_crc=log.crc,
            streams=tuple(part for part in parts if part.spans),
            missing=missing,
        )
        archive.writestr(_entry(MANIFEST, ZIP_DEFLATED), json.format(json.encode(manifest), indent=1))
    return manifest


class _LogPart:
    """The log on its way into a bundle: its size and crc32, and the spans that it speaks of."""

    def __init__(self) -> None:
        self.size = self.crc = self.transactions = 0
        self.refs: dict[str, set[tuple[int, int]]] = {}

    def line(self, line: bytes) -> bytes:
        self.size += len(line)
        self.crc = zlib.crc32(line, self.crc)
        return line

    def transaction(self, transaction: Transaction) -> bytes:
        for ref in refs_in(transaction.events):
            if ref.size:
                self.refs.setdefault(ref.stream, set()).add((ref.start, ref.size))
        self.transactions += 1
        return self.line(to_json(transaction) + b"\n")


class _StreamPart:
    """A stream on its way into a bundle."""

    def __init__(self, stream: Stream, out: IO[bytes], read: Read) -> None:
        self.stream: Stream = stream
        self.spans: list[Span] = []
        self.crc = 0
        self._out = out
        self._read = read
        self._end = 0

    async def run(self, run: Sequence[tuple[int, int]]) -> None:
        """Copy what there is of neighbouring spans: all at once, or, if some of it is gone, one by one."""
        last = max(start + size for start, size in run)
        if not await self._copy(run[0][0], last):
            for start, size in run:
                await self._copy(start, start + size)

    async def _copy(self, start: int, end: int) -> bool:
        start = max(start, self._end)
        if start >= end:
            return True
        try:
            data = await self._read(SampleRef(self.stream, start, end - start))
        except (SoundGone, UnknownSession):
            return False
        self._out.write(data)
        self.crc = zlib.crc32(data, self.crc)
        last = self.spans[-1] if self.spans else None
        if last is not None and last.end == start:
            self.spans[-1] = Span(last.start, end - last.start)
        else:
            self.spans.append(Span(start, end - start))
        self._end = end
        return True


async def _write_stream(
    archive: ZipFile, stream: Stream, refs: Sequence[tuple[int, int]], read: Read, told: Callable[[int], None]
) -> tuple[Part, int]:
    """Write what there is of a stream; return what that is, and how many bytes are gone."""
    with archive.open(_entry(SAMPLES + stream, ZIP_STORED), "w", force_zip64=True) as out:
        part = _StreamPart(stream, out, read)
        for run in _runs(refs):
            await part.run(run)
            told(len(run))
    written = Part(stream=stream, spans=tuple(part.spans), crc=part.crc)
    return written, sum(end - start for start, end in _merged(refs)) - written.size


def _merged(refs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the beginnings and ends of what ascending spans cover."""
    begin = end = 0
    for start, size in refs:
        if start > end:
            yield begin, end
            begin = start
        end = max(end, start + size)
    yield begin, end


def _runs(refs: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Cut ascending spans into runs without a hole, of about one piece each."""
    run: list[tuple[int, int]] = []
    end = 0
    for start, size in refs:
        if run and (start > end or start - run[0][0] >= PIECE):
            yield run
            run = []
        run.append((start, size))
        end = max(end, start + size)
    if run:
        yield run


def _entry(name: str, compression: int) -> ZipInfo:
    """Return an entry without a date: the same session gives the same bytes."""
    entry = ZipInfo(name)
    entry.compress_type = compression
    entry.external_attr = 0o600 << 16
    return entry
