"""Adopting a session that was recorded elsewhere: into a data directory that no server uses, to be looked at only.

The log says what it said, but the index says that the session has ended: no server takes it over, whatever its last
event is, so no token that was ever given out for it opens anything here (DESIGN 5.6).
"""

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from antiphon.events.log import SampleWrite, Transaction

from .datadir import DataDirectory
from .sample_store import FileSamples, flush
from .sqlite_writer import SqliteWriter


def adopt(root: Path, name: str, transactions: Iterable[Transaction], samples: Iterable[SampleWrite]) -> int:
    """Record a log and its samples under `name`, all or nothing; return how many transactions. Blocks.

    Both are taken as they come, and whatever they raise undoes everything.

    Raises:
        Conflict: there is a session of this name, or the log has a hole, or no opening in the beginning.
        DataDirectoryError: a server uses the directory, or it cannot be used.
        Unavailable: the log cannot be written.
        OSError: the samples cannot be written.
    """
    with (
        DataDirectory(root) as data,
        closing(SqliteWriter(data.paths.database, "normal")) as writer,
        closing(FileSamples(data.paths.samples)) as files,
    ):
        writer.refuse_known(name)
        files.remove(name)  # what an attempt that was killed has left
        try:
            dirty = {path: None for write in samples for path in files.write(name, [write])}
            flush(list(dirty))
            return writer.adopt(name, transactions)
        except BaseException:
            files.release(name)
            files.remove(name)
            raise
