"""The end of the write-ahead log as a former process has left it: what SQLite drops of it, and who has seen it.

A process that is killed in the middle of a commit leaves frames without a commit behind them: nobody has seen what
they hold. Commits behind a damaged frame were visible once, and SQLite drops them without a word.
"""

import os
import struct
from pathlib import Path

from msgspec import Struct

_HEAD = struct.Struct(">8I")
_FRAME = struct.Struct(">4I")
_FRAME_HEAD = 24
_PAGE = 4096
_BIG = 0x377F0683
_LITTLE = 0x377F0682


class Tail(Struct, frozen=True):
    """Which frames of the log belong to its present life, counted from 1, and which of these end a commit."""

    frames: tuple[int, ...] = ()
    commits: tuple[int, ...] = ()

    def behind(self, valid: int) -> "Tail":
        """Return what lies behind frame `valid`, the last one that SQLite takes."""
        return Tail(
            tuple(frame for frame in self.frames if frame > valid),
            tuple(frame for frame in self.commits if frame > valid),
        )


def log_of(database: Path) -> Path:
    """Return the write-ahead log of a database."""
    return database.with_name(f"{database.name}-wal")


def tail(database: Path) -> Tail:
    """Read the heads of the frames, before anything is written; blocks for about a microsecond each.

    Raises:
        OSError: the log is there and cannot be read.
    """
    try:
        log = os.open(log_of(database), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return Tail()
    try:
        return _read(log)
    finally:
        os.close(log)


def _read(log: int) -> Tail:
    head = os.pread(log, _HEAD.size, 0)
    if len(head) < _HEAD.size:
        return Tail()
    life: tuple[int, int] | None = None
    page = _PAGE
    if _is_whole(head):
        _, _, page, _, one, two, _, _ = _HEAD.unpack(head)
        life = one, two
    frames: list[int] = []
    commits: list[int] = []
    number, at = 1, _HEAD.size
    while len(found := os.pread(log, _FRAME.size, at)) == _FRAME.size:
        _, size, one, two = _FRAME.unpack(found)
        life = life or (one, two)  # of a damaged head the first frame knows better
        if (one, two) == life:
            frames.append(number)
            if size:
                commits.append(number)
        number, at = number + 1, at + _FRAME_HEAD + page
    return Tail(tuple(frames), tuple(commits))


def _is_whole(head: bytes) -> bool:
    """Return whether the head of the log has the checksum that it says (the algorithm is SQLite's)."""
    magic, *_, one, two = _HEAD.unpack(head)
    if magic not in (_BIG, _LITTLE):
        return False
    words = struct.unpack(">6I" if magic == _BIG else "<6I", head[:24])
    first = second = 0
    for left, right in zip(words[::2], words[1::2], strict=True):
        first = (first + left + second) & 0xFFFF_FFFF
        second = (second + right + first) & 0xFFFF_FFFF
    return (first, second) == (one, two)
