"""What is durable of one session: an in-memory tail for live readers, the store behind it for all others."""

from collections import deque

from antiphon.events.log import EventLog, LogError, Samples

from .clock import Clock
from .cursor import Cursor
from .errors import Refused
from .published import Published
from .replay_window import Overflow, ReplayWindow, Trail

TAIL_ENTRIES = 256
TAIL_BYTES = 512 * 1024

TAIL_READ = 32
"""Entries that are kept of those which every reader has taken: nobody but a new reader wants them, and it may read
the store. They are most of what a session that talks keeps in memory."""


class Feed:
    """The durable head of a session and its readers.

    `durable` is the last durable sequence, `number` the last durable public number, and `epoch` the session's
    epoch there: sound of an older one may be blanked before it is sent (DESIGN 5.11). `total` counts bytes.
    """

    def __init__(
        self,
        session: str,
        log: EventLog,
        samples: Samples,
        clock: Clock,
        *,
        durable: int = 0,
        number: int = 0,
        epoch: int = 0,
    ) -> None:
        self.session = session
        self.log = log
        self.samples = samples
        self.clock = clock
        self.durable = durable
        self.number = number
        self.epoch = epoch
        self.total = 0
        self.closed = False
        self.failure: Refused | None = None
        self._tail: deque[Published] = deque()
        self._tail_bytes = 0
        self._readers: tuple[Cursor, ...] = ()
        self.window = ReplayWindow(clock)
        self.window.start(number)
        self.trail: Trail | None = None
        """Takes the place of the window where messages have no numbers, once somebody is connected."""

    def publish(self, entry: Published, number: int) -> None:
        """Make the next durable transaction visible; `number` is the last public number behind it."""
        size = entry.size
        seq = entry.transaction.seq
        self.total += size
        entry.end = self.total
        entry.number = number
        self.durable = seq
        self.window.published(seq, number, size)
        if self.trail is not None:
            self.trail.published(seq, size)
        if number > self.number:
            self.number = number
        self.epoch = entry.epoch
        self._tail.append(entry)
        self._tail_bytes += size
        if len(self._tail) > TAIL_READ or self._tail_bytes > TAIL_BYTES:
            self._trim()
        for cursor in self._readers:
            cursor.notify()

    def _trim(self) -> None:
        """Let go of the oldest entries: of what all readers have taken sooner than of what somebody may want."""
        tail, most, taken = self._tail, TAIL_READ, self.durable - TAIL_READ
        for cursor in self._readers:
            if cursor.position < taken:
                most = TAIL_ENTRIES
        if not self._readers:
            most = TAIL_ENTRIES
        while len(tail) > most or (self._tail_bytes > TAIL_BYTES and len(tail) > 1):
            self._tail_bytes -= tail.popleft().size

    def acknowledge(self, number: int) -> None:
        """Move the boundary of replay to `number`; it never goes back (D15).

        Raises:
            Refused: `invalid_event_ack`: no message of this number has been sent.
        """
        if not 0 <= number <= self.number:
            raise Refused("invalid_event_ack", f"The last event is number {self.number}.")
        self.window.acknowledge(number, self.durable)

    def overflow_at(self, seq: int) -> Overflow | None:
        """Return the overflow of the replay window during which transaction `seq` became durable, if any."""
        return self.window.overflow_at(seq)

    def fail(self, error: Refused) -> None:
        """End every reader with `error`: the runner is gone and nothing more will be durable here."""
        self.failure = self.failure or error
        self._wake()

    def close(self) -> None:
        """End every reader that has seen all that is durable."""
        self.closed = True
        self._wake()

    def tail(self, seq: int) -> Published | None:
        """Return transaction `seq` if it is in memory."""
        tail = self._tail
        index = seq - tail[0].transaction.seq if tail else -1
        return tail[index] if 0 <= index < len(tail) else None

    def age_us(self, number: int) -> int:
        """Return how long ago public number `number` became durable here, to the second; 0 if it is not."""
        return self.window.age_of(number)

    async def locate(self, number: int) -> int:
        """Return the sequence after which the messages numbered above `number` begin.

        Raises:
            Refused: `storage_unavailable`.
        """
        if number >= self.number:
            return self.durable
        try:
            return await self.log.locate(self.session, number)
        except LogError as error:
            raise Refused("storage_unavailable", "The session's log cannot be read now.") from error

    async def oldest_wanted(self) -> int:
        """Return the transaction behind which somebody may still read: whoever reads now, or comes back.

        Raises:
            LogError: the store cannot be read.
        """
        reading = min((cursor.position for cursor in self._readers), default=self.durable)
        if self.trail is not None:
            return min(reading, self.trail.begin)
        acknowledged = self.window.acknowledged
        if acknowledged >= self.number:
            return reading
        return min(reading, await self.log.locate(self.session, acknowledged))

    def join(self, cursor: Cursor) -> None:
        """Count a reader in: it is woken by what is published, and watched for its lag."""
        self._readers = (*self._readers, cursor)

    def leave(self, cursor: Cursor) -> None:
        """Forget a reader; harmless when it is not known."""
        self._readers = tuple(other for other in self._readers if other is not cursor)

    def _wake(self) -> None:
        for cursor in self._readers:
            cursor.wake()
