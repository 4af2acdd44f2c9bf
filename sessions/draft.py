"""A decision in the making: the events so far, their numbers, and the state behind them."""

from antiphon.events import ids
from antiphon.events.events import AnyEvent, PublicEvent

from .evolve import evolve
from .plugins import Registry
from .refusal import Refusal as Refusal
from .state import Session, copy, next_item_number


class Draft:
    """Collects the events of one decision without touching the session it is decided on.

    `number` is the number that the next public event must carry. `session` is the state with all drafted
    events folded in: a copy made when it is first asked for, so that a decision which never looks back (the
    path of a frame) costs no copy. `failed` says that what commands waited for will not come: units were refused.
    """

    __slots__ = ("_base", "_folded", "_work", "events", "failed", "now", "number", "plugins")

    def __init__(self, session: Session, now: int, plugins: Registry) -> None:
        self._base = session
        self._work: Session | None = None
        self._folded = 0
        self.now = now
        self.plugins = plugins
        self.number = session.next_number
        self.events: list[AnyEvent] = []
        self.failed = False

    def emit(self, event: AnyEvent) -> None:
        """Draft an event. A public one must carry `number` (or 0, if its messages are not numbered)."""
        self.events.append(event)
        if isinstance(event, PublicEvent) and event.number:
            self.number += event.count

    def attempt(self) -> "Draft":
        """Return a draft that goes on where this one stands, to see what comes of something."""
        other = Draft(self._base, self.now, self.plugins)
        for event in self.events:
            other.emit(event)
        return other

    def adopt(self, other: "Draft") -> None:
        """Take over what an attempt drafted."""
        for event in other.events[len(self.events) :]:
            self.emit(event)

    @property
    def session(self) -> Session:
        """The state behind the events drafted so far."""
        if not self.events:
            return self._base
        if self._work is None:
            self._work = copy(self._base)
        for event in self.events[self._folded :]:
            evolve(self._work, event, self.now)
        self._folded = len(self.events)
        return self._work

    def new_item_id(self) -> str:
        """Return the id of the next item that the server names; the event that carries it counts it."""
        session = self.session
        return ids.item_id(session.id, next_item_number(session))
