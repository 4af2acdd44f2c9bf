"""Records of earlier layouts, brought up to the one that is written now. Pure."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

Record = dict[str, object]
"""A transaction as any decoder reads it: objects are dicts, lists are lists."""

Upcaster = Callable[[Record], Record]
"""Returns a record as the next layout writes it; does not touch the one that it is given."""


class LaterLayout(msgspec.ValidationError):
    """A record of a layout that this version does not know: it is whole, and not to be thrown away."""

    def __init__(self, layout: int, known: int) -> None:
        """Take the record's layout, and the last one that is known; the message says both."""
        super().__init__(
            f"it has layout {layout}, which a later version of antiphon wrote; this one reads up to {known}"
        )
        self.layout = layout


def _counted_configurations(record: Record) -> Record:
    """Layout 1: configurations were not counted, and an answer told one time, that of its first output."""
    return {**record, "events": [_counted(event) for event in _objects(record.get("events"))]}


def _counted(event: Record) -> Record:
    match event:
        case {"type": "ConfigUpdated"}:
            return {"generation": 0, **event}
        case {"type": "ResponseEnded", "first_output_ms": first, **kept}:
            latency = {"since": "the answer was asked for", "first_text_ms": first, "first_audio_ms": first}
            return {"latency": latency, **kept, "type": "ResponseEnded"}
        case _:
            return event


def _objects(found: object) -> list[Record]:
    """Return the objects of a list.

    Raises:
        msgspec.ValidationError: it is something else.
    """
    return msgspec.convert(found, list[Record])


UPCASTERS: Mapping[int, Upcaster] = MappingProxyType({1: _counted_configurations})
"""For each layout there was, what makes of its records those of the next."""

LAYOUT = 1 + len(UPCASTERS)
"""The layout of what is written now: raised, with an upcaster, when the decoder refuses what was written before, or
reads something else in it."""


def upcast(record: object, upcasters: Mapping[int, Upcaster] = UPCASTERS) -> Record:
    """Return a record of any known layout in the last one. A record that names none has layout 1.

    Raises:
        LaterLayout: nobody here knows its layout.
        msgspec.ValidationError: it is no record.
    """
    current = msgspec.convert(record, Record)
    layout = msgspec.convert(current.get("v", 1), int)
    last = 1 + len(upcasters)
    if layout > last:
        raise LaterLayout(layout, last)
    if layout < 1:
        raise msgspec.ValidationError(f"there is no layout {layout}")
    for step in range(layout, last):
        current = upcasters[step](current)
    return {**current, "v": last}
