"""The function outputs that a resident model has not taken in yet (J12, J14): a record and what may change it."""

from msgspec import Struct
from msgspec.structs import replace

from antiphon.events.batches import FunctionBatch
from antiphon.events.items import FunctionOutput

from .refusal import refuse


class Batches(Struct, frozen=True):
    """`generation` is the last number given; `pending` are what the model does not own yet, oldest first.

    `answered` are the last calls whose output has a number: the model has it, or will.
    """

    generation: int = 0
    pending: tuple[FunctionBatch, ...] = ()
    answered: tuple[str, ...] = ()


KEPT_ANSWERED = 1024


def check(batches: Batches, most: int) -> None:
    """Refuse another output while `most` are pending (J12).

    Raises:
        Refusal: `function_response_backlog`.
    """
    if len(batches.pending) >= most:
        refuse(
            "function_response_backlog",
            f"{most} function outputs wait for the model to take them in: wait until it has answered.",
        )


def numbered(batches: Batches, output: FunctionOutput) -> FunctionBatch:
    """Return the batch that an output becomes: it has the next number."""
    return FunctionBatch(
        generation=batches.generation + 1, item_id=output.id, call_id=output.call_id, output=output.output
    )


def added(batches: Batches, batch: FunctionBatch) -> Batches:
    """Return the record with a batch behind the others."""
    answered = (*batches.answered, batch.call_id)[-KEPT_ANSWERED:]
    return Batches(batch.generation, (*batches.pending, batch), answered)


def retired(batches: Batches, owned: int) -> Batches:
    """Return the record without the batches up to `owned`, which the model has taken in (J14).

    Numbers are not given again. A report of fewer, as of an older output, changes nothing.
    """
    left = tuple(batch for batch in batches.pending if batch.generation > owned)
    return replace(batches, pending=left) if len(left) < len(batches.pending) else batches
