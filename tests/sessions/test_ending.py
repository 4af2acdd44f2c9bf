"""Terminals and interruptions: one end for each response, one epoch for each interruption (BEHAVIOURS G)."""

import pytest

from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events.config import Modality
from antiphon.sessions import core
from antiphon.sessions.draft import Draft
from antiphon.sessions.ending import close, interrupt
from antiphon.sessions.plugins import REGISTRY

from tests.rules import rule
from tests.sessions.world import World, kinds, only


@rule("G10")
@pytest.mark.parametrize(
    ("modalities", "spoken", "count"),
    [(("audio",), True, 7), (("text",), True, 6), (("audio",), False, 2), (("text",), False, 2)],
)
def test_wire_3_3_a_terminal_closes_what_was_opened(
    modalities: tuple[Modality, ...], spoken: bool, count: int
) -> None:
    world = World(modalities=modalities)
    world.begin()
    if spoken:
        world.produce("Hello", 100)
    assert only(world.finish(), ev.ResponseEnded).count == count


@rule("G13", "Q4.18")
def test_g20_the_terminal_tells_whether_text_is_history() -> None:
    world = World()
    world.begin()
    world.produce("one two", 1_000)
    assert not only(world.finish(), ev.ResponseEnded).committed
    world = World(dialect="ga")
    world.begin()
    world.produce("one two", 1_000)
    assert only(world.finish(), ev.ResponseEnded).committed


@rule("A4")
def test_a4_the_epoch_moves_before_anything_else() -> None:
    world = World()
    world.begin()
    world.produce("one two", 1_000)
    world.wait(100)
    assert kinds(world.cancel())[0] == "Interrupted"


@rule("P8")
def test_g30_nothing_to_interrupt_drafts_nothing() -> None:
    world = World()
    draft = Draft(world.session, world.now, REGISTRY)
    assert not interrupt(draft, reason="client_cancelled", cause="test")
    assert draft.events == []


@rule("G11")
def test_g11_the_terminal_shows_the_cursor_of_playback() -> None:
    world = World()
    world.begin()
    world.produce("one two", 1_000)
    world.ack(400)
    assert only(world.finish(), ev.ResponseEnded).playback == ev.PlaybackCursor(1_000, 1_000, 400, 400)


def test_m4_only_a_closing_session_can_be_closed() -> None:
    with pytest.raises(AssertionError):
        close(Draft(World().session, 0, REGISTRY))


@rule("A17")
def test_a17_an_interruption_aborts_every_request_that_is_live() -> None:
    world = World(plugin="echo", auto=True)
    world.append()
    world.produce("", 100, world.resident)
    resident = world.resident
    assert only(world.barge_in(), ev.Interrupted).requests == (resident,)
    assert core.outstanding(world.session) == [resident]
    world.release()
    assert core.outstanding(world.session) == []


@rule("G34")
def test_g34_an_interruption_moves_the_epoch_cuts_history_stops_the_stage_and_counts_as_activity() -> None:
    world = World()
    world.begin()
    world.produce("one two three four", 1_000)
    request = world.request
    world.wait(500)
    events = world.cancel()
    assert kinds(events) == ["Interrupted", "HistoryCut", "ResponseEnded"]
    assert world.effects(events) == [fx.AbortRequests(requests=(request,))]
    assert core.outstanding(world.session) == [request], "it is forgotten when the stage says so"
    assert world.session.lease.last_activity == world.now
    assert world.produce(" five", 100, request) == []
