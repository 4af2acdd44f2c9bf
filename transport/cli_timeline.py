"""`antiphon log timeline`: a session as one page that needs nothing else."""

from pathlib import Path

import anyio

from antiphon.engine.datadir import DataPaths
from antiphon.engine.sample_store import SampleReader

from . import cli_logs
from .cli_errors import UNUSABLE, Stop
from .cli_files import writable
from .session_page import session_page


def write_page(target: str, data: Path, out: Path) -> int:
    """Write the page of a session of `data`, or of an exported one (with the sound in `data`); return its bytes.

    Raises:
        Stop: the log cannot be read, or the page cannot be written.
    """
    writable(out)
    log = cli_logs.load(target, data)
    page = anyio.run(session_page, log.transactions, SampleReader(DataPaths(data).samples))
    try:
        out.write_bytes(page)
    except OSError as error:
        raise Stop(f"cannot write {out}: {error.strerror}", UNUSABLE) from error
    return len(page)
