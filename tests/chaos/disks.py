"""Disks that fill up: a small one of its own where that may be mounted, else files that may not grow."""

import contextlib
import os
import resource
import subprocess
from pathlib import Path
from typing import Protocol

SIZE_MB = 64
ATTEMPTS = 100
BALLAST = "ballast"


class Disk(Protocol):
    """Where a data directory lies. It is full, or not; a server that starts is told to it."""

    def serve(self, pid: int) -> None:
        """A process uses it from now on; 0: none does."""
        ...

    def fill(self, left: int) -> None:
        """Leave room for so many bytes, or in each file for so many."""
        ...

    def free(self) -> None:
        """Give the space back."""
        ...

    def close(self) -> None:
        """Nobody needs it any more."""
        ...


class SmallDisk:
    """A file system in memory, of which a file takes what is free."""

    def __init__(self, place: Path) -> None:
        place.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "antiphon-chaos", str(place)]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            raise PermissionError(done.stderr.decode().strip())
        self._place = place
        self._ballast = place / BALLAST

    def serve(self, pid: int) -> None:
        """See `Disk`."""

    def fill(self, left: int) -> None:
        """See `Disk`."""
        descriptor = os.open(self._ballast, os.O_WRONLY | os.O_CREAT)
        try:
            for _ in range(ATTEMPTS):
                with contextlib.suppress(OSError):  # the server took some of it meanwhile
                    os.posix_fallocate(descriptor, 0, max(self._room() - left, 1))
                    return
            raise AssertionError("the disk cannot be filled")
        finally:
            os.close(descriptor)

    def _room(self) -> int:
        found = os.statvfs(self._place)
        return found.f_bavail * found.f_frsize

    def free(self) -> None:
        """See `Disk`."""
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        """See `Disk`."""
        subprocess.run(["umount", "--lazy", str(self._place)], check=True)


class LimitedDisk:
    """No file of the server is written beyond a size."""

    def __init__(self) -> None:
        self._pid = 0
        self._limit = resource.RLIM_INFINITY

    def serve(self, pid: int) -> None:
        """See `Disk`."""
        self._pid = pid
        self._apply()

    def fill(self, left: int) -> None:
        """See `Disk`."""
        self._limit = left
        self._apply()

    def free(self) -> None:
        """See `Disk`."""
        self._limit = resource.RLIM_INFINITY
        self._apply()

    def close(self) -> None:
        """See `Disk`."""

    def _apply(self) -> None:
        if self._pid:
            resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (self._limit, resource.RLIM_INFINITY))


def disk(place: Path) -> Disk:
    """Return a disk for a data directory: a small one, if this user may mount one."""
    try:
        return SmallDisk(place)
    except (PermissionError, FileNotFoundError):
        return LimitedDisk()
