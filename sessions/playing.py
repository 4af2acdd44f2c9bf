"""Decisions about what was heard: acknowledgements, truncation, clearing the output."""

from typing import NoReturn

import msgspec

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.items import Message, sound_index

from .deferring import promote
from .draft import Draft
from .ending import cancel_alone, cut_history, interrupt, interrupt_playback, newest_answer
from .playback import (
    correctable,
    history_of,
    kept_of,
    latest,
    pending,
    plays,
    remembered,
    too_late,
)
from .refusal import refuse
from .state import KEPT_PLAYOUTS, Playout, Session


def ack_playback(draft: Draft, command: cmd.AckPlayback) -> None:
    """Move the cursor of a response forward, clamped to what was sent (I6, I7, I12)."""
    session = draft.session
    playout = _target(session, command)
    if isinstance(playout, ev.ResponseHead):
        # It has said nothing yet, and its place in history is fixed already (I9, I10).
        _acknowledge(draft, command, playout, ev.PlaybackCursor(), "")
        return
    if too_late(session, playout):
        refuse("playback_ack_too_late", "The user's next turn stands where the answer would; it is not history.")
    if command.truncate and not playout.spoken:
        # A text is read, not heard: nothing cuts it (I2).
        command = msgspec.structs.replace(command, truncate=False)
    sent = playout.sent_ms
    played = min(max(command.played_ms, 0), sent)
    committed = played if command.committed_ms is None else min(max(command.committed_ms, 0), sent)
    if command.truncate:
        played = min(played, committed)
    else:
        played = max(playout.played_ms, played)
        committed = max(playout.committed_ms, committed)
    if playout.cap_ms is not None and not correctable(playout, draft.now):
        committed = min(committed, playout.cap_ms)
        played = min(max(played, committed), sent)
    cursor = ev.PlaybackCursor(sent, sent, max(played, committed), committed)
    limited = command.truncate or playout.cap_ms is not None
    after = msgspec.structs.replace(
        playout,
        played_ms=cursor.played_ms,
        committed_ms=committed,
        acked_at=draft.now,
        cap_ms=committed if limited else None,
    )
    # Out of band it is no part of the conversation (G5, I18).
    history = "" if playout.response_id in session.asides else history_of(after, session.config.playback_policy)
    _acknowledge(draft, command, playout, cursor, history)
    if session.turn.deferred:
        promote(draft)


def _acknowledge(
    draft: Draft,
    command: cmd.AckPlayback,
    target: Playout | ev.ResponseHead,
    cursor: ev.PlaybackCursor,
    history: str,
) -> None:
    draft.emit(
        ev.PlaybackAcknowledged(
            number=draft.number,
            count=1,
            session=draft.session.id,
            epoch=draft.session.epoch,
            response_id=target.response_id if isinstance(target, Playout) else target.id,
            item_id=target.item_id,
            played_ms=command.played_ms,
            committed_ms=command.played_ms if command.committed_ms is None else command.committed_ms,
            truncate=command.truncate,
            playback=cursor,
            history=history,
            history_committed=bool(history),
        )
    )


def _target(session: Session, command: cmd.AckPlayback) -> Playout | ev.ResponseHead:
    """Return what is acknowledged (I6, I11); only the head of an open response that has said nothing yet."""
    wanted = command.response_id
    if wanted is None and command.item_id is not None:
        wanted = command.item_id.removeprefix("item_")
    if wanted is None:
        wanted = _unnamed(session)
    if command.item_id is not None and command.item_id != ids.assistant_item_id(wanted):
        refuse("playback_item_mismatch", "The item does not belong to this response.", "item_id")
    playout = session.playout(wanted) or remembered(session, wanted)
    response = session.open_response(wanted)
    if playout is None and response is not None and not command.truncate:
        return response.head
    if playout is None:
        refuse("playback_item_not_found", "There is no such response to acknowledge.", "response_id")
    if session.playout(wanted) is None and session.conversation.entries[playout.item_id].heard != playout.text:
        refuse(
            "playback_ack_too_late",
            f"Of answers that wait for an acknowledgement, only the last {KEPT_PLAYOUTS} are followed.",
            "response_id",
        )
    return playout


