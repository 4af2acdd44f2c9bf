"""Decisions about input as it comes: appends, voice activity, overlap, clear."""

import copy

import msgspec
from msgspec import Struct

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import SampleRef
from antiphon.events.items import json_size

from . import previewing, transcript, vad
from .acknowledging import acknowledges
from .committing import end_detected, stop_speech, tell_silence
from .draft import Draft
from .ending import interrupt, live_requests
from .feeding import hear
from .overlap import Judgement, Situation, Starts, judge
from .playback import in_progress
from .refusal import Refusal, refuse
from .state import Session
from .suspecting import ask_for_words, doubts, forget, review, suspect
from .weighing import check_words


class _Heard(Struct):
    """An append as it is understood: where it lies, how long it lasts, and what the detector found in it.

    `detected`: there is a detector that can tell. `speech` is the one verdict (E3), `changes` what began and
    ended, `pauses` that the words so far are wanted; `hint` are words of it. `opens`: without a detector, it
    announces that the user speaks. `judged` None: no answer is in progress.
    """

    position: int
    ms: int
    detected: bool
    speech: bool
    starts: Starts = "unknown"
    changes: tuple[vad.Change, ...] = ()
    pauses: bool = False
    hint: str | None = None
    opens: bool = False
    force_listen: bool = False
    vision: bool = False
    judged: Judgement | None = None

    def suspects(self, session: Session) -> bool:
        """Return whether it may be what a suspected interruption is decided by; `session` is the state before."""
        return session.suspicion is not None or (self.judged is not None and self.judged.row.suspects)


def append_audio(draft: Draft, command: cmd.AppendAudio) -> None:
    """Take sound and pictures as they come."""
    check_append(draft, command)
    take(draft, command, pictures(draft.session, command))


def pictures(session: Session, command: cmd.AppendAudio) -> tuple[SampleRef, ...]:
    """Return the places of the pictures that came with an append."""
    if not command.frames:
        return ()
    at = session.input.stream.shown
    refs: list[SampleRef] = []
    for size in command.frames:
        refs.append(SampleRef("img", at, size))
        at += size
    return tuple(refs)


def take(draft: Draft, command: cmd.AppendAudio, frames: tuple[SampleRef, ...]) -> None:
    """Keep sound, let the model hear it, find turns in its scores, and judge it if it comes during an answer."""
    session = draft.session
    if (command.force_barge_in or command.overlap == "barge_in") and not session.capabilities.supports_barge_in:
        refusal = Refusal("barge_in_unsupported", "This model cannot be interrupted; the sound is taken.")
        draft.emit(refusal.event(draft.number, command.event_id))
        session = draft.session
        if session.auto:
            command = _without_wish(command)  # a model that listens hears it like any other (E10, F13)
    heard = _hear(session, command, draft.now)
    while len(heard.changes) > 1 and not session.auto:
        ends = next((change.at for change in heard.changes if change.kind == "stop"), None)
        if ends is None or heard.changes[-1].at == ends:
            break
        first, command = _split(session, command, ends)
        _take(draft, session, first, _hear(session, first, draft.now), ())
        session = draft.session
        heard = _hear(session, command, draft.now)
    _take(draft, session, command, heard, frames)
    if heard.suspects(session):
        ask_for_words(draft)
    if heard.pauses:
        previewing.ask(draft)


