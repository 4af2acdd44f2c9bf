"""Names in a fork: what a session called itself, its items, answers and requests, and what its fork calls them."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct

from antiphon.events import commands as cmd
from antiphon.events import ids
from antiphon.sessions.core import Session

from .likeness import NAME, rebuilt

Told = TypeVar("Told", bound=cmd.Command)

NAMELESS: tuple[type[cmd.Command], ...] = (
    cmd.AppendAudio,
    cmd.Heartbeat,
    cmd.Tick,
    cmd.CommitInput,
    cmd.AppendText,
)
"""Commands that name nothing; most of a log is of them."""


class Counted(Struct, frozen=True):
    """How many names of each kind a session has given."""

    items: int = 0
    responses: int = 0
    calls: int = 0


def counted(session: Session) -> Counted:
    """Return how many names a session has given."""
    counters = session.counters
    return Counted(counters.items, counters.responses, counters.calls)


def given(session: str, before: Counted, after: Counted) -> dict[str, list[str]]:
    """Return the names that a session gave between two moments, by kind and in their order."""
    return {
        "item": [ids.item_id(session, number) for number in range(before.items + 1, after.items + 1)],
        "response": [ids.response_id(session, n) for n in range(before.responses + 1, after.responses + 1)],
        "call": [ids.call_id(session, number) for number in range(before.calls + 1, after.calls + 1)],
    }


class NeverNamed(Exception):
    """A command speaks of something that has no counterpart in the fork."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Names:
    """Which name of the origin stands for which of the fork, both ways.

    A name that the origin gave itself and that nothing in the fork stands for is an error; every other text stays
    as it is: clients may have names of their own, and a fork has the same.
    """

    def __init__(self, origin: str, fork: str, all_given: Counted) -> None:
        self.origin = origin
        self.fork = fork
        self._forth = {origin: fork, ids.conversation_id(origin): ids.conversation_id(fork)}
        self._back = {known: name for name, known in self._forth.items()}
        every = given(origin, Counted(), all_given)
        self._known = {name for kind in every.values() for name in kind}
        self._known |= {ids.assistant_item_id(response) for response in every["response"]}

    def pair(self, origin: str, fork: str) -> None:
        """Let a name of the origin stand for one of the fork; each stands for one other, the first it was given."""
        if origin in self._forth or fork in self._back:
            return
        self._forth[origin], self._back[fork] = fork, origin
        if origin.startswith("resp_"):
            self.pair(ids.assistant_item_id(origin), ids.assistant_item_id(fork))

    def pair_given(self, origin: Mapping[str, list[str]], fork: Mapping[str, list[str]]) -> None:
        """Pair names that both gave because of the same command, where both gave as many."""
        for kind, names in origin.items():
            theirs = [name for name in names if name not in self._forth]
            ours = [name for name in fork[kind] if name not in self._back]
            if len(theirs) == len(ours):
                for one, other in zip(theirs, ours, strict=True):
                    self.pair(one, other)

    def forth(self, name: str) -> str:
        """Return what the fork calls something of the origin.

        Raises:
            NeverNamed: nothing in the fork stands for it.
        """
        found = self._forth.get(name)
        if found is not None:
            return found
        if name in self._known or self._request(name):
            raise NeverNamed(name)
        return NAME.sub(lambda found: self._forth.get(found[0], found[0]), name)

    def back(self, name: str) -> str | None:
        """Return what the origin calls something of the fork; None: there is no such thing in it."""
        return self._back.get(name)

    def paired(self, name: str) -> bool:
        """Whether something in the fork stands for this name of the origin."""
        return name in self._forth

    def _request(self, name: str) -> bool:
        parsed = ids.parse_request(name)
        return parsed is not None and parsed.session == self.origin

    def command(self, command: Told) -> Told:
        """Return a command of the origin as the fork would be told it.

        Raises:
            NeverNamed: it speaks of something that has no counterpart.
        """
        if isinstance(command, NAMELESS):
            return command
        moved: Told = msgspec.convert(rebuilt(msgspec.to_builtins(command), self.forth), type(command))
        return moved
