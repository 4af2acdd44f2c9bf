"""Every phase change of a session: state -> event -> state. No row, no transition; nobody else sets a phase.

The tables are the drawing in `docs/design.md` and the source of the table tests.
"""

from collections.abc import Mapping
from typing import Literal, TypeVar

from antiphon.events.events import (
    AsideCancelled,
    AttachmentConfirmed,
    AttachmentWithdrawn,
    CallStarted,
    CleanupFailed,
    CleanupRetried,
    EngineRestarted,
    Event,
    InputCleared,
    InputCommitted,
    InputDiscarded,
    InputDropped,
    Interrupted,
    InterruptionDismissed,
    InterruptionDoubted,
    InterruptionSuspected,
    OutputEnded,
    OutputHeld,
    OutputStarted,
    PreviewDropped,
    PreviewRequested,
    RequestAccepted,
    RequestFinished,
    RequestReleased,
    RequestSubmitted,
    ResponseCreated,
    ResponseDrains,
    ResponseEnded,
    SessionClosed,
    SessionClosing,
    SessionDetached,
    SessionOpened,
    SessionResumed,
    SpeechStarted,
    SpeechStopped,
)

SessionPhase = Literal["new", "open", "closing", "closed"]
AttachmentPhase = Literal["absent", "unheard", "serving"]
InputPhase = Literal["silent", "speaking", "stopped"]
ResponsePhase = Literal["absent", "created", "speaking", "calling"]
DeliveryPhase = Literal["flowing", "held", "doubted"]
RequestPhase = Literal["unknown", "submitted", "accepted", "leaving", "stuck", "gone"]

LIVE: frozenset[RequestPhase] = frozenset({"submitted", "accepted"})
"""A request in one of these may still produce something."""

LEFT: frozenset[RequestPhase] = frozenset({"leaving", "stuck"})
"""A request in one of these is a pending clean-up: its stage is to forget it, and has not said that it has."""

P = TypeVar("P", bound=str)
Table = Mapping[P, Mapping[type[Event], P]]

SESSION: Table[SessionPhase] = {
    "new": {SessionOpened: "open"},
    "open": {SessionClosing: "closing"},
    "closing": {SessionClosed: "closed"},
    "closed": {},
}

ATTACHMENT: Table[AttachmentPhase] = {
    "absent": {
        SessionOpened: "serving",
        SessionResumed: "unheard",
        SessionDetached: "absent",
        SessionClosing: "absent",
    },
    "unheard": {
        AttachmentConfirmed: "serving",
        AttachmentWithdrawn: "absent",
        SessionResumed: "unheard",
        SessionDetached: "absent",
        SessionClosing: "absent",
    },
    "serving": {SessionResumed: "unheard", SessionDetached: "absent", SessionClosing: "absent"},
}

INPUT: Table[InputPhase] = {
    "silent": {
        SpeechStarted: "speaking",
        InputCommitted: "silent",
        InputCleared: "silent",
        InputDropped: "silent",
        InputDiscarded: "silent",
    },
    "speaking": {
        SpeechStopped: "stopped",
        InputCommitted: "silent",
        InputCleared: "silent",
        InputDropped: "silent",
        InputDiscarded: "silent",
    },
    "stopped": {
        SpeechStarted: "speaking",
        InputCommitted: "silent",
        InputCleared: "silent",
        InputDropped: "silent",
        InputDiscarded: "silent",
    },
}

RESPONSE: Table[ResponsePhase] = {
    "absent": {ResponseCreated: "created"},
    "created": {
        OutputStarted: "speaking",
        CallStarted: "calling",
        ResponseDrains: "created",
        ResponseEnded: "absent",
    },
    "speaking": {OutputEnded: "calling", ResponseDrains: "speaking", ResponseEnded: "absent"},
    "calling": {CallStarted: "calling", ResponseDrains: "calling", ResponseEnded: "absent"},
}

DELIVERY: Table[DeliveryPhase] = {
    "flowing": {InterruptionSuspected: "held"},
    "held": {
        OutputHeld: "held",
        InterruptionDismissed: "flowing",
        InterruptionDoubted: "doubted",
        Interrupted: "flowing",
        EngineRestarted: "held",
        SessionClosing: "flowing",
    },
    "doubted": {
        InterruptionDismissed: "flowing",
        InputCommitted: "flowing",
        InputCleared: "flowing",
        InputDropped: "flowing",
        InputDiscarded: "flowing",
        Interrupted: "flowing",
        EngineRestarted: "flowing",
        SessionClosing: "flowing",
    },
}

REQUEST: Table[RequestPhase] = {
    "unknown": {RequestSubmitted: "submitted", PreviewRequested: "submitted"},
    "submitted": {
        RequestAccepted: "accepted",
        RequestFinished: "leaving",
        PreviewDropped: "leaving",
        Interrupted: "leaving",
        AsideCancelled: "leaving",
        SessionClosing: "leaving",
        EngineRestarted: "leaving",
        RequestReleased: "gone",
    },
    "accepted": {
        RequestFinished: "leaving",
        PreviewDropped: "leaving",
        Interrupted: "leaving",
        AsideCancelled: "leaving",
        SessionClosing: "leaving",
        EngineRestarted: "leaving",
        RequestReleased: "gone",
    },
    "leaving": {
        CleanupFailed: "stuck",
        CleanupRetried: "leaving",
        EngineRestarted: "leaving",
        RequestReleased: "gone",
    },
    "stuck": {
        CleanupRetried: "stuck",
        EngineRestarted: "leaving",
        RequestReleased: "gone",
    },
    "gone": {},
}


class IllegalTransition(Exception):
    """An event arrived in a phase that has no row for it: the log was not written by `decide`."""


def move(table: Table[P], phase: P, event: Event) -> P:
    """Return the phase behind `event`.

    Raises:
        IllegalTransition: the table has no such row.
    """
    try:
        return table[phase][type(event)]
    except KeyError:
        raise IllegalTransition(f"no transition from {phase!r} on {type(event).__name__}") from None