def _split(session: Session, command: cmd.AppendAudio, end: int) -> tuple[cmd.AppendAudio, cmd.AppendAudio]:
    """Cut an append at sample `end`, where an utterance ends in it and another begins (WIRE 6.1)."""
    position, width = session.input.position, session.capabilities.input_format.width
    begin = position // width - command.lead
    scored = (end - begin) // vad.FRAME
    size = min(max(end * width - position, 0), command.size)
    before = msgspec.structs.replace(
        command,
        size=size,
        wire_bytes=min(size, command.wire_bytes),
        scores=command.scores[:scored],
        frames=(),
    )
    after = msgspec.structs.replace(
        command,
        size=command.size - size,
        wire_bytes=command.wire_bytes - before.wire_bytes,
        scores=command.scores[scored:],
        lead=max((position + size) // width - end, 0),
        transcript=None,
    )
    # What the client wants to interrupt is not what answers the first part.
    return before, _without_wish(after)


def _without_wish(command: cmd.AppendAudio) -> cmd.AppendAudio:
    """Return an append that does not ask to interrupt."""
    overlap = None if command.overlap == "barge_in" else command.overlap
    return msgspec.structs.replace(command, force_barge_in=False, overlap=overlap)


def _take(
    draft: Draft, session: Session, command: cmd.AppendAudio, heard: _Heard, frames: tuple[SampleRef, ...]
) -> None:
    if heard.judged is not None and heard.judged.forgets:
        _forget(draft, session, command, heard, heard.judged)
    elif session.auto:
        _listen(draft, session, command, heard, frames)
    else:
        keep = _kept(session, heard)
        quiet = not keep and command.size and not session.input.non_speech and heard.judged is None
        draft.emit(_received(command, heard, frames, keep=keep))
        _announce(draft, session, heard)
        if quiet:
            tell_silence(draft)


def _listen(
    draft: Draft, session: Session, command: cmd.AppendAudio, heard: _Heard, frames: tuple[SampleRef, ...]
) -> None:
    """Let a model that listens all the time hear it, unless it is deferred (F16)."""
    # What interrupts is told first: the sound that cut in belongs to the request that hears it (F17).
    before = len(draft.events)
    _announce(draft, session, heard)
    told = len(draft.events) > before
    event = _received(command, heard, frames, queued=True)
    current = draft.session if told else session
    draft.emit(event)
    if heard.judged is None or not heard.judged.row.defer:
        hear(draft, current, event)


def check_append(draft: Draft, command: cmd.AppendAudio) -> None:
    """Refuse what the model cannot take (E6), and what there is no credit for (E12).

    Raises:
        Refusal: `invalid_input_modality`, `input_backpressure`, or `bad_event` for far too many words; or as the
            model says.
    """
    session = draft.session
    able = session.capabilities
    if not able.supports_input_append:
        refuse("invalid_input_modality", "This model takes no audio while the user talks.", "audio")
    if command.frames or "video" in able.required_input_modalities:
        _check_frames(session, command)
    samples = command.sent or able.input_format.samples(command.size)
    draft.plugins[session.plugin].check_append(
        session.config, samples=samples, frames=len(command.frames), speech=command.speech
    )
    limit = session.limits.input_bytes
    size = command.size + sum(command.frames) if command.frames else command.size
    words = json_size(command.transcript) if command.transcript else 0
    if words:
        check_words(session, words, "transcript")
    if session.input.reserved + max(size, command.wire_bytes) + words > limit:
        refuse(
            "input_backpressure",
            f"More than {limit} bytes of audio are waiting; commit or clear the input, or wait for the answer.",
        )


def _check_frames(session: Session, command: cmd.AppendAudio) -> None:
    required, optional = (
        session.capabilities.required_input_modalities,
        session.capabilities.optional_input_modalities,
    )
    if not command.frames:
        refuse("invalid_input_modality", "This model needs video with every append.", "video_frames")
    if "video" not in required and "video" not in optional:
        refuse("invalid_input_modality", "This model takes no video.", "video_frames")
    if command.size == 0 and "audio" in required:
        refuse("invalid_input_modality", "This model takes video only with audio.", "audio")
    if command.size and "audio" not in required and "audio" not in optional:
        refuse("invalid_input_modality", "This model takes no audio.", "audio")


def _hear(session: Session, command: cmd.AppendAudio, now: int) -> _Heard:
    taken = session.input
    detection = session.config.turn_detection if command.scored else None
    ms = session.capabilities.input_format.ms(command.size)
    heard = _Heard(taken.position, ms, detection is not None, command.speech, force_listen=command.force_listen)
    heard.hint = command.transcript
    heard.vision = bool(command.frames) and session.sees
    if command.size == 0 and not heard.vision:
        heard.speech = False  # the resampler may have kept all of it
    if detection is not None:
        heard.speech, heard.starts = taken.phase == "speaking", "no"
        if command.scores:
            activity = copy.copy(taken.vad)
            first = taken.position // session.capabilities.input_format.width - command.lead
            limits = transcript.thresholds(session, command.transcript)
            heard.changes = tuple(vad.advance(activity, limits, command.scores, first))
            heard.pauses = transcript.pauses(session, activity, first + len(command.scores) * vad.FRAME)
            if _begins(heard.changes, speaking=heard.speech):
                heard.speech, heard.starts = True, "yes"
    if session.response is not None or in_progress(session, now):
        heard.judged = _judge(session, command, heard)
    heard.opens = detection is None and session.dialect == "duplex" and heard.speech and taken.phase == "silent"
    return heard


def _begins(changes: tuple[vad.Change, ...], *, speaking: bool) -> bool:
    """Return whether an utterance begins that is not open already (it is, if the detector was replaced in it)."""
    for change in changes:
        if change.kind == "start" and not speaking:
            return True
        speaking = change.kind == "start"
    return False


def _judge(session: Session, command: cmd.AppendAudio, heard: _Heard) -> Judgement:
    config = session.config
    situation = Situation(
        auto=session.auto,
        able=session.capabilities.supports_barge_in,
        asked=command.overlap or "nothing",
        forced=command.force_barge_in,
        held=command.force_listen,
        speech=heard.speech,
        vision=heard.vision,
        policy=config.overlap_policy,
        starts=heard.starts,
        acknowledges=command.transcript is not None and acknowledges(command.transcript),
        doubts=doubts(session),
    )
    return judge(
        situation,
        duration_ms=heard.ms,
        overlap_ms=session.input.overlap_ms,
        short_ms=config.overlap_short_ack_ms,
    )


def _kept(session: Session, heard: _Heard) -> bool:
    """Return whether the sound is buffered for a commit.

    A detector keeps what may yet turn out to be the beginning of an utterance. Without one, a duplex session
    does not keep silence outside an utterance (E23); inside, it is a pause of the speaker. The other dialects
    keep everything (WIRE 2.2).
    """
    if heard.detected or session.dialect != "duplex":
        return True
    return heard.speech or heard.vision or session.input.phase != "silent"


def _received(
    command: cmd.AppendAudio,
    heard: _Heard,
    frames: tuple[SampleRef, ...] = (),
    *,
    queued: bool = False,
    keep: bool = False,
) -> ev.AudioReceived:
    return ev.AudioReceived(
        ref=SampleRef("in", heard.position, command.size),
        wire_bytes=command.wire_bytes,
        scores=command.scores,
        lead=command.lead,
        scored=command.scored,
        speech=heard.speech,
        transcript=command.transcript,
        buffered=keep,
        queued=queued,
        force_listen=heard.force_listen if heard.judged is None else heard.judged.force_listen,
        frames=frames,
    )


def _forget(draft: Draft, session: Session, command: cmd.AppendAudio, heard: _Heard, judged: Judgement) -> None:
    """Take sound that is no turn of the user, and forget what it belonged to (F16)."""
    speaking = session.input.phase == "speaking"
    draft.emit(_received(command, heard))
    _overlap(draft, session, heard)
    if speaking:
        stop_speech(draft, heard.position // session.capabilities.input_format.width, "overlap")
    draft.emit(ev.InputDiscarded())
    if session.suspicion is not None:
        forget(draft, judged)


def _announce(draft: Draft, session: Session, heard: _Heard) -> None:
    """Tell the speech that an append begins or ends, and do what follows; `session` is the state before."""
    width = session.capabilities.input_format.width
    earliest = 0 if session.auto else session.input.start
    told, ended = False, None
    if heard.starts != "yes":
        _overlap(draft, session, heard)
    if heard.opens:
        _start_speech(draft, heard.position)
    for change in heard.changes:
        ended = None
        if change.kind == "stop":
            ended, judged = transcript.ended(session, change, heard.hint)
            stop_speech(draft, change.at, ended, judged)
            continue
        _start_speech(draft, max(change.at * width, earliest))
        if heard.starts == "yes" and not told:
            _overlap(draft, session, heard, change.speech)
            told = True
    if heard.suspects(session) and draft.session.suspicion is not None:
        review(draft)
    elif ended is not None:
        end_detected(draft, ended)


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
            audio_start_ms=samples * 1000 // session.capabilities.input_format.rate,
            start=start,
        )
    )


