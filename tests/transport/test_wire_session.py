"""The session object: both spellings, the order of precedence, and what is refused."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from antiphon.events.audio import AudioFormat
from antiphon.events.config import Dialect, SessionConfig, TurnDetection, merged
from antiphon.events.events import PausedOutput
from antiphon.transport.wire_errors import WireError
from antiphon.transport.wire_session import patch_from
from antiphon.transport.wire_session_kept import LARGEST_UNKNOWN, MOST_UNKNOWN
from antiphon.transport.wire_view import SHOWN, shown_session

from .configs import initial
from .scenes import VIEW
from tests.rules import rule

VAD = TurnDetection()


def patched(
    session: dict[str, object], dialect: Dialect = "duplex", before: SessionConfig | None = None
) -> SessionConfig:
    config = before or initial(dialect)
    return merged(config, patch_from(Raw(json.dumps(session).encode()), config, dialect))


def refused(
    session: dict[str, object], dialect: Dialect = "duplex", before: SessionConfig | None = None
) -> tuple[str, str | None, str | None]:
    with pytest.raises(WireError) as caught:
        patched(session, dialect, before)
    return caught.value.code, caught.value.param, caught.value.detail


def test_an_empty_patch_changes_nothing() -> None:
    config = initial("ga")
    patch = patch_from(Raw(b"{}"), config, "ga")
    assert merged(config, patch) == config
    assert patch.turn_detection is UNSET
    assert patch.playback_policy is UNSET


def test_what_the_duplex_client_sends_at_opening() -> None:
    config = patched(
        {
            "model": "m",
            "modalities": ["audio", "text"],
            "input_audio_format": "pcm16",
            "output_audio_format": "pcm16",
            "sample_rate_hz": 16_000,
            "audio": {"input": {"sample_rate_hz": 16_000}, "output": {"sample_rate_hz": 16_000}},
            "turn_detection": None,
            "extra_body": {"auto_response": True, "top_p": 0.5},
            "idle_timeout_s": 1,
        }
    )
    assert config.input_format == AudioFormat("pcm16", 16_000)
    assert config.output_format == AudioFormat("pcm16", 16_000)
    assert config.turn_detection is None
    assert config.auto_response
    assert config.idle_timeout_s == 5.0


PRECEDENCE: list[tuple[dict[str, object], str, object]] = [
    (
        {"input_audio_format": "g711_ulaw", "audio": {"input": {"format": {"type": "audio/pcm"}}}},
        "input_format",
        AudioFormat("g711_ulaw", 8000),
    ),
    (
        {
            "sample_rate_hz": 8000,
            "audio": {"input": {"sample_rate_hz": 16_000, "format": {"type": "audio/pcm", "rate": 48_000}}},
        },
        "input_format",
        AudioFormat("pcm16", 8000),
    ),
    (
        {
            "response_format": "wav",
            "audio": {"output": {"format": "pcm16", "sample_rate_hz": 16_000}},
        },
        "output_format",
        AudioFormat("wav", 16_000),
    ),
    (
        {"output_audio_format": "g711_alaw", "response_format": "wav"},
        "output_format",
        AudioFormat("g711_alaw", 8000),
    ),
    ({"voice": "a", "audio": {"output": {"voice": "b"}}}, "voice", "a"),
    ({"audio": {"output": {"voice": {"id": "b"}}}}, "voice", "b"),
    ({"speed": 0.5, "audio": {"output": {"speed": 1.5}}}, "speed", 0.5),
    ({"modalities": ["text"], "output_modalities": ["audio"]}, "output_modalities", ("text",)),
    (
        {"turn_detection": None, "audio": {"input": {"turn_detection": {"type": "server_vad"}}}},
        "turn_detection",
        VAD,
    ),
    (
        {"max_tokens": 1, "max_output_tokens": 2, "max_response_output_tokens": 3},
        "max_output_tokens",
        3,
    ),
    ({"max_output_tokens": "inf"}, "max_output_tokens", None),
    ({"overlap_short_ack_ms": 1, "extra_body": {"overlap_short_ack_ms": 2}}, "overlap_short_ack_ms", 2),
    ({"playback_commit_policy": "whatever"}, "playback_policy", "commit_all_on_done"),
    ({"instructions": None}, "instructions", ""),
    (
        {"extra_body": {"realtime_tools": [{"type": "function", "function": {"name": "f"}}]}},
        "tools",
        '[{"type":"function","name":"f"}]',
    ),
]


@rule("F3")
@pytest.mark.parametrize(("session", "field", "value"), PRECEDENCE, ids=range(len(PRECEDENCE)))
def test_one_spelling_wins(session: dict[str, object], field: str, value: object) -> None:
    config = patched(session)
    assert {name: getattr(config, name) for name in config.__struct_fields__}[field] == value


def test_formats_come_back_from_g711_with_the_default_rate() -> None:
    phone = patched({"input_audio_format": "g711_ulaw"})
    assert patched({"input_audio_format": "pcm16"}, before=phone).input_format.rate == 16_000
    fast = patched({"sample_rate_hz": 48_000})
    assert patched({"input_audio_format": "pcm16"}, before=fast).input_format.rate == 48_000


@rule("F1", "F2")
def test_turn_detection_is_replaced_as_a_whole_and_clamped() -> None:
    before = patched({"turn_detection": {"type": "server_vad", "silence_duration_ms": 900}})
    after = patched({"turn_detection": {"threshold": 0.1, "min_speech_duration_ms": 1}}, before=before)
    assert after.turn_detection == TurnDetection(threshold=0.16, min_speech_duration_ms=32)


@pytest.mark.parametrize("kind", ["server_vad", "semantic_vad"])
@pytest.mark.parametrize(("dialect", "careful"), [("duplex", True), ("ga", False), ("beta", False)])
def test_5_13_false_interruption_is_an_option_of_the_duplex_dialect(
    kind: str, dialect: Dialect, careful: bool
) -> None:
    config = patched({"turn_detection": {"type": kind, "false_interruption": True}}, dialect)
    assert config.turn_detection is not None
    assert config.turn_detection.false_interruption is careful
    now = shown(config, dialect)
    assert ("false_interruption" in now["turn_detection"]) is careful
    assert now["turn_detection"] == now["audio"]["input"]["turn_detection"]
    assert ("output_audio_paused" in now) is careful
    other = patched({"turn_detection": {"type": kind}}, dialect, config)
    assert other.turn_detection is not None
    assert not other.turn_detection.false_interruption


def test_5_13_false_interruption_is_a_boolean() -> None:
    code, param, _ = refused({"turn_detection": {"type": "server_vad", "false_interruption": "yes"}})
    assert (code, param) == ("unsupported_turn_detection", "session.turn_detection.false_interruption")


def test_5_13_where_sound_stands_still_is_shown() -> None:
    paused = msgspec.structs.replace(VIEW, dialect="duplex", paused=PausedOutput("resp_1", 400))
    now = json.loads(bytes(shown_session(paused)))
    assert now["output_audio_paused"] == {"response_id": "resp_1", "at_ms": 400}


@pytest.mark.parametrize(("eagerness", "silence"), [("low", 1500), ("auto", 900), ("high", 500)])
def test_semantic_detection_is_a_silence_limit(eagerness: str, silence: int) -> None:
    config = patched({"turn_detection": {"type": "semantic_vad", "eagerness": eagerness}}, "ga")
    assert config.turn_detection is not None
    assert config.turn_detection.silence_duration_ms == silence


@pytest.mark.parametrize(
    ("session", "policy"),
    [
        ({"turn_detection": None}, UNSET),
        ({"overlap_policy": "barge_in_on_speech"}, "barge_in_on_speech"),
        ({"overlap_policy": "whatever"}, "listen_only"),
        (
            {"overlap_policy": "listen_only", "extra_body": {"overlap_policy": "barge_in_on_speech"}},
            "barge_in_on_speech",
        ),
    ],
)
def test_the_overlap_policy_is_what_the_client_said(session: dict[str, object], policy: object) -> None:
    assert patch_from(Raw(json.dumps(session).encode()), initial("ga"), "ga").overlap_policy == policy


def test_echoed_fields_are_kept_as_text() -> None:
    config = patched({"tracing": "auto", "include": ["item.input_audio_transcription.logprobs"]})
    assert config.echo["tracing"] == '"auto"'
    assert patched({"tracing": "auto"}, before=config) == config
    assert patched({"tracing": None}, before=config).echo["tracing"] == "null"


def shown(config: SessionConfig, dialect: Dialect) -> dict[str, Any]:
    view = msgspec.structs.replace(VIEW, dialect=dialect, config=config)
    made: dict[str, Any] = json.loads(bytes(shown_session(view)))
    return made


TOLD: dict[str, object] = {
    "instructions": "Be brief.",
    "audio": {
        "input": {
            "noise_reduction": {"type": "near_field", "strength": 0.5},
            "transcription": {"model": "m", "languages": ["en", "de"], "keywords": ["Antiphon"], "delay": "low"},
            "turn_detection": {"type": "server_vad", "silence_duration_ms": 900},
        },
        "output": {"voice": "default", "speed": 1.2},
    },
    "tools": [{"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}}],
    "tool_choice": {"type": "function", "name": "f"},
    "metadata": {"a": "1"},
    "include": ["item.input_audio_transcription.logprobs"],
    "prompt": {"id": "p", "variables": {"x": 1}},
    "tracing": {"workflow_name": "w"},
    "truncation": {"type": "retention_ratio", "retention_ratio": 0.5, "token_limits": {"post_instructions": 9}},
    "reasoning": {"effort": "low"},
    "parallel_tool_calls": False,
    "max_output_tokens": 99,
    "temperature": 0.5,
    "initial_user_text": "Hi.",
    "theme": {"dark": True},
}


@rule("L7", "L13", "Q4.22", "A1")
@pytest.mark.parametrize("dialect", ["ga", "beta", "duplex"])
@pytest.mark.parametrize("told", [{}, TOLD], ids=["default", "everything"])
@pytest.mark.parametrize("more", [{}, {"input_audio_format": "g711_ulaw", "output_audio_format": "g711_alaw"}])
def test_l7_a_session_object_that_is_echoed_back_changes_nothing(
    dialect: Dialect, told: dict[str, object], more: dict[str, object]
) -> None:
    config = patched({**told, **more}, dialect)
    before = shown(config, dialect)
    again = patched({**before, "id": "of another", "state": "closed", "epoch": 9}, dialect, config)
    assert shown(again, dialect) == before


@rule("L7", "Q4.22")
@pytest.mark.parametrize(
    "partial",
    [
        {"audio": {}},
        {"audio": {"input": {}}},
        {"audio": {"input": {"format": {"type": "audio/pcm"}}, "output": {}}},
        {"audio": {"output": {"speed": 1.2}}},
        {"extra_body": {}},
        {"speed": 1.2},
        {"theme": {"dark": True}},
    ],
    ids=str,
)
def test_l7_mentioning_a_part_forgets_nothing_of_the_rest(partial: dict[str, object]) -> None:
    config = patched(TOLD)
    assert shown(patched(partial, before=config), "duplex") == shown(config, "duplex")


@rule("L7")
def test_l7_null_clears_the_optional_fields() -> None:
    nulls = dict.fromkeys(
        ("instructions", "voice", "tools", "tool_choice", "metadata", "include", "prompt", "tracing", "reasoning")
    )
    cleared = {
        **nulls,
        "audio": {"input": {"transcription": None, "noise_reduction": None}},
        "max_output_tokens": None,
        "temperature": None,
    }
    now = shown(patched(cleared, before=patched(TOLD)), "duplex")
    empty = shown(patched({}), "duplex")
    for key in (*nulls, "input_audio_transcription", "input_audio_noise_reduction", "max_tokens", "temperature"):
        assert now[key] == empty[key], key
    assert patch_from(Raw(b'{"voice":null}'), initial("ga"), "ga").voice is None


@rule("L13")
def test_l13_fields_that_nobody_knows_are_shown_again_within_bounds() -> None:
    config = patched({"theme": {"dark": True}, "resume_token": "secret", "ref_audio": None, "x": 1})
    assert config.unknown == {"theme": '{"dark": true}', "x": "1"}
    more = patched({"x": 2, "y": None}, before=config)
    assert more.unknown == {"theme": '{"dark": true}', "x": "2", "y": "null"}
    assert patched({"z": "z" * LARGEST_UNKNOWN}, before=config).unknown == config.unknown
    assert patched({f"k{n}": n for n in range(MOST_UNKNOWN)}, before=config).unknown == config.unknown


@rule("L13")
def test_l13_what_is_shown_and_what_is_not() -> None:
    config = patched({**TOLD, "extra_body": {"top_p": 0.5, "auto_response": True}})
    now = shown(config, "duplex")
    assert set(now) == SHOWN | {"theme"}
    assert now["theme"] == {"dark": True}
    assert not {"extra_body", "resume_token", "ref_audio", "top_p"} & set(now)
    assert {*CONTRACT.split(), "output_audio_paused"} == SHOWN


CONTRACT = """
    id object type model expires_at output_modalities modalities instructions audio input_audio_format
    output_audio_format voice speed turn_detection input_audio_transcription input_audio_noise_reduction tools
    tool_choice parallel_tool_calls max_output_tokens max_response_output_tokens max_tokens temperature truncation
    include prompt tracing reasoning metadata initial_user_text response_format idle_timeout_s overlap_policy
    overlap_short_ack_ms overlap_barge_in_ms overlap_silence_rms playback_commit_policy state turn_state epoch
    turn_id active_request_id active_response_id active_response_turn_id playback capabilities
