"""What the events of the user's input change: buffer, voice activity, words."""

import msgspec

from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.audio import AudioFormat, SampleRef
from antiphon.events.items import AudioPart, FunctionOutput, Item, Message, json_size, places

from . import fold_units, phases, semantics, transcript, vad
from .fold_delivery import forgotten, goes_on, stopped
from .folding import step_over
from .phases import move
from .state import Ahead, Session, next_item_number, unanswered


def audio_received(session: Session, event: ev.AudioReceived) -> None:
    taken = session.input
    before, empty = taken.position, taken.start == taken.position
    taken.position = event.ref.end
    session.started = True
    fold_units.heard(session, event)
    if event.speech:
        taken.speech = True
        taken.spoken += event.ref.size
    elif event.ref.size:
        taken.non_speech = True
    if event.frames and session.sees:
        taken.speech = True
    if event.transcript:
        taken.transcript += event.transcript
        taken.hint_size += json_size(event.transcript)
    if not event.buffered:
        taken.start = taken.position if empty or event.queued else taken.start
    detection = session.config.turn_detection
    if detection is None or not event.scored:
        not_all_heard(session)
        return
    limits = transcript.thresholds(session)
    vad.advance(taken.vad, limits, event.scores, samples(session, before) - event.lead)
    if taken.phase == "silent" and not taken.vad.speaking:
        oldest = taken.vad.run_start if taken.vad.run else samples(session, taken.position) - event.lead
        keep = max(oldest - _kept_silence(session, limits.prefix) - vad.FRAME, 0)
        taken.start = max(taken.start, keep * _input_format(session).width)


