"""Where a log comes from: a session in a data directory, or an exported file; and how one is removed."""

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib import metadata
from pathlib import Path

import anyio
import msgspec
from msgspec import UNSET, Struct, UnsetType

from antiphon.engine.bundle import SUFFIX
from antiphon.engine.bundle_reader import Bundle, BundleError, is_bundle
from antiphon.engine.datadir import DataDirectoryError, DataPaths
from antiphon.engine.fork_note import ForkNote
from antiphon.engine.plausible import implausible
from antiphon.engine.retention import NotRemovable, remove
from antiphon.engine.sample_store import SampleReader
from antiphon.engine.sqlite_reader import SqliteReader
from antiphon.events.audio import SampleRef
from antiphon.events.events import SessionOpened
from antiphon.events.log import (
    BEHAVIOUR,
    Corrupt,
    LaterLayout,
    LogError,
    Samples,
    SessionRow,
    Transaction,
    UnknownSession,
    from_json,
    to_json,
)

from .cli_errors import UNUSABLE, Stop
from .cli_files import writable
from .cli_progress import progress

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
    fork: ForkNote | UnsetType = UNSET
    """Of a fork: where it comes from, and what was changed."""


class Silence:
    """Samples of a log that came without any."""

    async def read(self, session: str, ref: SampleRef) -> bytes:
        """Raise `UnknownSession`."""
        raise UnknownSession(f"no samples of {session}: {ref} is elsewhere")


class LoadedLog(Struct, frozen=True):
    """A log, read as a whole, and what gives its samples, wherever both came from.

    `await log.read(ref)` is the one way to the sound: of a session its files, of a bundle the bundle, of a `.jsonl`
    the data directory, if it still holds the session. Who needs a `Samples` takes `samples` with `stored_as`, which
    is another name than the log's own if it was imported under another.
    """

    header: LogHeader
    transactions: list[Transaction]
    samples: Samples = Silence()
    stored_as: str = ""
    damage: str = ""
    """Why it ends here although more was recorded."""

    async def read(self, ref: SampleRef) -> bytes:
        """Return the bytes of `ref`; raises as `Samples.read` says."""
        return await self.samples.read(self.stored_as or self.header.session, ref)


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
    reader = SqliteReader(existing(data))
    try:
        yield reader
    except Corrupt as error:
        raise Stop(f"{error}; what stands before it is whole", UNUSABLE) from error
    except LogError as error:
        raise Stop(str(error), UNUSABLE) from error
    finally:
        await reader.aclose()


def existing(data: Path) -> DataPaths:
    """Return the names in a data directory that holds a log; raises `Stop` if there is none."""
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


async def pages(reader: SqliteReader, session: str, head: int) -> AsyncIterator[list[Transaction]]:
    """Yield the log up to transaction `head`, a page at a time."""
    after = 0
    while after < head and (page := await reader.read(session, after, min(BATCH, head - after))):
        yield page
        after = page[-1].seq


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


def load(target: str, data: Path, *, damaged: bool = False) -> LoadedLog:
    """Return the log of a session of `data`, or of an exported file or bundle, with the way to its samples.

    The one door for everything that reads logs. Must not be called on an event loop; the log's `read` may.

    Of one that is `damaged`, if that is wanted, what stands before the damage.

    Raises:
        Stop: none of them can be read.
    """
    path = file_of(target)
    if path is None:
        return anyio.run(_load, target, data, damaged)
    if is_bundle(path):
        return read_bundle(path, damaged=damaged)
    log = read_export(path, damaged=damaged)
    return msgspec.structs.replace(log, samples=SampleReader(DataPaths(data).samples))


def file_of(target: str) -> Path | None:
    """Return the file that a target names; None if it names a session."""
    path = Path(target)
    try:
        return path if path.suffix in (".jsonl", SUFFIX) or path.is_file() else None
    except OSError:  # no file is called so, or nobody may look
        return None


