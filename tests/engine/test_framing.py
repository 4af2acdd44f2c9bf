"""Frames between the engine and a stage process."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from antiphon.engine.framing import (
    MAX_FRAME,
    BrokenFrame,
    HostReady,
    HostUnavailable,
    Splitter,
    decode_message,
    decode_said,
    encode,
)
from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.commands import StageProduced, StageReleased
from antiphon.events.effects import TurnInput
from antiphon.events.items import AudioPart, Message
from antiphon.stages.base import Abort, AnyMessage, Confirm, Release, Submit

from tests.rules import rule
from tests.stages.units import unit

SAID = [HostReady(), HostUnavailable("no"), StageReleased(request="r"), StageProduced(request="r", size=3)]

PAYLOAD = TurnInput(
    session="s",
    response_id=None,
    items=(Message(id="i", role="user", content=(AudioPart(None, SampleRef("in", 0, 2)),)),),
    instructions="",
    speaks=True,
    format=AudioFormat("pcm16", 16_000),
    voice="v",
)
MESSAGES: list[AnyMessage] = [
    Submit(request="r", payload=PAYLOAD, sound=((SampleRef("in", 0, 2), b"\0\xff"),), hold=True),
    Submit(request="r", payload=replace(PAYLOAD, purpose="transcribe")),
    unit("r", 1, b"\0\1"),
    Confirm(request="r"),
    Abort(requests=("a", "b")),
    Release(requests=()),
]


@given(st.lists(st.tuples(st.sampled_from(SAID), st.binary(max_size=50))), st.integers(1, 40))
def test_frames_survive_any_cutting(said: list[tuple[object, bytes]], step: int) -> None:
    stream = b"".join(encode(head, body) for head, body in said)  # type: ignore[arg-type]
    splitter, frames = Splitter(), []
    for at in range(0, len(stream), step):
        frames += splitter.feed(stream[at : at + step])
    assert [(decode_said(head), body) for head, body in frames] == said


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_messages_come_back_as_they_were(message: AnyMessage) -> None:
    ((head, body),) = Splitter().feed(encode(message))
    assert (decode_message(head), body) == (message, b"")


@rule("N22")
def test_fields_of_a_report_that_nobody_knows_are_ignored() -> None:
    known = StageProduced(request="r", text="Hi", size=3)
    fields: dict[str, object] = msgspec.msgpack.decode(msgspec.msgpack.encode(known))
    assert decode_said(msgspec.msgpack.encode({**fields, "mood": "good"})) == known


def test_nonsense_is_noticed() -> None:
    with pytest.raises(BrokenFrame):
        Splitter().feed(b"\xff" * 8)
    with pytest.raises(msgspec.DecodeError):
        decode_said(b"\xc1")
    assert MAX_FRAME > 1 << 20
