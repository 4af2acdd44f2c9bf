"""The grammar of a response, as a client is told of it (WIRE 3.3, P19)."""

import re
from itertools import pairwise
from typing import Any

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