"""
"""The keys of the session object (WIRE 1.6)."""


@rule("L7")
def test_l7_extras_are_merged_key_by_key() -> None:
    config = patched({"extra_body": {"top_p": 0.5, "top_k": 3}})
    assert patched({"extra_body": {"top_k": None, "seed": 1}}, before=config).extras == {
        "top_p": "0.5",
        "seed": "1",
    }


def test_dialects_without_the_extensions_ignore_them() -> None:
    config = patched({"extra_body": {"auto_response": True}, "idle_timeout_s": 60}, "ga")
    assert not config.auto_response
    assert config.idle_timeout_s == 0.0


TD = "unsupported_turn_detection"
REFUSALS: list[tuple[dict[str, object], tuple[str, str | None, str | None]]] = [
    ({"turn_detection": 5}, (TD, "session.turn_detection", None)),
    ({"turn_detection": {"type": "magic"}}, (TD, "session.turn_detection.type", None)),
    (
        {"turn_detection": {"type": "server_vad", "threshold": 2}},
        (TD, "session.turn_detection.threshold", None),
    ),
    (
        {"audio": {"input": {"turn_detection": {"type": "server_vad", "treshold": 0.5}}}},
        (TD, "session.audio.input.turn_detection.treshold", None),
    ),
    ({"turn_detection": {"threshold": 0.5}}, (TD, "session.turn_detection.type", None)),
    ({"input_audio_format": "mp3"}, ("unsupported_audio_format", "session.input_audio_format", None)),
    (
        {"input_audio_format": "mp3", "turn_detection": 5},
        ("unsupported_audio_format", "session.input_audio_format", None),
    ),
    (
        {"audio": {"output": {"format": {"type": "audio/pcm_f32le"}}}},
        ("unsupported_audio_format", "session.audio.output.format.type", None),
    ),
    (
        {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 5}}}},
        ("bad_event", "session.audio.input.format.rate", "value"),
    ),
    ({"type": "transcription"}, ("unsupported", "session.type", None)),
    ({"type": "x"}, ("bad_event", "session.type", "value")),
    ({"speed": 2}, ("bad_event", "session.speed", "value")),
    ({"temperature": True}, ("bad_event", "session.temperature", "wrong_type")),
    ({"modalities": []}, ("bad_event", "session.modalities", "value")),
    ({"output_modalities": []}, ("bad_event", "session.output_modalities", "value")),
    ({"modalities": ["video"]}, ("bad_event", "session.modalities[0]", "value")),
    ({"max_output_tokens": 0}, ("bad_event", "session.max_output_tokens", "value")),
    ({"instructions": "x" * (1024 * 1024 + 1)}, ("bad_event", "session.instructions", "value")),
    ({"tools": [{"type": "mcp", "name": "f"}]}, ("unsupported", "session.tools[0].type", None)),
    (
        {"tools": [{"type": "function", "name": "a b"}]},
        ("bad_event", "session.tools[0].name", "value"),
    ),
    (
        {"tools": [{"type": "function", "name": "f"}] * 2},
        ("bad_event", "session.tools", "value"),
    ),
    (
        {"tool_choice": {"type": "function", "name": "f"}},
        ("bad_event", "session.tool_choice.name", "value"),
    ),
    ({"ref_audio": "/etc/passwd"}, ("unsupported_ref_audio_path", "session.ref_audio", None)),
    (
        {"ref_audio": "http://169.254.169.254/"},
        ("unsupported_ref_audio_path", "session.ref_audio", None),
    ),
    (
        {"extra_body": {"ref_audio_path": "x"}},
        ("unsupported_ref_audio_path", "session.extra_body.ref_audio_path", None),
    ),
]


@rule("B10", "F1")
@pytest.mark.parametrize(("session", "expected"), REFUSALS, ids=range(len(REFUSALS)))
def test_refusals(session: dict[str, object], expected: tuple[str, str | None, str | None]) -> None:
    assert refused(session) == expected


def test_pcm_output_of_the_openai_dialects_has_one_rate() -> None:
    session: dict[str, object] = {"audio": {"output": {"format": {"type": "audio/pcm", "rate": 16_000}}}}
    assert refused(session, "ga") == ("bad_event", "session.audio.output.format.rate", "value")
    assert patched(session).output_format.rate == 16_000


NESTED: list[tuple[dict[str, object], str]] = [
    ({"audio": {"input": {"format": {"type": "audio/pcmu"}}}}, "input"),
    ({"audio": {"output": {"speed": 1.25}}}, "output"),
    ({"audio": {}}, "nothing"),
    ({"audio": {"input": {"turn_detection": None}}}, "detection"),
]


@rule("L7", "Q4.22")
@pytest.mark.parametrize(("session", "_what"), NESTED, ids=[what for _, what in NESTED])
def test_q4_22_what_a_nested_object_does_not_mention_stays(session: dict[str, object], _what: str) -> None:
    before = patched(
        {
            "audio": {
                "input": {
                    "noise_reduction": {"type": "near_field"},
                    "transcription": {"language": "de"},
                    "turn_detection": {"type": "server_vad", "silence_duration_ms": 900},
                },
                "output": {"speed": 0.75, "voice": "joe"},
            },
            "include": ["item.input_audio_transcription.logprobs"],
        }
    )
    after = patched(session, before=before)
    assert after.echo == before.echo
    assert after.echo["noise_reduction"] == '{"type":"near_field"}'
    assert (after.transcription, after.voice) == (before.transcription, "joe")
    assert after.speed == (1.25 if _what == "output" else 0.75)
    assert after.turn_detection == (None if _what == "detection" else before.turn_detection)
