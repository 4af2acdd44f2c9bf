"""How long sound is kept, and who lets it go when that is over."""

import re
from collections.abc import Sequence
from typing import Literal, Protocol

import structlog
from anyio import to_thread
from msgspec import Struct

from antiphon.events.audio import SampleRef
from antiphon.events.events import AudioDelta
from antiphon.events.log import EventLog, LogError

from .clock import Clock
from .sample_store import SEGMENT

_log = structlog.get_logger()

SWEEP_US = 60_000_000
"""How often it is looked whether some sound has become old."""

SETTLED_US = 60_000_000
"""What was written, or ended, so recently is left alone: somebody may be about to read it."""

SCAN = 64
"""Records that are read at a time to find what an unacknowledged event refers to."""

_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_TTL = re.compile(r"([1-9]\d{0,8})([smhdw])")


class Retention(Struct, frozen=True):
    """How long sound is kept.

    `session`: as long as the session's log. `window`: as long as a live conversation item, input that waits, or an
    event that its client has not acknowledged refers to it; nothing of a session that has ended. `ttl`: `ttl_us`
    after it was written, or its session has ended, and never shorter than `window`. What was imported is kept.
    """

    kind: Literal["session", "window", "ttl"] = "session"
    ttl_us: int = 0

    @property
    def after_us(self) -> int:
        """How long what nobody refers to is kept."""
        return max(self.ttl_us, SETTLED_US)


def retention(text: str) -> Retention:
    """Read what an operator says: `session`, `window`, or a time such as `90s`, `30m`, `12h`, `7d`, `2w`.

    Raises:
        ValueError: it is none of these.
    """
    if text == "session":
        return Retention("session")
    if text == "window":
        return Retention("window")
    found = _TTL.fullmatch(text)
    if found is None:
        raise ValueError("it is `session`, `window`, or a time such as 12h or 7d")
    return Retention("ttl", int(found[1]) * _UNITS_S[found[2]] * 1_000_000)


class Needs(Struct, frozen=True):
    """What of a live session's sound must stay: what its state speaks of, and what is sent to who comes back.

    `after`: events behind this transaction may still be read by somebody.
    """

    places: Sequence[SampleRef]
    after: int


class Living(Protocol):
    """Who knows the sessions that go on: the hub."""

    async def needs(self, session: str) -> Needs | None:
        """Return what a live session needs of its sound; None if it is not live here."""
        ...


class Shelf(Protocol):
    """Where sound lies, as far as it can be let go: `FileSamples`."""

    def kept(self) -> dict[str, dict[str, dict[int, int]]]: ...
    def retire(self, session: str) -> int: ...
    def retire_segment(self, session: str, stream: str, segment: int) -> int: ...


class Keeper:
    """Lets sound go that is past its retention. One pass takes what is old; `run` makes one every minute."""

    def __init__(self, keep: Retention, log: EventLog, shelf: Shelf, living: Living, clock: Clock) -> None:
        self._keep = keep
        self._log = log
        self._shelf = shelf
        self._living = living
        self._clock = clock

    async def run(self) -> None:
        """Sweep until cancelled. A store that cannot be read or written now is asked again."""
        while self._keep.kind != "session":
            await self._clock.sleep_until(self._clock.monotonic_us() + SWEEP_US)
            try:
                await self.sweep()
            except (LogError, OSError) as error:
                _log.warning("old sound could not be let go; it is tried again", why=str(error))

    async def sweep(self) -> int:
        """Let go of what is old now; return how many bytes that were.

        Raises:
            LogError, OSError: the store cannot be read or written; what was not reached waits for the next time.
        """
        old = self._clock.wall_us() - self._keep.after_us
        rows = [row for row in await self._log.sessions("closed") if not row.imported]
        ended = {row.session: row.opened_us + row.at for row in rows}
        freed = 0
        for session, streams in (await to_thread.run_sync(self._shelf.kept)).items():
            if session in ended:
                if ended[session] <= old:
                    freed += await to_thread.run_sync(self._shelf.retire, session)
                continue
            candidates = _candidates(streams, old)
            needs = await self._living.needs(session) if candidates else None
            if needs is None:
                continue
            needed = [*needs.places, *await self._unread(session, needs.after)]
            for stream, segment in candidates:
                if not any(_touches(ref, stream, segment) for ref in needed):
                    freed += await to_thread.run_sync(self._shelf.retire_segment, session, stream, segment)
        if freed:
            _log.info("sound past its retention was let go", bytes=freed)
        return freed

    async def _unread(self, session: str, after: int) -> list[SampleRef]:
        """Return what is sent to who reads on behind transaction `after`: from the first piece of an answer on."""
        while batch := await self._log.read(session, after, SCAN):
            for transaction in batch:
                for event in transaction.events:
                    if isinstance(event, AudioDelta):
                        return [SampleRef("out", event.ref.start, 1 << 62)]
            after = batch[-1].seq
        return []


def _candidates(streams: dict[str, dict[int, int]], old: int) -> list[tuple[str, int]]:
    """Return the segments of a live session that are full and were last written before `old`."""
    return [
        (stream, segment)
        for stream, segments in streams.items()
        for segment, written_us in segments.items()
        if segment < max(segments) and written_us <= old
    ]


def _touches(ref: SampleRef, stream: str, segment: int) -> bool:
    return ref.stream == stream and ref.start < (segment + 1) * SEGMENT and ref.end > segment * SEGMENT
