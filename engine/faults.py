"""How the core fails on what it cannot have written, as in a log from anybody, or by a fault of ours."""

from msgspec import MsgspecError

from antiphon.sessions.phases import IllegalTransition

FAULTS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError),
    *(IllegalTransition, MsgspecError),
)
