"""Where the programs of the command line write, and how they end: one sentence, an exit code, no traceback."""

import io
import os
import re
import sys
from collections.abc import Callable

from rich.console import Console, HighlighterType, JustifyMethod, OverflowMethod
from rich.markup import escape
from rich.style import Style
from rich.text import Text
from typer import Abort
from typer.exceptions import TyperException

from .cli_errors import FAILED, UNUSABLE, Stop
from .plain import plain, plain_json
from .wav import WavError

WIDE = 1000
"""Columns of what is no terminal: a pipe and a file get whole lines."""

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C has ended."""

_PLAIN = (
    (re.compile(r"Input should be a valid integer.*"), "it must be a whole number"),
    (re.compile(r"Input should be less than or equal to (\d+)"), r"it must be at most \1"),
    (re.compile(r"Input should be greater than or equal to (\d+)"), r"it must be at least \1"),
    (re.compile(r"Value error, "), ""),
    (re.compile(r"\. Did you mean (?:one of: )?(.*)"), r": did you mean \1"),
)
"""How the library that reads the options speaks, and what is said instead."""


class _Screen(Console):
    """A console on which no text moves the cursor: what looks like a control code is shown as it is written."""

    def render_str(
        self,
        text: str,
        *,
        style: str | Style = "",
        justify: JustifyMethod | None = None,
        overflow: OverflowMethod | None = None,
        emoji: bool | None = None,
        markup: bool | None = None,
        highlight: bool | None = None,
        highlighter: HighlighterType | None = None,
    ) -> Text:
        """Return what is shown of a text, whoever it comes from."""
        return super().render_str(
            plain(text, lines=True),
            style=style,
            justify=justify,
            overflow=overflow,
            emoji=emoji,
            markup=markup,
            highlight=highlight,
            highlighter=highlighter,
        )


def print_json(data: bytes) -> None:
    """Print JSON for programs; at a terminal it moves no cursor either."""
    sys.stdout.write(plain_json(data.decode()) + "\n")


def screen(*, stderr: bool = False) -> Console:
    """Return a console that breaks no line, whatever it writes to, and takes no word for a picture."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDE
    return _Screen(stderr=stderr, soft_wrap=True, highlight=False, emoji=False, width=width)


def colourful() -> bool:
    """Return whether standard error shows colours."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR")


def ended(name: str, command: Callable[[], object]) -> int:
    """Run a program and return its exit code, which is what `command` returns if that is a number.

    What goes wrong is told on standard error in one sentence behind `name`. Characters that the terminal does not
    know become question marks.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        code = command()
        sys.stdout.flush()
    except BrokenPipeError:  # `… | head` has seen enough
        _forget_output()
        return FAILED
    except (Stop, WavError, TyperException, OSError) as error:
        _tell(name, _sentence(error))
        if isinstance(error, OSError):
            _forget_output()
        return error.code if isinstance(error, Stop) else FAILED if isinstance(error, OSError) else UNUSABLE
    except Abort:
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _sentence(error: Exception) -> str:
    match error:
        case TyperException():
            return _usage(error)
        case OSError(filename=None):
            return f"the output cannot be written: {error.strerror or error}"
        case OSError():
            return f"cannot use {error.filename}: {error.strerror or error}"
        case _:
            return str(error)


def _usage(error: TyperException) -> str:
    """Say in plain words which option is wrong, and where all of them stand."""
    said = error.format_message().strip().rstrip(".?").replace("\n", " ")
    for theirs, ours in _PLAIN:
        said = theirs.sub(ours, said)
    # Only some of these errors know their command, by an attribute that has no public type.
    context = getattr(error, "ctx", None)
    command = "antiphon" if context is None else str(context.command_path)
    return f"{said[:1].lower()}{said[1:]}; `{command} --help` shows what can be given"


def _tell(name: str, message: str) -> None:
    try:
        screen(stderr=True).print(f"[bold red]{name}:[/] {escape(plain(message))}")
    except OSError:
        _forget_output()  # there is nobody left to tell


def _forget_output() -> None:
    """Send what is still in the buffers nowhere: at exit it would fail again, with a traceback."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
