"""Names, counters and fences of a session (BEHAVIOURS A)."""

import pytest

from antiphon.events import commands as cmd
from antiphon.events import effects as fx
from antiphon.events import events as ev
from antiphon.events import ids
from antiphon.events.config import ConfigPatch
from antiphon.sessions import core
from antiphon.sessions.phases import LIVE

from tests.rules import rule
from tests.sessions.world import FRAME, World, capable, kinds, only


def listening() -> World:
    """Return a session whose resident model hears everything."""
    return World(plugin="echo", auto=True)


def given(world: World, events: list[ev.AnyEvent]) -> list[fx.FeedStage]:
    """Return what a resident model is given because of events."""
    return [effect for effect in world.effects(events) if isinstance(effect, fx.FeedStage)]


@rule("A3")
@pytest.mark.parametrize("request_", ["duplex-2.e0.turn1", "duplex-1.e0.turn0", "duplex-1.e1.turn1", "duplex-1.e0"])
def test_a3_work_of_another_session_turn_or_epoch_is_not_taken(request_: str) -> None:
    world = World()
    world.answer(ms=100)
    world.ack(100)
    world.begin("And now?")
    assert world.request == "duplex-1.e0.turn1"
    reports: list[cmd.AnyCommand] = [
        cmd.StageProduced(request=request_, text="stray", size=FRAME),
        cmd.StageFinished(request=request_),
        cmd.StageFailed(request=request_, code="engine_error", message="stray"),
        cmd.StageAccepted(request=request_),
    ]
    for report in reports:
        assert world.do(report) == []
    assert only(world.produce("Fine.", 100), ev.AudioDelta).text == "Fine."


@rule("A5")
def test_a5_a_new_epoch_begins_with_nothing_and_the_counters_go_on() -> None:
    world = World()
    world.append(4)
    world.commit(create_response=True)
    world.produce("One two", 1_000)
    world.append(30)
    world.commit(create_response=True)
    before = world.session.turn
    turn, commits = before.turn, before.commits
    world.cancel()
    session = world.session
    assert (session.epoch, session.response, session.others) == (1, None, {})
    assert not [known for known in session.requests.values() if known.phase in LIVE]
    assert (session.turn.deferred, session.input.overlap_ms, session.input.retained) == (0, 0, 0)
    assert session.turn.turn >= turn
    assert session.turn.commits == commits == 2
    assert session.turn.state == "barge_in"


@rule("A5", "A8")
def test_a5_pieces_are_numbered_anew_for_the_request_of_a_new_epoch() -> None:
    world = listening()

    def numbers() -> list[tuple[str, int]]:
        return [(unit.request, unit.seq) for unit in given(world, world.append())]

    heard = numbers() + numbers()
    world.produce("echo", 100, world.resident)
    world.cancel()
    heard += numbers() + numbers()
    assert heard == [("duplex-1.e0", 1), ("duplex-1.e0", 2), ("duplex-1.e1", 1), ("duplex-1.e1", 2)]


@rule("A8")
def test_a8_a_refused_piece_burns_no_number() -> None:
    world = listening()
    world.append()
    too_large = cmd.AppendAudio(attachment=1, size=10**9, wire_bytes=10**9)
    assert kinds(world.do(too_large)) == ["ErrorReported"]
    assert [unit.seq for unit in given(world, world.append())] == [2]


@rule("A6", "P7")
def test_a6_turns_only_go_on_whoever_ends_them() -> None:
    world = World()
    turns: list[int] = []
    for end in (world.finish, world.cancel, world.fail, world.lose):
        world.begin()
        end()
        turns.append(world.session.turn.turn)
    assert turns == [1, 2, 3, 4]


@rule("A7")
def test_a7_only_what_becomes_a_turn_of_the_user_counts_as_committed() -> None:
    world = World()
    counts: list[int] = []

    def count() -> None:
        counts.append(world.session.turn.commits)

    world.append(4)
    world.commit()
    count()
    world.append(4, speech=False)
    world.commit()
    count()
    world.append(4)
    world.clear()
    count()
    world.append(4)
    world.commit(create_response=True)
    count()
    world.append(4)
    world.commit()  # a short acknowledgement of the answer that runs
    count()
    assert counts == [1, 1, 1, 2, 2]


@rule("A11", "A12", "A15", "P14")
def test_a12_the_end_of_one_turns_work_leaves_the_next_turns_alone() -> None:
    world = World(dialect="ga")
    names: list[str] = []
    for _ in range(12):
        world.begin()
        names.append(world.request)
        world.finish()
    world.begin()
    running = world.request
    assert (names[1], names[11], running) == (
        "sess_1.e0.turn1",
        "sess_1.e0.turn11",
        "sess_1.e0.turn12",
    ), "one name is the beginning of another"
    (released,) = world.do(cmd.StageReleased(request=names[1]))
    assert released == ev.RequestReleased(request=names[1])
    assert set(world.session.requests) == {*names, running} - {names[1]}
    assert [ids.parse_request(name) for name in names] == [ids.RequestName("sess_1", 0, turn) for turn in range(12)]


