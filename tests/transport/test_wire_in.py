"""Decoding of client events: what becomes a command, and by which code everything else is refused."""

import base64
import json
from collections.abc import Mapping

import pytest

from antiphon.engine.ingress import AppendRequest
from antiphon.events import commands as cmd
from antiphon.events.audio import AudioFormat
from antiphon.events.config import Dialect, SessionConfig
from antiphon.events.items import AudioPart, FunctionCall, FunctionOutput, Message, TextPart
from antiphon.transport.codes import MAX_EVENT
from antiphon.transport.wire_errors import WireError
from antiphon.transport.wire_in import EVENT_NAMES, decode
from antiphon.transport.wire_read import EventAck, Reading, SessionResume, Undecided, Understood

from .configs import initial
from tests.rules import rule

SOUND = b"\x01\x02" * 160
BASE64 = base64.b64encode(SOUND).decode()
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(8)).decode()
GIF = base64.b64encode(b"GIF89a" + bytes(8)).decode()


def reading(dialect: Dialect = "duplex") -> Reading:
    return Reading(dialect=dialect, attachment=3)


def understood(frame: str | bytes, dialect: Dialect) -> Understood:
    """Decode a frame, and understand it under the configuration that a session begins with."""
    decoded = decode(frame, reading(dialect))
    return decoded.under(initial(dialect)) if isinstance(decoded, Undecided) else decoded


def read(event: object, dialect: Dialect = "duplex") -> object:
    return understood(json.dumps(event), dialect)


def refused(frame: str | bytes | Mapping[str, object], dialect: Dialect = "duplex") -> WireError:
    with pytest.raises(WireError) as caught:
        understood(frame if isinstance(frame, str | bytes) else json.dumps(frame), dialect)
    return caught.value


def append(**fields: object) -> dict[str, object]:
    return {"type": "input_audio_buffer.append", "audio": BASE64, **fields}


BARE = [
    ("input_audio_buffer.clear", cmd.ClearInput),
    ("input.cancel", cmd.CancelInput),
    ("barge_in", cmd.BargeIn),
    ("session.heartbeat", cmd.Heartbeat),
]


@pytest.mark.parametrize(("name", "kind"), BARE)
def test_an_event_without_fields_becomes_its_command(name: str, kind: type[cmd.ClearInput]) -> None:
    assert read({"type": name, "event_id": "e1", "client_seq": 7}) == kind(
        attachment=3, event_id="e1", client_seq=7
    )


@rule("E1")
def test_an_append_is_undone_once() -> None:
    assert read(append(event_id="e")) == AppendRequest(data=SOUND, event_id="e")


def test_the_aliases_of_an_append() -> None:
    event = {
        "type": "input_audio_buffer.append",
        "delta": BASE64,
        "input_audio_format": "g711_ulaw",
        "sample_rate": 8000,
        "speech": False,
        "vad": {"probability": 0.25, "silence_rms": 0.01},
        "text": "hello",
    }
    assert read(event) == AppendRequest(
        data=SOUND,
        format=AudioFormat("g711_ulaw", 8000),
        speech=False,
        probability=0.25,
        silence_rms=0.01,
        transcript="hello",
    )


@rule("F15")
@pytest.mark.parametrize("key", ["overlap_action", "overlap"])
@pytest.mark.parametrize(("word", "action"), [("Interrupt", "barge_in"), ("ack", "continue"), ("whatever", None)])
def test_wire_6_4_what_an_append_wants_during_an_answer(
    key: str, word: str, action: cmd.OverlapAction | None
) -> None:
    request = read(append(**{key: word, "force_listen": True}))
    assert request == AppendRequest(data=SOUND, overlap=action, force_listen=True)
    assert read(append(force_barge_in=True)) == AppendRequest(data=SOUND, force_barge_in=True)


@rule("E7", "E12")
def test_pictures_of_the_camera_ride_on_an_append_and_weigh_as_they_came() -> None:
    png, jpeg = base64.b64decode(PNG), b"\xff\xd8\xff" + bytes(9)
    spelled = [PNG, base64.b64encode(jpeg).decode()]
    request = read(append(video_frames=spelled, max_slice_nums=1))
    assert request == AppendRequest(data=SOUND, frames=(png, jpeg), frames_size=sum(map(len, spelled)))
    assert isinstance(request, AppendRequest)
    assert request.size == len(SOUND) + sum(map(len, spelled))
    assert read(append(video_frames=[], max_slice_nums=None)) == AppendRequest(data=SOUND)


