"""Function outputs on their way to a resident model: numbered, so that each is taken in exactly once (J12, J13)."""

from collections.abc import Sequence

from msgspec import Struct


class FunctionBatch(Struct, frozen=True, kw_only=True):
    """The output of one call. `generation` counts 1, 2, 3 … within the session and is never given twice."""

    generation: int
    item_id: str
    call_id: str
    output: str


class BatchGap(Exception):
    """What the model was shown does not follow what it has: a generation is missing, or the count went back."""


def take(seen: int, batches: Sequence[FunctionBatch], generation: int) -> tuple[FunctionBatch, ...]:
    """Return the batches that a model which has taken in `seen` must take in now, in order (J13).

    `batches` and `generation` are what it is shown with an append. The same snapshot again adds nothing.

    Raises:
        BatchGap: `seen + 1 … generation` is not all there, or `generation` is lower than `seen`.
    """
    if generation < seen:
        raise BatchGap(f"batch {seen} was taken in already, and {generation} is said to be the last one")
    known = {batch.generation: batch for batch in batches}
    missing = [number for number in range(seen + 1, generation + 1) if number not in known]
    if missing:
        raise BatchGap(f"batch {missing[0]} is missing")
    return tuple(known[number] for number in range(seen + 1, generation + 1))
