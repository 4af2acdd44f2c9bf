"""A memory that is lost: whether it can be rendered again from the conversation (DESIGN 4, N66)."""

from antiphon.events.items import Item

from .plugins import Registry
from .state import Session
from .view import prompt


def rebuilt(session: Session, plugins: Registry) -> tuple[Item, ...] | None:
    """Return what the next request of a resident model begins with, so that it knows what was said; None: nothing.

    A session has its model's capabilities as they were at its opening.
    """
    if not session.capabilities.supports_reencode_context:
        return None
    return plugins[session.plugin].rebuild(prompt(session))


def renews(session: Session, plugins: Registry) -> bool:
    """Return whether a session outlives its model's memory."""
    return rebuilt(session, plugins) is not None
