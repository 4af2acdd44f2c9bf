"""What waits for a runner: commands in their order, except that cancel-like ones pass sound."""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar, get_args

from msgspec import Struct

from antiphon.events.commands import (
    AnyCommand,
    AppendAudio,
    BargeIn,
    CancelInput,
    CancelResponse,
    ClearOutput,
    ClientCommand,
    CloseSession,
    Command,
    ReportRefusal,
    StageReport,
)
from antiphon.sessions import core

from .outcome import Reply

CLIENT_INBOX = 16_384
"""Commands of clients that may wait; more are refused. What they weigh is bounded as well, with the sound."""

REFUSALS_INBOX = 2 * CLIENT_INBOX
"""Commands of clients that may wait where a refusal asks to be let in."""

URGENT_INBOX = REFUSALS_INBOX + 64
"""Commands of clients that may wait where a cancel-like one asks to be let in: they have room of their own."""

URGENT: frozenset[type[Command]] = frozenset({CancelResponse, BargeIn, ClearOutput, CloseSession, CancelInput})
"""Commands that pass what nobody waits for: sound, and the reports of stages. They never pass another command of
the client, which may be the very one that they cancel, and keep their place if they are counted (DESIGN 5.9)."""

CLEARING: frozenset[type[Command]] = frozenset({BargeIn, CancelInput})
"""Urgent commands that drop the input: the sound that they pass is dropped with it."""

FROM_CLIENTS: frozenset[type[Command]] = frozenset(
    kind
    for kind in get_args(AnyCommand)
    if issubclass(kind, ClientCommand) or kind in (CloseSession, ReportRefusal)
)

DISCARDED: frozenset[type[Command]] = FROM_CLIENTS - {CloseSession}
"""Commands that are dropped without an answer when they wait behind the end of their session (M9)."""

Prepare = Callable[[core.Session, AnyCommand], AnyCommand]
"""Completes a command just before it is decided."""

T = TypeVar("T")


def counted(command: Command) -> bool:
    """Return whether the command carries an exactly-once number, which holds only in the order of sending."""
    return isinstance(command, ClientCommand) and command.client_seq is not None


def urgent(command: Command) -> bool:
    """Return whether the command may pass sound that waits."""
    return type(command) in URGENT and not counted(command)


class Line(Generic[T]):
    """A queue in which urgent ones pass those at its end that may be passed, whatever waits: in constant time.

    `_kept` and `_droppable` are what stands behind the last one that may not be passed: what is left when it is
    passed, and what may go. Both are numbered, which tells their common order.
    """

    def __init__(self) -> None:
        self._fixed: deque[T] = deque()
        self._kept: deque[tuple[int, T]] = deque()
        self._droppable: deque[tuple[int, T]] = deque()
        self._number = 0
        self.size = 0
        """How many there are; a number, because it is asked for all the time."""

    def __len__(self) -> int:
        return self.size

    @property
    def blocked(self) -> bool:
        """Whether there is one that may not be passed."""
        return bool(self._fixed)

    def add(self, item: T) -> None:
        """Put one at the end that may not be passed."""
        while self._kept or self._droppable:
            self._fixed.append(self._next().popleft()[1])
        self._fixed.append(item)
        self.size += 1

    def add_passable(self, item: T, *, droppable: bool = True) -> None:
        """Put one at the end that may be passed."""
        self._number += 1
        self.size += 1
        (self._droppable if droppable else self._kept).append((self._number, item))

    def overtake(self, item: T) -> None:
        """Let one pass all that may be passed."""
        self._fixed.append(item)
        self.size += 1

    def drop(self) -> list[T]:
        """Remove what may be passed and dropped."""
        dropped = [item for _, item in self._droppable]
        self._droppable.clear()
        self.size -= len(dropped)
        return dropped

    def first(self) -> T | None:
        """Return the one whose turn it is."""
        if self._fixed:
            return self._fixed[0]
        return self._next()[0][1] if self._kept or self._droppable else None

    def take(self) -> T:
        """Remove the one whose turn it is.

        Raises:
            IndexError: nothing waits.
        """
        taken = self._fixed.popleft() if self._fixed else self._next().popleft()[1]
        self.size -= 1
        return taken

    def clear(self) -> list[T]:
        """Remove all."""
        return [self.take() for _ in range(self.size)]

    def _next(self) -> deque[tuple[int, T]]:
        if not self._kept or not self._droppable:
            return self._kept or self._droppable
        return min(self._kept, self._droppable, key=lambda items: items[0][0])


class Item(Struct):
    """A command with its sound, who wants the answer, what completes it, and who is told when it is decided.

    `size` is what it weighs against the session's credit: its bytes on the wire. `wanted` says whether anybody
    still waits for it; if not, it is not decided.
    """

    command: AnyCommand
    sound: bytes = b""
    size: int = 0
    reply: Reply | None = None
    prepare: Prepare | None = None
    taken: Callable[[], None] | None = None
    wanted: Callable[[], bool] | None = None


class Inbox:
    """The commands that wait, `size` of them. `clients` counts those of clients, `queued_bytes` what they weigh:
    the state does not count these bytes yet (E12)."""

    def __init__(self) -> None:
        self.size = 0
        self.clients = 0
        self.queued_bytes = 0
        self._items: Line[Item] = Line()

    def __len__(self) -> int:
        return self.size

    @property
    def others(self) -> int:
        """Commands that wait and come from stages, timers or the engine."""
        return self.size - self.clients

    def put(self, item: Item) -> None:
        """Add a command."""
        command = item.command
        kind = type(command)
        self.size += 1
        if kind in FROM_CLIENTS:
            self.clients += 1
            self.queued_bytes += item.size
        if isinstance(command, AppendAudio) and command.client_seq is None:
            self._items.add_passable(item)
        elif isinstance(command, StageReport):
            self._items.add_passable(item, droppable=False)
        elif urgent(command):
            if kind in CLEARING:
                for passed in self._items.drop():
                    self._forget(passed)
            self._items.overtake(item)
        else:
            self._items.add(item)

    def take(self) -> Item:
        """Remove the next one."""
        item = self._items.take()
        self._forget(item)
        return item

    def discard(self) -> list[Item]:
        """Remove what clients have asked for, but not a close, which is answered (M8, M9)."""
        dropped: list[Item] = []
        for item in self.clear():
            if type(item.command) in DISCARDED:
                dropped.append(item)
            else:
                self.put(item)
        return dropped

    def clear(self) -> list[Item]:
        """Remove all."""
        return [self.take() for _ in range(self.size)]

    def _forget(self, item: Item) -> None:
        self.size -= 1
        if type(item.command) in FROM_CLIENTS:
            self.clients -= 1
            self.queued_bytes -= item.size
