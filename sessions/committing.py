"""Decisions about the end of a turn: when what is buffered becomes a user item, and when that is answered."""

from typing import Literal, NamedTuple

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import SampleRef
from antiphon.events.items import AudioPart, Message, Part, TextPart, sound_index

from .answering import answer
from .conditions import fits
from .draft import Draft
from .ending import interrupt
from .feeding import end_input
from .playback import blocks
from .refusal import Refusal, refuse
from .semantics import Judged
from .state import Session
from .transcript import words_of_turn

SILENCE = "silence_or_noise"

Plan = Literal["answer", "commit", "defer"]
"""What a commit means: the model has heard it and answers by itself; it is an item, answered if that is wanted;
it was spoken over an answer, and waits behind it."""


class Moment(NamedTuple):
    """When a commit comes. `busy`: an answer runs or plays; `overlapping`: speech over it is buffered."""

    auto: bool
    spoken: bool
    busy: bool
    overlapping: bool


class _When(NamedTuple):
    auto: bool
    spoken: bool | None = None
    busy: bool | None = None
    overlapping: bool | None = None


SCHEDULE: tuple[tuple[_When, Plan], ...] = (
    (_When(auto=True, spoken=True), "answer"),
    (_When(auto=True, spoken=False), "commit"),
    (_When(auto=False, busy=True, overlapping=True), "defer"),
    (_When(auto=False, busy=True, overlapping=False), "commit"),
    (_When(auto=False, busy=False), "commit"),
)
"""The table of F20; its rows exclude each other."""


def scheduled(moment: Moment) -> Plan:
    """Return the plan for a commit; the table is total."""
    return next(plan for when, plan in SCHEDULE if fits(when, moment))


# -- by the client -------------------------------------------------------------------------------------------


def commit_input(draft: Draft, command: cmd.CommitInput) -> None:
    """Seal the buffer by the client's word (E30; WIRE 2.3)."""
    session = draft.session
    if not session.capabilities.supports_client_commit:
        refuse("unsupported", "This model decides about turns on its own; there is nothing to commit.")
    taken = session.input
    duplex = session.dialect == "duplex"
    held_ms = session.capabilities.input_format.ms(taken.position - taken.start)
    content = taken.speech or (not duplex and taken.position > taken.start)
    written = bool(taken.text)
    if duplex and not written and (command.is_speech is False or (taken.non_speech and not content)):
        _commit_silence(draft)
        return
    if written and not content and not session.capabilities.supports_text_only_turn:
        refuse("text_only_turn_unsupported", "This model answers spoken turns only; send sound with the text.")
    if not written and (not content or (held_ms < session.limits.min_commit_ms and not session.auto)):
        least = session.limits.min_commit_ms
        refuse(
            "input_audio_buffer_empty",
            "Error committing input audio buffer: buffer too small. Expected at least "
            f"{least}ms of audio, but buffer only has {held_ms:.2f}ms of audio.",
        )
    waiting = taken.stream.waiting if session.auto else taken.position - taken.start
    samples = session.capabilities.input_format.samples(waiting)
    draft.plugins[session.plugin].check_commit(session.config, samples=samples)
    wanted = _wanted(session, command)
    asked = command.create_response is True
    _check_pending(session, draft.now, wanted=wanted, asked=asked)
    commit_turn(draft, wanted=wanted, asked=asked)


def _check_pending(session: Session, now: int, *, wanted: bool, asked: bool) -> None:
    """Refuse one more turn that waits for its answer, if too many do (WIRE 1.8)."""
    full = session.turn.deferred >= session.limits.pending_commits
    if wanted and full and not session.auto and not _acknowledges(session, now, asked=asked):
        refuse("input_backpressure", "Too many turns are waiting for an answer.")


def _wanted(session: Session, command: cmd.CommitInput) -> bool:
    if command.create_response is not None:
        return command.create_response or (session.config.auto_response and not session.auto)
    return session.config.auto_response and session.dialect == "duplex"


# -- by whoever ends the turn --------------------------------------------------------------------------------


def end_detected(draft: Draft, reason: ev.TurnEnd) -> None:
    """Commit because the detector has found the end of an utterance; a model that listens all the time hears on."""
    session = draft.session
    detection = session.config.turn_detection
    if detection is not None and not session.auto:
        answers = session.config.auto_response and session.dialect == "duplex"
        _commit_detected(draft, wanted=detection.create_response or answers, reason=reason)


def _commit_detected(draft: Draft, *, wanted: bool, reason: ev.TurnEnd) -> None:
    """Commit because an utterance has ended. If too many turns wait, it stays in the buffer, and that is told."""
    try:
        _check_pending(draft.session, draft.now, wanted=wanted, asked=False)
    except Refusal as refusal:
        draft.emit(refusal.event(draft.number, None))
    else:
        commit_turn(draft, wanted=wanted, asked=False, reason=reason)


