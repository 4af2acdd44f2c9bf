"""The options that only some models know: read from the client's JSON into a typed record, or refused by name."""

from collections.abc import Mapping
from functools import cache
from typing import TypeVar

import msgspec
from msgspec import Struct

from antiphon.events.config import JsonText, SessionConfig

from ..refusal import refuse

T = TypeVar("T", bound=Struct)

PARAM = "session.extra_body"
INVALID = "invalid_duplex_runtime_config"


def read(extras: Mapping[str, JsonText], shape: type[T], codes: Mapping[str, str] | None = None) -> T:
    """Return the options that `shape` knows; keys that it does not know belong to nobody and are left out.

    `codes` names the code of a wrong value by its key; without an entry it is `invalid_duplex_runtime_config`.
    The keys are read one by one, in the record's order, so the first wrong one is named.

    Raises:
        Refusal: a value is of the wrong type or out of its bounds.
    """
    values: dict[str, object] = {}
    for field in _fields(shape):
        text = extras.get(field.encode_name)
        if text is None:
            continue
        try:
            values[field.name] = _decoded(text, field.type)
        except msgspec.DecodeError as error:
            code = (codes or {}).get(field.encode_name, INVALID)
            key = field.encode_name
            refuse(code, f"The option {key!r} cannot be like that: {error}.", f"{PARAM}.{key}", "value")
    return shape(**values)


@cache
def _fields(shape: type[Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return what a record has; msgspec finds it out anew each time, which takes longer than all the rest."""
    return msgspec.structs.fields(shape)


def _decoded(text: JsonText, kind: object) -> object:
    """Return a value of JSON; no stage takes a whole number that 64 bits cannot hold, and no log.

    Raises:
        msgspec.DecodeError: it is of another kind, or such a number.
    """
    value: object = msgspec.json.decode(text.encode(), type=kind)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise msgspec.ValidationError("Expected an integer of 64 bits")
    return value


def filled(config: SessionConfig, shape: type[Struct], codes: Mapping[str, str] | None = None) -> SessionConfig:
    """Return the configuration with a value for every option of `shape` that has a default.

    So the stage half reads what holds, and a change shows whoever spelled it.

    Raises:
        Refusal: as `read`.
    """
    options = read(config.extras, shape, codes)
    values = msgspec.structs.asdict(options).items()
    known = {key: msgspec.json.encode(value).decode() for key, value in values if value is not None}
    return msgspec.structs.replace(config, extras={**config.extras, **known})


def refuse_private(extras: Mapping[str, JsonText], private: frozenset[str]) -> None:
    """Refuse the keys that only the server may set (L12, N4).

    Raises:
        Refusal: one of them is there.
    """
    for key in sorted(private & extras.keys()):
        refuse(INVALID, f"{key!r} belongs to the server.", f"{PARAM}.{key}")


def public(extras: Mapping[str, JsonText], private: frozenset[str]) -> dict[str, JsonText]:
    """Return the options of one response: private keys are dropped there without a word (L12)."""
    return {key: text for key, text in extras.items() if key not in private}