async def _load(target: str, data: Path, damaged: bool) -> LoadedLog:
    async with reading(data) as reader:
        row = await find(reader, target)
        head, damage = await reader.readable(row.session) if damaged else (row.head, "")
        if damage and not head:
            raise Stop(damage, UNUSABLE)
        transactions: list[Transaction] = []
        with progress("reading", head) as told:
            async for page in pages(reader, row.session, head):
                transactions += page
                told(len(page))
    return LoadedLog(header_of(row.session, transactions), transactions, reader.samples, row.session, damage)


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


def read_export(path: Path, *, damaged: bool = False) -> LoadedLog:
    """Read what `write_export` wrote; of a `damaged` file, if that is wanted, what stands before the damage.

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
    header = header_in(path, lines[0])
    transactions, damage = _gathered(transactions_in(path, header, lines[1:]), damaged)
    return LoadedLog(header, transactions, damage=damage)


def _gathered(found: Iterator[Transaction], damaged: bool) -> tuple[list[Transaction], str]:
    """Return the transactions, and what is wrong behind them; raises `Stop` unless they may be `damaged`."""
    transactions: list[Transaction] = []
    try:
        for entry in found:
            transactions.append(entry)  # noqa: PERF402  # those before the damage are wanted
    except Stop as stop:
        if not damaged or not transactions:
            raise
        return transactions, stop.message
    return transactions, ""


def header_in(path: Path, line: bytes) -> LogHeader:
    """Return what the first line of an exported log says.

    Raises:
        Stop: it is none, or of a later layout.
    """
    try:
        header = msgspec.json.decode(line, type=LogHeader)
    except (msgspec.DecodeError, RecursionError):
        raise Stop(f"{path} is no exported log: make one with `antiphon log export`", UNUSABLE) from None
    if header.antiphon_log != 1:
        raise Stop(f"{path} has layout {header.antiphon_log}, which a later version of antiphon wrote", UNUSABLE)
    return header


def transactions_in(path: Path, header: LogHeader, lines: Iterable[bytes]) -> Iterator[Transaction]:
    """Yield the transactions in the lines behind the first one.

    Raises:
        Stop: a line is damaged, or lacks; what was yielded before is whole.
    """
    seq = 0
    for seq, line in enumerate(lines, 1):
        try:
            transaction = from_json(line)
        except LaterLayout as error:
            raise Stop(f"{path} cannot be read from line {seq + 1} on: {error}", UNUSABLE) from error
        except msgspec.DecodeError as error:
            raise Stop(f"{path} is damaged in line {seq + 1}: {error}; {_before(seq)}", UNUSABLE) from error
        if transaction.seq != seq:
            raise Stop(
                f"{path} is not whole: line {seq + 1} is transaction {transaction.seq}; {_before(seq)}", UNUSABLE
            )
        if why := implausible(transaction):
            raise Stop(f"{path} is damaged in line {seq + 1}: {why}; {_before(seq)}", UNUSABLE)
        yield transaction
    if seq != header.transactions:
        raise Stop(
            f"{path} is cut off: {header.transactions} transactions are announced, {seq} are there", UNUSABLE
        )


def _before(seq: int) -> str:
    return f"what stands before transaction {seq} is whole"


# -- bundles -------------------------------------------------------------------------------------------------


@contextmanager
def bundled(path: Path) -> Generator[Bundle]:
    """Open a bundle, and say in one sentence what is wrong with it.

    Raises:
        Stop: it cannot be read, or what is read of it is damaged.
    """
    try:
        yield Bundle(path)
    except BundleError as error:
        raise Stop(f"{path} cannot be used: {error}", UNUSABLE) from error
    except OSError as error:
        raise Stop(f"cannot read {path}: {error.strerror}", UNUSABLE) from error


def read_bundle(path: Path, *, damaged: bool = False) -> LoadedLog:
    """Read a bundle, as `read_export` reads a log; its samples are read when they are asked for.

    Raises:
        Stop: it is damaged, cut off, or of a later layout.
    """
    with bundled(path) as bundle:
        lines = bundle.lines()
        header = header_in(path, next(lines, b""))
        transactions, damage = _gathered(transactions_in(path, header, lines), damaged)
        return LoadedLog(header, transactions, bundle, bundle.session, damage)
