"""Who may connect."""

import pytest

from antiphon.transport.access import Access


@pytest.mark.parametrize("keys", [("",), (" ",), ("good", "")])
def test_an_empty_key_is_no_key(keys: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        Access(keys=keys)
