"""Carrying a session to another machine: one file out of a data directory, and into another."""

import os
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Annotated, BinaryIO
from urllib.parse import quote

import anyio
import anyio.to_thread
import msgspec
import typer
from msgspec import Struct
from rich.markup import escape

from antiphon.engine import bundle
from antiphon.engine.adopting import adopt
from antiphon.engine.bundle_reader import is_bundle
from antiphon.engine.datadir import DataDirectoryError
from antiphon.events.audio import SampleRef
from antiphon.events.log import Conflict, LogError, Transaction, to_json

from . import cli_logs
from .cli_errors import UNUSABLE, Stop
from .cli_files import writable
from .cli_logs import LoadedLog, LogHeader
from .cli_options import DATA, DataOption, JsonOption, given, named
from .cli_progress import progress
from .cli_terminal import print_json, screen
from .plain import plain, plain_json

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}")
_DRAFT = ".part"


class Exported(Struct, frozen=True, kw_only=True):
    """What `antiphon log export --json` prints."""

    file: str
    session: str
    transactions: int
    sample_bytes: int | None = None
    """Bytes of sound and pictures in the file; None: it is a log alone."""
    missing_bytes: int = 0
    """Those that the log speaks of and that were not there any more."""
    damage: str = ""
    """Why the log ends here although more was recorded."""


class Imported(Struct, frozen=True, kw_only=True):
    """What `antiphon log import --json` prints."""

    session: str
    transactions: int
    sample_bytes: int


class _Source(Struct, frozen=True):
    """A log that is read a page at a time, and its samples."""

    name: str
    """What it is known by here; imported sessions may have another id in their log."""
    header: LogHeader
    pages: AsyncIterator[list[Transaction]]
    read: bundle.Read
    damage: str = ""


# -- export --------------------------------------------------------------------------------------------------


def export(target: str, data: Path, out: Path | None, *, with_samples: bool) -> Exported:
    """Write a session to one file, a piece at a time. Must not be called on an event loop.

    Raises:
        Stop: the session cannot be read, or the file cannot be written; then there is none, or the old one.
    """
    if out is not None and out != cli_logs.STANDARD_OUTPUT:
        writable(out)
    try:
        return anyio.run(_export, target, data, out, with_samples)
    except LogError as error:
        raise Stop(str(error), UNUSABLE) from error


async def _export(target: str, data: Path, out: Path | None, with_samples: bool) -> Exported:
    async with _opened(target, data) as source:
        session = source.header.session
        suffix = bundle.SUFFIX if with_samples else ".jsonl"
        path = out or Path(quote(source.name, safe="") + suffix)
        manifest: bundle.Manifest | None = None
        with _written(path) as file, progress("exporting") as told:
            if with_samples:
                header = msgspec.json.encode(source.header)
                manifest = await bundle.write(file, header, session, source.pages, source.read, told)
            else:
                await _write_lines(file, source, told, at_terminal=path == cli_logs.STANDARD_OUTPUT)
        return Exported(
            file=str(path),
            session=session,
            transactions=source.header.transactions,
            sample_bytes=None if manifest is None else manifest.sample_bytes,
            missing_bytes=0 if manifest is None else manifest.missing,
            damage=source.damage,
        )


async def write_bundle(path: Path, log: LoadedLog) -> None:
    """Write a log that was read as a whole to a bundle, with as much of its sound as there is.

    Raises:
        Stop: the file cannot be written.
    """
    writable(path)
    header = msgspec.json.encode(log.header)
    with _written(path) as file, progress("writing") as told:
        await bundle.write(file, header, log.header.session, _one(log.transactions), log.read, told)


async def _write_lines(file: IO[bytes], source: _Source, told: Callable[[int], None], *, at_terminal: bool) -> None:
    def shown(line: bytes) -> bytes:
        return plain_json(line.decode()).encode() if at_terminal else line

    file.write(shown(msgspec.json.encode(source.header) + b"\n"))
    async for page in source.pages:
        file.write(b"".join(shown(to_json(entry) + b"\n") for entry in page))
        told(len(page))


@asynccontextmanager
async def _opened(target: str, data: Path) -> AsyncGenerator[_Source]:
    """Open a session of `data`, or read a file, which is one session."""
    if cli_logs.file_of(target) is not None:
        log = await anyio.to_thread.run_sync(cli_logs.load, target, data)
        yield _Source(log.header.session, log.header, _one(log.transactions), log.read)
        return
    async with cli_logs.reading(data) as reader:
        row = await cli_logs.find(reader, target)
        first = await reader.read(row.session, 0, 1)
        head, damage = await reader.readable(row.session)
        header = msgspec.structs.replace(cli_logs.header_of(row.session, first), transactions=head)
        pages = cli_logs.pages(reader, row.session, head)
        yield _Source(row.session, header, pages, lambda ref: reader.samples.read(row.session, ref), damage)