def commit_turn(
    draft: Draft, *, wanted: bool, asked: bool, silent: bool = False, reason: ev.TurnEnd = "client"
) -> None:
    """Turn the buffer into a user item and, if `wanted`, answer it: now, or behind the answer that blocks it.

    `asked`: the client says of this very turn that it wants an answer. Without that, a short overlap in the
    duplex dialect is an acknowledgement, and no turn (F19, WIRE 6.5). `silent`: nobody has spoken, and whoever
    listens hears just that. `reason` says what has ended it. What a client commits while it is suspected to
    interrupt is a turn, so it does.
    """
    if draft.session.suspicion is not None:
        interrupt(draft, reason="turn_detected", cause="client_commit", asked=False)
    session = draft.session
    if session.input.phase == "speaking":
        stop_speech(draft, session.input.position // session.capabilities.input_format.width)
        session = draft.session
    if _acknowledges(session, draft.now, asked=asked):
        _seal(draft, None, empty=True, overlap_ack=True, no_response=True, reason=reason)
        return
    if session.auto and session.input.speech:
        end_input(draft)
        session = draft.session
    words = words_of_turn(session)
    ref, content = _content(session)
    auto, busy = session.auto, blocks(session, draft.now)
    committed = _seal(
        draft,
        ref,
        content=content,
        is_speech=not silent and (ref is not None or not session.input.text),
        no_response=not wanted,
        overlap_deferred=_plan(session, busy=busy) == "defer",
        response_create_deferred=wanted and busy and not auto,
        reason=reason,
    )
    item = Message(id=committed.item_id, role="user", content=content)
    previous = committed.previous_item_id
    draft.emit(ev.ItemCreated(number=draft.number, count=3, item=item, previous_item_id=previous))
    _tell_hint(draft, item)
    if words is not None:
        _tell_words(draft, item, words)
    if wanted and not auto:
        answer(draft, item.id)


def _tell_hint(draft: Draft, item: Message) -> None:
    """Tell the words that the client gave with its sound as the transcription of the item (E36, WIRE 3.5)."""
    session, index = draft.session, sound_index(item)
    part = item.content[index]
    if not isinstance(part, AudioPart) or part.transcript is None:
        return
    if session.dialect == "duplex" or session.config.transcription is not None:
        draft.emit(
            ev.UserTranscribed(
                number=draft.number,
                count=1,
                item_id=item.id,
                text=part.transcript,
                seconds=part.ms / 1000,
                content_index=index,
            )
        )


def _tell_words(draft: Draft, item: Message, words: str) -> None:
    """Give the item the words that its stage has heard while it was spoken; shown as any transcription (N13)."""
    index = sound_index(item)
    part = item.content[index]
    assert isinstance(part, AudioPart), "it was heard"
    draft.emit(
        ev.UserTranscribed(
            number=draft.number,
            count=1 if draft.session.config.transcription is not None else 0,
            item_id=item.id,
            text=words,
            seconds=part.ms / 1000,
            content_index=index,
        )
    )


def _content(session: Session) -> tuple[SampleRef | None, tuple[Part, ...]]:
    """Return the sound of the buffer, and all that its item is made of: the sound, and what was written beside it.

    Beside written words, sound without speech is no part of a duplex turn (E35).
    """
    taken, format_ = session.input, session.capabilities.input_format
    kept = taken.position > taken.start
    if taken.text and session.dialect == "duplex" and not taken.speech:
        kept = False
    ref = SampleRef("in", taken.start, taken.position - taken.start) if kept else None
    sound = AudioPart(taken.transcript or None, ref, format_.rate, format_.ms(ref.size) if ref else 0)
    if not taken.text:
        return ref, (sound,)
    return ref, ((sound, TextPart(taken.text)) if ref else (TextPart(taken.text),))


def _plan(session: Session, *, busy: bool) -> Plan:
    taken = session.input
    return scheduled(Moment(session.auto, taken.speech, busy, taken.overlap_ms > 0))


def _acknowledges(session: Session, now: int, *, asked: bool) -> bool:
    """Return whether a commit only tells the speaker to go on (F19).

    Not for a client that asks for an answer, and not in a session that answers every turn (WIRE 6.5). Nor is the
    end of a long utterance an acknowledgement because an answer began in the middle of it.
    """
    if asked or session.dialect != "duplex" or session.config.auto_response or session.input.text:
        return False
    taken, short_ms = session.input, session.config.overlap_short_ack_ms
    short = max(taken.overlap_ms, session.capabilities.input_format.ms(taken.spoken)) <= short_ms
    return short and _plan(session, busy=blocks(session, now)) == "defer"


def _seal(
    draft: Draft,
    ref: SampleRef | None,
    *,
    no_response: bool,
    content: tuple[Part, ...] = (),
    is_speech: bool = True,
    empty: bool = False,
    overlap_ack: bool = False,
    overlap_deferred: bool = False,
    response_create_deferred: bool = False,
    reason: ev.TurnEnd = "client",
) -> ev.InputCommitted:
    """Draft that the buffer is committed: as a turn, or as nothing (`empty`)."""
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
        empty=empty,
        no_response=no_response,
        transcript=(session.input.transcript or None) if is_speech else None,
        overlap_ack=overlap_ack,
        overlap_deferred=overlap_deferred,
        response_create_deferred=response_create_deferred,
        content=content,
        history_len=len(order) + (not empty),
        reason=reason,
    )
    draft.emit(event)
    return event


def _commit_silence(draft: Draft) -> None:
    """Acknowledge a commit of nothing but silence (E34): no turn, no answer."""
    session = draft.session
    taken = session.input
    if taken.phase == "speaking":
        stop_speech(draft, taken.position // session.capabilities.input_format.width)
    _seal(draft, None, is_speech=False, empty=True, no_response=True)
    tell_silence(draft)


# -- what is told --------------------------------------------------------------------------------------------


def stop_speech(draft: Draft, samples: int, reason: ev.TurnEnd = "client", judged: Judged | None = None) -> None:
    """Announce that the utterance has ended, and why; `samples` is the end on the input timeline."""
    session = draft.session
    draft.emit(
        ev.SpeechStopped(
            number=draft.number,
            count=1,
            item_id=session.input.item_id or "",
            audio_end_ms=samples * 1000 // session.capabilities.input_format.rate,
            reason=reason,
            rule=None if judged is None else judged.rule,
        )
    )


def tell_silence(draft: Draft) -> None:
    """Tell that silence was heard, and nobody answers it (E23, E34)."""
    session = draft.session
    draft.emit(
        ev.ListenDecided(number=draft.number, count=1, session=session.id, epoch=session.epoch, reason=SILENCE)
    )
