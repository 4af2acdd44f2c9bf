"""Decisions about input: appends, voice activity, commit, clear."""

import copy

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import SampleRef
from antiphon.events.items import AudioPart, Message

from . import vad
from .answering import answer, submit_resident
from .draft import Draft
from .ending import interrupt
from .playback import playing
from .refusal import refuse
from .state import Session

SILENCE = "silence_or_noise"


def append_audio(draft: Draft, command: cmd.AppendAudio) -> None:
    """Take sound: keep it, feed it, and find turns in its scores."""
    session = draft.session
    _check_append(session, command)
    if session.auto:
        # What interrupts is told first: the sound that cut in belongs to the request that hears it (F17).
        _announce(draft, session, command)
        _receive(draft, session, command, feed=submit_resident(draft))
    else:
        _receive(draft, session, command, feed=None)
        _announce(draft, session, command)


def _receive(draft: Draft, session: Session, command: cmd.AppendAudio, feed: str | None) -> None:
    draft.emit(
        ev.AudioReceived(
            ref=SampleRef("in", session.input.position, command.size),
            wire_bytes=command.wire_bytes,
            scores=command.scores,
            lead=command.lead,
            speech=command.speech,
            transcript=command.transcript,
            buffered=feed is None and not _unwanted(session, command),
            feed=feed,
        )
    )


def _unwanted(session: Session, command: cmd.AppendAudio) -> bool:
    """Return whether this is silence outside an utterance, which a duplex session does not keep (E23)."""
    detected = session.config.turn_detection is not None
    silent = not command.speech and session.input.phase == "silent"
    return silent and not detected and session.dialect == "duplex"


def _announce(draft: Draft, session: Session, command: cmd.AppendAudio) -> None:
    """Tell the speech that an append begins or ends, and what follows from it; `session` is the state before."""
    taken = session.input
    if session.config.turn_detection is not None:
        if command.scores:
            _find_turns(draft, session, command)
    elif session.dialect != "duplex" or taken.phase != "silent":
        return
    elif command.speech:
        _start_speech(draft, taken.position)
    elif not session.auto and not taken.non_speech and session.response is None:
        _listen(draft)


def _check_append(session: Session, command: cmd.AppendAudio) -> None:
    if not session.capabilities.supports_input_append:
        refuse("invalid_input_modality", "This model takes no audio while the user talks.", "audio")
    limit = session.limits.input_bytes
    if session.input.reserved + max(command.size, command.wire_bytes) > limit:
        refuse(
            "input_backpressure",
            f"More than {limit} bytes of audio are waiting; commit or clear the input, or wait for the answer.",
        )


def _listen(draft: Draft) -> None:
    session = draft.session
    draft.emit(
        ev.ListenDecided(number=draft.number, count=1, session=session.id, epoch=session.epoch, reason=SILENCE)
    )


def _ms(session: Session, samples: int) -> int:
    return samples * 1000 // session.capabilities.input_format.rate


def _start_speech(draft: Draft, start: int) -> None:
    """Announce speech that begins at byte `start` of the `in` stream, unless an utterance is open already.

    It is, if the detector was replaced in the middle of it.
    """
    session = draft.session
    if session.input.phase == "speaking":
        return
    item_id = session.input.item_id or draft.new_item_id()
    samples = start // session.capabilities.input_format.width
    draft.emit(
        ev.SpeechStarted(
            number=draft.number,
            count=1,
            item_id=item_id,
            audio_start_ms=_ms(session, samples),
            start=start,
        )
    )


def _stop_speech(draft: Draft, samples: int) -> None:
    session = draft.session
    draft.emit(
        ev.SpeechStopped(
            number=draft.number,
            count=1,
            item_id=session.input.item_id or "",
            audio_end_ms=_ms(session, samples),
        )
    )


def _find_turns(draft: Draft, before: Session, command: cmd.AppendAudio) -> None:
    detection = before.config.turn_detection
    assert detection is not None
    width = before.capabilities.input_format.width
    first = before.input.position // width - command.lead
    earliest = 0 if before.auto else before.input.start
    activity = copy.copy(before.input.vad)
    changes = vad.advance(activity, vad.thresholds(detection), command.scores, first)
    stopped = False
    for change in changes:
        if change.kind == "start":
            _start_speech(draft, max(change.at * width, earliest))
            _overlap(draft)
            stopped = False
        else:
            _stop_speech(draft, change.at)
            stopped = True
    if stopped and not draft.session.auto:
        _commit(draft, wanted=detection.create_response)


def _overlap(draft: Draft) -> None:
    """Speech began: interrupt an answer in progress, if that is wanted and possible (F15 rows 7, 15, 17)."""
    session = draft.session
    if session.response is None and playing(session, draft.now) is None:
        return
    barges = session.config.overlap_policy == "barge_in_on_speech"
    able = session.capabilities.supports_barge_in
    if barges and able:
        action, reason = "barge_in", "server_vad_speech_started"
    else:
        action, reason = "listen", "barge_in_unsupported" if barges else "policy_listen_only"
    draft.emit(
        ev.OverlapDecided(
            number=draft.number,
            count=1,
            session=session.id,
            epoch=session.epoch,
            policy=session.config.overlap_policy,
            action="barge_in" if action == "barge_in" else "listen",
            reason=reason,
        )
    )
    if action == "barge_in":
        interrupt(draft, reason="turn_detected", cause="turn_detected", asked=False)


