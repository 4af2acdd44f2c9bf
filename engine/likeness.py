"""What an entry of a log says without the names and numbers that only tell where it stands."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import msgspec
from msgspec import Struct

OWN = frozenset(
    {"wall_us", "expires_at", "term", "token_digest", "presented", "next_digest", "control_id", "owner", "event_id"}
)
"""Fields that every session has for itself: its wall clock, its secrets, what its clients called their commands."""

SHIFTING = OWN | {
    *("number", "count", "seq", "client_seq", "turn_seq", "operation", "generation", "history_len", "head"),
    *("epoch", "turn", "model_turn", "attachment", "expected_generation", "last_number", "last_client_seq"),
    *("start", "due", "deadline_us", "position", "active_response_turn", "previous_item_id"),
}
"""Fields that count, or say where and when: the same may have another one where something came before it."""

NAME = re.compile(r"item_(?:resp_)?[0-9a-f]{32}|resp_[0-9a-f]{32}|conv_[0-9a-f]{32}|call_[0-9a-f]{24}")
"""Names that a session gives to items, responses, conversations and calls."""

Fields = dict[str, object]


def fields_of(value: object) -> Fields | None:
    """Return the fields of what `to_builtins` made of a record; None: it is none."""
    # What the library made has no type.
    return cast("Fields", value) if isinstance(value, dict) else None


def members_of(value: object) -> Sequence[object] | None:
    """Return the members of what `to_builtins` made of a list or a tuple; None: it is none."""
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else None


def rebuilt(
    value: object,
    text: Callable[[str], object],
    *,
    without: frozenset[str] = frozenset(),
    record: Callable[[Fields], object] | None = None,
) -> object:
    """Return what `to_builtins` gave, with every text as `text` has it and some fields left out.

    `record` may give something in place of a whole record; None: it does not.
    """
    if isinstance(value, str):
        return text(value)
    go = partial(rebuilt, text=text, without=without, record=record)
    fields, members = fields_of(value), members_of(value)
    if fields is not None:
        instead = None if record is None else record(fields)
        if instead is not None:
            return instead
        return {key: go(inner) for key, inner in fields.items() if key not in without}
    return value if members is None else [go(inner) for inner in members]


def likeness(record: Struct | Sequence[Struct], session: str) -> bytes:
    """Return what records say, without names that the session gave and without what only shifts."""

    def nameless(text: str) -> str:
        return "" if text == session or text.startswith(f"{session}.e") else NAME.sub("", text)

    return msgspec.json.encode(rebuilt(msgspec.to_builtins(record), nameless, without=SHIFTING))
