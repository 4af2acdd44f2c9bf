"""Decisions about the units of a resident model: when one is taken, and what the stage says of it."""

from antiphon.events import commands as cmd

from .draft import Draft


def stage_refused(_draft: Draft, _report: cmd.StageRefused) -> None:
    """Give up the unit and all behind it (E25)."""
