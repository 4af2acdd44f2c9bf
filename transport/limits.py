"""How much the clients of a key may send: two token buckets, shared by all its connections."""

from antiphon.engine.clock import Clock

from .keys import ApiKey

BURST_S = 2
"""A bucket holds what its rate gives in so many seconds."""

_WHOLE = 1_000_000


class _Bucket:
    """What may be sent of one kind, in whole millionths: `rate` a second is as many a microsecond."""

    def __init__(self, rate: int, unit: str) -> None:
        self._rate = rate
        self._unit = unit
        self._full = self._level = rate * BURST_S * _WHOLE

    def earn(self, us: int) -> None:
        """Some time has passed."""
        self._level = min(self._level + us * self._rate, self._full)

    def spend(self, amount: int) -> None:
        """Take as much, which may leave a debt."""
        self._level -= amount * _WHOLE

    def wait_ms(self, amount: int, *, urgent: bool) -> int:
        """Return how long it takes until as much may be sent; 0: it may be sent now.

        What is larger than the bucket may be sent when that is full, and leaves a debt.
        """
        lacking = min(amount * _WHOLE, self._full) - self._level - (self._full if urgent else 0)
        return max(-(-lacking // (self._rate * 1000)), 0)

    def refusal(self, wait_ms: int) -> str:
        """Return what a client is told whose message has no room."""
        return f"The limit of {self._rate:,} {self._unit}/s of this key is used up; try again in {wait_ms:,} ms."


class Budget:
    """What the clients of one key may still send. Nothing is taken of what is refused."""

    def __init__(self, key: ApiKey, clock: Clock) -> None:
        self._clock = clock
        self._at_us = clock.monotonic_us()
        self._bytes = None if key.bytes_per_s is None else _Bucket(key.bytes_per_s, "bytes")
        self._events = None if key.events_per_s is None else _Bucket(key.events_per_s, "events")

    def spend(self, size: int, *, urgent: bool = False) -> str | None:
        """Take a message of `size` bytes, or return why there is no room for it.

        An `urgent` one may overdraw by as much as a bucket holds: what ends or stops something still gets through.
        """
        now = self._clock.monotonic_us()
        passed, self._at_us = now - self._at_us, now
        asked = [(bucket, amount) for bucket, amount in ((self._events, 1), (self._bytes, size)) if bucket]
        for bucket, amount in asked:
            bucket.earn(passed)
            wait_ms = bucket.wait_ms(amount, urgent=urgent)
            if wait_ms:
                return bucket.refusal(wait_ms)
        for bucket, amount in asked:
            bucket.spend(amount)
        return None


class Limits:
    """The budgets of all keys that are bounded."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._budgets: dict[str, tuple[ApiKey, Budget]] = {}

    def budget(self, key: ApiKey) -> Budget | None:
        """Return the budget of a key, the same for all its connections; None: it is not bounded.

        A key whose bounds were changed begins anew; connections that it has keep the old ones.
        """
        if key.bytes_per_s is None and key.events_per_s is None:
            return None
        known, budget = self._budgets.get(key.id, (None, None))
        if known != key or budget is None:
            budget = Budget(key, self._clock)
            self._budgets[key.id] = (key, budget)
        return budget