def _kept_silence(session: Session, prefix: int) -> int:
    """Return how many samples of silence are kept: for the beginning of an utterance, or for an idle prompt."""
    detection = session.config.turn_detection
    if session.input.idle_since is None or detection is None or detection.idle_timeout_ms is None:
        return prefix
    half = session.limits.input_bytes // (2 * _input_format(session).width)  # what is said next has room, too
    return max(prefix, min(detection.idle_timeout_ms * vad.RATE // 1000, half))


def rest(session: Session) -> None:
    """An answer has ended: from here on it counts that the user does nothing, but once (WIRE 6.3)."""
    taken = session.input
    if taken.phase == "silent" and taken.prompted is None:
        taken.idle_since = session.now


def stir(session: Session) -> None:
    """The user does something."""
    session.input.idle_since = session.input.prompted = None


def asked_ahead(session: Session, event: ev.PreviewRequested) -> None:
    taken = session.input
    until = samples(session, event.ref.end)
    known = taken.ahead or Ahead(event.request, until)
    whole = event.ref.start == taken.start
    taken.ahead = msgspec.structs.replace(known, request=event.request, until=until, whole=whole)


def not_all_heard(session: Session) -> None:
    """What is known of the words may not be all of them: nobody can tell what was said since."""
    taken = session.input
    if taken.ahead is not None:
        taken.ahead = msgspec.structs.replace(taken.ahead, whole=False)


def turn_previewed(session: Session, event: ev.TurnPreviewed) -> None:
    """Know the words so far; the pause behind them may last as long as they allow, if it goes on."""
    taken, detection = session.input, session.config.turn_detection
    assert taken.ahead is not None, "somebody has asked"
    until, since = taken.ahead.until, taken.vad.silent_since
    taken.ahead = msgspec.structs.replace(
        taken.ahead, text=event.text, heard=until, sentence=event.sentence, rule=event.rule
    )
    if detection is not None and detection.type == "semantic_vad" and since is not None and since < until:
        taken.vad.patience = semantics.silence_ms(detection.eagerness, event.sentence) * vad.RATE // 1000


def input_timed_out(session: Session, event: ev.InputTimedOut) -> None:
    count_item(session, event.item_id)
    session.input.item_id = session.input.prompted = event.item_id
    session.input.idle_since = None


def text_received(session: Session, event: ev.TextReceived) -> None:
    stir(session)
    session.input.text += event.text
    session.input.text_size += json_size(event.text)
    session.started = True


def speech_started(session: Session, event: ev.SpeechStarted) -> None:
    taken = session.input
    stir(session)
    count_item(session, event.item_id)
    if taken.phase == "silent" and not session.auto:
        taken.start = event.start
    taken.phase = move(phases.INPUT, taken.phase, event)
    taken.item_id, taken.speech = event.item_id, True
    goes_on(session)
    session.turn.state = "user_speaking"


def speech_stopped(session: Session, event: ev.SpeechStopped) -> None:
    session.input.phase = move(phases.INPUT, session.input.phase, event)
    stopped(session, event.reason)


def input_committed(session: Session, event: ev.InputCommitted) -> None:
    taken = session.input
    if event.item_id != taken.prompted:
        stir(session)
    count_item(session, event.item_id)
    fold_units.committed(session, event)
    _empty_input(session, event)
    session.input.text, session.input.text_size = "", 0
    if event.overlap_ack:
        _answer_goes_on(session)
    if event.empty:
        return
    session.turn.commits += 1
    session.turn.state = "user_committed"
    if event.ref is not None and not session.resident:
        taken.retained += event.ref.size
        if taken.unanswered is None:
            taken.unanswered = event.ref.start


def input_cleared(session: Session, event: ev.InputCleared | ev.InputDropped) -> None:
    _empty_input(session, event)
    session.input.text, session.input.text_size = "", 0
    drop_deferred(session)
    _call_off(session)
    fold_units.forget(session)
    if session.turn.state == "user_speaking":
        session.turn.state = "idle"


def input_discarded(session: Session, event: ev.InputDiscarded) -> None:
    fold_units.discarded(session)
    _empty_input(session, event)
    _answer_goes_on(session)


def _answer_goes_on(session: Session) -> None:
    if session.turn.state == "user_speaking":
        session.turn.state = "assistant_playing" if session.response is None else "assistant_generating"


def overlap_decided(session: Session, event: ev.OverlapDecided) -> None:
    session.input.overlap_ms = event.overlap_ms


def _empty_input(
    session: Session, event: ev.InputCommitted | ev.InputCleared | ev.InputDropped | ev.InputDiscarded
) -> None:
    taken = session.input
    taken.phase = move(phases.INPUT, taken.phase, event)
    forgotten(session, event)
    taken.start = taken.position
    taken.item_id, taken.speech, taken.non_speech, taken.transcript = None, False, False, ""
    taken.spoken = taken.overlap_ms = taken.hint_size = 0
    taken.ahead = None
    vad.reset(taken.vad, samples(session, taken.position))


def let_go(session: Session) -> None:
    """Give back the bytes of committed sound: a request has them, or they are called off (E28, F23)."""
    session.input.unanswered, session.input.retained = None, 0
    fold_units.let_go(session)


def drop_deferred(session: Session) -> None:
    """Call off the answers that are due, and the turns that they would have answered (F23).

    Function outputs are no turn of the user: they stay to be answered, if the client asks for it.
    """
    turn = session.turn
    if turn.due:
        turn.waiting = tuple(item_id for item_id in turn.waiting if item_id not in turn.due)
        put_off(session)
        _call_off(session)


def _call_off(session: Session) -> None:
    """Let go of committed sound that nobody was given.

    It is still in its items, for a model that reads the conversation. A resident one hears it now or never: what it
    will not hear is no turn to answer.
    """
    let_go(session)
    if session.resident and not session.auto:
        turn, known = session.turn, session.conversation.entries
        turn.waiting = tuple(item_id for item_id in turn.waiting if _sound_of(known[item_id].item) is None)


def _sound_of(item: Item) -> SampleRef | None:
    """Return where the sound of a committed turn lies in the `in` stream."""
    return next((ref for ref in places(item) if ref.stream == "in"), None)


def waits_no_more(session: Session, item: Item) -> None:
    """A turn that was deleted is not answered, and nobody hears it who has not yet."""
    turn, taken = session.turn, session.input
    if item.id not in turn.waiting:
        return
    turn.waiting = tuple(item_id for item_id in turn.waiting if item_id != item.id)
    given = any(isinstance(other, FunctionOutput) for other in unanswered(session))
    turn.due = tuple(item_id for item_id in turn.due if (item_id != item.id if item_id else given))
    turn.absorbs = turn.absorbs and given
    sound = _sound_of(item)
    if sound is None or session.auto:
        return
    fold_units.unsaid(session, sound)
    if taken.unanswered is not None and sound.start >= taken.unanswered:
        taken.retained -= sound.size
        taken.unanswered = taken.unanswered if taken.retained else None


def put_off(session: Session) -> None:
    """Give none of the answers that are due; what the client asks for from here on is none of them (WIRE 7.4)."""
    session.turn.due = ()
    session.turn.absorbs = False


def user_transcribed(session: Session, event: ev.UserTranscribed) -> None:
    entry = session.conversation.entries.get(event.item_id)
    if not event.final or event.error or entry is None or not isinstance(entry.item, Message):
        return
    content = tuple(
        msgspec.structs.replace(part, transcript=event.text)
        if isinstance(part, AudioPart) and part.transcript is None
        else part
        for part in entry.item.content
    )
    told = msgspec.structs.replace(entry.item, content=content)
    session.conversation.entries[event.item_id] = msgspec.structs.replace(entry, item=told)


def count_item(session: Session, item_id: str) -> None:
    """Move the counter on when an id of our own making was used."""
    number = next_item_number(session)
    if item_id == ids.item_id(session.id, number):
        session.counters.items = number
        step_over(session)


def _input_format(session: Session) -> AudioFormat:
    return session.capabilities.input_format


def samples(session: Session, position: int) -> int:
    return position // _input_format(session).width
