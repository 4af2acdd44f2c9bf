"""Error codes: their class on the wire, whether trying again may help, and whether they are the client's fault."""

from typing import Literal

ErrorType = Literal["invalid_request_error", "server_error", "rate_limit_error", "authentication_error"]
Detail = Literal["type_missing", "missing", "wrong_type", "value", "not_audio"]
"""Which kind of `bad_event` it is; the GA dialect spells them differently (WIRE 9.3)."""

_SERVER = frozenset(
    {
        "internal_error",
        "engine_error",
        "engine_dead",
        "engine_restarted",
        "timeout",
        "commit_aborted",
        "session_update_aborted",
        "runtime_resume_failed",
        "realtime_input_failed",
        "server_vad_unavailable",
        "runtime_append_failed",
        "runtime_append_task_failed",
        "runtime_signal_failed",
        "runtime_abort_failed",
        "runtime_touch_failed",
        "runtime_data_plane_stream_failed",
        "runtime_data_plane_text_without_audio",
        "stage_unavailable",
        "storage_unavailable",
        "going_away",
    }
)
_RATE = frozenset({"resource_exhausted", "input_backpressure", "engine_backpressure"})
_RETRYABLE = _RATE | {"timeout", "storage_unavailable", "stage_unavailable", "going_away"}


def error_type(code: str) -> ErrorType:
    """Return the class of a code (BEHAVIOURS O, table of error classes; O3: server faults are `server_error`)."""
    if code in _SERVER:
        return "server_error"
    if code in _RATE:
        return "rate_limit_error"
    if code == "invalid_api_key":
        return "authentication_error"
    return "invalid_request_error"


def retryable(code: str) -> bool:
    """Return whether the same request may succeed later (B22)."""
    return code in _RETRYABLE