@rule("E8")
def test_pictures_may_come_without_sound() -> None:
    request = read({"type": "input_audio_buffer.append", "video_frames": [PNG]})
    assert request == AppendRequest(frames=(base64.b64decode(PNG),), frames_size=len(PNG))


@rule("E4")
@pytest.mark.parametrize(
    ("fields", "speech", "probability"),
    [
        ({"is_speech": False, "speech": True, "speech_probability": 0.9}, False, 0.9),
        ({"speech": False, "vad": {"is_speech": True}}, False, None),
        ({"vad": {"is_speech": True, "probability": 0.1}}, True, 0.1),
        ({"vad": {"speech_probability": 0.2, "probability": 0.9}, "speech_probability": 0.7}, None, 0.2),
    ],
)
def test_a_hint_only_fills_what_the_field_of_its_name_leaves_open(
    fields: dict[str, object], speech: bool | None, probability: float | None
) -> None:
    request = read(append(**fields))
    assert isinstance(request, AppendRequest)
    assert (request.speech, request.probability) == (speech, probability)


@rule("E4")
def test_a_hint_of_the_wrong_type_is_no_verdict() -> None:
    assert refused(append(is_speech=0)).code == "bad_event"


def test_a_rate_alone_keeps_the_encoding_of_the_session() -> None:
    request = read(append(sample_rate_hz=48_000))
    assert isinstance(request, AppendRequest)
    assert request.format == AudioFormat("pcm16", 48_000)


COMMITS = [
    ({"type": "input_audio_buffer.commit"}, None),
    ({"type": "input.commit"}, True),
    ({"type": "input.commit", "create_response": False}, False),
    ({"type": "input_audio_buffer.commit", "create_response": False, "response_create": True}, True),
]


@rule("E37")
@pytest.mark.parametrize(("event", "wanted"), COMMITS)
def test_whether_a_commit_asks_for_an_answer(event: dict[str, object], wanted: bool | None) -> None:
    assert read(event) == cmd.CommitInput(attachment=3, create_response=wanted)


def test_items() -> None:
    def created(item: dict[str, object]) -> object:
        command = read({"type": "conversation.item.create", "item": item, "previous_item_id": ""})
        assert isinstance(command, cmd.CreateItem)
        assert command.previous_item_id is None
        return command.item

    text = {"type": "input_text", "text": "hi"}
    assert created({"type": "message", "role": "user", "content": [text]}) == Message(
        id="", role="user", content=(TextPart("hi"),)
    )
    assert created({"type": "message", "role": "system", "content": "be kind", "id": "a-1"}) == Message(
        id="a-1", role="system", content=(TextPart("be kind"),)
    )
    spoken = {"type": "output_audio", "transcript": "so"}
    assert created({"type": "message", "role": "assistant", "content": [spoken]}) == Message(
        id="", role="assistant", content=(AudioPart("so"),)
    )
    assert created({"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"}) == FunctionCall(
        id="", call_id="c", name="f", arguments="{}"
    )
    assert created({"type": "function_call_output", "call_id": "c", "output": "1"}) == FunctionOutput(
        id="", call_id="c", output="1"
    )


def test_playback_and_truncation_take_huge_numbers_as_the_largest() -> None:
    ack = read({"type": "audio.playback_ack", "played_ms": 1e300, "committed_ms": 5})
    assert ack == cmd.AckPlayback(attachment=3, played_ms=2**53, committed_ms=5)
    cut = read({"type": "conversation.item.truncate", "item_id": "i", "audio_end_ms": 1.9})
    assert cut == cmd.TruncateItem(attachment=3, item_id="i", audio_end_ms=1)


@pytest.mark.parametrize("name", ["session.close", "close", "close_session"])
def test_closing_keeps_120_bytes_of_the_reason(name: str) -> None:
    command = read({"type": name, "reason": "é" * 100})
    assert command == cmd.CloseSession(control_id="close-3", words="é" * 60, attachment=3)


