"""Replay: decide a recorded log again, and prove that the same commands give the same events."""

import time
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct, UnsetType, json

from antiphon.events.events import AnyEvent, SessionOpened
from antiphon.events.log import Transaction, canonical
from antiphon.sessions import core
from antiphon.sessions.plugins import REGISTRY, Registry

from .changes import Change, Plain, changes, plain
from .deciding import Code, decide_aloud, handler, path_of, rules_of
from .errors import UnknownPlugin
from .faults import FAULTS

STEP = 1_000
"""Transactions after which who waits is told."""


class Around(Struct, frozen=True):
    """A place of the state that the recorded event or the one decided now writes: before both, and behind each."""

    path: str
    before: Plain
    recorded: Plain
    now: Plain


class Difference(Struct, frozen=True, kw_only=True):
    """The first place where the log and a new decision differ; events as JSON, None where one has no more."""

    seq: int
    index: int
    at: int
    command: str
    """The kind of the command."""
    handler: Code
    """What the dispatch table names for it."""
    decided_by: tuple[Code, ...] = ()
    """The functions that drafted the event now, the outermost first; empty: there is none."""
    rules: tuple[str, ...] = ()
    """The rules that the description of the event names."""
    refused: str | None = None
    """The code by which the command is refused now; it was not."""
    failed: str | None = None
    """What went wrong in the core, if nothing was decided because of that; `decided_by` says where."""
    expected: str | None
    actual: str | None
    fields: list[Change]
    """Where two events of one kind differ: as recorded, and now."""
    around: list[Around]


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

    @property
    def events_per_s(self) -> float:
        """How many events were decided, compared and folded in a second."""
        return self.events / self.seconds if self.seconds else 0.0


def replay(
    transactions: Iterable[Transaction],
    plugins: Registry = REGISTRY,
    told: Callable[[int], None] = lambda _: None,
) -> ReplayResult:
    """Decide every recorded command on the state that the recorded events before it give.

    Times and terms are taken from the log, so they cannot differ. Behind the first difference nothing is decided
    any more, since no state can be trusted there; the rest is only counted. `told` hears how many transactions were
    passed since it heard the last time.

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
            difference = _step(session, transaction, plugins)
        commands += 1
        events += len(transaction.events)
        last_at = transaction.at
        if commands % STEP == 0:
            told(STEP)
    return ReplayResult(
        identical=difference is None,
        commands=commands,
        events=events,
        first_difference=difference,
        seconds=time.perf_counter() - began,
        session_s=last_at / 1e6,
    )


def _step(session: core.Session, transaction: Transaction, plugins: Registry) -> Difference | None:
    """Decide a command, compare, and fold what was recorded."""
    index = 0
    try:
        try:
            actual = core.decide(session, transaction.command, transaction.at, plugins)
        except core.Refusal:
            actual = []  # a refused opening or resume is not recorded: that it is here is the difference
        if actual != list(transaction.events):
            recorded, decided = canonical(transaction.events), canonical(actual)
            for index in range(max(len(recorded), len(decided))):
                if recorded[index : index + 1] != decided[index : index + 1]:
                    return _difference(session, transaction, index, plugins)
        for index, event in enumerate(transaction.events):  # noqa: B007  # used where folding fails
            core.evolve(session, event, transaction.at)
    except FAULTS as error:
        return _failure(transaction, index, error)
    return None


def _check_plugin(transaction: Transaction, plugins: Registry) -> None:
    for event in transaction.events:
        if isinstance(event, SessionOpened):
            plugin = plugins.get(event.plugin)
            if plugin is None or plugin.version != event.plugin_version:
                raise UnknownPlugin(event.plugin, event.plugin_version)


# -- a difference --------------------------------------------------------------------------------------------


def _difference(session: core.Session, transaction: Transaction, index: int, plugins: Registry) -> Difference:
    """Say what differs, who decided it, and what it does to the state."""
    decided = decide_aloud(session, transaction.command, transaction.at, plugins)
    expected = _event(transaction.events, index)
    actual = _event(decided.events, index)
    event = actual if actual is not None else expected
    alike = expected is not None and type(expected) is type(actual)
    return Difference(
        seq=transaction.seq,
        index=index,
        at=transaction.at,
        command=type(transaction.command).__name__,
        handler=handler(transaction.command),
        decided_by=decided.paths[index] if actual is not None else (),
        rules=() if event is None else rules_of(event),
        refused=decided.refused,
        expected=_json(expected),
        actual=_json(actual),
        fields=changes(plain(expected), plain(actual)) if alike else [],
        around=_around(session, transaction, index, (expected, actual)),
    )


def _failure(transaction: Transaction, index: int, error: Exception) -> Difference:
    """Say that the core has failed, and where."""
    return Difference(
        seq=transaction.seq,
        index=index,
        at=transaction.at,
        command=type(transaction.command).__name__,
        handler=handler(transaction.command),
        decided_by=path_of(error),
        failed=f"{type(error).__name__}: {error}",
        expected=_json(_event(transaction.events, index)),
        actual=None,
        fields=[],
        around=[],
    )


def _event(events: tuple[AnyEvent, ...] | list[AnyEvent], index: int) -> AnyEvent | None:
    return events[index] if index < len(events) else None


def _json(event: AnyEvent | None) -> str | None:
    return None if event is None else json.encode(event).decode()


def _around(
    session: core.Session,
    transaction: Transaction,
    index: int,
    events: tuple[AnyEvent | None, AnyEvent | None],
) -> list[Around]:
    """Return the places of the state that either event writes, as they are before, and behind each of them."""
    begun = core.load(core.dump(session))
    for known in transaction.events[:index]:
        core.evolve(begun, known, transaction.at)
    before = plain(begun)
    behind = [_behind(begun, event, transaction.at) for event in events]
    found = [{change.path: change for change in changes(before, after)} for after in behind]
    return [
        place for path in {**found[0], **found[1]} for place in _places(path, *(side.get(path) for side in found))
    ]


def _behind(session: core.Session, event: AnyEvent | None, at: int) -> Plain:
    """Return the state behind an event; it changes nothing if it cannot have been written there."""
    twin = core.load(core.dump(session))
    try:
        if event is not None:
            core.evolve(twin, event, at)
    except FAULTS:  # the recorded one may be anything
        return plain(session)
    return plain(twin)


def _places(path: str, recorded: Change | None, now: Change | None) -> Iterator[Around]:
    """Yield what is at a place that was written; of what was written in two ways, only where these differ."""
    known = recorded or now
    assert known is not None
    before = _value(known.before)
    sides = [before if side is None else _value(side.after) for side in (recorded, now)]
    if any(not isinstance(side, (dict, list)) for side in sides) or sides[0] == sides[1]:
        yield Around(path, before, *sides)
        return
    for change in changes(*sides):
        yield Around(f"{path}.{change.path}", None, _value(change.before), _value(change.after))


def _value(found: Plain | UnsetType) -> Plain:
    return None if isinstance(found, UnsetType) else found
