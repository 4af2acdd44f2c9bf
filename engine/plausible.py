"""Whether a record of a log that came from anybody can be true.

What is made of a log takes as much memory as its numbers say, so these are held to what a session can have before
anything is made of them.
"""

from collections.abc import Iterator

from msgspec import Struct, structs

from antiphon.events.audio import MAX_RATE, MIN_RATE, AudioFormat, SampleRef
from antiphon.events.events import SessionOpened
from antiphon.events.log import Transaction

LONGEST_US = 100 * 86_400 * 1_000_000
"""The last moment of a session: a hundred days."""
LATEST_US = 253_402_300_800 * 1_000_000
"""No clock on a wall says the year 10000."""
LARGEST = 1 << 28
"""Bytes that came with one event."""
FURTHEST = 1 << 36
"""Bytes of one stream: sixteen days of sound."""
MOST_EVENTS = 1 << 16


def implausible(transaction: Transaction) -> str:
    """Return what no session can have said, in words; nothing if all of it is possible."""
    if not 0 <= transaction.at <= LONGEST_US:
        return "its time is that of no session"
    if not 0 <= transaction.term < 1 << 32:
        return "its term is that of no session"
    if len(transaction.events) >= MOST_EVENTS:
        return "it has more events than a command decides"
    for record in _records((transaction.command, *transaction.events)):
        if why := _wrong(record):
            return why
    return ""


def _wrong(record: Struct) -> str:
    match record:
        case SampleRef(start=start, size=size):
            possible = 0 <= start <= FURTHEST and 0 <= size <= LARGEST
            return "" if possible else "its sound lies where none can be"
        case AudioFormat(rate=rate):
            return "" if MIN_RATE <= rate <= MAX_RATE else f"no sound has a rate of {rate} Hz"
        case SessionOpened(wall_us=wall):
            return "" if 0 <= wall < LATEST_US else "no clock shows the time at which it was opened"
        case _:
            return ""


def _records(value: object) -> Iterator[Struct]:
    """Yield every record in a value, itself included."""
    if isinstance(value, Struct):
        yield value
        value = structs.astuple(value)
    if isinstance(value, tuple | list):
        for part in value:  # pyright: ignore[reportUnknownVariableType]
            if isinstance(part, (Struct, tuple, list)):
                yield from _records(part)  # pyright: ignore[reportUnknownArgumentType]