def test_resume_and_event_ack() -> None:
    assert read({"type": "session.resume", "session_id": "s", "resume_token": "t"}) == SessionResume(
        session="s", token="t", last_number=0
    )
    assert read({"type": "session.event_ack", "server_event_seq": 9}) == EventAck(number=9)


def test_response_options() -> None:
    response = {
        "instructions": "short",
        "modalities": ["text"],
        "audio": {"output": {"voice": {"id": "v"}, "format": {"type": "audio/pcmu"}, "speed": 1.5}},
        "max_output_tokens": 9,
        "conversation": "none",
        "metadata": {"k": "v"},
    }
    command = read({"type": "response.create", "response": response})
    assert command == cmd.CreateResponse(
        attachment=3,
        options=cmd.ResponseOptions(
            instructions="short",
            output_modalities=("text",),
            output_format=AudioFormat("g711_ulaw", 8000),
            voice="v",
            speed=1.5,
            max_output_tokens=9,
            metadata={"k": "v"},
            remember=False,
        ),
    )
    assert read({"type": "response.create"}) == cmd.CreateResponse(attachment=3)
    unlimited = cmd.CreateResponse(attachment=3, options=cmd.ResponseOptions(max_output_tokens="inf"))
    for name in ("max_output_tokens", "max_response_output_tokens", "max_tokens"):
        assert read({"type": "response.create", "response": {name: "inf"}}) == unlimited


