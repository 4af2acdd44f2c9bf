"""The token ids that Nemotron VoiceChat is steered by: read from its checkpoint, one set for the whole engine."""

from collections.abc import Mapping

from msgspec import Struct

NAMES: Mapping[str, str] = {
    "begin": "<s>",
    "end": "</s>",
    "padding": "<pad>",
    "call_begin": "<function>",
    "call_end": "</function>",
}
"""What each token is called in the vocabulary unless the checkpoint's configuration says otherwise."""


class TokenIds(Struct, frozen=True):
    """Ids of the tokens with a meaning of their own."""

    begin: int
    end: int
    padding: int
    call_begin: int
    call_end: int


def read(vocabulary: Mapping[str, int], names: Mapping[str, str] = NAMES) -> TokenIds:
    """Return the ids in a tokenizer's vocabulary.

    Raises:
        ValueError: it has no such token, or two of them share an id.
    """
    missing = [text for text in names.values() if text not in vocabulary]
    if missing:
        raise ValueError(f"the tokenizer has no token {', '.join(missing)}")
    ids = TokenIds(**{role: vocabulary[text] for role, text in names.items()})
    if len({ids.begin, ids.end, ids.padding, ids.call_begin, ids.call_end}) < 5:
        raise ValueError("two of the tokens that steer the model have one id")
    return ids


class EngineTokens:
    """The one set of an engine: outputs are read by it, so no session may bring another (N50)."""

    def __init__(self) -> None:
        self._ids: TokenIds | None = None

    def configure(self, ids: TokenIds) -> TokenIds:
        """Take the set of a session that opens.

        Raises:
            ValueError: an earlier session brought another one.
        """
        if self._ids is None:
            self._ids = ids
        elif self._ids != ids:
            raise ValueError("the sessions of an engine share one tokenizer; this one has other token ids")
        return self._ids
