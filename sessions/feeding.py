"""Decisions about the units of a resident model: when one is handed over, and what the stage says of it."""

from bisect import bisect_right

from msgspec import Struct

from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.audio import SampleRef

from . import fold_units
from .draft import Draft
from .phases import LIVE
from .state import Request, Response, Session, Span
from .units import Cut, cut, ended, unit_bytes


def live(session: Session, request: str) -> Request | None:
    """Return a request that may still produce something; its absence is the fence (DESIGN 3)."""
    known = session.requests.get(request)
    return known if known is not None and known.phase in LIVE else None


def resident(session: Session) -> str | None:
    """Return the resident request that listens, if there is one."""
    for name, known in session.requests.items():
        if known.resident and known.phase in LIVE:
            return name
    return None


def name_of_resident(session: Session) -> str:
    """Return the request that listens, or the name of the one that would begin now."""
    return resident(session) or ids.resident_request(session.id, session.epoch)


def submit_resident(draft: Draft, session: Session) -> str:
    """Return the resident request that listens; draft its submission if there is none.

    It is named after the epoch in which it began, and outlives interruptions of mere playback.
    """
    request = resident(session)
    if request is None:
        request = ids.resident_request(session.id, session.epoch)
        turn = session.turn.turn
        draft.emit(ev.RequestSubmitted(request=request, response_id=None, epoch=session.epoch, turn=turn))
    return request


# -- handing over --------------------------------------------------------------------------------------------


class _Count(Struct):
    """The numbers of the units of one decision (A8), and the pictures that are left for them (E22)."""

    request: str
    turn: int
    operation: int
    seq: int
    turn_seq: int
    groups: list[tuple[SampleRef, ...]]
    response_id: str | None
    configuration: int | None
    told: tuple[str, ...]

    def taken(self, unit: Cut, kind: ev.UnitKind = "audio") -> ev.UnitTaken:
        """Return the event that hands over the next unit."""
        news, self.configuration = self.configuration, None
        told, self.told = self.told, ()
        self.operation += 1
        self.seq += 1
        self.turn_seq += 1
        return ev.UnitTaken(
            request=self.request,
            operation=self.operation,
            seq=self.seq,
            turn=self.turn,
            turn_seq=self.turn_seq,
            refs=unit.refs,
            pad=unit.pad,
            kind=kind,
            speech=unit.speech,
            force_listen=unit.force_listen,
            final=unit.final,
            frames=self.groups.pop(0) if self.groups and kind == "audio" else (),
            response_id=self.response_id,
            configuration=news,
            told=told,
        )


def _count(session: Session, request: str, response: Response | None = None) -> _Count:
    """Return where the numbers stand: behind the units in flight, which will be accepted or give theirs back.

    The turn is that of the response that is answered, else of the session (A14).
    """
    stream = session.input.stream
    answered = response or session.response
    turn = session.turn.turn if answered is None else answered.head.turn
    last = stream.in_flight[-1].taken if stream.in_flight else None
    if last is not None and last.turn == turn:
        turn_seq = last.turn_seq
    else:
        turn_seq = stream.turn_seq if last is None and stream.turn == turn else 0
    return _Count(
        request=request,
        turn=turn,
        operation=stream.operation,
        seq=stream.seq if last is None else last.seq,
        turn_seq=turn_seq,
        groups=list(stream.groups),
        response_id=None if response is None else response.head.id,
        configuration=_news(session),
        told=() if not stream.untold or _given(response) else stream.untold,
    )


def _given(response: Response | None) -> bool:
    """Return whether a response answers input of its own, in place of the conversation (WIRE 2.6)."""
    return response is not None and response.options.input is not None


def _news(session: Session) -> int | None:
    """Return the generation of a configuration that the resident request was not told of yet."""
    told = session.input.stream.configuration == session.config_generation or resident(session) is None
    return None if told else session.config_generation


def hear(draft: Draft, session: Session, event: ev.AudioReceived) -> None:
    """Hand over what is complete behind `event`, which `session` does not hold yet; cheap, for every frame."""
    waiting, size = session.input.stream.queue, unit_bytes(session)
    queue: list[Span] = []
    if not waiting and event.ref.size and size in (None, event.ref.size):
        unit: Cut | None = Cut((event.ref,), 0, event.speech, event.force_listen, final=False)
    else:
        queue += waiting
        fold_units.push(queue, fold_units.span_of(event), merge=size is not None)
        unit = cut(queue, size)
    if unit is None:
        return
    count = _count(session, submit_resident(draft, session))
    if event.frames:
        count.groups.append(event.frames)
    while unit is not None:
        draft.emit(count.taken(unit))
        unit = cut(queue, size) if queue else None


