"""What may stand in a field, in words: the rest of a refusal that says what would have been right."""

import re
from collections.abc import Iterable, Sequence
from functools import cache

from msgspec import inspect

Shape = object
"""A type as a decoder takes it."""

_STEP = re.compile(r"\.?([^.\[\]]+)|\[(?:\d+|\.\.\.)\]")


@cache
def _root(shape: Shape) -> inspect.Type:
    return inspect.type_info(shape)


def allowed(shape: Shape, path: str) -> str:
    """Return what may stand at a path of a shape, as `a.b[0].c`; "" if that is not for the shape to say."""
    found: Sequence[inspect.Type] = _choices(_root(shape))
    for step in _STEP.finditer(path):
        found = [inner for one in found for inner in _inside(one, step.group(1))]
    words = [_described(one) for one in found if not isinstance(one, inspect.NoneType)]
    return _or(dict.fromkeys(words)) if words and all(words) else ""


def _choices(one: inspect.Type) -> Sequence[inspect.Type]:
    if isinstance(one, inspect.Metadata):
        return _choices(one.type)
    if isinstance(one, inspect.UnionType):
        return [inner for choice in one.types for inner in _choices(choice)]
    if isinstance(one, inspect.CustomType):
        return ()  # what JSON cannot say: "not given"; or anything
    return (one,)


def _inside(one: inspect.Type, name: str | None) -> Sequence[inspect.Type]:
    """Return what a field, or without a name any item or value, may be."""
    if isinstance(one, inspect.StructType):
        return [inner for field in one.fields if field.encode_name == name for inner in _choices(field.type)]
    if name is None and isinstance(one, inspect.ListType | inspect.VarTupleType):
        return _choices(one.item_type)
    if name is None and isinstance(one, inspect.DictType):
        return _choices(one.value_type)
    return ()


def _described(one: inspect.Type) -> str:
    match one:
        case inspect.IntType():
            return "an integer" + _range(one)
        case inspect.FloatType():
            return "a number" + _range(one)
        case inspect.StrType(pattern=None):
            return "a string" + _length(one.min_length, one.max_length, "characters")
        case inspect.StrType():
            return f"a string that matches {one.pattern}"
        case inspect.LiteralType():
            return _or(repr(value) for value in one.values)
        case inspect.BoolType():
            return "true or false"
        case inspect.ListType() | inspect.VarTupleType():
            return "an array" + _length(one.min_length, one.max_length, "items")
        case inspect.DictType():
            return _dictionary(one)
        case inspect.StructType():
            return "an object"
        case _:
            return ""


def _dictionary(one: inspect.DictType) -> str:
    inner = [
        f"{name} of at most {part.max_length} characters"
        for name, parts in (("keys", one.key_type), ("values", one.value_type))
        for part in _choices(parts)
        if isinstance(part, inspect.StrType) and part.max_length is not None
    ]
    return ", ".join(["an object" + _length(one.min_length, one.max_length, "entries"), *inner])


def _range(one: inspect.IntType | inspect.FloatType) -> str:
    if one.ge is not None and one.le is not None:
        return f" from {_number(one.ge)} to {_number(one.le)}"
    if one.ge is not None:
        return f" of at least {_number(one.ge)}"
    return f" of at most {_number(one.le)}" if one.le is not None else ""


def _number(bound: float) -> str:
    return str(int(bound) if bound == int(bound) else bound)


def _length(least: int | None, most: int | None, unit: str) -> str:
    if least is not None and most is not None:
        return f" of {least} to {most} {unit}"
    if least is not None:
        return f" of at least {least} {unit}"
    return f" of at most {most} {unit}" if most is not None else ""


def _or(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
