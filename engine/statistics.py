"""Figures about a hub, as they are at one moment."""

from msgspec import Struct


class Counts(Struct):
    """What has happened since the start."""

    opened: int = 0
    resumed: int = 0
    refused: int = 0
    closed: int = 0
    crashed: int = 0
    recovered: int = 0


class Statistics(Struct, frozen=True, kw_only=True):
    """A moment of the hub. `admitted` sessions hold a slot; `opened` and the others count since the start.

    `uncleaned` counts requests that the stages were told to forget and still may hold (M12).
    """

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
    uncleaned: int
