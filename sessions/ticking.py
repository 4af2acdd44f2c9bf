"""Decisions that time makes: whatever deadline has passed is carried out."""

from antiphon.events import commands as cmd

from . import continuing, ending, lifecycle, prompting, suspecting
from .deferring import promote
from .draft import Draft


def tick(draft: Draft, command: cmd.Tick) -> None:
    """Carry out whatever deadline has passed: clean-ups first (M11), the lease, speech that may interrupt, blocking
    playback, a pause of the model, then one of the user."""
    ending.ask_again(draft)
    lifecycle.tick(draft, command)
    if not draft.events:
        suspecting.tick(draft, command)
    if not draft.events:
        promote(draft)
    if not draft.events:
        continuing.tick(draft, command)
    if not draft.events:
        prompting.tick(draft, command)
