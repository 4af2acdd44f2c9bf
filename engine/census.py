"""The sessions of a hub at one moment, counted: what is true of many, for whoever measures."""

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct, field

from .runner import Runner


class Census(Struct, kw_only=True):
    """`sessions` by dialect and state: `attached`, `detached` (it waits for a resume) or `closing`.

    `detecting` have a voice detector; `answers` are being given; `running` requests are with the stages, and
    `waiting` of them were not taken up yet. `journal_bytes` is what clients that may resume have not acknowledged.
    """

    sessions: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    detecting: int = 0
    answers: int = 0
    running: int = 0
    waiting: int = 0
    journal_bytes: int = 0


def census(runners: Iterable[Runner]) -> Census:
    """Count the sessions that are open."""
    counted = Census()
    for runner in runners:
        session = runner.session
        if session.phase not in ("open", "closing"):
            continue
        state = "closing" if session.phase == "closing" else "attached" if session.lease.attached else "detached"
        counted.sessions[session.dialect, state] += 1
        counted.detecting += session.phase == "open" and session.config.turn_detection is not None
        counted.answers += (session.response is not None) + len(session.others)
        for request in session.requests.values():
            counted.running += request.phase in ("submitted", "accepted") and not request.resident
            counted.waiting += request.phase == "submitted"
        if session.resumable:
            counted.journal_bytes += runner.feed.window.unconfirmed
    return counted
