"""Replay: decide a recorded log again, and prove that the same commands give the same events."""

import time
from collections.abc import Iterable

from msgspec import Struct, json

from antiphon.events.events import AnyEvent, SessionOpened
from antiphon.events.log import Transaction, canonical
from antiphon.sessions import core
from antiphon.sessions.plugins import REGISTRY, Registry

from .errors import UnknownPlugin


class Difference(Struct, frozen=True):
    """The first place where the log and a new decision differ; events as JSON, None where one has no more."""

    seq: int
    index: int
    expected: str | None
    actual: str | None


class ReplayResult(Struct, frozen=True, kw_only=True):
    """What a replay found. `seconds` is what it took, `session_s` how long the session lasted."""

    identical: bool
    commands: int
    events: int
    first_difference: Difference | None
    seconds: float
    session_s: float

    @property
    def speed(self) -> float:
        """How many times faster than the session it was."""
        return self.session_s / self.seconds if self.seconds else 0.0


def replay(transactions: Iterable[Transaction], plugins: Registry = REGISTRY) -> ReplayResult:
    """Decide every recorded command on the state that the recorded events before it give.

    Times and terms are taken from the log, so they cannot differ. Behind the first difference nothing is decided
    any more, since no state can be trusted there; the rest is only counted.

    Raises:
        UnknownPlugin: the log needs a plugin, or a version of one, that is not in `plugins`.
    """
    session = core.new()
    commands = events = last_at = 0
    difference: Difference | None = None
    began = time.perf_counter()
    for transaction in transactions:
        _check_plugin(transaction, plugins)
        if difference is None:
            difference = _compare(transaction, _decide(session, transaction, plugins))
        if difference is None:
            for event in transaction.events:
                core.evolve(session, event, transaction.at)
        commands += 1
        events += len(transaction.events)
        last_at = transaction.at
    return ReplayResult(
        identical=difference is None,
        commands=commands,
        events=events,
        first_difference=difference,
        seconds=time.perf_counter() - began,
        session_s=last_at / 1e6,
    )


def _decide(session: core.Session, transaction: Transaction, plugins: Registry) -> list[AnyEvent]:
    try:
        return core.decide(session, transaction.command, transaction.at, plugins)
    except core.Refusal:
        return []  # a refused opening or resume is not recorded: that it is here is the difference


def _check_plugin(transaction: Transaction, plugins: Registry) -> None:
    for event in transaction.events:
        if isinstance(event, SessionOpened):
            plugin = plugins.get(event.plugin)
            if plugin is None or plugin.version != event.plugin_version:
                raise UnknownPlugin(event.plugin, event.plugin_version)


def _compare(transaction: Transaction, actual: list[AnyEvent]) -> Difference | None:
    if actual == list(transaction.events):
        return None
    recorded, decided = canonical(transaction.events), canonical(actual)
    for index in range(max(len(recorded), len(decided))):
        if recorded[index : index + 1] != decided[index : index + 1]:
            return Difference(transaction.seq, index, _json(transaction.events, index), _json(actual, index))
    return None


def _json(events: tuple[AnyEvent, ...] | list[AnyEvent], index: int) -> str | None:
    return json.encode(events[index]).decode() if index < len(events) else None
