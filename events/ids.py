"""Identifiers: derived from (session, kind, counter), shaped as the wire contract says."""

import hashlib
import hmac

from msgspec import Struct

_EVENT_PREFIX = "event_"

LONGEST_CALL_ID = 32
"""Characters of the name of a call. Clients hold OpenAI's limit: LiveKit's answers a longer one by another name."""


def derive(session: str, kind: str, counter: int) -> str:
    """Return 32 hex digits that depend on nothing but the three arguments.

    The same command decided again (replay, recovery) therefore names the same things. blake2b is used for its
    spread, not for secrecy; it runs once for each response or item, never for a frame.
    """
    return hashlib.blake2b(f"{session}\0{kind}\0{counter}".encode(), digest_size=16).hexdigest()


def fingerprint(data: bytes) -> str:
    """Return 32 hex digits of `data`, to tell two requests with the same control id apart (B20)."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def response_id(session: str, counter: int) -> str:
    """Return `resp_` and 32 hex digits."""
    return f"resp_{derive(session, 'response', counter)}"


def item_id(session: str, counter: int) -> str:
    """Return `item_` and 32 hex digits: a user item or a function call."""
    return f"item_{derive(session, 'item', counter)}"


def assistant_item_id(response: str) -> str:
    """Return the id of the one assistant message of a response (WIRE 3.3.7: `item_` and the response id)."""
    return f"item_{response}"


def call_id(session: str, counter: int) -> str:
    """Return `call_` and 24 hex digits, for a call that the model did not name (see `LONGEST_CALL_ID`)."""
    return f"call_{derive(session, 'call', counter)[:24]}"


def conversation_id(session: str) -> str:
    """Return `conv_` and 32 hex digits: a session has one conversation."""
    return f"conv_{derive(session, 'conversation', 0)}"


def session_id(prefix: str, secret: bytes, control_id: str, attempt: int) -> str:
    """Return the id of the session that is opened under a control id: a prefix and 32 hex digits (A1).

    Nobody without the secret can guess it, and an opening that is repeated names the same session (B19). `attempt`
    counts the openings under this control id that were given up before.

    Raises:
        ValueError: no session's id starts with `prefix`.
    """
    if prefix not in _SESSION_PREFIXES:
        raise ValueError(f"a session id starts with one of {', '.join(_SESSION_PREFIXES)}, not with {prefix!r}")
    mac = hmac.digest(secret, f"open\0{control_id}\0{attempt}".encode(), "sha256")
    return prefix + mac[:16].hex()


REQUEST_PREFIX = "req_"
"""What the id of a session starts with that is one HTTP request: it ends with its answer, and takes no place of a
conversation (B28)."""

_SESSION_PREFIXES = ("sess_", "duplex-", REQUEST_PREFIX)


def is_request(session: str) -> bool:
    """Return whether a session is one HTTP request."""
    return session.startswith(REQUEST_PREFIX)


# -- stage requests ------------------------------------------------------------------------------------------


class RequestName(Struct, frozen=True):
    """What a stage request id says: whose it is, in which epoch, and for which turn.

    `aside` is the number of a response out of band, `preview` that of a running transcript: neither is a turn.
    None of them: resident.
    """

    session: str
    epoch: int
    turn: int | None = None
    aside: int | None = None
    preview: int | None = None


def turn_request(session: str, epoch: int, turn: int) -> str:
    """Name the request of one committed turn of an ephemeral model (A11)."""
    return f"{session}.e{epoch}.turn{turn}"


def resident_request(session: str, epoch: int) -> str:
    """Name the one request that a resident model keeps for a whole epoch (A10)."""
    return f"{session}.e{epoch}"


def aside_request(session: str, epoch: int, number: int) -> str:
    """Name the request of a response out of band; `number` counts the responses of the session."""
    return f"{session}.e{epoch}.aside{number}"


def preview_request(session: str, epoch: int, number: int) -> str:
    """Name the request for the words of an utterance that is still open; `number` counts those of the session."""
    return f"{session}.e{epoch}.preview{number}"


def parse_request(request: str) -> RequestName | None:
    """Invert the four functions above; None for anything else (look-alikes included, A11)."""
    session, _, rest = request.partition(".e")
    digits, _, role = rest.partition(".")
    epoch, turn, aside = _number(digits, ""), _number(role, "turn"), _number(role, "aside")
    preview = _number(role, "preview")
    if not session or epoch is None:
        return None
    if turn is not None:
        rebuilt = turn_request(session, epoch, turn)
    elif aside is not None:
        rebuilt = aside_request(session, epoch, aside)
    elif preview is not None:
        rebuilt = preview_request(session, epoch, preview)
    else:
        rebuilt = resident_request(session, epoch)
    return RequestName(session, epoch, turn, aside, preview) if rebuilt == request else None


def _number(text: str, role: str) -> int | None:
    digits = text.removeprefix(role)
    return int(digits) if text.startswith(role) and digits.isdecimal() and digits.isascii() else None


# -- event ids -----------------------------------------------------------------------------------------------


class EventPosition(Struct, frozen=True, order=True):
    """Where a wire message comes from: transaction `seq`, event `index` in it, message `part` of that event."""

    seq: int
    index: int
    part: int


FIRST = EventPosition(1, 0, 0)
"""The message that opens a session: whoever is told of it has seen nothing else."""

_SEQ_BITS = 40
_ALL = 2**32 - 1


def through(seq: int) -> EventPosition:
    """Return the position behind everything that transaction `seq` says."""
    return EventPosition(seq, _ALL, _ALL)


def event_id(seq: int, index: int, part: int) -> str:
    """Encode a position as `event_` and 32 hex digits; unique in the session and invertible."""
    return f"{_EVENT_PREFIX}{seq:016x}{index:08x}{part:08x}"


def unlogged_id(behind: EventPosition, attachment: int, count: int) -> str:
    """Name a message that is in no log, sent behind position `behind`; who has it has seen everything up to there.

    `attachment` numbers the session's connections from 1 and `count` such messages of one: both wrap around.
    """
    mark = (attachment & 0xFFFF or 1) << 8 | count & 0xFF
    return event_id(mark << _SEQ_BITS | behind.seq, behind.index, behind.part)


def last_seen(text: str) -> EventPosition | None:
    """Return up to where a client has seen everything whose last message had this id; None if that says nothing."""
    known = parse_event_id(text)
    seq = 0 if known is None else known.seq & (1 << _SEQ_BITS) - 1
    return EventPosition(seq, known.index, known.part) if known is not None and seq else None


def pair_of_event_ids(seq: int, index: int) -> tuple[bytes, bytes]:
    """Encode the positions of the first two messages of an event, as bytes: made for every piece of sound."""
    stem = event_id(seq, index, 0).encode()
    return stem, stem[:-1] + b"1"


def parse_event_id(text: str) -> EventPosition | None:
    """Invert `event_id`; None if the text is not one of ours."""
    digits = text.removeprefix(_EVENT_PREFIX)
    if len(digits) != 32 or digits == text or not set(digits) <= set("0123456789abcdef"):
        return None
    return EventPosition(int(digits[:16], 16), int(digits[16:24], 16), int(digits[24:], 16))
