"""Which entries of a log are meant: by their time, by the turn that they belong to, by what they are."""

from collections.abc import Sequence
from typing import get_args

from msgspec import Struct

from antiphon.events import events as ev
from antiphon.events.commands import AnyCommand
from antiphon.events.items import Message
from antiphon.events.log import Transaction

from .cli_errors import UNUSABLE, Stop

NAMES = tuple(kind.__name__ for kind in (*get_args(AnyCommand), *get_args(ev.AnyEvent)))
"""What commands and events are called."""


class Choice(Struct, frozen=True, kw_only=True):
    """What is asked for; None or empty: all of it. Times are seconds of session time, turns count from 1."""

    types: tuple[str, ...] = ()
    turn: int | None = None
    start_s: float | None = None
    end_s: float | None = None


def select(transactions: Sequence[Transaction], choice: Choice) -> list[Transaction]:
    """Return the entries that are meant, in their order.

    Raises:
        Stop: there is no command or event of that name, or no such turn.
    """
    first, behind = _turn(transactions, choice.turn)
    origin = transactions[0].at if transactions else 0
    names = {name for wanted in choice.types for name in _named(wanted)}
    return [
        transaction
        for transaction in transactions
        if first <= transaction.seq < behind
        and (choice.start_s is None or transaction.at - origin >= choice.start_s * 1e6)
        and (choice.end_s is None or transaction.at - origin <= choice.end_s * 1e6)
        and (not choice.types or not names.isdisjoint(_names(transaction)))
    ]


def _names(transaction: Transaction) -> set[str]:
    return {type(transaction.command).__name__, *(type(event).__name__ for event in transaction.events)}


def _named(wanted: str) -> frozenset[str]:
    """Return the names that a word means: the name itself, or all in which it stands."""
    word = wanted.casefold()
    found = [name for name in NAMES if name.casefold() == word]
    found = found or [name for name in NAMES if word in name.casefold()]
    if not found:
        raise Stop(
            f"there is no command or event {wanted!r}; `antiphon log show` prints how they are called", UNUSABLE
        )
    return frozenset(found)


def _turn(transactions: Sequence[Transaction], turn: int | None) -> tuple[int, int]:
    """Return the sequences between which a turn lies: from its first entry to before the next turn's."""
    last = transactions[-1].seq + 1 if transactions else 1
    if turn is None:
        return 0, last
    starts = turn_starts(transactions)
    if turn > len(starts):
        count = f"{len(starts)} turns" if len(starts) != 1 else "1 turn"
        raise Stop(f"there is no turn {turn}: the session has {count}", UNUSABLE)
    return starts[turn - 1], starts[turn] if turn < len(starts) else last


def turn_starts(transactions: Sequence[Transaction]) -> list[int]:
    """Return where each turn of the user begins: with its speech, its commit, or the message that was written."""
    starts: dict[str, int] = {}
    for transaction in transactions:
        for event in transaction.events:
            match event:
                case ev.SpeechStarted() | ev.InputTimedOut():
                    starts.setdefault(event.item_id, transaction.seq)
                case ev.InputCommitted() if not event.empty:
                    starts.setdefault(event.item_id, transaction.seq)
                case ev.ItemCreated(item=Message(role="user", id=item_id)):
                    starts.setdefault(item_id, transaction.seq)
                case _:
                    pass
    return list(starts.values())
