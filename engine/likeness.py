"""What an entry of a log says without the names and numbers that only tell where it stands."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import msgspec
from msgspec import Struct

SHIFTING = frozenset(
    {
        *("number", "count", "seq", "client_seq", "turn_seq", "operation", "generation", "history_len", "head"),
        *("epoch", "turn", "model_turn", "attachment", "expected_generation", "last_number", "last_client_seq"),
        *("wall_us", "expires_at", "start", "due", "deadline_us", "position", "term"),
        *("token_digest", "presented", "next_digest", "control_id", "active_response_turn", "previous_item_id"),
    }
)
"""Fields that count, or say where and when: the same may have another one where something came before it."""

NAME = re.compile(r"item_(?:resp_)?[0-9a-f]{32}|resp_[0-9a-f]{32}|conv_[0-9a-f]{32}|call_[0-9a-f]{24}")
"""Names that a session gives to items, responses, conversations and calls."""

Fields = dict[str, object]


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
    # What the library made has no type; these are the only containers that it makes.
    if isinstance(value, dict):
        fields = cast("Fields", value)
        instead = None if record is None else record(fields)
        if instead is not None:
            return instead
        return {key: go(inner) for key, inner in fields.items() if key not in without}
    if isinstance(value, list | tuple):
        return [go(inner) for inner in cast("Sequence[object]", value)]
    return value


def likeness(record: Struct | Sequence[Struct], session: str) -> bytes:
    """Return what records say, without names that the session gave and without what only shifts."""

    def nameless(text: str) -> str:
        return "" if text == session or text.startswith(f"{session}.e") else NAME.sub("", text)

    return msgspec.json.encode(rebuilt(msgspec.to_builtins(record), nameless, without=SHIFTING))
