"""What clients write is weighed before it is taken: words of a turn, items of a conversation (WIRE 12.15)."""

from antiphon.events.items import MOST_WORDS

from .refusal import refuse
from .state import Session


def check_words(session: Session, size: int, param: str) -> None:
    """Accept `size` more bytes of words in the turn that is being built.

    Raises:
        Refusal: `bad_event` if no turn has so many; `input_backpressure` if this one or the conversation would have
            too many.
    """
    if size > MOST_WORDS:
        refuse("bad_event", f"The words of one item have at most {MOST_WORDS} bytes.", param, "value")
    words = session.input.words + size
    if words > MOST_WORDS:
        message = f"The words of one turn have at most {MOST_WORDS} bytes; commit or clear the input."
        refuse("input_backpressure", message, param)
    check_room(session, words, param)


def check_room(session: Session, size: int, param: str) -> None:
    """Accept `size` bytes more for the conversation, which keeps what clients write until they delete it.

    Raises:
        Refusal: `input_backpressure`.
    """
    limit = session.limits.item_bytes
    if session.conversation.weight + size > limit:
        refuse(
            "input_backpressure", f"A conversation holds at most {limit} bytes of items; delete old ones.", param
        )
