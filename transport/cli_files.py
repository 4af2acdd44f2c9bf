"""Files that a command is going to write: whether they can be is found out before the work, not after it."""

import os
from pathlib import Path

from .cli_errors import UNUSABLE, Stop


def writable(path: Path) -> None:
    """Look whether a file can be written, without making it.

    Raises:
        Stop: it cannot: the folder is missing, it is a folder itself, or this user may not.
    """
    folder = path.parent
    if path.is_dir():
        raise Stop(f"cannot write {path}: it is a folder; name a file in it", UNUSABLE)
    if not folder.is_dir():
        raise Stop(f"cannot write {path}: there is no folder {folder}; make it first", UNUSABLE)
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise Stop(f"cannot write {path}: this user may not", UNUSABLE)
