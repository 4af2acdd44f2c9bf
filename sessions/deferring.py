"""Turns that wait for the answer before them, and what lets them go on (BEHAVIOURS F21-F23)."""

from antiphon.events import commands as cmd

from . import continuing, ending, lifecycle, prompting
from .answering import open_response
from .draft import Draft
from .playback import blocks


def promote(draft: Draft) -> None:
    """Answer the turns that wait, if nothing blocks them any more (F22).

    One answer serves all of them: each is an item of its own, and the last one is what is answered (E40).
    """
    session = draft.session
    if session.phase == "open" and session.turn.deferred and not blocks(session, draft.now):
        open_response(draft)


def tick(draft: Draft, command: cmd.Tick) -> None:
    """Carry out whatever deadline has passed: clean-ups first (M11), the lease, blocking playback, a pause of the
    model, then one of the user."""
    ending.ask_again(draft)
    lifecycle.tick(draft, command)
    if not draft.events:
        promote(draft)
    if not draft.events:
        continuing.tick(draft, command)
    if not draft.events:
        prompting.tick(draft, command)
