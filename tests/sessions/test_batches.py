"""Function outputs of resident models: numbered, bounded, taken in exactly once, in order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.events.batches import BatchGap, FunctionBatch, take
from antiphon.events.items import FunctionOutput
from antiphon.sessions.batches import Batches, added, check, numbered, retired
from antiphon.sessions.refusal import Refusal

from tests.rules import rule


def grown(batches: Batches, count: int = 1) -> Batches:
    for _ in range(count):
        number = batches.generation + 1
        output = FunctionOutput(id=f"i{number}", call_id=f"c{number}", output=str(number))
        batches = added(batches, numbered(batches, output))
    return batches


def numbers(batches: tuple[FunctionBatch, ...]) -> list[int]:
    return [batch.generation for batch in batches]


@rule("J12")
def test_each_output_has_the_next_number() -> None:
    batches = grown(Batches(), 3)
    assert (batches.generation, numbers(batches.pending)) == (3, [1, 2, 3])
    assert batches.pending[1] == FunctionBatch(generation=2, item_id="i2", call_id="c2", output="2")


@rule("J12", "N49")
def test_the_ninth_is_refused_and_there_is_room_again_when_the_model_has_some() -> None:
    batches = grown(Batches(), 7)
    check(batches, 8)
    batches = grown(batches)
    with pytest.raises(Refusal) as refused:
        check(batches, 8)
    assert refused.value.code == "function_response_backlog"
    check(retired(batches, 1), 8)


@rule("J14")
def test_retired_is_what_the_model_owns_and_numbers_are_never_given_again() -> None:
    batches = retired(grown(Batches(), 4), 3)
    assert (batches.generation, numbers(batches.pending)) == (4, [4])
    assert retired(batches, 2) is batches
    assert numbers(grown(retired(batches, 4)).pending) == [5]


@rule("J13")
def test_a_worker_takes_each_batch_once_in_order() -> None:
    batches = grown(Batches(), 3)
    assert numbers(take(0, batches.pending, 3)) == [1, 2, 3]
    assert numbers(take(1, tuple(reversed(batches.pending)), 3)) == [2, 3]
    assert take(3, batches.pending, 3) == ()
    assert take(3, (), 3) == ()


@pytest.mark.parametrize(
    ("seen", "kept", "generation"), [(0, (2, 3), 3), (0, (1, 3), 3), (1, (), 2), (3, (1, 2), 2), (0, (1,), 2)]
)
@rule("J13")
def test_a_gap_and_a_step_back_are_errors(seen: int, kept: tuple[int, ...], generation: int) -> None:
    batches = grown(Batches(), 3)
    shown = tuple(batch for batch in batches.pending if batch.generation in kept)
    with pytest.raises(BatchGap):
        take(seen, shown, generation)


@given(st.lists(st.sampled_from(["add", "append", "report"]), max_size=80))
@rule("J12", "J13", "J14")
def test_nothing_is_lost_or_doubled_whatever_the_order(steps: list[str]) -> None:
    batches, seen, taken = Batches(), 0, list[int]()
    for step in steps:
        if step == "add" and len(batches.pending) < 8:
            batches = grown(batches)
        elif step == "append":
            taken += numbers(take(seen, batches.pending, batches.generation))
            seen = batches.generation
        elif step == "report":
            batches = retired(batches, seen)
        assert len(batches.pending) <= 8
        assert numbers(batches.pending) == list(
            range(batches.generation - len(batches.pending) + 1, batches.generation + 1)
        )
    taken += numbers(take(seen, batches.pending, batches.generation))
    assert taken == list(range(1, batches.generation + 1))
