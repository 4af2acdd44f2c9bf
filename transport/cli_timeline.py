"""`antiphon log timeline`: a session as one page that needs nothing else, and as a trace."""

from pathlib import Path

import anyio

from . import cli_logs
from .cli_errors import UNUSABLE, Stop
from .cli_files import writable
from .perfetto import trace
from .session_page import session_page


def write_page(target: str, data: Path, out: Path) -> int:
    """Write the page of a session of `data`, or of an exported one; return its bytes.

    Raises:
        Stop: the log cannot be read, or the page cannot be written.
    """
    writable(out)
    log = cli_logs.load(target, data)
    return _written(out, anyio.run(session_page, log.transactions, log.read))


def write_trace(target: str, data: Path, out: Path) -> int:
    """Write the trace of a session, for ui.perfetto.dev; return its bytes.

    Raises: as `write_page`.
    """
    writable(out)
    return _written(out, trace(cli_logs.load(target, data).transactions))


def _written(out: Path, body: bytes) -> int:
    try:
        out.write_bytes(body)
    except OSError as error:
        raise Stop(f"cannot write {out}: {error.strerror}", UNUSABLE) from error
    return len(body)
