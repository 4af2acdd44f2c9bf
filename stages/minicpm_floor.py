"""Whose turn it is for MiniCPM-o: whether a unit must be heard in silence, and what its end means (N36)."""

from typing import Literal

from msgspec import Struct

Sampled = Literal["listen", "speak", "end_of_turn"]
"""How a unit ended: the listen token, the end of a chunk of speech, or the end of the turn."""


class Unit(Struct, frozen=True):
    """How the next unit begins: the tokens in front of it, and whether only listening may be sampled."""

    tokens: tuple[int, ...]
    forced: bool


class Floor:
    """Follows one request. `pending`: something waits for an answer that is no speech of a unit, a seeded text."""

    def __init__(self, *, pending: bool = False) -> None:
        self._pending = pending
        self._speaking = False
        self._forced = False
        self._terminator: int | None = None

    def begin(self, *, speech: bool, force_listen: bool) -> Unit:
        """Take up a unit: the terminator of the segment before it is put in front again.

        While the model's turn is over and nothing waits for an answer, silence is listened to, whatever the model
        would like to say. `force_listen` is what the session asks of the unit.
        """
        self._pending = self._pending or speech
        self._forced = force_listen or not (self._speaking or self._pending)
        tokens = () if self._terminator is None else (self._terminator,)
        return Unit(tokens, self._forced)

    def end(self, sampled: Sampled, terminator: int) -> Sampled:
        """Return what the model has decided with a unit that ended so.

        A listen in the middle of its own turn is a pause: it goes on, unless it was forced to listen.
        """
        self._terminator = terminator
        if sampled == "listen":
            if self._speaking and not self._forced:
                return "speak"
            self._speaking = False
            return "listen"
        self._pending = False
        self._speaking = sampled == "speak"
        return sampled