def go_on(draft: Draft) -> None:
    """Hand over every complete unit of a session that listens all the time (E16, E17)."""
    session = draft.session
    if session.phase == "open" and session.auto:
        _hand_over_all(draft, session, list(session.input.stream.queue))


def end_input(draft: Draft) -> None:
    """Hand over what is left of a commit, padded (E31); on a boundary there is nothing (E32)."""
    session = draft.session
    queue = session.input.stream.queue
    if queue:
        _hand_over_all(draft, session, ended(queue))


def _hand_over_all(draft: Draft, session: Session, queue: list[Span]) -> None:
    size = unit_bytes(session)
    unit = cut(queue, size)
    if unit is None:
        return
    count = _count(session, submit_resident(draft, session))
    while unit is not None:
        draft.emit(count.taken(unit))
        unit = cut(queue, size)


def hand_over_turn(draft: Draft, response: Response, *, seeded: bool) -> None:
    """Hand over what a response answers, the last unit as the final one: what was committed for it.

    Without sound it is one unit of nothing but pictures, or the conversation itself (G6); the silence that a model
    needs to begin with a text that it was `seeded` with (G7). A model that listens all the time has heard all sound
    that is complete, and goes on with what is not: what it is asked to answer is written.
    """
    session = draft.session
    stream, size = session.input.stream, unit_bytes(session)
    count = _count(session, submit_resident(draft, session), response)
    queue = ended(stream.queue) if stream.queue and not session.auto else []
    unit = cut(queue, size)
    plugin = draft.plugins[session.plugin]
    if unit is None and count.groups and not session.auto:
        draft.emit(count.taken(_nothing(size or 0, final=True)))
    elif unit is None and seeded and plugin.priming_units:
        period = plugin.continuation_samples * session.capabilities.input_format.width
        for left in reversed(range(plugin.priming_units)):
            draft.emit(count.taken(_nothing(period, final=left == 0), "silence"))
    elif unit is None:
        draft.emit(count.taken(_nothing(0, final=True), "conversation"))
    while unit is not None:
        draft.emit(count.taken(unit))
        unit = cut(queue, size)


def hand_over_silence(draft: Draft, samples: int, *, force_listen: bool) -> None:
    """Hand over a unit of nothing but time (G25)."""
    session = draft.session
    pad = samples * session.capabilities.input_format.width
    nothing = _nothing(pad, final=False, force_listen=force_listen)
    draft.emit(_count(session, submit_resident(draft, session)).taken(nothing, "silence"))


def _nothing(pad: int, *, final: bool, force_listen: bool = False) -> Cut:
    return Cut((), pad, speech=False, force_listen=force_listen, final=final)


# -- what the stage says -------------------------------------------------------------------------------------


def accept(draft: Draft, session: Session, request: str, operation: int | None) -> None:
    """Note that the stage has all units of `request` up to `operation`; `session` is as it was before."""
    flying = session.input.stream.in_flight
    if operation is None or not flying or flying[0].taken.operation > operation:
        return
    if flying[0].taken.request != request:
        return  # the units of another one
    done = flying[-1].taken.operation
    if done > operation:
        done = flying[bisect_right(flying, operation, key=lambda unit: unit.taken.operation) - 1].taken.operation
    draft.emit(ev.UnitsAccepted(operation=done))


def lose_units(draft: Draft, *, again: bool) -> None:
    """Say what becomes of the units of a resident request that has ended under them; `again`: they are given to the
    next one.

    What is lost takes along what waited for it (E33); a commit of it would seal sound that nobody has heard.
    """
    if again:
        _give_back(draft)
    if draft.session.input.stream.in_flight:
        draft.failed = True


def _give_back(draft: Draft) -> None:
    """Put units whose request died under them in front of the buffer again (E20).

    Those of an announced response are lost with it, and all before them.
    """
    flying = [unit.taken for unit in draft.session.input.stream.in_flight]
    bound = [unit.operation for unit in flying if unit.response_id is not None]
    free = [unit.operation for unit in flying if not bound or unit.operation > bound[-1]]
    if free:
        draft.emit(ev.UnitsReturned(operation=free[0]))
