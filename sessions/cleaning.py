"""When the stages are asked again to forget what a session has left: after 5 s, doubling to a minute (M12)."""

from .state import Cleanup

RETRY_US = 5_000_000
MAX_RETRY_US = 60_000_000
_DOUBLINGS = 4


def joined(cleanup: Cleanup | None, now: int) -> Cleanup:
    """Return the clean-up that one more request has joined at `now`: no session has two of them (K20)."""
    due = now + RETRY_US
    return Cleanup(0, due) if cleanup is None else Cleanup(cleanup.attempt, min(cleanup.due, due))


def again(attempt: int, now: int) -> Cleanup:
    """Return the clean-up whose `attempt`-th repetition was at `now`."""
    return Cleanup(attempt, now + min(RETRY_US << min(attempt, _DOUBLINGS), MAX_RETRY_US))
