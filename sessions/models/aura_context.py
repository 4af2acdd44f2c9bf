"""What AURA remembers of a conversation (N57): turns with their clips, thinned out as they grow old. Pure.

The list is state of the session and dies with it.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from antiphon.events.context import ContextTurn

MOST_CLIPS = 45
"""So many turns may have clips."""
THINNED = 30
"""Beyond that, so many of the oldest lose theirs."""
MOST_TURNS = 999


def remembered(turns: Sequence[ContextTurn], turn: ContextTurn) -> tuple[ContextTurn, ...]:
    """Return the memory with one more turn in it."""
    return bounded((*turns, turn))


def bounded(turns: Sequence[ContextTurn]) -> tuple[ContextTurn, ...]:
    """Return the turns as the model may be shown them.

    A turn that has lost its clip, of which the user said nothing and the model too, is dropped as a pair.
    """
    kept = list(turns)
    seen = [index for index, turn in enumerate(kept) if turn.clip]
    if len(seen) > MOST_CLIPS:
        for index in seen[:THINNED]:
            kept[index] = replace(kept[index], clip=())
        thinned = frozenset(seen[:THINNED])
        kept = [turn for index, turn in enumerate(kept) if index not in thinned or turn.user or not turn.silent]
    return tuple(kept[-MOST_TURNS:])
