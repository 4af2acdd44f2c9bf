"""Codes of the wire: how each dialect spells an error, and which ones end the connection."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from antiphon.events.commands import AnyCommand, CreateItem, DeleteItem, RetrieveItem, TruncateItem
from antiphon.events.config import Dialect
from antiphon.events.errors import CODES, Detail, ErrorType, error_type, retryable

MAX_EVENT = 15 * 1024 * 1024
"""Bytes of the largest event that is read; above it `event_too_large`."""

MAX_FRAME = 16 * 1024 * 1024
"""Bytes of the largest message that the transport takes; above it the connection is closed with 1009."""

NORMAL = 1000
GOING_AWAY = 1001
PROTOCOL = 1002
INVALID_DATA = 1007
POLICY = 1008
TOO_BIG = 1009
INTERNAL = 1011
TRY_LATER = 1013

CLOSE_CODES = frozenset({NORMAL, GOING_AWAY, PROTOCOL, INVALID_DATA, POLICY, TOO_BIG, INTERNAL, TRY_LATER})
"""With what a connection is closed: 1002, 1007 and 1009 for frames that are none, the others as WIRE 1.9 says."""

Keep = Literal["keep"]
_KEEP: Keep = "keep"

_CLOSES = {
    "resource_exhausted": TRY_LATER,
    "runtime_resume_failed": TRY_LATER,
    "storage_unavailable": TRY_LATER,
    "stage_unavailable": TRY_LATER,
    "going_away": TRY_LATER,
    "timeout": TRY_LATER,
    "internal_error": INTERNAL,
    "realtime_input_failed": INTERNAL,
    "engine_dead": INTERNAL,
}

FATAL_RESUME = frozenset(
    {
        "invalid_session_resume",
        "session_resume_expired",
        "unsupported_session_resume",
        "invalid_resume_token",
        "session_resume_conflict",
    }
)
"""Answers to a resume after which another attempt is pointless (D35)."""


def close_code(code: str) -> int:
    """Return the close code that follows an error which ends the opening of a connection (WIRE 1.9)."""
    return _CLOSES.get(code, POLICY)


class ErrorBody(Struct, frozen=True, kw_only=True):
    """The `error` object of an error event (WIRE 9.1): five keys always, `retryable` when it is true."""

    type: ErrorType
    code: str | None
    message: str
    param: str | None
    event_id: str | None
    retryable: bool | UnsetType = UNSET


class _Spelling(Struct, frozen=True):
    """How the GA and beta dialects say a code: None is null, `keep` leaves what the core said."""

    code: str | None
    param: str | None = _KEEP
    message: str = _KEEP


_BAD_EVENT: dict[Detail | None, _Spelling] = {
    None: _Spelling("invalid_event"),
    "type_missing": _Spelling("invalid_event", None, "The 'type' field is missing."),
    "missing": _Spelling("missing_required_parameter"),
    "wrong_type": _Spelling("invalid_type"),
    "value": _Spelling("invalid_value"),
}

_SPELLINGS: dict[str, _Spelling] = {
    "invalid_json": _Spelling("invalid_json", None),
    "unknown_event": _Spelling("invalid_value", "type"),
    "bad_audio": _Spelling("invalid_value", "audio"),
    "unsupported_audio_format": _Spelling("invalid_value"),
    "unsupported_turn_detection": _Spelling("invalid_value"),
    "model_update_unsupported": _Spelling("invalid_value"),
    "voice_update_after_audio_unsupported": _Spelling(
        "cannot_update_voice",
        "session.audio.output.voice",
        "Cannot update a conversation's voice if assistant audio is present.",
    ),
    "input_audio_buffer_empty": _Spelling("input_audio_buffer_commit_empty", None),
    "response_already_active": _Spelling("conversation_already_has_active_response", None),
    "response_not_active": _Spelling(
        "response_cancel_not_active", None, "Cancellation failed: no active response found"
    ),
    "missing_item_id": _Spelling("missing_required_parameter", "item_id"),
    "resource_exhausted": _Spelling("rate_limit_exceeded", None),
    "input_backpressure": _Spelling("rate_limit_exceeded", None),
}

_ITEM_NOT_FOUND: dict[type[AnyCommand], _Spelling] = {
    DeleteItem: _Spelling("item_delete_invalid_item_id", None),
    RetrieveItem: _Spelling("item_retrieve_invalid_item_id", None),
    TruncateItem: _Spelling("item_truncate_invalid_item_id", None),
    CreateItem: _Spelling("invalid_value", "previous_item_id"),
}
_VERBS: dict[type[AnyCommand], str] = {
    DeleteItem: "deleting",
    RetrieveItem: "retrieving",
    TruncateItem: "truncating",
}

_NOT_AUDIO = _Spelling(None, None, "Only model output audio messages can be truncated")


def error_body(code: str, message: str, param: str | None, event_id: str | None) -> ErrorBody:
    """Return the body of an error in the duplex dialect's spelling."""
    return ErrorBody(
        type=error_type(code),
        code=code,
        message=message,
        param=param,
        event_id=event_id,
        retryable=True if retryable(code) else UNSET,
    )


def respelled(body: ErrorBody, detail: Detail | None, command: AnyCommand | None) -> ErrorBody:
    """Return the body as the GA and beta dialects say it (WIRE 9.3); `command` is what was refused."""
    spelling = _spelling(body, detail, command)
    if spelling is None:
        return body
    message = body.message if spelling.message == _KEEP else spelling.message
    if body.code == "item_not_found" and isinstance(command, DeleteItem | RetrieveItem | TruncateItem):
        verb = _VERBS[type(command)]
        message = f"Error {verb} item: the item with id '{command.item_id[:64]}' does not exist."
    return ErrorBody(
        type=body.type,
        code=spelling.code,
        message=message,
        param=body.param if spelling.param == _KEEP else spelling.param,
        event_id=body.event_id,
        retryable=body.retryable,
    )


def _spelling(body: ErrorBody, detail: Detail | None, command: AnyCommand | None) -> _Spelling | None:
    if body.code == "bad_event":
        if isinstance(command, TruncateItem) and body.param == "item_id":
            return _NOT_AUDIO
        return _BAD_EVENT[detail]
    if body.code == "item_not_found" and command is not None:
        return _ITEM_NOT_FOUND.get(type(command))
    return _SPELLINGS.get(body.code or "")


def documented(dialect: Dialect) -> frozenset[str | None]:
    """Return every code that an error may have in a dialect (WIRE 9.2, 9.3)."""
    if dialect == "duplex":
        return frozenset(CODES)
    spelled = (*_SPELLINGS.values(), *_BAD_EVENT.values(), *_ITEM_NOT_FOUND.values(), _NOT_AUDIO)
    kept = CODES.keys() - _SPELLINGS.keys() - {"bad_event"}
    return frozenset(kept) | {spelling.code for spelling in spelled}
