"""How a response ends: its one terminal, and the interruption that may be the cause."""

from antiphon.events import events as ev
from antiphon.events.items import AudioPart, Message, TextPart
from antiphon.events.metrics import Latency, StageCost, Usage

from .draft import Draft
from .fold_calls import given_early
from .fold_talk import shortened
from .measuring import added, shows_costs, spent
from .phases import LEFT, LIVE
from .playback import cursor, finished, heard, history_of, kept_of, playing, plays, prefix_of
from .state import Playout, Response, Session

MUTE = "runtime_data_plane_text_without_audio"
_NOTHING_SPENT = Usage()


def end_response(
    draft: Draft,
    response: Response,
    status: ev.ResponseStatus,
    *,
    reason: str | None = None,
    cause: str | None = None,
    failure: ev.Failure | None = None,
    usage: Usage = _NOTHING_SPENT,
    costs: tuple[StageCost, ...] = (),
    cut: bool = False,
) -> None:
    """Draft the terminal of an open response. `cut` True: history ends at what was heard by now."""
    playout = draft.session.playout(response.head.id)
    if cut and playout is not None and not response.aside:
        cut_history(draft, playout)
        playout = draft.session.playouts[response.head.id]
    if status == "completed" and _mute(draft, response, playout):
        failure = ev.Failure(MUTE, "The model has written an answer and has not spoken it.")
        draft.emit(ev.ErrorReported(number=draft.number, count=1, code=failure.code, message=failure.message))
        status = "failed"
    session = draft.session
    after = None if playout is None or response.aside else finished(playout, status)
    history = "" if after is None else history_of(after, session.config.playback_policy)
    draft.emit(
        ev.ResponseEnded(
            number=draft.number,
            count=_terminal_count(response),
            session=session.id,
            head=response.head,
            status=status,
            item=final_item(response, playout, status),
            item_done=response.said is not None,
            calls=response.calls,
            cut=response.calling.item("incomplete") if response.calling is not None else None,
            text=response.text,
            previous_item_id=response.previous_item_id,
            reason="stop" if status == "completed" else reason,
            cause=cause,
            failure=failure,
            usage=spent(response.usage, usage),
            costs=added(response.costs, costs),
            committed=bool(history),
            playback=cursor(playout),
            shows_costs=shows_costs(session),
            latency=_latency(response),
        )
    )
    if status == "completed" and given_early(session, response.calls):
        _go_on(draft)


def _go_on(draft: Draft) -> None:
    """Outputs of functions came before the response that called for them had ended: an answer to them is due now,
    if no other is awaited (WIRE 7.4). A model that listens all the time goes on by itself."""
    session = draft.session
    if session.turn.absorbs and not session.auto:
        draft.emit(ev.AnswerDeferred())


def not_taken(code: str, message: str) -> ev.Failure:
    """Return why an answer fails whose input no stage took (G22); only a context that is full is named (K17)."""
    return ev.Failure(code if code == "context_length_exceeded" else "runtime_append_failed", message)


def fail_response(draft: Draft, response: Response, failure: ev.Failure) -> None:
    """Fail an open response: the error first, then its terminal, which says the same (WIRE 3.4)."""
    draft.emit(ev.ErrorReported(number=draft.number, count=1, code=failure.code, message=failure.message))
    end_response(draft, response, "failed", failure=failure)


def _mute(draft: Draft, response: Response, playout: Playout | None) -> bool:
    """Return whether words should have been spoken, by a model that promises it, and were not (N25)."""
    written = response.head.part == "audio" and bool(response.text)
    return written and (playout is None or not playout.sent) and draft.plugins[draft.session.plugin].promises_audio


def _terminal_count(response: Response) -> int:
    """Messages of a terminal in the duplex dialect: endings of what is open; done; rate limits."""
    if response.calling is not None:
        return 5 - response.aside
    if response.phase != "speaking":
        return 2
    # An item that is out of band is none of the conversation: no message tells that it is done there.
    return (7 if response.head.part == "audio" else 6) - response.aside


def final_item(response: Response, playout: Playout | None, status: ev.ResponseStatus) -> Message | None:
    """Return the message of a response that ends with `status`, cut where it was cut; None: it said nothing."""
    if playout is None:
        return None
    head = response.head
    status = "completed" if response.said is not None else status
    playout = finished(playout, status)
    part = (
        AudioPart(response.text, None, head.output_format.rate, playout.sent_ms)
        if head.part == "audio"
        else TextPart(response.text)
    )
    item = Message(
        id=head.item_id,
        role="assistant",
        status="completed" if status == "completed" else "incomplete",
        content=(part,),
    )
    return item if playout.cap_ms is None else shortened(item, kept_of(playout, playout.cap_ms), playout.cap_ms)


def _latency(response: Response) -> Latency:
    """Measure from the accepted input that started the turn; a later piece of it does not count (K27)."""
    return Latency(
        since="the unit was handed over" if response.by_unit else "the turn was submitted",
        first_text_ms=_since(response, response.first_text_at),
        first_audio_ms=_since(response, response.first_audio_at),
    )


