"""The tables of phases: every row is used, and what has no row raises."""

from typing import Any, get_args

import pytest

from antiphon.events import events as ev
from antiphon.sessions import phases
from antiphon.sessions.core import evolve, new
from antiphon.sessions.phases import IllegalTransition, Table, move

TABLES: dict[str, tuple[Table[Any], object]] = {
    "session": (phases.SESSION, phases.SessionPhase),
    "attachment": (phases.ATTACHMENT, phases.AttachmentPhase),
    "input": (phases.INPUT, phases.InputPhase),
    "response": (phases.RESPONSE, phases.ResponsePhase),
    "delivery": (phases.DELIVERY, phases.DeliveryPhase),
    "request": (phases.REQUEST, phases.RequestPhase),
}


def blank(kind: type[ev.Event]) -> ev.Event:
    """Return an event with nothing in it: of an event only the type is looked at."""
    return kind(**dict.fromkeys(kind.__struct_fields__))


@pytest.mark.parametrize("name", TABLES)
def test_every_phase_has_its_rows_and_leads_to_a_phase(name: str) -> None:
    table, kind = TABLES[name]
    known = set(get_args(kind))
    reached = {phase for rows in table.values() for phase in rows.values()}
    assert reached <= known
    # An ended response is forgotten, so it has only two rows; all else is listed.
    assert set(table) == known
    first = get_args(kind)[0]
    assert known - {first} <= reached


@pytest.mark.parametrize("name", TABLES)
def test_each_row_moves_as_it_says(name: str) -> None:
    table, _ = TABLES[name]
    for phase, rows in table.items():
        for kind, target in rows.items():
            assert move(table, phase, blank(kind)) == target


@pytest.mark.parametrize("name", TABLES)
def test_what_has_no_row_raises(name: str) -> None:
    table, _ = TABLES[name]
    for phase, rows in table.items():
        for kind in get_args(ev.AnyEvent):
            if kind not in rows:
                with pytest.raises(IllegalTransition, match=f"{phase!r} on {kind.__name__}"):
                    move(table, phase, blank(kind))


def test_a_live_request_may_still_be_interrupted() -> None:
    live = {phase for phase, rows in phases.REQUEST.items() if ev.Interrupted in rows}
    assert live == phases.LIVE


def test_a_log_that_no_decision_wrote_is_refused() -> None:
    closed = ev.SessionClosed(number=1, count=1, session="s", reason="r", expired=False)
    with pytest.raises(IllegalTransition, match="'new' on SessionClosed"):
        evolve(new(), closed, 0)
    words = ev.TextDelta(number=1, count=1, response_id="r", item_id="i", part="text", text="x", epoch=0)
    with pytest.raises(IllegalTransition, match="no response 'r' is open"):
        evolve(new(), words, 0)
