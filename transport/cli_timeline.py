"""`antiphon log timeline`: a session as one page that needs nothing else."""

from pathlib import Path

import anyio

from . import cli_logs
from .cli_errors import UNUSABLE, Stop
from .cli_files import writable
from .session_page import session_page


def write_page(target: str, data: Path, out: Path) -> int:
    """Write the page of a session of `data`, or of an exported one; return its bytes.

    Raises:
        Stop: the log cannot be read, or the page cannot be written.
    """
    writable(out)
    log = cli_logs.load(target, data)
    page = anyio.run(session_page, log.transactions, log.read)
    try:
        out.write_bytes(page)
    except OSError as error:
        raise Stop(f"cannot write {out}: {error.strerror}", UNUSABLE) from error
    return len(page)
