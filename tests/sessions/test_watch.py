"""The watch over a session sees what it is there for: a fault is planted, and it is found."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.audio import SampleRef
from antiphon.events.items import Message, TextPart
from antiphon.events.log import Transaction
from antiphon.sessions import core
from antiphon.sessions.state import Continuation, Entry, Request, Span

from tests.sessions.watch import Watch, look
from tests.sessions.world import World

Plant = Callable[[core.Session, Transaction], Transaction]
"""Spoils the state behind a transaction, or returns another transaction in its place."""


def story() -> World:
    """Speak, hear an answer, speak over it, delete something, interrupt the next answer."""
    world = World()
    world.append(20)
    world.commit(create_response=True)
    world.produce("All is well.", 1_000)
    world.append(30)
    world.commit(create_response=True)
    world.finish()
    world.release()
    world.produce("Again.", 300)
    world.say("A note.", "note")
    world.do(cmd.DeleteItem(attachment=1, item_id="note"))
    world.cancel()
    return world


def watched(plant: Plant | None, kind: type[ev.Event]) -> str:
    """Replay the story under a watch, the first event of `kind` spoiled; return what it says."""
    watch, session = Watch(), core.new()
    planted = False
    for transaction in story().log:
        before = look(session, core.dump(session))
        core.fold([transaction], session)
        if plant is not None and not planted and any(isinstance(event, kind) for event in transaction.events):
            transaction, planted = plant(session, transaction), True
            try:
                watch.work.step(before.state, session, transaction)
            except AssertionError as found:
                return str(found)
            return ""
        watch.step(before, session, transaction)
    assert plant is None
    return ""


def by(command: cmd.AnyCommand) -> Plant:
    return lambda _session, transaction: replace(transaction, command=command)


def instead(kind: type[ev.Event], change: Callable[[ev.AnyEvent], ev.AnyEvent]) -> Plant:
    def plant(_session: core.Session, transaction: Transaction) -> Transaction:
        events = tuple(change(event) if isinstance(event, kind) else event for event in transaction.events)
        return replace(transaction, events=events)

    return plant


def spoiled(change: Callable[[core.Session], object]) -> Plant:
    def plant(session: core.Session, transaction: Transaction) -> Transaction:
        change(session)
        return transaction

    return plant


def without(kind: type[ev.Event]) -> Plant:
    return lambda _session, transaction: replace(
        transaction, events=tuple(event for event in transaction.events if not isinstance(event, kind))
    )


def again(kind: type[ev.Event]) -> Plant:
    return lambda _session, transaction: replace(
        transaction,
        events=(*transaction.events, *(event for event in transaction.events if isinstance(event, kind))),
    )


def moved(session: core.Session) -> None:
    order = session.conversation.order
    order[0], order[1] = order[1], order[0]


def renamed(session: core.Session) -> None:
    first = session.conversation.order[0]
    session.conversation.entries[first] = Entry(Message(id=first, role="user", content=(TextPart("x"),)))


def second_memory(session: core.Session) -> None:
    for name in ("duplex-1.e0", "duplex-1.e1"):
        session.requests[name] = Request("accepted", None, 0)


TAKEN = ev.UnitTaken(request="duplex-1.e0.turn0", operation=1, seq=1, turn=0, turn_seq=1)


def with_unit(**fields: object) -> Plant:
    """A unit is taken in the transaction too."""
    return lambda _session, transaction: replace(
        transaction, events=(*transaction.events, replace(TAKEN, **fields))
    )


def waiting(session: core.Session, transaction: Transaction) -> Transaction:
    """A resident model of units of 80 ms; more than one waits, and nothing is on its way."""
    session.config = replace(session.config, auto_response=True)
    session.capabilities = replace(session.capabilities, core_resumable_request=True, chunk_period_ms=80)
    session.input.stream.queue.append(Span(0, 3_000, True, False))
    return transaction


def failing(event: ev.AnyEvent) -> ev.AnyEvent:
    return replace(event, status="failed", reason=None, failure=ev.Failure("engine_error", "x"))


def cut_short(event: ev.AnyEvent) -> Message:
    assert isinstance(event, ev.ResponseEnded)
    assert event.item is not None
    return replace(event.item, status="incomplete")


def opened_by_a_report(session: core.Session, transaction: Transaction) -> Transaction:
    response = session.response
    assert response is not None
    made = ev.ResponseCreated(
        number=1, count=1, head=response.head, request=response.request, options=cmd.ResponseOptions()
    )
    return replace(transaction, command=cmd.StageAccepted(request=response.request), events=(made,))


PACED = replace(core.REGISTRY["echo"].capabilities, chunk_period_ms=80)

FAULTS: list[tuple[str, type[ev.Event], Plant]] = [
    ("P4: an answer", ev.OutputStarted, by(cmd.StageProduced(request="nobody.e0", text="x"))),
    ("P14", ev.RequestSubmitted, instead(ev.RequestSubmitted, lambda e: replace(e, request="duplex-2.e0.turn0"))),
    ("P14", ev.RequestSubmitted, instead(ev.RequestSubmitted, lambda e: replace(e, request="duplex-1"))),
    ("A11", ev.RequestSubmitted, instead(ev.RequestSubmitted, lambda e: replace(e, response_id=None))),
    ("P12: two", ev.OutputStarted, spoiled(second_memory)),
    (
        "works for nobody",
        ev.OutputStarted,
        spoiled(lambda s: s.requests.update(x=Request("accepted", "resp_gone", 0))),
    ),
    ("A18", ev.ResponseEnded, spoiled(lambda s: s.requests.clear())),
    ("A15", ev.Interrupted, instead(ev.Interrupted, lambda e: replace(e, requests=("duplex-1",)))),
    ("P24: a mere", ev.OutputStarted, opened_by_a_report),
    ("P23", ev.ResponseCreated, instead(ev.ResponseCreated, lambda e: replace(e, head=replace(e.head, speed=2.0)))),
    ("P31", ev.OutputStarted, with_unit(pad=2)),
    ("P30", ev.AudioReceived, waiting),
    ("P26: for nobody", ev.OutputStarted, with_unit(kind="silence", request="duplex-1.e9")),
    ("P26: nothing was planned", ev.OutputStarted, with_unit(kind="silence")),
    ("G20: a", ev.ResponseEnded, again(ev.ResponseEnded)),
    ("G21", ev.ResponseEnded, instead(ev.ResponseEnded, lambda e: replace(e, reason="why"))),
    ("G23", ev.ResponseEnded, instead(ev.ResponseEnded, failing)),
    ("WIRE 3.4", ev.ResponseEnded, instead(ev.ResponseEnded, lambda e: replace(e, item=cut_short(e)))),
    ("P8: more", ev.Interrupted, again(ev.Interrupted)),
    (
        "interrupted nothing",
        ev.AudioReceived,
        instead(ev.AudioReceived, lambda _e: ev.Interrupted(epoch=1, cause="barge_in", requests=())),
    ),
    ("P29: bytes", ev.AudioReceived, instead(ev.AudioReceived, lambda e: replace(e, ref=SampleRef("in", 8, 8)))),
    ("P29: twice", ev.InputCommitted, instead(ev.InputCommitted, lambda e: replace(e, ref=SampleRef("in", 0, 0)))),
    ("P34: an item", ev.InputCommitted, without(ev.ItemCreated)),
    (
        "P34: nobody",
        ev.InputCommitted,
        lambda s, t: without(ev.ItemCreated)(
            s, instead(ev.InputCommitted, lambda e: replace(e, empty=True, ref=None))(s, t)
        ),
    ),
    ("P41", ev.ResponseEnded, spoiled(moved)),
    ("P42", ev.ItemDeleted, spoiled(renamed)),
    (
        "P48",
        ev.ItemDeleted,
        instead(
            ev.ItemDeleted,
            lambda _e: ev.SessionClosing(
                control_id=None, reason="idle_ttl_expired", expired=True, deadline_us=0, requests=()
            ),
        ),
    ),
]


def test_units_of_silence_are_counted_and_keep_their_distance() -> None:
    watch, session = Watch().work, World(plugin="echo", auto=True, capabilities=PACED).session
    session.requests["duplex-1.e0"] = Request("accepted", None, 0)
    session.input.stream.continuation = Continuation("duplex-1.e0", "turn 0", 0, 0)
    taken = replace(TAKEN, request="duplex-1.e0", kind="silence", pad=2_560)

    def give(at_ms: int, late_ms: int = 0) -> None:
        at = at_ms * 1000
        going = session.input.stream.continuation
        assert going is not None
        session.input.stream.continuation = replace(going, due=at - late_ms * 1000)
        unit = replace(taken, seq=watch.fed.get(taken.request, 0) + 1)
        transaction = Transaction(seq=1, term=1, at=at, command=cmd.Tick(), events=(unit,))
        watch.step(core.load(core.dump(session)), session, transaction)

    for n in range(64):
        give(80 * n)
    with pytest.raises(AssertionError, match="P25: too many"):
        give(80 * 64)
    session.input.stream.continuation = Continuation("duplex-1.e0", "turn 1", 0, 0)
    give(80 * 64)
    with pytest.raises(AssertionError, match="P25: a burst"):
        give(80 * 64 + 39)
    give(80 * 64 + 39, late_ms=41)
    session.input.stream.queue.append(Span(0, 2, True, False))
    watch.sound_at = 80 * 66_000
    with pytest.raises(AssertionError, match="P26: sound waits"):
        give(80 * 67 - 1)
    give(80 * 67)


def test_the_story_itself_is_sound() -> None:
    assert watched(None, ev.Event) == ""


@pytest.mark.parametrize(("says", "kind", "plant"), FAULTS, ids=[f"{n} {row[0]}" for n, row in enumerate(FAULTS)])
def test_a_planted_fault_is_found(says: str, kind: type[ev.Event], plant: Plant) -> None:
    assert says in watched(plant, kind)
