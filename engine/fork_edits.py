"""Edits of a log: commands that are dropped, replaced, put in between or added, as lines of JSON."""

from collections.abc import Iterable
from typing import get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from antiphon.events import commands as cmd
from antiphon.stages.base import AnyReport

from .fork_origin import Asked, Order, Origin, Said, operation_of
from .plausible import LONGEST_US


class EditError(Exception):
    """A line of edits cannot be used: which, why, and what would do."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line} of the edits: {why}")
        self.line = line


class Outside(Struct, frozen=True):
    """A command that no stage gave and no timer: where it stands in the fork, and where it comes from.

    `met` is the place whose numbers (connection, counter) it was written for: an index of `Origin.met`.
    """

    at: int
    order: Order
    command: cmd.AnyCommand
    met: int
    seq: int | None = None
    line: int = 0

    @property
    def edited(self) -> bool:
        """Whether it is of the edits: of line `line`."""
        return self.line > 0


class Line(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One edit: exactly one of the first four, a command where one is needed, and when it shall come."""

    drop: int | tuple[int, int] | UnsetType = UNSET
    replace: int | UnsetType = UNSET
    insert_after: int | UnsetType = UNSET
    append: dict[str, object] | UnsetType = UNSET
    command: dict[str, object] | UnsetType = UNSET
    at_us: int | UnsetType = UNSET


class Edits(Struct):
    """What is changed. `first` is the first transaction that is not as it was; None: all are."""

    dropped: set[int] = field(default_factory=set[int])
    outside: list[Outside] = field(default_factory=list[Outside])
    said: list[Said] = field(default_factory=list[Said])
    replaced: set[int] = field(default_factory=set[int])
    first: int | None = None
    last_at: int = 0
    lines: set[int] = field(default_factory=set[int])
    """Lines that let something come."""

    def gone(self, seq: int) -> bool:
        """Whether a transaction does not happen as it was recorded."""
        return seq in self.dropped or seq in self.replaced


_KINDS: dict[str, type[cmd.Command]] = {kind.__name__: kind for kind in get_args(cmd.AnyCommand)}


def parse(lines: Iterable[str | bytes], origin: Origin, at: int) -> Edits:
    """Return the edits that lines of JSON say; empty lines are passed over.

    `at` is the last transaction that stays as it is: 0 leaves all of them to the edits.

    Raises:
        EditError: a line is no edit, speaks of what is not there or stays, or has a command that is none.
    """
    edits = Edits()
    for number, line in enumerate(lines, 1):
        if line.strip():
            _Reader(edits, origin, at, number).take(line)
    return edits


