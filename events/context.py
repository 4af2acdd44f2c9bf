"""What a model remembers of a turn, where it is shown more than the items of the conversation."""

from msgspec import Struct

from .audio import SampleRef


class ContextTurn(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One turn: what the user said and showed, and what the model answered. `assistant` None: it stayed silent."""

    user: str = ""
    clip: tuple[SampleRef, ...] = ()
    assistant: str | None = None

    @property
    def silent(self) -> bool:
        """Whether the model decided to say nothing."""
        return self.assistant is None
