"""An append that is read quickly says what it says when it is read as any other event is."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.ingress import AppendRequest
from antiphon.events.config import Dialect
from antiphon.transport import wire_append, wire_in
from antiphon.transport.wire_append import MOST_AROUND, MOST_SOUND, NAME, quick
from antiphon.transport.wire_errors import WireError
from antiphon.transport.wire_read import Decoded, Reading, Undecided, Understood

from .configs import initial
from tests.rules import rule

SOUND = b"\x10\x20" * 1280
TEXT = base64.b64encode(SOUND).decode()
SLOWLY = wire_in.decode_slowly


def understood(decoded: Decoded | None, dialect: Dialect) -> Understood | tuple[object, ...] | None:
    """Return what a frame means, with all that is known of it before it is understood."""
    if not isinstance(decoded, Undecided):
        return decoded
    known = (decoded.size, decoded.sound, decoded.event_id, decoded.event_type, decoded.client_seq)
    try:
        return (*known, decoded.under(initial(dialect)))
    except WireError as error:
        return (*known, *said(error))


def meant(decoded: Decoded, dialect: Dialect) -> object:
    """Return what becomes of a frame."""
    try:
        return decoded.under(initial(dialect)) if isinstance(decoded, Undecided) else decoded
    except WireError as error:
        return said(error)


def said(error: WireError) -> tuple[object, ...]:
    return (
        error.code,
        error.message,
        error.param,
        error.detail,
        error.event_id,
        error.event_type,
        error.client_seq,
    )


def compare(frame: bytes, dialect: Dialect = "duplex") -> bool:
    """Hold both readings against each other; return whether the quick one has taken it."""
    reading = Reading(dialect=dialect, attachment=1)
    found = quick(frame, reading)
    if found is not None:
        slowly = SLOWLY(frame, reading)
        assert understood(found, dialect) == understood(slowly, dialect)
        decided = quick(frame, reading, initial(dialect))
        assert decided is not None
        assert meant(decided, dialect) == meant(slowly, dialect)
    return found is not None


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 50_000),
    st.floats(0, 1.5, width=16),
    st.sampled_from(["pcm16", "g711_ulaw", "nonsense", "barge_in", "listen", "", "audio", '"audio"', "é", TEXT]),
    st.dictionaries(st.sampled_from(["audio", "is_speech", "probability", "x"]), st.just(TEXT) | st.booleans()),
    st.lists(st.just("audio"), max_size=2),
)
KEYS = [
    "audio", "delta", "format", "input_audio_format", "sample_rate_hz", "sample_rate", "is_speech", "speech",
    "speech_probability", "vad", "overlap_action", "overlap", "force_listen", "force_barge_in", "text",
    "transcript", "event_id", "client_seq", "video_frames", "max_slice_nums", "overlap_silence_rms", "type",
]  # fmt: skip
fields = st.lists(st.tuples(st.sampled_from(KEYS), values), max_size=5)
sounds = st.sampled_from([TEXT, "QQ==", "QQ=", "", "AA\\/A", "AAé=", "A A=", "AAAA\\u0041AAA", "=AAA"])


@given(fields, fields, sounds, st.booleans(), st.sampled_from(["ga", "beta", "duplex"]), st.data())
def test_both_readings_agree(
    before: list[tuple[str, object]],
    behind: list[tuple[str, object]],
    sound: str,
    spaced: bool,
    dialect: Dialect,
    data: st.DataObject,
) -> None:
    """Keys may come twice, in any order and nested; then some bytes are damaged."""
    colon, comma = (": ", ", ") if spaced else (":", ",")
    pairs = [(key, json.dumps(value, ensure_ascii=False)) for key, value in [("type", NAME), *before]]
    pairs += [("audio", f'"{sound}"'), *((key, json.dumps(value)) for key, value in behind)]
    whole = ("{" + comma.join(f'"{key}"{colon}{value}' for key, value in pairs) + "}").encode()
    compare(whole, dialect)
    frame = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 2))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.sampled_from(list(b'"\\{}[]:,a\x00\xff')))
    compare(bytes(frame), dialect)


TAKEN = [
    {"type": NAME, "audio": TEXT},
    {"audio": TEXT, "type": NAME},
    {"type": NAME, "event_id": "e", "client_seq": 4, "audio": TEXT, "sample_rate_hz": 16_000},
    {"type": NAME, "audio": TEXT, "vad": {"is_speech": True}, "transcript": "é"},
    {"type": NAME, "audio": "QQ==", "delta": "nothing", "format": "nonsense"},
]


@rule("E1")
@pytest.mark.parametrize("event", TAKEN)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_what_clients_send_is_read_quickly(event: dict[str, object], separators: tuple[str, str]) -> None:
    assert compare(json.dumps(event, separators=separators, ensure_ascii=False).encode())


LEFT = [
    '{"type":"NAME","audio":""}',
    '{"type":"NAME","audio":null,"delta":"TEXT"}',
    '{"type":"NAME","audio":5,"delta":"TEXT"}',
    '{"type":"NAME","vad":{"audio":"TEXT"}}',
    '{"type":"NAME","vad":{"audio":"TEXT"},"audio":""}',
    '{"type":"NAME","vad":{"audio":"TEXT"},"\\u0061udio":""}',
    '{"type":"NAME","transcript":"audio","audio":"TEXT"}',
    '{"type":"NAME","audio":"TEXT","audio":"QQ=="}',
    '{"type":"NAME","audio":"QQ\\u003d="}',
    '{"type":"NAME","audio":"QQ="}',
    '{"type":"NAME","audio":"TEXT","transcript":"a \\"word\\""}',
    '{"type":"NAME","audio":"TEXT","transcript":"' + "x" * MOST_AROUND + '"}',
    '{"type":"NAME","audio":"TEXT","client_seq":0}',
    '{"type":"NAME","audio":"TEXT"',
    '{"type":"NAME","audio":"TEXT',
    '{"type":"NAME","audio":',
    '{"type":"NAME","audio":"TEXT","x":' + "[" * 100 + "]" * 100 + "}",
    '{"type":"session.heartbeat","audio":"TEXT"}',
    '{"type":"NAME","audio":"' + "A" * (MOST_SOUND + 4) + '"}',
]


@pytest.mark.parametrize("frame", LEFT, ids=range(len(LEFT)))
def test_whatever_else_is_left_to_be_read_slowly(frame: str) -> None:
    assert not compare(frame.replace("NAME", NAME).replace("TEXT", TEXT).encode())


def test_pictures_are_weighed_as_they_came() -> None:
    picture = base64.b64encode(b"\xff\xd8\xff" + bytes(9)).decode()
    frame = json.dumps({"type": NAME, "audio": TEXT, "video_frames": [picture]}).encode()
    assert compare(frame)
    request = wire_in.decode(frame, Reading(dialect="duplex", attachment=1))
    assert isinstance(request, AppendRequest)
    assert (request.data, request.frames_size) == (SOUND, len(picture))


def test_what_is_around_the_sound_is_read_once() -> None:
    reading = Reading(dialect="ga", attachment=1)
    frame = json.dumps({"type": NAME, "audio": TEXT, "event_id": "once"}).encode()
    before = wire_append.around.cache_info()
    for _ in range(5):
        assert quick(frame, reading) == AppendRequest(data=SOUND, event_id="once")
    after = wire_append.around.cache_info()
    assert (after.misses - before.misses, after.hits - before.hits) == (1, 4)


@pytest.mark.parametrize("spelled", [{"sample_rate_hz": 8_000}, {"format": "g711_ulaw"}, {"format": "nonsense"}])
def test_with_the_configuration_an_append_is_decided_at_once(spelled: dict[str, object]) -> None:
    """Unless it is refused: then it is told as it is of one that had to wait."""
    reading, config = Reading(dialect="ga", attachment=1), initial("ga")
    frame = json.dumps({"type": NAME, "audio": TEXT, **spelled}).encode()
    assert compare(frame, "ga")
    assert isinstance(quick(frame, reading), Undecided)
    assert isinstance(quick(frame, reading, config), Undecided) == ("nonsense" in spelled.values())
