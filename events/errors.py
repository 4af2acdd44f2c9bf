"""Error codes: their class on the wire, and whether trying again may help (BEHAVIOURS O, WIRE 9.2)."""

from collections.abc import Mapping
from typing import Literal

ErrorType = Literal["invalid_request_error", "server_error", "rate_limit_error", "authentication_error"]
Detail = Literal["type_missing", "missing", "wrong_type", "value", "not_audio"]
"""Which kind of `bad_event` it is; the GA dialect spells them differently (WIRE 9.3)."""

_INVALID = """
    bad_audio bad_event barge_in_unsupported client_seq_gap config_timeout context_length_exceeded control_id_reused
    event_too_large failed_precondition input_audio_buffer_empty instructions_update_unsupported invalid_argument
    invalid_duplex_runtime_config invalid_event_ack invalid_function_call_output invalid_image
    invalid_input_modality invalid_json invalid_observer_token invalid_resume_token invalid_session_config
    invalid_session_resume
    invalid_sliding_window_config invalid_video_frames item_already_exists item_in_progress item_not_found
    missing_item_id model_not_found model_update_unsupported multi_api_duplex_unsupported
    native_text_append_unsupported not_found observer_is_read_only persona_update_unsupported playback_ack_too_late
    playback_item_mismatch playback_item_not_found playback_policy_update_unsupported ref_audio_required
    ref_audio_update_unsupported response_already_active response_create_without_input response_not_active
    session_closed session_exists session_expired session_resume_conflict session_resume_expired
    sliding_window_update_unsupported stale_fence text_only_turn_unsupported tools_update_unsupported unknown_event
    unknown_session unsupported unsupported_audio_format unsupported_native_response_options
    unsupported_nemotron_duplex_mode unsupported_ref_audio_path unsupported_session_resume
    unsupported_turn_detection voice_update_after_audio_unsupported voice_update_unsupported
"""
_SERVER = """
    append_cancelled commit_aborted engine_dead engine_error engine_restarted going_away internal_error
    nemotron_function_call_parse_error realtime_input_failed runtime_abort_failed runtime_append_failed
    runtime_append_task_failed runtime_data_plane_stream_failed runtime_data_plane_text_without_audio
    runtime_resume_failed runtime_signal_failed runtime_touch_failed server_vad_unavailable session_update_aborted
    stage_unavailable storage_unavailable timeout
"""
_RATE = "engine_backpressure function_response_backlog input_backpressure resource_exhausted"

CODES: Mapping[str, ErrorType] = {
    **dict.fromkeys(_INVALID.split(), "invalid_request_error"),
    **dict.fromkeys(_SERVER.split(), "server_error"),
    **dict.fromkeys(_RATE.split(), "rate_limit_error"),
    "invalid_api_key": "authentication_error",
}
"""Every code that is sent, in the duplex dialect's spelling, and its class. Server faults are `server_error` and
backpressure is `rate_limit_error`, also where others let them fall into the default (O3)."""

_RETRYABLE = frozenset(
    {
        "resource_exhausted",
        "input_backpressure",
        "engine_backpressure",
        "timeout",
        "storage_unavailable",
        "stage_unavailable",
        "going_away",
    }
)


def error_type(code: str) -> ErrorType:
    """Return the class of a code; one that the table does not know is a model's own word for a wrong request."""
    return CODES.get(code, "invalid_request_error")


def retryable(code: str) -> bool:
    """Return whether the same request may succeed later (B22)."""
    return code in _RETRYABLE
