"""Whatever a stranger sends, the answer is a command or a refusal by code."""

import json

from hypothesis import given
from hypothesis import strategies as st

from antiphon.events.config import Dialect
from antiphon.transport.wire_errors import WireError
from antiphon.transport.wire_in import EVENT_NAMES, decode
from antiphon.transport.wire_read import Reading, Undecided

from .configs import initial

CODES = {
    "bad_event",
    "bad_audio",
    "unknown_event",
    "unsupported",
    "invalid_json",
    "event_too_large",
    "invalid_session_resume",
    "invalid_event_ack",
    "missing_item_id",
    "unsupported_audio_format",
    "unsupported_turn_detection",
    "invalid_video_frames",
    "invalid_input_modality",
    "invalid_function_call_output",
    "unsupported_native_response_options",
    "unsupported_ref_audio_path",
    "invalid_duplex_runtime_config",
}

KEYS = [
    "session", "response", "item", "audio", "input", "output", "format", "rate", "turn_detection", "type", "tools",
    "content", "role", "metadata", "vad", "sample_rate_hz", "item_id", "played_ms", "audio_end_ms", "voice",
    "extra_body", "tool_choice", "video_frames", "max_slice_nums", "client_seq", "event_id", "name", "text", "x",
    "event", "payload",
]  # fmt: skip
WORDS = [
    "server_vad",
    "message",
    "user",
    "pcm16",
    "audio/pcm",
    "function",
    "AAAA",
    "",
    "inf",
    "auto",
    "barge_in",
    "close",
    "session.update",
]

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(max_size=20)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=15,
)
dialects: st.SearchStrategy[Dialect] = st.sampled_from(["ga", "beta", "duplex"])


def read(frame: bytes, dialect: Dialect) -> None:
    refusal: WireError | None = None
    try:
        decoded = decode(frame, Reading(dialect=dialect, attachment=1))
        if isinstance(decoded, Undecided):
            decoded.under(initial(dialect))
    except WireError as error:
        refusal = error
    if refusal is not None:
        assert refusal.code in CODES
        assert len(refusal.message) < 400


@given(st.binary(max_size=200), dialects)
def test_bytes(frame: bytes, dialect: Dialect) -> None:
    read(frame, dialect)


@given(st.sampled_from(EVENT_NAMES), st.dictionaries(st.sampled_from(KEYS), values, max_size=6), dialects)
def test_events(kind: str, fields: dict[str, object], dialect: Dialect) -> None:
    read(json.dumps({**fields, "type": kind}).encode(), dialect)


@given(st.sampled_from(EVENT_NAMES), st.dictionaries(st.sampled_from(KEYS), values, max_size=6), st.data())
def test_events_that_were_damaged(kind: str, fields: dict[str, object], data: st.DataObject) -> None:
    frame = bytearray(json.dumps({**fields, "type": kind}).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    read(bytes(frame), "duplex")
