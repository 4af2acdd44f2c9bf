"""What comes of forking: a log, where each of its entries comes from, and what of the origin is not in it."""

from typing import Literal

from msgspec import Struct, field

from antiphon.events.log import Transaction

Source = Literal["prefix", "decided", "edited", "recorded", "assumed", "timer", "live", "missing"]
"""Where an entry of a fork comes from.

`prefix`: it is as it was. `decided`: a command of the origin, decided anew. `edited`: a command of the edits.
`recorded`: what a stage said in the origin to the same. `assumed`: what it said in the same turn, asked otherwise.
`timer`: time had come. `live`: what a stage said just now. `missing`: it stands for an answer that nobody has.
"""


class Entry(Struct, frozen=True):
    """Where transaction `seq` of a fork comes from, and (`origin`) which of the origin it is, if any.

    `same`: it decided what it had decided in the origin.
    """

    seq: int
    source: Source
    origin: int | None = None
    same: bool = True


class Left(Struct, frozen=True):
    """A transaction of the origin that is not in the fork, and why."""

    origin: int
    why: str


class Forked(Struct):
    """A fork: its log, where each entry comes from, and what of the origin is not in it.

    `unheeded` are lines of the edits that came to nothing: what they let come decided nothing, or answers nothing.
    """

    session: str
    at: int
    transactions: list[Transaction] = field(default_factory=list[Transaction])
    entries: list[Entry] = field(default_factory=list[Entry])
    left: list[Left] = field(default_factory=list[Left])
    unheeded: list[int] = field(default_factory=list[int])


class Circling(Exception):
    """A fork would go on for ever without any time passing; `seq` is its last entry."""

    def __init__(self, seq: int) -> None:
        super().__init__(f"the fork runs in a circle at its transaction {seq}")
        self.seq = seq
