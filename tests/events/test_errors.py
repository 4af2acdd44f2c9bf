"""The table of error classes: every code that anybody sends stands in it (BEHAVIOURS O, WIRE 9.2)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.events.errors import CODES, error_type, retryable

from tests.rules import rule

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("events", "sessions", "engine", "transport", "stages")

SAYS = {
    "refuse": 0,
    "Refusal": 0,
    "Refused": 0,
    "WireError": 0,
    "Failure": 0,
    "error_body": 0,
    "refusal": 0,
    "_gone": 0,
    "_recoded": 1,
    "_fail": 2,
    "ErrorReported": "code",
    "ReportRefusal": "code",
    "StageFailed": "code",
}
"""What says a code, and where among its arguments the code stands."""

NO_CODES = {
    "journal_gap": "the reason of a resync, which is no error event",
    "session_resync_required": "our client's own word for that event",
}


def said() -> Iterator[tuple[str, str]]:
    """Yield every code that the source names, and where."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    for word in _codes(node):
                        yield word, f"{path.relative_to(ROOT)}:{node.lineno}"


def _codes(call: ast.Call) -> Iterator[str]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    where = SAYS.get(name)
    values = [keyword.value for keyword in call.keywords if keyword.arg == "code" and where is not None]
    if isinstance(where, int) and len(call.args) > where:
        values.append(call.args[where])
    while values:
        value = values.pop()
        if isinstance(value, ast.IfExp):
            values += [value.body, value.orelse]
        elif isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.value


@rule("O3", "Q4.29")
def test_o_every_code_in_the_source_is_in_the_table() -> None:
    found = dict(said())
    assert len(found) > 50, "the search has gone blind"
    assert {"model_update_unsupported", "config_timeout", "bad_audio", "server_vad_unavailable"} <= found.keys()
    missing = {code: where for code, where in found.items() if code not in CODES and code not in NO_CODES}
    assert not missing


SERVER = """
    internal_error engine_error engine_dead timeout commit_aborted session_update_aborted runtime_resume_failed
    realtime_input_failed server_vad_unavailable runtime_append_failed runtime_append_task_failed
    runtime_signal_failed runtime_abort_failed runtime_touch_failed runtime_data_plane_stream_failed
    runtime_data_plane_text_without_audio nemotron_function_call_parse_error append_cancelled
"""
RATE = "resource_exhausted input_backpressure engine_backpressure function_response_backlog"
INVALID = """
    bad_event invalid_json event_too_large config_timeout bad_audio unsupported_audio_format invalid_video_frames
    invalid_input_modality native_text_append_unsupported input_audio_buffer_empty response_already_active
    response_not_active response_create_without_input text_only_turn_unsupported
    unsupported_native_response_options barge_in_unsupported unsupported unsupported_turn_detection
    model_update_unsupported voice_update_after_audio_unsupported voice_update_unsupported
    ref_audio_update_unsupported instructions_update_unsupported persona_update_unsupported
    sliding_window_update_unsupported unknown_event item_not_found missing_item_id invalid_image
    playback_item_mismatch playback_item_not_found playback_ack_too_late invalid_function_call_output
    unknown_session session_closed session_exists invalid_session_resume session_resume_expired
    unsupported_session_resume invalid_resume_token session_resume_conflict invalid_event_ack
    multi_api_duplex_unsupported model_not_found invalid_session_config session_expired
    invalid_duplex_runtime_config unsupported_ref_audio_path ref_audio_required invalid_sliding_window_config
    unsupported_nemotron_duplex_mode context_length_exceeded item_already_exists item_in_progress
"""


@rule("O3", "Q4.29")
@pytest.mark.parametrize("code", SERVER.split())
def test_o3_faults_of_the_server_are_server_errors(code: str) -> None:
    assert CODES[code] == error_type(code) == "server_error"


@rule("O3")
@pytest.mark.parametrize("code", RATE.split())
def test_o3_backpressure_is_a_rate_limit(code: str) -> None:
    assert CODES[code] == error_type(code) == "rate_limit_error"


@rule("O3")
@pytest.mark.parametrize("code", INVALID.split())
def test_o3_the_rest_are_wrong_requests(code: str) -> None:
    assert CODES[code] == error_type(code) == "invalid_request_error"


@rule("O3")
def test_o3_a_word_of_a_model_is_a_wrong_request() -> None:
    assert error_type("some_model_refuses") == "invalid_request_error"
    assert error_type("invalid_api_key") == "authentication_error"


@rule("B22")
def test_b22_only_capacity_and_time_may_be_tried_again() -> None:
    again = {code for code in CODES if retryable(code)}
    assert again == {
        "resource_exhausted",
        "input_backpressure",
        "engine_backpressure",
        "timeout",
        "storage_unavailable",
        "stage_unavailable",
        "going_away",
    }
