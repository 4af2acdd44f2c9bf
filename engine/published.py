"""A durable transaction on its way out."""

from typing import Literal

import msgspec
from msgspec import Struct, field

from antiphon.events.audio import SampleRef
from antiphon.events.events import (
    AttachmentWithdrawn,
    AudioDelta,
    AudioReceived,
    CommandSequenced,
    ContinuationPlanned,
    Event,
    PlaybackAcknowledged,
    PublicEvent,
    RequestAccepted,
    ResponseEnded,
    SessionClosed,
    SessionDetached,
    SessionResumed,
    SessionTouched,
    SpeechStarted,
    SpeechStopped,
    UnitsAccepted,
    UnitTaken,
)
from antiphon.events.log import Transaction

Loss = Literal["closed", "replaced", "detached", "withdrawn"]
"""How a connection loses its session."""

OVERHEAD = 512
"""What an entry counts for besides its sound and its words; stands for the frame of its messages."""

_WORDLESS: frozenset[type[Event]] = frozenset(
    {
        AudioDelta,
        AudioReceived,
        CommandSequenced,
        ContinuationPlanned,
        PlaybackAcknowledged,
        RequestAccepted,
        SessionTouched,
        SpeechStarted,
        SpeechStopped,
        UnitTaken,
        UnitsAccepted,
    }
)
"""Events that come all the time and have no words to speak of: weighing them would cost more than they do."""

_TURNING: frozenset[type[Event]] = frozenset({SessionClosed, SessionResumed, SessionDetached, AttachmentWithdrawn})


class Published(Struct, gc=False):
    """A durable transaction and what belongs to it.

    `sound` holds the bytes of its `AudioDelta` events. `cache` is the transports': messages encoded once per
    dialect. `epoch` is the first one whose sound is not void, behind the transaction (0 when it was read from the
    store). `words` is how many bytes of words its events hold. `end` counts the feed's bytes up to and with it;
    `number` is the last public number then (of one read from the store, its own, or 0). `turning`: it changes who
    is attached, or ends the session. `public`: it is told to clients. `ends_turn`: a response has ended.

    No cycle can go through it, so the collector need not know it: the tails of all sessions are most of what a
    server keeps, and each full collection would walk them all.
    """

    transaction: Transaction
    sound: dict[SampleRef, bytes]
    epoch: int = 0
    words: int = 0
    end: int = 0
    number: int = 0
    turning: bool = False
    public: bool = False
    ends_turn: bool = False
    cache: dict[str, object] = field(default_factory=dict[str, object])

    @property
    def seq(self) -> int:
        """The transaction's place in the log."""
        return self.transaction.seq

    @property
    def size(self) -> int:
        """Bytes that a reader has to carry for it, roughly."""
        size = OVERHEAD + self.words
        if self.sound:
            for data in self.sound.values():
                size += len(data)
        return size


def published(transaction: Transaction, sound: dict[SampleRef, bytes], epoch: int = 0) -> Published:
    """Wrap a transaction; what it is like is found in its events."""
    entry = Published(transaction, sound, epoch)
    for event in transaction.events:
        kind = type(event)
        if kind not in _WORDLESS:
            entry.words += len(_encode(event))
            entry.turning = entry.turning or kind in _TURNING
            entry.ends_turn = entry.ends_turn or kind is ResponseEnded
        if isinstance(event, PublicEvent):
            entry.public = True
    return entry


_encode = msgspec.msgpack.Encoder().encode


def loss(transaction: Transaction, attachment: int | None, generation: int | None) -> Loss | None:
    """Return how the transaction takes the session from a connection, None if it does not.

    `attachment` and `generation` are the connection's attachment and lease generation; None stands for a reader
    that is no connection, whom only the end concerns.
    """
    lost: Loss | None = None
    for event in transaction.events:
        match event:
            case SessionClosed():
                return "closed"
            case SessionResumed(attachment=newer) if attachment is not None and newer > attachment:
                lost = "replaced"
            case SessionDetached(generation=given_up) if given_up == generation:
                lost = "detached"
            case AttachmentWithdrawn(attachment=given_up) if given_up == attachment:
                lost = "withdrawn"
            case _:
                pass
    return lost


def deltas(transaction: Transaction) -> list[SampleRef]:
    """Return the places of the sound that a transaction shows to clients."""
    return [event.ref for event in transaction.events if isinstance(event, AudioDelta) and event.ref.size]
