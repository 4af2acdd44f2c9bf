"""Walking a log: the state behind any transaction, where to go from there, and what changed on the way.

Pure: it knows a list of transactions and folds it. Nothing is decided, sent or asked of a stage. A place is the
number of a transaction, and means the moment behind it; 0 is the moment before the first. States are lent as plain
values (`engine/changes.py`), for who may not know the core.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec import json

from antiphon.events import events as ev
from antiphon.events.ids import last_seen
from antiphon.events.log import Transaction
from antiphon.sessions import core

from .changes import Change, Plain, changes, plain
from .faults import FAULTS

EVERY = 500
"""Transactions between two states that are kept, at least; going back folds no more than that."""
MOST_KEPT = 200

MOST_DIGITS = 18
"""Of a number that is taken for a transaction; Python reads no number of thousands of them."""

TURNS = (ev.InputCommitted, ev.ResponseCreated)
"""Where a turn begins: the user's is complete, or an answer is begun."""
INTERRUPTIONS = (ev.Interrupted, ev.InterruptionSuspected)


class NoSuchPlace(Exception):
    """There is no such moment in the log. The message says which there are."""


class Broken(Exception):
    """The events of a transaction cannot have followed what is before it: nothing is known from there on."""

    def __init__(self, seq: int, why: str) -> None:
        """Take the place and the reason; the message says both."""
        super().__init__(f"transaction {seq} cannot follow what stands before it: {why}")
        self.seq = seq


class Walk:
    """A log that can be looked at from any place, going back as quickly as forward."""

    def __init__(self, transactions: Sequence[Transaction], every: int | None = None) -> None:
        """Stand before the first transaction; these must be numbered 1, 2, 3 …"""
        self.transactions = transactions
        self.head = len(transactions)
        self._every = every or max(EVERY, self.head // MOST_KEPT)
        self._kept: dict[int, bytes] = {}
        self._session = core.new()
        self._at = 0

    def at(self, seq: int) -> Transaction | None:
        """Return a transaction; None for 0, which is before the first.

        Raises:
            NoSuchPlace: there is none.
        """
        if not 0 <= seq <= self.head:
            raise NoSuchPlace(f"there is no transaction {seq}: the log has 1 to {self.head:,}")
        return self.transactions[seq - 1] if seq else None

    def seconds(self, seq: int) -> float:
        """Return when a transaction happened, in seconds since the first."""
        found = self.at(seq)
        return 0.0 if found is None else (found.at - self.transactions[0].at) / 1e6

    # -- the state -------------------------------------------------------------------------------------------

    def state(self, seq: int) -> Plain:
        """Return the state behind a transaction.

        Raises:
            NoSuchPlace: there is none.
            Broken: some transaction up to there cannot be folded.
        """
        return plain(self._folded(seq))

    def changes(self, before: int, after: int) -> list[Change]:
        """Return what differs between the states at two places; raises as `state` does."""
        first = self.state(before)
        return changes(first, self.state(after))

    def _folded(self, seq: int) -> core.Session:
        """Return the state behind a transaction, which is this walk's own."""
        self.at(seq)
        if seq < self._at:
            self._go_back(seq)
        for transaction in self.transactions[self._at : seq]:
            try:
                if self._at % self._every == 0 and self._at not in self._kept:
                    self._kept[self._at] = core.dump(self._session)
                core.fold([transaction], self._session)
            except FAULTS as error:  # a log may come from anybody
                self._go_back(self._at)  # the state is spoiled
                raise Broken(transaction.seq, f"{type(error).__name__}: {error}") from error
            self._at += 1
        return self._session

    def _go_back(self, seq: int) -> None:
        self._at = max((place for place in self._kept if place <= seq), default=0)
        self._session = core.load(self._kept[self._at]) if self._at else core.new()

    # -- places ----------------------------------------------------------------------------------------------

    def next_turn(self, seq: int) -> int | None:
        """Return where the next turn begins behind a place; None: there is none."""
        return self._next(seq, _has(TURNS))

    def previous_turn(self, seq: int) -> int | None:
        """Return where the last turn before a place began."""
        return self._previous(seq, _has(TURNS))

    def next_interruption(self, seq: int) -> int | None:
        """Return the next place at which an answer was, or may have been, interrupted."""
        return self._next(seq, _has(INTERRUPTIONS))

    def previous_interruption(self, seq: int) -> int | None:
        """Return the last such place before."""
        return self._previous(seq, _has(INTERRUPTIONS))

    def find(self, kind: str, seq: int) -> int | None:
        """Return the next transaction with a command or an event of a type that has these letters in its name."""
        return self._next(seq, _of_type(kind.casefold()))

    def find_back(self, kind: str, seq: int) -> int | None:
        """Return the last such transaction before."""
        return self._previous(seq, _of_type(kind.casefold()))

    def place(self, words: str) -> int:
        """Return the place that somebody means: `412`, `12.5s`, or an id, also the beginning of one.

        A time is the last transaction that had happened by then. The id of a message that a client was sent names
        the transaction that it comes from; the id of anything else, the first one that mentions it.

        Raises:
            NoSuchPlace: there is none, or it is none of these.
        """
        text = words.strip()
        if text.isdecimal() and len(text) <= MOST_DIGITS:
            seq = int(text)
            self.at(seq)
            return seq
        if text.endswith("s") and (seconds := _number(text[:-1])) is not None:
            origin = self.transactions[0].at if self.transactions else 0
            return sum(entry.at - origin <= seconds * 1e6 for entry in self.transactions)
        message = last_seen(text)
        if message is not None:
            self.at(message.seq)
            return message.seq
        wanted = f'"{text}'.encode()
        for entry in self.transactions if len(text) > 3 else ():
            if wanted in json.encode(entry):
                return entry.seq
        raise NoSuchPlace(
            f"there is no {text!r} in the log: give a number from 0 to {self.head:,}, a time like 12.5s, or an id"
        )

    def _next(self, seq: int, wanted: Callable[[Transaction], bool]) -> int | None:
        return _first(self.transactions[max(seq, 0) :], wanted)

    def _previous(self, seq: int, wanted: Callable[[Transaction], bool]) -> int | None:
        return _first(reversed(self.transactions[: max(seq - 1, 0)]), wanted)


def _first(transactions: Iterable[Transaction], wanted: Callable[[Transaction], bool]) -> int | None:
    return next((entry.seq for entry in transactions if wanted(entry)), None)


def _has(kinds: tuple[type[ev.Event], ...]) -> Callable[[Transaction], bool]:
    return lambda entry: any(isinstance(event, kinds) for event in entry.events)


def _of_type(letters: str) -> Callable[[Transaction], bool]:
    return lambda entry: any(letters in type(part).__name__.casefold() for part in (entry.command, *entry.events))


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if 0 <= found < float("inf") else None
