"""Every command, event and effect survives both encodings; the unions are closed and tagged."""

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events import log

from tests.events.examples import structs

COMMANDS: tuple[type[cmd.Command], ...] = get_args(cmd.AnyCommand)
EVENTS: tuple[type[ev.Event], ...] = get_args(ev.AnyEvent)
EFFECTS: tuple[type[fx.Effect], ...] = get_args(fx.AnyEffect)


def transaction(command: Any, event: Any) -> log.Transaction:
    return log.Transaction(seq=1, term=1, at=0, command=command, events=(event,))


@pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: kind.__name__)
@settings(max_examples=15)
@given(data=st.data())
def test_every_command_survives(kind: type[cmd.Command], data: st.DataObject) -> None:
    made = transaction(data.draw(structs(kind)), ev.AnswerDeferred())
    assert log.decode(log.encode(made)) == made
    assert log.from_json(log.to_json(made)) == made


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
@settings(max_examples=15)
@given(data=st.data())
def test_every_event_survives(kind: type[ev.Event], data: st.DataObject) -> None:
    made = transaction(cmd.Tick(), data.draw(structs(kind)))
    read = log.decode(log.encode(made))
    assert read == made
    assert log.canonical(read.events) == log.canonical(made.events)
    assert log.from_json(log.to_json(made)) == made


@pytest.mark.parametrize("kind", EFFECTS, ids=lambda kind: kind.__name__)
@settings(max_examples=15)
@given(data=st.data())
def test_every_effect_survives(kind: type[fx.Effect], data: st.DataObject) -> None:
    effect = data.draw(structs(kind))
    read: Any = msgspec.msgpack.decode(msgspec.msgpack.encode(effect), type=fx.AnyEffect)
    assert read == effect


@pytest.mark.parametrize("union", [COMMANDS, EVENTS, EFFECTS], ids=["commands", "events", "effects"])
def test_a_union_is_closed(union: tuple[type[msgspec.Struct], ...]) -> None:
    """Every concrete class that derives from the base is a member, and the tags differ."""
    base = {COMMANDS: cmd.Command, EVENTS: ev.Event, EFFECTS: fx.Effect}[union]
    abstract = {cmd.ClientCommand, cmd.StageReport, ev.PublicEvent}

    def below(kind: type[msgspec.Struct]) -> set[type[msgspec.Struct]]:
        return {kind} | {other for child in kind.__subclasses__() for other in below(child)}

    assert below(base) - {base} - abstract == set(union)
    assert len({kind.__struct_config__.tag for kind in union}) == len(union)
    assert all(kind.__struct_config__.frozen for kind in union)


def test_an_unknown_tag_is_refused() -> None:
    line = log.to_json(transaction(cmd.Tick(), ev.AnswerDeferred())).replace(b"Tick", b"Tock")
    with pytest.raises(msgspec.ValidationError):
        log.from_json(line)
    with pytest.raises(msgspec.DecodeError):
        log.decode(b"\xc1")


@pytest.mark.parametrize("end", [b',"v":2}', b"}"])
def test_a_line_that_is_nested_without_end_is_damaged(end: bytes) -> None:
    with pytest.raises(msgspec.DecodeError, match="nested too deeply"):
        log.from_json(b'{"seq":1,"x":' + b"[" * 200_000 + end)


def test_the_docstrings_promise_something() -> None:
    assert all(kind.__doc__ for kind in (*COMMANDS, *EVENTS, *EFFECTS))