Refusal = tuple[object, str, str | None, str | None]
REFUSALS: list[Refusal] = [
    # what is no event at all
    ('{"type":"session.heart', "invalid_json", None, None),
    (b'{"type":"\xff"}', "invalid_json", None, None),
    ("[1,2]", "bad_event", None, None),
    ('"x"', "bad_event", None, None),
    ("null", "bad_event", None, None),
    ("12", "bad_event", None, None),
    ({}, "bad_event", None, "type_missing"),
    ({"type": 5}, "bad_event", "type", "wrong_type"),
    ({"type": "session.destroy"}, "unknown_event", "type", None),
    ({"type": "__proto__"}, "unknown_event", "type", None),
    ({"type": "turn.signal", "event": "x"}, "bad_event", "event", "value"),
    ({"type": "session.heartbeat", "event_id": 5}, "bad_event", "event_id", "wrong_type"),
    ("[" * 100_000 + "]" * 100_000, "invalid_json", None, None),
    ('{"type":"session.heartbeat","x":' + "[" * 65 + "]" * 65 + "}", "invalid_json", None, None),
    ("1" * 1_000_000, "invalid_json", None, None),
    ('{"type":"session.heartbeat","x":' + "1" * 1_000_000 + "}", "invalid_json", None, None),
    # sound
    (append(audio="@@@"), "bad_audio", "audio", None),
    (append(audio="data:audio/wav;base64," + BASE64), "bad_audio", "audio", None),
    (append(audio=BASE64 + "\n"), "bad_audio", "audio", None),
    (append(audio=5), "bad_event", "audio", "wrong_type"),
    (append(audio=""), "bad_event", "audio", "value"),
    ({"type": "input_audio_buffer.append"}, "bad_event", "audio", "missing"),
    (append(sample_rate_hz=0), "bad_event", "sample_rate_hz", "value"),
    (append(sample_rate_hz=-1), "bad_event", "sample_rate_hz", "value"),
    (append(sample_rate_hz=1e308), "bad_event", "sample_rate_hz", "wrong_type"),
    (append(sample_rate_hz=True), "bad_event", "sample_rate_hz", "wrong_type"),
    (append(sample_rate_hz=float("nan")), "bad_event", "sample_rate_hz", "wrong_type"),
    (append(sample_rate_hz="16000"), "bad_event", "sample_rate_hz", "wrong_type"),
    (append(format="mp3"), "unsupported_audio_format", "format", None),
    (append(format="wav"), "unsupported_audio_format", "format", None),
    (append(format={"type": ["pcm"]}), "bad_event", "format", "wrong_type"),
    (append(format="g711_alaw", sample_rate_hz=16_000), "bad_event", "sample_rate_hz", "value"),
    (append(vad={"probability": 1.5}), "bad_event", "vad.probability", "value"),
    (append(is_speech=1), "bad_event", "is_speech", "wrong_type"),
    (append(video_frames=[GIF]), "invalid_video_frames", "video_frames[0]", None),
    (append(video_frames=["A" * 10_000_000]), "invalid_video_frames", "video_frames[0]", None),
    (append(video_frames=[PNG] * 100), "invalid_video_frames", "video_frames", None),
    (append(video_frames=["file:///etc/passwd"]), "invalid_video_frames", "video_frames[0]", None),
    (append(video_frames=[PNG], max_slice_nums=2), "invalid_video_frames", "max_slice_nums", None),
    # items
    ({"type": "conversation.item.create"}, "bad_event", "item", "missing"),
    ({"type": "conversation.item.create", "item": {}}, "bad_event", "item.type", "missing"),
    ({"type": "conversation.item.create", "item": {"type": "mcp_call"}}, "unsupported", "item.type", None),
    (
        {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "id": "a" * 10_000}},
        "bad_event",
        "item.id",
        "value",
    ),
    (
        {
            "type": "conversation.item.create",
            "item": {"type": "message", "role": "user", "content": [{"type": "output_text", "text": "x"}]},
        },
        "bad_event",
        "item.content[0].type",
        "value",
    ),
    (
        {
            "type": "conversation.item.create",
            "item": {"type": "function_call_output", "call_id": "c", "output": {"a": 1}},
        },
        "invalid_function_call_output",
        "item.output",
        None,
    ),
    ({"type": "conversation.item.delete"}, "missing_item_id", "item_id", None),
    ({"type": "conversation.item.truncate", "item_id": "i"}, "bad_event", "audio_end_ms", "missing"),
    (
        {"type": "conversation.item.truncate", "item_id": "i", "audio_end_ms": -1},
        "bad_event",
        "audio_end_ms",
        "value",
    ),
    ({"type": "playback.ack", "played_ms": -5}, "bad_event", "played_ms", "value"),
    ({"type": "playback.ack", "played_ms": True}, "bad_event", "played_ms", "wrong_type"),
    # responses
    (
        {"type": "response.create", "response": {"metadata": {str(n): "" for n in range(17)}}},
        "bad_event",
        "response.metadata",
        "value",
    ),
    (
        {"type": "response.create", "response": {"metadata": {"a": {}}}},
        "bad_event",
        "response.metadata",
        "wrong_type",
    ),
    (
        {"type": "response.create", "response": {"metadata": {"a" * 65: ""}}},
        "bad_event",
        "response.metadata",
        "value",
    ),
    (
        {"type": "response.create", "response": {"modalities": []}},
        "bad_event",
        "response.modalities",
        "value",
    ),
    (
        {"type": "response.create", "response": {"output_modalities": []}},
        "bad_event",
        "response.output_modalities",
        "value",
    ),
    (
        {"type": "response.create", "response": {"input": [{"type": "message"}]}},
        "bad_event",
        "response.input[0].role",
        "missing",
    ),
    (
        {"type": "response.create", "response": {"input": [{"type": "item_reference"}]}},
        "bad_event",
        "response.input[0].id",
        "missing",
    ),
    (
        {"type": "response.create", "response": {"input": "words"}},
        "bad_event",
        "response.input",
        "wrong_type",
    ),
    # resume and acknowledgements
    (
        {"type": "session.resume", "session_id": "s", "resume_token": ""},
        "invalid_session_resume",
        "resume_token",
        None,
    ),
    (
        {
            "type": "session.resume",
            "session_id": "s",
            "resume_token": "t",
            "last_received_server_event_seq": -1,
        },
        "invalid_session_resume",
        "last_received_server_event_seq",
        None,
    ),
    ({"type": "session.event_ack", "server_event_seq": -1}, "invalid_event_ack", "server_event_seq", None),
    ({"type": "session.event_ack", "server_event_seq": True}, "invalid_event_ack", "server_event_seq", None),
    ({"type": "session.update", "session": 5}, "bad_event", "session", "wrong_type"),
]


@rule("O2")
@pytest.mark.parametrize(("frame", "code", "param", "detail"), REFUSALS, ids=range(len(REFUSALS)))
def test_refusals(
    frame: str | bytes | Mapping[str, object], code: str, param: str | None, detail: str | None
) -> None:
    refusal = refused(frame)
    assert (refusal.code, refusal.param, refusal.detail) == (code, param, detail)
    assert len(refusal.message) < 200