def _unnamed(session: Session) -> str:
    """Return the response that an acknowledgement means which names none."""
    waiting = pending(session)
    if waiting is None and session.response is not None:
        return session.response.head.id
    playout = waiting or latest(session)
    if playout is None:
        refuse("playback_item_not_found", "No response has been played.")
    return playout.response_id


def truncate_item(draft: Draft, command: cmd.TruncateItem) -> None:
    """End an answer at what the client says was heard (I15, I16; WIRE 6.7)."""
    session = draft.session
    entry = session.conversation.entries.get(command.item_id)
    if not command.item_id:
        refuse("missing_item_id", "An item_id is needed.", "item_id", "missing")
    if entry is None:
        refuse(
            "item_not_found",
            f"Error truncating item: the item with id '{command.item_id[:64]}' does not exist.",
            "item_id",
        )
    response_id = command.item_id.removeprefix("item_")
    playout = session.playouts.get(response_id) or remembered(session, response_id)
    if not isinstance(entry.item, Message) or playout is None or not playout.spoken:
        refuse("bad_event", "Only model output audio messages can be truncated", "item_id", "not_audio")
    sound = sound_index(entry.item)
    if command.content_index != sound:
        refuse("bad_event", f"The audio is content part {sound}.", "content_index", "value")
    ms = command.audio_end_ms
    if not 0 <= ms <= playout.sent_ms:
        _refuse_length(playout, ms)
    if playout.cap_ms is not None and not correctable(playout, draft.now):
        ms = min(ms, playout.cap_ms)
    draft.emit(
        ev.ItemTruncated(
            number=draft.number,
            count=1,
            item_id=command.item_id,
            response_id=playout.response_id,
            content_index=command.content_index,
            audio_end_ms=ms,
            text=kept_of(playout, ms),
            epoch=session.epoch,
        )
    )
    if session.turn.deferred:
        promote(draft)


def _refuse_length(playout: Playout, ms: int) -> NoReturn:
    refuse(
        "bad_event",
        f"Audio content of {playout.sent_ms}ms is already shorter than {ms}ms"
        if ms >= 0
        else "audio_end_ms must not be negative.",
        "audio_end_ms",
        "value",
    )


def clear_output(draft: Draft, command: cmd.ClearOutput) -> None:
    """Stop playing (WIRE 2.5): the reply first, then the terminal of a response that still ran.

    An answer that waits behind it is kept, and given now (F23).
    """
    session, newest = draft.session, latest(draft.session)
    running = newest_answer(session) if command.response_id is None else session.open_response(command.response_id)
    last = newest.response_id if newest else None
    response_id = command.response_id or (last if running is None else running.head.id)
    draft.emit(ev.OutputCleared(number=draft.number, count=1, response_id=response_id, asked=True))
    if running is not None and (running.aside or running is not newest_answer(session)):
        cancel_alone(draft, running, "output_audio_buffer_clear")
    elif running is not None:
        interrupt(draft, reason="client_cancelled", cause="output_audio_buffer_clear", spares_turns=True)
    elif newest is not None and response_id == last and newest_answer(session) is None:
        if plays(newest, draft.now):
            interrupt_playback(draft, newest, "output_audio_buffer_clear", spares_turns=True)
    else:
        _clear_older(draft, response_id)
    if session.turn.deferred:
        promote(draft)


def _clear_older(draft: Draft, response_id: str | None) -> None:
    """Cut an answer that has ended and is not the last one; newer turns are not touched (G32)."""
    older = draft.session.playouts.get(response_id or "")
    if older is not None and plays(older, draft.now):
        cut_history(draft, older)
