"""What was heard: the playback ledger, the playout model, and the text that belongs to a position (DESIGN 5.10)."""

from collections.abc import Sequence

from antiphon.events.audio import TextMark
from antiphon.events.events import Basis, PlaybackCursor

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
    return max(0, min((now - playout.started) // 1000, there)), "playout"


def plays(playout: Playout, now: int) -> bool:
    """Return whether sound of this response is still to be heard.

    A client that stopped to acknowledge is believed to have played the rest after twice its length (DESIGN 5.3).
    """
    if playout.cap_ms is not None:
        return False
    rest_ms = playout.sent_ms - heard(playout, now)[0]
    return rest_ms > 0 and (playout.acked_at is None or now < playout.acked_at + 2 * rest_ms * 1000)


def plays_until(playout: Playout) -> int | None:
    """Return the session time at which `plays` becomes false if nothing else happens; None: it does not.

    It does not while nobody is connected who could hear the rest.
    """
    if playout.acked_at is not None:
        return playout.acked_at + 2 * (playout.sent_ms - playout.committed_ms) * 1000
    there = playout.sent_ms if playout.reached is None else playout.reached
    if playout.started is None or there < playout.sent_ms:
        return None
    return playout.started + playout.sent_ms * 1000


def latest(session: Session) -> Playout | None:
    """Return the playout of the newest response that said something."""
    return next(reversed(session.playouts.values()), None)


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

    A running answer ends by itself; only playback needs a clock.
    """
    if not session.turn.deferred or session.response is not None:
        return None
    if session.config.playback_policy != "ack_only":
        return session.now
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


def cursor(playout: Playout | None) -> PlaybackCursor:
    """Return the cursor as clients are shown it."""
    if playout is None:
        return PlaybackCursor()
    sent = playout.sent_ms
    return PlaybackCursor(sent, sent, playout.played_ms, playout.committed_ms)


def spoken_prefix(text: str, marks: Sequence[TextMark], ms: int, total_ms: int) -> str:
    """Return the words of `text` that were spoken after `ms` of `total_ms` milliseconds.

    Between two marks, and from the last one to the end, characters are interpolated; the cut falls on a word
    border, to the left. At or beyond the end it is all of the text, at 0 nothing. Without sound (`total_ms` 0)
    a text is heard as a whole (I2, I3; WIRE 6.7).
    """
    if total_ms <= 0 or ms >= total_ms:
        return text
    if ms <= 0:
        return ""
    before, after = TextMark(0, 0), TextMark(len(text), total_ms)
    for mark in sorted(marks, key=lambda mark: (mark.ms, mark.chars)):
        if mark.ms <= ms:
            before = TextMark(max(before.chars, min(mark.chars, len(text))), mark.ms)
        else:
            after = TextMark(min(mark.chars, len(text)), mark.ms)
            break
    span = after.ms - before.ms
    chars = before.chars
    if span > 0:
        chars += max(0, after.chars - before.chars) * (ms - before.ms) // span
    return _to_word_border(text, chars)


def _to_word_border(text: str, chars: int) -> str:
    if 0 < chars < len(text) and not text[chars].isspace() and not text[chars - 1].isspace():
        chars = max((i for i in range(chars) if text[i].isspace()), default=0)
    return text[:chars].rstrip()


def prefix_of(playout: Playout, ms: int) -> str:
    """Return the words of a response that were spoken after `ms` milliseconds of it.

    A stage may know the length of a clause before its sound is made. Marks far ahead of what was sent therefore
    say that the text is longer than the sound, and hearing all of the sound is not hearing all of the text.
    """
    if not playout.sent:
        return playout.text
    ahead = playout.marks[-1].ms if playout.marks else 0
    total = ahead if ahead > playout.sent_ms + MARK_SLACK_MS else playout.sent_ms
    return spoken_prefix(playout.text, playout.marks, ms, total)


def history_of(playout: Playout, policy: str) -> str:
    """Return the part of a response's text that is history under a playback policy (WIRE 6.7, table)."""
    if playout.cap_ms is not None:
        return prefix_of(playout, playout.cap_ms)
    if playout.sent == 0:
        return playout.text if playout.ended else ""
    if policy == "ack_only":
        return prefix_of(playout, playout.committed_ms) if playout.acked else ""
    return playout.text if playout.ended else ""
