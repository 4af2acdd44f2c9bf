"""Turns that wait for the answer before them, and what lets them go on (BEHAVIOURS F21-F23)."""

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
