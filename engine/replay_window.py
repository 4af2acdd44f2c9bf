"""What of a session's messages may still be asked for again: what nobody confirmed, within bounds (D15-D17)."""

from collections import deque
from typing import NamedTuple

from msgspec import Struct

from .clock import Clock

MARK_BYTES = 64 * 1024
"""Grain of the account of unacknowledged bytes."""

AGE_US = 1_000_000
AGES = 64
"""Grain of the account of ages, and how many are kept: over a minute, twice what a slow reader is given."""


class Overflow(Struct):
    """Too much was unacknowledged: from transaction `first` on nothing was journaled, until `last` (None: still).

    `number` is the last public number that was journaled before.
    """

    first: int
    number: int
    last: int | None = None


class _Mark(NamedTuple):
    """The transaction `first` began with `before` bytes before it, at time `us`."""

    first: int
    before: int
    us: int


class Trail:
    """What may be read again where nobody confirms anything: the last `bytes`, none older than `age_us` (0: any).

    It begins behind transaction `seq`; of what was before that nothing is known, and it may be read. The account is
    kept to 64 KiB and to a second.
    """

    def __init__(self, clock: Clock, seq: int, bytes: int, age_us: int) -> None:  # noqa: A002 # as the window has it
        self._clock = clock
        self._bytes = bytes
        self._age_us = age_us
        self._last = seq
        self._total = 0
        self._marks: deque[_Mark] = deque()
        self._lost = 0
        """What began with this transaction or before it is kept no longer."""

    def published(self, seq: int, size: int) -> None:
        """Transaction `seq` of `size` bytes became durable."""
        marks, now = self._marks, self._clock.monotonic_us()
        aged = bool(self._age_us and marks) and now - marks[-1].us >= AGE_US
        if not marks or aged or self._total - marks[-1].before >= MARK_BYTES:
            marks.append(_Mark(seq, self._total, now))
        self._last = seq
        self._total += size
        while len(marks) > 1 and not self._holds(marks[0], now):
            marks.popleft()
            self._lost = marks[0].first - 1

    def replayable(self, after: int) -> bool:
        """Return whether everything behind transaction `after` may still be read."""
        if after >= self._last or not self._marks:
            return True
        if after < self._lost:
            return False
        known = next((mark for mark in reversed(self._marks) if mark.first <= after + 1), self._marks[0])
        return self._holds(known, self._clock.monotonic_us())

    @property
    def begin(self) -> int:
        """The transaction behind which everything may still be read."""
        now = self._clock.monotonic_us()
        if not self._lost and (not self._marks or self._holds(self._marks[0], now)):
            return 0
        return next((mark.first - 1 for mark in self._marks if self._holds(mark, now)), self._last)

    def _holds(self, mark: _Mark, now: int) -> bool:
        return self._total - mark.before <= self._bytes and not (self._age_us and now - mark.us > self._age_us)


class ReplayWindow:
    """The boundary below which nothing is replayed, and the bounds that the client's silence may not exceed.

    `acknowledged` is the last public number that the client has confirmed, by saying so or by resuming behind it.
    With more than `bytes` unconfirmed, the window overflows: what comes then is delivered live and without
    numbers, and nothing can be replayed, until everything that has a number is confirmed. With `age_us` (0: no such
    bound), what is older is not replayed.

    All of this is known to this process only. A restart forgets it, which can only make more replayable.
    """

    def __init__(self, clock: Clock) -> None:
        self.acknowledged = 0
        self.bytes = 256 * 1024 * 1024
        self.age_us = 0
        self._clock = clock
        self._number = 0
        self._total = 0
        self._confirmed = 0
        self._marks: deque[tuple[int, int]] = deque()
        self._ages: deque[tuple[int, int]] = deque(maxlen=AGES)
        """A public number, and when it became durable; the next one a second later or more."""
        self._overflows: list[Overflow] = []

    def start(self, number: int) -> None:
        """Begin behind public number `number`."""
        self._number = number

    def published(self, seq: int, number: int, size: int) -> None:
        """Transaction `seq` of `size` bytes became durable; `number` is the last public number behind it."""
        self._total += size
        overflow = self._overflow
        if number > self._number:
            now = self._clock.monotonic_us()
            if not self._ages or now - self._ages[-1][1] >= AGE_US:
                self._ages.append((self._number + 1, now))
            if overflow is None and self._total - self._confirmed > self.bytes:
                overflow = Overflow(seq, self._number)
                self._overflows.append(overflow)
                self._marks.clear()
            self._number = number
        if overflow is None and (not self._marks or self._total - self._marks[-1][1] >= MARK_BYTES):
            self._marks.append((number, self._total))

    def acknowledge(self, number: int, seq: int) -> None:
        """The client has everything up to `number`, which is known to exist; `seq` is the last durable transaction.

        The boundary never goes back.
        """
        self.acknowledged = max(self.acknowledged, number)
        overflow = self._overflow
        if overflow is not None and self.acknowledged >= overflow.number:
            # What was sent without a number cannot be asked for.
            overflow.last, self.acknowledged = seq, self._number
        while self._marks and self._marks[0][0] <= self.acknowledged:
            self._confirmed = self._marks.popleft()[1]
        if self.acknowledged == self._number:
            self._confirmed = self._total

    def replayable(self, after: int) -> bool:
        """Return whether every message numbered above `after` may still be replayed."""
        if self._overflow is not None or after < self.acknowledged:
            return False
        return not self.age_us or self.age_of(after + 1) <= self.age_us

    def overflow_at(self, seq: int) -> Overflow | None:
        """Return the overflow during which transaction `seq` became durable, None if it was journaled."""
        for overflow in reversed(self._overflows):
            if seq >= overflow.first:
                return overflow if overflow.last is None or seq <= overflow.last else None
        return None

    def age_of(self, number: int) -> int:
        """Return how long ago public number `number` became durable here, to the second; 0 if it is not."""
        if number > self._number or not self._ages:
            return 0
        known = next((us for first, us in reversed(self._ages) if first <= number), self._ages[0][1])
        return self._clock.monotonic_us() - known

    @property
    def unconfirmed(self) -> int:
        """Bytes that the client has not confirmed, about: it confirms in steps."""
        return self._total - self._confirmed

    @property
    def _overflow(self) -> Overflow | None:
        """The overflow that lasts."""
        if not self._overflows:
            return None
        return self._overflows[-1] if self._overflows[-1].last is None else None
