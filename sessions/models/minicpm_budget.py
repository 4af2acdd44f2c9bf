"""How many scheduler tokens an append of MiniCPM-o 4.5 takes (N32, N33): reserved before it is submitted.

Too many waste slots; too few lose the end of a unit without an error. So every doubt is rounded up.
"""

from collections.abc import Sequence

UNIT = 16_000
"""Samples of one unit."""
EMBEDDING = 1_600
"""Samples of one audio embedding (N31: ten a unit)."""
FIRST_WINDOW = 16_560
"""Samples of the processor's first window, 1,035 ms: its front is padded with silence (N31)."""
BLOCK = 66
"""Tokens of one block of an image: 64 and its two borders."""
TILE = 448
"""Side of one normalisation tile: what fits into its area is not cut."""
PROMPT = 48
"""Tokens of the context where nobody has measured it."""

Size = tuple[int, int]
"""Width and height of an image, in pixels."""


def first_unit_samples(samples: int) -> tuple[int, int]:
    """Return what the first unit takes of `samples`, and what is carried into the next one (N31).

    The window is 1,035 ms; the missing front is silence, so the first unit takes a little less than a second.
    """
    taken = min(samples, 2 * UNIT - FIRST_WINDOW)
    return taken, samples - taken


def context(measured: int | None, reference: int = 0) -> int:
    """Return the tokens of the first append's context; `reference`: samples of the reference audio."""
    if measured is not None:
        return measured
    return PROMPT + (_embeddings(reference) + 8 if reference else 0)


def vision(frames: Sequence[Size | None], tile: int = TILE) -> int:
    """Return the tokens of the images of one append; None: its header could not be read.

    One frame is one block. Of two the first is taken in full detail, unless it fits one tile.
    """
    if len(frames) < 2:
        return BLOCK * len(frames)
    first = frames[0]
    fits = first is not None and first[0] * first[1] <= tile * tile
    return BLOCK * ((1 if fits else 3) + 1)


def tokens(samples: int, *, first: int | None = None, frames: Sequence[Size | None] = ()) -> int:
    """Return the tokens of an append of `samples`; a final unit costs the same.

    `first` is the size of the context if this is the first append, else None.
    """
    if samples <= 0:
        return 64
    if samples % UNIT:
        return max(16, min(768, _embeddings(samples) + 8)) + vision(frames)
    units = samples // UNIT
    if first is not None:
        return first + 12 * max(1, units - 1) - 1 + vision(frames)
    return 12 * units + 1 + vision(frames)


def _embeddings(samples: int) -> int:
    return -(-samples // EMBEDDING)