def _overlap(draft: Draft, session: Session, heard: _Heard, start: int = 0) -> None:
    """Tell what is done about sound that came during an answer, and interrupt it if that is it (F14, F17).

    `start` is the sample at which speech begins in it, if it does.
    """
    judged = heard.judged
    if judged is None:
        return
    row = judged.row
    if _told(session, heard, judged):
        draft.emit(
            ev.OverlapDecided(
                number=draft.number,
                count=1,
                session=session.id,
                epoch=session.epoch,
                policy=session.config.overlap_policy,
                action=row.action,
                reason=row.reason,
                duration_ms=heard.ms,
                overlap_ms=judged.overlap_ms,
                buffer=judged.buffer,
                defer=row.defer,
                force_listen=judged.force_listen,
                keep=row.keep,
                cancel=row.cancel,
            )
        )
    if row.cancel is not None:
        interrupt(draft, reason="turn_detected", cause=row.cancel, asked=False)
    elif row.suspects and session.suspicion is None:
        suspect(draft, start)


def _told(session: Session, heard: _Heard, judged: Judgement) -> bool:
    """Return whether a judgement is an event: each in the duplex dialect, unless nothing is decided (WIRE 6.4).

    The other dialects see none, and their log holds what changed something.
    """
    if judged.row.reason == "auto_response_continuous" and session.config.overlap_policy == "listen_only":
        return False
    return session.dialect == "duplex" or heard.starts == "yes" or judged.row.reason.startswith("client_")


