"""The data directory: a server's log, samples and secret, and the lock that makes it that server's own."""

import errno
import fcntl
import os
import secrets
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec import Struct

SECRET_BYTES = 32


class DataDirectoryError(Exception):
    """The directory cannot be used. The message says why, and what to do about it."""


class DataPaths(Struct, frozen=True):
    """The names in a data directory. Touches nothing: a reader beside a running server needs no more."""

    root: Path

    @property
    def database(self) -> Path:
        """The log."""
        return self.root / "log.sqlite3"

    @property
    def samples(self) -> Path:
        """The folder of the samples."""
        return self.root / "samples"

    @property
    def secret(self) -> Path:
        """The key of the resume tokens."""
        return self.root / "secret"

    @property
    def lock(self) -> Path:
        """What the process that owns the directory holds locked; its text is that process's id."""
        return self.root / "lock"


class DataDirectory:
    """A data directory that belongs to this process until `close`.

    `secret` is 32 random bytes, drawn once in the life of the directory and readable by its owner only: whoever
    has it can compute every resume token.
    """

    def __init__(self, root: Path) -> None:
        """Make the directory if it is missing, and take it.

        Raises:
            DataDirectoryError: another process has it, it cannot be written, or its secret is not usable.
        """
        self.paths = DataPaths(root)
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.paths.samples.mkdir(mode=0o700, exist_ok=True)
            self._lock = _take(self.paths)
        except OSError as error:
            room = error.errno in (errno.ENOSPC, errno.EDQUOT)
            advice = "make room there" if room else "give a directory that this user may write with --data"
            raise DataDirectoryError(f"cannot use the data directory {root}: {error.strerror}; {advice}") from error
        try:
            self.secret = _load_or_draw(self.paths.secret)
        except OSError as error:
            self.close()
            raise DataDirectoryError(f"cannot read or write {self.paths.secret}: {error.strerror}") from error
        except DataDirectoryError:
            self.close()
            raise

    def close(self) -> None:
        """Let another process take it. May be called twice."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def _take(paths: DataPaths) -> int:
    """Lock the directory and return the descriptor that holds it.

    The kernel gives the lock back when the process ends, however it ends, so there is no stale lock to remove.
    """
    lock = os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(lock)
        raise DataDirectoryError(
            f"the data directory {paths.root} is in use by process {owner}; "
            "stop that server, or give this one another directory with --data"
        ) from None
    except OSError:
        os.close(lock)
        raise
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _load_or_draw(path: Path) -> bytes:
    """Return the secret; the caller holds the lock, so nobody else draws one at the same time."""
    try:
        found = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return _draw(path)
    with open(found, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode & 0o777
        secret = file.read()
    if mode & 0o077:
        raise DataDirectoryError(
            f"{path} can be read by others (mode {mode:03o}): run `chmod 600 {path}`, "
            "or remove it to draw a new one, which voids every resume token"
        )
    if len(secret) != SECRET_BYTES:
        raise DataDirectoryError(
            f"{path} holds {len(secret)} bytes instead of {SECRET_BYTES}: restore it from a backup, "
            "or remove it to draw a new one, which voids every resume token"
        )
    return secret


def _draw(path: Path) -> bytes:
    secret = secrets.token_bytes(SECRET_BYTES)
    put_private(path, secret)
    return secret


def put_private(path: Path, data: bytes) -> None:
    """Put a file that only its owner can read in place as a whole: a crash leaves what was there, or all of it.

    Raises:
        OSError: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
