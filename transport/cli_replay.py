"""The proof that a log decides the same events again, as a verdict and in words."""

from collections.abc import Iterator

import msgspec
from msgspec import UNSET, Struct, UnsetType
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from antiphon.engine.changes import Plain
from antiphon.engine.errors import UnknownPlugin
from antiphon.engine.replay import Difference, ReplayResult, replay
from antiphon.engine.walk import Broken, NoSuchPlace, Walk
from antiphon.events.log import BEHAVIOUR

from .cli_errors import UNUSABLE, Stop
from .cli_logs import LoadedLog, LogHeader
from .cli_progress import progress
from .cli_state import print_changes, shown, tree
from .cli_step import step
from .cli_terminal import screen
from .plain import plain


class Verdict(Struct, frozen=True, kw_only=True):
    """What `antiphon replay --json` prints."""

    identical: bool
    commands: int
    events: int
    first_difference: Difference | None
    seconds: float
    """What it took."""
    session_s: float
    """How long the session lasted."""
    speed: float
    events_per_s: float
    damage: str = ""
    """Why the log ends here although more was recorded; what stands before it was replayed."""
    until: int | UnsetType = UNSET
    state: Plain | UnsetType = UNSET


class Outcome(Struct, frozen=True):
    """A verdict, and what was replayed."""

    verdict: Verdict
    header: LogHeader


def place(walk: Walk, words: str) -> int:
    """Return the transaction that an option means.

    Raises:
        Stop: there is none.
    """
    try:
        return walk.place(words)
    except NoSuchPlace as error:
        raise Stop(str(error), UNUSABLE) from error


def run(log: LoadedLog, until: str | None = None, *, state: bool = False) -> Outcome:
    """Decide every command again, up to `until`, and compare; with `state`, say what is true there.

    What a damaged log holds before the damage is replayed, and the verdict says why that is not all; if it is all
    that was asked for, there is nothing to say.

    Raises:
        Stop: the log needs a plugin, or a version of one, that is not here; there is no such place in it; or its
            state cannot be folded.
    """
    walk = Walk(log.transactions)
    last = walk.head if until is None else place(walk, until)
    try:
        with progress("replaying", last) as told:
            result = replay(log.transactions[:last], told=told)
    except UnknownPlugin as error:
        raise Stop(str(error), UNUSABLE) from error
    verdict = _verdict(result)
    if until is not None:
        verdict = msgspec.structs.replace(verdict, until=last)
    elif log.damage:
        verdict = msgspec.structs.replace(verdict, until=last, damage=log.damage)
    if state:
        try:
            verdict = msgspec.structs.replace(verdict, until=last, state=walk.state(last))
        except Broken as error:
            raise Stop(f"{error}; the state before it is whole", UNUSABLE) from error
    return Outcome(verdict, log.header)


def walk_through(log: LoadedLog, start: str | None, *, usable: bool) -> None:
    """Walk through the log by hand, from `start` on.

    Raises:
        Stop: there is no such place in it, or other options were given that say something else.
    """
    if not usable:
        raise Stop("--step shows the state by itself, and is no JSON; leave the other option out", UNUSABLE)
    walk = Walk(log.transactions)
    if log.damage:
        screen(stderr=True).print(f"[yellow]{escape(plain(log.damage))}[/]")
    step(walk, screen(), min(1, walk.head) if start is None else place(walk, start))


def _verdict(result: ReplayResult) -> Verdict:
    return Verdict(
        identical=result.identical,
        commands=result.commands,
        events=result.events,
        first_difference=result.first_difference,
        seconds=round(result.seconds, 6),
        session_s=result.session_s,
        speed=round(result.speed, 1),
        events_per_s=round(result.events_per_s, 1),
    )


def tell(console: Console, outcome: Outcome) -> None:
    """Say it in words."""
    verdict = outcome.verdict
    console.print(_sentence(outcome))
    if verdict.first_difference is not None:
        _tell_difference(console, verdict.first_difference)
    if not isinstance(verdict.state, UnsetType):
        console.print(tree(f"state behind transaction {verdict.until}", verdict.state))
        console.print("[dim]what is empty is not shown; --json shows all[/]")


def _sentence(outcome: Outcome) -> str:
    verdict, header = outcome.verdict, outcome.header
    session = escape(plain(header.session))
    if verdict.identical:
        where = "" if isinstance(verdict.until, UnsetType) else f" up to transaction {verdict.until:,}"
        return (
            f"[bold green]identical[/]: {verdict.commands:,} commands of {session}{where} decided the same "
            f"{verdict.events:,} events again, {verdict.speed:,.0f} times faster than they happened "
            f"({verdict.session_s:,.1f} s in {verdict.seconds:,.3f} s, {verdict.events_per_s:,.0f} events/s)"
        )
    why = ""
    if header.behaviour != BEHAVIOUR:
        why = f" (it was decided by behaviour {header.behaviour}; this is {BEHAVIOUR})"
    return f"[bold red]different[/]: {session}{why}{_where(verdict.first_difference)}"


def _where(found: Difference | None) -> str:
    if found is None:
        return ""
    return f", first in transaction {found.seq}, event {found.index}, at {found.at / 1e6:.3f} s"


def _tell_difference(console: Console, found: Difference) -> None:
    for name, text in _facts(found):
        console.print(f"  [bold]{name:<11}[/] {escape(plain(text))}")
    if found.fields:
        console.print("  [bold]fields[/]      recorded [dim]→[/] now")
        print_changes(console, found.fields)
    else:
        for name, event in (("recorded", found.expected), ("now", found.actual)):
            _tell_event(console, name, event)
    if found.around:
        console.print(
            "  [bold]state[/]       before [dim]→[/] behind what was recorded [dim]|[/] behind what is decided now"
        )
    width = max((len(around.path) for around in found.around), default=0)
    for around in found.around:
        colour = "red" if around.recorded != around.now else "cyan"
        path = escape(plain(f"{around.path:<{width}}"))
        sides = f"{shown(around.recorded)} [dim]|[/] {shown(around.now)}"
        console.print(f"  [{colour}]{path}[/]  {shown(around.before)} [dim]→[/] {sides}")


def _tell_event(console: Console, name: str, event: str | None) -> None:
    """Print an event that has no counterpart of its kind."""
    if event is None:
        console.print(f"  [bold]{name:<11}[/] nothing: there is no such event")
        return
    fields: dict[str, Plain] = msgspec.json.decode(event)
    console.print(Padding(tree(f"{name:<11} {fields.pop('type')}", fields), (0, 0, 0, 2), expand=False))


def _facts(found: Difference) -> Iterator[tuple[str, str]]:
    yield "command", f"{found.command}, which {found.handler} decides"
    why = "drafted by" if found.failed is None else "failed in"
    for name, code in zip((why, *[""] * len(found.decided_by)), found.decided_by, strict=False):
        yield name, str(code)
    if found.failed is not None:
        yield "failed", found.failed
    if found.refused is not None:
        yield "refused", f"{found.refused}; when it was recorded it was not"
    if found.rules:
        yield "rules", f"{', '.join(found.rules)} (named where the event is described)"
    if found.fields:
        event: dict[str, Plain] = msgspec.json.decode(found.expected or "{}")
        yield "event", f"{event.get('type')}, but not the same"
