"""Sound of a model that reports all of it every time, cut into what is new (N23)."""


class Cumulative:
    """The cursor of one request over its model's snapshots.

    A snapshot that is shorter than what was delivered is no new beginning: models report out of step, and to begin
    anew would play everything again. What it lacks comes when it has grown past what it was. Only another `segment`
    begins anew.
    """

    def __init__(self) -> None:
        self._segment = 0
        self._delivered = 0

    def take(self, snapshot: bytes, segment: int = 0) -> bytes:
        """Return what of a snapshot was not delivered yet; it may be nothing."""
        if segment != self._segment:
            self._segment, self._delivered = segment, 0
        new = snapshot[self._delivered :]
        self._delivered += len(new)
        return new
