"""What is durable of one session: an in-memory tail for live readers, the store behind it for all others."""

from collections import deque

from antiphon.events.log import EventLog, LogError, Samples

from .clock import Clock
from .cursor import Cursor
from .errors import Refused
from .published import Published

TAIL_ENTRIES = 256
TAIL_BYTES = 512 * 1024
MARK_BYTES = 64 * 1024
"""Grain of the account of unacknowledged bytes."""
AGE_US = 1_000_000
AGES = 64
"""Grain of the account of ages, and how many are kept: over a minute, twice what a slow reader is given."""


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
        self._cursors: dict[int, Cursor] = {}
        self.acknowledged = 0
        """The last public number that a client has confirmed: what came before it is not replayed (D15)."""
        self._marks: deque[tuple[int, int]] = deque()
        self._ages: deque[tuple[int, int]] = deque(maxlen=AGES)
        """A public number, and when it became durable; the next one a second later or more."""
        self._confirmed_bytes = 0
        self._overflowed = False

    def publish(self, entry: Published, number: int) -> None:
        """Make the next durable transaction visible; `number` is the last public number behind it."""
        size = entry.size
        self.total += size
        entry.end = self.total
        self.durable = entry.transaction.seq
        entry.number = number
        if number > self.number:
            now = self.clock.monotonic_us()
            if not self._ages or now - self._ages[-1][1] >= AGE_US:
                self._ages.append((self.number + 1, now))
            self.number = number
        self.epoch = entry.epoch
        tail = self._tail
        tail.append(entry)
        self._tail_bytes += size
        while len(tail) > TAIL_ENTRIES or (self._tail_bytes > TAIL_BYTES and len(tail) > 1):
            self._tail_bytes -= tail.popleft().size
        if not self._marks or self.total - self._marks[-1][1] >= MARK_BYTES:
            self._marks.append((number, self.total))
        if self._cursors:
            for cursor in tuple(self._cursors.values()):
                cursor.notify()

    def acknowledge(self, number: int, limit: int) -> None:
        """Move the boundary of replay to `number`; it never goes back. `limit` bounds what is unacknowledged.

        Raises:
            Refused: `invalid_event_ack`: no message of this number has been sent.
        """
        if not 0 <= number <= self.number:
            raise Refused("invalid_event_ack", f"The last event is number {self.number}.")
        self._overflowed = self._overflowed or self.total - self._confirmed_bytes > limit
        self.acknowledged = max(self.acknowledged, number)
        while self._marks and self._marks[0][0] <= self.acknowledged:
            self._confirmed_bytes = self._marks.popleft()[1]
        if self.acknowledged == self.number:
            self._confirmed_bytes, self._overflowed = self.total, False

    def replayable(self, after: int, limit: int) -> bool:
        """Return whether every message numbered above `after` may still be replayed."""
        overflowed = self._overflowed or self.total - self._confirmed_bytes > limit
        return after >= self.acknowledged and not overflowed

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
        if number > self.number or not self._ages:
            return 0
        known = next((us for first, us in reversed(self._ages) if first <= number), self._ages[0][1])
        return self.clock.monotonic_us() - known

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

    def join(self, cursor: Cursor) -> None:
        """Count a reader in: it is woken by what is published, and watched for its lag."""
        self._cursors[id(cursor)] = cursor

    def leave(self, cursor: Cursor) -> None:
        """Forget a reader; harmless when it is not known."""
        self._cursors.pop(id(cursor), None)

    def _wake(self) -> None:
        for cursor in tuple(self._cursors.values()):
            cursor.wake()