@rule("A22")
def test_a_refusal_names_the_event_it_is_about() -> None:
    assert refused(append(event_id="mine", audio="@")).event_id == "mine"
    assert refused(append(event_id="mine", sample_rate_hz=float("inf"))).event_id == "mine"
    assert refused({"type": "nothing", "event_id": "mine"}).event_id == "mine"


@rule("D18")
def test_only_frames_that_never_were_commands_go_unnumbered() -> None:
    assert not refused("{").numbered
    assert not refused({"type": "session.event_ack"}).numbered
    assert refused({"type": "nothing"}).numbered


@rule("D4")
def test_size_is_bounded_and_strings_may_be_full_of_brackets() -> None:
    text = "[{" * 100_000 + '\\"' * 10
    assert isinstance(decode('{"type":"session.heartbeat","x":"' + text + '"}', reading()), cmd.Heartbeat)
    filler = MAX_EVENT + 1 - len('{"type":"session.heartbeat","x":""}')
    refusal = refused('{"type":"session.heartbeat","x":"' + "a" * filler + '"}')
    assert (refusal.code, refusal.numbered) == ("event_too_large", False)
    exact = '{"type":"session.heartbeat","x":"' + "a" * (filler - 1) + '"}'
    assert isinstance(decode(exact, reading()), cmd.Heartbeat)


def test_a_type_of_a_megabyte_is_quoted_shortly() -> None:
    refusal = refused({"type": "x" * 1_000_000})
    assert refusal.code == "unknown_event"
    assert len(refusal.message) < 100


@pytest.mark.parametrize("dialect", ["ga", "beta"])
def test_session_update_needs_its_object_outside_the_duplex_dialect(dialect: Dialect) -> None:
    refusal = refused({"type": "session.update", "instructions": "hi"}, dialect)
    assert (refusal.code, refusal.param, refusal.detail) == ("bad_event", "session", "missing")


def test_in_the_duplex_dialect_the_event_may_be_the_session_itself() -> None:
    command = read({"type": "session.update", "event_id": "e", "instructions": "hi"})
    assert isinstance(command, cmd.UpdateSession)
    assert command.patch.instructions == "hi"
    assert command.event_id == "e"


def test_every_client_event_of_the_contract_is_known() -> None:
    assert len(EVENT_NAMES) == 27


SIGNALS: list[tuple[dict[str, object], dict[str, object]]] = [
    ({"event": "input.cancel"}, {"type": "input.cancel"}),
    ({"event": "barge_in", "payload": None}, {"type": "barge_in"}),
    (
        {"event": "response.cancel", "payload": {"response_id": "resp_1", "type": "x", "event_id": "y"}},
        {"type": "response.cancel", "response_id": "resp_1"},
    ),
    (
        {"event": "session.update", "payload": {"instructions": "Be brief.", "type": "realtime"}},
        {"type": "session.update", "session": {"instructions": "Be brief.", "type": "realtime"}},
    ),
    (
        {"event": "conversation.item.create", "payload": {"item": {"type": "message", "role": "user"}}},
        {"type": "conversation.item.create", "item": {"type": "message", "role": "user"}},
    ),
    (
        {"event": "conversation.item.retrieve", "payload": {"item_id": "i"}},
        {"type": "conversation.item.retrieve", "item_id": "i"},
    ),
    (
        {"event": "conversation.item.delete", "payload": {"item_id": "i"}},
        {"type": "conversation.item.delete", "item_id": "i"},
    ),
    (
        {"event": "conversation.item.truncate", "payload": {"item_id": "i", "audio_end_ms": 5}},
        {"type": "conversation.item.truncate", "item_id": "i", "audio_end_ms": 5},
    ),
]


@rule("L14")
@pytest.mark.parametrize("name", ["turn.signal", "signal_turn"])
@pytest.mark.parametrize(("signal", "event"), SIGNALS, ids=[str(row[0]["event"]) for row in SIGNALS])
def test_l14_an_alias_is_exactly_the_event_that_it_stands_for(
    name: str, signal: dict[str, object], event: dict[str, object]
) -> None:
    own = {"event_id": "e", "client_seq": 3}
    assert read({"type": name, **own, **signal}) == read({**event, **own})


