"""The talker of MiniCPM-o: the codec tokens of one unit, when it may end, and how sound is cut from them."""

from msgspec import Struct

UNIT_TOKENS = 25
"""Codec tokens of one second of speech."""
UNIT_LIMIT = UNIT_TOKENS + 1
"""Tokens that are sampled for a unit: those of its second, and the one that ends it."""
LAST_LIMIT = 104
"""Tokens of the unit that ends a turn: what the turn still has to say is said in it."""
MASKED_STEPS = 5
"""In the last unit the end token is masked so many steps behind every whole second, so that no word is cut."""
CHUNK_FRAMES = 25
"""Frames that the vocoder turns into sound at once."""
CONTEXT_FRAMES = 3
"""Frames in front of a chunk that the vocoder hears again, so that chunks join."""
HELD_FRAMES = 5
"""A rest of fewer frames waits for more: the vocoder cannot render it alone."""


class TalkerLimits(Struct, frozen=True):
    """How many tokens a unit may have at most, and how many it must have at least."""

    most: int
    least: int = 0


def limits(*, ends_turn: bool) -> TalkerLimits:
    """Return the limits of a unit; none of them has a minimum (N39)."""
    return TalkerLimits(LAST_LIMIT if ends_turn else UNIT_LIMIT)


def may_end(step: int, *, ends_turn: bool) -> bool:
    """Return whether the end token may be sampled at `step` (0, 1, …) of a unit."""
    return not ends_turn or step < UNIT_TOKENS or step % UNIT_TOKENS >= MASKED_STEPS


class Chunk(Struct, frozen=True):
    """Frames for the vocoder: from `start`, of which the first `context` were rendered before, up to `end`."""

    start: int
    end: int
    context: int


def chunks(rendered: int, frames: int, *, final: bool) -> list[Chunk]:
    """Return what can be rendered of a turn with `frames` frames, `rendered` of them rendered already.

    Whole chunks, and at the end the rest of at least `HELD_FRAMES`; a shorter one goes with the chunk before it.
    """
    found: list[Chunk] = []
    at = rendered
    while frames - at >= CHUNK_FRAMES:
        end = at + CHUNK_FRAMES
        if final and 0 < frames - end < HELD_FRAMES:
            end = frames
        found.append(Chunk(max(at - CONTEXT_FRAMES, 0), end, min(at, CONTEXT_FRAMES)))
        at = end
    if final and frames - at >= HELD_FRAMES:
        found.append(Chunk(max(at - CONTEXT_FRAMES, 0), frames, min(at, CONTEXT_FRAMES)))
    return found
