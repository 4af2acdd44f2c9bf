"""Walking through a log: the state at every place, there and back, and where to go from there."""

import random

import pytest
from msgspec.structs import replace

from antiphon.engine.changes import Plain, changes, plain
from antiphon.engine.walk import Broken, NoSuchPlace, Walk
from antiphon.events import events as ev
from antiphon.events.ids import event_id
from antiphon.events.log import Transaction
from antiphon.sessions import core

from tests.talks import talk as spoken


@pytest.fixture(scope="module")
def talk() -> list[Transaction]:
    """Two spoken turns; the second one interrupts the first answer."""
    return spoken("All is well here.", "As you like.").log


def states(talk: list[Transaction]) -> list[Plain]:
    """The state behind every transaction."""
    session = core.new()
    return [plain(session), *(plain(core.fold([entry], session)) for entry in talk)]


@pytest.mark.parametrize("every", [1, 7, 1_000])
def test_the_state_is_the_same_from_wherever_one_comes(talk: list[Transaction], every: int) -> None:
    expected = states(talk)
    walk = Walk(talk, every)
    places = [*range(len(talk) + 1)] * 2
    random.Random(1).shuffle(places)
    for seq in places:
        assert walk.state(seq) == expected[seq], seq


def test_going_back_folds_no_more_than_lies_between_two_kept_states(
    talk: list[Transaction], monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = Walk(talk, 10)
    walk.state(walk.head)
    folded: list[int] = []
    fold = core.fold

    def counted(transactions: list[Transaction], session: core.Session) -> core.Session:
        folded.extend(entry.seq for entry in transactions)
        return fold(transactions, session)

    monkeypatch.setattr(core, "fold", counted)
    walk.state(19)
    assert folded == list(range(11, 20))


def test_what_changed_between_two_places(talk: list[Transaction]) -> None:
    walk, expected = Walk(talk), states(talk)
    assert walk.changes(0, walk.head) == changes(expected[0], expected[-1])
    assert walk.changes(5, 4) == changes(expected[5], expected[4])
    assert walk.changes(3, 3) == []


def test_turns_and_interruptions_are_found_in_both_directions(talk: list[Transaction]) -> None:
    walk = Walk(talk)

    def having(*kinds: type[ev.Event]) -> list[int]:
        return [entry.seq for entry in talk if any(isinstance(event, kinds) for event in entry.events)]

    turns, interruptions = having(ev.InputCommitted, ev.ResponseCreated), having(ev.Interrupted)
    assert (len(turns), len(interruptions)) == (2, 1)
    assert [walk.next_turn(0), walk.next_turn(turns[0]), walk.next_turn(turns[1])] == [*turns, None]
    assert walk.previous_turn(walk.head) == turns[1]
    assert walk.previous_turn(turns[1]) == turns[0]
    assert walk.previous_turn(turns[0]) is None
    assert walk.next_interruption(0) == walk.previous_interruption(walk.head) == interruptions[0]
    assert walk.next_interruption(interruptions[0]) is walk.previous_interruption(interruptions[0]) is None


def test_types_are_found_by_letters_of_their_names(talk: list[Transaction]) -> None:
    walk = Walk(talk)
    first = walk.find("audiodelta", 0)
    assert first is not None
    assert any(isinstance(event, ev.AudioDelta) for event in talk[first - 1].events)
    assert walk.find("opensession", 0) == walk.find_back("OpenS", walk.head) == 1
    assert walk.find("opensession", 1) is None
    assert walk.find_back("AudioDelta", first) is None


def test_a_place_is_a_number_a_time_or_an_id(talk: list[Transaction]) -> None:
    walk = Walk(talk)
    answer = next(entry for entry in talk for event in entry.events if isinstance(event, ev.ResponseCreated))
    head = next(event.head for event in answer.events if isinstance(event, ev.ResponseCreated))
    assert (walk.place("0"), walk.place(" 7 ")) == (0, 7)
    assert walk.place(head.id) == walk.place(head.id[:12]) == answer.seq
    assert walk.place(event_id(5, 0, 1)) == 5
    at = talk[answer.seq - 1].at
    assert walk.place(f"{at / 1e6}s") == max(entry.seq for entry in talk if entry.at <= at)
    assert walk.place("1e6s") == walk.head
    assert walk.seconds(walk.head) == (talk[-1].at - talk[0].at) / 1e6
    assert (walk.seconds(0), walk.at(0), walk.at(1)) == (0.0, None, talk[0])
    for nothing in (
        "",
        "x",
        "-1",
        str(walk.head + 1),
        "-2s",
        "infs",
        "nans",
        event_id(9_999, 0, 0),
        "9" * 5000,
        "resp_nobody",
    ):
        with pytest.raises(NoSuchPlace):
            walk.place(nothing)


def test_an_empty_log_has_one_place() -> None:
    walk = Walk([])
    assert walk.place("1s") == walk.head == 0
    assert walk.state(0) == plain(core.new())
    with pytest.raises(NoSuchPlace):
        walk.state(1)


def test_events_that_cannot_follow_are_named_and_what_is_before_can_be_seen(talk: list[Transaction]) -> None:
    at = next(entry.seq for entry in talk if any(isinstance(event, ev.ResponseCreated) for event in entry.events))
    spoiled = [replace(entry, events=()) if entry.seq == at else entry for entry in talk]
    walk, expected = Walk(spoiled, 5), states(talk[: at - 1])
    for _ in range(2):
        with pytest.raises(Broken) as broken:
            walk.state(walk.head)
        assert at < broken.value.seq <= walk.head
        assert walk.state(at - 1) == expected[-1]
