"""Figures about a hub, as they are at one moment."""

from msgspec import Struct


class Counts(Struct):
    """What has happened since the start."""

    opened: int = 0
    resumed: int = 0
    refused: int = 0
    resumes_refused: int = 0
    closed: int = 0
    crashed: int = 0
    recovered: int = 0
    beats: int = 0


class Statistics(Struct, frozen=True, kw_only=True):
    """A moment of the hub. `admitted` sessions hold a slot; `opened` and the others count since the start.

    `beats` counts the decisions of models to listen on that were no news (a frame each): they are no events, and
    a model that listens makes some all the time.
    `uncleaned` counts requests that the stages were told to forget and still may hold (M12).
    """

    admitted: int
    live: int
    attached: int
    max_sessions: int
    opened: int
    resumed: int
    refused: int
    resumes_refused: int
    closed: int
    crashed: int
    recovered: int
    beats: int
    backlog: int
    ahead: int
    uncleaned: int
