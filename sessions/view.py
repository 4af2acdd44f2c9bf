"""Readings of a session: what clients are shown, what time must do, what the stages still owe."""

from msgspec.structs import replace

from antiphon.events.audio import SampleRef
from antiphon.events.config import SessionConfig
from antiphon.events.events import PausedOutput, SessionView
from antiphon.events.items import AudioPart, Item, ItemReference, Message, Part, TextPart, places, text_of

from .fold_units import as_written
from .playback import current, cursor, over_at, talks, waits_until
from .state import Entry, Session


def view(session: Session, config: SessionConfig | None = None) -> SessionView:
    """Return the session as a client is shown it; `config` shows a configuration that is about to hold."""
    response = session.response
    lifetime = session.limits.max_session_ms
    return SessionView(
        id=session.id,
        dialect=session.dialect,
        config=config or session.config,
        capabilities=session.capabilities,
        resumable=session.resumable,
        expires_at=(session.opened_wall_us // 1_000_000 + lifetime // 1000) if lifetime else 0,
        state=session.phase,
        turn_state=session.turn.state,
        epoch=session.turn.epoch,
        turn=session.turn.turn,
        active_request=response.request if response else None,
        active_response=response.head.id if response else None,
        active_response_turn=response.head.turn if response else None,
        playback=cursor(current(session)),
        paused=_paused(session),
    )


def _paused(session: Session) -> PausedOutput | None:
    known = session.suspicion
    return PausedOutput(known.response_id, known.at_ms) if known is not None and known.phase == "held" else None


def next_deadline(session: Session) -> int | None:
    """Return the session time (µs) at which `Tick` is due, or None. What the stages hold is due for ever (M12)."""
    deadlines = [session.cleanup.due] if session.cleanup is not None else []
    if session.phase == "closing" and session.closing is not None:
        deadlines.append(session.closing.deadline)
    if session.phase == "open":
        deadlines += _deadlines_of_the_lease(session)
    return min(deadlines, default=None)


def _deadlines_of_the_lease(session: Session) -> list[int]:
    lease, limits = session.lease, session.limits
    going = session.input.stream.continuation
    going_on = None if going is None else going.due
    undecided = None if session.suspicion is None else session.suspicion.due
    known = (lease.confirm_by, lease.expires_at, waits_until(session), going_on, prompt_at(session), undecided)
    deadlines = [deadline for deadline in known if deadline is not None]
    idle = idle_until(session)
    if idle is not None:
        deadlines.append(idle)
    if limits.max_session_ms:
        deadlines.append(session.opened_at + limits.max_session_ms * 1000)
    return deadlines


def idle_until(session: Session) -> int | None:
    """Return when the session has been idle for too long (C2); None: never, or not while a stage is still being
    given a request, or units of one (C3)."""
    ttl_ms = session.limits.idle_ttl_ms
    if not ttl_ms or session.input.stream.in_flight:
        return None
    for known in session.requests.values():
        if known.phase == "submitted" and known.utterance is None:
            return None
    return session.lease.last_activity + ttl_ms * 1000


def prompt_at(session: Session) -> int | None:
    """Return the session time at which the user is prompted if nothing else happens; None: never.

    The time runs from the end of the last answer, and of its sound. It stands still while anything else is to come:
    an answer, what functions give, sound that waits; and while nobody is connected.
    """
    detection, taken = session.config.turn_detection, session.input
    if detection is None or detection.idle_timeout_ms is None or taken.idle_since is None or session.auto:
        return None
    turn = session.turn
    if talks(session) or turn.deferred or turn.awaited or taken.stream.held or not session.lease.attached:
        return None
    over = over_at(session)
    return None if over is None else max(over, taken.idle_since) + detection.idle_timeout_ms * 1000


def outstanding(session: Session) -> list[str]:
    """Return the requests that the stages have not yet forgotten."""
    return list(session.requests)


def prompt(session: Session, given: tuple[Item | ItemReference, ...] | None = None) -> tuple[Item, ...]:
    """Return the conversation as a model may know it: everything said, and of answers what was heard.

    An answer of which nothing was heard stays in the conversation between the turns around it, and is not shown to
    a model (I5, I22).

    A text that the configuration seeds comes first (G7). `given` stands in place of it all (WIRE 2.6). Of a
    conversation that is longer than its limit, the oldest items are left out; they stay retrievable.
    """
    seed = session.config.seed
    sown = (Message(id="seed", role="user", content=(TextPart(seed),)),) if seed and given is None else ()
    order = session.conversation.order[-session.limits.items :]
    named = [ItemReference(item_id) for item_id in order] if given is None else given
    found = [_resolved(session, item) if isinstance(item, ItemReference) else item for item in named]
    return (*sown, *(item for item in found if item is not None))


def news(session: Session, told: tuple[str, ...]) -> tuple[Item, ...]:
    """Return what a unit tells a resident model: items as it may know them, without sound that it was given."""
    known = session.conversation.entries
    found = [_resolved(session, ItemReference(item_id)) for item_id in told if item_id in known]
    shown = [as_written(item) for item in found if item is not None]
    return tuple(item for item in shown if item is not None)


def begun(session: Session, items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return what a resident request begins with: sound that it is about to hear unit by unit is left out."""
    first = session.input.stream.oldest
    return items if first is None else without_units(items, first)


def without_units(items: tuple[Item, ...], first: int = 0) -> tuple[Item, ...]:
    """Return items without the sound of the `in` stream that lies behind `first`: that is given in units.

    What is left of such a part says that there was sound, and its words if they are known.
    """
    return tuple(_without_units(item, first) for item in items)


def _without_units(item: Item, first: int) -> Item:
    if all(ref.stream != "in" or ref.end <= first for ref in places(item)):
        return item
    assert isinstance(item, Message), "nothing else has sound"
    return replace(item, content=tuple(_before(part, first) for part in item.content))


def _before(part: Part, first: int) -> Part:
    if not isinstance(part, AudioPart) or part.ref is None or part.ref.stream != "in":
        return part
    size = min(first, part.ref.end) - part.ref.start
    return replace(part, ref=SampleRef("in", part.ref.start, size) if size > 0 else None)


def _resolved(session: Session, reference: ItemReference) -> Item | None:
    """Return an item as a model may know it; None for one that was deleted since it was referred to."""
    entry = session.conversation.entries.get(reference.id)
    if entry is None:
        return None
    item = entry.item
    if isinstance(item, Message) and item.role == "assistant":
        return _as_heard(item, entry)
    return item if item.status == "completed" else None


def _as_heard(item: Message, entry: Entry) -> Message | None:
    words = text_of(item) if entry.heard is None else entry.heard
    if not words or (item.status == "in_progress" and entry.heard is None):
        return None
    return Message(id=item.id, role="assistant", status=item.status, content=(TextPart(words),))
