"""What the folds share: a response that must be open, and a place in the conversation."""

from antiphon.events import ids
from antiphon.events.items import Item

from . import phases
from .state import Entry, Response, Session


def opened(session: Session, response_id: str) -> Response:
    """Return an open response.

    Raises:
        IllegalTransition: there is none of this id.
    """
    response = session.open_response(response_id)
    if response is None:
        raise phases.IllegalTransition(f"no response {response_id!r} is open")
    return response


def insert(
    session: Session, item: Item, previous: str | None, heard: str | None = None, *, weight: int = 0
) -> None:
    """Put an item behind `previous` (None: at the beginning); `heard` is the part of it that is history, `weight`
    what it counts of a client's (0: it is none)."""
    conversation = session.conversation
    at = 0 if previous is None else conversation.order.index(previous) + 1
    conversation.order.insert(at, item.id)
    conversation.entries[item.id] = Entry(item, heard, weight)
    conversation.weight += weight
    step_over(session)


def step_over(session: Session) -> None:
    """Move the counters past ids that a client has given to its items, so that the next ones are free."""
    entries, counters = session.conversation.entries, session.counters
    while ids.item_id(session.id, counters.items + 1) in entries:
        counters.items += 1
    while ids.assistant_item_id(ids.response_id(session.id, counters.responses + 1)) in entries:
        counters.responses += 1


def stand_behind(session: Session, response: Response, previous: str | None, item_id: str) -> None:
    """Let responses that opened later and stand behind `previous` stand behind what was put there (P41)."""
    known = session.open_responses
    for later in known[known.index(response) + 1 :]:
        if later.previous_item_id == previous:
            later.previous_item_id = item_id
