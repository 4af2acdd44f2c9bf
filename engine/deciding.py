"""Which code decides: the handler that the dispatch table names, and the place where an event was drafted."""

import re
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType, FunctionType

from msgspec import Struct

from antiphon.events.commands import AnyCommand, ClientCommand
from antiphon.events.events import AnyEvent
from antiphon.sessions import core
from antiphon.sessions.draft import Draft
from antiphon.sessions.plugins import Registry
from antiphon.sessions.refusal import refuse

_FOLDER = Path(core.__file__).parent
_RULE = re.compile(r"\b[A-Z]\d{1,2}\b")

_FACE = (
    core.decide.__code__,
    core._decide_request.__code__,  # pyright: ignore[reportPrivateUsage]
    refuse.__code__,
)
"""Functions that decide nothing by themselves."""


class Code(Struct, frozen=True):
    """A function of the core, and a line of it."""

    function: str
    file: str
    line: int
    rules: tuple[str, ...] = ()
    """The rules of `docs/rules.md` that its docstring names; most name none."""

    def __str__(self) -> str:
        """Return it as editors find it."""
        rules = f" ({', '.join(self.rules)})" if self.rules else ""
        return f"{self.file}:{self.line} {self.function}{rules}"


class Decided(Struct, frozen=True):
    """The events of a decision, and for each of them the functions that led to it, the outermost first."""

    events: list[AnyEvent]
    paths: list[tuple[Code, ...]]
    refused: str | None = None
    """The code by which the command was refused, if it was."""


def handler(command: AnyCommand) -> Code:
    """Return the function that the dispatch table names for a command."""
    found = core.REQUESTS[type(command)] if isinstance(command, ClientCommand) else core.CONTROLS[type(command)]
    assert isinstance(found, FunctionType)
    return _code(found.__code__, found.__code__.co_firstlineno, found.__doc__)


def rules_of(event: AnyEvent) -> tuple[str, ...]:
    """Return the rules that the description of an event names."""
    return _rules(type(event).__doc__)


def decide_aloud(session: core.Session, command: AnyCommand, at: int, plugins: Registry) -> Decided:
    """Decide as `core.decide` does, and watch where each event is drafted: slow, and with the same outcome."""
    paths: dict[int, tuple[Code, ...]] = {}
    kept: list[AnyEvent] = []  # an id is an event's own as long as the event is there
    refusing: tuple[Code, ...] = ()

    def watch(frame: FrameType, what: str, _: object) -> None:
        nonlocal refusing
        if what != "call":
            return
        if frame.f_code is core.Refusal.__init__.__code__:
            refusing = _path(frame.f_back)
        elif frame.f_code is Draft.emit.__code__:
            event: AnyEvent = frame.f_locals["event"]
            kept.append(event)
            # What a refusal becomes is drafted by the face of the core, behind whoever refused.
            paths.setdefault(id(event), _path(frame.f_back) or refusing)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        events = core.decide(session, command, at, plugins)
    except core.Refusal as refusal:
        return Decided([], [], refusal.code)
    finally:
        sys.setprofile(before)
    return Decided(events, [paths.get(id(event), ()) for event in events])


def path_of(error: BaseException) -> tuple[Code, ...]:
    """Return the functions of the core that an error came through, the outermost first."""
    return _codes(traceback.walk_tb(error.__traceback__))


def _path(frame: FrameType | None) -> tuple[Code, ...]:
    """Return the functions of the core that led to a frame, the outermost first."""
    return _codes(reversed(list(traceback.walk_stack(frame))))


def _codes(places: Iterable[tuple[FrameType, int]]) -> tuple[Code, ...]:
    """Return those of some frames that belong to the core; its face decides nothing."""
    found: list[Code] = []
    for frame, line in places:
        code = frame.f_code
        if code not in _FACE and Path(code.co_filename).is_relative_to(_FOLDER):
            function = frame.f_globals.get(code.co_name)
            found.append(_code(code, line, function.__doc__ if isinstance(function, FunctionType) else None))
    return tuple(found)


def _code(code: CodeType, line: int, doc: str | None) -> Code:
    file = Path(code.co_filename).relative_to(_FOLDER)
    return Code(f"{file.stem}.{code.co_name}", f"{_FOLDER.name}/{file}", line, _rules(doc))


def _rules(doc: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_RULE.findall(doc or "")))
