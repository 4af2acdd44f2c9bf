"""Where a log comes from: a session in a data directory, or an exported file; and how one is removed."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from importlib import metadata
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from antiphon.engine.datadir import DataDirectoryError, DataPaths
from antiphon.engine.retention import NotRemovable, remove
from antiphon.engine.sqlite_reader import SqliteReader
from antiphon.events.events import SessionOpened
from antiphon.events.log import (
    BEHAVIOUR,
    Corrupt,
    LaterLayout,
    LogError,
    SessionRow,
    Transaction,
    from_json,
    to_json,
)

from .cli_errors import UNUSABLE, Stop
from .cli_files import writable

VERSION = metadata.version("antiphon")
BATCH = 1000
LATEST = "latest"
STANDARD_OUTPUT = Path("-")
_MARK = b"\xef\xbb\xbf"
"""What editors of another world put before a text."""


class LogHeader(Struct, frozen=True, kw_only=True):
    """The first line of an exported log; every further line is a transaction."""

    antiphon_log: int = 1
    """The layout of the file."""
    behaviour: int = BEHAVIOUR
    """The behaviour that decided the events."""
    session: str
    plugin: str
    plugin_version: str
    version: str = VERSION
    """The program that wrote the file."""
    transactions: int = 0


class LoadedLog(Struct, frozen=True):
    """A log, read as a whole."""

    header: LogHeader
    transactions: list[Transaction]


def header_of(session: str, transactions: list[Transaction]) -> LogHeader:
    """Return the header of a log.

    Raises:
        Stop: it does not begin with the opening of a session.
    """
    first = transactions[0].events[0] if transactions and transactions[0].events else None
    if not isinstance(first, SessionOpened):
        raise Stop(f"the log of {session} does not begin with the opening of a session: it is not whole", UNUSABLE)
    return LogHeader(
        session=first.session,
        plugin=first.plugin,
        plugin_version=first.plugin_version,
        transactions=len(transactions),
    )


# -- data directories ----------------------------------------------------------------------------------------


@asynccontextmanager
async def reading(data: Path) -> AsyncGenerator[SqliteReader]:
    """Lend a reader of a data directory; a running server is not disturbed.

    Raises:
        Stop: there is no log in it.
    """
    reader = SqliteReader(_existing(data))
    try:
        yield reader
    except Corrupt as error:
        raise Stop(f"{error}; what stands before it is whole", UNUSABLE) from error
    except LogError as error:
        raise Stop(str(error), UNUSABLE) from error
    finally:
        await reader.aclose()


def _existing(data: Path) -> DataPaths:
    paths = DataPaths(data)
    if not data.is_dir():
        raise Stop(f"there is no data directory {data}; name it with --data", UNUSABLE)
    if not paths.database.is_file():
        raise Stop(f"{data} holds no log: no server has used it yet; name another directory with --data", UNUSABLE)
    return paths


async def find(reader: SqliteReader, wanted: str) -> SessionRow:
    """Return the session with this id, or the only one whose id begins so, or the newest (`latest`).

    Raises:
        Stop: there is none, or more than one.
    """
    rows = await reader.sessions()
    if wanted == LATEST and rows:
        return rows[0]
    found = [row for row in rows if row.session == wanted] or [
        row for row in rows if row.session.startswith(wanted)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise Stop(f"{len(found)} sessions begin with {wanted!r}; give more of the id", UNUSABLE)
    raise Stop(f"there is no session {wanted!r} here; `antiphon log ls` shows those there are", UNUSABLE)


async def whole(reader: SqliteReader, session: str) -> list[Transaction]:
    """Read all that is durable now."""
    transactions: list[Transaction] = []
    while batch := await reader.read(session, transactions[-1].seq if transactions else 0, BATCH):
        transactions.extend(batch)
    return transactions


def index(data: Path) -> list[SessionRow]:
    """Return the sessions of a data directory, newest first. Must not be called on an event loop.

    Raises:
        Stop: there is no log in it.
    """
    return anyio.run(_index, data)


async def _index(data: Path) -> list[SessionRow]:
    async with reading(data) as reader:
        return await reader.sessions()


def choose(targets: Sequence[str], data: Path) -> list[SessionRow]:
    """Return the sessions that are meant, each once. Must not be called on an event loop.

    Raises:
        Stop: there is no log, or a target means none or more than one.
    """
    return anyio.run(_choose, targets, data)


async def _choose(targets: Sequence[str], data: Path) -> list[SessionRow]:
    async with reading(data) as reader:
        rows = [await find(reader, target) for target in targets]
    return list({row.session: row for row in rows}.values())


def remove_all(sessions: Sequence[str], data: Path) -> None:
    """Delete sessions with their sound, all or none. Must not be called on an event loop.

    Raises:
        Stop: a server uses the directory, or one of them has not ended.
    """
    try:
        anyio.run(remove, data, sessions)
    except (NotRemovable, DataDirectoryError, LogError) as error:
        raise Stop(f"nothing was removed: {error}", UNUSABLE) from error


def load(target: str, data: Path) -> LoadedLog:
    """Return the log of a session of `data`, or of a file that was exported. Must not be called on an event loop.

    Raises:
        Stop: neither can be read.
    """
    path = Path(target)
    if path.suffix == ".jsonl" or path.is_file():
        return read_export(path)
    return anyio.run(_load, target, data)


async def _load(target: str, data: Path) -> LoadedLog:
    async with reading(data) as reader:
        row = await find(reader, target)
        transactions = await whole(reader, row.session)
    return LoadedLog(header_of(row.session, transactions), transactions)


# -- exported files ------------------------------------------------------------------------------------------


def export_lines(log: LoadedLog) -> Iterator[bytes]:
    """Yield the lines of an exported log."""
    yield msgspec.json.encode(log.header) + b"\n"
    for transaction in log.transactions:
        yield to_json(transaction) + b"\n"


def write_export(path: Path, log: LoadedLog) -> None:
    """Write a log as lines of JSON: the header, then its transactions.

    Raises:
        Stop: the file cannot be written.
    """
    writable(path)
    try:
        with open(path, "wb") as file:
            file.writelines(export_lines(log))
    except OSError as error:
        raise Stop(f"cannot write {path}: {error.strerror}", UNUSABLE) from error


def read_export(path: Path) -> LoadedLog:
    """Read what `write_export` wrote.

    Raises:
        Stop: the file is missing, of another kind, cut off, or damaged.
    """
    try:
        lines = path.read_bytes().removeprefix(_MARK).rstrip().splitlines()
    except FileNotFoundError:
        raise Stop(f"there is no file {path}", UNUSABLE) from None
    except OSError as error:
        raise Stop(f"cannot read {path}: {error.strerror}", UNUSABLE) from error
    if not lines:
        raise Stop(f"{path} is empty", UNUSABLE)
    try:
        header = msgspec.json.decode(lines[0], type=LogHeader)
    except msgspec.DecodeError:
        raise Stop(f"{path} is no exported log: make one with `antiphon log export`", UNUSABLE) from None
    if header.antiphon_log != 1:
        raise Stop(f"{path} has layout {header.antiphon_log}, which a later version of antiphon wrote", UNUSABLE)
    transactions: list[Transaction] = []
    for number, line in enumerate(lines[1:], 2):
        try:
            transactions.append(from_json(line))
        except LaterLayout as error:
            raise Stop(f"{path} cannot be read from line {number} on: {error}", UNUSABLE) from error
        except msgspec.DecodeError as error:
            raise Stop(f"{path} is damaged in line {number}: {error}", UNUSABLE) from error
        if transactions[-1].seq != number - 1:
            raise Stop(f"{path} is not whole: line {number} is transaction {transactions[-1].seq}", UNUSABLE)
    if len(transactions) != header.transactions:
        raise Stop(
            f"{path} is cut off: {header.transactions} transactions are announced, {len(transactions)} are there",
            UNUSABLE,
        )
    return LoadedLog(header, transactions)
