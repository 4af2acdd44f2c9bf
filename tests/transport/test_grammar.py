"""What a client sees of any session at all, message by message: the grammar of a response holds (WIRE 3.3, P19)."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.published import published
from antiphon.events import events as ev
from antiphon.events.log import Transaction
from antiphon.transport.wire_out import Reader, project

from .grammar import check
from tests.rules import rule
from tests.sessions.test_properties import SessionMachine
from tests.stories import tell


def seen(log: Iterable[Transaction]) -> list[dict[str, Any]]:
    """Return what a duplex client is sent of a log."""
    messages: list[dict[str, Any]] = []
    reader = Reader(session="duplex-1", form="duplex", attachment=1, token=None)
    for transaction in log:
        sound = {
            event.ref: bytes(event.ref.size) for event in transaction.events if isinstance(event, ev.AudioDelta)
        }
        made = project(published(transaction, sound), reader, 0)
        messages += [json.loads(message.data) for message in made]
    return messages


class WireMachine(SessionMachine):
    """Any session, as its client sees it."""

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "world") and self.world.session.dialect == "duplex":
            check(seen(self.world.log))


@rule("G9", "G10", "G20", "P16", "P17", "P19")
@given(data=st.data())
def test_any_session_is_seen_by_the_grammar(data: st.DataObject) -> None:
    tell(WireMachine, data, steps=50)


def message(kind: str, **fields: object) -> dict[str, Any]:
    return {"type": kind, "response_id": "r", "item_id": "i", **fields}


GOOD = [
    {"type": "response.created", "response": {"id": "r"}},
    message("response.output_item.added"),
    message("response.content_part.added"),
    message("response.speak"),
    message("response.output_audio.delta"),
    message("response.output_audio_transcript.delta", delta="Hi"),
    message("response.output_audio.done"),
    message("response.output_audio_transcript.done", transcript="Hi"),
    message("response.content_part.done"),
    message("response.output_item.done"),
    {"type": "response.done", "response": {"id": "r"}},
]


def test_the_grammar_finds_what_is_missing_doubled_or_late() -> None:
    check(GOOD)
    for at in (1, 2, 5, 6, 7, 8, 9):
        with pytest.raises(AssertionError):
            check(GOOD[:at] + GOOD[at + 1 :])
        with pytest.raises(AssertionError):
            check([*GOOD, GOOD[at]])
    with pytest.raises(AssertionError, match=r"3\.3\.4"):
        check([*GOOD[:7], message("response.output_audio_transcript.done", transcript="Ho"), *GOOD[8:]])
    with pytest.raises(AssertionError):
        check([GOOD[0], *GOOD])