# -- clear ---------------------------------------------------------------------------------------------------


def clear_input(draft: Draft, _command: cmd.ClearInput) -> None:
    """Drop what is buffered; output is not touched (E28, G37)."""
    draft.emit(ev.InputCleared(number=draft.number, count=1))


def cancel_input(draft: Draft, _command: cmd.CancelInput) -> None:
    """Interrupt what is answered or played, then clear (WIRE 2.4: `cleared` comes last)."""
    if not interrupt(draft, reason="client_cancelled", cause="input_cancel", works=_works(draft.session)):
        _void(draft, "input_cancel")
    draft.emit(ev.InputCleared(number=draft.number, count=1))


def barge_in(draft: Draft, _command: cmd.BargeIn) -> None:
    """Interrupt and drop uncommitted input; `cleared` only if there was nothing to interrupt (WIRE 2.16)."""
    session = draft.session
    if not session.capabilities.supports_barge_in:
        refuse("barge_in_unsupported", "This model cannot be interrupted by speech.")
    interrupted = interrupt(draft, reason="turn_detected", cause="barge_in", works=_works(session))
    if not interrupted:
        _void(draft, "barge_in")
        draft.emit(ev.InputCleared(number=draft.number, count=1))
    elif _building(session):
        draft.emit(ev.InputDropped())


def _building(session: Session) -> bool:
    """Return whether there is input that nobody has committed, and no model was given; if only silence, that is not
    even kept."""
    taken = session.input
    unheard = taken.non_speech or (session.auto and bool(taken.stream.queue))
    return taken.position > taken.start or unheard or taken.phase != "silent" or bool(taken.text)


def _works(session: Session) -> bool:
    """Return whether a resident model has input under way, or is about to speak, though nothing is heard yet."""
    going = session.input.stream.continuation
    return bool(session.input.stream.in_flight) or (going is not None and going.due is not None)


def _void(draft: Draft, cause: ev.Cause) -> None:
    """Begin a new epoch if there is input to drop; an idle session has nothing that could end (G30, DESIGN 5.1)."""
    session = draft.session
    taken = session.input
    works = _works(session)
    if works or taken.position > taken.start or taken.stream.queue:
        # A request that has units under way, or is about to speak, cannot forget it: it ends with its epoch (E29).
        requests = live_requests(session) if works else ()
        draft.emit(ev.Interrupted(epoch=session.epoch + 1, cause=cause, requests=requests))
