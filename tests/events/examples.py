"""Any value of a closed struct: drawn from its annotations."""

import types
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

S = TypeVar("S", bound=msgspec.Struct)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SIMPLE: dict[object, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(-(2**62), 2**62),
    float: st.floats(allow_nan=False, allow_infinity=False, width=32),
    str: TEXT,
    types.NoneType: st.none(),
    msgspec.UnsetType: st.just(msgspec.UNSET),
}


def structs(kind: type[S]) -> st.SearchStrategy[S]:
    """Draw any value of `kind`, nested structs included."""
    hints = get_type_hints(kind)
    return st.builds(kind, **{name: values(hints[name]) for name in kind.__struct_fields__})


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Draw any value of a type that stands in our vocabulary."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in SIMPLE:
        return SIMPLE[hint]
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of([values(argument) for argument in arguments])
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=2)
    assert isinstance(hint, type), hint
    assert issubclass(hint, msgspec.Struct), hint
    return st.deferred(lambda: structs(hint))
