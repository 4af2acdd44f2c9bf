"""Who lost the session by a transaction."""

import pytest

from antiphon.engine.published import loss
from antiphon.events.commands import Tick
from antiphon.events.events import AnyEvent, AttachmentWithdrawn, SessionClosed, SessionDetached, SessionResumed
from antiphon.events.log import Transaction
from antiphon.sessions.state import Session
from antiphon.sessions.view import view

from tests.rules import rule

CLOSED = SessionClosed(number=1, count=1, session="s", reason="client_close", expired=False)
RESUMED = SessionResumed(
    number=0,
    count=1,
    control_id="c",
    presented="p",
    attachment=3,
    generation=7,
    token_digest="d",
    last_number=0,
    head=0,
    last_client_seq=0,
    view=view(Session()),
)
DETACHED = SessionDetached(generation=7, reason="disconnect", grace_ms=1)
WITHDRAWN = AttachmentWithdrawn(attachment=3)


@rule("D24", "D28")
@pytest.mark.parametrize(
    ("events", "attachment", "generation", "lost"),
    [
        ((), 3, 7, None),
        ((CLOSED,), None, None, "closed"),
        ((RESUMED,), 2, 6, "replaced"),
        ((RESUMED,), 3, 7, None),
        ((RESUMED,), None, None, None),
        ((DETACHED,), 3, 7, "detached"),
        ((DETACHED,), 2, 6, None),
        ((WITHDRAWN,), 3, 7, "withdrawn"),
        ((WITHDRAWN,), 4, 8, None),
        ((DETACHED, CLOSED), 3, 7, "closed"),
    ],
)
def test_who_loses_it(
    events: tuple[AnyEvent, ...], attachment: int | None, generation: int | None, lost: str | None
) -> None:
    transaction = Transaction(seq=1, term=1, at=0, command=Tick(), events=events)
    assert loss(transaction, attachment, generation) == lost
