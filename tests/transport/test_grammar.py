"""What a client sees of any session at all, message by message: the grammar of a response holds (WIRE 3.3, P19)."""

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.published import published
from antiphon.events import events as ev
from antiphon.events.log import Transaction
from antiphon.transport.wire_out import Reader, project

from tests.rules import rule
from tests.sessions.test_properties import SessionMachine
from tests.stories import tell

LETTERS = {
    "response.created": "C",
    "response.output_item.added": "I",
    "response.content_part.added": "P",
    "response.speak": "S",
    "response.output_audio.delta": "a",
    "response.output_audio_transcript.delta": "t",
    "response.output_text.delta": "x",
    "response.output_audio.done": "A",
    "response.output_audio_transcript.done": "T",
    "response.output_text.done": "X",
    "response.content_part.done": "Q",
    "response.function_call_arguments.delta": "f",
    "response.function_call_arguments.done": "F",
    "response.output_item.done": "O",
    "response.done": "E",
}
SPOKEN = "PS?(at|t)*ATQ"
WRITTEN = "PS?x*XQ"
CALL = "f*F"
WHOLE = re.compile(f"C(I({SPOKEN}|{WRITTEN}|{CALL})O)*E")
WORDS = {"T": ("t", "transcript"), "X": ("x", "text"), "F": ("f", "arguments")}
"""What the end of a part repeats: the deltas before it, and under which key."""


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


def owner(message: dict[str, Any]) -> str | None:
    """Return the response that a message is about."""
    if message["type"] not in LETTERS:
        return None
    return message["response"]["id"] if "response" in message else message["response_id"]


def check(messages: list[dict[str, Any]]) -> None:
    """Fail if the messages do not follow the grammar."""
    of: dict[str, list[dict[str, Any]]] = {}
    for message in messages:
        if (name := owner(message)) is not None:
            of.setdefault(name, []).append(message)
    for name, mine in of.items():
        word = "".join(LETTERS[message["type"]] for message in mine)
        assert "E" not in word or WHOLE.fullmatch(word), f"{name}: {word}"
        assert "E" in word or word.startswith("C"), f"{name}: {word}"
        repeated(mine)
    for one, other in pairwise(messages):
        if one["type"] == "response.output_audio.delta":
            pair = (other["type"], other["response_id"], other["item_id"])
            assert pair == ("response.output_audio_transcript.delta", one["response_id"], one["item_id"])


def repeated(messages: list[dict[str, Any]]) -> None:
    """Check that the end of each part says what its deltas said."""
    said = ""
    for message in messages:
        letter = LETTERS[message["type"]]
        if letter in ("t", "x", "f"):
            said += message["delta"]
        if letter in WORDS:
            assert message[WORDS[letter][1]] == said, "WIRE 3.3.4"
        if letter in ("O", "C"):
            said = ""


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
