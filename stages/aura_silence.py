"""What AURA has decided when its text is complete: to say it, or to say nothing (N11, N54)."""

from collections.abc import Sequence

from msgspec import Struct

LANGUAGE_STAGE = 1


class Silence(Struct, frozen=True):
    """The silent token of a checkpoint, and how its tokenizer writes it."""

    token: int
    text: str

    def decided(self, stage: int, *, finished: bool, tokens: Sequence[int], text: str) -> bool:
        """Return whether an output means that nothing is said: then it is for nobody behind its stage.

        Only the language stage decides so, and only when its segment is finished: by the token anywhere in it, by
        the token written out, or by saying nothing at all.
        """
        if stage != LANGUAGE_STAGE or not finished:
            return False
        return self.token in tokens or self.text in text or not text.strip()