@rule("A15")
def test_a15_requests_travel_as_whole_names() -> None:
    world = World()
    world.begin()
    first = world.request
    world.finish()
    world.ack(0)
    world.begin()
    second = world.request
    assert world.effects(world.cancel()) == [fx.AbortRequests(requests=(second,))]
    world.wait(5_000)
    assert world.effects(world.tick()) == [fx.AbortRequests(requests=(first, second))]
    assert world.effects(world.close()) == [], "they are being cleaned up already (K20)"
    assert {name: (known.phase, known.epoch) for name, known in world.session.requests.items()} == {
        first: ("leaving", 0),
        second: ("leaving", 0),
    }


@rule("A10", "A13")
@pytest.mark.parametrize("resumable", [False, True])
@pytest.mark.parametrize("plugin", ["cascade", "echo"])
def test_a13_one_capability_says_whether_a_request_stays(plugin: str, resumable: bool) -> None:
    able = capable(core.REGISTRY[plugin].capabilities, core_resumable_request=resumable)
    world = World(plugin="echo" if plugin == "echo" else "cascade", auto=True, capabilities=able)
    events = world.append(4)
    events += [] if resumable else world.commit()
    submitted = only(events, ev.RequestSubmitted)
    assert submitted.request == ("duplex-1.e0" if resumable else "duplex-1.e0.turn0")
    assert (submitted.response_id is None) == resumable


@rule("A14")
def test_a14_what_is_fed_stays_with_its_request_although_an_answer_opens_in_between() -> None:
    world = listening()
    before = given(world, world.append())
    opened = only(world.produce("echo", 100, world.resident), ev.ResponseCreated)
    after = given(world, world.append())
    assert [unit.request for unit in (*before, *after)] == [opened.request] * 2 == [world.resident] * 2


@rule("A14")
def test_a14_an_answer_and_its_request_are_named_by_one_decision() -> None:
    world = World()
    world.say("Hello?")
    events = world.respond()
    assert only(events, ev.ResponseCreated).request == only(events, ev.RequestSubmitted).request == world.request


@rule("A21")
def test_a21_what_was_begun_before_an_interruption_is_told_under_the_epoch_of_its_telling() -> None:
    world = World()
    world.begin()
    world.append(4)
    world.cancel()
    assert only(world.commit(create_response=True), ev.InputCommitted).epoch == 1
    created = only(world.log[-1].events[-2:], ev.ResponseCreated)
    assert (created.head.epoch, created.head.turn) == (1, world.session.turn.turn)


@rule("A23", "D12")
def test_a23_only_what_is_public_is_counted_outside() -> None:
    world = World()
    world.append(2)
    for _ in range(5):
        world.append(2)
    created = only(world.say("Hello."), ev.ItemCreated)
    assert (len(world.log), created.number) == (8, 2), "an announcement, and then this"


@rule("A1", "A9")
def test_a9_ids_come_from_the_sessions_own_counters() -> None:
    def told(world: World) -> list[str]:
        response_id = world.begin()
        world.produce("Hello", 100)
        return [response_id, *world.session.conversation.order]

    first, second = World(), World(dialect="ga")
    assert told(first) == told(World()), "the same session, decided again"
    assert not set(told(World())) & set(told(second))
    response_id, _, answer = told(World())
    assert answer == f"item_{response_id}"


@rule("A20")
def test_a20_an_update_moves_no_generation_of_the_lease_and_a_refused_resume_none_either() -> None:
    world = World()
    world.do(cmd.UpdateSession(attachment=1, patch=ConfigPatch(instructions="Be brief.")))
    world.refused(world.resumption("wrong"))
    assert (world.session.lease.generation, world.session.lease.attachment) == (0, 1)
    world.resume()
    world.close()
    assert (world.session.lease.generation, world.session.lease.attachment) == (2, 2)


@rule("A9")
def test_names_that_a_client_takes_in_advance_are_stepped_over_once() -> None:
    world = World()
    for number in (*range(8, 1, -1), 1):
        world.say("Mine.", item_id=ids.item_id("duplex-1", number))
    for number in (2, 1):
        world.say("Mine.", item_id=ids.assistant_item_id(ids.response_id("duplex-1", number)))
    assert (world.session.counters.items, world.session.counters.responses) == (8, 2)
    assert only(world.say("Yours."), ev.ItemCreated).item.id == ids.item_id("duplex-1", 9)
    assert only(world.respond(), ev.ResponseCreated).head.id == ids.response_id("duplex-1", 3)


@rule("A9")
def test_a_name_that_was_taken_behind_one_that_is_promised_is_stepped_over() -> None:
    world = World()
    world.say("Mine.", item_id=ids.item_id("duplex-1", 2))
    promised = only(world.append(20), ev.SpeechStarted).item_id
    assert promised == ids.item_id("duplex-1", 1)
    assert only(world.say("Yours."), ev.ItemCreated).item.id == ids.item_id("duplex-1", 3)
    assert only(world.commit(), ev.ItemCreated).item.id == promised
