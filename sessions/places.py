"""Where the bytes lie that a session may still need: what retention must leave alone."""

from collections.abc import Iterator
from typing import cast

import msgspec

from antiphon.events.audio import SampleRef

from .state import Session, dump


def places(session: Session) -> list[SampleRef]:
    """Return every span of the sample streams that the state speaks of, in whatever field it stands.

    Input that waits for its commit or for a model is counted too: from `input.keep_from` to the end of the stream.
    """
    found = list(dict.fromkeys(_refs(msgspec.msgpack.decode(dump(session)))))
    first = session.input.keep_from
    if first < session.input.received:
        found.append(SampleRef("in", first, session.input.received - first))
    return found


def _refs(value: object) -> Iterator[SampleRef]:
    """Find them by their shape: a field that is added one day is found as well."""
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)  # what msgpack calls a map has no narrower type
        if fields.keys() == {"stream", "start", "size"}:
            yield msgspec.convert(fields, SampleRef)
            return
        for inner in fields.values():
            yield from _refs(inner)
    elif isinstance(value, list):
        for inner in cast("list[object]", value):
            yield from _refs(inner)
