"""`antiphon serve`: the server, and what an operator is told while it runs."""

import logging
import os
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from textwrap import indent
from typing import TextIO

import structlog
from rich.console import Console
from rich.markup import escape
from structlog.typing import EventDict, ExcInfo

from antiphon.engine.datadir import DataDirectoryError
from antiphon.engine.restart import Restart
from antiphon.events.log import LogError, Malformed

from .cli_errors import UNUSABLE, Stop
from .cli_terminal import colourful, screen
from .keys import ApiKey, KeyFileError, given
from .pipelines import PipelineError
from .plain import plain
from .serve import ServeSettings, Told, chosen
from .serve import run as serve
from .server import Insecure
from .tls import TlsError


def run(settings: ServeSettings) -> None:
    """Serve until SIGINT or SIGTERM.

    Prints `listening on http://HOST:PORT` (https with TLS) to standard output when the port is open; everything
    else is told on standard error.

    Raises:
        Stop: what was chosen cannot be served.
    """
    log_to_stderr()
    try:
        serve(settings, _told(settings, screen(stderr=True)))
    except ExceptionGroup as group:  # what goes wrong inside the running hub comes in the wrapping of its tasks
        raise _explained(_innermost(group), settings) from group
    except (Insecure, PipelineError, KeyFileError, TlsError, DataDirectoryError, OSError, LogError) as error:
        raise _explained(error, settings) from error


def keys_given(texts: Sequence[str] | None) -> tuple[ApiKey, ...]:
    """Return the keys of `--api-key`, by their digests; the environment is cleared of them: stages inherit it."""
    os.environ.pop("ANTIPHON_API_KEY", None)
    return tuple(given(number, text) for number, text in enumerate(texts or (), 1))


def certificate(chain: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    """Return the two files of TLS, None without it.

    Raises:
        Stop: only one of them was named.
    """
    if chain is None and key is None:
        return None
    if chain is None or key is None:
        raise Stop("TLS needs both a certificate and its key: give --tls-cert and --tls-key", UNUSABLE)
    return chain, key


def _told(settings: ServeSettings, errors: Console) -> Told:
    """Return what is said to the operator when."""
    undetected: list[str] = []

    def listening(address: str) -> None:
        _say_address(address)
        errors.print(f"[dim]the sessions are kept in {escape(str(settings.data))}; Ctrl-C stops the server[/]")

    def ready() -> None:
        named = ": the models are loaded" if chosen(settings).stage.models else ""
        errors.print(f"[green]ready[/]{named}{', except the voice detector' if undetected else ''}")

    def unavailable(reason: str) -> None:
        errors.print(f"[bold red]antiphon:[/] the models cannot be loaded: {escape(reason)}")
        errors.print("[dim]The server goes on and refuses sessions; `antiphon doctor` says what is missing.[/]")

    def no_detector(reason: str) -> None:
        undetected.append(reason)
        errors.print(f"[bold red]antiphon:[/] the voice detector cannot be loaded: {escape(reason)}")
        errors.print("[dim]Loudness takes its place, which hears worse where it is noisy.[/]")

    def recovering(restart: Restart) -> None:
        errors.print(f"[dim]taking over the sessions of the last run: {restart.done:,} of {restart.left:,}[/]")

    def recovered(restart: Restart) -> None:
        missing = restart.left - restart.back - restart.ended
        ended = f", {restart.ended:,} ended with it" if restart.ended else ""
        damaged = f", {missing:,} could not be taken over: the log says why" if missing else ""
        errors.print(f"{_sessions(restart.back)} of the last run can be resumed{ended}{damaged}")

    def stopping() -> None:
        errors.print("[dim]stopping: clients are told, sessions are written down[/]")

    def stopped(left: int) -> None:
        errors.print(f"stopped; {f'{_sessions(left)} can be resumed' if left else 'no session is left to resume'}")

    return Told(
        listening=listening,
        ready=ready,
        unavailable=unavailable,
        undetected=no_detector,
        recovering=recovering,
        recovered=recovered,
        stopping=stopping,
        stopped=stopped,
    )


def _sessions(count: int) -> str:
    return "1 session" if count == 1 else f"{count:,} sessions"


class _Forwarded(logging.Handler):
    """Takes what libraries log in the standard way into the one log."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(
            record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info
        )


def _plain(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Keep what a line says within it: a client's words may be among them."""
    return {name: value if name == "exc_info" else _shown(value) for name, value in line.items()}


def _shown(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    return plain(value if isinstance(value, str) else repr(value))


def _traceback(out: TextIO, error: ExcInfo) -> None:
    """Write a traceback, moved in: none of its lines can be taken for a line of the log."""
    text = StringIO()
    structlog.dev.plain_traceback(text, error)
    out.write(indent(plain(text.getvalue(), lines=True), "    "))


def log_to_stderr() -> None:
    """Let the log go to standard error: to whatever that is when something is logged, not to today's."""
    renderer = structlog.dev.ConsoleRenderer(colors=colourful(), exception_formatter=_traceback)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            _plain,
            renderer,
        ],
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
    root = logging.getLogger()
    if not any(isinstance(handler, _Forwarded) for handler in root.handlers):
        root.addHandler(_Forwarded())


def _innermost(group: ExceptionGroup[Exception]) -> Exception:
    """Return the one error of a group, or the group itself if there are more."""
    if len(group.exceptions) != 1:
        return group
    inner = group.exceptions[0]
    if isinstance(inner, ExceptionGroup):
        return _innermost(inner)  # pyright: ignore[reportUnknownArgumentType]  (the check forgets what is inside)
    return inner


def _explained(error: Exception, settings: ServeSettings) -> Exception:
    """Return the sentence for an operator, or the error itself if it is a fault of ours."""
    match error:
        case Insecure():
            return Stop(
                f"{settings.host} can be reached from other machines: make a key with `antiphon keys add`, "
                "give one with --api-key, or say --insecure if that is meant",
                UNUSABLE,
            )
        case Malformed():
            return Stop(str(error), UNUSABLE)
        case LogError():
            return Stop(
                f"{error}; see that {settings.data} has room and can be written, or take another one with --data",
                UNUSABLE,
            )
        case PipelineError() | KeyFileError() | TlsError() | DataDirectoryError():
            return Stop(str(error), UNUSABLE)
        case OSError():
            return Stop(
                f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}; "
                "choose another with --host and --port (port 0 is any free one)",
                UNUSABLE,
            )
        case _:
            return error


def _say_address(address: str) -> None:
    try:
        sys.stdout.write(f"listening on {address}\n")
        sys.stdout.flush()
    except OSError as error:
        raise Stop(f"the output cannot be written: {error.strerror}") from error
