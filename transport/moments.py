"""Moments of a clock on a wall, as text."""

from datetime import UTC, datetime

NEVER = "unknown"


def moment(wall_us: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a time (µs since 1970) in UTC; `unknown` if no calendar has it: a clock may have been anything."""
    try:
        return datetime.fromtimestamp(wall_us / 1e6, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return NEVER
