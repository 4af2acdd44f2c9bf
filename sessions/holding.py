"""Commands that wait for units in flight: waiting is state, and nothing else waits for it (E33, E38, L1)."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import SampleRef
from antiphon.events.items import FunctionOutput, pieces

from . import conversing, listening
from .draft import Draft
from .ending import newest_answer
from .refusal import Refusal, refuse
from .state import Session, size_of
from .suspecting import settle

HELD = 512
"""Commands that may wait in one session."""

HELD_UPDATES = 32
"""Updates among them: whatever is sent behind them is understood as all of them ask."""

_BEHIND = (
    cmd.AppendAudio,
    cmd.AppendText,
    cmd.CommitInput,
    cmd.ClearInput,
    cmd.UpdateSession,
    cmd.CreateItem,
    cmd.DeleteItem,
    cmd.RetrieveItem,
    cmd.CreateResponse,
)
"""What keeps its place behind a command that waits. Everything else is decided at once: cancels above all (P58)."""

_CUTTING = (cmd.AppendAudio, cmd.CancelResponse, cmd.BargeIn, cmd.CancelInput, cmd.ClearOutput)
"""What may interrupt."""

Handlers = Mapping[type[cmd.ClientCommand], Callable[[Draft, Any], None]]

_ABORTED: Mapping[type[cmd.Command], tuple[str, str]] = {
    cmd.CommitInput: ("commit_aborted", "Sound sent before it could not be given to the model; commit again."),
    cmd.UpdateSession: (
        "session_update_aborted",
        "Sound sent before it could not be given to the model; send the update again.",
    ),
}


def must_wait(session: Session, command: cmd.ClientCommand) -> bool:
    """Return whether a command waits until the units in flight are accepted, or behind one that does."""
    if session.input.stream.held:
        return isinstance(command, _BEHIND)
    return _waits(session, command)


def hold(draft: Draft, command: cmd.ClientCommand) -> None:
    """Keep a command, and the place of the bytes that came with it; its credit is checked now (E12, E14).

    What waits weighs as much as it has bytes: words of any kind, options and patches are held like sound.
    """
    assert isinstance(command, _BEHIND), "only these wait"
    session = draft.session
    held = session.input.stream.held
    most = HELD
    if isinstance(command, cmd.CommitInput):
        most = session.limits.pending_commits
    elif isinstance(command, cmd.UpdateSession):
        most = HELD_UPDATES
    alike = sum(type(other.command) is type(command) for other in held)
    if alike >= most or len(held) >= HELD:
        refuse("input_backpressure", "Too much waits for the model to take sound; try again later.")
    refs: tuple[SampleRef, ...] = ()
    if isinstance(command, cmd.AppendAudio):
        listening.check_append(draft, command)
        sound = SampleRef("in", session.input.received, command.size)
        refs = (sound, *listening.pictures(session, command))
    elif isinstance(command, cmd.CreateItem):
        item = conversing.placed(session, command.item)
        command = msgspec.structs.replace(command, item=item)
        refs = tuple(part.ref for part in pieces(item) if part.ref is not None)
    size = len(_encode(command))
    if session.input.reserved + size + size_of(refs) > session.limits.input_bytes:
        refuse("input_backpressure", "Too many bytes wait for the model to take sound; try again later.")
    draft.emit(ev.CommandHeld(command=command, refs=refs, size=size))


_encode = msgspec.msgpack.Encoder().encode


def carry_on(draft: Draft, handlers: Handlers, *, aborted: int = 0, waits: bool = True) -> None:
    """Carry out what waited, in order, as far as nothing is in flight; `waits` False: in any case.

    The first `aborted` of them waited for units that were refused, and wait no longer: commits and updates are
    refused, each once (E26), everything else is carried out all the same (J11).
    """
    while True:
        session = draft.session
        held = session.input.stream.held
        if not held or session.phase != "open":
            return
        if waits and aborted <= 0 and _waits(session, held[0].command):
            return
        draft.emit(ev.HoldEnded())
        _carry_out(draft, held[0], handlers, fails=aborted > 0)
        settle(draft)  # it may have ended what was suspected, and what comes behind it is judged without that
        aborted -= 1


def cut_in(draft: Draft, command: cmd.ClientCommand, handlers: Handlers) -> bool:
    """Carry out a command that kills what others wait for, behind them, as if they had not had to wait (E38).

    Return False, and draft nothing, if it does not: then it has its place behind them, or passes.
    """
    if not isinstance(command, _CUTTING) or not _might_cut(draft.session, command):
        return False
    flying = {unit.taken.request for unit in draft.session.input.stream.in_flight}
    attempt = draft.attempt()
    begin = len(attempt.events)
    carry_on(attempt, handlers, waits=False)
    if isinstance(command, cmd.AppendAudio):
        begin = len(attempt.events)  # sound must cut in itself; a cancel wants what it finds to end
    try:
        handlers[type(command)](attempt, command)
    except Refusal as refusal:
        attempt.emit(refusal.event(attempt.number, command.event_id))
    killed: set[str] = set()
    for event in attempt.events[begin:]:
        if isinstance(event, ev.Interrupted):
            killed.update(event.requests)
        elif isinstance(event, ev.RequestFinished):
            killed.add(event.request)  # its end was held, and what waits lets that be decided
    if not flying & killed:
        return False
    draft.adopt(attempt)
    return True


def _might_cut(session: Session, command: cmd.ClientCommand) -> bool:
    """Return whether it is worth to see what a command does behind what waits: that takes time for all of it.

    Sound for which there is no room is refused, whatever it would do.
    """
    held = session.input.stream.held
    if isinstance(command, cmd.AppendAudio) and len(held) >= HELD:
        return False
    if isinstance(command, cmd.BargeIn):
        return session.capabilities.supports_barge_in
    named = command.response_id if isinstance(command, cmd.CancelResponse | cmd.ClearOutput) else None
    if named is not None:
        return session.open_response(named) is not None  # nobody was told the name of one that is to come
    if isinstance(command, cmd.CancelInput) or newest_answer(session) is not None:
        return True
    return any(_may_be_answered(other.command) for other in held)


def _may_be_answered(command: cmd.Command) -> bool:
    """Return whether an answer may open because of a command that waits."""
    if isinstance(command, cmd.AppendAudio):
        return bool(command.scores)  # a detector may find the end of a turn in it
    if isinstance(command, cmd.CreateItem):
        return isinstance(command.item, FunctionOutput)
    return isinstance(command, cmd.CommitInput | cmd.CreateResponse | cmd.DeleteItem)


def _waits(session: Session, command: cmd.Command) -> bool:
    return bool(session.input.stream.in_flight) and _needs_acceptance(session, command)


def _needs_acceptance(session: Session, command: cmd.Command) -> bool:
    if isinstance(command, cmd.CreateItem):
        return isinstance(command.item, FunctionOutput)  # J11
    if isinstance(command, cmd.CommitInput):
        return session.capabilities.supports_client_commit  # else it is refused, whatever comes
    return isinstance(command, cmd.UpdateSession)


def _carry_out(draft: Draft, held: ev.CommandHeld, handlers: Handlers, *, fails: bool) -> None:
    command = held.command
    before = len(draft.events)
    try:
        aborted = _ABORTED.get(type(command)) if fails else None
        if aborted is not None:
            refuse(*aborted)
        if isinstance(command, cmd.AppendAudio):
            listening.take(draft, command, held.refs[1:])
        else:
            handlers[type(command)](draft, command)
    except Refusal as refusal:
        assert len(draft.events) == before, "a refusal must come before the first event"
        draft.emit(refusal.event(draft.number, command.event_id))
