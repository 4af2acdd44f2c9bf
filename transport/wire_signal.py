"""Signals of the turn: which there are, and what other events they may stand for (WIRE 2.17)."""

from typing import get_args

import msgspec
from msgspec import Raw

from antiphon.events.commands import Signal

from .wire_client import ABSENT, TurnSignal
from .wire_errors import missing, wrong_type

ALIASED = frozenset(
    {
        "input.cancel",
        "barge_in",
        "response.cancel",
        "session.update",
        "conversation.item.create",
        "conversation.item.retrieve",
        "conversation.item.delete",
        "conversation.item.truncate",
    }
)
"""Events that a signal may stand for, with its payload as their fields."""

SIGNALS: dict[str, Signal] = {signal: signal for signal in get_args(Signal)}


def unfolded(event: TurnSignal) -> bytes:
    """Return the event that a signal stands for, as a frame.

    Raises:
        WireError: its payload cannot be the fields of an event.
    """
    fields = payload_of(event)
    if event.event == "session.update":
        if event.payload == ABSENT:
            raise missing("payload")
        fields = {"session": event.payload}
    own: dict[str, object] = {"type": event.event, "event_id": event.event_id, "client_seq": event.client_seq}
    return msgspec.json.encode({**fields, **own})


def payload_of(event: TurnSignal) -> dict[str, Raw]:
    """Return the fields of a signal's payload.

    Raises:
        WireError: it is no object.
    """
    if event.payload == ABSENT:
        return {}
    try:
        return _decode_payload(event.payload) or {}
    except msgspec.ValidationError:
        raise wrong_type("The payload of a signal is an object.", "payload") from None


_decode_payload = msgspec.json.Decoder(dict[str, Raw] | None).decode
