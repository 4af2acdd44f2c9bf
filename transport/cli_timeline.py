"""`antiphon log timeline`: a session as one page that needs nothing else, and as a trace."""

from pathlib import Path

import anyio

from . import cli_logs
from .cli_errors import UNUSABLE, Stop
from .cli_files import writable
from .perfetto import trace
from .session_page import session_page


def write_page(log: cli_logs.LoadedLog, out: Path) -> int:
    """Write the page of a log; return its bytes.

    Raises:
        Stop: it cannot be written.
    """
    writable(out)
    return _written(out, anyio.run(session_page, log.transactions, log.read))


def write_trace(log: cli_logs.LoadedLog, out: Path) -> int:
    """Write the trace of a log, for ui.perfetto.dev; return its bytes.

    Raises: as `write_page`.
    """
    writable(out)
    return _written(out, trace(log.transactions))


def _written(out: Path, body: bytes) -> int:
    try:
        out.write_bytes(body)
    except OSError as error:
        raise Stop(f"cannot write {out}: {error.strerror}", UNUSABLE) from error
    return len(body)
