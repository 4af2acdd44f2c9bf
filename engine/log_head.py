"""What both stores share: who may append next, and what a transaction changes in the session index."""

from collections.abc import Callable

from msgspec import Struct

from antiphon.events.events import PublicEvent, SessionClosed, SessionOpened
from antiphon.events.log import Conflict, Fenced, LogError, Transaction, Unavailable


class Head:
    """The end of one session's log as its owner sees it, with what was appended and not yet settled.

    The store belongs to one process (`engine/datadir.py`) and is appended to from one thread, so the
    compare-and-swap on (term, next sequence) is decided here, before bytes are written; the unique index of the
    database stands behind it.
    """

    __slots__ = ("acquiring", "failed", "key", "number", "seq", "term")

    def __init__(self, key: int = 0) -> None:
        """Start before the first record; `key` is the store's own name for the session."""
        self.key = key
        self.term = 0
        self.seq = 0
        self.number = 0
        self.acquiring = 0
        self.failed: LogError | None = None

    def refuses(self, transaction: Transaction) -> LogError | None:
        """Return why `transaction` may not be appended; None if it may."""
        if transaction.term != self.term or self.acquiring:
            return Fenced(f"term {transaction.term} is not the current one ({self.term})")
        if self.failed is not None:
            return again(self.failed)
        if transaction.seq != self.seq + 1:
            return Conflict(f"record {transaction.seq} does not follow {self.seq}")
        return None

    def advance(self, transaction: Transaction, number: int) -> None:
        """Take `transaction` as the last one; `number` is its highest."""
        self.seq = transaction.seq
        if number > self.number:
            self.number = number

    def fail(self, term: int, error: LogError) -> None:
        """Remember the first failure of the current term: nothing more may be appended in it."""
        if term == self.term and self.failed is None and not isinstance(error, Fenced):
            self.failed = error


def again(error: LogError) -> LogError:
    """Return the error of an append that comes after one that failed with `error`."""
    kind: Callable[[str], LogError] = Conflict if isinstance(error, Conflict) else Unavailable
    return kind(f"an earlier append of this term failed: {error}")


class Opened(Struct, frozen=True):
    """The first line of a session in the index."""

    dialect: str
    model: str
    plugin: str
    plugin_version: str
    opened_us: int


class Summary(Struct, frozen=True, gc=False):
    """What the store must know of a transaction without decoding it again."""

    number: int
    opened: Opened | None
    closed: bool


def summarise(transaction: Transaction) -> Summary:
    """Return its highest message number (0: none) and what it does to the session index."""
    number = 0
    opened: Opened | None = None
    closed = False
    for event in transaction.events:
        if not isinstance(event, PublicEvent):
            continue
        if event.number:
            number = event.number + event.count - 1
        if isinstance(event, SessionOpened):
            opened = Opened(
                event.view.dialect, event.view.config.model, event.plugin, event.plugin_version, event.wall_us
            )
        elif isinstance(event, SessionClosed):
            closed = True
    return Summary(number, opened, closed) if number or opened is not None or closed else _NOTHING


_NOTHING = Summary(0, None, closed=False)
