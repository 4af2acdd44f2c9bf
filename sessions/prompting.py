"""The idle prompt: a user who stays silent behind an answer is answered all the same, once (WIRE 6.3)."""

from antiphon.events import commands as cmd
from antiphon.events import events as ev

from .committing import commit_turn
from .draft import Draft
from .view import prompt_at


def tick(draft: Draft, _command: cmd.Tick) -> None:
    """Make a turn of the silence, and answer it."""
    due = prompt_at(draft.session)
    if due is None or draft.now < due:
        return
    session = draft.session
    taken, format_ = session.input, session.capabilities.input_format
    draft.emit(
        ev.InputTimedOut(
            number=draft.number,
            count=1,
            item_id=draft.new_item_id(),
            audio_start_ms=format_.ms(taken.start),
            audio_end_ms=format_.ms(taken.position),
        )
    )
    commit_turn(draft, wanted=True, asked=True, silent=True, reason="idle")
