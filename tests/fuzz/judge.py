"""What may be said to a client of a dialect, whatever it sent (WIRE 3.1, 3.2, 9)."""

from typing import Any, Literal, get_args

from antiphon.transport import wire_server
from antiphon.transport.codes import documented
from antiphon.transport.wire_server import ServerEvent

KINDS = frozenset(
    kind.__struct_config__.tag
    for kind in vars(wire_server).values()
    if isinstance(kind, type) and issubclass(kind, ServerEvent) and kind is not ServerEvent
)
BETA_ONLY = frozenset(f"response.{name}" for name in ("audio.delta", "audio.done", "text.delta", "text.done")) | {
    "response.audio_transcript.delta",
    "response.audio_transcript.done",
    "conversation.created",
}
NOT_BETA = frozenset(name.replace("response.", "response.output_") for name in BETA_ONLY if "response" in name) | {
    "conversation.item.added",
    "conversation.item.done",
}
DUPLEX_ONLY = frozenset(
    {
        "overlap.decision",
        "response.listen",
        "response.speak",
        "session.expired",
        "session.going_away",
        "session.replaced",
        "session.resumed",
        "session.resync_required",
        "output_audio_buffer.paused",
        "output_audio_buffer.resumed",
    }
)
KEYS = frozenset({"type", "code", "message", "param", "event_id"})
TYPES = frozenset({"invalid_request_error", "server_error", "rate_limit_error", "authentication_error"})
UNNUMBERED = frozenset(
    {f"session.{name}" for name in ("created", "resumed", "replaced", "resync_required", "going_away")} | {"error"}
)
Dialect = Literal["ga", "beta", "duplex"]
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
CODES = {dialect: documented(dialect) for dialect in DIALECTS}


class Judge:
    """Reads the messages of one connection; `dialect` "" if it is not known."""

    def __init__(self, dialect: Literal["ga", "beta", "duplex", ""]) -> None:
        self._dialect = dialect
        self._last = 0
        self.ids: set[str] = set()

    def fault(self, message: dict[str, Any]) -> str | None:
        """Return what is wrong with the next message."""
        kind = message.get("type")
        if kind not in KINDS:
            return f"a message of no known type: {kind!r}"
        if not isinstance(message.get("event_id"), str) or message["event_id"] in self.ids:
            return f"{kind} without an id of its own: {message.get('event_id')!r}"
        self.ids.add(message["event_id"])
        dialect = self._dialect
        foreign = {"ga": BETA_ONLY | DUPLEX_ONLY, "beta": NOT_BETA | DUPLEX_ONLY, "duplex": BETA_ONLY}
        if dialect and kind in foreign[dialect]:
            return f"{kind} is no message of the dialect {dialect}"
        return self._number(message) or (self._error(message) if kind == "error" else None)

    def _number(self, message: dict[str, Any]) -> str | None:
        number = message.get("server_event_seq")
        if number is None:
            if self._dialect == "duplex" and message["type"] not in UNNUMBERED:
                return f"{message['type']} has no number"
            return None
        if self._dialect in ("ga", "beta") or number != self._last + 1:
            return f"number {number} behind {self._last}"
        self._last = number
        return None

    def _error(self, message: dict[str, Any]) -> str | None:
        error = message["error"]
        if set(error) - {"retryable"} != KEYS or error["type"] not in TYPES:
            return f"an error of another shape: {error}"
        if len(error["message"]) > 300 or len(error["param"] or "") > 128:
            return f"an error of too many words: {error['code']}"
        allowed = CODES[self._dialect] if self._dialect else frozenset().union(*CODES.values())
        if error["code"] not in allowed:
            return f"an error code that is not documented: {error['code']!r} ({error['message']})"
        return None
