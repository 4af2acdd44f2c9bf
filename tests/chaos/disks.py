"""Disks that fill up: a small one of its own where that may be mounted, else files that may not grow."""

import os
import resource
import subprocess
from pathlib import Path
from typing import Protocol

SIZE_MB = 64
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
        found = os.statvfs(self._place)
        size = max(found.f_bavail * found.f_frsize - left, 0)
        descriptor = os.open(self._ballast, os.O_WRONLY | os.O_CREAT)
        try:
            os.posix_fallocate(descriptor, 0, max(size, 1))
        except OSError:
            pass  # the server took it meanwhile
        finally:
            os.close(descriptor)

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
