"""What was heard: the playback ledger, the playout model, and the text that belongs to a position (DESIGN 5.10)."""

import msgspec

from antiphon.events import ids
from antiphon.events.audio import AudioFormat
from antiphon.events.events import Basis, PlaybackCursor, ResponseStatus
from antiphon.events.items import AudioPart, Message

from .prefix import spoken_prefix
from .state import Playout, Session

CORRECTION_US = 5_000_000
"""A truncation this soon after a cut may still correct an estimate upwards (DESIGN 5.10)."""


MARK_SLACK_MS = 100
"""The last mark and the end of the sound may differ by so much: a resampler's tail, rounding."""


def heard(playout: Playout, now: int) -> tuple[int, Basis]:
    """Return how many milliseconds the user heard by `now`, and what says so.

    The first known of: a truncation, an acknowledgement, the playout model.
    """
    if playout.cap_ms is not None:
        return min(playout.cap_ms, playout.sent_ms), playout.cap_basis or "truncate"
    if playout.acked:
        return playout.committed_ms, "ack"
    if playout.started is None:
        return 0, "playout"
    there = playout.sent_ms if playout.reached is None else playout.reached
    return max(0, min((_played_until(playout, now) - playout.started) // 1000, there)), "playout"


def _played_until(playout: Playout, now: int) -> int:
    """Return until when sound was played: it stands still while delivery is held (DESIGN 5.13)."""
    return now if playout.paused is None else min(now, playout.paused)


def plays(playout: Playout, now: int) -> bool:
    """Return whether sound of this response is still to be heard.

    A client that stopped to acknowledge is believed to have played the rest after twice its length (DESIGN 5.3).
    """
    if playout.cap_ms is not None:
        return False
    rest_ms = playout.sent_ms - heard(playout, now)[0]
    at = _played_until(playout, now)
    return rest_ms > 0 and (playout.acked_at is None or at < playout.acked_at + 2 * rest_ms * 1000)


def plays_until(playout: Playout) -> int | None:
    """Return the session time at which `plays` becomes false if nothing else happens; None: it does not.

    It does not while nobody is connected who could hear the rest, or while delivery is held.
    """
    if playout.paused is not None:
        return None
    if playout.acked_at is not None:
        return playout.acked_at + 2 * (playout.sent_ms - playout.committed_ms) * 1000
    there = playout.sent_ms if playout.reached is None else playout.reached
    if playout.started is None or there < playout.sent_ms:
        return None
    return playout.started + playout.sent_ms * 1000


def over_at(session: Session) -> int | None:
    """Return when all sound of answers is heard: by the acknowledgements if there are any, else by its length.

    None: it is not heard while nobody is connected, or while delivery is held.
    """
    ends = [_over_at(playout) for playout in session.playouts.values() if playout.sent and playout.cap_ms is None]
    return None if None in ends else max((end for end in ends if end is not None), default=0)


def _over_at(playout: Playout) -> int | None:
    if playout.acked_at is None or playout.paused is not None:
        return plays_until(playout)
    return playout.acked_at + (playout.sent_ms - playout.played_ms) * 1000


def latest(session: Session) -> Playout | None:
    """Return the playout of the newest response of the conversation that said something."""
    return next(reversed(session.playouts.values()), None)


def current(session: Session) -> Playout | None:
    """Return the playout that clients are shown: a response that opens starts a new one (I20)."""
    active = session.response
    return latest(session) if active is None else session.playouts.get(active.head.id)


def pending(session: Session) -> Playout | None:
    """Return the one ended answer that still waits for an acknowledgement, if it is one (I6, I13)."""
    waiting = [
        playout
        for playout in session.playouts.values()
        if playout.ended and playout.cap_ms is None and playout.committed_ms < playout.sent_ms
    ]
    return waiting[0] if len(waiting) == 1 else None


def too_late(session: Session, playout: Playout) -> bool:
    """Return whether an acknowledgement has no place in history left: a turn of the user stands there (I12)."""
    placed = playout.placed or playout.acked or playout.cap_ms is not None or not playout.sent
    later = session.turn.commits > playout.commits
    return session.config.playback_policy == "ack_only" and later and not placed


def correctable(playout: Playout, now: int) -> bool:
    """Return whether a cut was an estimate that the client may still correct (DESIGN 5.10)."""
    recent = playout.cut_at is not None and now - playout.cut_at <= CORRECTION_US
    return playout.cap_basis == "playout" and recent


def finished(playout: Playout, status: ResponseStatus) -> Playout:
    """Return the playout of a message that has ended; its sound is complete if the stage said so (I4)."""
    if playout.ended:
        return playout
    return msgspec.structs.replace(playout, ended=True, complete=status in ("completed", "incomplete"))


def settled(session: Session) -> list[str]:
    """Return the answers of which no acknowledgement can change anything, to be let go of (I14).

    None that was sent behind sound which still plays: while that does, it says when this is over. None whose
    response is open: it may have said all, and still calls functions beside a newer one.
    """
    found: list[str] = []
    for key, playout in session.playouts.items():
        if plays(playout, session.now):
            break
        heard_all = playout.committed_ms >= playout.sent_ms
        cut = playout.cap_ms is not None and not correctable(playout, session.now)
        if playout.ended and (heard_all or cut) and session.open_response(key) is None:
            found.append(key)
    return found


def remembered(session: Session, response_id: str) -> Playout | None:
    """Return what the item of a response that is not followed any more still says of its sound, as heard (I14)."""
    item_id = ids.assistant_item_id(response_id)
    entry = session.conversation.entries.get(item_id)
    if entry is None or entry.heard is None or not isinstance(entry.item, Message):
        return None
    part = next((part for part in entry.item.content if isinstance(part, AudioPart)), None)
    if part is None:
        return None
    exact = AudioFormat("pcm16", 8_000)
    return Playout(
        response_id,
        item_id,
        exact,
        turn=0,
        commits=0,
        sent=exact.bytes_for(part.ms),
        text=part.transcript or "",
        placed=True,
        ended=True,
        complete=True,
        played_ms=part.ms,
        committed_ms=part.ms,
    )


def playing(session: Session, now: int) -> Playout | None:
    """Return the newest playout with sound that nothing has cut, if some of it is still to be heard (I19).

    What is sent queues behind what was sent before, so when the newest is over, all are; unless an older one was
    still being made beside it (H7).
    """
    for playout in reversed(session.playouts.values()):
        if playout.sent and playout.cap_ms is None:
            if plays(playout, now):
                return playout
            if not session.capabilities.supports_concurrent_turn_requests:
                return None
    return None


def in_progress(session: Session, now: int) -> bool:
    """Return whether an answer is made or played: sound that comes now is judged as overlap (F13)."""
    return talks(session) or playing(session, now) is not None


def talks(session: Session) -> bool:
    """Return whether an answer of the conversation is being made: the active one, or one that drains."""
    return session.response is not None or any(not other.aside for other in session.others.values())


def blocks(session: Session, now: int) -> bool:
    """Return whether the next answer must wait: for the running one, or for playback that is acknowledged (I19).

    Not while the last one leaves room for the next (H3).
    """
    if session.turn.gate is not None:
        return False
    if session.response is not None:
        return True
    return session.config.playback_policy == "ack_only" and playing(session, now) is not None


def waits_until(session: Session) -> int | None:
    """Return the session time at which a deferred turn is answered if nothing else happens (F22); None: never.

    A running answer ends by itself; only playback that is acknowledged needs a clock (`blocks`).
    """
    if not session.turn.deferred or session.response is not None:
        return None
    ends = [plays_until(playout) for playout in _blocking(session)]
    return None if None in ends else max((end for end in ends if end is not None), default=session.now)


def _blocking(session: Session) -> list[Playout]:
    """Return the answers that are still played: the newest one, or all that were made beside each other (H7)."""
    if session.capabilities.supports_concurrent_turn_requests:
        return [playout for playout in session.playouts.values() if plays(playout, session.now)]
    newest = playing(session, session.now)
    return [] if newest is None else [newest]


def start_of(session: Session, now: int) -> int | None:
    """Return when sound that is sent at `now` begins to play: behind what still plays; None if nobody listens."""
    if not session.lease.attached:
        return None
    begin = now
    for playout in session.playouts.values():
        if playout.started is not None and playout.cap_ms is None:
            begin = max(begin, playout.started + playout.sent_ms * 1000)
    return begin


def stand_still(session: Session) -> None:
    """Nobody is connected: what was sent may still play on, what is made from here on cannot be heard."""
    for playout in session.playouts.values():
        if playout.started is not None and playout.cap_ms is None and playout.reached is None:
            playout.reached = playout.sent_ms


def play_on(session: Session) -> None:
    """Somebody is connected again: what was not heard yet plays from now on."""
    now = session.now
    for playout in session.playouts.values():
        if not playout.sent or playout.cap_ms is not None:
            continue
        if playout.reached is not None:
            ms = heard(playout, now)[0]
            playout.started = now - ms * 1000 if ms else None
            playout.reached = None
        if playout.started is None:
            playout.started = start_of(session, now)
        if playout.paused is not None:
            playout.paused = now


def pause(session: Session) -> None:
    """Delivery is held: what was sent and not heard yet waits where it is."""
    for playout in session.playouts.values():
        if plays(playout, session.now) or not playout.ended:
            playout.paused = session.now


def unpause(session: Session) -> None:
    """Delivery goes on: what waited plays on from the sample where it stopped, and the clocks with it."""
    now = session.now
    for playout in session.playouts.values():
        since, playout.paused = playout.paused, None
        if since is None:
            continue
        if playout.acked_at is not None:
            playout.acked_at = now - max(since - playout.acked_at, 0)
        if playout.started is not None:
            # Nothing has played that was not sent: a stage that was slow has not made up for it meanwhile.
            played = min(since - playout.started, playout.sent_ms * 1000)
            playout.started = now - played
            if playout.reached is not None:
                playout.reached = max(played // 1000, 0)  # nobody is there to be told that it may play on


def audible(session: Session, now: int) -> Playout | None:
    """Return the answer that is heard now: the oldest one of which sound is still to be heard."""
    return next((playout for playout in session.playouts.values() if plays(playout, now)), None)


def cursor(playout: Playout | None) -> PlaybackCursor:
    """Return the cursor as clients are shown it."""
    if playout is None:
        return PlaybackCursor()
    sent = playout.sent_ms
    return PlaybackCursor(sent, sent, playout.played_ms, playout.committed_ms)


def prefix_of(playout: Playout, ms: int) -> str:
    """Return the words of a response that were spoken after `ms` milliseconds of its sound.

    A text that is not aligned with its sound is heard with the last of it (I4). A stage may know the length of a
    clause before its sound is made: until it has said all, marks far ahead of what was sent say that the text is
    longer than the sound, and hearing all of the sound is not hearing all of the text.
    """
    sent_ms = playout.sent_ms
    if playout.unaligned:
        return playout.text if playout.complete and ms >= sent_ms else ""
    ahead = playout.marks[-1].ms if playout.marks and not playout.complete else 0
    total = ahead if ahead > sent_ms + MARK_SLACK_MS else sent_ms
    return spoken_prefix(playout.text, playout.marks, ms, total)


def kept_of(playout: Playout, cap_ms: int) -> str:
    """Return the words that are left of a response that was cut there, if need be before it had sound (I16)."""
    return prefix_of(playout, cap_ms) if playout.sent else ""


def history_of(playout: Playout, policy: str) -> str:
    """Return the part of a response's text that is history under a playback policy (I1, I2, I4; WIRE 6.7).

    Always from the position that only grows, never from the last acknowledgement (I8). Under `commit_all_on_done`
    an acknowledged position counts when it lies inside the sound; 0 and the end say no less than all.
    """
    if playout.cap_ms is not None:
        return kept_of(playout, playout.cap_ms)
    if not playout.sent:
        return playout.text if playout.ended else ""
    if policy == "ack_only":
        return prefix_of(playout, playout.committed_ms) if playout.acked else ""
    if not playout.ended or (playout.unaligned and not playout.complete):
        return ""
    inside = 0 < playout.committed_ms < playout.sent_ms and not playout.unaligned
    return prefix_of(playout, playout.committed_ms) if inside else playout.text
