"""`antiphon serve`: the server, and what an operator is told while it runs."""

import sys

import structlog
from rich.console import Console
from rich.markup import escape

from antiphon.engine.datadir import DataDirectoryError
from antiphon.events.log import LogError

from .cli_errors import UNUSABLE, Stop
from .pipelines import PipelineError
from .serve import ServeSettings, Told
from .serve import run as serve
from .server import Insecure


def run(settings: ServeSettings) -> None:
    """Serve until SIGINT or SIGTERM.

    Prints `listening on http://HOST:PORT` to standard output when the port is open; everything else is told on
    standard error.

    Raises:
        Stop: what was chosen cannot be served.
    """
    renderer = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso"), renderer],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    errors = Console(stderr=True, soft_wrap=True, highlight=False)

    def unavailable(reason: str) -> None:
        errors.print(f"[bold red]antiphon:[/] the models cannot be loaded: {escape(reason)}")
        errors.print("[dim]The server goes on and refuses sessions; `antiphon doctor` says what is missing.[/]")

    told = Told(
        listening=_say_address,
        ready=lambda: errors.print("[green]ready[/]: the models are loaded"),
        unavailable=unavailable,
    )
    try:
        serve(settings, told)
    except ExceptionGroup as group:  # what goes wrong inside the running hub comes in the wrapping of its tasks
        raise _explained(_innermost(group), settings) from group
    except (Insecure, PipelineError, DataDirectoryError, OSError, LogError) as error:
        raise _explained(error, settings) from error


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
                f"{settings.host} can be reached from other machines: set a key with --api-key, "
                "or say --insecure if that is meant",
                UNUSABLE,
            )
        case PipelineError() | DataDirectoryError() | LogError():
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
    sys.stdout.write(f"listening on {address}\n")
    sys.stdout.flush()
