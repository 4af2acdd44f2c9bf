"""What waits for a runner: commands in their order, except that cancel-like ones pass sound."""

from collections import deque
from collections.abc import Callable
from typing import TypeVar, get_args

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


def place(waiting: deque[T], passes: Callable[[T], bool]) -> int:
    """Return the index behind the last of `waiting` that may not be passed."""
    at = len(waiting)
    while at and passes(waiting[at - 1]):
        at -= 1
    return at


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
    """The commands that wait. `clients` counts those of clients, `queued_bytes` what they weigh: the state does not
    count these bytes yet (E12)."""

    def __init__(self) -> None:
        self.clients = 0
        self.queued_bytes = 0
        self._items: deque[Item] = deque()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def others(self) -> int:
        """Commands that wait and come from stages, timers or the engine."""
        return len(self._items) - self.clients

    def put(self, item: Item) -> None:
        """Add a command."""
        kind = type(item.command)
        if kind in FROM_CLIENTS:
            self.clients += 1
            self.queued_bytes += item.size
            if kind in URGENT and not counted(item.command):
                self._overtake(item)
                return
        self._items.append(item)

    def take(self) -> Item:
        """Remove the next one."""
        item = self._items.popleft()
        self._forget(item)
        return item

    def discard(self) -> list[Item]:
        """Remove what clients have asked for, but not a close, which is answered (M8, M9)."""
        dropped = [item for item in self._items if type(item.command) in DISCARDED]
        self._items = deque(item for item in self._items if type(item.command) not in DISCARDED)
        for item in dropped:
            self._forget(item)
        return dropped

    def clear(self) -> list[Item]:
        """Remove all."""
        return [self.take() for _ in range(len(self._items))]

    def _overtake(self, item: Item) -> None:
        at = place(self._items, _passed)
        if type(item.command) in CLEARING:
            for passed in [self._items.pop() for _ in range(len(self._items) - at)][::-1]:
                if isinstance(passed.command, AppendAudio):
                    self._forget(passed)
                else:
                    self._items.append(passed)
        self._items.insert(at, item)

    def _forget(self, item: Item) -> None:
        if type(item.command) in FROM_CLIENTS:
            self.clients -= 1
            self.queued_bytes -= item.size


def _passed(item: Item) -> bool:
    command = item.command
    if isinstance(command, AppendAudio):
        return command.client_seq is None
    return isinstance(command, StageReport)