# -- commit --------------------------------------------------------------------------------------------------


def commit_input(draft: Draft, command: cmd.CommitInput) -> None:
    """Seal the buffer by the client's word (E30; WIRE 2.3)."""
    session = draft.session
    if not session.capabilities.supports_client_commit:
        refuse("unsupported", "This model decides about turns on its own; there is nothing to commit.")
    taken = session.input
    duplex = session.dialect == "duplex"
    held_ms = session.capabilities.input_format.ms(taken.position - taken.start)
    content = taken.speech or (not duplex and taken.position > taken.start)
    if duplex and (command.is_speech is False or (taken.non_speech and not content)):
        _commit_silence(draft)
        return
    if not content or (held_ms < session.limits.min_commit_ms and not session.auto):
        least = session.limits.min_commit_ms
        refuse(
            "input_audio_buffer_empty",
            "Error committing input audio buffer: buffer too small. Expected at least "
            f"{least}ms of audio, but buffer only has {held_ms:.2f}ms of audio.",
        )
    if session.turn.deferred and session.turn.unanswered >= session.limits.pending_commits:
        refuse("input_backpressure", "Too many turns are waiting for an answer.")
    if taken.phase == "speaking":
        _stop_speech(draft, taken.position // session.capabilities.input_format.width)
    _commit(draft, wanted=_wanted(session, command))


def _wanted(session: Session, command: cmd.CommitInput) -> bool:
    if command.create_response is not None:
        return command.create_response or (session.config.auto_response and not session.auto)
    return session.config.auto_response and session.dialect == "duplex"


def _commit(draft: Draft, *, wanted: bool) -> None:
    """Turn the buffer into a user item and, if `wanted`, answer it (now, or after the running answer)."""
    session = draft.session
    taken = session.input
    ref = SampleRef("in", taken.start, taken.position - taken.start) if taken.position > taken.start else None
    committed = _seal(draft, ref, is_speech=True, answered=wanted)
    sound = AudioPart(
        taken.transcript or None,
        ref,
        session.capabilities.input_format.rate,
        session.capabilities.input_format.ms(ref.size) if ref else 0,
    )
    item = Message(id=committed.item_id, role="user", content=(sound,))
    previous = committed.previous_item_id
    draft.emit(ev.ItemCreated(number=draft.number, count=3, item=item, previous_item_id=previous))
    if wanted and not session.auto:
        answer(draft)


def _seal(draft: Draft, ref: SampleRef | None, *, is_speech: bool, answered: bool) -> ev.InputCommitted:
    """Draft that the buffer is committed: as speech, or as nothing but silence."""
    session = draft.session
    order = session.conversation.order
    event = ev.InputCommitted(
        number=draft.number,
        count=1,
        session=session.id,
        item_id=session.input.item_id or draft.new_item_id(),
        previous_item_id=order[-1] if order else None,
        ref=ref,
        epoch=session.epoch,
        turn=session.turn.turn,
        is_speech=is_speech,
        empty=not is_speech,
        no_response=not answered,
        transcript=(session.input.transcript or None) if is_speech else None,
    )
    draft.emit(event)
    return event


def _commit_silence(draft: Draft) -> None:
    """Acknowledge a commit of nothing but silence (E34): no turn, no answer."""
    session = draft.session
    taken = session.input
    if taken.phase == "speaking":
        _stop_speech(draft, taken.position // session.capabilities.input_format.width)
    _seal(draft, None, is_speech=False, answered=False)
    _listen(draft)


# -- clear ---------------------------------------------------------------------------------------------------


def clear_input(draft: Draft, _command: cmd.ClearInput) -> None:
    """Drop what is buffered; output is not touched (E28, G37)."""
    draft.emit(ev.InputCleared(number=draft.number, count=1))


def cancel_input(draft: Draft, _command: cmd.CancelInput) -> None:
    """Interrupt what is answered or played, then clear (WIRE 2.4: `cleared` comes last)."""
    interrupt(draft, reason="client_cancelled", cause="input_cancel")
    draft.emit(ev.InputCleared(number=draft.number, count=1))


def barge_in(draft: Draft, _command: cmd.BargeIn) -> None:
    """Interrupt and drop uncommitted input; `cleared` only if there was nothing to interrupt (WIRE 2.16)."""
    session = draft.session
    if not session.capabilities.supports_barge_in:
        refuse("barge_in_unsupported", "This model cannot be interrupted by speech.")
    interrupted = interrupt(draft, reason="turn_detected", cause="barge_in")
    if not interrupted:
        draft.emit(ev.InputCleared(number=draft.number, count=1))
    elif session.input.position > session.input.start or session.input.phase != "silent":
        draft.emit(ev.InputDropped())
