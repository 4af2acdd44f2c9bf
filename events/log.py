"""The log: what is recorded, and the contract of whoever keeps it."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec
from msgspec import Struct

from .audio import SampleRef
from .commands import AnyCommand
from .events import AnyEvent, PublicEvent
from .upcast import LAYOUT, upcast
from .upcast import LaterLayout as LaterLayout

BEHAVIOUR = 1
"""The behaviour of `decide`: raised when the same commands give other events. An exported log names it."""


class Transaction(Struct, frozen=True, kw_only=True, gc=False):
    """One command and the events it decided: one record of the log.

    `seq` counts 1, 2, 3 … in the session; `term` is the writer's; `at` is session time in microseconds. `v` is the
    layout of the record, and its last field, by which a reader knows at a glance that it needs no upcaster.
    """

    seq: int
    term: int
    at: int
    command: AnyCommand
    events: tuple[AnyEvent, ...]
    v: int = LAYOUT


class SampleWrite(Struct, frozen=True):
    """Bytes that belong to a transaction, and where the core said they lie."""

    ref: SampleRef
    data: bytes


class SessionRow(Struct, frozen=True, kw_only=True):
    """One line of the session index, written in the same transaction as the log.

    `imported`: it was recorded elsewhere, and is here to be looked at.
    """

    session: str
    kind: Literal["voice", "job"]
    state: Literal["open", "closed"]
    dialect: str
    model: str
    plugin: str
    plugin_version: str
    opened_us: int
    at: int
    term: int
    head: int
    imported: bool = False


class Snapshot(Struct, frozen=True, kw_only=True):
    """A folded state after transaction `seq`, encoded; `version` is the state's own (another is ignored)."""

    seq: int
    version: int
    state: bytes


class LogError(Exception):
    """The log could not do what was asked."""


class Fenced(LogError):
    """The writer's term is not the session's current one: somebody else may write now."""


class Conflict(LogError):
    """The record does not follow the last one."""


class Unavailable(LogError):
    """The store cannot write or read now (disk full, closed, locked); nothing was recorded."""


class Corrupt(LogError):
    """The record `seq` is there and cannot be trusted (`why`); those before it are whole."""

    def __init__(self, seq: int, why: str) -> None:
        """Take the place and the reason; the message says both."""
        super().__init__(f"record {seq} is damaged: {why}")
        self.seq = seq
        self.why = why


class LaterRecord(Corrupt):
    """The record `seq` is whole, and of a later version: it is left as it is, for that version to read."""

    def __init__(self, seq: int, why: str) -> None:
        """Take the place and the reason; the message says both."""
        super().__init__(seq, why)
        self.args = (f"record {seq} cannot be read: {why}",)


class Malformed(Unavailable):
    """The store's own file is damaged, or is none: no session is at fault, and asking again does not help."""


class SoundGone(Unavailable):
    """The bytes are not there, and will not be: past their retention, lost, or never written."""


class PastRetention(SoundGone):
    """The bytes were let go on purpose: they are past their retention."""


class UnknownSession(LogError):
    """There is no such session."""


Settled = Callable[[LogError | None], None]
"""Called once for an append, on the event loop, in the order of the appends: None when it is durable."""


class EventLog(Protocol):
    """An append-only list of transactions for each session.

    Appending never waits: the answer comes by `settled`. All other calls may.
    """

    async def acquire(self, session: str) -> int:
        """Return a new term for the session (1 for a new one): every older writer is fenced from here on.

        Raises:
            Unavailable: the store cannot be written.
        """
        ...

    def append(
        self, session: str, transaction: Transaction, samples: Sequence[SampleWrite], settled: Settled
    ) -> None:
        """Record `transaction` if its term is current and its `seq` follows the last one.

        The bytes of `samples` are written just before the record. The outcome is given to `settled`: None,
        `Fenced`, `Conflict` or `Unavailable`. After a failure every later append of the same term fails too.
        """
        ...

    async def read(self, session: str, after: int, limit: int = 1000) -> list[Transaction]:
        """Return up to `limit` durable transactions with `seq > after`, oldest first.

        What stands before a damaged record is returned; a call that would have to begin with it raises.

        Raises:
            UnknownSession: nothing was ever recorded for it.
            Corrupt: the first record to return is damaged or missing.
            Unavailable: the store cannot be read.
        """
        ...

    async def locate(self, session: str, number: int) -> int:
        """Return the `seq` after which the messages numbered above `number` begin (0: from the beginning).

        That is one less than the first transaction with `highest_number(transaction) > number`, or the last
        `seq` if there is none.
        """
        ...

    async def sessions(self, state: Literal["open", "closed"] | None = None) -> list[SessionRow]:
        """Return the index, newest first."""
        ...

    async def save_snapshot(self, session: str, snapshot: Snapshot) -> None:
        """Keep a snapshot; only the latest counts."""
        ...

    async def load_snapshot(self, session: str) -> Snapshot | None:
        """Return the latest snapshot, if there is one."""
        ...

    async def trim(self, session: str, through: int) -> None:
        """Forget transactions up to `through`; only of a closed session."""
        ...

    async def delete(self, session: str) -> None:
        """Forget the session, its snapshot and its samples."""
        ...

    async def probe(self) -> None:
        """Write a little and take it back: whether a session could be recorded now, with its sound.

        Raises:
            Unavailable: it could not.
        """
        ...

    async def aclose(self) -> None:
        """Settle what was appended and close."""
        ...


class Samples(Protocol):
    """The bytes of sound and images beside the log."""

    async def read(self, session: str, ref: SampleRef) -> bytes:
        """Return the bytes of `ref`.

        Raises:
            UnknownSession: there are no samples of this session.
            SoundGone: they were never written, are lost, or are past their retention.
            Unavailable: they cannot be read now.
        """
        ...


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Transaction)
_json_encoder = msgspec.json.Encoder()
_json_decoder = msgspec.json.Decoder(Transaction)

encode: Callable[[Transaction], bytes] = _encoder.encode
"""Encode a transaction for the store."""


_CURRENT = b"\xa1v" + _encoder.encode(LAYOUT)
_JSON_CURRENT = b'"v":%d}' % LAYOUT
"""How a record of the present layout ends: looking there costs a fortieth of decoding it."""


def decode(data: bytes) -> Transaction:
    """Decode what `encode` made, or the `encode` of an earlier version.

    Raises:
        LaterLayout: a later version made it.
        msgspec.ValidationError: it is not a transaction of any version.
        msgspec.DecodeError: it is not msgpack.
    """
    if data.endswith(_CURRENT):
        return _decoder.decode(data)
    return msgspec.convert(upcast(msgspec.msgpack.decode(data)), Transaction)


def to_json(transaction: Transaction) -> bytes:
    """Encode as one line of an exported log."""
    return _json_encoder.encode(transaction)


def from_json(line: bytes | str) -> Transaction:
    """Decode one line of an exported log, of this version or an earlier one; raises as `decode` does."""
    data = line.encode() if isinstance(line, str) else line
    try:
        if data.endswith(_JSON_CURRENT):
            return _json_decoder.decode(data)
        return msgspec.convert(upcast(msgspec.json.decode(data)), Transaction)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deeply") from None


def canonical(events: Sequence[AnyEvent]) -> list[bytes]:
    """Return the canonical encoding of each event, which replay compares."""
    return [_encoder.encode(event) for event in events]


def highest_number(transaction: Transaction) -> int:
    """Return the number of the last numbered message of a transaction; 0 if it has none."""
    last = 0
    for event in transaction.events:
        if isinstance(event, PublicEvent) and event.number:
            last = event.number + event.count - 1
    return last