def _since(response: Response, at: int | None) -> float | None:
    return None if at is None else (at - response.since) / 1000


def cut_history(draft: Draft, playout: Playout) -> None:
    """End item and history of a response at what was heard by now, if it had sound and is not cut already."""
    if not playout.sent or playout.cap_ms is not None:
        return
    ms, basis = heard(playout, draft.now)
    draft.emit(
        ev.HistoryCut(
            response_id=playout.response_id,
            item_id=playout.item_id,
            ms=ms,
            basis=basis,
            text=prefix_of(playout, ms),
        )
    )


def live_requests(session: Session) -> tuple[str, ...]:
    """Return the requests of the conversation that still may produce something."""
    aside = {response.request for response in session.others.values() if response.aside}
    return tuple(
        key
        for key, request in session.requests.items()
        if request.phase in LIVE and request.utterance is None and key not in aside
    )


def newest_answer(session: Session) -> Response | None:
    """Return the newest open response of the conversation: the active one, else one that drains."""
    return next((response for response in reversed(session.open_responses) if not response.aside), None)


def interrupt(
    draft: Draft,
    *,
    reason: str,
    cause: ev.Cause,
    asked: bool = True,
    spares_turns: bool = False,
    works: bool = False,
) -> bool:
    """Kill what is generated or played; return whether there was anything (G30, G34, A4).

    The epoch moves first. History ends at what was heard. Then the terminal of the active response; or, if only
    sound was left to play, `OutputCleared`. `asked`: a client command asked for it. A resident request that
    listens is work of the stage but no answer: it is aborted only with a response (G30), or if it `works` on input
    that is called off (E29). `spares_turns`: turns that wait behind it are kept (F23).
    """
    session = draft.session
    newest, audible = newest_answer(session), playing(session, draft.now)
    if newest is not None:
        _bump(draft, cause, newest.head.id, live_requests(session), spares_turns=spares_turns)
        cut_queued(draft)
        for response in draft.session.open_responses:
            if not response.aside:
                end_response(draft, response, "cancelled", reason=reason, cause=cause, cut=True)
        return True
    if audible is not None:
        requests = live_requests(session) if works else ()
        interrupt_playback(draft, audible, cause, spares_turns=spares_turns, requests=requests)
        draft.emit(ev.OutputCleared(number=draft.number, count=1, response_id=audible.response_id, asked=asked))
        return True
    return False


def cancel_alone(draft: Draft, response: Response, cause: str) -> None:
    """Call off a response that is made beside others, and only that: out of band, or draining (WIRE 2.5)."""
    draft.emit(ev.AsideCancelled(response_id=response.head.id, requests=(response.request,)))
    end_response(draft, response, "cancelled", reason="client_cancelled", cause=cause, cut=True)


def interrupt_playback(
    draft: Draft, newest: Playout, cause: ev.Cause, *, spares_turns: bool, requests: tuple[str, ...] = ()
) -> None:
    """Void the sound that is still to be played although its response has ended; no stage is disturbed (G30), but
    for `requests`."""
    _bump(draft, cause, newest.response_id, requests, spares_turns=spares_turns)
    cut_queued(draft)


def _bump(
    draft: Draft, cause: ev.Cause, response_id: str, requests: tuple[str, ...], *, spares_turns: bool
) -> None:
    draft.emit(
        ev.Interrupted(
            epoch=draft.session.epoch + 1,
            cause=cause,
            requests=requests,
            response_id=response_id,
            spares_turns=spares_turns,
        )
    )


def cut_queued(draft: Draft) -> None:
    """Cut every ended answer whose sound is still to be heard."""
    for playout in list(draft.session.playouts.values()):
        if playout.ended and plays(playout, draft.now):
            cut_history(draft, playout)


def ask_again(draft: Draft) -> None:
    """Ask the stages once more to forget what they still hold, if that is due (M12): all of it at once (K20)."""
    session = draft.session
    cleanup = session.cleanup
    if cleanup is not None and draft.now >= cleanup.due:
        left = tuple(name for name, known in session.requests.items() if known.phase in LEFT)
        draft.emit(ev.CleanupRetried(requests=left, attempt=cleanup.attempt + 1))


def close_if_free(draft: Draft) -> None:
    """Draft the session's terminal if it is closing and every stage has answered: it has forgotten, or it cannot.

    What it could not forget is asked for again behind the terminal, and holds the session's slot (M4, M6).
    """
    session = draft.session
    if session.phase == "closing" and all(known.phase == "stuck" for known in session.requests.values()):
        close(draft)


def close(draft: Draft) -> None:
    """Draft the terminal event of a closing session."""
    session = draft.session
    closing = session.closing
    assert closing is not None, "only a closing session can be closed"
    draft.emit(
        ev.SessionClosed(
            number=draft.number,
            count=1,
            session=session.id,
            reason=closing.reason,
            expired=closing.expired,
            words=closing.words,
        )
    )
