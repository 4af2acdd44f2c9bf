"""Figures about a hub, as they are at one moment."""

from msgspec import Struct


class Statistics(Struct, frozen=True, kw_only=True):
    """A moment of the hub. `admitted` sessions hold a slot; `opened` and the others count since the start."""

    admitted: int
    live: int
    attached: int
    max_sessions: int
    opened: int
    resumed: int
    refused: int
    closed: int
    crashed: int
    recovered: int
    backlog: int
    ahead: int
