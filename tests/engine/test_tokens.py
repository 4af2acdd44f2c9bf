"""Resume tokens: derived, one for each attachment, known to the log only by their digest."""

import re

from antiphon.engine.tokens import digest, token

from tests.rules import rule


@rule("D21")
def test_a_token_is_43_url_safe_characters_and_can_be_made_again() -> None:
    made = token(b"k" * 32, "duplex-1", 1)
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", made)
    assert made == token(b"k" * 32, "duplex-1", 1)


@rule("D21")
def test_secret_session_and_attachment_all_matter() -> None:
    made = {
        token(b"k" * 32, "duplex-1", 1),
        token(b"l" * 32, "duplex-1", 1),
        token(b"k" * 32, "duplex-2", 1),
        token(b"k" * 32, "duplex-1", 2),
        token(b"k" * 32, "duplex-", 11),
    }
    assert len(made) == 5


@rule("D21")
def test_a_digest_is_hex_and_is_not_the_token() -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", digest("abc"))
