"""Moving the write-ahead log into the database, beside the writer."""

import sqlite3
import threading
from pathlib import Path
from queue import SimpleQueue

PAGES = 2_000
"""Pages written since the last checkpoint after which the next one begins."""

CATCH_UP_PAGES = 32_000
"""Pages of write-ahead log (128 MiB) at which the writer helps."""


class Checkpointer:
    """A thread that runs passive checkpoints on a connection of its own, one at a time.

    The default, a checkpoint inside the commit that crosses a limit, stalls that commit for 17 to 30 ms. A
    passive one holds nobody up, but under a steady load the log grows meanwhile, and only a log that was moved
    to its end is begun anew. When the log has become long, `wrote` therefore tells the writer to move the
    little that is left itself, while nothing is added (5 ms; with 100 busy sessions, every 8 s).

    SQLite before 3.51.3 can lose pages if a checkpoint starts on a log that is wholly moved while a commit
    begins that log anew. That cannot happen here: one checkpoint runs at a time, and it starts only when a
    commit began and ended after the last one had ended, so that the log is not wholly moved.
    """

    def __init__(self, path: Path) -> None:
        """Serve the database at `path`; the thread starts with the first checkpoint."""
        self._path = path
        self._asked: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="antiphon-checkpoint", daemon=True)
        self._written = 0
        self.idle = threading.Event()
        self.idle.set()
        self._just_ended = False
        self._long = False

    def wrote(self, pages: int) -> bool:
        """Count about `pages` more; return whether the writer shall `move` on its own connection before the next.

        Called by the writer after each commit, from one thread at a time.
        """
        if not self.idle.is_set():
            return False
        if self._just_ended:  # this commit may have begun before the end
            self._just_ended = False
            return self._long
        self._written += pages
        if self._written >= PAGES:
            self._written = 0
            self.idle.clear()
            if not self._thread.is_alive():
                self._thread.start()
            self._asked.put(True)
        return False

    def close(self) -> None:
        """Wait for a checkpoint that runs, and end the thread. Blocks."""
        if self._thread.is_alive():
            self._asked.put(False)
            self._thread.join()

    def _run(self) -> None:
        connection = sqlite3.connect(self._path, timeout=0.25, isolation_level=None)
        try:
            while self._asked.get():
                self._long = (move(connection) or 0) >= CATCH_UP_PAGES
                self._just_ended = True
                self.idle.set()
        finally:
            connection.close()


def move(connection: sqlite3.Connection) -> int | None:
    """Run a passive checkpoint; return how many pages the write-ahead log has, None if it cannot be done now.

    One that cannot be done (the disk is full) is done later: the log itself is the durable copy.
    """
    try:
        result: tuple[int, int, int] = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    except sqlite3.Error:
        return None
    return max(result[1], 0)
