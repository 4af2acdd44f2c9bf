"""The proof that a log decides the same events again, as a verdict and as a sentence."""

from msgspec import Struct
from rich.markup import escape

from antiphon.engine.errors import UnknownPlugin
from antiphon.engine.replay import Difference, replay
from antiphon.events.log import BEHAVIOUR

from .cli_errors import UNUSABLE, Stop
from .cli_logs import LoadedLog, LogHeader


class Verdict(Struct, frozen=True, kw_only=True):
    """What `antiphon replay --json` prints."""

    identical: bool
    commands: int
    events: int
    first_difference: Difference | None


class Outcome(Struct, frozen=True):
    """A verdict, how many times faster than the session it was reached, and what was replayed."""

    verdict: Verdict
    speed: float
    header: LogHeader


def run(log: LoadedLog) -> Outcome:
    """Decide every command again and compare.

    Raises:
        Stop: the log needs a plugin, or a version of one, that is not here.
    """
    try:
        result = replay(log.transactions)
    except UnknownPlugin as error:
        raise Stop(str(error), UNUSABLE) from error
    verdict = Verdict(
        identical=result.identical,
        commands=result.commands,
        events=result.events,
        first_difference=result.first_difference,
    )
    return Outcome(verdict, result.speed, log.header)


def sentence(outcome: Outcome) -> str:
    """Say it in words."""
    verdict, header = outcome.verdict, outcome.header
    if verdict.identical:
        return (
            f"[bold green]identical[/]: {verdict.commands:,} commands of {header.session} decided the same "
            f"{verdict.events:,} events again, {outcome.speed:,.0f} times faster than they happened"
        )
    why = ""
    if header.behaviour != BEHAVIOUR:
        why = f" (it was decided by behaviour {header.behaviour}; this is {BEHAVIOUR})"
    return f"[bold red]different[/]: {header.session}{why}{_where(verdict.first_difference)}"


def _where(found: Difference | None) -> str:
    if found is None:
        return ""
    expected, actual = (escape(text or "nothing") for text in (found.expected, found.actual))
    return f", first in transaction {found.seq}, event {found.index}:\n  recorded  {expected}\n  now       {actual}"
