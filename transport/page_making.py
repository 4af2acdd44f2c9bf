"""The page of a session for a server: made by a process of its own, so that no conversation waits for it.

`python -m antiphon.transport.page_making FOLDER SESSION` reads beside the server that writes there, and prints the
page. A log in memory cannot be read by another process: its page is made in a thread.
"""

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from antiphon.engine.datadir import DataPaths
from antiphon.engine.sqlite_reader import SqliteReader
from antiphon.events.audio import SampleRef
from antiphon.events.events import SessionOpened
from antiphon.events.log import LogError, Transaction, UnknownSession

from .session_page import session_page

LONGEST = 200_000
"""Entries of a session that is shown by a server: more than an hour and a half of conversation."""

PATIENCE_S = 120
BATCH = 1_000
NICE = 10
"""The process gives way to the server's."""

Read = Callable[[str, int, int], Awaitable[list[Transaction]]]
ReadSound = Callable[[str, SampleRef], Awaitable[bytes]]


class Answer(Struct, frozen=True):
    """Why there is no page: an HTTP status and a sentence."""

    status: int
    message: str


class Unshown(Exception):
    """A session cannot be shown."""

    def __init__(self, status: int, message: str) -> None:
        """Take the HTTP status and the sentence."""
        super().__init__(message)
        self.answer = Answer(status, message)


async def made_here(read: Read, sound: ReadSound, session: str) -> bytes:
    """Return the page of a session, made in a thread of this process.

    Raises:
        Unshown: it is not there, too long, not whole, or cannot be read.
    """
    return await session_page(await _whole(read, session), partial(sound, session))


async def made_apart(data: Path, session: str) -> bytes:
    """Return the page of a session of a data directory, made by a process of its own.

    Raises: as `made_here`.
    """
    if "\0" in session or not session:
        raise Unshown(404, "There is no such session.")
    command = [sys.executable, "-P", "-m", "antiphon.transport.page_making", str(data), session]
    try:
        with anyio.fail_after(PATIENCE_S):
            done = await anyio.run_process(command, stdin=subprocess.DEVNULL, check=False)
    except TimeoutError:
        raise Unshown(503, "It took too long to make the page; `antiphon log timeline` has more time.") from None
    if done.returncode == 0:
        return done.stdout
    try:
        answer = msgspec.json.decode(done.stderr, type=Answer)
    except msgspec.DecodeError:
        raise Unshown(500, "The page could not be made.") from None
    raise Unshown(answer.status, answer.message)


async def _whole(read: Read, session: str) -> Sequence[Transaction]:
    """Return all that is durable now."""
    log: list[Transaction] = []
    try:
        while batch := await read(session, log[-1].seq if log else 0, BATCH):
            log += batch
            if len(log) > LONGEST:
                raise Unshown(
                    413, f"It has more than {LONGEST:,} entries: `antiphon log timeline` writes its page."
                )
    except UnknownSession:
        raise Unshown(404, "There is no such session.") from None
    except LogError as error:
        raise Unshown(503, f"The log cannot be read: {error}.") from error
    if not log:
        raise Unshown(404, "There is no such session.")
    if not any(isinstance(event, SessionOpened) for event in log[0].events):
        raise Unshown(500, "The beginning of this log is gone: it cannot be shown.")
    return log


# -- the process ---------------------------------------------------------------------------------------------


def main() -> int:
    """Print the page of the session that is named, or on standard error why there is none; return the exit code."""
    os.nice(NICE)
    data, session = sys.argv[1:]
    try:
        page = anyio.run(_read_and_make, Path(data), session)
    except Unshown as unshown:
        sys.stderr.buffer.write(msgspec.json.encode(unshown.answer))
        return 1
    sys.stdout.buffer.write(page)
    return 0


async def _read_and_make(data: Path, session: str) -> bytes:
    reader = SqliteReader(DataPaths(data))
    try:
        return await made_here(reader.read, reader.samples.read, session)
    finally:
        await reader.aclose()


if __name__ == "__main__":
    sys.exit(main())