@rule("L14")
def test_l14_signals_of_their_own() -> None:
    for word in ("user_started", "user_committed", "assistant_started", "assistant_done", "timeout", "close"):
        command = read({"type": "turn.signal", "event_id": "e", "event": word, "payload": {"x": 1}})
        assert isinstance(command, cmd.SignalTurn)
        assert (command.signal, command.event_id, command.playback) == (word, "e", None)
    command = read({"type": "turn.signal", "event": "playback_ack", "payload": {"played_ms": 7, "type": "x"}})
    assert command == cmd.SignalTurn(
        attachment=3, signal="playback_ack", playback=cmd.AckPlayback(attachment=3, played_ms=7)
    )


@rule("L15")
def test_l15_no_signal_reaches_a_model_that_takes_none() -> None:
    for word in ("user_started", "barge_in", "close"):
        with pytest.raises(WireError) as caught:
            decode(
                json.dumps({"type": "turn.signal", "event_id": "e", "event": word}),
                Reading(dialect="duplex", attachment=3, signals=False),
            )
        assert (caught.value.code, caught.value.param, caught.value.event_id) == ("unsupported", "event", "e")


@pytest.mark.parametrize("name", ["input.text.append", "input_text.append", "push_text"])
def test_wire_2_15_text_for_the_turn(name: str) -> None:
    assert read({"type": name, "text": "Look.", "event_id": "e"}) == cmd.AppendText(
        attachment=3, event_id="e", text="Look."
    )


DEPENDENT = [
    {"type": "session.update", "session": {}},
    {"type": "session.update", "instructions": "x"},
    {"type": "response.create", "response": {}},
    append(format="pcm16"),
    append(sample_rate_hz=8000),
]


@pytest.mark.parametrize("event", DEPENDENT)
def test_only_what_depends_on_the_configuration_waits_for_it(event: dict[str, object]) -> None:
    decoded = decode(json.dumps({**event, "event_id": "e", "client_seq": 4}), reading())
    assert isinstance(decoded, Undecided)
    assert (decoded.event_id, decoded.event_type, decoded.client_seq) == ("e", event["type"], 4)
    assert decoded.sound == ("audio" in event)
    assert not isinstance(decode(json.dumps(append()), reading()), Undecided)


def test_what_is_refused_late_names_its_event_too() -> None:
    event = {"type": "session.update", "event_id": "e", "client_seq": 4, "session": {"speed": 9}}
    refusal = refused(event)
    assert (refusal.event_id, refusal.event_type, refusal.client_seq) == ("e", "session.update", 4)


def test_the_size_of_what_waits_is_known() -> None:
    decoded = decode(json.dumps({"type": "session.update", "session": {"instructions": "x" * 1000}}), reading())
    assert isinstance(decoded, Undecided)
    assert decoded.size > 1000


@pytest.mark.parametrize("seq", [0, -1, 2**53 + 1, 2**64, True, "1", 1.5])
def test_a_client_seq_is_a_whole_number_that_every_store_can_hold(seq: object) -> None:
    frame = json.dumps({"type": "input_audio_buffer.clear", "event_id": "e", "client_seq": seq})
    with pytest.raises(WireError) as refused:
        decode(frame, Reading(dialect="duplex", attachment=1))
    assert (refused.value.code, refused.value.param, refused.value.event_id) == ("bad_event", "client_seq", "e")


@pytest.mark.parametrize("kind", [5, None, ["x"]])
def test_a_wrong_type_is_refused_with_the_clients_event_id(kind: object) -> None:
    with pytest.raises(WireError) as refused:
        decode(json.dumps({"type": kind, "event_id": "q"}), Reading(dialect="duplex", attachment=1))
    assert (refused.value.code, refused.value.event_id) == ("bad_event", "q")


def test_what_a_client_wrote_is_told_back_in_small_pieces_only() -> None:
    frame = json.dumps(
        {"type": "session.update", "session": {"turn_detection": {"type": "server_vad", "x" * 9000: 1}}}
    )
    decoded = decode(frame, Reading(dialect="duplex", attachment=1))
    assert isinstance(decoded, Undecided)
    with pytest.raises(WireError) as refused:
        decoded.under(SessionConfig(model="m"))
    assert len(refused.value.param or "") <= 128
    assert len(refused.value.message) <= 256
