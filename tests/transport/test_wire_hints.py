"""What a refusal says would have been right."""

import msgspec
import pytest

from antiphon.transport.chat_in import ChatRequest
from antiphon.transport.wire_client import AppendBuffer, ItemCreate
from antiphon.transport.wire_errors import LONGEST_MESSAGE, translate
from antiphon.transport.wire_hints import allowed
from antiphon.transport.wire_session_in import SessionIn

WORDS = [
    (SessionIn, "temperature", "a number from 0 to 2"),
    (SessionIn, "audio.output.speed", "a number from 0.25 to 1.5"),
    (SessionIn, "idle_timeout_s", "a number of at least 0"),
    (SessionIn, "max_output_tokens", "an integer from 1 to 4096 or 'inf'"),
    (SessionIn, "voice", "a string of at most 256 characters or an object"),
    (SessionIn, "output_modalities[1]", "'audio' or 'text'"),
    (SessionIn, "truncation", "'auto' or 'disabled' or an object"),
    (SessionIn, "parallel_tool_calls", "true or false"),
    (SessionIn, "audio.input.transcription.languages", "an array"),
    (
        SessionIn,
        "metadata",
        "an object of at most 16 entries, keys of at most 64 characters, values of at most 512 characters",
    ),
    (SessionIn, "metadata[...]", "a string of at most 512 characters"),
    (SessionIn, "audio", "an object"),
    (SessionIn, "", "an object"),
    (SessionIn, "turn_detection", ""),
    (SessionIn, "no.such[0].field", ""),
    (AppendBuffer, "sample_rate_hz", "an integer from 8000 to 192000"),
    (ItemCreate, "item.id", "a string that matches ^[A-Za-z0-9_-]{0,64}$"),
    (ChatRequest, "messages", "an array of 1 to 4096 items"),
    (ChatRequest, "messages[3].role", "'assistant', 'developer', 'system', 'tool' or 'user'"),
]


@pytest.mark.parametrize(("shape", "path", "words"), WORDS)
def test_what_may_stand_in_a_field(shape: object, path: str, words: str) -> None:
    assert allowed(shape, path) == words


REFUSED = [
    (b'{"temperature": 3}', "value", "Invalid value for 'session.temperature': expected a number from 0 to 2."),
    (
        b'{"temperature": true}',
        "wrong_type",
        "Invalid type for 'session.temperature': expected a number from 0 to 2.",
    ),
    (
        b'{"turn_detection": {}, "modalities": ["smell"]}',
        "value",
        "session.modalities[0]': expected 'audio' or 'text'.",
    ),
    (b"7", "wrong_type", "Invalid type for 'session': expected an object."),
]


@pytest.mark.parametrize(("body", "detail", "words"), REFUSED)
def test_a_refusal_says_where_and_what(body: bytes, detail: str, words: str) -> None:
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.json.decode(body, type=SessionIn)
    refusal = translate(error.value, SessionIn, "session.")
    assert refusal.detail == detail
    assert words in refusal.message
    assert len(refusal.message) <= LONGEST_MESSAGE