async def _one(page: list[Transaction]) -> AsyncIterator[list[Transaction]]:
    yield page


@contextmanager
def _written(path: Path) -> Generator[BinaryIO]:
    """Lend a file that stands at `path` when all went well, and not before; `-` is standard output."""
    if path == cli_logs.STANDARD_OUTPUT:
        sys.stdout.flush()
        yield sys.stdout.buffer
        return
    special = path.exists() and not path.is_file()
    draft = path if special else path.with_name(path.name + _DRAFT)
    try:
        with open(draft, "wb") as file:
            yield file
        if not special:
            os.replace(draft, path)
    except BaseException as error:
        if not special:
            draft.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise Stop(f"cannot write {path}: {error.strerror}", UNUSABLE) from error
        raise


def tell(done: Exported) -> None:
    """Say in one line what was written."""
    sound = "" if done.sample_bytes is None else f", {_size(done.sample_bytes)} of sound and pictures"
    gone = f" ({_size(done.missing_bytes)} more were not there any more)" if done.missing_bytes else ""
    name = escape(plain(done.session))
    screen().print(f"{escape(done.file)}: {name}, {done.transactions:,} transactions{sound}{gone}")


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


# -- import --------------------------------------------------------------------------------------------------


def bring(
    file: Annotated[Path, typer.Argument(parser=named, metavar="FILE", help="What `antiphon log export` wrote.")],
    data: DataOption = DATA,
    name: Annotated[
        str | None, typer.Option("--as", parser=given, metavar="ID", help="Keep it under this name.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """
    Bring a session that was exported elsewhere into a data directory, with its sound. No server may be using it.

        antiphon log import session.antiphon --data antiphon-data

        antiphon log import session.antiphon --as the-bug

    It is there to be looked at: no server goes on with it and no client resumes it. `antiphon log rm` removes it.
    """
    done = import_file(file, data, name)
    if as_json:
        print_json(msgspec.json.encode(done))
        return
    sound = f", {_size(done.sample_bytes)} of sound and pictures" if done.sample_bytes else ""
    screen().print(f"imported {escape(plain(done.session))}: {done.transactions:,} transactions{sound}")


def import_file(path: Path, data: Path, name: str | None) -> Imported:
    """Record an exported log, and the samples that a bundle has, all or nothing. Blocks.

    Raises:
        Stop: the file cannot be used, the name is taken or is none, or the directory is in use.
    """
    if name is not None and not _NAME.fullmatch(name):
        raise Stop(
            f"{name!r} is no name: take up to 100 letters, digits and _ . : -, a letter or digit first", UNUSABLE
        )
    if not is_bundle(path):
        log = cli_logs.read_export(path)
        return _adopt(data, name, log.header, iter(log.transactions), lambda _: None)
    with cli_logs.bundled(path) as found:
        lines = found.lines()
        header = cli_logs.header_in(path, next(lines, b""))
        found.check()
        return _adopt(data, name, header, cli_logs.transactions_in(path, header, lines), found.read_now)


def _adopt(
    data: Path,
    name: str | None,
    header: LogHeader,
    transactions: Iterator[Transaction],
    read: Callable[[SampleRef], bytes | None],
) -> Imported:
    first = next(transactions, None)
    if first is None or cli_logs.header_of(header.session, [first]).session != header.session:
        raise Stop(f"the log is not that of {plain(header.session)}, as its first line says", UNUSABLE)
    if name is None and not _NAME.fullmatch(header.session):
        raise Stop("the session's id is none that a session here could have; give another with --as", UNUSABLE)
    session = name or header.session
    with progress("importing", header.transactions) as told:

        def passed() -> Iterator[Transaction]:
            for entry in chain([first], transactions):
                if entry.seq % cli_logs.BATCH == 0:
                    told(cli_logs.BATCH)
                yield entry

        try:
            found = adopt(data, session, passed(), read)
        except Conflict as error:
            hint = "" if name is not None else "; keep it under another name with --as"
            raise Stop(f"nothing was imported: {error}{hint}", UNUSABLE) from error
        except (DataDirectoryError, LogError) as error:
            raise Stop(f"nothing was imported: {error}", UNUSABLE) from error
    return Imported(session=session, transactions=found.transactions, sample_bytes=found.sample_bytes)