class _Reader:
    """Reads one line into the edits."""

    def __init__(self, edits: Edits, origin: Origin, at: int, number: int) -> None:
        self.edits = edits
        self.origin = origin
        self.at = at
        self.number = number

    def fail(self, why: str) -> EditError:
        return EditError(self.number, why)

    def take(self, text: str | bytes) -> None:
        try:
            line = msgspec.json.decode(text, type=Line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self.fail(f"{error}; an edit has one of drop, replace, insert_after, append") from None
        wanted = [
            value for value in (line.drop, line.replace, line.insert_after, line.append) if value is not UNSET
        ]
        if len(wanted) != 1:
            raise self.fail("an edit has exactly one of drop, replace, insert_after, append")
        if not isinstance(line.drop, UnsetType):
            self.drop(line, line.drop)
        elif not isinstance(line.replace, UnsetType):
            self.replace(line, line.replace)
        elif not isinstance(line.insert_after, UnsetType):
            self.insert(line, line.insert_after)
        elif not isinstance(line.append, UnsetType):
            self.append(line, line.append)

    def drop(self, line: Line, span: int | tuple[int, int]) -> None:
        if line.command is not UNSET or line.at_us is not UNSET:
            raise self.fail("what is dropped has neither a command nor a time")
        first, last = (span, span) if isinstance(span, int) else span
        if last < first:
            raise self.fail(f"{first} to {last} is no span")
        single = first == last
        if first == 1:
            raise self.fail("a session begins with its one OpenSession: it cannot be dropped")
        for seq in range(self.known(first), self.known(last) + 1):
            if isinstance(self.origin.transactions[seq - 1].command, cmd.Tick):
                if single:
                    raise self.fail(
                        f"transaction {seq} is a timer, which rings by itself in a fork; it needs no edit"
                    )
                continue
            self.once(seq)
            self.edits.dropped.add(seq)

    def replace(self, line: Line, seq: int) -> None:
        before = self.origin.transactions[self.known(seq) - 1]
        if isinstance(before.command, cmd.Tick):
            raise self.fail(f"transaction {seq} is a timer, which rings by itself in a fork; it needs no edit")
        if line.command is UNSET and line.at_us is UNSET:
            raise self.fail("a replacement needs a command, or another time (at_us)")
        self.once(seq)
        command = before.command if isinstance(line.command, UnsetType) else self.command(line.command, seq - 1)
        if isinstance(before.command, cmd.OpenSession) != isinstance(command, cmd.OpenSession):
            raise self.fail(
                "a session begins with its one OpenSession: it can be changed and nothing else be put there"
            )
        self.edits.replaced.add(seq)
        self.put(command, self.when(line, before.at), (seq, 0), seq - 1, seq)

    def insert(self, line: Line, seq: int) -> None:
        if isinstance(line.command, UnsetType):
            raise self.fail("what is put in needs a command")
        if seq != self.at:
            self.known(seq)
        if seq < 1:
            raise self.fail("nothing comes before the opening of a session")
        self.touch(seq + 1)
        command = self.command(line.command, seq)
        self.put(command, self.when(line, self.origin.transactions[seq - 1].at), (seq, 2 + self.number), seq)

    def append(self, line: Line, given: dict[str, object]) -> None:
        if line.command is not UNSET:
            raise self.fail("what is added stands behind append, not behind command")
        last = len(self.origin.transactions)
        self.touch(last + 1)
        self.put(self.command(given, last), self.when(line, self.origin.end), (last, 2 + self.number), last)

    # -- pieces ----------------------------------------------------------------------------------------------

    def known(self, seq: int) -> int:
        last = len(self.origin.transactions)
        if not 1 <= seq <= last:
            raise self.fail(f"there is no transaction {seq}: the log has 1 to {last}")
        if seq <= self.at:
            raise self.fail(f"transaction {seq} stays as it is: the fork begins behind {self.at} (--at)")
        return seq

    def once(self, seq: int) -> None:
        if self.edits.gone(seq):
            raise self.fail(f"transaction {seq} is edited twice")
        self.touch(seq)

    def touch(self, seq: int) -> None:
        first = self.edits.first
        self.edits.first = seq if first is None else min(first, seq)

    def when(self, line: Line, otherwise: int) -> int:
        if isinstance(line.at_us, UnsetType):
            return otherwise
        earliest = self.origin.transactions[self.at - 1].at if self.at else self.origin.transactions[0].at
        if line.at_us < earliest:
            raise self.fail(f"the fork begins at {earliest} µs of session time; {line.at_us} is before that")
        if line.at_us > LONGEST_US:
            raise self.fail(f"no session goes on until {line.at_us} µs: {LONGEST_US} is the last moment")
        return line.at_us

    def command(self, given: dict[str, object], met: int) -> cmd.AnyCommand:
        """Return a command as a log has it; the connection need not be named."""
        kind = _KINDS.get(str(given.get("type")))
        if kind is None:
            raise self.fail(f"a command has a type, one of {', '.join(sorted(_KINDS))}")
        if kind is cmd.Tick:
            raise self.fail("timers ring by themselves in a fork; there is no Tick to give")
        unknown = sorted(given.keys() - {"type", *kind.__struct_fields__})
        if unknown:
            raise self.fail(f"{kind.__name__} has no {unknown[0]!r}; it has {', '.join(kind.__struct_fields__)}")
        if issubclass(kind, cmd.ClientCommand):
            given = {"attachment": self.origin.met[met].attachment, **given}
        try:
            command: cmd.AnyCommand = msgspec.convert(given, cmd.AnyCommand)
        except msgspec.ValidationError as error:
            raise self.fail(f"{kind.__name__}: {error}") from None
        if isinstance(command, cmd.StageReport) and command.request not in self.origin.requests:
            known = ", ".join(list(self.origin.requests)[:8]) or "none"
            raise self.fail(f"no stage was asked {command.request!r}; the log has the requests {known}")
        return command

    def put(self, command: cmd.AnyCommand, at: int, order: Order, met: int, seq: int | None = None) -> None:
        edits = self.edits
        edits.last_at = max(edits.last_at, at)
        edits.lines.add(self.number)
        if isinstance(command, cmd.StageReport):
            asked = self.origin.requests[command.request]
            edits.said.append(Said(seq, at, order, command, _cause(asked, command, order), self.number))
        elif isinstance(command, cmd.OpenSession) and order != (1, 0):
            raise self.fail("a session is opened once")
        else:
            edits.outside.append(Outside(at, order, command, met, seq, self.number))


def _cause(asked: Asked, report: AnyReport, order: Order) -> int:
    """Return which input a report answers that is said at a place of the origin."""
    earlier = Asked(asked.name, [known for known in asked.inputs if (known.seq, 0) < order])
    return max(earlier.cause(operation_of(report)), 0)


def outside(origin: Origin, edits: Edits, since: int) -> list[Outside]:
    """Return what comes from outside from transaction `since` on: as it was recorded, and edited."""
    kept = [
        Outside(entry.at, (entry.seq, 0), entry.command, entry.seq - 1, entry.seq)
        for entry in origin.transactions[since - 1 :]
        if not isinstance(entry.command, cmd.Tick | cmd.StageReport) and not edits.gone(entry.seq)
    ]
    return [*kept, *edits.outside]
