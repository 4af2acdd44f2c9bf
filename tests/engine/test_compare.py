"""Two logs beside each other: shifted names and numbers are no differences, all else is found in its place."""

import random

import pytest
from msgspec.structs import replace

from antiphon.engine.align import align
from antiphon.engine.compare import compare
from antiphon.events import commands as cmd
from antiphon.events import events as ev
from antiphon.events.log import Transaction

from .test_fork import FORK, LOGS, forked, spoken, written
from tests.sessions.world import QUICK_VAD, World


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_the_same_as_itself_and_as_its_fork(name: str) -> None:
    log = LOGS[name]
    for other in (log, forked(log).transactions):
        found = compare(log, other)
        assert found.equal, found.parting
        assert (found.common, found.shift_us) == (len(log), 0)


def test_the_first_difference_is_named_field_by_field() -> None:
    log = spoken().log
    at = next(entry.seq for entry in log if isinstance(entry.command, cmd.StageProduced))
    other = list(log)
    entry = other[at - 1]
    assert isinstance(entry.command, cmd.StageProduced)
    events = [replace(event, text="No.") if isinstance(event, ev.AudioDelta) else event for event in entry.events]
    other[at - 1] = replace(entry, command=replace(entry.command, text="No."), events=tuple(events))
    found = compare(log, other)
    assert found.common == at - 1
    parting = found.parting
    assert parting is not None
    assert [(known.path, known.a, known.b) for known in parting.fields] == [
        ("command.text", '"Yes."', '"No."'),
        (f"events[{len(events) - 1}] AudioDelta.text", '"Yes."', '"No."'),
    ]
    assert sum(not pair.same for pair in found.pairs) == 1, "what follows is the same"


def test_events_are_compared_with_those_of_their_kind() -> None:
    log = spoken().log
    at = next(entry.seq for entry in log if any(isinstance(event, ev.SpeechStopped) for event in entry.events))
    entry = log[at - 1]
    events = [event for event in entry.events if not isinstance(event, ev.SpeechStopped)]
    other = [*log[: at - 1], replace(entry, events=tuple(events)), *log[at:]]
    parting = compare(log, other).parting
    assert parting is not None
    ((path, mine, theirs),) = [(known.path, known.a, known.b) for known in parting.fields]
    assert path == "events[1] SpeechStopped"
    assert theirs is None
    assert mine is not None
    parting = compare(other, log).parting
    assert parting is not None
    assert [(known.a is None, known.b == mine) for known in parting.fields] == [(True, True)]


def test_what_was_dropped_or_put_in_stands_alone_and_the_rest_is_the_same() -> None:
    log = written().log
    beat = {"type": "Heartbeat"}
    first = next(entry.seq for entry in log if isinstance(entry.command, cmd.StageFinished))
    made = forked(log, {"insert_after": first, "command": beat})
    found = compare(log, made.transactions)
    assert found.common == first
    assert [(pair.a, type(pair.b and pair.b.command)) for pair in found.pairs if not pair.same] == [
        (None, cmd.Heartbeat)
    ]
    back = compare(made.transactions, log)
    assert [pair.b for pair in back.pairs if not pair.same] == [None]


def test_a_name_stands_for_one_name_only() -> None:
    log = written().log
    answers = [event.head.id for entry in log for event in entry.events if isinstance(event, ev.ResponseCreated)]
    world = written()
    world.log.pop()  # the close
    for response in (answers[0], answers[1]):
        world.log.append(
            Transaction(
                seq=len(world.log) + 1,
                term=1,
                at=world.now,
                command=cmd.CancelResponse(attachment=1, response_id=response),
                events=(ev.ErrorReported(number=99, count=1, code="response_not_active", message="No."),),
            )
        )
    one, other = list(world.log), list(world.log)
    one.pop()
    del other[-2]
    found = compare(one, [*other[:-1], replace(other[-1], seq=len(one))])
    assert [known.path for pair in found.pairs for known in pair.fields] == ["command.response_id"]
    assert found.counterpart(answers[0]) == answers[0]
    assert found.counterpart("nothing") is None


def test_what_only_came_later_is_the_same_and_told() -> None:
    log = written().log
    later = [replace(entry, at=entry.at + 1_000 * entry.seq) for entry in log]
    found = compare(log, later)
    assert found.equal
    assert (found.shift_us, found.shift_seq) == (1_000 * len(log), len(log))


def test_logs_of_different_length_and_of_nothing() -> None:
    log = spoken().log
    assert compare([], []).equal
    assert [pair.b for pair in compare(log[:3], []).pairs] == [None] * 3
    assert [pair.a for pair in compare([], log[:3]).pairs] == [None] * 3
    found = compare(log, log[:-1])
    assert (found.common, found.equal) == (len(log) - 1, False)


def test_aligning_keeps_both_orders_and_every_entry() -> None:
    choice = random.Random(7)  # any logs will do
    logs = list(LOGS.values())
    for _ in range(60):
        a = [entry for entry in choice.choice(logs) if choice.random() < 0.8]
        b = [entry for entry in choice.choice(logs) if choice.random() < 0.8]
        if choice.random() < 0.5:
            b = [entry for entry in a if choice.random() < 0.7]
        pairs = list(align(a, b, "duplex-1", FORK))
        assert [one for one, _ in pairs if one is not None] == a
        assert [other for _, other in pairs if other is not None] == b
        assert all(one is None or other is None or type(one.command) is type(other.command) for one, other in pairs)


def test_sound_that_is_like_other_sound_by_chance_does_not_belong_to_it() -> None:
    choice = random.Random(3)  # any noise will do
    logs: list[list[Transaction]] = []
    for _ in range(2):
        world = World(vad=QUICK_VAD)
        for number in range(120):
            world.append(1, score=choice.randrange(0, 40))
            if number % 40 == 20:
                world.do(cmd.Heartbeat(attachment=1, event_id=f"beat-{number}"))
        logs.append(world.log)
    pairs = [(one, other) for one, other in align(logs[0], logs[1], "duplex-1", "duplex-1") if one and other]
    assert len(pairs) == len(logs[0])
    assert all(one.seq == other.seq for one, other in pairs)


def test_what_is_much_later_than_usual_is_a_coincidence() -> None:
    log = written().log
    first = log[1]
    late = replace(first, seq=len(log) + 1, at=log[-1].at + 60_000_000)
    pairs = list(align(log, [log[0], *log[2:], late], "duplex-1", "duplex-1"))
    assert (first, None) in pairs
    assert (None, late) in pairs
