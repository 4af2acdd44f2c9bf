"""Adopting a session that was recorded elsewhere: into a data directory that no server uses, to be looked at only.

The log says what it said, but the index says that the session has ended: no server takes it over, whatever its last
event is, so no token that was ever given out for it opens anything here (DESIGN 5.6).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from antiphon.events.audio import SampleRef
from antiphon.events.log import SampleWrite, Transaction

from .bundle import refs_in
from .datadir import DataDirectory
from .sample_store import FileSamples, flush
from .sqlite_writer import SqliteWriter


class Adopted(Struct, frozen=True):
    """What was taken."""

    transactions: int
    sample_bytes: int


def adopt(
    root: Path, name: str, transactions: Iterable[Transaction], read: Callable[[SampleRef], bytes | None]
) -> Adopted:
    """Record a log and its samples under `name`, all or nothing. Blocks.

    Transactions are taken as they come, and `read` is asked for the bytes that came with each, None if there are
    none; whatever they raise undoes everything.

    Raises:
        Conflict: there is a session of this name, or the log has a hole, or no opening in the beginning.
        DataDirectoryError: a server uses the directory, or it cannot be used.
        Unavailable: the log or the samples cannot be written.
    """
    with (
        DataDirectory(root) as data,
        closing(SqliteWriter(data.paths.database, "normal")) as writer,
        closing(FileSamples(data.paths.samples)) as files,
    ):
        writer.refuse_known(name)
        files.remove(name)  # what an attempt that was killed has left
        dirty: dict[Path, None] = {}
        size = 0

        def written() -> Iterator[tuple[Transaction, list[SampleWrite]]]:
            nonlocal size
            for transaction, writes in _with_samples(transactions, read):
                dirty.update(dict.fromkeys(files.write(name, writes)))
                size += sum(write.ref.size for write in writes)
                yield transaction, writes
            flush(list(dirty))

        try:
            return Adopted(writer.adopt(name, written()), size)
        except BaseException:
            files.release(name)
            files.remove(name)
            raise


def _with_samples(
    transactions: Iterable[Transaction], read: Callable[[SampleRef], bytes | None]
) -> Iterator[tuple[Transaction, list[SampleWrite]]]:
    """Yield each transaction with the bytes that came with it: those behind what came before, stream by stream."""
    ends: dict[str, int] = {}
    for transaction in transactions:
        writes: list[SampleWrite] = []
        for ref in refs_in(transaction.events):
            if ref.size and ref.start >= ends.get(ref.stream, 0):
                ends[ref.stream] = ref.end
                data = read(ref)
                if data is not None:
                    writes.append(SampleWrite(ref, data))
        yield transaction, writes
